"""Parsing CSV and NDJSON block by block; cells of CSV stay text, and errors name the row or line."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

import polars as pl

from imondrian.errors import InvalidInputError
from imondrian.tables.checked_json import decode_json
from imondrian.tables.formats import guess_separator, without_byte_order_mark

BLOCK_BYTES = 2**23  # parsed at once
_MAX_RECORD_BYTES = 2**24
_BLANK_LINES = re.compile(rb"(?<=\n)(?:\r?\n)+")


class TextSource(NamedTuple):
    """Where to read text from, and how to parse it."""

    name: str  # of the table, for error messages
    read: Callable[[int], bytes]
    separator: str | None = None  # None: the most frequent in the first line
    has_header: bool = True


# -- CSV ----------------------------------------------------------------------------------------------------------


def read_csv(text: TextSource) -> Iterator[pl.DataFrame]:
    """Yield the rows of CSV block by block; each block is parsed with the header before it."""
    blocks = _blocks(text, _end_of_last_record)
    start = next(blocks, b"")
    end = _end_of_first_record(start)
    first = _decode_header(text, start[:end])
    text = text._replace(separator=text.separator or guess_separator(first.encode()))
    names = first if text.has_header else _numbered_names(text, first)
    n_rows = 0
    for block in chain([start[end + 1 :] if text.has_header else start], blocks):
        if rows := _without_blank_lines(block):
            frame = _parse_csv(text, f"{names}\n".encode(), rows, n_rows)
            n_rows += frame.height
            yield frame


def _decode_header(text: TextSource, first: bytes) -> str:
    try:
        return first.rstrip(b"\r").decode()
    except UnicodeDecodeError:
        raise InvalidInputError(f"{text.name}: the first line is not UTF-8 text.") from None


def _numbered_names(text: TextSource, first: str) -> str:
    """Return a header for a table without one: column_1, column_2 and so on."""
    n_columns = len(next(_records(text, first, 0), []))
    return str(text.separator).join(f"column_{j + 1}" for j in range(n_columns))


def _without_blank_lines(block: bytes) -> bytes:
    """Remove blank lines outside of quotes: they are not rows."""
    if b"\n\n" not in block and b"\n\r\n" not in block:
        return block.lstrip(b"\r\n")
    parts = block.split(b'"')
    parts[::2] = [_BLANK_LINES.sub(b"", part) for part in parts[::2]]
    return b'"'.join(parts).lstrip(b"\r\n")


def _parse_csv(text: TextSource, header: bytes, block: bytes, n_rows: int) -> pl.DataFrame:
    """Parse a block with polars; if that fails, parse it with Python, whose errors name the row."""
    if header.count(b'"') % 2 == 1:
        return _parse_by_record(text, header, block, n_rows)
    try:
        return pl.read_csv(io.BytesIO(header + block), separator=str(text.separator), infer_schema=False)
    except pl.exceptions.PolarsError:
        return _parse_by_record(text, header, block, n_rows)


def _parse_by_record(text: TextSource, header: bytes, block: bytes, n_rows: int) -> pl.DataFrame:
    """Parse record by record: a quote inside an unquoted field is an ordinary character."""
    try:
        lines = block.decode()
    except UnicodeDecodeError as error:
        near = n_rows + 1 + block.count(b"\n", 0, error.start)
        raise InvalidInputError(f"{text.name}: near row {near}: not UTF-8 text.") from None
    names = next(_records(text, header.decode(), n_rows))
    rows: list[list[Any]] = list(_records(text, lines, n_rows))
    for i, row in enumerate(rows, start=n_rows + 1):
        if len(row) > len(names):
            raise InvalidInputError(f"{text.name}: row {i} has {len(row)} fields, but the first line has {len(names)}.")
    if len(set(names)) < len(names):
        raise InvalidInputError(f"{text.name}: column names must be unique, but are {', '.join(names)}.")
    full = [row + [None] * (len(names) - len(row)) for row in rows]
    return pl.DataFrame(full, schema=dict.fromkeys(names, pl.String), orient="row")


def _records(text: TextSource, lines: str, n_rows: int) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO(lines, newline=""), delimiter=str(text.separator))
    except csv.Error as error:
        raise InvalidInputError(f"{text.name}: after row {n_rows}: {error}.") from None


# -- NDJSON -------------------------------------------------------------------------------------------------------


def read_ndjson(text: TextSource) -> Iterator[pl.DataFrame]:
    """Yield the rows of NDJSON block by block; each line is an object."""
    n_lines = 0
    for block in _blocks(text, _end_of_last_line):
        if block.strip():
            yield _parse_ndjson(text, block, n_lines)
        n_lines += block.count(b"\n")


def _parse_ndjson(text: TextSource, block: bytes, n_lines: int) -> pl.DataFrame:
    try:
        return pl.read_ndjson(io.BytesIO(block), infer_schema_length=None)
    except pl.exceptions.PolarsError:
        return _parse_by_line(text, block, n_lines)


def _parse_by_line(text: TextSource, block: bytes, n_lines: int) -> pl.DataFrame:
    """Parse what polars cannot, for example NaN or several types in a column; errors name the line."""
    records = []
    for i, line in enumerate(block.split(b"\n"), start=n_lines + 1):
        if line.strip():
            try:
                records.append(decode_json(line.decode()))
            except InvalidInputError as error:
                raise InvalidInputError(f"{text.name}: line {i}: {error}") from None
            except (ValueError, RecursionError) as error:
                raise InvalidInputError(f"{text.name}: line {i} is not JSON: {error}.") from None
            if not isinstance(records[-1], dict):
                raise InvalidInputError(f"{text.name}: line {i} is not a JSON object: {line.decode()[:40]!r}.")
    names = dict.fromkeys(name for record in records for name in record)
    try:
        return pl.DataFrame([_as_column(name, [record.get(name) for record in records]) for name in names])
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{text.name}: after line {n_lines}: {error}.") from None


def _as_column(name: str, values: list[Any]) -> pl.Series:
    """Return a column of Booleans, integers or floats if all values are, otherwise a column of text."""
    types = {type(value) for value in values if value is not None}
    if types in ({bool}, {int}):
        with suppress(OverflowError):  # integers beyond 64 bits
            return pl.Series(name, values, pl.Boolean if types == {bool} else pl.Int64)
    if types <= {bool, int, float}:
        with suppress(OverflowError):
            return pl.Series(name, [None if value is None else float(value) for value in values], pl.Float64)
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pl.Series(name, texts, pl.String)


# -- blocks -------------------------------------------------------------------------------------------------------


def _blocks(text: TextSource, end_of: Callable[[bytes], int]) -> Iterator[bytes]:
    """Read blocks of complete records."""
    rest = without_byte_order_mark(text.read(BLOCK_BYTES)).lstrip(b"\r\n")
    while more := text.read(BLOCK_BYTES):
        end = end_of(rest)
        if end < 0 and len(rest) > _MAX_RECORD_BYTES:
            end = _end_of_last_line(rest)  # no field is that long: a quote must be an ordinary character
        if end >= 0:
            yield rest[: end + 1]
        rest = rest[end + 1 :] + more
    if rest:
        yield rest


def _end_of_last_line(block: bytes) -> int:
    return block.rfind(b"\n")


def _end_of_last_record(block: bytes) -> int:
    """Return the position of the last line end outside of quotes, or -1."""
    position = block.rfind(b"\n")
    n_quotes = block.count(b'"', 0, position) if position >= 0 else 0
    while position >= 0 and n_quotes % 2 == 1:
        before = block.rfind(b"\n", 0, position)
        n_quotes -= block.count(b'"', max(before, 0), position)
        position = before
    return position


def _end_of_first_record(block: bytes) -> int:
    """Return the position of the first line end outside of quotes; if there is none, of the first line end."""
    position = block.find(b"\n")
    n_quotes = block.count(b'"', 0, max(position, 0))
    while position >= 0 and n_quotes % 2 == 1:
        after = block.find(b"\n", position + 1)
        n_quotes += block.count(b'"', position, max(after, position))
        position = after
    first = block.find(b"\n")
    return position if position >= 0 else first if first >= 0 else len(block)


def first_line(error: Exception) -> str:
    """Return the first line of an error message."""
    return (str(error).splitlines() or [""])[0].rstrip(".")

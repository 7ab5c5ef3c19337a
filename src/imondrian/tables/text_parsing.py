"""Parsing CSV and NDJSON block by block; cells of CSV stay text, and errors name the row or line."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import polars as pl

from imondrian.base.errors import InvalidInputError
from imondrian.tables.checked_json import decode_json
from imondrian.tables.column_labels import labels_that_differ, unique_names
from imondrian.tables.encodings import check_not_binary
from imondrian.tables.formats import without_byte_order_mark
from imondrian.tables.table_start import MAX_RECORDS, TableStart, find_start

BLOCK_BYTES = 2**23  # parsed at once
_MAX_RECORD_BYTES = 2**24
_BLANK_LINES = re.compile(rb"(?<=\n)(?:\r?\n)+")


@dataclass
class ReadingFacts:
    """What was found while a table was read."""

    notes: list[str] = field(default_factory=list)  # decisions that the user should know
    labels: dict[str, str] = field(default_factory=dict)  # original column names, by ours, where they differ
    separator: str | None = None  # of CSV fields


class TextSource(NamedTuple):
    """Where to read text from, and how to parse it."""

    name: str  # of the table, for error messages
    read: Callable[[int], bytes]
    facts: ReadingFacts
    separator: str | None = None  # None: recognised by the first lines
    has_header: bool = True
    skip_lines: int | None = None  # before the header; None: title lines are recognised


class _Columns(NamedTuple):
    """How to split the records of CSV, and the unique names of the columns."""

    separator: str
    names: list[str]


# -- CSV ----------------------------------------------------------------------------------------------------------


def read_csv(text: TextSource) -> Iterator[pl.DataFrame]:
    """Yield the rows of CSV block by block."""
    blocks = _blocks(text, _end_of_last_record)
    start = _without_lines(next(blocks, b""), text.skip_lines or 0)
    columns, end = _read_header(text, start)
    n_rows = 0
    for block in chain([start[end:]], blocks):
        if rows := _without_blank_lines(block):
            frame = _parse_csv(text, columns, rows, n_rows)
            n_rows += frame.height
            yield frame


def note_start(facts: ReadingFacts, start: TableStart, *, has_header: bool) -> list[str]:
    """Add where a table starts to the facts; return a unique name for each of its columns."""
    labels = start.labels if has_header else [f"column_{j + 1}" for j in range(len(start.labels))]
    names = unique_names(labels)
    facts.labels.update(labels_that_differ(names, labels))
    facts.separator = start.separator
    if start.n_titles:
        facts.notes.append(f"{start.n_titles} title line{'s' * (start.n_titles > 1)} before the header skipped")
    return names


def _without_lines(block: bytes, n_lines: int) -> bytes:
    """Return a block without its first lines."""
    position = 0
    for _ in range(n_lines):
        end = block.find(b"\n", position)
        position = len(block) if end < 0 else end + 1
    return block[position:]


def _read_header(text: TextSource, block: bytes) -> tuple[_Columns, int]:
    """Return the columns of a table, and the position in its first block at which its rows start."""
    ends = _ends_of_records(block)
    if not ends:
        return _Columns(text.separator or ",", [""]), len(block)
    records = [_decode_start(text, block[first:end]) for first, end in ends]
    find_titles = text.has_header and text.skip_lines is None
    try:
        start = find_start(records, text.separator, find_titles=find_titles)
    except InvalidInputError as error:
        raise InvalidInputError(f"{text.name}: {error}") from None
    names = note_start(text.facts, start, has_header=text.has_header)
    return _Columns(start.separator, names), ends[start.n_titles][1] + 1 if text.has_header else 0


def _ends_of_records(block: bytes) -> list[tuple[int, int]]:
    """Return the positions of the first records that are not blank: of their first byte, and of their line end."""
    ends: list[tuple[int, int]] = []
    first = 0
    while first < len(block) and len(ends) < MAX_RECORDS:
        end = _end_of_first_record(block, first)
        if block[first:end].strip():
            ends.append((first, end))
        first = end + 1
    return ends


def _decode_start(text: TextSource, record: bytes) -> str:
    try:
        return record.rstrip(b"\r").decode()
    except UnicodeDecodeError:
        check_not_binary(record, text.name)
        raise InvalidInputError(f"{text.name}: the first lines are not UTF-8 text: choose an --encoding.") from None


def _without_blank_lines(block: bytes) -> bytes:
    """Remove blank lines outside of quotes: they are not rows."""
    if b"\n\n" not in block and b"\n\r\n" not in block:
        return block.lstrip(b"\r\n")
    parts = block.split(b'"')
    parts[::2] = [_BLANK_LINES.sub(b"", part) for part in parts[::2]]
    return b'"'.join(parts).lstrip(b"\r\n")


def _parse_csv(text: TextSource, columns: _Columns, block: bytes, n_rows: int) -> pl.DataFrame:
    """Parse a block with polars; if that fails, parse it with Python, whose errors name the row."""
    header = columns.separator.join(f"c{j}" for j in range(len(columns.names)))
    try:
        frame = pl.read_csv(io.BytesIO(f"{header}\n".encode() + block), separator=columns.separator, infer_schema=False)
    except pl.exceptions.PolarsError:
        return _parse_by_record(text, columns, block, n_rows)
    frame.columns = columns.names
    return frame


def _parse_by_record(text: TextSource, columns: _Columns, block: bytes, n_rows: int) -> pl.DataFrame:
    """Parse record by record: a quote inside an unquoted field is an ordinary character."""
    try:
        lines = block.decode()
    except UnicodeDecodeError as error:
        check_not_binary(block, text.name)
        near = n_rows + 1 + block.count(b"\n", 0, error.start)
        raise InvalidInputError(f"{text.name}: near row {near}: not UTF-8 text: choose an --encoding.") from None
    width = len(columns.names)
    rows: list[list[Any]] = list(_records(text, columns.separator, lines, n_rows))
    for i, row in enumerate(rows, start=n_rows + 1):
        if any(row[width:]):  # empty fields at the end of a line are harmless
            hint = " (--skip-lines N skips lines before the header)" if i == 1 else ""
            raise InvalidInputError(f"{text.name}: row {i} has {len(row)} fields, but the header has {width}{hint}.")
    full = [row[:width] + [None] * (width - len(row)) for row in rows]
    return pl.DataFrame(full, schema=dict.fromkeys(columns.names, pl.String), orient="row")


def _records(text: TextSource, separator: str, lines: str, n_rows: int) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO(lines, newline=""), delimiter=separator)
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
            except ValueError as error:
                raise InvalidInputError(f"{text.name}: line {i} is not JSON: {error}.") from None
            if not isinstance(records[-1], dict):
                raise InvalidInputError(f"{text.name}: line {i} is not a JSON object: {line.decode()[:40]!r}.")
    names = dict.fromkeys(name for record in records for name in record)
    try:
        return pl.DataFrame([_as_column(name, [record.get(name) for record in records]) for name in names])
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{text.name}: after line {n_lines}: {error}.") from None


def _as_column(name: str, values: list[Any]) -> pl.Series:
    """Return a column of booleans, integers or floats if all values are, otherwise a column of text."""
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


def _end_of_first_record(block: bytes, start: int = 0) -> int:
    """Return the position of the first line end outside of quotes; if there is none, of the first line end."""
    first = position = block.find(b"\n", start)
    n_quotes = block.count(b'"', start, max(position, start))
    while position >= 0 and n_quotes % 2 == 1:
        after = block.find(b"\n", position + 1)
        n_quotes += block.count(b'"', position, max(after, position))
        position = after
    return position if position >= 0 else first if first >= 0 else len(block)


def first_line(error: Exception) -> str:
    """Return the first line of an error message."""
    return (str(error).splitlines() or [""])[0].rstrip(".")

"""Blocks of text parsed into rows: CSV, whose cells stay text, and NDJSON; what cannot be parsed is named."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

import polars as pl

from imondrian.errors import InvalidInputError
from imondrian.tables.formats import without_mark

BLOCK_BYTES = 2**23  # that are parsed at once


class Text(NamedTuple):
    """Text to be parsed."""

    name: str  # of the table, for errors
    read: Callable[[int], bytes]
    separator: str = ","
    has_header: bool = True


def read_csv(text: Text) -> Iterator[pl.DataFrame]:
    """Parse block after block, each with the header before it."""
    blocks = _blocks(text, _end_of_last_record)
    first, _, rest = _cut(start := next(blocks), text.name, _end_of_first_record)
    _check_header(text, first)
    header = (first if text.has_header else _numbered_names(text, first)) + b"\n"
    n_rows = 0
    for block in chain([rest if text.has_header else start], blocks):
        if block.strip(b"\r\n"):
            frame = _parsed_csv(text, header, block, n_rows)
            n_rows += frame.height
            yield frame


def _parsed_csv(text: Text, header: bytes, block: bytes, n_rows: int) -> pl.DataFrame:
    """Parse a block; lines that are blank are no rows."""
    try:
        frame = pl.read_csv(io.BytesIO(header + block), separator=text.separator, infer_schema=False)
        return frame.filter(~pl.all_horizontal(pl.all().is_null()))
    except pl.exceptions.PolarsError as error:
        _complain_of_csv(text, header + block, n_rows)
        raise InvalidInputError(f"{text.name}: after row {n_rows}: {first_line(error)}.") from None


def _complain_of_csv(text: Text, block: bytes, n_rows: int) -> None:
    """Name the first row that is no text, or that has more fields than there are names."""
    try:
        lines = io.StringIO(block.decode(), newline="")
    except UnicodeDecodeError as error:
        near = n_rows + block.count(b"\n", 0, error.start)
        raise InvalidInputError(f"{text.name}: near row {near}: this is not UTF-8 text.") from None
    rows = (row for row in csv.reader(lines, delimiter=text.separator) if row)
    width = len(next(rows, []))
    for i, row in enumerate(rows, start=n_rows + 1):
        if len(row) > width:
            raise InvalidInputError(f"{text.name}: row {i} has {len(row)} fields, but the first line {width}.")


def _check_header(text: Text, first: bytes) -> None:
    try:
        first.decode()
    except UnicodeDecodeError:
        raise InvalidInputError(f"{text.name}: the first line is not UTF-8 text.") from None


def _numbered_names(text: Text, first: bytes) -> bytes:
    """Name the columns of a table without a header by their numbers."""
    n_columns = len(next(csv.reader([first.decode()], delimiter=text.separator), []))
    return text.separator.join(f"column_{j + 1}" for j in range(n_columns)).encode()


def read_ndjson(text: Text) -> Iterator[pl.DataFrame]:
    """Parse block after block, each line an object."""
    n_lines = 0
    for block in _blocks(text, _end_of_last_line):
        if block.strip():
            yield _parsed_ndjson(text, block, n_lines)
        n_lines += block.count(b"\n")


def _parsed_ndjson(text: Text, block: bytes, n_lines: int) -> pl.DataFrame:
    try:
        return pl.read_ndjson(io.BytesIO(block), infer_schema_length=None)
    except pl.exceptions.PolarsError:
        return _parsed_by_line(text, block, n_lines)


def _parsed_by_line(text: Text, block: bytes, n_lines: int) -> pl.DataFrame:
    """Parse what polars would not, a value of many types in a column or NaN for example, or name the line."""
    records = []
    for i, line in enumerate(block.splitlines(), start=n_lines + 1):
        if line.strip():
            try:
                records.append(json.loads(line))
            except ValueError as error:
                raise InvalidInputError(f"{text.name}: line {i} is not JSON: {error}.") from None
            if not isinstance(records[-1], dict):
                raise InvalidInputError(f"{text.name}: line {i} is not an object: {line.decode()[:40]!r}.")
    names = dict.fromkeys(name for record in records for name in record)
    return pl.DataFrame([_column_of(name, [record.get(name) for record in records]) for name in names])


def _column_of(name: str, values: list[Any]) -> pl.Series:
    """Make numbers a column of numbers, and anything else one of text."""
    if all(value is None or isinstance(value, (bool, int, float)) for value in values):
        with suppress(OverflowError):  # of whole numbers without end
            return pl.Series(name, [None if value is None else float(value) for value in values], pl.Float64)
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pl.Series(name, texts, pl.String)


def _blocks(text: Text, end_of: Callable[[bytes], int]) -> Iterator[bytes]:
    """Read blocks of whole records."""
    rest = without_mark(text.read(BLOCK_BYTES)).lstrip(b"\r\n")
    while more := text.read(BLOCK_BYTES):
        block, end, rest = _cut(rest, text.name, end_of)
        if end:
            yield block + end
        rest += more
    if rest:
        yield rest


def _cut(block: bytes, name: str, end_of: Callable[[bytes], int]) -> tuple[bytes, bytes, bytes]:
    """Part a block at the end of a line; all of it is rest if there is none."""
    if len(block) > 64 * BLOCK_BYTES:
        raise InvalidInputError(f"{name}: a record is longer than {64 * BLOCK_BYTES} bytes; is a quote left open?")
    place = end_of(block)
    return (b"", b"", block) if place < 0 else (block[:place], b"\n", block[place + 1 :])


def _end_of_last_line(block: bytes) -> int:
    return block.rfind(b"\n")


def _end_of_last_record(block: bytes) -> int:
    """Find the last end of a line that does not stand between quotes."""
    place = block.rfind(b"\n")
    n_quotes = block.count(b'"', 0, place) if place >= 0 else 0
    while place >= 0 and n_quotes % 2 == 1:
        before = block.rfind(b"\n", 0, place)
        n_quotes -= block.count(b'"', max(before, 0), place)
        place = before
    return place


def _end_of_first_record(block: bytes) -> int:
    """Find the first end of a line that does not stand between quotes, or the end of all."""
    place = block.find(b"\n")
    n_quotes = block.count(b'"', 0, place)
    while place >= 0 and n_quotes % 2 == 1:
        after = block.find(b"\n", place + 1)
        n_quotes += block.count(b'"', place, after)
        place = after
    return place if place >= 0 else len(block)


def first_line(error: Exception) -> str:
    """Give what an error says first."""
    return (str(error).splitlines() or [""])[0].rstrip(".")

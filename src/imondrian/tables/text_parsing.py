"""Parsing CSV and NDJSON block by block; cells of CSV stay text, and errors name the row or line."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import polars as pl

from imondrian.base.categories import category_text
from imondrian.base.errors import InvalidInputError
from imondrian.tables.checked_json import decode_json
from imondrian.tables.column_labels import labels_that_differ, unique_names
from imondrian.tables.csv_records import (
    MAX_FIELDS,
    CsvBlock,
    RecordCutter,
    first_records,
    first_wide_record,
    long_fields,
    without_blank_lines,
)
from imondrian.tables.encodings import check_not_binary
from imondrian.tables.formats import SEPARATORS, without_byte_order_mark
from imondrian.tables.ndjson_checks import check_unique_keys, is_misread
from imondrian.tables.table_start import MAX_RECORDS, TableStart, find_start, guess_separator

BLOCK_BYTES = 2**23  # parsed at once
MAX_RECORD_BYTES = 2**26  # a longer record is refused
_MAX_RECORD = "64 MiB"  # MAX_RECORD_BYTES in words
_START_BYTES = 2**23  # largest number of bytes that are examined to find the separator


@dataclass
class ReadingFacts:
    """What was found while a table was read."""

    notes: list[str] = field(default_factory=list)  # decisions that the user should know
    labels: dict[str, str] = field(default_factory=dict)  # original column names, by unique name, where they differ
    separator: str | None = None  # of CSV fields


class TextSource(NamedTuple):
    """Where to read text from, and how to parse it."""

    name: str  # of the table, for error messages
    read: Callable[[int], bytes]
    facts: ReadingFacts
    separator: str | None = None  # None: recognised by the first lines
    has_header: bool = True
    skip_lines: int | None = None  # before the header; None: title lines are recognised


class _Piece(NamedTuple):
    """Some of the text of a table; it can end anywhere."""

    text: bytes
    is_last: bool


class _Columns(NamedTuple):
    """How to split the records of CSV, and the unique names of the columns."""

    separator: str
    names: list[str]


# -- CSV ----------------------------------------------------------------------------------------------------------


def read_csv(text: TextSource) -> Iterator[pl.DataFrame]:
    """Yield the same rows of CSV as Python's csv module, block by block and without blank lines."""
    pieces = _without_lines(_without_blank_start(_pieces(text)), text.skip_lines or 0)
    separator, pieces = _find_separator(text, pieces)
    cutter = RecordCutter(separator)
    columns: _Columns | None = None
    n_rows = 0
    for piece in pieces:
        block = cutter.cut(piece.text)
        if piece.is_last and not cutter.is_in_quotes:
            rest = cutter.rest()
            block = CsvBlock(block.text + rest.text, block.is_regular and rest.is_regular)
        if columns is None:
            columns, end = _read_header(text, separator, block.text)
            block = CsvBlock(block.text[end:], block.is_regular)
        if columns is not None and block.text.lstrip(b"\r\n"):
            frame = _parse_csv(text, columns, block, n_rows)
            n_rows += frame.height
            yield frame
        has_rows = columns is not None or not text.has_header
        _check_pending(text, cutter, f"row {n_rows + 1}" if has_rows else "the header", is_last=piece.is_last)


def note_start(facts: ReadingFacts, start: TableStart, *, has_header: bool) -> list[str]:
    """Add where a table starts to the facts; return a unique name for each of its columns."""
    labels = start.labels if has_header else [f"column_{j + 1}" for j in range(len(start.labels))]
    names = unique_names(labels)
    facts.labels.update(labels_that_differ(names, labels))
    facts.separator = start.separator
    if start.n_titles:
        facts.notes.append(f"skipped {start.n_titles} title line{'s' * (start.n_titles > 1)} before the header")
    return names


def _without_blank_start(pieces: Iterator[_Piece]) -> Iterator[_Piece]:
    """Remove the blank lines at the start of the first piece."""
    first = next(pieces)
    return chain([_Piece(first.text.lstrip(b"\r\n"), first.is_last)], pieces)


def _without_lines(pieces: Iterator[_Piece], n_lines: int) -> Iterator[_Piece]:
    """Remove the first lines."""
    for piece in pieces:
        position = 0
        while n_lines and position < len(piece.text):
            end = piece.text.find(b"\n", position)
            position = len(piece.text) if end < 0 else end + 1
            n_lines -= end >= 0
        yield _Piece(piece.text[position:], piece.is_last)


def _find_separator(text: TextSource, pieces: Iterator[_Piece]) -> tuple[str, Iterator[_Piece]]:
    """Return the separator (if it is not given, that of the first records) and an iterator of all pieces."""
    if text.separator is not None:
        return text.separator, pieces
    separators = "".join(SEPARATORS)
    start = next(pieces)
    while not (ends := first_records(start.text, separators, MAX_RECORDS, is_complete=start.is_last)):
        if start.is_last or len(start.text) >= _START_BYTES:
            ends = first_records(start.text, separators, MAX_RECORDS, is_complete=True)
            break
        piece = next(pieces)
        start = _Piece(start.text + piece.text, piece.is_last)
    records = [_decode_start(text, start.text[first:end]) for first, end in ends]
    separator = guess_separator(records) if records else SEPARATORS[0]
    return separator, chain([start], pieces)


def _read_header(text: TextSource, separator: str, block: bytes) -> tuple[_Columns | None, int]:
    """Return the columns of a table, and the position in its first block at which its rows start.

    The columns are None if all lines of the block are blank.
    """
    ends = first_records(block, separator, MAX_RECORDS, is_complete=True)
    if not ends:
        return None, len(block)
    if first_wide_record(block[: ends[-1][1]], separator) is not None:
        raise InvalidInputError(f"{text.name}: one of the first lines has more than {MAX_FIELDS:,} fields.")
    records = [_decode_start(text, block[first:end]) for first, end in ends]
    find_titles = text.has_header and text.skip_lines is None
    start = find_start(records, separator, find_titles=find_titles)
    names = note_start(text.facts, start, has_header=text.has_header)
    return _Columns(separator, names), ends[start.n_titles][1] + 1 if text.has_header else 0


def _check_pending(text: TextSource, cutter: RecordCutter, record: str, *, is_last: bool) -> None:
    """Raise an error if the pending record is too long or its quotes are not closed; `record` is its name in errors."""
    if cutter.is_in_quotes and (is_last or cutter.n_pending > MAX_RECORD_BYTES):
        limit = "before the end" if is_last else f"within {_MAX_RECORD}"
        raise InvalidInputError(f"{text.name}: {record} has a field whose opening quote is not closed {limit}.")
    if cutter.n_pending > MAX_RECORD_BYTES:
        raise InvalidInputError(f"{text.name}: {record} is longer than {_MAX_RECORD}.")


def _decode_start(text: TextSource, record: bytes) -> str:
    try:
        return record.rstrip(b"\r").decode()
    except UnicodeDecodeError:
        check_not_binary(record, text.name)
        raise InvalidInputError(f"{text.name}: the first lines are not UTF-8 text: choose an --encoding.") from None


def _parse_csv(text: TextSource, columns: _Columns, block: CsvBlock, n_rows: int) -> pl.DataFrame:
    """Parse a regular block with polars. If it is not regular, or polars fails, parse record by record."""
    if not block.is_regular:
        return _parse_by_record(text, columns, block.text, n_rows)
    header = columns.separator.join(f"c{j}" for j in range(len(columns.names)))
    rows = io.BytesIO(f"{header}\n".encode() + without_blank_lines(block.text))
    try:
        frame = pl.read_csv(rows, separator=columns.separator, infer_schema=False)
    except pl.exceptions.PolarsError:
        return _parse_by_record(text, columns, block.text, n_rows)
    frame.columns = columns.names
    return frame


def _parse_by_record(text: TextSource, columns: _Columns, block: bytes, n_rows: int) -> pl.DataFrame:
    """Parse record by record with Python's csv module: a quote inside an unquoted field is an ordinary character."""
    n_before = first_wide_record(block, columns.separator)
    if n_before is not None:
        raise InvalidInputError(f"{text.name}: row {n_rows + n_before + 1} has more than {MAX_FIELDS:,} fields.")
    width = len(columns.names)
    rows: list[list[str | None]] = []
    try:
        with long_fields():
            for row in _records(block, columns.separator):
                _check_width(text, row, width, n_rows + len(rows) + 1)
                rows.append([*row[:width], *[None] * (width - len(row))])
    except UnicodeDecodeError:
        check_not_binary(block, text.name)
        near = n_rows + len(rows) + 1
        raise InvalidInputError(f"{text.name}: near row {near}: not UTF-8 text: choose an --encoding.") from None
    return pl.DataFrame(rows, schema=dict.fromkeys(columns.names, pl.String), orient="row")


def _records(block: bytes, separator: str) -> Iterator[list[str]]:
    """Return the fields of each record; blank lines are not records."""
    return filter(None, csv.reader(map(bytes.decode, block.splitlines(keepends=True)), delimiter=separator))


def _check_width(text: TextSource, row: list[str], width: int, i: int) -> None:
    if any(row[width:]):  # empty fields at the end of a line are harmless
        hint = " (--skip-lines N skips lines before the header)" if i == 1 else ""
        raise InvalidInputError(f"{text.name}: row {i} has {len(row)} fields, but the header has {width}{hint}.")


# -- NDJSON -------------------------------------------------------------------------------------------------------


def read_ndjson(text: TextSource) -> Iterator[pl.DataFrame]:
    """Yield the rows of NDJSON block by block; each line is an object."""
    for n_lines, block in _blocks_of_lines(text):
        if block.strip():
            yield _parse_ndjson(text, block, n_lines)


def _parse_ndjson(text: TextSource, block: bytes, n_lines: int) -> pl.DataFrame:
    try:
        frame = pl.read_ndjson(io.BytesIO(block), infer_schema_length=None)
    except pl.exceptions.PolarsError:
        return _parse_by_line(text, block, n_lines)
    check_unique_keys(block, frame, text.name, n_lines)
    return _parse_by_line(text, block, n_lines) if is_misread(block, frame) else frame


def _parse_by_line(text: TextSource, block: bytes, n_lines: int) -> pl.DataFrame:
    """Parse what polars cannot, for example NaN or several types in a column; errors name the line."""
    records, numbers = [], []
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
            numbers.append(i)
    names = dict.fromkeys(name for record in records for name in record)
    try:
        return pl.DataFrame([_as_column(name, [record.get(name) for record in records]) for name in names])
    except UnicodeEncodeError:
        i = next(
            i
            for i, record in zip(numbers, records, strict=True)
            if not _is_text(json.dumps(record, ensure_ascii=False))
        )
        raise InvalidInputError(f"{text.name}: line {i} has half of a surrogate pair, which is not text.") from None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _as_column(name: str, values: list[Any]) -> pl.Series:
    """Return a column of booleans if all values are booleans, of numbers if all are numbers, otherwise of text."""
    types = {type(value) for value in values if value is not None}
    if types in ({bool}, {int}):
        with suppress(OverflowError, TypeError):  # integers beyond 64 bits
            return pl.Series(name, values, pl.Boolean if types == {bool} else pl.Int64)
    if types <= {int, float}:
        with suppress(OverflowError):
            return pl.Series(name, [None if value is None else float(value) for value in values], pl.Float64)
    return pl.Series(name, list(map(_as_text, values)), pl.String)


def _as_text(value: Any) -> str | None:
    """Return a value of a column of text as text: a number as `category_text` writes it, an array or object as JSON."""
    if value is None or isinstance(value, str):
        return value
    with suppress(InvalidInputError):  # not finite, an array or an object
        return category_text(value)
    return json.dumps(value)


# -- blocks -------------------------------------------------------------------------------------------------------


def _pieces(text: TextSource) -> Iterator[_Piece]:
    """Read pieces of text that end anywhere; there is at least one."""
    piece = without_byte_order_mark(text.read(BLOCK_BYTES))
    while following := text.read(BLOCK_BYTES):
        yield _Piece(piece, is_last=False)
        piece = following
    yield _Piece(piece, is_last=True)


def _blocks_of_lines(text: TextSource) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of complete lines as pairs: the number of lines before the block, and the block."""
    n_lines = 0
    pending: list[bytes] = []  # parts of a line without its end
    for piece in _pieces(text):
        end = len(piece.text) if piece.is_last else piece.text.rfind(b"\n") + 1
        if end > 0:
            block = b"".join([*pending, piece.text[:end]])
            yield n_lines, block
            n_lines += block.count(b"\n")
            pending = []
        pending.append(piece.text[end:])
        if sum(map(len, pending)) > MAX_RECORD_BYTES:
            raise InvalidInputError(f"{text.name}: line {n_lines + 1} is longer than {_MAX_RECORD}.")


def first_line(error: BaseException) -> str:
    """Return the first line of an error message."""
    return (str(error).splitlines() or [""])[0].rstrip(".")

"""The span of a sheet in binary records, as in .xlsb files."""

from array import array
from collections.abc import Iterator

from imondrian.tables.spans import CellSpan, UncheckedSheetError, extended

_ROW = 0
_BLANK, _LAST_CELL = 1, 11  # types of cells; blank ones have no content
_TEXT, _SHARED_TEXT, _FORMULA_TEXT = 6, 7, 8  # types of cells with text
_SHARED_ITEM = 19  # an entry in the list of shared texts
_INDEX_POSITION = 8  # of the number of a shared text in its cell
_SHEET = 0x9C  # an entry in the list of sheets
_NUMBER_BYTES = 4
_MAX_RECORD_BYTES = 2**26


def binary_span(chunks: Iterator[bytes]) -> CellSpan | None:
    """Return the span of the cells that have content; None if there are none.

    Raises
    ------
    UncheckedSheetError
        If a record is longer than 64 MiB.
    """
    span = None
    row = 0
    for kind, data in _records(chunks):
        if kind == _ROW:
            row = _number(data)
        elif _BLANK < kind <= _LAST_CELL:
            span = extended(span, row, _number(data))
    return span


def n_binary_text_bytes(sheet: Iterator[bytes], shared: Iterator[bytes]) -> int:
    """Return about how many bytes of text the cells of a sheet contain: each gets a copy of its shared text."""
    lengths = array("q", (len(data) for kind, data in _records(shared) if kind == _SHARED_ITEM))
    longest = max(lengths, default=0)
    n_bytes = 0
    for kind, data in _records(sheet):
        if kind == _SHARED_TEXT:
            i = _number(data, _INDEX_POSITION)
            n_bytes += lengths[i] if i < len(lengths) else longest
        elif kind in (_TEXT, _FORMULA_TEXT):
            n_bytes += len(data)
    return n_bytes


def relation_of_sheet(workbook: bytes, sheet: str) -> set[str]:
    """Return the id of the relationship of a sheet; more than one if several sheets have its name."""
    found = set()
    for kind, data in _records(iter([workbook])):
        if kind == _SHEET:
            relation, end = _text(data, 2 * _NUMBER_BYTES)
            if _text(data, end)[0] == sheet:
                found.add(relation)
    return found


def _records(chunks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the content of each complete record."""
    data, position = b"", 0
    for chunk in chunks:
        data, position = data[position:] + chunk, 0
        while (record := _record(data, position)) is not None:
            kind, first, end = record
            if end - first > _MAX_RECORD_BYTES:
                raise UncheckedSheetError("a record is longer than 64 MiB")
            if end > len(data):
                break
            yield kind, data[first:end]
            position = end


def _record(data: bytes, position: int) -> tuple[int, int, int] | None:
    """Return the type of a record, and where its content starts and ends; None if the data end before that."""
    kind, position = _varying_number(data, position, 2)
    length, position = _varying_number(data, position, 4)
    return (kind, position, position + length) if position <= len(data) else None


def _varying_number(data: bytes, position: int, max_bytes: int) -> tuple[int, int]:
    """Return a number of seven bits per byte, and the position after it: beyond the data if they are incomplete."""
    number = 0
    for i in range(max_bytes):
        if position + i >= len(data):
            return 0, len(data) + 1
        byte = data[position + i]
        number |= (byte & 127) << (7 * i)
        if byte < 128:
            return number, position + i + 1
    return number, position + max_bytes


def _number(data: bytes, position: int = 0) -> int:
    return int.from_bytes(data[position : position + _NUMBER_BYTES], "little")


def _text(data: bytes, position: int) -> tuple[str, int]:
    """Return a text in UTF-16, which is stored after its length, and the position after the text."""
    first = position + _NUMBER_BYTES
    end = first + 2 * _number(data, position)
    return data[first:end].decode("utf-16-le", errors="replace"), end

"""The spans of the sheets of an OpenDocument spreadsheet, whose cells and rows can be repeated any number of times."""

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from imondrian.tables.spans import MAX_CELLS, MAX_TEXT_BYTES, TooMuchTextError, UncheckedSheetError, count_of

_MAX_ROW_BYTES = 2**26
_ROW_END = re.compile(rb"</table:table-row\s*>|<table:table-row(?:\s[^<>]*)?/>")
_TABLE_NAME = re.compile(rb"""<table:table\s[^<>]*?table:name\s*=\s*["']([^"'<>]*)""")
_CELL_START = re.compile(rb"<table:(?:covered-)?table-cell(?=[\s/>])")
_REPEATED_ROWS = re.compile(rb"""table:number-rows-repeated\s*=\s*["']\s*(\d+)""")
_REPEATED_COLUMNS = re.compile(rb"""table:number-columns-repeated\s*=\s*["']\s*(\d+)""")
_CONTENT = re.compile(rb"office:|table:formula")  # attributes of cells that are not empty
_MARKUP = re.compile(rb"<[^<>]*+>")
_VALUE = re.compile(rb"""(?:value|formula)\s*+=\s*+("[^"]*+"|'[^']*+')""")  # text in attributes
_RAW = b"<!"  # the start of CDATA, in which tags are text


class TableSpan(NamedTuple):
    """The name of a sheet, and its numbers of rows and columns up to the last ones with content."""

    name: str = ""
    n_rows: int = 0
    n_columns: int = 0

    @property
    def n_cells(self) -> int:
        """Number of cells, empty ones included."""
        return self.n_rows * self.n_columns


def largest_table(chunks: Iterator[bytes]) -> TableSpan | None:
    """Return the largest sheet if all sheets together span more than `MAX_CELLS` cells; else None.

    Raises
    ------
    UncheckedSheetError
        If a row is longer than 64 MiB.
    TooMuchTextError
        If the cells contain more than `MAX_TEXT_BYTES` bytes of text, which is repeated with them.
    """
    tables = [TableSpan()]
    n_empty_rows = 0  # since the last row with content
    n_bytes = 0  # of text
    for before, row in _rows(chunks):
        for name in _TABLE_NAME.findall(before):
            tables.append(TableSpan(html.unescape(name.decode(errors="replace"))))
            n_empty_rows = 0
        n_rows, (width, n_row_bytes) = _n_repeats(_REPEATED_ROWS, row), _width_and_text(row)
        n_bytes += n_rows * n_row_bytes
        if n_bytes > MAX_TEXT_BYTES:
            raise TooMuchTextError
        if width == 0:
            n_empty_rows += n_rows
        else:
            name, n_before, n_columns = tables[-1]
            tables[-1] = TableSpan(name, n_before + n_empty_rows + n_rows, max(n_columns, width))
            n_empty_rows = 0
    is_large = sum(table.n_cells for table in tables) > MAX_CELLS
    return max(tables, key=lambda table: table.n_cells) if is_large else None


def _rows(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the text before each row, and the row."""
    text = b""
    for chunk in chunks:
        text += chunk
        position = 0
        for end in _ROW_END.finditer(text):
            before, start, row = text[position : end.end()].partition(b"<table:table-row")
            yield before, start + row
            position = end.end()
        text = text[position:]
        if len(text) > _MAX_ROW_BYTES:
            raise UncheckedSheetError("a row is longer than 64 MiB")


def _width_and_text(row: bytes) -> tuple[int, int]:
    """Return the number of cells up to the last one with content, and an upper bound on the bytes of their text."""
    if not _CONTENT.search(row):
        return 0, 0
    start, *cells = _CELL_START.split(row)
    if b"-repeated" not in row:
        return len(cells), len(row)
    n_bytes = len(start)
    position = width = 0
    for cell in cells:
        n_repeats = _n_repeats(_REPEATED_COLUMNS, cell)
        position += n_repeats
        if _CONTENT.search(cell):
            width = position
            n_bytes += n_repeats * _n_text(b"<" + cell)
    return width, n_bytes


def _n_text(cell: bytes) -> int:
    return len(cell) if _RAW in cell else len(_MARKUP.sub(b"", cell)) + sum(map(len, _VALUE.findall(cell)))


def _n_repeats(pattern: re.Pattern[bytes], text: bytes) -> int:
    return max(map(count_of, pattern.findall(text)), default=1)

"""The spans of the sheets of an OpenDocument spreadsheet, whose cells and rows can be repeated any number of times."""

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from imondrian.tables.spans import MAX_CELLS, UncheckedSheetError, count_of

_MAX_ROW_BYTES = 2**26
_ROW_END = re.compile(rb"</table:table-row\s*>|<table:table-row(?:\s[^<>]*)?/>")
_TABLE_NAME = re.compile(rb"""<table:table\s[^<>]*?table:name\s*=\s*["']([^"'<>]*)""")
_CELL_START = re.compile(rb"<table:(?:covered-)?table-cell(?=[\s/>])")
_REPEATED_ROWS = re.compile(rb"""table:number-rows-repeated\s*=\s*["']\s*(\d+)""")
_REPEATED_COLUMNS = re.compile(rb"""table:number-columns-repeated\s*=\s*["']\s*(\d+)""")
_CONTENT = re.compile(rb"office:|table:formula")  # attributes of cells that are not empty


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
    """
    tables = [TableSpan()]
    n_empty_rows = 0  # since the last row with content
    for before, row in _rows(chunks):
        for name in _TABLE_NAME.findall(before):
            tables.append(TableSpan(html.unescape(name.decode(errors="replace"))))
            n_empty_rows = 0
        n_rows, width = _n_repeats(_REPEATED_ROWS, row), _width(row)
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


def _width(row: bytes) -> int:
    """Return the number of cells up to the last one with content."""
    if not _CONTENT.search(row):
        return 0
    cells = _CELL_START.split(row)[1:]
    if b"number-columns-repeated" not in row:
        return len(cells)
    position = width = 0
    for cell in cells:
        position += _n_repeats(_REPEATED_COLUMNS, cell)
        width = position if _CONTENT.search(cell) else width
    return width


def _n_repeats(pattern: re.Pattern[bytes], text: bytes) -> int:
    return max(map(count_of, pattern.findall(text)), default=1)

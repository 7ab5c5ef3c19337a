"""The smallest rectangle that contains all used cells of a sheet."""

from typing import NamedTuple

# Loading needs 55 to 63 bytes per cell, also for empty cells (measured with fastexcel 0.21 and polars 2.1; 83 bytes in
# OpenDocument files): 4 GB for a rectangle of this size.
MAX_CELLS = 2**26
MAX_TEXT_BYTES = 2**32  # in all cells
_MAX_DIGITS, _MAX_LETTERS = 15, 8  # converted; Python refuses to convert thousands of digits


class UncheckedSheetError(Exception):
    """The span of a sheet cannot be determined, because the sheet is damaged."""


class TooMuchTextError(Exception):
    """The cells contain more than `MAX_TEXT_BYTES` bytes of text."""


class CellSpan(NamedTuple):
    """A rectangle of cells; rows and columns begin at 0."""

    first_row: int
    first_column: int
    lowest: tuple[int, int]  # row and column of a cell in the last row
    rightmost: tuple[int, int]  # row and column of a cell in the last column

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.lowest[0] - self.first_row + 1

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.rightmost[1] - self.first_column + 1

    @property
    def n_cells(self) -> int:
        """Number of cells, empty ones included."""
        return self.n_rows * self.n_columns

    def far_cells(self) -> list[str]:
        """Return the names of the cells that determine the last row and the last column, such as XFD1048576."""
        return list(dict.fromkeys(f"{_letters(column)}{row + 1}" for row, column in (self.lowest, self.rightmost)))


def extended(span: CellSpan | None, row: int, column: int) -> CellSpan:
    """Return the smallest span that contains another cell, too."""
    if span is None:
        return CellSpan(row, column, (row, column), (row, column))
    first_row, first_column, (last_row, _), (_, last_column) = span
    if first_row <= row <= last_row and first_column <= column <= last_column:
        return span
    return CellSpan(
        min(span.first_row, row),
        min(span.first_column, column),
        max(span.lowest, (row, column)),
        (row, column) if column > span.rightmost[1] else span.rightmost,
    )


def count_of(digits: bytes) -> int:
    """Return a number; of extremely many digits only the first, which are enough to exceed every limit."""
    return int(digits.lstrip(b"0")[:_MAX_DIGITS] or b"0")


def column_of(letters: bytes) -> int:
    """Return the position of a column, from 0; it is enormous for a name that is too long.

    Examples
    --------
    >>> column_of(b"A"), column_of(b"xfd")
    (0, 16383)
    """
    number = 0
    for letter in letters[:_MAX_LETTERS].upper():
        number = 26 * number + letter - 64
    return number - 1


def _letters(column: int) -> str:
    letters = ""
    while column >= 0:
        letters = chr(65 + column % 26) + letters
        column = column // 26 - 1
    return letters

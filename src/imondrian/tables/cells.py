"""The cells of a column: which stand for missing values, and which are plain numbers."""

from typing import NamedTuple

import polars as pl

from imondrian.base.shortening import shortened

BOOLEANS = {"true": 1.0, "false": 0.0}  # in any mixture of lower and upper case
MISSING_TEXTS = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "none", "-", "?")
_MAX_SHOWN_LENGTH = 60  # characters of a value in an error message


def as_cell(text: str) -> pl.Series:
    """Return a column with one text; half of a surrogate pair, which polars refuses, is replaced."""
    return pl.Series([text.strip().encode(errors="replace").decode()])


class ParsedColumn(NamedTuple):
    """A column, and its values as numbers."""

    cells: pl.Series  # null where a value is missing
    numbers: pl.Series  # null where a cell is missing or not a number

    @property
    def n_present(self) -> int:
        """Number of cells that have a value."""
        return self.cells.len() - self.cells.null_count()

    @property
    def n_texts(self) -> int:
        """Number of cells that are not numbers."""
        return self.numbers.null_count() - self.cells.null_count()


def parse_column(column: pl.Series) -> ParsedColumn:
    """Parse the cells of a column as plain numbers; texts that stand for missing values become null."""
    numbers = _as_numbers(column)
    if numbers.null_count() == column.null_count() and not numbers.is_nan().any():
        return ParsedColumn(column, numbers)  # only numbers: no need to look for missing texts
    cells = without_missing_texts(column)
    return ParsedColumn(cells, _as_numbers(cells))


def without_missing_texts(column: pl.Series) -> pl.Series:
    """Strip surrounding blanks from text; replace NaN and texts that stand for missing values with null."""
    if column.dtype == pl.String:
        stripped = column.str.strip_chars()
        return stripped.set(stripped.is_in(MISSING_TEXTS), None)
    return column.fill_nan(None) if column.dtype.is_float() else column


def category_cells(column: pl.Series) -> pl.Series:
    """Return the categories of a column: text without surrounding blanks, null where a cell is empty.

    "NA", "none" and the like are categories, since they can also be real values. "True" and "TRUE" are "true".
    """
    if column.dtype != pl.String:
        return column.fill_nan(None) if column.dtype.is_float() else column
    stripped = column.str.strip_chars()
    lower = stripped.str.to_lowercase()
    cells = stripped.zip_with(~lower.is_in(list(BOOLEANS)).fill_null(value=False), lower)
    return cells.set(cells == "", None)


def are_booleans(cells: pl.Series) -> bool:
    """Return True if all cells are booleans, or the text true or false, in upper or lower case."""
    is_text = cells.dtype == pl.String and bool(cells.str.to_lowercase().is_in(list(BOOLEANS)).all())
    return is_text or cells.dtype == pl.Boolean


def booleans_as_numbers(cells: pl.Series) -> pl.Series:
    """Return true as 1 and false as 0."""
    if cells.dtype == pl.Boolean:
        return cells.cast(pl.Float64)
    return cells.str.to_lowercase().replace_strict(BOOLEANS, default=None, return_dtype=pl.Float64)


def is_numeric(column: pl.Series) -> bool:
    """Return True if the type of a column is numeric, or Null (all values are missing)."""
    return column.dtype.is_numeric() or column.dtype == pl.Null


def as_integers_or_floats(cells: pl.Series) -> pl.Series:
    """Return text as integers if all cells are integers, else as floats; null where a cell is not a number."""
    integers = cells.cast(pl.Int64, strict=False)
    return integers if integers.null_count() == cells.null_count() else _as_numbers(cells)


def shown(value: object) -> str:
    """Return a value for an error message, shortened if it is long."""
    return shortened(repr(value), _MAX_SHOWN_LENGTH)


def _as_numbers(cells: pl.Series) -> pl.Series:
    if cells.dtype != pl.String and not is_numeric(cells):
        cells = pl.Series(cells.name, [None] * cells.len())
    return cells.cast(pl.Float64, strict=False)

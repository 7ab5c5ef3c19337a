"""What a column contains: numbers, categories or dates; and the reason, if any, not to use it as a feature."""

from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from imondrian.tables.cells import ParsedColumn, are_booleans, is_numeric, parse_column, shown
from imondrian.tables.dates import DateFormat, recognise_dates
from imondrian.tables.number_formats import (
    NO_RULES,
    PLAIN,
    FormatRules,
    FoundFormat,
    NumberFormat,
    may_be_thousands,
    parse_formatted,
    recognise_format,
)

Kind = Literal["number", "category", "date", "other"]
ROW_NUMBERS = "consecutive or evenly spaced integers, such as row numbers"
_MIN_NUMBERED_ROWS = 8  # with fewer rows, numbers may be consecutive by chance
_MAX_ROW_NUMBER = 2.0**53  # larger numbers are not exact
_ID_SHARE = 0.9  # text is an id if at least this share of its values is distinct
_WORDS_OF_FREE_TEXT = 4  # text is free text if it has at least this many words on average
# numbers mixed with text are categories if there are at most _FEW_CATEGORIES distinct values, and at least
# _ROWS_PER_CATEGORY rows per distinct value on average
_FEW_CATEGORIES = 50
_ROWS_PER_CATEGORY = 10


class ColumnContent(NamedTuple):
    """What a column contains."""

    kind: Kind
    parsed: ParsedColumn
    objection: str = ""  # why the column is not a feature unless the user chooses it
    found: FoundFormat | None = None  # the format of numbers that are not plain
    date_format: DateFormat | None = None

    @property
    def number_format(self) -> NumberFormat | None:
        """How numbers are written; None if they are plain."""
        return None if self.found is None else self.found.number_format


def content_of(column: pl.Series, rules: FormatRules) -> ColumnContent:
    """Return what a column contains, decided by all its cells."""
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype == pl.String:
        return _content_of_text(column, rules)
    parsed = parse_column(column)
    if column.dtype in (pl.Date, pl.Datetime, pl.Time):
        return ColumnContent("date", parsed)
    if column.dtype == pl.Boolean:
        return _categories(parsed)
    if is_numeric(column):
        return _numbers(parsed)
    return ColumnContent("other", parsed, f"neither numbers nor text ({column.dtype})")


def with_common_decimal(contents: dict[str, ColumnContent], hint: str | None) -> dict[str, ColumnContent]:
    """Read ambiguous numbers, such as 1,234, with the decimal separator of the other columns of the table.

    Parameters
    ----------
    contents : dict
        The contents of the columns, by name.
    hint : {",", "."}, optional
        The decimal separator that the table suggests, if no column determines it.
    """
    found = [content.found for content in contents.values() if content.found is not None]
    certain = {f.number_format.decimal for f in found if f.number_format != PLAIN and f.example is None}
    if len(certain) > 1 or not (certain or hint):
        return contents
    decimal = certain.pop() if certain else hint
    return {name: _reread(content, decimal) for name, content in contents.items()}


def _reread(content: ColumnContent, decimal: str | None) -> ColumnContent:
    cells, found = content.parsed.cells, content.found
    if content.kind != "number" or cells.dtype != pl.String:
        return content
    is_doubtful = found is not None and found.example is not None
    is_plain = found is None and decimal == "," and may_be_thousands(cells)
    if not is_doubtful and not is_plain:
        return content
    again = recognise_format(cells.unique(maintain_order=True), hint=decimal)
    return content if again is None else _formatted(cells, again)


# -- text -------------------------------------------------------------------------------------------------------------


def _content_of_text(column: pl.Series, rules: FormatRules) -> ColumnContent:
    parsed = parse_column(column)
    if parsed.n_texts == 0 and (rules == NO_RULES or not _has_point(parsed.cells)):
        return _numbers(parsed)
    if are_booleans(parsed.cells):
        return _categories(parsed)
    distinct = parsed.cells.unique(maintain_order=True)
    found = recognise_format(distinct, rules)
    if found is not None:
        return _formatted(parsed.cells, found)
    n_numbers = parsed.n_present - parsed.n_texts
    is_few = distinct.len() <= min(_FEW_CATEGORIES, parsed.n_present / _ROWS_PER_CATEGORY)
    if 2 * n_numbers > parsed.n_present and not is_few:
        return _numbers(parsed)
    date_format = recognise_dates(parsed.cells)
    return _categories(parsed) if date_format is None else ColumnContent("date", parsed, date_format=date_format)


def _has_point(cells: pl.Series) -> bool:
    return bool(cells.str.contains(".", literal=True).any())


def _formatted(cells: pl.Series, found: FoundFormat) -> ColumnContent:
    numbers = parse_formatted(cells, found.number_format)
    return _numbers(ParsedColumn(cells, numbers))._replace(found=found)


# -- categories -------------------------------------------------------------------------------------------------------


def _categories(parsed: ParsedColumn) -> ColumnContent:
    return ColumnContent("category", parsed, _objection_to_categories(parsed))


def _objection_to_categories(parsed: ParsedColumn) -> str:
    cells, n_present = parsed.cells.drop_nulls(), parsed.n_present
    if n_present == 0:
        return "no values"
    n_distinct = cells.n_unique()
    if n_distinct == 1:
        return _constant(cells[0]) if n_present == parsed.cells.len() else ""
    if cells.dtype == pl.String and 2 * n_distinct > n_present and _n_words(cells) >= _WORDS_OF_FREE_TEXT:
        return f"free text, such as {shown(cells[0])}"
    if n_distinct >= _ID_SHARE * n_present:
        return f"an id, such as {shown(cells[0])}: {n_distinct:,} different values in {n_present:,} rows"
    return ""


def _n_words(cells: pl.Series) -> float:
    """Return the mean number of words."""
    return 1.0 + float(cells.str.count_matches(r"\s+").sum()) / cells.len()


# -- numbers ----------------------------------------------------------------------------------------------------------


def _numbers(parsed: ParsedColumn) -> ColumnContent:
    values = parsed.numbers.to_numpy()
    if parsed.n_texts > 0:
        return ColumnContent("number", parsed)  # `TableColumns.points` raises an error that names the cell
    if parsed.n_present == 0:
        return ColumnContent("number", parsed, "no values")
    if np.nanmin(values) == np.nanmax(values):
        if parsed.n_present < values.size:
            return ColumnContent("category", parsed)  # the only value is either present or absent
        return ColumnContent("number", parsed, _constant(parsed.cells[0]))
    has_gaps = parsed.n_present < values.size
    return ColumnContent("number", parsed, ROW_NUMBERS if not has_gaps and _are_like_row_numbers(values) else "")


def _constant(value: object) -> str:
    return f"constant: {shown(value)} in every row"


def _are_like_row_numbers(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
    """Return True if the numbers are integers in equal steps, or consecutive integers in any order, each once."""
    if values.size < _MIN_NUMBERED_ROWS or not (values == np.round(values)).all():
        return False
    if not (np.abs(values) <= _MAX_ROW_NUMBER).all():
        return False
    steps = np.diff(values)
    is_evenly_spaced = steps[0] != 0.0 and bool((steps == steps[0]).all())
    return is_evenly_spaced or (np.ptp(values) == values.size - 1 and np.unique(values).size == values.size)

"""Feature columns of a table: which columns are features, and their values as points; errors name row and column."""

import re
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import polars as pl

from imondrian.column_names import RESULTS, SCORE
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_SIZE
from imondrian.errors import InvalidInputError

BOOLEANS = {"true": 1.0, "false": 0.0}  # in lower or upper case
MISSING_TEXTS = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "none", "-", "?")

_MAX_SHOWN = 60  # characters of a value in an error message
_MIN_NUMBERED_ROWS = 8  # with fewer rows, numbers may be consecutive by chance
_DECIMAL_COMMA = re.compile(r"[-+]?[\d.]*\d,\d+")


class FeatureChoice(NamedTuple):
    """The names of the features, and for every other column the reason why it is not a feature."""

    features: list[str]
    left_out: dict[str, str]


class ParsedColumn(NamedTuple):
    """A column, and its values as numbers."""

    cells: pl.Series  # null where a value is missing
    numbers: pl.Series  # null where a cell is missing or not a number

    @property
    def n_texts(self) -> int:
        """Number of cells that are not numbers."""
        return self.numbers.null_count() - self.cells.null_count()


class TableColumns:
    """The columns of a frame as possible features; the cells of a column are parsed once, when they are needed.

    Parameters
    ----------
    frame : polars.DataFrame
        A table, or a batch of it.
    first : int, default=0
        Number of rows of the table before the frame, for error messages.
    """

    def __init__(self, frame: pl.DataFrame, first: int = 0) -> None:
        self._frame = frame
        self._first = first
        self._parsed: dict[str, ParsedColumn] = {}  # features that `choose` has parsed and `points` has not used yet

    def choose(
        self, features: Collection[str] = (), ignore: Collection[str] = (), time: str | None = None
    ) -> FeatureChoice:
        """Choose the features: the named columns, or else all numeric columns.

        If none are named, columns without values, row numbers and results of an earlier run are left out as well.

        Parameters
        ----------
        features : collection of str
            Columns to use; if empty, all columns of numbers.
        ignore : collection of str
            Columns not to use.
        time : str, optional
            The timestamp column, which is not a feature.

        Raises
        ------
        InvalidInputError
            If a named column is missing, or if there are no features.
        """
        columns = self._frame.columns
        check_names((*features, *ignore, *([] if time is None else [time])), columns)
        left_out: dict[str, str] = {}
        earlier = result_names(columns)
        for name in columns:
            reason = _reason_by_name(name, features, ignore, time)
            if not reason and not features:
                reason = "result of an earlier run" if name in earlier else self._reason_by_content(name)
            if reason:
                left_out[name] = reason
        chosen = [name for name in (features or columns) if name not in left_out]
        if not chosen:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
            raise InvalidInputError(f"No column can be used as a feature ({reasons}).")
        return FeatureChoice(chosen, left_out)

    def points(self, features: list[str]) -> Array:
        """Return the values of the features, one row per point, NaN where a value is missing.

        Raises
        ------
        InvalidInputError
            If a cell is not a finite number of at most MAX_SIZE in absolute value; the message names row and column.
        """
        points = np.empty((self._frame.height, len(features)))
        for j, name in enumerate(features):
            parsed = self._parsed.pop(name, None) or parse_column(self._frame[name])
            points[:, j] = _checked_numbers(parsed, name, self._first)
        return points

    def _reason_by_content(self, name: str) -> str:
        """Return why the content of a column makes it unusable as a feature; an empty string if it is usable."""
        column = self._frame[name]
        if column.dtype.is_temporal():
            return "a date or time"
        if column.dtype != pl.String and not _is_numeric(column):
            return f"not numeric ({column.dtype})"
        parsed = parse_column(column)
        reason = _reason_by_values(parsed)
        if not reason:
            self._parsed[name] = parsed
        return reason


def check_names(names: Collection[str], columns: Collection[str]) -> None:
    """Raise an InvalidInputError if one of the names is not a column."""
    known = set(columns)
    for name in names:
        if name not in known:
            raise InvalidInputError(f"There is no column {name!r}; the columns are {_listed(list(columns))}.")


def result_names(columns: Collection[str]) -> set[str]:
    """Return the columns that are results of an earlier run: those named like results, if there is a score column."""
    return {name for name in RESULTS if name in columns} if SCORE in columns else set()


def with_numeric_features(frame: pl.DataFrame, features: list[str]) -> pl.DataFrame:
    """Convert features that are text to integers, or else to floats, for formats that have types."""
    texts = [name for name in features if frame[name].dtype == pl.String]
    return frame.with_columns(_as_integers_or_floats(_without_missing_texts(frame[name])) for name in texts)


def time_values(frame: pl.DataFrame, name: str | None) -> Array | None:
    """Return the timestamp column as numbers or dates; None if a value is neither or is missing."""
    if name is None:
        return None
    column = frame[name]
    if column.dtype == pl.String:
        numbers = _as_numbers(_without_missing_texts(column))
        column = numbers if numbers.null_count() == 0 else _as_dates(column)
    is_usable = (column.dtype.is_numeric() or column.dtype in (pl.Date, pl.Datetime)) and column.null_count() == 0
    return column.to_numpy() if is_usable else None


def parse_column(column: pl.Series) -> ParsedColumn:
    """Parse the cells of a column as numbers; texts that stand for missing values become null."""
    numbers = _as_numbers(column)
    if numbers.null_count() == column.null_count():  # only numbers: no need to look for missing texts
        return ParsedColumn(column, numbers)
    cells = _without_missing_texts(column)
    return ParsedColumn(cells, _as_numbers(cells))


def shown(value: object) -> str:
    """Return a value for an error message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


# -- which columns are features ---------------------------------------------------------------------------------------


def _reason_by_name(name: str, features: Collection[str], ignore: Collection[str], time: str | None) -> str:
    if name == time:
        return "the timestamp column"
    if name in ignore:
        return "ignored"
    return "not among the chosen features" if features and name not in features else ""


def _reason_by_values(parsed: ParsedColumn) -> str:
    cells, numbers = parsed
    if parsed.n_texts == 0 and np.isnan(numbers.to_numpy()).all():
        return "no values"
    if 2 * parsed.n_texts >= cells.len() - cells.null_count():
        return _describe_text(str(cells.filter(numbers.is_null() & cells.is_not_null())[0]))
    is_numbered = numbers.null_count() == 0 and _are_like_row_numbers(numbers)
    return "consecutive or evenly spaced integers, such as row numbers" if is_numbered else ""


def _describe_text(value: str) -> str:
    hint = "; a decimal comma is not supported" if _DECIMAL_COMMA.fullmatch(value) else ""
    return f"text, such as {value[:40]!r}{hint}"


def _are_like_row_numbers(numbers: pl.Series) -> bool:
    """Return True if the numbers are integers in equal steps, or n consecutive integers in any order."""
    values = numbers.to_numpy()
    if values.size < _MIN_NUMBERED_ROWS or not (values == np.round(values)).all():
        return False
    steps = np.diff(values)
    is_evenly_spaced = steps[0] != 0.0 and bool((steps == steps[0]).all())
    return is_evenly_spaced or (np.ptp(values) == values.size - 1 and np.unique(values).size == values.size)


# -- values -----------------------------------------------------------------------------------------------------------


def _checked_numbers(parsed: ParsedColumn, name: str, first: int) -> Array:
    values = parsed.numbers.to_numpy().astype(np.float64)  # null becomes NaN
    is_wrong = np.abs(values) > MAX_SIZE
    if parsed.n_texts > 0:
        is_wrong |= (parsed.numbers.is_null() & parsed.cells.is_not_null()).to_numpy()
    if is_wrong.any():
        i = int(np.flatnonzero(is_wrong)[0])
        raise InvalidInputError(f"Row {first + i + 1}, column {name!r}: {_cell_error(parsed.cells[i], values[i])}.")
    return values


def _cell_error(cell: object, value: float) -> str:
    if np.isnan(value):
        return f"{shown(cell)} is not a number"
    return f"{value} exceeds {MAX_SIZE:g} in absolute value" if np.isfinite(value) else f"{cell!s:.60} is not finite"


def _is_numeric(column: pl.Series) -> bool:
    return column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)


def _without_missing_texts(column: pl.Series) -> pl.Series:
    """Return text without surrounding blanks, and null in place of NaN and of texts that stand for missing values."""
    if column.dtype == pl.String:
        stripped = column.str.strip_chars()
        return stripped.set(stripped.is_in(MISSING_TEXTS), None)
    return column.fill_nan(None) if column.dtype.is_float() else column


def _as_numbers(cells: pl.Series) -> pl.Series:
    """Return cells as numbers, null where they are not; a column of only "true" and "false" as 1 and 0."""
    if cells.dtype != pl.String:
        numeric = cells if _is_numeric(cells) else pl.Series(cells.name, [None] * cells.len())
        return numeric.cast(pl.Float64, strict=False)
    numbers = cells.cast(pl.Float64, strict=False)
    if numbers.null_count() == cells.null_count():
        return numbers
    booleans = cells.str.to_lowercase().replace_strict(BOOLEANS, default=None, return_dtype=pl.Float64)
    return booleans if booleans.null_count() == cells.null_count() else numbers


def _as_integers_or_floats(cells: pl.Series) -> pl.Series:
    integers = cells.cast(pl.Int64, strict=False)
    return integers if integers.null_count() == cells.null_count() else _as_numbers(cells)


def _as_dates(column: pl.Series) -> pl.Series:
    try:
        return column.str.to_datetime(time_zone="UTC", strict=False).dt.replace_time_zone(None)
    except pl.exceptions.PolarsError:  # unknown date format
        return column


def _listed(names: list[str]) -> str:
    text = ", ".join(map(repr, names[:20]))
    return text if len(names) <= 20 else f"{text} and {len(names) - 20} more"

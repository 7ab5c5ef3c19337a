"""The columns of a table that are features: chosen, and turned into points; a cell that is no number is named."""

import re
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import polars as pl

from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_SIZE
from imondrian.errors import InvalidInputError

ROW, SCORE, LABEL, EXPLANATION = "row", "anomaly_score", "is_anomaly", "explanation"
THRESHOLD, ERROR = "threshold", "error"
ADDED = (SCORE, LABEL, EXPLANATION)  # columns that are added to tables
RESULTS = (ROW, SCORE, LABEL, EXPLANATION, THRESHOLD, ERROR)  # columns that are added to tables and streams
TRUTHS = {"true": 1.0, "false": 0.0}  # in any case
NOT_THERE = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "none", "-", "?")  # missing values

_MOST_SHOWN = 60  # characters of a value in an error message
_FEWEST_NUMBERED = 8  # rows; in fewer, numbers may be in order by chance
_DECIMAL_COMMA = re.compile(r"[-+]?[\d.]*\d,\d+")


class Columns(NamedTuple):
    """The names of the features, and why other columns are none."""

    features: list[str]
    left_out: dict[str, str]


def choose(
    frame: pl.DataFrame,
    features: Collection[str] = (),
    ignore: Collection[str] = (),
    time: str | None = None,
) -> Columns:
    """Choose the columns that are features: those named, or else all that hold numbers.

    Left out are text, dates, columns without values, those that number the rows, and results of an earlier run.
    """
    columns = frame.columns
    check_names((*features, *ignore, *([] if time is None else [time])), columns)
    left_out: dict[str, str] = {}
    earlier = results_among(columns)
    for name in columns:
        why = _not_asked_for(name, features, ignore, time)
        if not why and not features:
            why = "the result of an earlier run" if name in earlier else _no_feature(frame[name])
        if why:
            left_out[name] = why
    chosen = [name for name in (features or columns) if name not in left_out]
    if not chosen:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise InvalidInputError(f"No column can be used as a feature ({reasons}).")
    return Columns(chosen, left_out)


def check_names(names: Collection[str], known: Collection[str]) -> None:
    """Make sure that all columns asked for are there."""
    among = set(known)
    for name in names:
        if name not in among:
            raise InvalidInputError(f"There is no column {name!r}; there are {_listed(list(known))}.")


def results_among(names: Collection[str]) -> set[str]:
    """Tell which names are those of results, if there are any of an earlier run."""
    return {name for name in RESULTS if name in names} if SCORE in names else set()


def points_of(frame: pl.DataFrame, features: list[str], first: int = 0) -> Array:
    """Turn the features into a table of points, NaN where a value is missing; rows are counted from `first` on."""
    points = np.empty((frame.height, len(features)))
    for j, name in enumerate(features):
        points[:, j] = _numbers(frame[name], first)
    return points


def typed(frame: pl.DataFrame, features: list[str]) -> pl.DataFrame:
    """Make features that are text numbers, whole ones where all are whole, for formats that know the difference."""
    texts = [name for name in features if frame[name].dtype == pl.String]
    return frame.with_columns(_typed(_cells(frame[name])) for name in texts)


def times_of(frame: pl.DataFrame, name: str | None) -> Array | None:
    """Give the column that tells the time as numbers or dates; nothing if it holds neither, or not everywhere."""
    if name is None:
        return None
    column = frame[name]
    if column.dtype == pl.String:
        numbers = _parsed(_cells(column))
        column = numbers if numbers.null_count() == 0 else _dates(column)
    is_usable = (column.dtype.is_numeric() or column.dtype in (pl.Date, pl.Datetime)) and column.null_count() == 0
    return column.to_numpy() if is_usable else None


def _typed(cells: pl.Series) -> pl.Series:
    whole = cells.cast(pl.Int64, strict=False)
    return whole if whole.null_count() == cells.null_count() else _parsed(cells)


def _dates(column: pl.Series) -> pl.Series:
    try:
        return column.str.to_datetime(time_zone="UTC", strict=False).dt.replace_time_zone(None)
    except pl.exceptions.PolarsError:  # no format that it knows
        return column


def _not_asked_for(name: str, features: Collection[str], ignore: Collection[str], time: str | None) -> str:
    if name == time:
        return "the time"
    if name in ignore:
        return "to be ignored"
    return "not among the features asked for" if features and name not in features else ""


def _no_feature(column: pl.Series) -> str:
    """Tell why a column is no feature by itself; nothing if it is one."""
    if column.dtype.is_temporal():
        return "a date or time"
    if column.dtype != pl.String and not _holds_numbers(column):
        return f"not numbers, but {column.dtype}"
    cells, numbers = _looked_at(column)
    n_values, n_texts = cells.len() - cells.null_count(), numbers.null_count() - cells.null_count()
    if n_texts == 0 and np.isnan(numbers.to_numpy()).all():
        return "without values"
    if 2 * n_texts >= n_values:
        return _as_text(str(cells.drop_nulls()[0]))
    return "numbers the rows" if numbers.null_count() == 0 and _numbers_rows(numbers) else ""


def _as_text(value: str) -> str:
    has_comma = _DECIMAL_COMMA.fullmatch(value)
    hint = "; a decimal comma is not understood" if has_comma else ""
    return f"text, such as {value[:40]!r}{hint}"


def _numbers_rows(numbers: pl.Series) -> bool:
    """Tell whether the numbers go up by the same step, or are those from 1 to n (or 0, or any) in any order."""
    values = numbers.to_numpy()
    if values.size < _FEWEST_NUMBERED or not (values == np.round(values)).all():
        return False
    steps = np.diff(values)
    is_even = steps[0] != 0.0 and bool((steps == steps[0]).all())
    return is_even or (np.ptp(values) == values.size - 1 and np.unique(values).size == values.size)


def _numbers(column: pl.Series, first: int) -> Array:
    cells, numbers = _looked_at(column)
    values = numbers.to_numpy().astype(np.float64)  # null becomes NaN
    wrong = np.abs(values) > MAX_SIZE
    if numbers.null_count() > cells.null_count():
        wrong |= (numbers.is_null() & cells.is_not_null()).to_numpy()
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(f"Row {first + i + 1}, column {column.name!r}: {_complaint(cells[i], values[i])}.")
    return values


def _complaint(cell: object, value: float) -> str:
    if np.isnan(value):
        return f"{shown(cell)} is not a number"
    return f"{value} is beyond {MAX_SIZE:g} in size" if np.isfinite(value) else f"{cell!s:.60} is not finite"


def shown(value: object) -> str:
    """Return a value for an error message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _holds_numbers(column: pl.Series) -> bool:
    return column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)


def _looked_at(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Give the cells of a column and their numbers; what holds nothing but numbers is not looked at more closely."""
    numbers = _parsed(column)
    if numbers.null_count() == column.null_count():
        return column, numbers
    cells = _cells(column)
    return cells, _parsed(cells)


def _cells(column: pl.Series) -> pl.Series:
    """Make values that stand for none null, and text bare of blanks."""
    if column.dtype == pl.String:
        bare = column.str.strip_chars()
        return bare.set(bare.is_in(NOT_THERE), None)
    return column.fill_nan(None) if column.dtype.is_float() else column


def _parsed(cells: pl.Series) -> pl.Series:
    """Give the numbers that cells stand for, null where they stand for none."""
    if cells.dtype != pl.String:
        known = cells if _holds_numbers(cells) else pl.Series(cells.name, [None] * cells.len())
        return known.cast(pl.Float64, strict=False)
    numbers = cells.cast(pl.Float64, strict=False)
    if numbers.null_count() == cells.null_count():
        return numbers
    truths = cells.str.to_lowercase().replace_strict(TRUTHS, default=None, return_dtype=pl.Float64)
    return truths if truths.null_count() == cells.null_count() else numbers


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:20]))
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"

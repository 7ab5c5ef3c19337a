"""Missing numbers in tables: replaced by the medians of their columns and, if requested, marked by indicators."""

from typing import Any

import numpy as np

from imondrian.base.categories import MISSING_CODE
from imondrian.base.errors import InvalidInputError
from imondrian.base.option_types import MISSING, Missing
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_VALUE
from imondrian.forest.order_statistics import median_of_copies

UNKNOWN_MEDIAN = 0.0  # of a column without any number


def checked_missing(missing: Any) -> Missing:
    """Check the value of the option `missing` of a table."""
    if not isinstance(missing, str) or missing not in MISSING:
        raise InvalidInputError(f"missing must be one of {', '.join(MISSING)}, but is {missing!r}.")
    return missing


def column_medians(points: Array) -> Array:
    """Return the median of each column without its gaps (NaN); 0 for a column without any number.

    Examples
    --------
    >>> column_medians(np.array([[1.0, np.nan], [np.nan, np.nan], [4.0, np.nan]])).tolist()
    [2.5, 0.0]
    """
    has_gaps = np.isnan(points).any(axis=0)
    medians = np.zeros(points.shape[1])
    medians[~has_gaps] = np.median(points[:, ~has_gaps], axis=0)
    for j in np.flatnonzero(has_gaps):
        column = points[:, j]
        present = column[~np.isnan(column)]
        medians[j] = np.median(present) if present.size else UNKNOWN_MEDIAN
    return medians


def medians_of_copies(points: Array, copies: Array) -> Array:
    """Return the median of each column, with each point counted as often as it has copies; 0 if there are no points."""
    if not copies.any():
        return np.full(points.shape[1], UNKNOWN_MEDIAN)
    return np.array([median_of_copies(column, copies) for column in points.T])


def columns_with_gaps(points: Array) -> list[int]:
    """Return the columns that have a gap (NaN)."""
    columns: list[int] = np.flatnonzero(np.isnan(points).any(axis=0)).tolist()
    return columns


def without_gaps(points: Array, fill: Array, indicators: list[int]) -> Array:
    """Replace the gaps of each column with its value in `fill`, and append an indicator of gaps for some columns.

    An indicator is a categorical column: 1 if the value is missing, otherwise 0.

    Examples
    --------
    >>> without_gaps(np.array([[np.nan, 2.0], [3.0, np.nan]]), np.array([7.0, 8.0]), [1]).tolist()
    [[7.0, 2.0, 0.0], [3.0, 8.0, 1.0]]
    """
    is_gap = np.isnan(points)
    filled = np.where(is_gap, fill, points) if is_gap.any() else points
    return np.hstack([filled, is_gap[:, indicators]]) if indicators else filled


def without_indicators(parts: Array, indicators: list[int]) -> Array:
    """Return the part of each column in the score of each row, including the part of the column's indicator.

    The absolute part of the indicator is added to the absolute part of the column. The sign of the column's part does
    not change.
    """
    if not indicators:
        return parts
    n_features = parts.shape[1] - len(indicators)
    own = parts[:, :n_features].copy()
    own[:, indicators] += np.copysign(parts[:, n_features:], own[:, indicators])
    return own


def have_values(points: Array, categorical: tuple[int, ...]) -> Array:
    """Return a mask that is True for rows with at least one value: a number, or a category that is not missing."""
    has_value = ~np.isnan(points)
    has_value[:, categorical] &= points[:, categorical] != MISSING_CODE
    return np.asarray(has_value.any(axis=1))


def check_rows_have_values(points: Array, categorical: tuple[int, ...]) -> None:
    """Raise InvalidInputError if everything in a row is missing."""
    has_value = have_values(points, categorical)
    if not has_value.all():
        raise InvalidInputError(f"Row {int(np.argmin(has_value))} of X has no value: everything is missing.")


def checked_fill(fill: Any, n_features: int) -> Array:
    """Check medians stored in a file; raise ValueError if they are not one number per feature."""
    array = np.array(fill, dtype=np.float64)
    if array.shape != (n_features,) or not (np.abs(array) <= MAX_VALUE).all():
        raise ValueError(f"the medians must be {n_features} finite numbers, but are {fill!r:.200}.")
    return array

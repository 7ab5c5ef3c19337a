"""Rules for missing values: fail, leave the rows without a score, or fill in medians."""

import warnings
from collections.abc import Callable

import numpy as np

from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.order_statistics import median_of_copies

Medians = Callable[[], Array]
Rule = Callable[[Array, list[str], int, Medians], Array]


def fail(points: Array, features: list[str], first: int, medians: Medians) -> Array:
    """Raise an InvalidInputError that names the first missing value."""
    missing = np.isnan(points)
    if missing.any():
        i, j = (int(k) for k in np.argwhere(missing)[0])
        raise InvalidInputError(
            f"Row {first + i + 1}, column {features[j]!r}: the value is missing"
            " (--missing drop gives such rows no score, --missing median fills in the median)."
        )
    return points


def drop(points: Array, features: list[str], first: int, medians: Medians) -> Array:
    """Leave missing values as NaN: their rows get no score."""
    return points


def median(points: Array, features: list[str], first: int, medians: Medians) -> Array:
    """Replace missing values with the median of their column."""
    missing = np.isnan(points)
    return np.where(missing, medians(), points) if missing.any() else points


def column_medians_of_copies(points: Array, copies: Array) -> Array:
    """Return the median of each column of points without missing values, given with their numbers of copies."""
    return np.array([median_of_copies(column, copies) for column in points.T])


def column_medians(points: Array) -> Array:
    """Return the median of each column, ignoring missing values."""
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # columns without values
        return np.nanmedian(points, axis=0)


MISSING: dict[str, Rule] = {"fail": fail, "drop": drop, "median": median}

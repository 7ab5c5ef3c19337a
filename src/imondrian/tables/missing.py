"""What to do with missing values: fail, drop the rows, or fill in medians."""

import warnings
from collections.abc import Callable

import numpy as np

from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError

Medians = Callable[[], Array]
Rule = Callable[[Array, list[str], int, Medians], Array]


def fail(points: Array, features: list[str], first: int, medians: Medians) -> Array:
    """Raise an error that names the first missing value."""
    missing = np.isnan(points)
    if missing.any():
        i, j = (int(k) for k in np.argwhere(missing)[0])
        raise InvalidInputError(
            f"Row {first + i + 1}, column {features[j]!r}: the value is missing"
            " (--missing drop passes such rows by, --missing median fills them in)."
        )
    return points


def drop(points: Array, features: list[str], first: int, medians: Medians) -> Array:
    """Leave missing values as they are: their rows are passed by."""
    return points


def median(points: Array, features: list[str], first: int, medians: Medians) -> Array:
    """Fill in the median of the column."""
    missing = np.isnan(points)
    return np.where(missing, medians(), points) if missing.any() else points


def medians_of(points: Array) -> Array:
    """Give the median of each column, missing values aside."""
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of columns without values
        return np.nanmedian(points, axis=0)


MISSING: dict[str, Rule] = {"fail": fail, "drop": drop, "median": median}

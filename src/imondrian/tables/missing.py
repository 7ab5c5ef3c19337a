"""Rules for missing values: the model fills them in, rows with missing values get no score, or they are errors."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from imondrian.base.categories import MISSING_CODE
from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.tables.feature_columns import FeatureColumn

Prepare = Callable[[Array, list[FeatureColumn], int], Array]


class MissingRule(NamedTuple):
    """What to do with missing values."""

    prepare: Prepare  # applied to the points of a batch
    of_model: str  # the parameter `missing` of the model


def keep(points: Array, features: list[FeatureColumn], first: int) -> Array:
    """Leave missing numbers as NaN: the model fills them. A missing category is a category of its own."""
    return points


def drop(points: Array, features: list[FeatureColumn], first: int) -> Array:
    """Remove all values of rows with a missing value, so that these rows get no score."""
    has_gap = find_gaps(points, features).any(axis=1, keepdims=True)
    return np.where(has_gap, np.nan, points) if has_gap.any() else points


def fail(points: Array, features: list[FeatureColumn], first: int) -> Array:
    """Raise an InvalidInputError that names the first missing value; `first` is the number of rows before the batch."""
    gaps = find_gaps(points, features)
    if gaps.any():
        i, j = (int(k) for k in np.argwhere(gaps)[0])
        effect = "treats it as a category of its own" if features[j].is_category else "fills in the median"
        raise InvalidInputError(
            f"Row {first + i + 1}, column {features[j].name!r}: the value is missing"
            f" (--missing drop gives such rows no score, --missing median {effect})."
        )
    return points


def find_gaps(points: Array, features: list[FeatureColumn]) -> Array:
    """Return a mask that is True where a number or a category is missing."""
    gaps = np.isnan(points)
    categorical = [j for j, feature in enumerate(features) if feature.is_category]
    gaps[:, categorical] |= points[:, categorical] == MISSING_CODE
    return gaps


MISSING = {
    "median": MissingRule(keep, "median"),
    "indicator": MissingRule(keep, "indicator"),
    "drop": MissingRule(drop, "raise"),
    "fail": MissingRule(fail, "raise"),
}

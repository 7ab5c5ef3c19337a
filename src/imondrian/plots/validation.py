"""Validate the arguments of plots: return arrays of the right shape, or raise InvalidInputError."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_VALUE
from imondrian.engine.plain_tree import Tree


def as_scores(scores: Any) -> Array:
    """Check that scores are between 0 and 1, or NaN for rows that were not scored."""
    array = as_numbers(scores, "scores", 1)
    wrong = ~((array >= 0.0) & (array <= 1.0) | np.isnan(array))
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(f"A score must be between 0 and 1, but scores[{i}] is {array[i]}.")
    if np.isnan(array).all():
        raise InvalidInputError(f"scores contains no score: all {array.size} are NaN.")
    return array


def as_plane_points(points: Any) -> Array:
    """Check an array of points with two features."""
    array = as_finite(points, "points", 2)
    if array.shape[1] != 2:
        raise InvalidInputError(f"points must have 2 features, but have {array.shape[1]}.")
    return array


def as_flags(flags: Any, name: str, n_rows: int) -> Array:
    """Check an array of booleans, one for each row."""
    array = as_numbers(flags, name, 1)
    check_length(array, name, n_rows)
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(f"{name} must be true or false, but {name}[{i}] is {array[i]:g}.")
    return array == 1


def as_names(names: Any, n_features: int) -> list[Any]:
    """Check a sequence of names, one for each feature."""
    listed = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else []
    if len(listed) != n_features:
        raise InvalidInputError(
            f"names must contain {n_features} name(s), one for each feature, but is {names!r:.200}."
        )
    return listed


def as_number(value: Any, name: str) -> float:
    """Check a single number, which must not be NaN."""
    number = as_numbers(value, name, 0)
    if np.isnan(number):
        raise InvalidInputError(f"{name} must be a number, but is {number}.")
    return float(number)


def check_tree(tree: Tree) -> int:
    """Check that a tree holds points; return its number of features."""
    if tree.parent.size == 0:
        raise InvalidInputError("The tree is empty: it holds no points.")
    return int(tree.lower.shape[1])


def as_finite(values: Any, name: str, n_dimensions: int) -> Array:
    """Check an array of finite numbers, no larger than MAX_VALUE."""
    array = as_numbers(values, name, n_dimensions)
    wrong = ~(np.abs(array) <= MAX_VALUE)  # also True for NaN
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        element = f"{name}[{', '.join(map(str, where))}]"
        raise InvalidInputError(
            f"{element} is {array[where]}: values must be finite, and at most {MAX_VALUE:g} in absolute value."
        )
    return array


def as_numbers(values: Any, name: str, n_dimensions: int) -> Array:
    """Check a non-empty array of numbers, which may be NaN or infinite."""
    try:
        array = np.asarray(values)
        numbers = array.astype(np.float64) if array.dtype.kind in "biufO" else None
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name} must contain only numbers: {error}.") from None
    if numbers is None:
        raise InvalidInputError(f"{name} must contain only numbers, but its type is {array.dtype}.")
    if array.ndim != n_dimensions:
        raise InvalidInputError(f"{name} must have {n_dimensions} dimension(s), but its shape is {array.shape}.")
    if array.size == 0:
        raise InvalidInputError(f"{name} is empty: its shape is {array.shape}.")
    return numbers


def check_length(array: Array, name: str, n_rows: int) -> None:
    """Check that an array has one value for each row."""
    if array.shape[0] != n_rows:
        raise InvalidInputError(f"{name} must have {n_rows} value(s), one for each row, but has {array.shape[0]}.")

"""Input validation: points become finite, C-contiguous float64 arrays, or an InvalidInputError is raised."""

import math
import re
from contextlib import suppress
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from imondrian.base.defaults import MAX_SAMPLES
from imondrian.base.errors import InvalidInputError
from imondrian.engine.finite import all_within_limit
from imondrian.engine.jit import Array, call_without_dispatch
from imondrian.engine.nodes import MAX_POINTS, MAX_VALUE

_MAX_DIGITS = 30  # of an integer in an error message
_NUMBERS = (Real, np.bool_, Decimal)
DECIMAL = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"  # a number without a sign, as text
_DECIMAL_TEXT = re.compile(rf"\s*{DECIMAL}\s*", re.ASCII)


def as_points(X: Any, n_features: int | None) -> Array:
    """Check a table of points; return it in the layout that kernels expect."""
    points = _as_numbers(X, "X")
    if points.ndim != 2:
        raise InvalidInputError(f"X must be a table of rows and features, but has {points.ndim} dimension(s).")
    if points.size == 0:
        raise InvalidInputError(f"X is empty: its shape is {points.shape}.")
    _check_width(points.shape[1], n_features, "X")
    if not all_within_limit(points.ravel()):
        _raise_not_finite(points)
    return points


def as_point(x: Any, n_features: int | None) -> Array:
    """Check one point; return it as a table of one row."""
    return as_row(x, n_features)[None]


def as_row(x: Any, n_features: int | None) -> Array:
    """Check one point; return it in the layout that kernels expect."""
    if type(x) is np.ndarray and x.shape == (n_features,) and x.dtype == np.float64 and x.flags.carray:
        if call_without_dispatch(all_within_limit, x):
            return x
        _raise_not_finite(x)
    point = _as_numbers(x, "x")
    if point.ndim != 1:
        raise InvalidInputError(f"x must be one row of features, but has {point.ndim} dimension(s).")
    if point.size == 0:
        raise InvalidInputError("x is empty.")
    _check_width(point.size, n_features, "x")
    if not call_without_dispatch(all_within_limit, point):
        _raise_not_finite(point)
    return point


def as_points_with_gaps(X: Any, n_features: int | None) -> Array:
    """Like `as_points`, but NaN is a missing value; a row must have at least one value."""
    points = _as_numbers(X, "X")
    if all_within_limit(points.ravel()) or points.ndim != 2:
        return as_points(points, n_features)
    as_points(_with_zeros(points), n_features)
    is_empty = np.isnan(points).all(axis=1)
    if is_empty.any():
        raise InvalidInputError(f"Row {int(np.argmax(is_empty))} of X has no value: everything is missing.")
    return points


def as_row_with_gaps(x: Any, n_features: int | None) -> Array:
    """Like `as_row`, but NaN is a missing value; there must be at least one value."""
    row = _as_numbers(x, "x")
    if row.shape == (n_features,) and call_without_dispatch(all_within_limit, row):
        return row
    as_row(_with_zeros(row), n_features)
    if np.isnan(row).all():
        raise InvalidInputError("x has no value: everything is missing.")
    return row


def has_gaps(row: Array) -> bool:
    """Return True if a checked row has a missing value."""
    return not call_without_dispatch(all_within_limit, row)


def unchanged(rows: Array) -> Array:
    """Return rows that were copied from checked points; raise InvalidInputError if the copy would fail the check.

    Another thread may write to the caller's array between the check and the copy. Kernels that change trees get only
    copies that have been checked, or copy and check each value themselves (`draw_sample`): a value that is not finite,
    or that changes while they run, would corrupt memory.
    """
    if not call_without_dispatch(all_within_limit, rows if rows.ndim == 1 else rows.ravel()):
        raise InvalidInputError("X was changed while it was being read.")
    return rows


def as_number(value: Any, name: Any) -> float:
    """Check the value of one feature: a number, finite or not; text that looks like a number is rejected."""
    if type(value) is float:
        return value
    if not isinstance(value, np.timedelta64) and isinstance(value, _NUMBERS):
        with suppress(OverflowError, ValueError):
            return float(value)
    if isinstance(value, int):
        raise InvalidInputError(f"The feature {name!r} must be a 64-bit number, but is {_shown(value)}.")
    raise InvalidInputError(f"The feature {name!r} must be a number, but is {value!r:.200}.")


def number_or_nan(value: Any) -> float:
    """Return a value from a file as a number; NaN if it is not one."""
    try:
        return as_number(value, "")
    except InvalidInputError:
        return math.nan


def number_of_text(text: str) -> float | None:
    """Return the number of a text in decimal notation; None if it has a sign, is too large, or is something else.

    `float` also accepts underscores, digits of other scripts, "nan" and "inf", which are probably mistakes.

    Examples
    --------
    >>> number_of_text("0.05"), number_of_text("1e-3"), number_of_text("1_0"), number_of_text("nan")
    (0.05, 0.001, None, None)
    """
    number = float(text) if _DECIMAL_TEXT.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None


def as_column(values: Any, name: Any) -> Array:
    """Check the values of one feature: numbers, finite or not."""
    return _as_numbers(values, f"The feature {name!r}")


def as_weights(weights: Any, n_features: int | None) -> Array:
    """Check an array of one positive weight per feature."""
    array = _as_numbers(weights, "scale")
    if array.ndim != 1 or array.size == 0 or n_features not in (None, array.size):
        raise InvalidInputError(
            f"scale must have one weight for each of {n_features or 'the'} features; its shape is {array.shape}."
        )
    wrong = ~((array >= 1 / MAX_VALUE) & (array <= MAX_VALUE))
    if wrong.any():
        j = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(
            f"scale must be between {1 / MAX_VALUE:g} and {MAX_VALUE:g}, but scale[{j}] is {array[j]}."
        )
    return array


def as_count(value: Any, name: str, smallest: int, largest: int) -> int:
    """Check that a value is an integer in a range."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InvalidInputError(f"{name} must be an integer, but is {value!r:.200}.")
    if not smallest <= value <= largest:
        raise InvalidInputError(f"{name} must be between {smallest} and {largest}, but is {_shown(int(value))}.")
    return int(value)


def _shown(value: int) -> str:
    """Return an integer as text, rounded to a power of ten if it is very long; Python refuses to write 4,301 digits."""
    n_digits = math.floor(value.bit_length() * math.log10(2.0))
    return str(value) if n_digits < _MAX_DIGITS else f"about {'-' if value < 0 else ''}10^{n_digits}"


def as_feature_indices(features: Any, n_features: int, n_rows: int) -> Array:
    """Check the features whose expected values are wanted; return a list of feature indices for each row.

    None means all features; one list applies to all rows; a table has one list of features for each row.
    """
    indices = np.arange(n_features) if features is None else np.asarray(features)
    if indices.dtype.kind not in "iu" or indices.ndim not in (1, 2) or indices.size == 0:
        raise InvalidInputError(f"features must be indices of features, but is {features!r:.100}.")
    if indices.ndim == 2 and len(indices) != n_rows:
        raise InvalidInputError(f"features must have one row for each of {n_rows} rows, but has {len(indices)}.")
    wrong = (indices < 0) | (indices >= n_features)
    if wrong.any():
        raise InvalidInputError(
            f"features must contain indices from 0 to {n_features - 1}, but has {indices[wrong][0]}."
        )
    return np.broadcast_to(indices, (n_rows, indices.shape[-1])).astype(np.intp)


def as_owned_array(array: Any, dtype: np.dtype[Any]) -> Array:
    """Return an array in the layout that kernels expect: plain ndarray, writable, aligned, C order, owning its memory.

    Arrays restored from a pickle, a memory map or shared memory may be read-only or views of other memory; these are
    copied.
    """
    if type(array) is np.ndarray and array.dtype == dtype and array.flags.carray and array.flags.owndata:
        return array
    if array.dtype.names != dtype.names:
        raise InvalidInputError(f"An array of a forest must have the dtype {dtype}, but has {array.dtype}.")
    return np.array(array, dtype=dtype, order="C", copy=True, subok=False)


def sample_size(max_samples: Any, n_rows: int) -> int | None:
    """Return the sample size of a tree: "auto" is the default size, a float a share of the rows, None no limit."""
    if isinstance(max_samples, str) and max_samples == "auto":
        return MAX_SAMPLES
    if isinstance(max_samples, (float, np.floating)) and 0.0 < max_samples <= 1.0:
        return max(1, int(max_samples * n_rows))
    return None if max_samples is None else as_count(max_samples, "max_samples", 1, MAX_POINTS)


def _with_zeros(array: Array) -> Array:
    """Return a copy with 0 instead of NaN."""
    return np.where(np.isnan(array), 0.0, array)


def without_mask(values: Any) -> Any:
    """Return a masked array as a plain one: NaN or, if not numeric, None where masked; anything else unchanged."""
    if isinstance(values, (list, tuple)) and any(map(np.ma.isMaskedArray, values)):
        return [without_mask(row) for row in values]
    if not np.ma.is_masked(values):
        return values
    if values.dtype.kind in "biufO":
        with suppress(TypeError, ValueError, OverflowError):
            return np.ma.filled(values.astype(np.float64), np.nan)
    return np.array(values.tolist(), dtype=object)


def _as_numbers(values: Any, name: str) -> Array:
    if type(values) is np.ndarray and values.dtype == np.float64 and values.flags.carray:
        return values
    try:
        array = np.asarray(without_mask(values))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name} must be numbers: {error}.") from None
    if array.dtype.kind == "O":
        for value in array.flat:
            if not isinstance(value, _NUMBERS):
                raise InvalidInputError(f"{name} must be numbers, but one value is {value!r:.200}.")
    elif array.dtype.kind not in "biuf":
        raise InvalidInputError(f"{name} must be numbers, but its type is {array.dtype}.")
    try:  # always the same layout: kernels would be compiled again for another one
        return np.require(array, np.float64, ["C", "A", "W"])
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name} must be numbers: {error}.") from None


def _check_width(width: int, n_features: int | None, name: str) -> None:
    if n_features is not None and width != n_features:
        raise InvalidInputError(f"{name} has {width} features, but this forest was built on {n_features}.")


def _raise_not_finite(points: Array) -> None:
    found = np.argwhere(~(np.abs(points) <= MAX_VALUE))
    if len(found) == 0:
        raise InvalidInputError(f"{'X' if points.ndim == 2 else 'x'} was changed while it was being read.")
    index = tuple(int(i) for i in found[0])
    value, name = points[index], "X" if points.ndim == 2 else "x"
    element = f"{name}[{', '.join(map(str, index))}]"
    if np.isfinite(value):
        raise InvalidInputError(f"{element} is {value}: values must be at most {MAX_VALUE:g} in absolute value.")
    raise InvalidInputError(f"{element} is {value}: values must be finite.")

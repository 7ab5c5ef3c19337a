"""Tables with numbers, text, booleans, categories and gaps become points: codes for categories, NaN for gaps."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from imondrian.base.categories import MISSING_CODE, category_codes, is_missing
from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.forest.inputs import as_number, without_mask

AUTO = "auto"
_METHODS_OF_FRAMES = ("iloc", "get_columns")  # of pandas and polars
_CATEGORICAL_TYPES = ("category", "categorical", "enum", "dictionary")  # of columns in pandas, polars and Arrow
_MAX_SHOWN_LENGTH = 60  # characters of a value in an error message


def columns_of(X: Any) -> list[Any]:
    """Return the columns of a data frame (pandas, polars) or of an array with two dimensions."""
    if getattr(X, "ndim", 2) != 2:
        raise InvalidInputError(f"X must be a table of rows and features, but has {X.ndim} dimension(s).")
    if hasattr(X, "iloc"):
        return [X.iloc[:, j] for j in range(X.shape[1])]
    if hasattr(X, "get_columns"):
        return list(X.get_columns())
    return list(X.T)


def as_table(X: Any, *, has_categories: bool) -> Any:
    """Return a sequence of rows, or another object with `__array__`, as an array.

    Data frames, arrays, rows of different lengths and anything else are returned unchanged, except that masked numbers
    become NaN if `has_categories` is False. The array has objects if there is text, or if a sequence has categories.
    Objects keep integers exact: in an array of numbers, if one value is a float, all integers become floats and can
    lose digits.
    """
    _check_kind(X)
    if np.ma.isMaskedArray(X) and is_numeric(X) and not has_categories:
        return without_mask(X)
    if isinstance(X, Sequence) and any(map(np.ma.isMaskedArray, X)):
        X = [row.tolist() if np.ma.isMaskedArray(row) else row for row in X]
    is_rows = isinstance(X, Sequence) or hasattr(X, "__array__")
    if is_frame(X) or isinstance(X, (np.ndarray, str, bytes)) or not is_rows:
        return X
    try:
        array = np.asarray(X)
        keeps_objects = array.dtype.kind in "US" or (has_categories and isinstance(X, Sequence))
        return np.array(X, dtype=object) if keeps_objects else array
    except ValueError:  # rows of different lengths
        return X


def _check_kind(X: Any) -> None:
    """Raise InvalidInputError for other tables with names: as arrays, they would lose names and types of columns."""
    kind = type(X)
    has_names = hasattr(kind, "columns") or hasattr(kind, "__arrow_c_stream__")
    is_mapping = isinstance(X, Mapping) and not hasattr(X, "shape")  # a sparse matrix can be a dictionary
    if (has_names or is_mapping) and not any(hasattr(kind, name) for name in _METHODS_OF_FRAMES):
        raise InvalidInputError(
            "X must be an array, a list of rows, or a data frame of pandas or polars, but is a"
            f" {kind.__module__.partition('.')[0]} {kind.__name__}: convert it first."
        )


def is_frame(X: Any) -> bool:
    """Return True for a data frame."""
    return hasattr(X, "columns") and hasattr(X, "to_numpy")


def is_numeric(X: Any) -> bool:
    """Return True if no value of a table needs to be converted: every column has a numeric numpy type.

    Also True for what is not a table, and for complex numbers: both are refused elsewhere.
    """
    if is_frame(X):
        return all(isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf" for column in columns_of(X))
    return getattr(X, "dtype", None) is None or X.dtype.kind in "iufc"


def categorical_columns(X: Any, categorical: Any, names: Sequence[Any] | None) -> list[int]:
    """Return the indices of the categorical columns of a table.

    Parameters
    ----------
    X : data frame or array
    categorical : "auto", or names, indices or a mask of columns
        "auto": the columns of text, booleans or a categorical type.
    names : sequence, optional
        The names of the columns.

    Raises
    ------
    InvalidInputError
        If X does not have two dimensions, or if `categorical` is invalid or names a column that does not exist.

    Examples
    --------
    >>> categorical_columns(np.array([["FR", 3.5], ["DE", None]], dtype=object), "auto", None)
    [0]
    """
    if isinstance(categorical, str) and categorical == AUTO:
        return [j for j, column in enumerate(columns_of(X)) if is_categorical(column)]
    if len(X.shape) != 2:
        raise InvalidInputError(f"X must be a table of rows and features, but has {len(X.shape)} dimension(s).")
    return column_indices(categorical, X.shape[1], names)


def is_auto_or_empty(categorical: Any) -> bool:
    """Return True if `categorical` is text, such as "auto", or empty: then no numeric column is categorical."""
    return isinstance(categorical, str) or len(categorical) == 0


def column_indices(categorical: Any, n_columns: int, names: Sequence[Any] | None) -> list[int]:
    """Return the sorted indices of columns given by names, indices or a mask."""
    if isinstance(categorical, (str, bytes)) or not isinstance(categorical, (Iterable, np.ndarray)):
        raise InvalidInputError(f"categorical must be a list of features, but is {categorical!r}.")
    chosen = [item.item() if isinstance(item, np.generic) else item for item in categorical]
    if chosen and all(isinstance(item, bool) for item in chosen):
        if len(chosen) != n_columns:
            raise InvalidInputError(f"categorical is a mask of {len(chosen)} features, but there are {n_columns}.")
        return [j for j, is_chosen in enumerate(chosen) if is_chosen]
    return sorted({_column_index(item, n_columns, names) for item in chosen})


def _column_index(item: Any, n_columns: int, names: Sequence[Any] | None) -> int:
    if isinstance(item, str):
        if names is None or item not in list(names):
            raise InvalidInputError(f"categorical lists the feature {item!r}, but no feature has this name.")
        return list(names).index(item)
    if isinstance(item, bool) or not isinstance(item, int):
        raise InvalidInputError(f"categorical must contain names or indices of features, but contains {item!r}.")
    if not 0 <= item < n_columns:
        raise InvalidInputError(f"categorical contains {item}, but features are numbered from 0 to {n_columns - 1}.")
    return item


def points_of_table(X: Any, categorical: Collection[int], names: Sequence[Any] | None) -> Array:
    """Return a table as float64: codes in the categorical columns; elsewhere numbers, NaN where they are missing.

    Raises
    ------
    InvalidInputError
        If a value of a numeric column is not a number; the message names column, row and value.

    Examples
    --------
    >>> points_of_table(np.array([["FR", 3.5], ["DE", None]], dtype=object), [0], None).tolist()
    [[6257867736028357.0, 3.5], [7642310878166729.0, nan]]
    """
    return points_of_columns(columns_of(X), categorical, names)


def points_of_columns(columns: Sequence[Any], categorical: Collection[int], names: Sequence[Any] | None) -> Array:
    """Like `points_of_table` for a list of columns."""
    labels = range(len(columns)) if names is None else names
    pairs = enumerate(zip(columns, labels, strict=True))
    return np.column_stack(
        [codes_of(column) if j in categorical else numbers_of(column, name) for j, (column, name) in pairs]
    )


# -- one column -------------------------------------------------------------------------------------------------------


def is_categorical(column: Any) -> bool:
    """Return True for a column of text, booleans or a categorical type, or of objects with at least one such value."""
    if _has_categorical_type(column):
        return True
    array = _as_array(column)
    if array.dtype.kind == "O":
        return any(map(is_category, array))
    return array.dtype.kind in "bUST"


def is_category(value: Any) -> bool:
    """Return True if a value that is not missing is a category, not a number: text, a boolean or an enumeration."""
    return isinstance(value, (str, bool, np.bool_, Enum))


def first_value(column: Any) -> tuple[int, Any] | None:
    """Return the index of the first value that is not missing, and the value; None if everything is missing."""
    array = _as_array(column)
    if array.dtype.kind in "biuf":
        present = np.flatnonzero(~np.isnan(array))
        return (int(present[0]), array[present[0]]) if present.size else None
    return next(((i, value) for i, value in enumerate(array.tolist()) if not is_missing(value)), None)


def codes_of(column: Any) -> Array:
    """Return the code of each category in a column."""
    if _is_pandas_categorical(column):
        codes = np.append(codes_of(column.cat.categories), MISSING_CODE)
        return np.asarray(codes[column.cat.codes.to_numpy()])  # -1 is a missing value
    array = _as_array(column)
    is_exact = array.dtype.kind in "biu" or (array.dtype.kind == "f" and _has_float_type(column))
    return category_codes(array if is_exact else column_values(column))


def column_values(column: Any) -> list[Any]:
    """Return the values of a column as Python objects; integers keep all digits, even if other values are missing.

    As an array, a column of integers with missing values would be floats.
    """
    if _is_pandas_categorical(column):
        categories = [*column_values(column.cat.categories), None]  # the code -1 is a missing value
        return [categories[code] for code in column.cat.codes.tolist()]
    if isinstance(getattr(column, "dtype", None), np.dtype):
        array = _as_array(column)
        return list(array) if array.dtype.kind in "mM" else array.tolist()  # `tolist` converts nanoseconds to integers
    values: list[Any] = column.to_list() if hasattr(column, "to_list") else column.to_pylist()
    return values


def numbers_of(column: Any, name: Any) -> Array:
    """Return a column of numbers, with NaN where they are missing.

    Raises
    ------
    InvalidInputError
        If a value is not a number, even if it is text that looks like one.
    """
    array = _as_array(column)
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    if array.dtype.kind not in "OUST":
        raise InvalidInputError(f"The feature {name!r} must be numeric, but its type is {column.dtype}.")
    return np.array([_number(value, name, i) for i, value in enumerate(array.tolist())], np.float64)


def as_number_with_gap(value: Any, name: Any) -> float:
    """Return the value of one numeric feature; NaN if it is missing."""
    return value if type(value) is float else float("nan") if is_missing(value) else as_number(value, name)


def _number(value: Any, name: Any, row: int) -> float:
    try:
        return as_number_with_gap(value, name)
    except InvalidInputError:
        text = repr(value)[:_MAX_SHOWN_LENGTH]
        raise InvalidInputError(
            f"Row {row} of the feature {name!r} must be a number or missing, but is {text}."
        ) from None


def _is_pandas_categorical(column: Any) -> bool:
    return hasattr(column, "cat") and hasattr(column.cat, "codes")


def _has_float_type(column: Any) -> bool:
    return str(getattr(column, "dtype", "")).lower().startswith("float")


def _has_categorical_type(column: Any) -> bool:
    return str(getattr(column, "dtype", "")).lower().startswith(_CATEGORICAL_TYPES)


def _as_array(column: Any) -> Array:
    """Return a column as an array; masked values become missing ones."""
    if np.ma.isMaskedArray(column):
        return np.array(column.tolist(), dtype=object) if np.ma.is_masked(column) else column.data
    return np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)

"""Convert Arrow columns of features to points, on the workers, with codes for categories and NaN for gaps."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # missing in pyspark's stubs

from imondrian.base.categories import MISSING_CODE, category_codes, category_text, is_missing
from imondrian.base.errors import InvalidInputError
from imondrian.engine.finite import all_within_limit
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_VALUE
from imondrian.rows.missing_values import have_values
from imondrian.spark.point_columns import Features


def points_of(column: Any, features: Features) -> Array:
    """Return a column of features as a 2-d array: codes for categories, NaN for missing numbers.

    In a row whose array or vector does not have one value per feature, all values are missing.
    """
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not pa.types.is_struct(values.type):
        return _with_codes(_points_of_arrays(values, features.n_features or 0), features.categorical)
    columns = enumerate(values.flatten())
    return np.column_stack(
        [_codes(each) if j in features.categorical else _numbers(each, features.name(j)) for j, each in columns]
    )


def coded_column(column: Column, features: Features) -> Column:
    """Return a column of features as a column of arrays in which categories are codes."""
    if not features.categorical:
        return column

    def coded(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for each in columns:
            points = points_of(each, features)
            offsets = np.arange(0, points.size + 1, points.shape[1], dtype=np.int32)
            yield pa.ListArray.from_arrays(offsets, points.ravel())

    return arrow_udf(coded, "array<double>")(column)


def category_texts(column: Any, rows: Iterable[int], features: Features) -> list[dict[int, str]]:
    """Return the texts of the categories in some rows, by feature; missing categories are left out."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    value_at = _value_in_struct(values) if pa.types.is_struct(values.type) else _value_in_array(values)
    found = [{j: value_at(i, j) for j in features.categorical} for i in rows]
    return [{j: category_text(value) for j, value in row.items() if not is_missing(value)} for row in found]


def usable_rows(points: Array, categorical: tuple[int, ...], missing: str) -> Array:
    """Return a mask of the usable points.

    A usable point has at least one value, no value above MAX_VALUE in absolute value, and, if `missing` is "raise", no
    missing number.
    """
    if not categorical and all_within_limit(points.ravel()):
        return np.ones(len(points), np.bool_)
    is_usable = ~(np.abs(points) > MAX_VALUE).any(axis=1) & have_values(points, categorical)
    return is_usable & ~np.isnan(points).any(axis=1) if missing == "raise" else is_usable


def problem_with(point: Array, features: Features) -> str:
    """Describe what is wrong with an unusable point."""
    if not have_values(point[None], features.categorical)[0]:
        return f"all values of a row are missing, or it does not have {point.size} values"
    is_wrong = np.abs(point) > MAX_VALUE
    j = int(np.argmax(is_wrong if is_wrong.any() else np.isnan(point)))
    rule = f"values must be finite and at most {MAX_VALUE:g} in absolute value"
    return f"the feature {features.name(j)!r} of a row is {point[j]}; {rule}"


def check_usable(points: Array, is_usable: Array, features: Features, on_error: str) -> None:
    """Raise InvalidInputError if a point is unusable and on_error is "raise"."""
    if on_error == "raise" and not is_usable.all():
        raise InvalidInputError(f"Invalid input: {problem_with(points[~is_usable][0], features)}.")


# -- arrays of numbers ------------------------------------------------------------------------------------------------


def _points_of_arrays(lists: Any, n_features: int) -> Array:
    """Return arrays as points; a missing value becomes NaN, a row of the wrong length all NaN."""
    values = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    has_right_length = lengths == n_features
    if has_right_length.all():
        return np.require(values.reshape(-1, n_features), requirements=["C", "A", "W"])
    points = np.full((len(lists), n_features), np.nan)
    points[has_right_length] = values[np.repeat(has_right_length, lengths)].reshape(-1, n_features)
    return points


def _with_codes(points: Array, categorical: tuple[int, ...]) -> Array:
    for j in categorical:
        points[:, j] = _codes_of_numbers(points[:, j])
    return points


def _value_in_array(lists: Any) -> Callable[[int, int], Any]:
    return lambda i, j: lists[i][j].as_py()


# -- columns of a struct ----------------------------------------------------------------------------------------------


def _numbers(column: Any, name: str) -> Array:
    """Return a column of numbers as float64; a missing value becomes NaN."""
    if _is_text(column.type):
        raise InvalidInputError(f"The feature {name!r} is a number in the model, but text in the frame.")
    if pa.types.is_decimal(column.type):
        return _decoded(
            column, lambda values: [float(value) for value in values.to_pylist()], np.nan
        )  # rounded as in Spark
    numbers: Array = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def _codes(column: Any) -> Array:
    """Return the codes of a column of categories; each distinct value is hashed once."""
    return _decoded(column, _codes_of_distinct, MISSING_CODE)


def _codes_of_distinct(values: Any) -> Array:
    if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
        return _codes_of_numbers(values.to_numpy(zero_copy_only=False))
    return category_codes(values.to_pylist())


def _codes_of_numbers(values: Array) -> Array:
    """Return the codes of numbers; infinity, which is not a category, stays as it is and makes the row unusable."""
    codes, is_category = values.astype(np.float64), ~np.isinf(values)
    codes[is_category] = category_codes(values[is_category])
    return codes


def _decoded(column: Any, convert: Callable[[Any], Any], missing: float) -> Array:
    """Convert each distinct value of a column once; null becomes `missing`."""
    encoded = column.dictionary_encode()
    converted = np.append(np.asarray(convert(encoded.dictionary), np.float64), missing)
    return np.asarray(converted[encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)])


def _value_in_struct(values: Any) -> Callable[[int, int], Any]:
    columns = values.flatten()
    return lambda i, j: columns[j][i].as_py()


def _is_text(data_type: Any) -> bool:
    return pa.types.is_string(data_type) or pa.types.is_large_string(data_type)

"""Points from the columns of a Spark frame: select and check the features, send them to Python, and read them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, NumericType

from imondrian.engine.finite import all_within_limit
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_SIZE
from imondrian.errors import InvalidInputError

POINT = "imondrian_point"  # name of the array column that is sent to Python


class Features(NamedTuple):
    """The features of a frame: columns of numbers, or the values of one column of arrays or vectors."""

    names: list[str] | None  # None if one column holds them all
    n_features: int | None  # None if known only from the rows

    def name(self, j: int) -> str:
        """Return the name of feature j, or its number if it has none."""
        return str(j) if self.names is None else self.names[j]


def features_of(df: DataFrame, features: str | Sequence[str]) -> tuple[Column, Features]:
    """Return the features of a frame as an array column, with their description; raise InvalidInputError if invalid."""
    if isinstance(features, str):
        data_type = df.schema[checked_names(df, [features])[0]].dataType
        if isinstance(data_type, VectorUDT):
            return vector_to_array(column_named(features)), Features(None, None)
        if isinstance(data_type, ArrayType) and _is_number(data_type.elementType):
            return column_named(features).cast("array<double>"), Features(None, None)
        features = [features]
    names = checked_names(df, features)
    for name in names:
        if not _is_number(df.schema[name].dataType):
            found = df.schema[name].dataType.simpleString()
            raise InvalidInputError(f"The feature {name!r} must be a column of numbers, but its type is {found}.")
    return F.array(*(column_named(name).cast("double") for name in names)), Features(names, len(names))


def with_feature_count(df: DataFrame, column: Column, features: Features) -> Features:
    """Return the features with their number; for an array or vector column, the most frequent length of its values."""
    if features.n_features is not None:
        return features
    sizes = df.select(F.size(column).alias("size")).where("size > 0").groupBy("size").count()
    most_frequent = sizes.orderBy(F.desc("count"), F.desc("size")).first()
    if most_frequent is None:
        raise InvalidInputError("The frame has no usable rows.")
    return features._replace(n_features=most_frequent["size"])


def checked_names(df: DataFrame, names: str | Sequence[str]) -> list[str]:
    """Return the names as a list; raise InvalidInputError unless each is a unique column of the frame."""
    names = [names] if isinstance(names, str) else list(names)
    if not names:
        raise InvalidInputError("At least one column must be named.")
    for name in names:
        if df.columns.count(name) != 1:
            many = "more than one" if name in df.columns else "no"
            raise InvalidInputError(f"The frame has {many} column {name!r}: its columns are {df.columns}.")
        if names.count(name) > 1:
            raise InvalidInputError(f"The column {name!r} is listed twice.")
    return names


def check_new_names(df: DataFrame, names: Iterable[str]) -> None:
    """Raise InvalidInputError unless the names are new in the frame and differ, ignoring case like Spark."""
    present = {name.lower() for name in df.columns}
    for name in names:
        if name.lower() in present:
            raise InvalidInputError(
                f"The result column {name!r} has the name of another column (case is ignored): choose another name."
            )
        present.add(name.lower())


def column_named(name: str) -> Column:
    """Return a column by its name, which may contain dots."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """Return a name in backticks, so that Spark does not interpret its dots."""
    return f"`{name.replace('`', '``')}`"


def check_choice(value: Any, name: str, choices: Sequence[Any]) -> None:
    """Raise InvalidInputError if the value is not one of the choices."""
    if value not in choices:
        raise InvalidInputError(f"{name} must be one of {', '.join(map(repr, choices))}, but is {value!r}.")


def points_of(column: Any, n_features: int) -> Array:
    """Return an array column as a 2-d array; a missing value becomes NaN, a row of the wrong length all NaN."""
    lists = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    has_right_length = lengths == n_features
    if has_right_length.all():
        return np.require(values.reshape(-1, n_features), requirements=["C", "A", "W"])
    points = np.full((len(lists), n_features), np.nan)
    points[has_right_length] = values[np.repeat(has_right_length, lengths)].reshape(-1, n_features)
    return points


def usable_rows(points: Array) -> Array:
    """Return a mask of the usable points: all values finite and within MAX_SIZE."""
    if all_within_limit(points.ravel()):
        return np.ones(len(points), np.bool_)
    return np.logical_and.reduce(np.abs(points) <= MAX_SIZE, axis=1)


def problem_with(point: Array, features: Features) -> str:
    """Describe what is wrong with an unusable point."""
    if np.isnan(point).all():
        return f"all values of a row are missing, or it does not have {point.size} values"
    j = int(np.flatnonzero(~(np.abs(point) <= MAX_SIZE))[0])
    rule = f"values must be finite and at most {MAX_SIZE:g} in absolute value"
    return f"the feature {features.name(j)!r} of a row is {point[j]}; {rule}"


def check_usable(points: Array, is_usable: Array, features: Features, on_error: str) -> None:
    """Raise InvalidInputError if a point is unusable and on_error is "raise"."""
    if on_error == "raise" and not is_usable.all():
        raise InvalidInputError(f"Invalid input: {problem_with(points[~is_usable][0], features)}.")


def check_feature_count(features: Features, n_features: int | None) -> None:
    """Raise InvalidInputError if the number of named columns is not the number of features of the model."""
    if features.n_features not in (None, n_features):
        raise InvalidInputError(f"The model has {n_features} features, but {features.n_features} columns are listed.")


def _is_number(data_type: DataType) -> bool:
    return isinstance(data_type, (NumericType, BooleanType))

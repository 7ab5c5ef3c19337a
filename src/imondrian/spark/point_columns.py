"""Columns of a Spark frame that hold the features: select and check them, and send them to Python.

Numbers are sent as one array column. If a feature is a category, all features are sent as one struct, in which
categories keep their type, so that `arrow_points` can compute their codes.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, DoubleType, FloatType, NumericType, StringType

from imondrian.base.errors import InvalidInputError
from imondrian.rows.mixed_tables import column_indices

POINT = "imondrian_point"  # name of the column that is sent to Python
_FIELD = "feature_{}"  # names in the struct
_NAN = float("nan")


class Features(NamedTuple):
    """The features of a frame: columns of numbers and categories, or the values of one column of arrays or vectors."""

    names: list[str] | None  # None if one column holds them all
    n_features: int | None  # None if known only from the rows
    categorical: tuple[int, ...] = ()  # indices of the features that are categories

    def name(self, j: int) -> str:
        """Return the name of feature j, or its number if it has none."""
        return str(j) if self.names is None else self.names[j]


def features_to_learn(df: DataFrame, features: str | Sequence[str], categorical: Any) -> tuple[Column, Features]:
    """Return the features of a frame as one column, with their description; raise InvalidInputError if invalid.

    Columns of text and booleans are categories, as are those that `categorical` lists. If one column holds all
    features as arrays or vectors, `with_feature_count` adds the categories later. A missing number is always NaN, never
    null, so that Spark groups equal rows.
    """
    column = _column_of_arrays(df, features)
    if column is not None:
        return _nulls_as_nan(df, str(features), column), Features(None, None)
    names = checked_names(df, features)
    listed = column_indices(categorical, len(names), names)
    chosen = tuple(j for j, name in enumerate(names) if j in listed or _is_text_or_boolean(_type_of(df, name)))
    for j, name in enumerate(names):
        _check_type(df, name, "numbers, text or booleans", is_category=j in chosen)
    columns = [
        _category_column(df, name) if j in chosen else F.coalesce(_number_column(name), F.lit(_NAN))
        for j, name in enumerate(names)
    ]
    return _point_column(columns, chosen), Features(names, len(names), chosen)


def features_of_model(
    df: DataFrame, features: str | Sequence[str], categorical: Collection[int]
) -> tuple[Column, Features]:
    """Like `features_to_learn`, for a model in which the features with the indices `categorical` are categories."""
    column, chosen = _column_of_arrays(df, features), tuple(categorical)
    if column is not None:
        return column, Features(None, None, chosen)
    names = checked_names(df, features)
    for j, name in enumerate(names):
        allowed = "numbers, text or booleans" if j in chosen else "numbers"
        _check_type(df, name, allowed, is_category=j in chosen)
    columns = [_category_column(df, name) if j in chosen else _number_column(name) for j, name in enumerate(names)]
    return _point_column(columns, chosen), Features(names, len(names), chosen)


def features_of_unknown_models(df: DataFrame, features: str | Sequence[str]) -> tuple[Column, Features]:
    """Like `features_of_model`, for models that only the workers know: all columns keep their types."""
    column = _column_of_arrays(df, features)
    if column is not None:
        return column, Features(None, None)
    names = checked_names(df, features)
    for name in names:
        _check_type(df, name, "numbers, text or booleans", is_category=True)
    return _struct_of([_category_column(df, name) for name in names]), Features(names, len(names))


def with_feature_count(df: DataFrame, column: Column, features: Features, categorical: Any) -> Features:
    """Return the features with their number; for an array or vector column, the most frequent length of its values."""
    if features.n_features is not None:
        return features
    sizes = df.select(F.size(column).alias("size")).where("size > 0").groupBy("size").count()
    most_frequent = sizes.orderBy(F.desc("count"), F.desc("size")).first()
    if most_frequent is None:
        raise InvalidInputError("The frame has no usable rows.")
    return with_known_count(features, most_frequent["size"], categorical)


def with_known_count(features: Features, n_features: int, categorical: Any) -> Features:
    """Return the features of an array or vector column with their number, and the categories in `categorical`."""
    chosen = tuple(column_indices(categorical, n_features, None))
    return features._replace(n_features=n_features, categorical=chosen)


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


def check_feature_count(features: Features, n_features: int | None) -> None:
    """Raise InvalidInputError if the number of named columns is not the number of features of the model."""
    if features.n_features not in (None, n_features):
        raise InvalidInputError(f"The model has {n_features} features, but {features.n_features} columns are listed.")


# -- one column -------------------------------------------------------------------------------------------------------


def _type_of(df: DataFrame, name: str) -> DataType:
    return df.schema[name].dataType


def _is_number_or_boolean(data_type: DataType) -> bool:
    return isinstance(data_type, (NumericType, BooleanType))


def _is_text_or_boolean(data_type: DataType) -> bool:
    return isinstance(data_type, (StringType, BooleanType))


def _check_type(df: DataFrame, name: str, allowed: str, *, is_category: bool) -> None:
    """Raise InvalidInputError unless a column has numbers or booleans or, if it is a category, text."""
    data_type = _type_of(df, name)
    if not (_is_number_or_boolean(data_type) or (is_category and isinstance(data_type, StringType))):
        found = data_type.simpleString()
        raise InvalidInputError(f"The feature {name!r} must be a column of {allowed}, but its type is {found}.")


def _column_of_arrays(df: DataFrame, features: str | Sequence[str]) -> Column | None:
    """Return the column of arrays or vectors that holds all features, as arrays; None if they are separate columns."""
    if not isinstance(features, str):
        return None
    data_type = _type_of(df, checked_names(df, [features])[0])
    if isinstance(data_type, VectorUDT):
        return vector_to_array(column_named(features))
    if isinstance(data_type, ArrayType) and _is_number_or_boolean(data_type.elementType):
        return column_named(features).cast("array<double>")
    return None


def _nulls_as_nan(df: DataFrame, name: str, column: Column) -> Column:
    """Return a column of arrays with NaN instead of null inside them."""
    data_type = _type_of(df, name)
    has_nulls = isinstance(data_type, ArrayType) and data_type.containsNull
    return F.transform(column, lambda value: F.coalesce(value, F.lit(_NAN))) if has_nulls else column


def _number_column(name: str) -> Column:
    return column_named(name).cast("double")


def _category_column(df: DataFrame, name: str) -> Column:
    """Return a column of categories in which missing values are null and text is compared by its bytes."""
    column, data_type = column_named(name), _type_of(df, name)
    if isinstance(data_type, StringType):
        return column.cast("string")  # without a collation
    return F.when(~F.isnan(column), column) if isinstance(data_type, (FloatType, DoubleType)) else column


def _point_column(columns: list[Column], categorical: Collection[int]) -> Column:
    return _struct_of(columns) if categorical else F.array(*columns)


def _struct_of(columns: list[Column]) -> Column:
    return F.struct(*(column.alias(_FIELD.format(j)) for j, column in enumerate(columns)))

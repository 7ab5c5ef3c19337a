"""Columns on their way through Python: under plain names, and as text where pandas would alter what they hold.

Spark's calls for groups do not take names with dots or backticks. In pandas a whole number beside a missing one becomes
a float, which loses digits; NaN is the same as nothing; times end in the year 2262; there are no vectors and no months.
What lies inside of arrays, maps and structs travels as it is: there, NaN comes back as null.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    DoubleType,
    FractionalType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from imondrian.spark.feature_columns import column_named

_PLACE = "imondrian_{}"
_AS_TEXT = (
    IntegralType,
    FractionalType,
    TimestampType,
    TimestampNTZType,
    DayTimeIntervalType,
    YearMonthIntervalType,
)
Carried = Callable[[Column, DataType], Column]


def transfer_name(schema: StructType, name: str) -> str:
    """Give the name under which a column travels."""
    return _PLACE.format(schema.names.index(name))


def arrow_columns(schema: StructType) -> list[Column]:
    """Give the columns as they travel in Arrow."""
    return _departing(schema, lambda column, _kind: column)


def arrow_fields(schema: StructType) -> list[StructField]:
    """Give the fields as they travel in Arrow."""
    return [StructField(_PLACE.format(i), field.dataType) for i, field in enumerate(schema.fields)]


def from_arrow(schema: StructType) -> list[Column]:
    """Give the columns that have travelled in Arrow as they were."""
    return _arriving(schema, lambda column, _kind: column)


def in_utc(table: Any) -> Any:
    """Give an Arrow table whose times are said to be of UTC, which they are: Spark takes no others back."""
    fields = [pa.field(field.name, _in_utc(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def pandas_columns(schema: StructType) -> list[Column]:
    """Give the columns as they travel in pandas."""
    return _departing(schema, _sent)


def pandas_fields(schema: StructType) -> list[StructField]:
    """Give the fields as they travel in pandas."""
    return [StructField(field.name, _sent_type(field.dataType)) for field in arrow_fields(schema)]


def from_pandas(schema: StructType) -> list[Column]:
    """Give the columns that have travelled in pandas as they were; a vector is dense afterwards."""
    return _arriving(schema, _received)


def _departing(schema: StructType, carried: Carried) -> list[Column]:
    fields = enumerate(schema.fields)
    return [carried(column_named(field.name), field.dataType).alias(_PLACE.format(i)) for i, field in fields]


def _arriving(schema: StructType, carried: Carried) -> list[Column]:
    return [
        carried(column_named(_PLACE.format(i)), field.dataType).alias(field.name, metadata=field.metadata)
        for i, field in enumerate(schema.fields)
    ]


def _sent_type(kind: DataType) -> DataType:
    if isinstance(kind, VectorUDT):
        return ArrayType(DoubleType())
    return StringType() if isinstance(kind, _AS_TEXT) else kind


def _sent(column: Column, kind: DataType) -> Column:
    if isinstance(kind, VectorUDT):
        return F.when(column.isNotNull(), vector_to_array(column))
    if isinstance(kind, TimestampType):
        return F.unix_micros(column).cast("string")
    return column.cast("string") if isinstance(kind, _AS_TEXT) else column


def _received(column: Column, kind: DataType) -> Column:
    if isinstance(kind, VectorUDT):
        return F.when(column.isNotNull(), array_to_vector(column))
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(column.cast("long"))
    return column.cast(kind) if isinstance(kind, _AS_TEXT) else column


def _in_utc(kind: Any) -> Any:
    """Give an Arrow type with all times in UTC."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_map(kind):
        return pa.map_(_in_utc(kind.key_type), _in_utc(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_in_utc(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _in_utc(field.type), field.nullable, field.metadata) for field in kind])
    return kind

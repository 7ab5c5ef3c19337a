"""Transfer of columns through Python: under simple names, and as text where pandas would change the values.

Spark's functions for groups do not accept names with dots or backticks. In pandas, an integer beside a missing value
becomes a float and loses digits; NaN equals null; times end in the year 2262; there are no vectors or month intervals.
Values inside arrays, maps and structs are not converted: there, NaN becomes null.
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

from imondrian.spark.point_columns import column_named

_TRANSFER_NAME = "imondrian_{}"
_AS_TEXT = (
    IntegralType,
    FractionalType,
    TimestampType,
    TimestampNTZType,
    DayTimeIntervalType,
    YearMonthIntervalType,
)
Convert = Callable[[Column, DataType], Column]


def transfer_name(schema: StructType, name: str) -> str:
    """Return the name of a column during the transfer."""
    return _TRANSFER_NAME.format(schema.names.index(name))


def arrow_columns(schema: StructType) -> list[Column]:
    """Return the columns for the transfer in Arrow."""
    return _to_transfer(schema, lambda column, _data_type: column)


def arrow_fields(schema: StructType) -> list[StructField]:
    """Return the fields for the transfer in Arrow."""
    return [StructField(_TRANSFER_NAME.format(i), field.dataType) for i, field in enumerate(schema.fields)]


def from_arrow(schema: StructType) -> list[Column]:
    """Return the original columns after a transfer in Arrow."""
    return _from_transfer(schema, lambda column, _data_type: column)


def in_utc(table: Any) -> Any:
    """Return an Arrow table in which all time zones are UTC, as Spark requires; instants are unchanged."""
    fields = [pa.field(field.name, _in_utc(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def pandas_columns(schema: StructType) -> list[Column]:
    """Return the columns for the transfer in pandas."""
    return _to_transfer(schema, _to_pandas)


def pandas_fields(schema: StructType) -> list[StructField]:
    """Return the fields for the transfer in pandas."""
    return [StructField(field.name, _pandas_type(field.dataType)) for field in arrow_fields(schema)]


def from_pandas(schema: StructType) -> list[Column]:
    """Return the original columns after a transfer in pandas; vectors become dense."""
    return _from_transfer(schema, _from_pandas)


def _to_transfer(schema: StructType, convert: Convert) -> list[Column]:
    fields = enumerate(schema.fields)
    return [convert(column_named(field.name), field.dataType).alias(_TRANSFER_NAME.format(i)) for i, field in fields]


def _from_transfer(schema: StructType, convert: Convert) -> list[Column]:
    return [
        convert(column_named(_TRANSFER_NAME.format(i)), field.dataType).alias(field.name, metadata=field.metadata)
        for i, field in enumerate(schema.fields)
    ]


def _pandas_type(data_type: DataType) -> DataType:
    if isinstance(data_type, VectorUDT):
        return ArrayType(DoubleType())
    return StringType() if isinstance(data_type, _AS_TEXT) else data_type


def _to_pandas(column: Column, data_type: DataType) -> Column:
    if isinstance(data_type, VectorUDT):
        return F.when(column.isNotNull(), vector_to_array(column))
    if isinstance(data_type, TimestampType):
        return F.unix_micros(column).cast("string")
    return column.cast("string") if isinstance(data_type, _AS_TEXT) else column


def _from_pandas(column: Column, data_type: DataType) -> Column:
    if isinstance(data_type, VectorUDT):
        return F.when(column.isNotNull(), array_to_vector(column))
    if isinstance(data_type, TimestampType):
        return F.timestamp_micros(column.cast("long"))
    return column.cast(data_type) if isinstance(data_type, _AS_TEXT) else column


def _in_utc(data_type: Any) -> Any:
    """Return an Arrow type in which all time zones are UTC."""
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        return pa.timestamp(data_type.unit, "UTC")
    if pa.types.is_map(data_type):
        return pa.map_(_in_utc(data_type.key_type), _in_utc(data_type.item_type))
    if pa.types.is_list(data_type):
        return pa.list_(_in_utc(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct(
            [pa.field(field.name, _in_utc(field.type), field.nullable, field.metadata) for field in data_type]
        )
    return data_type

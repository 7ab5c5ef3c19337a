"""Columns on their way through Python: under plain names, and as text where pandas would alter what they hold.

Spark's calls for groups do not take names with dots or backticks. In pandas a whole number beside a missing one becomes
a float, which loses digits, and times end in the year 2262.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegralType, StringType, StructField, StructType, TimestampType

from imondrian.spark.columns import quoted

_PLACE = "imondrian_{}"
Carried = Callable[[Column, DataType], Column]


def place_of(schema: StructType, name: str) -> str:
    """Give the name under which a column travels."""
    return _PLACE.format(schema.names.index(name))


def renamed(schema: StructType) -> list[Column]:
    """Give the columns as they travel in Arrow."""
    return _each(schema, schema.names, _numbers(schema), lambda column, _kind: column)


def renamed_fields(schema: StructType) -> list[StructField]:
    """Give the fields as they travel in Arrow."""
    return [StructField(_PLACE.format(i), field.dataType) for i, field in enumerate(schema.fields)]


def named_back(schema: StructType) -> list[Column]:
    """Give the columns that have travelled in Arrow as they were."""
    return _each(schema, _numbers(schema), schema.names, lambda column, _kind: column)


def portable(schema: StructType) -> list[Column]:
    """Give the columns as they travel in pandas."""
    return _each(schema, schema.names, _numbers(schema), _sent)


def portable_fields(schema: StructType) -> list[StructField]:
    """Give the fields as they travel in pandas."""
    fields = renamed_fields(schema)
    return [StructField(field.name, StringType()) if _is_altered(field.dataType) else field for field in fields]


def restored(schema: StructType) -> list[Column]:
    """Give the columns that have travelled in pandas as they were."""
    return _each(schema, _numbers(schema), schema.names, _received)


def _numbers(schema: StructType) -> list[str]:
    return [_PLACE.format(i) for i in range(len(schema.fields))]


def _each(schema: StructType, names: list[str], new_names: list[str], carried: Carried) -> list[Column]:
    fields = zip(names, new_names, schema.fields, strict=True)
    return [carried(quoted(name), field.dataType).alias(new_name) for name, new_name, field in fields]


def _is_altered(kind: DataType) -> bool:
    return isinstance(kind, (IntegralType, TimestampType))


def _sent(column: Column, kind: DataType) -> Column:
    number = F.unix_micros(column) if isinstance(kind, TimestampType) else column
    return number.cast("string") if _is_altered(kind) else column


def _received(column: Column, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(column.cast("long"))
    return column.cast(kind) if _is_altered(kind) else column

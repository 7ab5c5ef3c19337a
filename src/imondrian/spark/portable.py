"""Columns on their way through pandas: what pandas would alter travels as text, and is itself again afterwards.

A whole number beside a missing one becomes a float in pandas, which loses digits; and its times end in the year 2262.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegralType, StringType, StructField, StructType, TimestampType

from imondrian.spark.columns import quoted


def portable(schema: StructType) -> list[Column]:
    """Give the columns as they travel."""
    return [_sent(field.name, field.dataType).alias(field.name) for field in schema.fields]


def portable_fields(schema: StructType) -> list[StructField]:
    """Give the fields as they travel."""
    return [
        StructField(field.name, StringType() if _is_altered(field.dataType) else field.dataType)
        for field in schema.fields
    ]


def restored(schema: StructType) -> list[Column]:
    """Give the columns as they were."""
    return [_received(field.name, field.dataType).alias(field.name) for field in schema.fields]


def _is_altered(kind: DataType) -> bool:
    return isinstance(kind, (IntegralType, TimestampType))


def _sent(name: str, kind: DataType) -> Column:
    column = F.unix_micros(quoted(name)) if isinstance(kind, TimestampType) else quoted(name)
    return column.cast("string") if _is_altered(kind) else column


def _received(name: str, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(quoted(name).cast("long"))
    return quoted(name).cast(kind) if _is_altered(kind) else quoted(name)

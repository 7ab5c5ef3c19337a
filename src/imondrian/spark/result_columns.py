"""Result columns, computed on the workers from Arrow columns of points: score, label and explanation."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, DataType, DoubleType, MapType, StringType, StructField, StructType

from imondrian.column_names import EXPLANATION
from imondrian.engine.jit import Array
from imondrian.fitted_model import FittedModel
from imondrian.option_types import ON_ERROR
from imondrian.spark.point_columns import Features, check_choice, check_new_names, check_usable, points_of, usable_rows


class ResultColumns(NamedTuple):
    """The names of the result columns to add, and what to do about unusable rows."""

    score: str
    label: str | None = None
    explanation: str | None = None
    on_error: str = "raise"

    def types(self) -> dict[str, tuple[DataType, Any]]:
        """Return the result columns with their types for Spark and for Arrow."""
        types = {
            self.score: (DoubleType(), pa.float64()),
            self.label: (BooleanType(), pa.bool_()),
            self.explanation: (MapType(StringType(), DoubleType()), pa.map_(pa.string(), pa.float64())),
        }
        return {name: data_type for name, data_type in types.items() if name is not None}

    def names(self) -> list[str]:
        """Return the names of the result columns."""
        return list(self.types())

    def schema(self) -> StructType:
        """Return the result columns as a Spark schema."""
        return StructType([StructField(name, data_type) for name, (data_type, _) in self.types().items()])


def new_result_columns(
    df: DataFrame,
    output: str,
    label: str | None,
    explain: bool | str,  # noqa: FBT001
    on_error: str,
) -> ResultColumns:
    """Return the result columns to add to a frame, after checking the names and `on_error`."""
    check_choice(on_error, "on_error", ON_ERROR)
    outputs = ResultColumns(output, label, EXPLANATION if explain is True else explain or None, on_error)
    check_new_names(df, [name for name in (outputs.score, outputs.label, outputs.explanation) if name is not None])
    return outputs


def scored_columns(column: Any, model: FittedModel, features: Features, outputs: ResultColumns) -> list[Any]:
    """Score a column of points and return the result columns; an unusable row gets null in all of them."""
    points = points_of(column, model.forest.n_features or 0)
    is_usable = usable_rows(points)
    check_usable(points, is_usable, features, outputs.on_error)
    scores = np.full(len(points), np.nan)
    if is_usable.any():
        scores[is_usable] = model.score(points[is_usable])
    columns = [pa.array(scores, mask=~is_usable)]
    if outputs.label is not None:
        columns.append(pa.array(scores > model.threshold, mask=~is_usable))
    if outputs.explanation is not None:
        columns.append(_explanations(points, is_usable, model, features))
    return columns


def null_columns(n_rows: int, outputs: ResultColumns) -> list[Any]:
    """Return the result columns filled with null."""
    return [pa.nulls(n_rows, data_type) for _, data_type in outputs.types().values()]


def _explanations(points: Array, is_usable: Array, model: FittedModel, features: Features) -> Any:
    """Return the explanations as maps from feature names to parts of the score."""
    n_usable, n_features = int(is_usable.sum()), points.shape[1]
    names = [features.name(j) for j in range(n_features)]
    values = model.explain(points[is_usable]).ravel() if n_usable else np.empty(0)
    offsets = np.concatenate([[0], np.cumsum(np.where(is_usable, n_features, 0))]).astype(np.int32)
    keys = pa.array(names * n_usable, pa.string())
    return pa.MapArray.from_arrays(pa.array(offsets, mask=np.append(~is_usable, False)), keys, pa.array(values))

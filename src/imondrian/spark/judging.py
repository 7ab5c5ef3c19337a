"""Scores of Arrow columns of points: what runs on the workers."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, DataType, DoubleType, MapType, StringType, StructField, StructType

from imondrian.engine.jit import Array
from imondrian.fitted_model import FittedModel
from imondrian.option_types import ON_ERROR
from imondrian.spark.columns import (
    EXPLANATION,
    Features,
    check_choice,
    check_free,
    check_usable,
    points_of,
    usable_rows,
)


class Wanted(NamedTuple):
    """What is asked for: the names of the columns that come in addition, and what to do about bad rows."""

    score: str
    label: str | None = None
    parts: str | None = None
    on_error: str = "raise"

    def kinds(self) -> dict[str, tuple[DataType, Any]]:
        """Give the columns that come in addition, with their types for Spark and for Arrow."""
        kinds = {
            self.score: (DoubleType(), pa.float64()),
            self.label: (BooleanType(), pa.bool_()),
            self.parts: (MapType(StringType(), DoubleType()), pa.map_(pa.string(), pa.float64())),
        }
        return {name: kind for name, kind in kinds.items() if name is not None}

    def names(self) -> list[str]:
        """Give their names."""
        return list(self.kinds())

    def schema(self) -> StructType:
        """Give them as one."""
        return StructType([StructField(name, kind) for name, (kind, _) in self.kinds().items()])


def wanted_in(df: DataFrame, output: str, label: str | None, explain: bool | str, on_error: str) -> Wanted:  # noqa: FBT001
    """Check what is asked for beside the columns of a frame."""
    check_choice(on_error, "on_error", ON_ERROR)
    wanted = Wanted(output, label, EXPLANATION if explain is True else explain or None, on_error)
    check_free(df, [name for name in (wanted.score, wanted.label, wanted.parts) if name is not None])
    return wanted


def judged(column: Any, model: FittedModel, features: Features, wanted: Wanted) -> list[Any]:
    """Score a column of points, and give the columns that are wanted; a row that cannot be used has nulls in all."""
    points = points_of(column, model.forest.n_features or 0)
    is_usable = usable_rows(points)
    check_usable(points, is_usable, features, wanted.on_error)
    scores = np.full(len(points), np.nan)
    if is_usable.any():
        scores[is_usable] = model.score(points[is_usable])
    columns = [pa.array(scores, mask=~is_usable)]
    if wanted.label is not None:
        columns.append(pa.array(scores > model.threshold, mask=~is_usable))
    if wanted.parts is not None:
        columns.append(_maps(points, is_usable, model, features))
    return columns


def no_judgement(n_rows: int, wanted: Wanted) -> list[Any]:
    """Give nulls in all columns that are wanted."""
    return [pa.nulls(n_rows, kind) for _, kind in wanted.kinds().values()]


def _maps(points: Array, is_usable: Array, model: FittedModel, features: Features) -> Any:
    """Divide scores among the features, as maps from their names."""
    n_usable, n_features = int(is_usable.sum()), points.shape[1]
    names = [features.name(j) for j in range(n_features)]
    values = model.explain(points[is_usable]).ravel() if n_usable else np.empty(0)
    offsets = np.concatenate([[0], np.cumsum(np.where(is_usable, n_features, 0))]).astype(np.int32)
    keys = pa.array(names * n_usable, pa.string())
    return pa.MapArray.from_arrays(pa.array(offsets, mask=np.append(~is_usable, False)), keys, pa.array(values))

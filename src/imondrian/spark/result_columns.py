"""Compute result columns (score, surprise, label, explanations) on the workers, from Arrow columns of features."""

from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, DataType, DoubleType, MapType, StringType, StructField, StructType

from imondrian.base.column_names import EXPLANATION, EXPLANATION_TEXT
from imondrian.base.option_types import ON_ERROR
from imondrian.engine.jit import Array
from imondrian.models.explanations import Expectations, reasons_of_rows
from imondrian.models.fitted_model import FittedModel
from imondrian.spark.arrow_points import category_texts, check_usable, points_of, usable_rows
from imondrian.spark.point_columns import Features, check_choice, check_new_names


class ResultColumns(NamedTuple):
    """The names of the result columns to add, and what to do about unusable rows."""

    score: str
    surprise: str | None = None
    label: str | None = None
    explanation: str | None = None
    explanation_text: str | None = None
    on_error: str = "raise"

    @classmethod
    def named(
        cls,
        output: str,
        surprise: str | None,
        label: str | None,
        explain: bool | str,  # noqa: FBT001
        explain_text: bool | str,  # noqa: FBT001
        on_error: str,
    ) -> Self:
        """Return the result columns for the arguments of `score`."""
        explanation, text = _name_or_none(explain, EXPLANATION), _name_or_none(explain_text, EXPLANATION_TEXT)
        return cls(output, surprise or None, label, explanation, text, on_error)

    def types(self) -> dict[str, tuple[DataType, Any]]:
        """Return the result columns with their types for Spark and for Arrow."""
        types = {
            self.score: (DoubleType(), pa.float64()),
            self.surprise: (DoubleType(), pa.float64()),
            self.label: (BooleanType(), pa.bool_()),
            self.explanation: (MapType(StringType(), DoubleType()), pa.map_(pa.string(), pa.float64())),
            self.explanation_text: (StringType(), pa.string()),
        }
        return {name: data_type for name, data_type in types.items() if name is not None}

    def names(self) -> list[str]:
        """Return the names of the result columns."""
        return list(self.types())

    def schema(self) -> StructType:
        """Return the result columns as a Spark schema."""
        return StructType([StructField(name, data_type) for name, (data_type, _) in self.types().items()])


def check_result_columns(df: DataFrame, outputs: ResultColumns) -> None:
    """Raise InvalidInputError if result columns cannot be added to a frame, or if `on_error` is unknown."""
    check_choice(outputs.on_error, "on_error", ON_ERROR)
    names = (outputs.score, outputs.surprise, outputs.label, outputs.explanation, outputs.explanation_text)
    check_new_names(df, [name for name in names if name is not None])


def _name_or_none(wanted: bool | str, default: str) -> str | None:  # noqa: FBT001
    return default if wanted is True else wanted or None


def null_columns(n_rows: int, outputs: ResultColumns) -> list[Any]:
    """Return the result columns filled with null."""
    return [pa.nulls(n_rows, data_type) for _, data_type in outputs.types().values()]


class RowScorer:
    """Computes the result columns of one model.

    Parameters
    ----------
    model : FittedModel
        The model.
    features : Features
        The features of the frame; the model determines which of them are categories.
    outputs : ResultColumns
        The columns to compute.
    """

    def __init__(self, model: FittedModel, features: Features, outputs: ResultColumns) -> None:
        self._model = model
        self._features = features._replace(n_features=model.n_features, categorical=model.categorical)
        self._outputs = outputs
        self._expectations = Expectations(model.forest, indicators=model.indicators)

    def columns(self, column: Any) -> list[Any]:
        """Score a column of features and return the result columns; an unusable row gets null in all of them."""
        model, outputs, points = self._model, self._outputs, points_of(column, self._features)
        is_usable = usable_rows(points, model.categorical, model.missing)
        check_usable(points, is_usable, self._features, outputs.on_error)
        scores = np.full(len(points), np.nan)
        if is_usable.any():
            scores[is_usable] = model.score(points[is_usable])
        columns = [pa.array(scores, mask=~is_usable)]
        if outputs.surprise is not None:
            columns.append(pa.array(model.surprise(scores), mask=~is_usable))
        if outputs.label is not None:
            columns.append(pa.array(scores > model.threshold, mask=~is_usable))
        if outputs.explanation is not None:
            columns.append(self._explanations(points, is_usable))
        if outputs.explanation_text is not None:
            columns.append(self._explanation_texts(column, points, np.flatnonzero(scores > model.threshold)))
        return columns

    def _explanations(self, points: Array, is_usable: Array) -> Any:
        """Return the explanations as maps from feature names to parts of the score."""
        n_usable, n_features = int(is_usable.sum()), points.shape[1]
        values = self._model.explain(points[is_usable]).ravel() if n_usable else np.empty(0)
        offsets = np.concatenate([[0], np.cumsum(np.where(is_usable, n_features, 0))]).astype(np.int32)
        keys = pa.array(self._names() * n_usable, pa.string())
        return pa.MapArray.from_arrays(pa.array(offsets, mask=np.append(~is_usable, False)), keys, pa.array(values))

    def _explanation_texts(self, column: Any, points: Array, anomalies: Array) -> Any:
        """Return the explanations of the anomalies in words, null for other rows."""
        explained: list[str | None] = [None] * len(points)
        chosen = points[anomalies]
        reasons = reasons_of_rows(
            self._model.explain(chosen),
            chosen,
            self._names(),
            expectations=self._expectations,
            points=self._model.points_of_forest(chosen),
            texts=category_texts(column, anomalies.tolist(), self._features),
        )
        for i, reasons_of_row in zip(anomalies, reasons, strict=True):
            explained[i] = "; ".join(map(str, reasons_of_row))
        return pa.array(explained, pa.string())

    def _names(self) -> list[str]:
        return [self._features.name(j) for j in range(self._model.n_features)]

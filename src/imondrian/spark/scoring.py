"""The rows of a frame scored with one model, where they lie: a column that an Arrow function fills."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # its stubs lack it

from imondrian.errors import InvalidInputError
from imondrian.model_files import to_bytes
from imondrian.option_types import Kind, OnError
from imondrian.scores import scoring_of
from imondrian.spark.feature_columns import SCORE, check_width, features_of
from imondrian.spark.model_broadcast import BroadcastModel
from imondrian.spark.result_columns import new_result_columns, scored_columns


def score(
    df: DataFrame,
    model: Any,
    features: str | Sequence[str] | None = None,
    output: str = SCORE,
    explain: bool | str = False,  # noqa: FBT001, FBT002
    *,
    label: str | None = None,
    kind: Kind | None = None,
    on_error: OnError = "raise",
) -> DataFrame:
    """Add the scores of the rows to a frame, which stays lazy.

    The model is broadcast once, and only the features cross over to Python: other columns stay as they are.

    Parameters
    ----------
    df : DataFrame
    model : MondrianForest, fitted IsolationMondrianForest, StreamDetector, or one of Spark's
    features : list of str or str, optional
        Columns of numbers, or one column of arrays or vectors. By default the names that the model knows.
    output : str, default="anomaly_score"
        Name of the column of scores: in (0, 1), high is odd.
    explain : bool or str, default=False
        Whether to add a column "explanation", or one of that name: a map from features to their parts in the score,
        negative where the row lies too low.
    label : str, optional
        Name of a column that tells whether the score lies above the model's threshold (0.5 for a bare forest).
    kind : "depth", "expected" or "size", optional
        Another score than the model's own, which for a bare forest is "depth".
    on_error : "raise" or "skip", default="raise"
        What to do about a row with a value that is missing or not finite: fail, or leave its score null.
    """
    if kind is not None:
        scoring_of(kind)  # for its check
    broadcast_model = BroadcastModel(df.sparkSession, to_bytes(model))
    scorer = broadcast_model.scorer()
    column, found = features_of(df, _asked(features, scorer.features))
    check_width(found, scorer.forest.n_features)
    outputs = new_result_columns(df, output, label, explain, on_error)

    def results(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        scorer = broadcast_model.scorer()
        scorer = scorer if kind is None else scorer._replace(kind=kind)
        for points in columns:
            yield pa.StructArray.from_arrays(scored_columns(points, scorer, found, outputs), names=outputs.names())

    result = arrow_udf(results, outputs.schema())(column)  # however often it is named, Spark computes it once
    return df.select("*", *(result[name].alias(name) for name in outputs.names()))


def _asked(features: str | Sequence[str] | None, known: list[str] | None) -> str | Sequence[str]:
    if features is not None:
        return features
    if known is None:
        raise InvalidInputError("features must be given: the model knows no names.")
    return known

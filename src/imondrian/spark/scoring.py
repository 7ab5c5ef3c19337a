"""Score the rows of a distributed frame with one model, in an Arrow function."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # missing in pyspark's stubs

from imondrian.base.column_names import SCORE, SURPRISE
from imondrian.base.errors import InvalidInputError
from imondrian.base.option_types import Kind, OnError
from imondrian.forest.scores import score_kind
from imondrian.model_files import to_bytes
from imondrian.spark.model_broadcast import BroadcastModel
from imondrian.spark.point_columns import check_feature_count, features_of_model
from imondrian.spark.result_columns import ResultColumns, RowScorer, check_result_columns


def score(  # noqa: PLR0913
    df: DataFrame,
    model: Any,
    features: str | Sequence[str] | None = None,
    output: str = SCORE,
    explain: bool | str = False,  # noqa: FBT001, FBT002
    *,
    label: str | None = None,
    surprise: str | None = SURPRISE,
    kind: Kind | None = None,
    explain_text: bool | str = False,
    on_error: OnError = "raise",
) -> DataFrame:
    """Add the scores of the rows to a frame; the returned frame is lazy.

    The model is broadcast once, and only the features are sent to Python; other columns are unchanged.

    Parameters
    ----------
    df : DataFrame
    model : MondrianForest, fitted IsolationMondrianForest, StreamDetector, or a fitted model of `imondrian.spark`
    features : list of str or str, optional
        One column for each feature of the model, or one column of arrays or vectors. By default, the feature names of
        the model. A feature that is a category in the model may be text, a boolean or a number.
    output : str, default="anomaly_score"
        Name of the column of scores, which are in (0, 1); higher is more anomalous.
    explain : bool or str, default=False
        Whether to add a column that maps each feature to its part of the score, negative where the value is too low. A
        str is the name of the column; True means "explanation".
    label : str, optional
        Name of a boolean column to add: whether the score is above the model's threshold (0.5 for a MondrianForest).
    surprise : str or None, default="surprise"
        Name of the column of surprises, or None for no such column. The surprise is -log10 of the probability that an
        ordinary row has a score at least as high. The probability comes from the distribution of scores in the model.
        If the model has none, or if `kind` is not the model's own, it comes from the scores of the points in the
        forest.
    kind : "depth", "expected" or "size", optional
        The score to use; by default that of the model, which is "depth" for a MondrianForest.
    explain_text : bool or str, default=False
        Whether to add a column with the explanation of each anomaly in words, such as "country = KP (never seen), 41%;
        amount = 99,999 (high; expected 4 to 210), 38%"; null for other rows. A str is the name of the column; True
        means "explanation_text".
    on_error : "raise" or "skip", default="raise"
        How to handle a row that cannot be used (an infinite value, no value at all, or a missing number if the model
        was fitted with ``missing="raise"``): fail, or set its score to null.
    """
    if kind is not None:
        score_kind(kind)  # raises an error if the kind is unknown
    broadcast_model = BroadcastModel(df.sparkSession, to_bytes(model))
    fitted = broadcast_model.model()
    column, feature_info = features_of_model(
        df, _features_or_default(features, fitted.feature_names), fitted.categorical
    )
    check_feature_count(feature_info, fitted.n_features)
    outputs = ResultColumns.named(output, surprise, label, explain, explain_text, on_error)
    check_result_columns(df, outputs)

    def results(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        scorer = RowScorer(broadcast_model.model().with_kind(kind), feature_info, outputs)
        for each in columns:
            yield pa.StructArray.from_arrays(scorer.columns(each), names=outputs.names())

    result = arrow_udf(results, outputs.schema())(column)  # evaluated once, however many of its columns are used
    return df.select("*", *(result[name].alias(name) for name in outputs.names()))


def _features_or_default(features: str | Sequence[str] | None, model_features: list[str] | None) -> str | Sequence[str]:
    if features is not None:
        return features
    if model_features is None:
        raise InvalidInputError("features must be given, because the model has no feature names.")
    return model_features

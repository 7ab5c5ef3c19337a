"""One model per key: a separate forest for each group of rows."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from imondrian.base.column_names import SCORE, SURPRISE
from imondrian.base.defaults import MAX_SAMPLES, MISSING_VALUES, N_TREES, PRESET, SEED
from imondrian.base.errors import InvalidInputError
from imondrian.base.option_types import (
    ON_ERROR,
    Kind,
    KindOrPreset,
    Missing,
    OnError,
    PresetName,
    ScaleOrPreset,
    StreamCategorical,
    ThresholdOrPreset,
)
from imondrian.engine.jit import Array
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.forest.scores import score_kind
from imondrian.model_files import to_bytes
from imondrian.models.distributed import Samples, distinct_rows, new_sampled_forest
from imondrian.models.fitted_model import FittedModel, with_scores
from imondrian.spark.arrow_points import check_usable, points_of, usable_rows
from imondrian.spark.column_transfer import arrow_columns, arrow_fields, from_arrow, in_utc, transfer_name
from imondrian.spark.fit_settings import FitSettings
from imondrian.spark.model_broadcast import read_model
from imondrian.spark.point_columns import (
    POINT,
    Features,
    check_choice,
    check_feature_count,
    check_new_names,
    checked_names,
    column_named,
    features_of_unknown_models,
    features_to_learn,
    with_feature_count,
)
from imondrian.spark.result_columns import ResultColumns, RowScorer, check_result_columns, null_columns
from imondrian.spark.sampled_model import model_on_samples

_MODEL, _N_POINTS = "model", "n_points"
_RESULT_COLUMN = "imondrian_result_{}"
_MODEL_FIELDS = [StructField(_N_POINTS, LongType()), StructField(_MODEL, BinaryType())]


def fit_by_key(  # noqa: PLR0913
    df: DataFrame,
    key: str | Sequence[str],
    features: str | Sequence[str],
    n_trees: int = N_TREES,
    max_samples: int = MAX_SAMPLES,
    seed: int = SEED,
    *,
    preset: PresetName = PRESET,
    kind: KindOrPreset = "preset",
    scale: ScaleOrPreset = "preset",
    threshold: ThresholdOrPreset = "preset",
    categorical: StreamCategorical = (),
    missing: Missing = MISSING_VALUES,
    on_error: OnError = "raise",
) -> DataFrame:
    """Fit a forest to the rows of each key; the returned frame is lazy.

    Samples are drawn as in `fit`: the forest of a key does not depend on how its rows are distributed. All rows of a
    key are sent to one worker and must fit in its memory.

    Parameters
    ----------
    df : DataFrame
    key : str or list of str
        One or more columns; rows with equal values in them form a group.
    features, n_trees, max_samples, seed, preset, kind, scale, threshold, categorical, missing
        As in `fit`; threshold and medians are computed from all rows of the key.
    on_error : "raise" or "skip", default="raise"
        How to handle a row that cannot be used: fail, or skip the row.

    Returns
    -------
    DataFrame
        With the columns of the key, `n_points` (number of usable rows) and `model` (the bytes of the model file of an
        estimator, which `imondrian.model_files.from_bytes` returns as a FittedModel; null if no row was usable).
    """
    check_choice(on_error, "on_error", ON_ERROR)
    settings = FitSettings.with_threshold(preset, kind, scale, threshold, missing)
    keys = checked_names(df, key)
    check_new_names(df.select(*map(column_named, keys)), [_N_POINTS, _MODEL])
    column, feature_info = features_to_learn(df, features, categorical)
    feature_info = with_feature_count(df, column, feature_info, categorical)
    forest = new_sampled_forest(n_trees, max_samples, settings.scale, seed, feature_info.categorical)
    key_schema = StructType([df.schema[name] for name in keys])
    schema = StructType([*arrow_fields(key_schema), *_MODEL_FIELDS])
    rows = df.select(*arrow_columns(key_schema), column.alias(POINT))
    groups = rows.groupBy(*(field.name for field in arrow_fields(key_schema)))
    models = groups.applyInArrow(_fitter(forest, settings, schema.names, feature_info, on_error), schema)
    return models.select(*from_arrow(key_schema), _N_POINTS, _MODEL)


def score_by_key(  # noqa: PLR0913
    df: DataFrame,
    models: DataFrame,
    key: str | Sequence[str],
    features: str | Sequence[str],
    output: str = SCORE,
    explain: bool | str = False,  # noqa: FBT001, FBT002
    *,
    label: str | None = None,
    surprise: str | None = SURPRISE,
    kind: Kind | None = None,
    explain_text: bool | str = False,
    on_error: OnError = "raise",
) -> DataFrame:
    """Score each row with the model of its key, and add the scores to the frame; the returned frame is lazy.

    The rows and the model of a key are sent to one worker, so all columns pass through Python and must have types that
    Arrow supports. A row whose key has no model gets the score null.

    Parameters
    ----------
    df : DataFrame
    models : DataFrame
        The result of `fit_by_key`, or a frame with the same columns.
    key, features
        As in `fit_by_key`.
    output, explain, label, surprise, kind, explain_text, on_error
        As in `score`.
    """
    if kind is not None:
        score_kind(kind)  # raises an error if the kind is unknown
    keys = checked_names(df, key)
    _check_models(df, models, keys)
    column, feature_info = features_of_unknown_models(df, features)
    outputs = ResultColumns.named(output, surprise, label, explain, explain_text, on_error)
    check_result_columns(df, outputs)
    results = [StructField(_RESULT_COLUMN.format(i), field.dataType) for i, field in enumerate(outputs.schema().fields)]
    schema = StructType([*arrow_fields(df.schema), *results])
    key_names = [transfer_name(df.schema, name) for name in keys]
    groups = df.select(*arrow_columns(df.schema), column.alias(POINT)).groupBy(*key_names)
    renamed_keys = [column_named(name).alias(key_name) for name, key_name in zip(keys, key_names, strict=True)]
    model_groups = models.select(*renamed_keys, _MODEL).groupBy(*key_names)
    scored = groups.cogroup(model_groups).applyInArrow(_row_scorer(feature_info, outputs, kind), schema)
    named = [column_named(field.name).alias(name) for field, name in zip(results, outputs.names(), strict=True)]
    return scored.select(*from_arrow(df.schema), *named)


def _check_models(df: DataFrame, models: DataFrame, keys: list[str]) -> None:
    """Raise InvalidInputError unless the key columns have the same types in both frames.

    Otherwise, Spark would send the rows and the model of a key to different partitions.
    """
    checked_names(models, [*keys, _MODEL])
    for name in keys:
        row_type, model_type = df.schema[name].dataType, models.schema[name].dataType
        if row_type != model_type:
            types = f"{row_type.simpleString()} in the frame, {model_type.simpleString()} in the models"
            raise InvalidInputError(f"The key {name!r} must have the same type in both frames, but is {types}.")


def _fitter(
    forest: MondrianForest, settings: FitSettings, names: list[str], features: Features, on_error: str
) -> Callable[[tuple[Any, ...], Any], Any]:
    """Return the function that fits a forest to the rows of one key."""

    def fit_one(key: tuple[Any, ...], table: Any) -> Any:
        points = points_of(table.column(POINT), features)
        is_usable = usable_rows(points, features.categorical, settings.missing)
        check_usable(points, is_usable, features, on_error)
        n_points = int(is_usable.sum())
        content = to_bytes(_fitted_model(points[is_usable], forest, settings, features.names)) if n_points else None
        columns = [pa.array([value.as_py()], value.type) for value in key]
        results = [pa.array([n_points], pa.int64()), pa.array([content], pa.binary())]
        return in_utc(pa.Table.from_arrays([*columns, *results], names=names))

    return fit_one


def _fitted_model(points: Array, forest: MondrianForest, settings: FitSettings, names: list[str] | None) -> FittedModel:
    """Fit a forest to points, whose order does not matter, and compute its threshold and distribution of scores."""
    samples = Samples(forest, points.shape[1])
    samples.offer(*distinct_rows(points))
    parameters = settings.parameters(forest)
    model = model_on_samples(samples.drawn(), points, parameters, forest.seed, names)
    return with_scores(model, model.score(points))


def _row_scorer(features: Features, outputs: ResultColumns, kind: Kind | None) -> Callable[[Any, Any], Any]:
    """Return the function that scores the rows of one key with its model."""

    def score_one(table: Any, models: Any) -> Any:
        result = table.drop_columns([POINT])
        contents = [content for content in models.column(_MODEL).to_pylist() if content is not None]
        if len(contents) > 1:
            key = ", ".join(str(models.column(name)[0].as_py()) for name in models.column_names if name != _MODEL)
            raise InvalidInputError(f"The key {key} has {len(contents)} models, but must have at most one.")
        if len(contents) == 0 or table.num_rows == 0:
            columns = null_columns(table.num_rows, outputs)
        else:
            model = read_model(contents[0], "The model of a key").with_kind(kind)
            check_feature_count(features, model.n_features)
            columns = RowScorer(model, features, outputs).columns(table.column(POINT))
        for i, column in enumerate(columns):
            result = result.append_column(_RESULT_COLUMN.format(i), column)
        return in_utc(result)

    return score_one

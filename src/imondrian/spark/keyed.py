"""A model per key: every group of rows has a forest of its own."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from imondrian.assembly import Plan, Samples, build_some, sampled_forest
from imondrian.defaults import MAX_SAMPLES, N_TREES, PRESET, SEED
from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.fitted import Fitted, threshold_of_rows
from imondrian.forest import MondrianForest
from imondrian.model_files import to_bytes
from imondrian.option_types import (
    ON_ERROR,
    Kind,
    KindOrPreset,
    OnError,
    PresetName,
    ScaleOrPreset,
    ThresholdOrPreset,
)
from imondrian.scores import scoring_of
from imondrian.spark.column_transfer import arrow_columns, arrow_fields, from_arrow, in_utc, transfer_name
from imondrian.spark.feature_columns import (
    POINT,
    SCORE,
    Features,
    check_choice,
    check_free,
    check_usable,
    check_width,
    checked_names,
    column_named,
    features_of,
    points_of,
    usable_rows,
    with_feature_count,
)
from imondrian.spark.fit_settings import FitSettings
from imondrian.spark.model_broadcast import read_scorer
from imondrian.spark.result_columns import ResultColumns, new_result_columns, null_columns, scored_columns

_MODEL, _N_POINTS = "model", "n_points"
_RESULT = "imondrian_result_{}"
_RESULTS = [StructField(_N_POINTS, LongType()), StructField(_MODEL, BinaryType())]


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
    on_error: OnError = "raise",
) -> DataFrame:
    """Fit a forest to the rows of each key; the frame of models stays lazy.

    Samples are drawn as `fit` draws them: a key's forest does not depend on how its rows are spread. The rows of a key
    come together in one worker, and must find room there.

    Parameters
    ----------
    df : DataFrame
    key : str or list of str
        One column or several; rows that agree in them belong together.
    features, n_trees, max_samples, seed, preset, kind, scale, threshold
        As of `fit`; a threshold is found among all rows of the key.
    on_error : "raise" or "skip", default="raise"
        What to do about a row with a value that is missing or not finite: fail, or leave it out.

    Returns
    -------
    DataFrame
        With the columns of the key, `n_points` (how many rows could be used) and `model` (the bytes of the model file
        of an estimator, see `imondrian.model_files.from_bytes`; null where there was no row to use).
    """
    check_choice(on_error, "on_error", ON_ERROR)
    settings = FitSettings.checked(preset, kind, scale, threshold)
    forest = sampled_forest(n_trees, max_samples, settings.scale, seed)
    keys = checked_names(df, key)
    check_free(df.select(*map(column_named, keys)), [_N_POINTS, _MODEL])
    column, found = features_of(df, features)
    found = with_feature_count(df, column, found)
    key_schema = StructType([df.schema[name] for name in keys])
    schema = StructType([*arrow_fields(key_schema), *_RESULTS])
    rows = df.select(*arrow_columns(key_schema), column.alias(POINT))
    groups = rows.groupBy(*(field.name for field in arrow_fields(key_schema)))
    models = groups.applyInArrow(_fitting(forest, settings, schema.names, found, on_error), schema)
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
    kind: Kind | None = None,
    on_error: OnError = "raise",
) -> DataFrame:
    """Add the scores of the rows to a frame, each by the model of its key; the frame stays lazy.

    Rows and models of a key meet in one worker, so all columns cross over to Python: they must be of types that Arrow
    knows. A row whose key has no model has no score (null).

    Parameters
    ----------
    df : DataFrame
    models : DataFrame
        What `fit_by_key` gave, or a frame like it.
    key, features
        As of `fit_by_key`.
    output, explain, label, kind, on_error
        As of `score`.
    """
    if kind is not None:
        scoring_of(kind)  # for its check
    keys = checked_names(df, key)
    _check_models(df, models, keys)
    column, found = features_of(df, features)
    outputs = new_result_columns(df, output, label, explain, on_error)
    results = [StructField(_RESULT.format(i), field.dataType) for i, field in enumerate(outputs.schema().fields)]
    schema = StructType([*arrow_fields(df.schema), *results])
    places = [transfer_name(df.schema, name) for name in keys]
    groups = df.select(*arrow_columns(df.schema), column.alias(POINT)).groupBy(*places)
    renamed_keys = [column_named(name).alias(place) for name, place in zip(keys, places, strict=True)]
    theirs = models.select(*renamed_keys, _MODEL).groupBy(*places)
    scored = groups.cogroup(theirs).applyInArrow(_scoring(found, outputs, kind), schema)
    named = [column_named(field.name).alias(name) for field, name in zip(results, outputs.names(), strict=True)]
    return scored.select(*from_arrow(df.schema), *named)


def _check_models(df: DataFrame, models: DataFrame, keys: list[str]) -> None:
    """Make sure that a frame of models has the same keys: those of other types would lie in other partitions."""
    checked_names(models, [*keys, _MODEL])
    for name in keys:
        ours, theirs = df.schema[name].dataType, models.schema[name].dataType
        if ours != theirs:
            kinds = f"{ours.simpleString()} in the frame, {theirs.simpleString()} in the models"
            raise InvalidInputError(f"The key {name!r} must be of the same type in both, but is {kinds}.")


def _fitting(
    forest: MondrianForest, settings: FitSettings, names: list[str], features: Features, on_error: str
) -> Callable[[tuple[Any, ...], Any], Any]:
    """Make the function that fits a forest to the rows of one key."""

    def fit_one(key: tuple[Any, ...], table: Any) -> Any:
        points = points_of(table.column(POINT), features.n_features or 0)
        is_usable = usable_rows(points)
        check_usable(points, is_usable, features, on_error)
        n_points = int(is_usable.sum())
        content = to_bytes(_fitted_to(points[is_usable], forest, settings, features.names)) if n_points else None
        columns = [pa.array([value.as_py()], value.type) for value in key]
        results = [pa.array([n_points], pa.int64()), pa.array([content], pa.binary())]
        return in_utc(pa.Table.from_arrays([*columns, *results], names=names))

    return fit_one


def _fitted_to(points: Array, forest: MondrianForest, settings: FitSettings, names: list[str] | None) -> Fitted:
    """Fit a forest to points, and find the threshold for them."""
    made = _forest_on(points, forest)
    parameters = settings.parameters(made)
    return Fitted(made, parameters, threshold_of_rows(made, points, parameters), names)


def _forest_on(points: Array, forest: MondrianForest) -> MondrianForest:
    """Fit a forest to points, in whatever order they come."""
    samples = Samples(forest, points.shape[1])
    samples.offer(*np.unique(points + 0.0, axis=0, return_counts=True))
    drawn = np.stack([samples.of(t)[1] for t in range(forest.n_trees)])
    return build_some(Plan.of(forest, samples.n_points, drawn), 0, drawn)


def _scoring(features: Features, outputs: ResultColumns, kind: Kind | None) -> Callable[[Any, Any], Any]:
    """Make the function that scores the rows of one key with its model."""

    def score_one(table: Any, models: Any) -> Any:
        kept = table.drop_columns([POINT])
        contents = [content for content in models.column(_MODEL).to_pylist() if content is not None]
        if len(contents) > 1:
            raise InvalidInputError(f"There are {len(contents)} models for a key.")
        if len(contents) == 0 or table.num_rows == 0:
            columns = null_columns(table.num_rows, outputs)
        else:
            scorer = read_scorer(contents[0], "The model of a key")
            scorer = scorer if kind is None else scorer._replace(kind=kind)
            check_width(features, scorer.forest.n_features)
            columns = scored_columns(table.column(POINT), scorer, features, outputs)
        for i, column in enumerate(columns):
            kept = kept.append_column(_RESULT.format(i), column)
        return in_utc(kept)

    return score_one

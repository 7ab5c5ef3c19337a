"""Fit a forest to the rows of a distributed frame: executors draw the samples, the driver builds the trees."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from imondrian.defaults import MAX_SAMPLES, N_TREES, PRESET, SEED
from imondrian.distributed import (
    Samples,
    forest_on_samples,
    new_sampled_forest,
    smallest,
)
from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.fitted_model import FittedModel
from imondrian.forest import MondrianForest
from imondrian.option_types import ON_ERROR, KindOrPreset, OnError, PresetName, ScaleOrPreset, ThresholdOrPreset
from imondrian.spark.fit_settings import FitSettings
from imondrian.spark.point_columns import (
    POINT,
    Features,
    check_choice,
    features_of,
    points_of,
    problem_with,
    usable_rows,
    with_feature_count,
)

if TYPE_CHECKING:
    from imondrian.estimator import IsolationMondrianForest

_SAMPLES = "tree int, keys binary, points binary"  # float64; for tree -1, the row counts and an unusable row
_COUNTS = -1
Batches = Iterator[Any]


def fit(  # noqa: PLR0913
    df: DataFrame,
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
) -> "IsolationMondrianForest":
    """Fit a forest to the rows of a distributed frame.

    Each tree has its own uniform sample of the rows, drawn in one pass: the rows with the smallest keys, which depend
    only on the seed, the tree and the row (each copy of a row has its own key). The forest is therefore the same, bit
    for bit, regardless of partitioning, number of executors and row order. To count the copies, Spark shuffles each
    distinct row once. The samples are collected on the driver, which builds the trees.

    Parameters
    ----------
    df : DataFrame
    features : list of str, or str
        Columns of numbers, or one column of arrays or vectors.
    n_trees : int, default=100
        Number of trees.
    max_samples : int, default=256
        Maximum number of rows in each tree.
    seed : int, default=0
        The same seed and the same rows give the same forest.
    preset : "practice" or "paper", default="practice"
        Sets kind, scale and threshold where they are left at "preset".
    kind : "preset", "depth", "expected" or "size", default="preset"
        Which score to use.
    scale : "preset", None, "std" or one weight per feature, default="preset"
        As in `MondrianForest`; "std" uses the standard deviations of all samples together.
    threshold : "preset", "auto", "kmeans" or float, default="preset"
        Which rows are anomalies: those with a score above 0.5 ("auto"), above the midpoint of two clusters of scores
        ("kmeans"), or this share of the rows (float). The last two are computed from the rows that the trees hold.
    on_error : "raise" or "skip", default="raise"
        How to handle a row with a missing or non-finite value: raise InvalidInputError, or skip the row with a
        warning.

    Returns
    -------
    imondrian.IsolationMondrianForest
        An ordinary estimator, which can be saved, loaded, extended and used anywhere; `forest_` is its forest.
    """
    check_choice(on_error, "on_error", ON_ERROR)
    settings = FitSettings.checked(preset, kind, scale, threshold)
    forest = new_sampled_forest(n_trees, max_samples, settings.scale, seed)
    column, feature_info = features_of(df, features)
    feature_info = with_feature_count(df, column, feature_info)
    rows = df.select(column.alias(POINT)).groupBy(POINT).count()
    drawn = rows.mapInArrow(_sample_drawer(forest, feature_info), _SAMPLES).groupBy("tree")
    merged = drawn.applyInArrow(_sample_merger(max_samples), _SAMPLES).collect()
    samples_by_tree = {row.tree: (_numbers(row.keys), _numbers(row.points)) for row in merged}
    (n_points, n_unusable), unusable_row = samples_by_tree.pop(_COUNTS, (np.zeros(2), np.empty(0)))
    _check_rows(int(n_points), int(n_unusable), unusable_row, feature_info, on_error)
    ordered = [samples_by_tree[t] for t in range(forest.n_trees)]
    samples = np.stack([points.reshape(keys.size, -1) for keys, points in ordered])
    forest = forest_on_samples(forest, int(n_points), samples)
    fitted = FittedModel(forest, settings.parameters(forest), None, feature_info.names)
    from imondrian.estimator import IsolationMondrianForest  # noqa: PLC0415 (workers do not need scikit-learn)

    return IsolationMondrianForest.from_fitted_model(replace(fitted, stored_threshold=fitted.threshold))


def _sample_drawer(forest: MondrianForest, features: Features) -> Callable[[Batches], Batches]:
    """Return the function that draws the samples of a partition from its distinct rows and their counts."""
    n_features = features.n_features or 0

    def draw(batches: Batches) -> Batches:
        samples, n_unusable, unusable_row = Samples(forest, n_features), 0, np.empty(0)
        for batch in batches:
            points, copies = points_of(batch.column(POINT), n_features), batch.column("count").to_numpy()
            is_usable = usable_rows(points)
            if is_usable.any():
                samples.offer(points[is_usable], copies[is_usable])
            if not is_usable.all():
                n_unusable += copies[~is_usable].sum()
                unusable_row = points[~is_usable][0]
        counts = (_COUNTS, np.array([samples.n_points, n_unusable], np.float64), unusable_row)
        yield _batch([counts, *((t, *samples.of(t)) for t in range(forest.n_trees))])

    return draw


def _sample_merger(max_samples: int) -> Callable[[Any], Any]:
    """Return the function that merges the samples of a tree from all partitions."""

    def merge(table: Any) -> Any:
        tree = table.column("tree")[0].as_py()
        parts = [(_numbers(row["keys"]), _numbers(row["points"])) for row in table.to_pylist()]
        if tree == _COUNTS:
            unusable_rows = [row for _, row in parts if row.size]
            counts = np.sum([counts for counts, _ in parts], axis=0)
            return pa.Table.from_batches([_batch([(tree, counts, unusable_rows[0] if unusable_rows else np.empty(0))])])
        parts = [(keys, points.reshape(keys.size, -1)) for keys, points in parts if keys.size]
        if not parts:
            return pa.Table.from_batches([_batch([(tree, np.empty(0), np.empty(0))])])
        keys, points = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return pa.Table.from_batches([_batch([(tree, *smallest(keys, points, max_samples))])])

    return merge


def _check_rows(n_points: int, n_unusable: int, unusable_row: Array, features: Features, on_error: str) -> None:
    """Raise an error or warn about unusable rows; raise an error if no row is usable."""
    if n_unusable > 0:
        message = f"{n_unusable} of {n_points + n_unusable} rows cannot be used: {problem_with(unusable_row, features)}"
        if on_error == "raise":
            raise InvalidInputError(f"{message}. Use on_error='skip' to skip them.")
        warnings.warn(f"{message}. They are skipped.", stacklevel=3)
    if n_points == 0:
        raise InvalidInputError("The frame has no usable rows.")


def _batch(samples: list[tuple[int, Array, Array]]) -> Any:
    trees, keys, points = zip(*samples, strict=True)
    contents = [pa.array([array.tobytes() for array in column], pa.binary()) for column in (keys, points)]
    return pa.RecordBatch.from_arrays([pa.array(trees, pa.int32()), *contents], names=["tree", "keys", "points"])


def _numbers(content: Any) -> Array:
    """Return the float64 numbers stored in bytes."""
    return np.frombuffer(bytes(content)).copy()

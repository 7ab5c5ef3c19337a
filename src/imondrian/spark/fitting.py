"""A forest fitted to all rows of a frame, where they lie: samples by key, merged, and trees built on the executors."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from imondrian.assembly import Plan, Samples, build_some, put_together, sampled_forest, smallest
from imondrian.defaults import MAX_SAMPLES, N_TREES, PRESET, SEED
from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.fitted import Fitted
from imondrian.forest import MondrianForest
from imondrian.model_files import from_bytes, to_bytes
from imondrian.option_types import ON_ERROR, KindOrPreset, OnError, PresetName, ScaleOrPreset, ThresholdOrPreset
from imondrian.spark.feature_columns import (
    POINT,
    Features,
    check_choice,
    features_of,
    points_of,
    usable_rows,
    with_feature_count,
)
from imondrian.spark.fit_settings import FitSettings

if TYPE_CHECKING:
    from imondrian.estimator import IsolationMondrianForest

_TREES_PER_PIECE = 16
_SAMPLES = "tree int, keys binary, points binary"  # both as float64; where tree is -1, counts and a bad row
_PIECES = "first int, content binary"
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
    """Fit a forest to the rows of a frame, where they lie.

    Each tree has its own uniform sample of the rows, drawn in one pass: those with the smallest keys, which hang on the
    seed, the tree and the row (copies of a row have a key each). So the forest does not depend on partitions,
    executors or order, to the last bit. Copies are counted by Spark, which moves every row that is different once.

    Parameters
    ----------
    df : DataFrame
    features : list of str, or str
        Columns of numbers, or one column of arrays or vectors.
    n_trees : int, default=100
        Number of trees.
    max_samples : int, default=256
        How many rows a tree holds.
    seed : int, default=0
        The same seed and the same rows give the same forest.
    preset : "practice" or "paper", default="practice"
        Sets kind, scale and threshold, where they are not given.
    kind : "preset", "depth", "expected" or "size", default="preset"
        The score.
    scale : "preset", None, "std" or one weight per feature, default="preset"
        As of `MondrianForest`; the deviations of "std" are those of all samples together.
    threshold : "preset", "auto", "kmeans" or float, default="preset"
        What is an anomaly: a score above 0.5; above the middle of two clusters of the scores; or a share of the rows.
        The last two are found among the rows that the trees hold.
    on_error : "raise" or "skip", default="raise"
        What to do if a row has a value that is missing or not finite: raise an InvalidInputError, or leave the row out,
        with a warning.

    Returns
    -------
    imondrian.IsolationMondrianForest
        An ordinary estimator: save it, load it, extend it, score anywhere. Its attribute `forest_` is the forest.
    """
    check_choice(on_error, "on_error", ON_ERROR)
    settings = FitSettings.checked(preset, kind, scale, threshold)
    forest = sampled_forest(n_trees, max_samples, settings.scale, seed)
    column, found = features_of(df, features)
    found = with_feature_count(df, column, found)
    rows = df.select(column.alias(POINT)).groupBy(POINT).count()
    drawn = rows.mapInArrow(_drawing(forest, found), _SAMPLES).groupBy("tree")
    merged = drawn.applyInArrow(_merging(max_samples), _SAMPLES).collect()
    tables = {row.tree: (_numbers(row.keys), _numbers(row.points)) for row in merged}
    (n_points, n_bad), bad_row = tables.pop(_COUNTS, (np.zeros(2), np.empty(0)))
    _check_rows(int(n_points), int(n_bad), bad_row, found, on_error)
    samples = np.stack([tables[t][1].reshape(tables[t][0].size, -1) for t in range(forest.n_trees)])
    forest = _built(df, Plan.of(forest, int(n_points), samples), samples)
    fitted = Fitted(forest, settings.parameters(forest), None, found.names)
    from imondrian.estimator import IsolationMondrianForest  # noqa: PLC0415 (workers do without scikit-learn)

    return IsolationMondrianForest.from_fitted(fitted.settled())


def _drawing(forest: MondrianForest, features: Features) -> Callable[[Batches], Batches]:
    """Make the function that draws the samples of the rows in a partition, all different, with their counts."""
    n_features = features.n_features or 0

    def draw(batches: Batches) -> Batches:
        samples, n_bad, bad_row = Samples(forest, n_features), 0, np.empty(0)
        for batch in batches:
            points, copies = points_of(batch.column(POINT), n_features), batch.column("count").to_numpy()
            is_usable = usable_rows(points)
            if is_usable.any():
                samples.offer(points[is_usable], copies[is_usable])
            if not is_usable.all():
                n_bad += copies[~is_usable].sum()
                bad_row = points[~is_usable][0]
        counts = (_COUNTS, np.array([samples.n_points, n_bad], np.float64), bad_row)
        yield _batch([counts, *((t, *samples.of(t)) for t in range(forest.n_trees))])

    return draw


def _merging(max_samples: int) -> Callable[[Any], Any]:
    """Make the function that merges the samples of a tree from all partitions."""

    def merge(table: Any) -> Any:
        tree = table.column("tree")[0].as_py()
        parts = [(_numbers(row["keys"]), _numbers(row["points"])) for row in table.to_pylist()]
        if tree == _COUNTS:
            bad_rows = [row for _, row in parts if row.size]
            counts = np.sum([counts for counts, _ in parts], axis=0)
            return pa.Table.from_batches([_batch([(tree, counts, bad_rows[0] if bad_rows else np.empty(0))])])
        parts = [(keys, points.reshape(keys.size, -1)) for keys, points in parts if keys.size]
        if not parts:
            return pa.Table.from_batches([_batch([(tree, np.empty(0), np.empty(0))])])
        keys, points = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return pa.Table.from_batches([_batch([(tree, *smallest(keys, points, max_samples))])])

    return merge


def _built(df: DataFrame, plan: Plan, samples: Array) -> MondrianForest:
    """Build the trees on the executors, and join them here."""
    shape = samples.shape

    def build(batches: Batches) -> Batches:
        for batch in batches:
            for row in batch.to_pylist():
                some = _numbers(row["content"]).reshape(-1, *shape[1:])
                yield _piece(row["first"], to_bytes(build_some(plan, row["first"], some)))

    starts = range(0, shape[0], _TREES_PER_PIECE)
    rows = [(first, samples[first : first + _TREES_PER_PIECE].tobytes()) for first in starts]
    pieces = df.sparkSession.createDataFrame(rows, _PIECES).repartition(len(rows)).mapInArrow(build, _PIECES).collect()
    ordered = sorted(pieces, key=lambda piece: piece.first)
    forests: list[Any] = [from_bytes(piece.content) for piece in ordered]
    return put_together(plan, forests)


def _check_rows(n_points: int, n_bad: int, bad_row: Array, features: Features, on_error: str) -> None:
    """Say what is to be said of rows that cannot be used."""
    if n_bad > 0:
        told = f"{n_bad} of {n_points + n_bad} rows cannot be used: {problem_with(bad_row, features)}"
        if on_error == "raise":
            raise InvalidInputError(f"{told}. on_error='skip' would leave them out.")
        warnings.warn(f"{told}. They are left out.", stacklevel=3)
    if n_points == 0:
        raise InvalidInputError("The frame has no rows that can be used.")


def _batch(tables: list[tuple[int, Array, Array]]) -> Any:
    trees, keys, points = zip(*tables, strict=True)
    contents = [pa.array([table.tobytes() for table in column], pa.binary()) for column in (keys, points)]
    return pa.RecordBatch.from_arrays([pa.array(trees, pa.int32()), *contents], names=["tree", "keys", "points"])


def _piece(first: int, content: bytes) -> Any:
    columns = [pa.array([first], pa.int32()), pa.array([content], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["first", "content"])


def _numbers(content: Any) -> Array:
    """Read float64 numbers from bytes."""
    return np.frombuffer(bytes(content)).copy()

"""Samples of the rows of a frame: each partition draws its own, Spark merges them, the driver collects them."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame

from imondrian.engine.jit import Array
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.forest.samplers.category_counts import MAX_CATEGORIES, most_frequent
from imondrian.models.distributed import Categories, DrawnSamples, Samples, smallest, summed_categories
from imondrian.spark.arrow_points import points_of, usable_rows
from imondrian.spark.point_columns import POINT, Features

# A partition returns numbered parts, each with two arrays. Part -1 has the totals and an unusable row. Part t < n_trees
# has the keys and points of the sample of tree t. Each later part has the codes and counts of some categories of one
# feature: they are divided into buckets so that no worker merges all categories of a feature.
_PARTS = "part int, first binary, second binary"  # arrays of float64
_TOTALS = -1
_N_BUCKETS = 16
Batches = Iterator[Any]
Part = tuple[int, Array, Array]


class UnusableRows(NamedTuple):
    """The rows that cannot be used."""

    n_rows: int
    example: Array  # one of them; empty if there is none


def draw_samples(
    df: DataFrame, column: Column, features: Features, forest: MondrianForest, missing: str
) -> tuple[DrawnSamples | None, UnusableRows]:
    """Draw the samples of a forest from the rows of a frame, in one pass; the samples are None if no row is usable."""
    rows = df.select(column.alias(POINT)).groupBy(POINT).count()
    drawn = rows.mapInArrow(_drawer(forest, features, missing), _PARTS).groupBy("part")
    collected = drawn.applyInArrow(_merger(forest), _PARTS).collect()
    parts = {row.part: (_numbers(row.first), _numbers(row.second)) for row in collected}
    totals, unusable_row = parts.pop(_TOTALS, (np.zeros(2), np.empty(0)))
    n_points, n_unusable = int(totals[0]), int(totals[1])
    unusable = UnusableRows(n_unusable, unusable_row)
    if n_points == 0:
        return None, unusable
    samples = [parts[t] for t in range(forest.n_trees)]
    points = np.stack([points.reshape(keys.size, -1) for keys, points in samples])
    n_gaps = totals[2:].astype(np.int64)
    return DrawnSamples(points, n_points, n_gaps, _collected_categories(parts, forest)), unusable


# -- on the workers ---------------------------------------------------------------------------------------------------


def _drawer(forest: MondrianForest, features: Features, missing: str) -> Callable[[Batches], Batches]:
    """Return the function that draws the samples of a partition from its distinct rows and their counts."""

    def draw(batches: Batches) -> Batches:
        samples, n_unusable, unusable_row = Samples(forest, features.n_features or 0), 0, np.empty(0)
        for batch in batches:
            points, copies = points_of(batch.column(POINT), features), batch.column("count").to_numpy()
            is_usable = usable_rows(points, features.categorical, missing)
            if is_usable.any():
                samples.offer(points[is_usable], copies[is_usable])
            if not is_usable.all():
                n_unusable += copies[~is_usable].sum()
                unusable_row = points[~is_usable][0]
        totals = np.array([samples.n_points, n_unusable, *samples.n_gaps], np.float64)
        trees = [(t, *samples.of(t)) for t in range(forest.n_trees)]
        yield _batch([(_TOTALS, totals, unusable_row), *trees, *_category_parts(samples, forest)])

    return draw


def _category_parts(samples: Samples, forest: MondrianForest) -> Iterator[Part]:
    """Yield the categories in a partition and their counts."""
    for k, (codes, counts) in enumerate(samples.categories()):
        buckets = codes % _N_BUCKETS
        for bucket in range(_N_BUCKETS):
            is_inside = buckets == bucket
            if is_inside.any():
                part = forest.n_trees + k * _N_BUCKETS + bucket
                yield part, codes[is_inside], counts[is_inside].astype(np.float64)


def _merger(forest: MondrianForest) -> Callable[[Any], Any]:
    """Return the function that merges what all partitions have drawn for one part."""
    n_trees, max_samples = forest.n_trees, forest.max_samples or 0

    def merge(table: Any) -> Any:
        part = table.column("part")[0].as_py()
        arrays = [(_numbers(row["first"]), _numbers(row["second"])) for row in table.to_pylist()]
        if part == _TOTALS:
            merged = _merged_totals(arrays)
        else:
            merged = _merged_sample(arrays, max_samples) if part < n_trees else _merged_categories(arrays)
        return pa.Table.from_batches([_batch([(part, *merged)])])

    return merge


def _merged_totals(arrays: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    unusable_rows = [row for _, row in arrays if row.size]
    return np.sum([totals for totals, _ in arrays], axis=0), unusable_rows[0] if unusable_rows else np.empty(0)


def _merged_sample(arrays: list[tuple[Array, Array]], max_samples: int) -> tuple[Array, Array]:
    parts = [(keys, points.reshape(keys.size, -1)) for keys, points in arrays if keys.size]
    if not parts:
        return np.empty(0), np.empty(0)
    keys, points = (np.concatenate(each) for each in zip(*parts, strict=True))
    return smallest(keys, points, max_samples)


def _merged_categories(arrays: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Add up counts; keep at most one category more than a forest can hold, so that dropped ones are noticed."""
    codes, counts = most_frequent(*summed_categories(arrays), MAX_CATEGORIES + 1)
    return codes, counts.astype(np.float64)


# -- transfer ---------------------------------------------------------------------------------------------------------


def _collected_categories(parts: dict[int, tuple[Array, Array]], forest: MondrianForest) -> list[Categories]:
    """Return the categories of each feature from all buckets."""
    firsts = [forest.n_trees + k * _N_BUCKETS for k in range(len(forest.categorical))]
    found = [[parts[part] for part in range(first, first + _N_BUCKETS) if part in parts] for first in firsts]
    return [summed_categories(buckets) for buckets in found]


def _batch(parts: list[Part]) -> Any:
    numbers, firsts, seconds = zip(*parts, strict=True)
    contents = [pa.array([array.tobytes() for array in column], pa.binary()) for column in (firsts, seconds)]
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int32()), *contents], names=["part", "first", "second"])


def _numbers(content: Any) -> Array:
    """Return the float64 numbers stored in bytes."""
    return np.frombuffer(bytes(content)).copy()

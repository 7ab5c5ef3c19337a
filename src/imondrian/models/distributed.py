"""Build forests from samples that are drawn from each partition of the data, for example on several machines.

The result does not depend on how the rows are partitioned: the `Samples` of the partitions determine those of the whole
data, and the forest depends only on these samples, the counts of categories and the seed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from imondrian.base.defaults import SEED
from imondrian.base.errors import InvalidInputError
from imondrian.base.option_types import Scale
from imondrian.engine.bottom_k import offer_rows
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_POINTS, empty_trees
from imondrian.engine.randomness import start_streams
from imondrian.engine.reservoir import build_on_samples
from imondrian.forest.feature_layout import FeatureLayout
from imondrian.forest.inputs import as_count, as_points_with_gaps
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.forest.samplers import new_sampler
from imondrian.forest.scales import new_scale

_MIN_ENTRIES = 2**16  # at least this many counts of categories of a feature are collected before they are added up
Categories = tuple[Array, Array]  # the categories of a feature, and how many points have each


def new_sampled_forest(
    n_trees: int, max_samples: int, scale: Scale = None, seed: int = SEED, categorical: Sequence[int] = ()
) -> MondrianForest:
    """Return an empty forest with a sample size; it specifies the samples to draw and the trees to build."""
    size = as_count(max_samples, "max_samples", 1, MAX_POINTS)
    return MondrianForest(n_trees, max_samples=size, scale=scale, seed=seed, categorical=categorical)


class DrawnSamples(NamedTuple):
    """The samples of all trees, and counts of all points that they were drawn from."""

    points: Array  # points[t] is the sample of tree t
    n_points: int  # number of all points
    n_gaps: Array  # number of missing numbers of each feature, in all points; 0 for a categorical feature
    categories: list[Categories]  # the categories of each categorical feature, in all points


class Samples:
    """The samples that the trees of a forest draw from the rows offered so far, and exact counts of all these rows.

    Examples
    --------
    >>> import numpy as np
    >>> forest = new_sampled_forest(n_trees=2, max_samples=3)
    >>> samples = Samples(forest, n_features=1)
    >>> samples.offer(np.array([[1.0], [5.0]]), np.array([6, 4]))
    >>> samples.n_points
    10
    >>> samples.of(0)[1].shape
    (3, 1)
    """

    def __init__(self, forest: MondrianForest, n_features: int) -> None:
        size = forest.max_samples or 0
        self._tree_keys = _heads(forest)["hash_key"].copy()
        self._keys = np.full((forest.n_trees, size), np.inf)
        self._points = np.zeros((forest.n_trees, size, n_features))
        self._categorical = forest.categorical
        self._categories = [_CategoryTotals() for _ in forest.categorical]
        self.n_points = 0
        self.n_gaps = np.zeros(n_features, np.int64)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self._points.shape[2])

    def offer(self, X: Any, counts: Any) -> None:
        """Offer rows, each with its number of copies; rows must be distinct, and no row may be offered again later.

        Numbers may be missing (NaN), but every row must have a value.
        """
        points, counts = as_points_with_gaps(X, self.n_features), np.ascontiguousarray(counts, np.int64)
        offer_rows(self._tree_keys, points, counts, self._keys, self._points)
        self.n_points += int(counts.sum())
        self.n_gaps += counts @ np.isnan(points)
        for j, totals in zip(self._categorical, self._categories, strict=True):
            totals.add(points[:, j], counts)

    def of(self, t: int) -> tuple[Array, Array]:
        """Return the random sampling keys and the points in the sample of tree t, in ascending order of the keys."""
        n_taken = min(self.n_points, self._keys.shape[1])
        return smallest(self._keys[t], self._points[t], n_taken)

    def categories(self) -> list[Categories]:
        """Return the categories of each categorical feature, in ascending order, and the number of rows of each."""
        return [totals.summed() for totals in self._categories]

    def drawn(self) -> DrawnSamples:
        """Return the samples of all trees; all rows of the data must have been offered to this object."""
        points = np.stack([self.of(t)[1] for t in range(len(self._keys))])
        return DrawnSamples(points, self.n_points, self.n_gaps, self.categories())


class _CategoryTotals:
    """Counts the rows of each category of a feature; counts are added up only when many have been collected."""

    def __init__(self) -> None:
        self._parts: list[Categories] = []
        self._n_entries = 0
        self._max_entries = _MIN_ENTRIES

    def add(self, codes: Array, counts: Array) -> None:
        """Count rows."""
        self._parts.append(summed_categories([(codes, counts)]))
        self._n_entries += self._parts[-1][0].size
        if self._n_entries > self._max_entries:
            self._n_entries = self.summed()[0].size
            self._max_entries = max(2 * self._n_entries, _MIN_ENTRIES)

    def summed(self) -> Categories:
        """Return each category once, in ascending order, with its count."""
        self._parts = [summed_categories(self._parts)]
        return self._parts[0]


def summed_categories(parts: Sequence[Categories]) -> Categories:
    """Add up counts: return each category once, in ascending order, with the sum of its counts.

    Examples
    --------
    >>> [array.tolist() for array in summed_categories([(np.array([7.0, 5.0, 7.0]), np.array([1, 2, 4]))])]
    [[5.0, 7.0], [2, 5]]
    """
    if not parts:
        return np.empty(0), np.empty(0, np.int64)
    codes, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    distinct, positions = np.unique(codes, return_inverse=True)
    totals = np.zeros(distinct.size, np.int64)
    np.add.at(totals, positions, counts.astype(np.int64))
    return distinct, totals


def distinct_rows(points: Array) -> tuple[Array, Array]:
    """Return the distinct points and the number of copies of each; gaps (NaN) are equal, and -0.0 is 0.0.

    Examples
    --------
    >>> rows, counts = distinct_rows(np.array([[np.nan, 1.0], [0.0, 1.0], [np.nan, 1.0], [-0.0, 1.0]]))
    >>> rows.tolist(), counts.tolist()
    ([[0.0, 1.0], [nan, 1.0]], [2, 2])
    """
    comparable = np.where(np.isnan(points), np.inf, points + 0.0)  # NaN is not equal to itself
    rows, counts = np.unique(comparable, axis=0, return_counts=True)
    rows[np.isinf(rows)] = np.nan
    return rows, counts


def smallest(keys: Array, points: Array, n: int) -> tuple[Array, Array]:
    """Return the n smallest keys and their points, in order; equal keys are ordered by the points' values."""
    order = np.lexsort((*points.T[::-1], keys))[:n]
    return keys[order], points[order]


def forest_on_samples(
    forest: MondrianForest, n_points: int, samples: Array, categories: Sequence[Categories] = ()
) -> MondrianForest:
    """Return a forest like `forest` whose tree t is built on samples[t], a sample drawn from n_points points.

    The scale "std" is computed from the samples instead of all points. The rarities of categories are exact:
    `categories` has the categories of each categorical feature among all points, and the number of points of each.
    """
    n_trees, n_slots, n_features = samples.shape
    layout = FeatureLayout.checked(n_features, forest.categorical)
    if len(categories) != layout.n_categorical:
        raise InvalidInputError(
            f"There must be counts for {layout.n_categorical} categorical features, but there are {len(categories)}."
        )
    sampler, scale = new_sampler(forest.max_samples, None, layout.n_categorical), new_scale(forest.scale, layout)
    rows = layout.coded(samples).reshape(-1, layout.n_coordinates)
    sampler.counts.restart_with(categories, n_points)
    sampler.counts.write_rarities(rows)
    scale.restart(rows, n_points)
    trees = empty_trees(n_trees, n_slots, layout.n_coordinates, layout.n_categorical)
    trees.heads[:] = _heads(forest)
    coded = rows.reshape(n_trees, n_slots, layout.n_coordinates)
    build_on_samples(trees, coded, n_points, scale.weights(), forest.max_samples or 0)
    return MondrianForest.from_state(forest.parameters(), trees, {"moments": scale.moments, **sampler.state()})


def _heads(forest: MondrianForest) -> Array:
    """Return the heads of the empty trees of a forest, with their random streams started."""
    heads = empty_trees(forest.n_trees, 0, 0).heads
    start_streams(heads, np.uint64(forest.seed))
    return heads

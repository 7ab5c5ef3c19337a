"""Build forests from samples that are drawn from each partition of the data, for example on several machines.

The result does not depend on how the rows are partitioned: the `Samples` of the partitions determine those of the whole
data, and a tree depends only on its number, its sample and the seed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from imondrian.defaults import SEED
from imondrian.engine.bottom_k import offer_rows
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_POINTS, empty_trees
from imondrian.engine.randomness import start_streams
from imondrian.engine.reservoir import build_on_samples
from imondrian.feature_layout import FeatureLayout
from imondrian.forest import MondrianForest
from imondrian.inputs import as_count, as_points
from imondrian.option_types import Scale
from imondrian.samplers import new_sampler
from imondrian.scales import new_scale


def new_sampled_forest(
    n_trees: int, max_samples: int, scale: Scale = None, seed: int = SEED, categorical: Sequence[int] = ()
) -> MondrianForest:
    """Return an empty forest with a sample size: it specifies the samples to draw and the trees to build."""
    size = as_count(max_samples, "max_samples", 1, MAX_POINTS)
    return MondrianForest(n_trees, max_samples=size, scale=scale, seed=seed, categorical=categorical)


class Samples:
    """For every tree of a forest, its sample of the rows offered so far.

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
        self.n_points = 0

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self._points.shape[2])

    def offer(self, X: Any, counts: Any) -> None:
        """Offer rows with the number of copies of each; rows must be distinct and not have been offered before."""
        counts = np.ascontiguousarray(counts, np.int64)
        offer_rows(self._tree_keys, as_points(X, self.n_features), counts, self._keys, self._points)
        self.n_points += int(counts.sum())

    def of(self, t: int) -> tuple[Array, Array]:
        """Return the keys and the points in the sample of tree t, in ascending order of the keys."""
        n_taken = min(self.n_points, self._keys.shape[1])
        return smallest(self._keys[t], self._points[t], n_taken)


def smallest(keys: Array, points: Array, n: int) -> tuple[Array, Array]:
    """Return the n smallest keys and their points, in order; equal keys are ordered by the points' values."""
    order = np.lexsort((*points.T[::-1], keys))[:n]
    return keys[order], points[order]


def forest_on_samples(forest: MondrianForest, n_points: int, samples: Array) -> MondrianForest:
    """Return a forest like `forest` whose tree t is built on samples[t], a sample of n_points points.

    The scale "std" and the counts of categories are computed from the samples instead of all points.
    """
    n_trees, n_slots, n_features = samples.shape
    layout = FeatureLayout.checked(n_features, forest.categorical)
    sampler, scale = new_sampler(forest.max_samples, None, layout.n_categorical), new_scale(forest.scale, layout)
    rows = layout.coded(samples).reshape(-1, layout.n_coordinates)
    sampler.counts.restart(rows)
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

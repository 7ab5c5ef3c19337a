"""Forests whose samples are drawn and whose trees are built in several places, then joined in one.

The result does not depend on where the rows are and where the trees are built: the `Samples` of parts of the data
determine those of the whole, and a tree depends only on its number, its sample and the seed.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import numpy as np

from imondrian.defaults import SEED
from imondrian.engine.bottom_k import offer_rows
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_POINTS, Trees, empty_trees, joined
from imondrian.engine.randomness import start_streams
from imondrian.engine.reservoir import build_on_samples
from imondrian.forest import MondrianForest
from imondrian.inputs import as_count, as_points
from imondrian.option_types import Scale
from imondrian.scales import new_scale


def new_sampled_forest(n_trees: int, max_samples: int, scale: Scale = None, seed: int = SEED) -> MondrianForest:
    """Return an empty forest whose trees hold samples: it specifies what to draw and to build."""
    return MondrianForest(
        n_trees, max_samples=as_count(max_samples, "max_samples", 1, MAX_POINTS), scale=scale, seed=seed
    )


class Samples:
    """The sample of every tree of a forest, of the rows offered so far.

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
        """Number of features of a row."""
        return int(self._points.shape[2])

    def offer(self, X: Any, counts: Any) -> None:
        """Offer distinct rows, none of which has been offered before, with the number of copies of each."""
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


class BuildPlan(NamedTuple):
    """What the builder of a tree needs to know about the whole forest."""

    parameters: dict[str, Any]  # of the forest
    n_points: int  # from which the samples were drawn
    moments: Array  # of the scale

    @classmethod
    def of(cls, forest: MondrianForest, n_points: int, samples: Array) -> Self:
        """Plan a forest like this one on samples[t]; an adaptive scale uses the samples in place of all points."""
        scale = new_scale(forest.scale, samples.shape[2])
        scale.restart(samples.reshape(-1, samples.shape[2]), n_points)
        return cls(forest.parameters(), n_points, scale.moments)


def build_part(plan: BuildPlan, first: int, samples: Array) -> MondrianForest:
    """Build the trees from number `first` on, one for each sample, as a forest of their own."""
    n_trees, n_slots, n_features = samples.shape
    trees = empty_trees(n_trees, n_slots, n_features)
    forest = MondrianForest(**plan.parameters)
    trees.heads[:] = _heads(forest)[first : first + n_trees]
    scale = new_scale(forest.scale, n_features)
    scale.restore(plan.moments)
    build_on_samples(trees, samples, plan.n_points, scale.weights(), forest.max_samples or 0)
    return _forest(plan, trees)


def join_parts(plan: BuildPlan, parts: Iterable[MondrianForest]) -> MondrianForest:
    """Join the parts of a forest, given in the order of their trees."""
    return _forest(plan, joined([part.state()[0] for part in parts]))


def _forest(plan: BuildPlan, trees: Trees) -> MondrianForest:
    parameters = plan.parameters | {"n_trees": trees.heads.size}
    return MondrianForest.from_state(parameters, trees, {"moments": plan.moments})


def _heads(forest: MondrianForest) -> Array:
    """Return the heads of the empty trees of a forest, with their random streams started."""
    heads = empty_trees(forest.n_trees, 0, 0).heads
    start_streams(heads, np.uint64(forest.seed))
    return heads

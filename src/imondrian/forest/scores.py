"""The kinds of score. Scores lie in (0, 1): high is anomalous, 0.5 is as isolated as an average point."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from imondrian.base.errors import InvalidInputError
from imondrian.base.locking import cached_attribute
from imondrian.engine.attribution import add_attributions
from imondrian.engine.box_scores_static import write_sums_above_and_means
from imondrian.engine.frozen import (
    FrozenTrees,
    add_frozen_depths,
    add_frozen_expected_depths,
    add_frozen_log_sizes,
    freeze,
    frozen_score_of_row,
)
from imondrian.engine.jit import Array, call_without_dispatch
from imondrian.engine.nodes import Trees
from imondrian.engine.one_row import (
    depth_score_of_row,
    expected_score_of_row,
    size_score_of_row,
    window_size_score_of_row,
)
from imondrian.engine.rescore import add_held_depths, add_held_log_sizes, is_aligned, write_leaf_slots
from imondrian.engine.score_formula import depths_to_scores, log_sizes_to_scores
from imondrian.engine.threads import Threads, even_slices
from imondrian.engine.window import (
    score_depths_and_slide,
    score_expected_depths_and_slide,
    score_log_sizes_and_slide,
    write_scores_of_depths,
    write_scores_of_log_sizes,
)

UNKNOWN_SCORE = 0.5  # score of any point while the forest holds no points
_ROWS_PER_TASK = 2048  # with fewer rows per task, trees would be loaded into the cache too often
_LEAVES_PER_WALK = 8  # freezing a tree of n leaves costs about as much as n / 8 walks


class ScoringCache:
    """Trees that do not change while they are scored, and derived data that scoring computes on first use."""

    def __init__(self, trees: Trees, weights: Array, threads: Threads) -> None:
        self.trees = trees
        self.weights = weights
        self.threads = threads
        self._n_rows = 0  # number of rows scored so far without the frozen copy

    @cached_attribute
    def frozen(self) -> FrozenTrees:
        """The compact copy of the trees, for scoring many rows."""
        return freeze(self.trees)

    @cached_attribute
    def sums_above_and_means(self) -> tuple[Array, Array]:
        """For "size": for each node a sum over the nodes above it, and the mean log size of each tree.

        The sum is that of the terms of the log size that are the same for all rows inside the boxes of these nodes; see
        `engine/box_scores_static.py`.
        """
        sums_above, means = np.empty(self.trees.parents.shape), np.empty(self.trees.heads.size)
        write_sums_above_and_means(self.trees, self.weights, sums_above, means)
        return sums_above, means

    def is_worth_freezing(self, n_rows: int) -> bool:
        """Count n_rows more rows; return True if there is a compact copy, or if making one pays off by now."""
        if "frozen" in self.__dict__:
            return True
        self._n_rows += n_rows
        n_leaves = int(self.trees.heads["n_leaves"].max())
        if 2 * n_leaves * self.trees.heads.size >= 2**32:
            return False  # node numbers of the copy would not fit in 32 bits
        return self._n_rows * _LEAVES_PER_WALK >= n_leaves

    def row_slices(self, n_rows: int) -> list[slice]:
        """Divide rows into tasks of at most _ROWS_PER_TASK rows; if there are few rows, into one task per thread."""
        return even_slices(n_rows, min(_ROWS_PER_TASK, -(-n_rows // self.threads.n_threads)))

    def mean(self, add: Callable[[Array, Array], None], X: Array) -> Array:
        """Return the mean over the trees for each row of X (Eq. 4); `add` adds up the values of all trees."""
        sums = np.zeros(X.shape[0])
        tasks = [lambda rows=rows: add(X[rows], sums[rows]) for rows in self.row_slices(X.shape[0])]
        self.threads.run(tasks)
        return sums / self.trees.heads.size


def depth(cache: ScoringCache, X: Array) -> Array:
    """Return scores by path length: Eqs. 1-4 of [Ma2020]."""
    frozen = cache.frozen
    return _depth_scores(cache.mean(lambda rows, sums: add_frozen_depths(frozen, rows, sums), X))


def expected(cache: ScoringCache, X: Array) -> Array:
    """Return scores by the expected depth at which a row would be isolated if it were inserted (ours)."""
    trees, frozen, weights = cache.trees, cache.frozen, cache.weights
    return _depth_scores(
        cache.mean(lambda rows, sums: add_frozen_expected_depths(trees, frozen, rows, weights, sums), X)
    )


def size(cache: ScoringCache, X: Array) -> Array:
    """Return scores by the log size of a row's cell, relative to that of the points held (ours)."""
    trees, frozen, weights = cache.trees, cache.frozen, cache.weights
    sums_above, means = cache.sums_above_and_means
    return _size_scores(
        cache.mean(lambda rows, sums: add_frozen_log_sizes(trees, frozen, rows, weights, sums_above, means, sums), X)
    )


def depth_of_row(cache: ScoringCache, x: Array) -> float:
    """Like `depth` for one row."""
    if cache.is_worth_freezing(1):
        return float(call_without_dispatch(frozen_score_of_row, cache.frozen, x))
    return float(call_without_dispatch(depth_score_of_row, cache.trees, x))


def expected_of_row(cache: ScoringCache, x: Array) -> float:
    """Like `expected` for one row."""
    return float(call_without_dispatch(expected_score_of_row, cache.trees, x, cache.weights))


def size_of_row(cache: ScoringCache, x: Array) -> float:
    """Like `size` for one row."""
    return float(call_without_dispatch(size_score_of_row, cache.trees, x, cache.weights, *cache.sums_above_and_means))


def held_depth(cache: ScoringCache) -> Array:
    """Score the point in every leaf slot of aligned trees (`is_aligned`) by path length (= expected depth)."""
    sums = np.zeros(int(cache.trees.heads["n_leaves"][0]))
    add_held_depths(cache.trees, sums)
    return _depth_scores(sums / cache.trees.heads.size)


def held_size(cache: ScoringCache) -> Array:
    """Score the point in every leaf slot of aligned trees by the log size of its cell."""
    sums = np.zeros(int(cache.trees.heads["n_leaves"][0]))
    add_held_log_sizes(cache.trees, cache.weights, cache.sums_above_and_means[1], sums)
    return _size_scores(sums / cache.trees.heads.size)


def _size_scores(excess: Array) -> Array:
    log_sizes_to_scores(excess)
    return excess


def _depth_scores(relative: Array) -> Array:
    depths_to_scores(relative)
    return relative


def _next_depth(trees: Trees, x: Array, _weights: Array) -> float:
    return float(call_without_dispatch(depth_score_of_row, trees, x))


def _next_expected(trees: Trees, x: Array, weights: Array) -> float:
    return float(call_without_dispatch(expected_score_of_row, trees, x, weights))


def _next_size(trees: Trees, x: Array, weights: Array) -> float:
    return float(call_without_dispatch(window_size_score_of_row, trees, x, weights))


class ScoreKind(NamedTuple):
    """The functions that compute one kind of score. A row gets the same score, bit for bit, alone and among others."""

    score_rows: Callable[[ScoringCache, Array], Array]  # many rows, with a frozen copy
    score_row: Callable[[ScoringCache, Array], float]
    score_held: Callable[[ScoringCache], Array]  # the point in every leaf slot of aligned trees
    slide: Callable[..., None]  # a kernel that writes each tree's part of the scores and shows the rows to the trees
    combine: Callable[[Array, Array], None]  # a kernel that combines these parts into scores
    score_next_row: Callable[[Trees, Array, Array], float]  # the next row of a window
    uses_typical_sizes: bool = False  # with a window: `slide` updates the typical log sizes that scores are relative to

    def score(self, cache: ScoringCache, X: Array) -> Array:
        """Score the rows of X."""
        if cache.is_worth_freezing(X.shape[0]):
            return self.score_rows(cache, X)
        scores = np.empty(X.shape[0])
        scores[0] = self.score_row(cache, X[0])  # fills the cache before threads use it
        cache.threads.run([partial(self._write, cache, X, scores, rows) for rows in cache.row_slices(X.shape[0])])
        return scores

    def _write(self, cache: ScoringCache, X: Array, scores: Array, rows: slice) -> None:
        """Write the scores of some rows, one after the other."""
        for i in range(rows.start, rows.stop):
            scores[i] = self.score_row(cache, X[i])


SCORES = {
    "depth": ScoreKind(depth, depth_of_row, held_depth, score_depths_and_slide, write_scores_of_depths, _next_depth),
    "expected": ScoreKind(
        expected,
        expected_of_row,
        held_depth,
        score_expected_depths_and_slide,
        write_scores_of_depths,
        _next_expected,
    ),
    "size": ScoreKind(
        size,
        size_of_row,
        held_size,
        score_log_sizes_and_slide,
        write_scores_of_log_sizes,
        _next_size,
        uses_typical_sizes=True,
    ),
}


def score_kind(kind: str) -> ScoreKind:
    """Return the kind of score with this name.

    Raises
    ------
    InvalidInputError
        If there is no such kind.
    """
    if not isinstance(kind, str) or kind not in SCORES:
        raise InvalidInputError(f"kind must be one of {', '.join(SCORES)}, but is {kind!r}.")
    return SCORES[kind]


def score_held_points(cache: ScoringCache, points: Array, copies: Array, kind: str) -> Array:
    """Score all points that the trees hold, given with their numbers of copies.

    If all trees hold the same points, this takes one pass over the nodes.
    """
    scoring, trees = SCORES[kind], cache.trees
    if points.shape[0] == 0:
        return np.empty(0)
    if is_aligned(trees) and trees.copies[0].sum() == copies.sum():
        slots = np.empty(points.shape[0], np.int64)
        write_leaf_slots(trees, points, slots)
        return scoring.score_held(cache)[slots]
    distinct, index = np.unique(points, axis=0, return_inverse=True)
    return scoring.score(cache, distinct)[index.ravel()]


def attributions(cache: ScoringCache, X: Array) -> Array:
    """Return the share of each coordinate in the isolation of each coded row, of shape (n_rows, 2, n_coordinates).

    The second axis is the side on which the row lies: above the other points (0), or below them (1). The shares of a
    row sum to 1. If all points are equal to the row, or no tree holds two points, all coordinates have equal shares.
    """
    sums = np.zeros((X.shape[0], 2, X.shape[1]))
    tasks = [
        lambda rows=rows: add_attributions(cache.trees, X[rows], cache.weights, sums[rows])
        for rows in cache.row_slices(X.shape[0])
    ]
    cache.threads.run(tasks)
    sums[sums.sum(axis=(1, 2)) == 0.0] = 1.0
    return sums / sums.sum(axis=(1, 2), keepdims=True)

"""The scores, each in (0, 1): high is odd, 0.5 as isolated as an average point."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from imondrian.engine.attribution import HIGH, LOW, add_shares
from imondrian.engine.box_scores_static import write_insides_and_means
from imondrian.engine.frozen import (
    Frozen,
    add_frozen_depths,
    add_frozen_expected_depths,
    add_frozen_log_sizes,
    freeze,
    frozen_score_of_row,
)
from imondrian.engine.jit import Array, direct
from imondrian.engine.nodes import Trees
from imondrian.engine.one_row import (
    depth_score_of_row,
    expected_score_of_row,
    size_score_of_row,
    sliding_size_score_of_row,
)
from imondrian.engine.rescore import add_held_depths, add_held_log_sizes
from imondrian.engine.score_formula import make_scores_of_depths, make_scores_of_log_sizes
from imondrian.engine.threads import Threads, pieces
from imondrian.engine.window import (
    score_depths_and_slide,
    score_expected_depths_and_slide,
    score_log_sizes_and_slide,
    write_scores_of_depths,
    write_scores_of_log_sizes,
)
from imondrian.errors import InvalidInputError

_ROWS_PER_TASK = 2048  # in fewer, trees are fetched into the cache too often
_WORTH_FREEZING = 8  # freezing a tree of n leaves costs about as much as n / 8 walks


class Reading:
    """Trees that do not change while they are read, and what is derived from them when first asked for."""

    def __init__(self, trees: Trees, weights: Array, threads: Threads) -> None:
        self.trees = trees
        self.weights = weights
        self.threads = threads
        self.n_rows = 0  # scored so far

    @cached_property
    def frozen(self) -> Frozen:
        """The compact copy for many rows."""
        return freeze(self.trees)

    @cached_property
    def insides_and_means(self) -> tuple[Array, Array]:
        """What the score "size" needs of every node and of every tree."""
        insides, means = np.empty(self.trees.parents.shape), np.empty(self.trees.heads.size)
        write_insides_and_means(self.trees, self.weights, insides, means)
        return insides, means

    def is_worth_freezing(self, n_rows: int) -> bool:
        """Tell whether so many walks more are faster with a compact copy made first."""
        if "frozen" in self.__dict__:
            return True
        self.n_rows += n_rows
        n_leaves = int(self.trees.heads["n_leaves"].max())
        if 2 * n_leaves * self.trees.heads.size >= 2**32:
            return False  # nodes are numbered by 32 bits
        return self.n_rows * _WORTH_FREEZING >= n_leaves

    def pieces(self, n_rows: int) -> list[slice]:
        """Cut rows into tasks: long ones, but of few rows one for each thread."""
        return pieces(n_rows, min(_ROWS_PER_TASK, -(-n_rows // self.threads.n)))

    def mean(self, add: Callable[[Array, Array], None], X: Array) -> Array:
        """Average over the trees what `add` sums up for the rows of X."""
        sums = np.zeros(X.shape[0])
        tasks = [lambda rows=rows: add(X[rows], sums[rows]) for rows in self.pieces(X.shape[0])]
        self.threads.run(tasks)
        return sums / self.trees.heads.size


def depth(reading: Reading, X: Array) -> Array:
    """Score by path length: Eqs. 1-4 of [Ma2020]."""
    frozen = reading.frozen
    return _halved(reading.mean(lambda rows, sums: add_frozen_depths(frozen, rows, sums), X))


def expected(reading: Reading, X: Array) -> Array:
    """Score by the expected depth at which x would be isolated, were it inserted (ours)."""
    trees, frozen, weights = reading.trees, reading.frozen, reading.weights
    return _halved(reading.mean(lambda rows, sums: add_frozen_expected_depths(trees, frozen, rows, weights, sums), X))


def size(reading: Reading, X: Array) -> Array:
    """Score by the log size of the cell of x, over that of the points held (ours)."""
    trees, frozen, weights = reading.trees, reading.frozen, reading.weights
    insides, means = reading.insides_and_means
    return _sized(
        reading.mean(lambda rows, sums: add_frozen_log_sizes(trees, frozen, rows, weights, insides, means, sums), X)
    )


def depth_of_row(reading: Reading, x: Array) -> float:
    """Score one row as `depth` does."""
    if reading.is_worth_freezing(1):
        return float(direct(frozen_score_of_row, reading.frozen, x))
    return float(direct(depth_score_of_row, reading.trees, x))


def expected_of_row(reading: Reading, x: Array) -> float:
    """Score one row as `expected` does."""
    return float(direct(expected_score_of_row, reading.trees, x, reading.weights))


def size_of_row(reading: Reading, x: Array) -> float:
    """Score one row as `size` does."""
    return float(direct(size_score_of_row, reading.trees, x, reading.weights, *reading.insides_and_means))


def held_depth(reading: Reading) -> Array:
    """Score the point in every leaf slot of aligned trees by path length, which for a point held is `expected` too."""
    sums = np.zeros(int(reading.trees.heads["n_leaves"][0]))
    add_held_depths(reading.trees, sums)
    return _halved(sums / reading.trees.heads.size)


def held_size(reading: Reading) -> Array:
    """Score the point in every leaf slot of aligned trees by the log size of its cell."""
    sums = np.zeros(int(reading.trees.heads["n_leaves"][0]))
    add_held_log_sizes(reading.trees, reading.weights, reading.insides_and_means[1], sums)
    return _sized(sums / reading.trees.heads.size)


def _sized(excess: Array) -> Array:
    make_scores_of_log_sizes(excess)
    return excess


def _halved(relative: Array) -> Array:
    make_scores_of_depths(relative)
    return relative


def _sliding_depth(trees: Trees, x: Array, _weights: Array) -> float:
    return float(direct(depth_score_of_row, trees, x))


def _sliding_expected(trees: Trees, x: Array, weights: Array) -> float:
    return float(direct(expected_score_of_row, trees, x, weights))


def _sliding_size(trees: Trees, x: Array, weights: Array) -> float:
    return float(direct(sliding_size_score_of_row, trees, x, weights))


class Score(NamedTuple):
    """One score, in all the ways in which it is asked for: many rows and one agree to the last bit."""

    of_many: Callable[[Reading, Array], Array]
    of_row: Callable[[Reading, Array], float]
    of_held: Callable[[Reading], Array]  # of the point in every leaf slot of aligned trees
    slide: Callable[..., None]  # a kernel that finds what the scores of rows are made of, and shows them to the trees
    make: Callable[[Array, Array], None]  # a kernel that makes scores of that
    of_sliding_row: Callable[[Trees, Array, Array], float]  # of a row that comes next in a window

    def of(self, reading: Reading, X: Array) -> Array:
        """Score the rows of X."""
        if reading.is_worth_freezing(X.shape[0]):
            return self.of_many(reading, X)
        scores = np.empty(X.shape[0])
        scores[0] = self.of_row(reading, X[0])  # what all rows need is made with the first
        reading.threads.run([partial(self._write, reading, X, scores, rows) for rows in reading.pieces(X.shape[0])])
        return scores

    def _write(self, reading: Reading, X: Array, scores: Array, rows: slice) -> None:
        """Write the scores of some rows, one after the other."""
        for i in range(rows.start, rows.stop):
            scores[i] = self.of_row(reading, X[i])


SCORES = {
    "depth": Score(depth, depth_of_row, held_depth, score_depths_and_slide, write_scores_of_depths, _sliding_depth),
    "expected": Score(
        expected,
        expected_of_row,
        held_depth,
        score_expected_depths_and_slide,
        write_scores_of_depths,
        _sliding_expected,
    ),
    "size": Score(size, size_of_row, held_size, score_log_sizes_and_slide, write_scores_of_log_sizes, _sliding_size),
}


def scoring_of(kind: str) -> Score:
    """Give the score of that name."""
    if not isinstance(kind, str) or kind not in SCORES:
        raise InvalidInputError(f"kind must be one of {', '.join(SCORES)}, but is {kind!r}.")
    return SCORES[kind]


def shares(reading: Reading, X: Array) -> Array:
    """Give each feature's share in the isolation of each row: positive where the row lies too high.

    The sizes of a row's shares sum to 1. Where no tree can tell (all points are copies), all features share alike.
    """
    sums = np.zeros((X.shape[0], 2, X.shape[1]))
    tasks = [
        lambda rows=rows: add_shares(reading.trees, X[rows], reading.weights, sums[rows])
        for rows in reading.pieces(X.shape[0])
    ]
    reading.threads.run(tasks)
    sums[sums.sum(axis=(1, 2)) == 0.0] = 1.0
    sums /= sums.sum(axis=(1, 2), keepdims=True)
    side = np.where(sums[:, HIGH] >= sums[:, LOW], 1.0, -1.0)
    return side * sums.sum(axis=1)

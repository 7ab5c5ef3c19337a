"""The sampler without a window: each tree holds all points or its own uniform sample of them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Self

import numpy as np

from imondrian.base.errors import InvalidInputError
from imondrian.engine.invariants import Check, samples_are_possible
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_COUNT, NO_LIMIT, Trees, slice_trees
from imondrian.engine.rescore import points_and_copies, trees_with_all_points
from imondrian.engine.reservoir import build_trees, extend_trees, forget_points, write_copies_held
from imondrian.engine.threads import Threads
from imondrian.forest.samplers.category_counts import CategoryCounts, no_rows
from imondrian.forest.samplers.sampler import (
    ROWS_PER_BLOCK,
    Layout,
    NewFeatures,
    OnTrees,
    ScoredRows,
    Step,
    TreeUpdate,
    Updates,
    not_held_error,
)
from imondrian.forest.scales import Scale
from imondrian.forest.scores import SCORES, UNKNOWN_SCORE, ScoringCache


class Reservoir:
    """Every tree holds its own uniform sample of all points, of bounded size, or all points."""

    fixed_slots = 0
    n_latest = NO_LIMIT

    def __init__(self, limit: int, counts: CategoryCounts) -> None:
        self.limit = limit
        self.counts = counts
        self.updates = Updates()
        self._problems: list[str] = []
        self.last_scored: ScoredRows | None = None

    def n_points(self, trees: Trees) -> int:
        """Return the number of points shown and not forgotten; if it differs between trees, the largest."""
        return int(trees.heads["n_points"].max())

    def is_empty(self, trees: Trees) -> bool:
        """Return True if all points have been forgotten, or none has been shown."""
        return self.n_points(trees) == 0

    def n_shown(self, trees: Trees) -> int:
        """Return the number of points shown; a point that takes the place of a forgotten one does not increase it."""
        return int((trees.heads["n_points"] + trees.heads["n_owed"]).max())

    def n_bytes(self) -> int:
        """Return the size of the counts of categories in bytes; everything else is in the trees."""
        return self.counts.n_bytes

    def reserve(self, n_coordinates: int) -> int:
        """Return 1: tables start small and grow."""
        return 1

    def n_shared_rows(self, n_trees: int, n_values: int) -> int:
        """Return 0: every tree has points of its own."""
        return 0

    def share_points(self, trees: Trees, sharing: Trees) -> bool:
        """Return False: the trees never share points."""
        return False

    def needs_owned_rows(self, n_rows: int) -> bool:
        """Return False for `limit` rows or more: then `build` copies the sample of each tree, and checks it."""
        return n_rows < self.limit

    def build(self, trees: Trees, X: Array, n_rows: int, scale: Scale, on_trees: OnTrees) -> None:
        """Build every tree on its own sample of the rows of X."""
        self.counts.restart(X)
        scale.restart(X, n_rows)
        weights = scale.weights()
        on_trees(lambda part: build_trees(slice_trees(trees, part), X, weights, self.limit))

    def block_length(self, n_rows: int) -> int:
        """Return how many rows `extend` accepts: as many as a tree can process while it stays in the cache."""
        return min(n_rows, ROWS_PER_BLOCK)

    def extend(self, trees: Trees, X: Array, scale: Scale, on_trees: OnTrees) -> None:
        """Show the rows of X to every tree; row i is inserted with the feature weights that include row i."""
        ahead, leaving, n_updates = scale.copy(), no_rows(self.counts.n_categorical), self.counts.n_updates
        self.counts.write_rarities_in_turn(X, leaving)
        weights, n_after = ahead.update(X), trees.heads["n_points"] + X.shape[0]

        def finish() -> None:
            self.counts.count(X, leaving, n_updates)
            scale.restore(ahead.moments)

        update = TreeUpdate(
            apply=lambda part: extend_trees(slice_trees(trees, part), X, weights, self.limit),
            is_applied=lambda: trees.heads["n_points"] == n_after,
            finish=finish,
        )
        self.updates.apply(update, on_trees)

    def scored_block_length(self, n_rows: int, kind: str) -> int:
        """Return 1: each row may change the trees that score the next row."""
        return 1

    def score_and_extend(
        self, trees: Trees, X: Array, kind: str, scale: Scale, on_trees: OnTrees
    ) -> tuple[Array, list[Step]]:
        """Score one row and then show it to the trees; there are no steps."""
        score, steps = self.score_and_extend_one(trees, X[0], kind, scale, on_trees)
        return np.array([score]), steps

    def score_and_extend_one(
        self, trees: Trees, x: Array, kind: str, scale: Scale, on_trees: OnTrees
    ) -> tuple[float, list[Step]]:
        """Score one row and then show it to the trees; there are no steps."""
        score = UNKNOWN_SCORE
        if not self.is_empty(trees):
            self.counts.write_rarities(x[None])
            score = SCORES[kind].score_row(ScoringCache(trees, scale.weights(), Threads(1)), x)
        self.extend(trees, x[None], scale, on_trees)
        return score, []

    def extend_scored(self, trees: Trees, x: Array, score: float, scale: Scale, on_trees: OnTrees) -> None:
        """Show one point."""
        self.extend(trees, x[None], scale, on_trees)

    def score_next(self, cache: ScoringCache, X: Array, kind: str, on_trees: OnTrees) -> Array:
        """Return the scores of the rows of X."""
        return SCORES[kind].score(cache, X)

    def prepared_forget(self, trees: Trees, X: Array, scale: Scale) -> Callable[[OnTrees], None]:
        """Return a function that forgets the rows of X; a tree that does not hold a row only changes its counters."""
        self._check_presence(trees, X)
        n_after, n_updates = trees.heads["n_points"] - X.shape[0], self.counts.n_updates

        def finish() -> None:
            self.counts.forget(X, n_updates)
            if scale.is_adaptive:
                scale.restart(self.points(trees), self.n_points(trees))

        update = TreeUpdate(
            apply=lambda part: forget_points(slice_trees(trees, part), X),
            is_applied=lambda: trees.heads["n_points"] == n_after,
            finish=finish,
        )
        return partial(self.updates.apply, update)

    def points(self, trees: Trees) -> Array:
        """Return the points in all trees, or in one tree if all trees hold the same points."""
        points, copies = self.points_and_copies(trees)
        return np.repeat(points, copies, axis=0)

    def points_and_copies(self, trees: Trees) -> tuple[Array, Array]:
        """Return the point in each leaf, and the number of its copies; of one tree if all hold the same points."""
        return points_and_copies(trees_with_all_points(trees))

    def widened(self, trees: Trees, new: NewFeatures) -> Self:
        """Return a sampler like this one that also counts new categorical features."""
        return type(self)(self.limit, self.counts.widened(new.codes, self.n_points(trees)))

    def check_join(self, state: dict[str, Array]) -> None:
        """Raise InvalidInputError if categories are counted, and there are too many points in the forests together."""
        n_points = self.counts.n_points + int(state["category_counts"][0]) if self.counts.n_categorical else 0
        if n_points > MAX_COUNT:
            raise InvalidInputError(
                f"The forests together have been shown {n_points} points; at most {MAX_COUNT} can be counted."
            )

    def joined(self, trees: Trees, arrays: dict[str, Array], scale: Scale) -> Self:
        """Add the points of the other forest to the scale and to the counts of categories."""
        scale.join(arrays["moments"])
        return type(self)(self.limit, self.counts.joined(arrays))

    def state(self) -> dict[str, Array]:
        """Return the counts of categories; everything else is in the trees."""
        return self.counts.state()

    def layout(self, n_coordinates: int) -> dict[str, Layout]:
        """Return the shapes and types of the counts of categories."""
        return self.counts.layout()

    def restore(self, arrays: dict[str, Array]) -> None:
        """Restore the counts of categories, unless `problems` has something to report."""
        self._problems = list(self.counts.problems(arrays))
        if not self._problems:
            self.counts.restore(arrays)

    def problems(self) -> Iterator[str]:
        """Return what is wrong with the counts of categories."""
        return iter(self._problems)

    def tree_check(self) -> Check:
        """Return the check that the trees hold possible samples."""
        return partial(samples_are_possible, max_samples=self.limit)

    def _check_presence(self, trees: Trees, X: Array) -> None:
        """Raise InvalidInputError if a tree cannot have been shown all rows of X, or X has a category too often."""
        uncounted = self.counts.uncounted_row(X)
        if uncounted is not None:
            raise not_held_error(X, uncounted)
        first_index, counts = _distinct_rows(X)
        held = np.empty((trees.heads.size, first_index.size), np.int64)
        write_copies_held(trees, X[first_index], held)
        absent = np.maximum(counts - held, 0)
        n_not_held = trees.heads["n_points"] - trees.copies.sum(axis=1, dtype=np.int64)
        if (absent.sum(axis=1) > n_not_held).any():
            t = int(np.flatnonzero(absent.sum(axis=1) > n_not_held)[0])
            raise not_held_error(X, int(first_index[absent[t] > 0].min()))


def _distinct_rows(X: Array) -> tuple[Array, Array]:
    """Return the index of the first copy of each distinct row, and the number of its copies.

    Rows are compared as bytes. `np.unique` with an axis compares structured arrays, and raises a TypeError instead of a
    KeyboardInterrupt if it is interrupted.
    """
    rows = (X + 0.0).view(f"V{X.shape[1] * X.itemsize}").ravel()  # -0.0 becomes 0.0
    _, first_index, counts = np.unique(rows, return_index=True, return_counts=True)
    return first_index, counts

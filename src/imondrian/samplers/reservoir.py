"""A sampler of all points, or of a uniform sample of them for each tree."""

from collections.abc import Iterator
from functools import partial
from typing import Self

import numpy as np

from imondrian.engine.invariants import Check, samples_are_possible
from imondrian.engine.jit import Array
from imondrian.engine.nodes import Trees, part
from imondrian.engine.rescore import held_points, witnesses
from imondrian.engine.reservoir import build_trees, copies_held, extend_trees, forget_points
from imondrian.samplers.sampler import ROWS_PER_BLOCK, Change, Changes, Layout, OnTrees, not_held_error
from imondrian.scales import Scale


class Reservoir:
    """Every tree holds its own uniform sample of all points, of bounded size or all of them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.changes = Changes()

    def n_points(self, trees: Trees) -> int:
        """Count the points shown and not forgotten, by the tree that was shown most."""
        return int(trees.heads["n_points"].max())

    def n_shown(self, trees: Trees) -> int:
        """Return the points shown, also those that were forgotten and not made up for."""
        return int((trees.heads["n_points"] + trees.heads["n_owed"]).max())

    def n_bytes(self) -> int:
        """Give 0: all is in the trees."""
        return 0

    def reserve(self, n_features: int) -> int:
        """Let tables begin small; they grow."""
        return 1

    def build(self, trees: Trees, X: Array, scale: Scale, on_trees: OnTrees) -> None:
        """Build every tree on its own sample of the rows of X."""
        scale.restart(X, X.shape[0])
        weights = scale.weights()
        on_trees(lambda some: build_trees(part(trees, some), X, weights, self.limit))

    def block(self, n_rows: int) -> int:
        """Show as many as stay in the cache."""
        return min(n_rows, ROWS_PER_BLOCK)

    def extend(self, trees: Trees, X: Array, scale: Scale, on_trees: OnTrees) -> None:
        """Show the rows of X to every tree, each with the weights that the scale has after it."""
        ahead = scale.copy()
        weights, n_after = ahead.follow(X), trees.heads["n_points"] + X.shape[0]
        change = Change(
            make=lambda some: extend_trees(part(trees, some), X, weights, self.limit),
            is_made=lambda: trees.heads["n_points"] == n_after,
            finish=lambda: scale.restore(ahead.moments),
        )
        self.changes.make(change, on_trees)

    def forget(self, trees: Trees, X: Array, scale: Scale, on_trees: OnTrees) -> None:
        """Forget the rows of X; one that a tree did not take only lowers the number its sample stands for."""
        self._check_presence(trees, X)
        n_after = trees.heads["n_points"] - X.shape[0]

        def follow() -> None:
            if scale.moves:
                scale.restart(self.points(trees), self.n_points(trees))

        change = Change(
            make=lambda some: forget_points(part(trees, some), X),
            is_made=lambda: trees.heads["n_points"] == n_after,
            finish=follow,
        )
        self.changes.make(change, on_trees)

    def points(self, trees: Trees) -> Array:
        """List the points in the trees: of one, where all hold the same."""
        return held_points(witnesses(trees))

    def widened(self, n_features: int) -> Self:
        """Return this sampler: all is in the trees."""
        return self

    def state(self) -> dict[str, Array]:
        """Give nothing: all is in the trees."""
        return {}

    def layout(self, n_features: int) -> dict[str, Layout]:
        """Give nothing."""
        return {}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Do nothing."""

    def complaints(self) -> Iterator[str]:
        """Find nothing."""
        return iter(())

    def check(self) -> Check:
        """Demand that trees hold possible samples."""
        return partial(samples_are_possible, max_samples=self.limit)

    def _check_presence(self, trees: Trees, X: Array) -> None:
        """Make sure that each row, as often as it stands there, can be one of those that each tree was shown."""
        rows, first_place, counts = np.unique(X, axis=0, return_index=True, return_counts=True)
        held = np.empty((trees.heads.size, rows.shape[0]), np.int64)
        copies_held(trees, rows, held)
        absent = np.maximum(counts - held, 0)
        n_outside = trees.heads["n_points"] - trees.copies.sum(axis=1, dtype=np.int64)
        if (absent.sum(axis=1) > n_outside).any():
            t = int(np.flatnonzero(absent.sum(axis=1) > n_outside)[0])
            raise not_held_error(X, int(first_place[absent[t] > 0].min()))

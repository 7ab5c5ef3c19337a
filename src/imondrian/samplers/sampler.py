"""What every sampler of a forest can do, and what all of them need."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from imondrian.engine.invariants import Check
from imondrian.engine.jit import Array
from imondrian.engine.nodes import Trees
from imondrian.errors import InvalidInputError
from imondrian.scales import Scale

OnTrees = Callable[[Callable[[slice], None]], None]  # does something to all trees, some at a time
Layout = tuple[tuple[int, ...], np.dtype[Any]]
ROWS_PER_BLOCK = 4096  # between two chances to be interrupted; a tree stays in the cache for a block


class Change(NamedTuple):
    """A change of all trees that survives an interruption: a tree has it or not, which its head shows."""

    make: Callable[[slice], None]  # changes some trees, each in one kernel call, which nothing interrupts
    is_made: Callable[[], Array]  # which trees have it
    finish: Callable[[], None]  # what follows once all have it; may be repeated


class Changes:
    """Changes of trees, one at a time; each happens to all trees or to none, also when it is interrupted."""

    def __init__(self) -> None:
        self.pending: Change | None = None  # begun, and not finished

    def make(self, change: Change, on_trees: OnTrees) -> None:
        """Change all trees; what an interruption leaves is finished by `settle`, once no thread is at work any more."""
        self.pending = change
        on_trees(change.make)
        change.finish()
        self.pending = None

    def settle(self) -> None:
        """Finish the change that was interrupted; one that no tree has is dropped."""
        change = self.pending
        if change is None:
            return
        is_made = change.is_made()
        if is_made.any():
            for t in np.flatnonzero(~is_made):
                change.make(slice(t, t + 1))
            change.finish()
        self.pending = None


class Sampler(Protocol):
    """Which of the points it is shown each tree holds."""

    limit: int  # leaves that a tree can have
    changes: Changes

    def n_points(self, trees: Trees) -> int:
        """Count the points shown and not forgotten (nor, in a window, passed by)."""

    def n_shown(self, trees: Trees) -> int:
        """Return how far the trees have counted: no point is counted twice, and none less for being forgotten."""

    def n_bytes(self) -> int:
        """Give the memory taken beside the trees."""

    def reserve(self, n_features: int) -> int:
        """Prepare for points of that many features; give the number of slots a tree should have before the first."""

    def build(self, trees: Trees, X: Array, scale: Scale, on_trees: OnTrees) -> None:
        """Build empty trees on the rows of X."""

    def block(self, n_rows: int) -> int:
        """Tell how many of that many rows can be shown in one go."""

    def extend(self, trees: Trees, X: Array, scale: Scale, on_trees: OnTrees) -> None:
        """Show the rows of X, one block, to the trees."""

    def forget(self, trees: Trees, X: Array, scale: Scale, on_trees: OnTrees) -> None:
        """Forget the rows of X, or raise if they are not there; the scale follows the points still there."""

    def points(self, trees: Trees) -> Array:
        """List the points remembered, each as often as it is."""

    def widened(self, n_features: int) -> Self:
        """Return a sampler like this one with more features, which are 0 in all points."""

    def state(self) -> dict[str, Array]:
        """Give what is to be kept beside the trees, by name."""

    def layout(self, n_features: int) -> dict[str, Layout]:
        """Give shape and type of the arrays that `state` gives."""

    def restore(self, arrays: dict[str, Array]) -> None:
        """Take over what `state` gave; nothing is checked."""

    def complaints(self) -> Iterator[str]:
        """Say what is wrong with what was restored."""

    def check(self) -> Check:
        """Return what must be true of sound trees under this sampler."""


def not_held_error(X: Array, row: int) -> InvalidInputError:
    """Make the error for a row to be forgotten that is not remembered."""
    return InvalidInputError(f"X[{row}] is not in the forest, at least not so often: {X[row]}.")

"""What every memory of a forest can do, and what all of them need."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from imondrian.engine.invariants import Check
from imondrian.engine.jit import Array
from imondrian.engine.nodes import Trees
from imondrian.errors import InvalidInputError
from imondrian.scales import Scale

OnTrees = Callable[[Callable[[slice], None]], None]  # does something to all trees, some at a time
Layout = tuple[tuple[int, ...], np.dtype[Any]]
ROWS_PER_BLOCK = 4096  # between two chances to be interrupted; a tree stays in the cache for a block


class Memory(Protocol):
    """Which of the points it is shown each tree holds."""

    limit: int  # leaves that a tree can have

    def n_points(self, trees: Trees) -> int:
        """Count the points shown and not forgotten (nor, in a window, passed by)."""

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

    def settle(self, trees: Trees) -> None:
        """Finish what an interruption has left half done."""

    def widen(self, n_features: int) -> None:
        """Add features that are 0 in all points."""

    def state(self) -> dict[str, Array]:
        """Give what is to be kept beside the trees, by name."""

    def layout(self, n_features: int) -> dict[str, Layout]:
        """Give shape and type of the arrays that `state` gives."""

    def restore(self, arrays: dict[str, Array]) -> None:
        """Take over what `state` gave; nothing is checked."""

    def complaints(self) -> Iterator[str]:
        """Say what is wrong with what was restored."""

    def check(self) -> Check:
        """Give what must be true of each tree under this memory."""


def not_there(X: Array, row: int) -> InvalidInputError:
    """Make the error for a row to be forgotten that is not remembered."""
    return InvalidInputError(f"X[{row}] is not in the forest, at least not so often: {X[row]}.")

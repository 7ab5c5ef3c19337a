"""The protocol of samplers, which decide which points each tree holds, and code that all samplers share."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from imondrian.base.errors import NotHeldError
from imondrian.engine.invariants import Check
from imondrian.engine.jit import Array
from imondrian.engine.nodes import Trees
from imondrian.forest.samplers.category_counts import CategoryCounts
from imondrian.forest.scales import Scale
from imondrian.forest.scores import ScoringCache

OnTrees = Callable[[Callable[[slice], None]], None]  # applies a function to all trees, a slice of them at a time
Layout = tuple[tuple[int, ...], np.dtype[Any]]  # shape and type of an array
ANY = -1  # in a shape: any length
ROWS_PER_BLOCK = 4096  # a call can be interrupted between blocks; a tree stays in the cache during a block


class TreeUpdate(NamedTuple):
    """An update of all trees that can be completed after an interruption.

    If an update cannot be divided, `apply` ignores the slice, and `is_applied` returns an array with one element.
    """

    apply: Callable[[slice], None]  # updates a slice of the trees; a kernel call cannot be interrupted within a tree
    is_applied: Callable[[], Array]  # returns, for each tree, whether it has been updated
    finish: Callable[[], None]  # called after all trees have been updated; may be called twice


class Updates:
    """Applies one update at a time; even if it is interrupted, an update eventually reaches all trees or none."""

    def __init__(self) -> None:
        self.pending: TreeUpdate | None = None  # the update that has started and not finished

    def apply(self, update: TreeUpdate, on_trees: OnTrees) -> None:
        """Update all trees. After an interruption, call `finish_pending` once no thread is running."""
        self.pending = update
        on_trees(update.apply)
        update.finish()
        self.pending = None

    def finish_pending(self) -> None:
        """Finish an interrupted update; drop it if no tree has been updated."""
        update = self.pending
        if update is None:
            return
        is_applied = update.is_applied()
        if is_applied.any():
            for t in np.flatnonzero(~is_applied):
                update.apply(slice(t, t + 1))
            update.finish()
        self.pending = None


class NewFeatures(NamedTuple):
    """Features that are added to a forest, with the value that they have in all points so far."""

    n_numbers: int  # number of new numeric features, which are 0
    codes: list[float]  # the codes of new categorical features
    rarity: float  # of a category that all points have

    def rows(self, rows: Array, n_categorical: int) -> Array:
        """Return coded rows, which have n_categorical categorical features, with the new features added."""
        numbers, rarities, codes = np.split(
            rows, [rows.shape[1] - 2 * n_categorical, rows.shape[1] - n_categorical], axis=1
        )
        new = np.array([0.0] * self.n_numbers), np.full(len(self.codes), self.rarity), np.array(self.codes)
        columns = [np.broadcast_to(values, (rows.shape[0], len(values))) for values in new]
        return np.ascontiguousarray(np.hstack([numbers, columns[0], rarities, columns[1], codes, columns[2]]))


class Step(NamedTuple):
    """A step of a window: an update of the weights and the typical log sizes after some row of a block."""

    n_rows: int  # number of rows of the block shown before the step
    n_taken: int  # number of points that all trees together had inserted by then
    n_outside: int  # number of those that lay outside the root box


class ScoredRows(NamedTuple):
    """Rows that were scored and then shown to the trees."""

    first: int  # number of the first point
    end: int  # number of the last point, plus 1
    read: Callable[[], tuple[Array, list[Step]]]  # returns the scores and the steps taken


class Sampler(Protocol):
    """Decides which of the points shown to it each tree holds.

    Rows are coded (see `engine/places.py`), and the sampler writes their rarities. An update keeps the rows that it
    gets until it is finished, so nobody else may change them; `ForestState` copies them.
    """

    limit: int  # largest number of leaves of a tree
    n_latest: int  # `build` needs at most this many rows, the last ones
    counts: CategoryCounts
    fixed_slots: int  # constant number of slots per tree, or 0 if tables grow
    updates: Updates
    last_scored: ScoredRows | None  # the last rows that were scored and shown; None if not recorded

    def n_points(self, trees: Trees) -> int:
        """Return the number of points shown and neither forgotten nor, with a window, expired."""

    def is_empty(self, trees: Trees) -> bool:
        """Return True if `n_points` is 0; usually faster than counting."""

    def n_shown(self, trees: Trees) -> int:
        """Return the number of points shown so far.

        Without a window, a point that takes the place of a forgotten one does not increase this number.
        """

    def n_bytes(self) -> int:
        """Return the memory in bytes used in addition to the trees."""

    def reserve(self, n_coordinates: int) -> int:
        """Prepare for points of n_coordinates coordinates; return the number of slots per tree to allocate first."""

    def n_shared_rows(self, n_trees: int, n_values: int) -> int:
        """Return the length of the table of points that the trees share; 0 if they have points of their own."""

    def share_points(self, trees: Trees, sharing: Trees) -> bool:
        """Write the points of `trees` to the table of `sharing`, or return False; see `sharing_trees`."""

    def needs_owned_rows(self, n_rows: int) -> bool:
        """Return True if `build` must get n_rows rows as a copy, which no other thread can change."""

    def build(self, trees: Trees, X: Array, n_rows: int, scale: Scale, on_trees: OnTrees) -> None:
        """Build the trees, empty so far, on n_rows rows; X contains the latest of them or, without a window, all."""

    def block_length(self, n_rows: int) -> int:
        """Return how many of the next n_rows rows `extend` accepts in one call."""

    def extend(self, trees: Trees, X: Array, scale: Scale, on_trees: OnTrees) -> None:
        """Show the rows of X, one block, to the trees."""

    def scored_block_length(self, n_rows: int, kind: str) -> int:
        """Return how many of the next n_rows rows `score_and_extend` accepts in one call."""

    def score_and_extend(
        self, trees: Trees, X: Array, kind: str, scale: Scale, on_trees: OnTrees
    ) -> tuple[Array, list[Step]]:
        """Score each row of X, one block, and then show it to the trees; return the scores and the steps taken."""

    def score_and_extend_one(
        self, trees: Trees, x: Array, kind: str, scale: Scale, on_trees: OnTrees
    ) -> tuple[float, list[Step]]:
        """Like `score_and_extend` for one point, bit for bit."""

    def extend_scored(self, trees: Trees, x: Array, score: float, scale: Scale, on_trees: OnTrees) -> None:
        """Show one point that has already been scored."""

    def score_next(self, cache: ScoringCache, X: Array, kind: str, on_trees: OnTrees) -> Array:
        """Return the score that `score_and_extend` would give each row of X if it came next."""

    def prepared_forget(self, trees: Trees, X: Array, scale: Scale) -> Callable[[OnTrees], None]:
        """Return a function that forgets the rows of X and updates the scale.

        Raise InvalidInputError if a row cannot have been shown; nothing has changed then.
        """

    def points(self, trees: Trees) -> Array:
        """Return the points held, including copies."""

    def points_and_copies(self, trees: Trees) -> tuple[Array, Array]:
        """Return the points held and the number of copies of each, without listing the copies in a leaf."""

    def widened(self, trees: Trees, new: "NewFeatures") -> Self:
        """Return a sampler like this one with new features, which are the same in all points."""

    def check_join(self, state: dict[str, Array]) -> None:
        """Raise InvalidInputError if trees of another forest cannot be joined to this one.

        The state is that of the other forest's sampler.
        """

    def joined(self, trees: Trees, arrays: dict[str, Array], scale: Scale) -> Self:
        """Update the scale and `trees`, which already include the trees of another forest; return their sampler.

        `arrays` are the arrays of the other forest besides its trees.
        """

    def state(self) -> dict[str, Array]:
        """Return the arrays to be saved in addition to the trees, by name."""

    def layout(self, n_coordinates: int) -> dict[str, Layout]:
        """Return the shapes and types of the arrays that `state` returns; ANY stands for any length."""

    def restore(self, arrays: dict[str, Array]) -> None:
        """Restore what `state` returned; `problems` then yields what is wrong with it."""

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the restored arrays."""

    def tree_check(self) -> Check:
        """Return a check of trees that depends on this sampler."""


def not_held_error(X: Array, row: int) -> NotHeldError:
    """Return the error for a row that cannot be forgotten because the forest does not hold it."""
    point = np.array2string(X[row], threshold=10, max_line_width=1000)
    error = NotHeldError(f"X[{row}] = {point} is not in the forest, or X contains it more often than the forest does.")
    error.row = row
    return error

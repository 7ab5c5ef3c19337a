"""The sampler with a window: a ring buffer of the latest points, of which each tree holds a share."""

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Self

import numpy as np

from imondrian.base.errors import InvalidInputError
from imondrian.engine.invariants import Check, Problem
from imondrian.engine.jit import Array, call_without_dispatch
from imondrian.engine.nodes import MAX_COUNT, MAX_VALUE, Trees, shared_bytes, slice_trees, table_bytes
from imondrian.engine.threads import even_slices
from imondrian.engine.window import (
    Selection,
    StepPlan,
    build_on_window,
    find_foreign_points,
    forget_by_number,
    longest_step,
    share_points,
    slide_trees,
    slide_trees_by_one,
    step_length,
    write_typical_log_sizes,
)
from imondrian.forest.samplers.category_counts import CategoryCounts
from imondrian.forest.samplers.sampler import (
    ANY,
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
from imondrian.forest.scores import SCORES, ScoringCache

_ALL = slice(None)
_NO_POINT = Selection(0.0, 1)  # selects no point: for rows that are only scored
_LOOKUPS_PER_POINT = 256  # limit when a file is checked; more are needed only if most rows of a window are equal
_MAX_SEARCHED = 2**23  # trees times points of the window; searching them takes 5 ns each
_UNLIKELY = 60.0  # the probability that, at a given time, a tree needs more slots than it has is below exp(-60)


class Window:
    """Every tree holds a share of the latest points, or all of them; points that leave the window are forgotten.

    Strata are blocks of `selection.stratum` consecutive points. A tree holds at most one point of each stratum, so that
    the number of its slots is limited. Let n be the mean number of points that a tree holds: it has n + 1 slots if the
    window is a multiple of n, otherwise at most 1.5 n, rounded up. If `stratum` is 1, points are selected
    independently, and there are enough slots that, at any given time, the probability of needing more is below exp(-60)
    (a point without a free slot is not inserted). So memory is fixed. Trees read from a file get these slots only when
    points arrive. Feature weights, and the typical log sizes to which the score "size" is relative, are updated after
    every eighth of the window (until the window is full: whenever the number of points has grown by an eighth).

    Parameters
    ----------
    length : int
        Number of points in the window.
    selection : Selection
        Which points of the window a tree holds.
    counts : CategoryCounts, optional
        The counts of categories of the points in the window, none so far. Default: there are no categorical features.
    """

    def __init__(self, length: int, selection: Selection, counts: CategoryCounts | None = None) -> None:
        self.length = self.n_latest = length
        self.selection = selection
        self.counts = counts or CategoryCounts(0, 1)  # of the points in the ring
        self.limit = self.fixed_slots = capacity(length, selection)
        self.ring = np.empty((0, 0))
        self.number = 0  # number of the next point
        self.next_step = 1  # number of points after which weights and typical log sizes are updated next
        self.maintains_typical_sizes = False  # True after the first score of a kind that uses typical log sizes
        self.last_scored: ScoredRows | None = None
        self.updates = Updates()
        self._empty_plan: tuple[Array, StepPlan] | None = None  # weights, and the plan without steps for them

    def n_points(self, trees: Trees) -> int:
        """Return the number of points in the window."""
        return int(np.count_nonzero(~np.isnan(self.ring[:, 0])))

    def is_empty(self, trees: Trees) -> bool:
        """Return True if there is no point in the window."""
        return self.newest_point() is None

    def n_shown(self, trees: Trees) -> int:
        """Return the number of points shown, which is the number of the next point."""
        return self.number

    def n_bytes(self) -> int:
        """Return the size of the ring and of the counts of categories in bytes."""
        return self.ring.nbytes + self.counts.n_bytes

    def reserve(self, n_coordinates: int) -> int:
        """Allocate the ring and the counts of categories; return the fixed number of slots per tree."""
        self.ring = np.full((self.length, n_coordinates), np.nan)
        self.counts.reserve(self.length + 1)
        return self.limit

    def n_shared_rows(self, n_trees: int, n_values: int) -> int:
        """Return the length of the table of points that the trees share: the window and one block.

        Return 0 if separate points for each tree take no more memory, if there are categories (each tree has its own
        places for them: `engine/places.py`), or if searching the window for the points of trees from a file would take
        long.
        """
        n_rows, sizes = self.length + min(self.length, ROWS_PER_BLOCK), (n_trees, self.limit, n_values)
        is_smaller = shared_bytes(*sizes, n_rows) < table_bytes(*sizes)
        is_fast = n_trees * self.length <= _MAX_SEARCHED
        return n_rows if is_smaller and is_fast and self.counts.n_categorical == 0 else 0

    def share_points(self, trees: Trees, sharing: Trees) -> bool:
        """Write the points of `trees` to `sharing`, which `sharing_trees` made from them; False if it is impossible."""
        return bool(share_points(trees, sharing, self.ring, self.number, self.selection))

    def needs_owned_rows(self, n_rows: int) -> bool:
        """Return True: `build` writes rows to the ring without checking them again."""
        return True

    def build(self, trees: Trees, X: Array, n_rows: int, scale: Scale, on_trees: OnTrees) -> None:
        """Build every tree on its share of the rows of X, the latest of n_rows rows, as if all had been shown."""
        self.counts.restart(X)
        self._write_to_ring(X, n_rows - X.shape[0])
        self._take_step(trees, scale)
        weights = scale.weights()
        on_trees(
            lambda part: build_on_window(slice_trees(trees, part), self.ring, self.number, weights, self.selection)
        )
        trees.heads["next_number"] = self.number

    def block_length(self, n_rows: int) -> int:
        """Return the number of rows up to the next step."""
        return min(n_rows, self.next_step - self.number, ROWS_PER_BLOCK)

    def scored_block_length(self, n_rows: int, kind: str) -> int:
        """Return how many rows `score_and_extend` accepts.

        A kind that does not use typical log sizes cannot update them within a block: if they are maintained, the block
        ends at the next step.
        """
        if self.maintains_typical_sizes and not SCORES[kind].uses_typical_sizes:
            return self.block_length(n_rows)
        return min(n_rows, self.length, ROWS_PER_BLOCK)

    def extend(self, trees: Trees, X: Array, scale: Scale, on_trees: OnTrees) -> None:
        """Show the rows of X to every tree."""
        weights, number, count = scale.weights(), self.number, self._count_ahead(X)

        def show(part: slice) -> None:
            slide_trees(slice_trees(trees, part), self.ring, self.selection, number, X, weights)

        def finish() -> None:
            count()
            self._write_to_ring(X, number)
            if self.number >= self.next_step:
                self._take_step(trees, scale)

        self._show(trees, X.shape[0], show, finish, on_trees)

    def extend_scored(self, trees: Trees, x: Array, score: float, scale: Scale, on_trees: OnTrees) -> None:
        """Show one point that has already been scored, and record its score."""
        self.last_scored = ScoredRows(self.number, self.number + 1, lambda: (np.array([score]), []))
        self.extend(trees, x[None], scale, on_trees)

    def score_and_extend(
        self, trees: Trees, X: Array, kind: str, scale: Scale, on_trees: OnTrees
    ) -> tuple[Array, list[Step]]:
        """Score each row of X, one block, and then show it to the trees; return the scores and the steps taken.

        Steps are planned ahead, so that all rows of the block are processed in one tree before the next tree.
        """
        scoring = SCORES[kind]
        if scoring.uses_typical_sizes and not self.maintains_typical_sizes:
            write_typical_log_sizes(trees, scale.weights())
        count = self._count_ahead(X)
        steps, next_step, moments = self._plan_steps(trees, X, scale)
        parts, scores, number = np.empty((trees.heads.size, X.shape[0])), np.empty(X.shape[0]), self.number

        def show(part: slice) -> None:
            plan = StepPlan(steps.positions, steps.weights, steps.counts[part])
            scoring.slide(slice_trees(trees, part), self.ring, self.selection, number, X, plan, parts[part])

        def finish() -> None:
            count()
            self._write_to_ring(X, number)
            self.maintains_typical_sizes |= scoring.uses_typical_sizes
            if steps.positions.size:
                self.next_step = next_step
                scale.restore(moments)
                if not scoring.uses_typical_sizes:
                    self._update_typical_sizes(trees, scale)

        def read() -> tuple[Array, list[Step]]:
            scoring.combine(parts, scores)
            return scores, _steps_taken(steps)

        self.last_scored = ScoredRows(number, number + X.shape[0], read)
        self._show(trees, X.shape[0], show, finish, on_trees)
        results = read()
        self.last_scored = ScoredRows(number, number + X.shape[0], lambda: results)
        return results

    def score_and_extend_one(
        self, trees: Trees, x: Array, kind: str, scale: Scale, on_trees: OnTrees
    ) -> tuple[float, list[Step]]:
        """Like `score_and_extend` for one point, bit for bit, without the set-up that is worthwhile only for many."""
        if self.next_step == self.number + 1 or (SCORES[kind].uses_typical_sizes and not self.maintains_typical_sizes):
            scores, steps = self.score_and_extend(trees, x[None], kind, scale, on_trees)
            return float(scores[0]), steps
        weights, number, X = scale.weights(), self.number, x[None]
        count = self._count_ahead(X)
        score = SCORES[kind].score_next_row(trees, x, weights)

        def show(part: slice) -> None:
            call_without_dispatch(
                slide_trees_by_one, slice_trees(trees, part), self.ring, self.selection, number, X, weights
            )

        def finish() -> None:
            count()
            self._write_to_ring(X, number)

        self.last_scored = ScoredRows(number, number + 1, lambda: (np.array([score]), []))
        self._show(trees, 1, show, finish, on_trees)
        return score, []

    def score_next(self, cache: ScoringCache, X: Array, kind: str, on_trees: OnTrees) -> Array:
        """Return the score that `score_and_extend` would give each row of X if it came next; no row is learned."""
        if SCORES[kind].uses_typical_sizes and not self.maintains_typical_sizes:
            return SCORES[kind].score(cache, X)
        steps, blocks = self._plan_without_steps(cache.trees, cache.weights), even_slices(X.shape[0], ROWS_PER_BLOCK)
        return np.concatenate([self._score_block(cache.trees, X[rows], kind, steps, on_trees) for rows in blocks])

    def prepared_forget(self, trees: Trees, X: Array, scale: Scale) -> Callable[[OnTrees], None]:
        """Return a function that forgets the rows of X, and updates the weights and the typical log sizes.

        If the window holds a point more than once, its oldest copy is forgotten. The places of forgotten points in the
        ring become empty.
        """
        numbers = self._numbers_of(X)
        rows = numbers % self.length

        def finish() -> None:
            if self.counts.n_categorical:
                self.counts.restart(self.points(trees))  # writes rarities to a copy of the points
            self._restart_scale(scale)
            self._update_typical_sizes(trees, scale)

        update = TreeUpdate(
            apply=lambda _all: forget_by_number(trees, self.ring, self.selection, numbers),
            is_applied=lambda: np.isnan(self.ring[rows[:1], 0]),
            finish=finish,
        )
        return lambda _on_trees: self.updates.apply(update, _on_all)

    def points(self, trees: Trees) -> Array:
        """Return the points in the window, oldest first."""
        return self.numbered_points(0, self.number)

    def numbered_points(self, first: int, end: int) -> Array:
        """Return the points with the numbers first, ..., end - 1 that are in the ring, oldest first."""
        slots = self._slots(first, end)
        return self.ring[slots[~np.isnan(self.ring[slots, 0])]]

    def n_numbered_points(self, first: int, end: int) -> int:
        """Return how many of the points with the numbers first, ..., end - 1 are in the ring."""
        return int(np.count_nonzero(~np.isnan(self.ring[self._slots(first, end), 0])))

    def _slots(self, first: int, end: int) -> Array:
        """Return the rows of the ring for those of the numbers first, ..., end - 1 that have not left the window."""
        return np.arange(max(first, self.number - self.length, 0), min(end, self.number)) % self.length

    def points_and_copies(self, trees: Trees) -> tuple[Array, Array]:
        """Return the points in the window, oldest first, and a count of 1 for each: copies are listed separately."""
        points = self.points(trees)
        return points, np.ones(points.shape[0], np.int64)

    def newest_point(self) -> Array | None:
        """Return the newest point in the window, a view; None if there is none. Usually no other point is read."""
        newest = (self.number - 1) % self.length
        if math.isnan(self.ring[newest, 0]):  # it was forgotten, or there is none
            slots = np.arange(newest, newest - self.length, -1)
            held = slots[~np.isnan(self.ring[slots, 0])]
            if not held.size:
                return None
            newest = int(held[0])
        return self.ring[newest]

    def widened(self, trees: Trees, new: NewFeatures) -> Self:
        """Return a window like this one whose points have new features."""
        ring = new.rows(self.ring, self.counts.n_categorical)
        ring[np.isnan(self.ring[:, 0])] = np.nan
        wider = type(self)(self.length, self.selection, self.counts.widened(new.codes, self.n_points(trees)))
        wider.restore({**self.state(), "ring": ring})
        return wider

    def state(self) -> dict[str, Array]:
        """Return the ring and the clock: `number`, `next_step`, `maintains_typical_sizes` and the stratum."""
        clock = [self.number, self.next_step, self.maintains_typical_sizes, self.selection.stratum]
        return {"ring": self.ring, "clock": np.array(clock, np.int64)}

    def layout(self, n_coordinates: int) -> dict[str, Layout]:
        """Return the shapes and types of the ring and the clock."""
        return {"ring": ((self.length, n_coordinates), np.dtype(np.float64)), "clock": ((ANY,), np.dtype(np.int64))}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Restore the ring and the clock, and count the categories in the ring."""
        self.ring = arrays["ring"]
        self.counts.reserve(self.length + 1)
        if self.counts.n_categorical:
            self.counts.restart(_without_empty_rows(self.ring))  # a copy: the ring keeps its rarities
        self.number, self.next_step, maintains_typical_sizes, *strata = arrays["clock"].tolist()
        self.maintains_typical_sizes = bool(maintains_typical_sizes)
        self._set_stratum(*strata or [1])  # in older files, points are selected independently

    def _set_stratum(self, stratum: int) -> None:
        """Continue with the stratum stored in a file; raise ValueError unless it is 1 or that of a new window."""
        if stratum not in (1, self.selection.stratum):
            raise ValueError(f"the stratum of the window must be {self.selection.stratum} or 1, but is {stratum}.")
        self.selection = self.selection._replace(stratum=stratum)
        self.limit = self.fixed_slots = capacity(self.length, self.selection)

    def check_join(self, state: dict[str, Array]) -> None:
        """Raise InvalidInputError unless the other window holds the same points with the same numbers."""
        clock = self.state()["clock"]
        is_same = np.array_equal(state["clock"][[0, -1]], clock[[0, -1]])  # the number of points, and the stratum
        if not is_same or not np.array_equal(state["ring"], self.ring, equal_nan=True):
            raise InvalidInputError("The forests differ in the points that their windows have seen.")

    def joined(self, trees: Trees, arrays: dict[str, Array], scale: Scale) -> Self:
        """Update the typical log sizes; nothing else changes, because both windows hold the same points."""
        self._update_typical_sizes(trees, scale)
        return self

    def tree_check(self) -> Check:
        """Return the check that each tree holds only points of the window that it selects."""
        return self._trees_are_possible

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the ring and the clock."""
        empty = np.isnan(self.ring)
        if not ((np.abs(self.ring) <= MAX_VALUE) | empty).all() or (empty.any(axis=1) != empty.all(axis=1)).any():
            yield "a point of the window is not finite or too large"
        rarities = self._rarities_of(self.ring)
        if not ((rarities > 0.0) & (rarities <= 1.0) | np.isnan(rarities)).all():
            yield "a rarity in the window is not in (0, 1]"
        if not 0 <= self.number < self.next_step <= self.number + longest_step(self.number, self.length):
            yield "the clock of the window is impossible"
        elif self.number > MAX_COUNT:
            yield f"the window has been shown more than {MAX_COUNT} points"
        elif not empty[self.number :].all():
            yield "the window holds points that have not arrived yet"

    def head_problems(self, heads: Array) -> Iterator[Problem]:
        """Yield the checks of the heads of the trees."""
        yield "the tree has been shown other points", heads["next_number"] != self.number
        has_sample_state = [heads[name] != 0 for name in ("n_points", "n_owed", "next_kept", "log_key")]
        yield "a tree of a window has counters that only a tree without a window uses", np.any(has_sample_state, axis=0)
        n_taken, n_outside = heads["n_taken"], heads["n_outside"]
        yield "a counter is impossible", ~((n_outside >= 0) & (n_outside <= n_taken) & (n_taken <= self.number))
        yield "the typical log size is not finite", np.isinf(heads["typical_log_size"])

    # -- internal ---------------------------------------------------------------------------------------------

    def _count_ahead(self, X: Array) -> Callable[[], None]:
        """Write the rarities of the next rows; return a function that counts the rows and may be called twice."""
        if self.counts.n_categorical == 0:
            return _do_nothing
        leaving, n_updates = self._leaving_codes(X.shape[0]), self.counts.n_updates
        self.counts.write_rarities_in_turn(X, leaving)
        return lambda: self.counts.count(X, leaving, n_updates)

    def _leaving_codes(self, n_rows: int) -> Array:
        """Return the categories of the points that leave the window when the next rows arrive; NaN if none leaves."""
        n_codes = self.counts.n_categorical
        numbers = np.arange(self.number, self.number + n_rows)
        codes = self.ring[numbers % self.length, -n_codes:]
        codes[numbers < self.length] = np.nan
        return codes

    def _rarities_of(self, rows: Array) -> Array:
        """Return a view of the columns of coded rows that contain rarities."""
        n_codes, n_coordinates = self.counts.n_categorical, rows.shape[1]
        return rows[:, n_coordinates - 2 * n_codes : n_coordinates - n_codes]

    def _update_typical_sizes(self, trees: Trees, scale: Scale) -> None:
        """Set the typical log sizes to those of the current points, if they are maintained."""
        if self.maintains_typical_sizes:
            write_typical_log_sizes(trees, scale.weights())

    def _score_block(self, trees: Trees, X: Array, kind: str, steps: StepPlan, on_trees: OnTrees) -> Array:
        """Score the rows of X without showing them to the trees."""
        scoring = SCORES[kind]
        parts, scores = np.empty((trees.heads.size, X.shape[0])), np.empty(X.shape[0])
        on_trees(lambda part: scoring.slide(slice_trees(trees, part), self.ring, _NO_POINT, 0, X, steps, parts[part]))
        scoring.combine(parts, scores)
        return scores

    def _show(
        self, trees: Trees, n_rows: int, show: Callable[[slice], None], finish: Callable[[], None], on_trees: OnTrees
    ) -> None:
        """Show a block of rows to all trees and finish the update; threads are not worthwhile for one row."""
        after = self.number + n_rows
        update = TreeUpdate(show, lambda: trees.heads["next_number"] == after, finish)
        self.updates.apply(update, _on_all if n_rows == 1 else on_trees)

    def _plan_steps(self, trees: Trees, X: Array, scale: Scale) -> tuple[StepPlan, int, Array]:
        """Return the steps during the next rows, and the values of `next_step` and of the moments after these rows."""
        if self.next_step > self.number + X.shape[0]:
            return self._plan_without_steps(trees, scale.weights()), self.next_step, scale.moments
        ahead, next_step, positions, weights = scale.copy(), self.next_step, [], [scale.weights()]
        rows = np.vstack([self._oldest_first(), X]) if scale.is_adaptive else X
        while next_step <= self.number + X.shape[0]:
            positions.append(next_step - self.number)
            if scale.is_adaptive:
                points = _without_empty_rows(rows[positions[-1] : positions[-1] + self.length])
                ahead.restart(points, points.shape[0])
            weights.append(ahead.weights())
            next_step += step_length(next_step, self.length)
        return _step_plan(trees, positions, weights), next_step, ahead.moments

    def _plan_without_steps(self, trees: Trees, weights: Array) -> StepPlan:
        """Return a plan without steps; it is cached for the same weights, since most single points need it."""
        plan = self._empty_plan
        if plan is None or plan[0] is not weights or plan[1].counts.shape[0] != trees.heads.size:
            plan = self._empty_plan = weights, _step_plan(trees, [], [weights])
        return plan[1]

    def _write_to_ring(self, X: Array, number: int) -> None:
        """Write rows to the ring as points `number`, `number` + 1, ..."""
        first = number % self.length
        if X.shape[0] == 1:
            self.ring[first] = X[0]
            self.number = number + 1
            return
        n_before_end = min(X.shape[0], self.length - first)
        self.ring[first : first + n_before_end] = X[:n_before_end]
        self.ring[: X.shape[0] - n_before_end] = X[n_before_end:]
        self.number = number + X.shape[0]

    def _take_step(self, trees: Trees, scale: Scale) -> None:
        """Set the weights and the typical log sizes to those of the current window."""
        self._restart_scale(scale)
        self._update_typical_sizes(trees, scale)
        self.next_step = self.number + step_length(self.number, self.length)

    def _restart_scale(self, scale: Scale) -> None:
        """Compute the weights from the points in the window, in blocks: a copy of a long window takes much memory."""
        scale.restart(self.ring[:0], 0)
        for first in range(max(self.number - self.length, 0), self.number, ROWS_PER_BLOCK):
            scale.add(self.numbered_points(first, first + ROWS_PER_BLOCK))

    def _oldest_first(self) -> Array:
        """Return a copy of the rows of the ring, oldest first."""
        return np.roll(self.ring, -(self.number % self.length), axis=0)

    def _numbers_of(self, X: Array) -> Array:
        """Return the numbers of the rows of X in the window; raise InvalidInputError if one is not there."""
        first, numbers_by_row = max(self.number - self.length, 0), defaultdict[bytes, list[int]](list)
        wanted = {row.tobytes() for row in X}
        for end in range(self.number, first, -ROWS_PER_BLOCK):  # the oldest last, so that pop() returns it first
            slots = self._slots(max(end - ROWS_PER_BLOCK, first), end)[::-1]
            rows = self.ring[slots] + 0.0
            self._rarities_of(rows)[:] = 0.0  # as in X: rarities are not compared
            for age, row in enumerate(map(bytes, rows)):
                if row in wanted:
                    numbers_by_row[row].append(end - 1 - age)
        numbers = []
        for row in X:
            if not numbers_by_row[row.tobytes()]:
                raise not_held_error(X, int(np.flatnonzero((row == X).all(axis=1))[0]))
            numbers.append(numbers_by_row[row.tobytes()].pop())
        return np.array(numbers, np.int64)

    def _trees_are_possible(self, trees: Trees) -> Iterator[Problem]:
        heads = trees.heads
        yield from self.head_problems(heads)
        is_foreign, key = np.empty(heads.size, np.bool_), np.uint64(int.from_bytes(os.urandom(8)))
        max_lookups = _LOOKUPS_PER_POINT * (self.length + int(heads["n_leaves"].sum()))
        find_foreign_points(trees, self.ring, self.number, self.selection, key, max_lookups, is_foreign)
        n_held = trees.copies.sum(axis=1, dtype=np.int64)  # also limits points that were accepted without a look-up
        has_too_many = n_held > min(self.limit, self.n_points(trees))
        yield "the tree holds points that it would not select", is_foreign | has_too_many


def _do_nothing() -> None:
    """Count no categories."""


def _on_all(function: Callable[[slice], None]) -> None:
    """Apply a function to all trees in one call."""
    function(_ALL)


def _without_empty_rows(rows: Array) -> Array:
    """Return the rows of a ring that hold a point."""
    return rows[~np.isnan(rows[:, 0])]


def _step_plan(trees: Trees, positions: list[int], weights: list[Array]) -> StepPlan:
    counts = np.empty((trees.heads.size, len(positions), 2), np.int64)
    return StepPlan(np.array(positions, np.int64), np.array(weights), counts)


def _steps_taken(steps: StepPlan) -> list[Step]:
    if steps.positions.size == 0:
        return []
    counts = steps.counts.sum(axis=0, dtype=np.float64)  # the sum of large counts in a file may exceed 64 bits
    return [Step(int(i), int(n), int(outside)) for i, (n, outside) in zip(steps.positions, counts, strict=True)]


def selection_of(window: int, n_samples: int) -> Selection:
    """Return how a tree selects about n_samples points of a window; all points if window <= n_samples."""
    return Selection(min(n_samples / window, 1.0), max(window // n_samples, 1))


def capacity(length: int, selection: Selection) -> int:
    """Return the number of slots that a tree needs for the points of a window that it selects.

    A window overlaps at most ceil((length - 1) / stratum) + 1 strata, and a tree holds at most one point of each. If
    points are selected independently, the probability that a tree selects more points than it has slots, at any given
    time, is below exp(-60) (Chernoff's bound for a Poisson variable).
    """
    if selection.stratum > 1:
        return min((length + selection.stratum - 2) // selection.stratum + 1, length)
    mean = length * selection.share
    n = mean
    while n < length and n * math.log(n / mean) - (n - mean) < _UNLIKELY:
        n += 1
    return min(math.ceil(n), length)

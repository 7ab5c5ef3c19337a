"""A sampler of the latest points: a ring that all trees share, and what each tree holds of it."""

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Self

import numpy as np

from imondrian.engine.invariants import Check, Complaint
from imondrian.engine.jit import Array, direct
from imondrian.engine.nodes import MAX_SHOWN, MAX_SIZE, Trees, part
from imondrian.engine.threads import Threads, pieces
from imondrian.engine.window import (
    Steps,
    build_on_window,
    forget_numbers,
    slide_trees,
    slide_trees_by_one,
    write_levels,
    write_strangers,
)
from imondrian.samplers.sampler import ROWS_PER_BLOCK, Change, Changes, Layout, OnTrees, not_held_error
from imondrian.scales import Scale
from imondrian.scores import SCORES, Reading

_STEPS_PER_WINDOW = 8
_ALL = slice(None)
_LOOKS_PER_POINT = 256  # when a file is checked; only where most rows of a window are alike are there more
_MAX_TAKEN = 2.0**60  # points by all trees in a file: the sum stays far below 64 bits
_UNLIKELY = 60.0  # minus the log of the chance that a tree ever wants more room than it has


class Step(NamedTuple):
    """A step that a window took among the rows it was shown."""

    n_rows: int  # shown when it was taken
    n_taken: int  # points that the trees had taken by then, in all
    n_outside: int  # those of them that lay outside the root box


class Scored(NamedTuple):
    """Rows that were scored and then shown to the trees."""

    first: int  # number of the first of them
    end: int  # number of the point after the last
    read: Callable[[], tuple[Array, list[Step]]]  # their scores, and the steps taken on the way


class Window:
    """Every tree holds a share of the latest points, or all of them; those that leave the window are forgotten.

    Memory is fixed: the ring of the points, and room in each tree for so many that it wants more with a chance below
    exp(-60) at any time (then it passes one by). Feature weights, and the level that `size` compares with, move on in
    steps of an eighth of the window.
    """

    def __init__(self, length: int, share: float) -> None:
        self.length = length
        self.share = share
        self.limit = _room(length, share)
        self.ring = np.empty((0, 0))
        self.number = 0  # of the next point
        self.next_step = 1  # the number at which weights and levels move on
        self.keeps_levels = False  # from the first score by size on
        self.scored: Scored | None = None  # the last rows that were scored and shown
        self.changes = Changes()
        self._plan: tuple[Array, Steps] | None = None  # for rows among which there is no step, and its weights

    def n_points(self, trees: Trees) -> int:
        """Count the points in the window."""
        return int(np.count_nonzero(~np.isnan(self.ring[:, 0])))

    def n_shown(self, trees: Trees) -> int:
        """Return the number of the next point."""
        return self.number

    def n_bytes(self) -> int:
        """Give the size of the ring."""
        return self.ring.nbytes

    def reserve(self, n_features: int) -> int:
        """Make the ring; trees have all their room from the start."""
        self.ring = np.full((self.length, n_features), np.nan)
        return self.limit

    def build(self, trees: Trees, X: Array, scale: Scale, on_trees: OnTrees) -> None:
        """Build every tree on its share of the last rows of X, as if all rows had passed by."""
        self._write(X[-self.length :], X.shape[0] - min(X.shape[0], self.length))
        self._step(trees, scale)
        weights = scale.weights()
        on_trees(lambda some: build_on_window(part(trees, some), self.ring, self.number, weights, self.share))
        trees.heads["next_number"] = self.number

    def block(self, n_rows: int) -> int:
        """Show as many as come before the next step."""
        return min(n_rows, self.next_step - self.number, ROWS_PER_BLOCK)

    def scored_block(self, n_rows: int, kind: str) -> int:
        """Tell how many of that many rows `score_and_extend` can take: only "size" keeps levels up on the way."""
        if self.keeps_levels and kind != "size":
            return self.block(n_rows)
        return min(n_rows, self.length, ROWS_PER_BLOCK)

    def extend(self, trees: Trees, X: Array, scale: Scale, on_trees: OnTrees) -> None:
        """Show the rows of X to every tree."""
        weights, number = scale.weights(), self.number

        def show(some: slice) -> None:
            slide_trees(part(trees, some), self.ring, self.share, number, X, weights)

        def move_on() -> None:
            self._write(X, number)
            if self.number >= self.next_step:
                self._step(trees, scale)

        self._show(trees, X.shape[0], show, move_on, on_trees)

    def extend_scored(self, trees: Trees, x: Array, score: float, scale: Scale, on_trees: OnTrees) -> None:
        """Show one point that has been scored, and keep its score in `scored`."""
        self.scored = Scored(self.number, self.number + 1, lambda: (np.array([score]), []))
        self.extend(trees, x[None], scale, on_trees)

    def score_and_extend(
        self, trees: Trees, X: Array, kind: str, scale: Scale, on_trees: OnTrees
    ) -> tuple[Array, list[Step]]:
        """Score each of the rows of X, a `scored_block`, before it is shown to the trees.

        Gives also the steps taken. They are planned ahead, so that a tree can pass over all rows in one go.
        """
        if kind == "size" and not self.keeps_levels:
            write_levels(trees, scale.weights())
            self.keeps_levels = True  # only now: an interruption in between would leave levels unknown
        scoring = SCORES[kind]
        steps, next_step, moments = self._planned(trees, X, scale)
        parts, scores, number = np.empty((trees.heads.size, X.shape[0])), np.empty(X.shape[0]), self.number

        def show(some: slice) -> None:
            of_some = Steps(steps.ends, steps.weights, steps.counts[some])
            scoring.slide(part(trees, some), self.ring, self.share, number, X, of_some, parts[some])

        def move_on() -> None:
            self._write(X, number)
            if steps.ends.size:
                self.next_step = next_step
                scale.restore(moments)
                if kind != "size":
                    self.refresh_levels(trees, scale)

        def read() -> tuple[Array, list[Step]]:
            scoring.make(parts, scores)
            return scores, _steps_taken(steps)

        self.scored = Scored(number, number + X.shape[0], read)
        self._show(trees, X.shape[0], show, move_on, on_trees)
        outcome = read()
        self.scored = Scored(number, number + X.shape[0], lambda: outcome)
        return outcome

    def score_and_extend_one(
        self, trees: Trees, x: Array, kind: str, scale: Scale, on_trees: OnTrees
    ) -> tuple[float, list[Step]]:
        """Do as `score_and_extend` with one point, to the last bit, and without what only many are worth."""
        if self.next_step == self.number + 1 or (kind == "size" and not self.keeps_levels):
            scores, steps = self.score_and_extend(trees, x[None], kind, scale, on_trees)
            return float(scores[0]), steps
        weights, number, X = scale.weights(), self.number, x[None]
        score = SCORES[kind].of_sliding_row(trees, x, weights)

        def show(some: slice) -> None:
            direct(slide_trees_by_one, part(trees, some), self.ring, self.share, number, X, weights)

        self.scored = Scored(number, number + 1, lambda: (np.array([score]), []))
        self._show(trees, 1, show, partial(self._write, X, number), on_trees)
        return score, []

    def score(self, trees: Trees, X: Array, kind: str, scale: Scale, on_trees: OnTrees) -> Array:
        """Score the rows of X as `score_and_extend` would if they came next: as points that no tree chooses."""
        if kind == "size" and not self.keeps_levels:
            return SCORES[kind].of(Reading(trees, scale.weights(), Threads(1)), X)
        steps, blocks = self._no_steps(trees, scale), pieces(X.shape[0], ROWS_PER_BLOCK)
        return np.concatenate([self._scores(trees, X[rows], kind, steps, on_trees) for rows in blocks])

    def forget(self, trees: Trees, X: Array, scale: Scale, on_trees: OnTrees) -> None:
        """Forget the rows of X, of copies the oldest; they leave gaps in the window. Weights and levels move on."""
        numbers = self._numbers_of(X)
        places = numbers % self.length

        def follow() -> None:
            points = self.points(trees)
            scale.restart(points, points.shape[0])
            self.refresh_levels(trees, scale)

        change = Change(
            make=lambda _all: forget_numbers(trees, self.ring, self.share, numbers),
            is_made=lambda: np.isnan(self.ring[places[:1], 0]),
            finish=follow,
        )
        self.changes.make(change, _on_all)

    def points(self, trees: Trees) -> Array:
        """List the points in the window, the oldest first."""
        return _held(self._ordered())

    def widened(self, n_features: int) -> Self:
        """Return a window like this one whose points have more features, all 0."""
        more = np.zeros((self.length, n_features - self.ring.shape[1]))
        more[np.isnan(self.ring[:, 0])] = np.nan
        wider = type(self)(self.length, self.share)
        wider.restore({**self.state(), "ring": np.hstack([self.ring, more])})
        return wider

    def state(self) -> dict[str, Array]:
        """Give the ring and the clock."""
        return {"ring": self.ring, "clock": np.array([self.number, self.next_step, self.keeps_levels], np.int64)}

    def layout(self, n_features: int) -> dict[str, Layout]:
        """Give shape and type of the ring and the clock."""
        return {"ring": ((self.length, n_features), np.dtype(np.float64)), "clock": ((3,), np.dtype(np.int64))}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Take over a ring and a clock."""
        self.ring = arrays["ring"]
        self.number, self.next_step = (int(value) for value in arrays["clock"][:2])
        self.keeps_levels = bool(arrays["clock"][2])

    def has_seen_the_same(self, state: dict[str, Array]) -> bool:
        """Tell whether the window with that state holds the same points under the same numbers."""
        return bool(state["clock"][0] == self.number) and np.array_equal(state["ring"], self.ring, equal_nan=True)

    def refresh_levels(self, trees: Trees, scale: Scale) -> None:
        """Take the levels anew, where they are kept up."""
        if self.keeps_levels:
            write_levels(trees, scale.weights())

    def check(self) -> Check:
        """Demand that trees hold no points but those of the window that they choose."""
        return self._trees_are_possible

    def complaints(self) -> Iterator[str]:
        """Say what is wrong with the ring and the clock."""
        empty = np.isnan(self.ring)
        if not ((np.abs(self.ring) <= MAX_SIZE) | empty).all() or (empty.any(axis=1) != empty.all(axis=1)).any():
            yield "a point of the window is not finite or too large"
        if not 0 <= self.number < self.next_step <= self.number + _longest_step(self.number, self.length):
            yield "the clock of the window is impossible"
        elif self.number > MAX_SHOWN:
            yield f"the window has been shown more than {MAX_SHOWN} points"
        elif not empty[self.number :].all():
            yield "the window holds points that have not come yet"

    # -- inside -----------------------------------------------------------------------------------------------

    def _scores(self, trees: Trees, X: Array, kind: str, steps: Steps, on_trees: OnTrees) -> Array:
        """Score the rows of X, and show them to no tree."""
        scoring = SCORES[kind]
        parts, scores = np.empty((trees.heads.size, X.shape[0])), np.empty(X.shape[0])
        on_trees(lambda some: scoring.slide(part(trees, some), self.ring, 0.0, 0, X, steps, parts[some]))
        scoring.make(parts, scores)
        return scores

    def _show(
        self, trees: Trees, n_rows: int, show: Callable[[slice], None], move_on: Callable[[], None], on_trees: OnTrees
    ) -> None:
        """Show a block to all trees and move on; one row is too little for threads."""
        after = self.number + n_rows
        change = Change(show, lambda: trees.heads["next_number"] == after, move_on)
        self.changes.make(change, _on_all if n_rows == 1 else on_trees)

    def _planned(self, trees: Trees, X: Array, scale: Scale) -> tuple[Steps, int, Array]:
        """Find the steps that fall among the coming rows; give also the next step after them, and the moments then."""
        if self.next_step > self.number + X.shape[0]:
            return self._no_steps(trees, scale), self.next_step, scale.moments
        ahead, next_step, ends, weights = scale.copy(), self.next_step, [], [scale.weights()]
        rows = np.vstack([self._ordered(), X]) if scale.moves else X
        while next_step <= self.number + X.shape[0]:
            ends.append(next_step - self.number)
            if scale.moves:
                points = _held(rows[ends[-1] : ends[-1] + self.length])
                ahead.restart(points, points.shape[0])
            weights.append(ahead.weights())
            next_step += _step_length(next_step, self.length)
        return _steps(trees, ends, weights), next_step, ahead.moments

    def _no_steps(self, trees: Trees, scale: Scale) -> Steps:
        """Plan none; the plan is made once for the same weights, since single points need it one after the other."""
        weights = scale.weights()
        if self._plan is None or self._plan[0] is not weights or self._plan[1].counts.shape[0] != trees.heads.size:
            self._plan = weights, _steps(trees, [], [weights])
        return self._plan[1]

    def _write(self, X: Array, number: int) -> None:
        place = number % self.length
        if X.shape[0] == 1:
            self.ring[place] = X[0]
            self.number = number + 1
            return
        n_first = min(X.shape[0], self.length - place)
        self.ring[place : place + n_first] = X[:n_first]
        self.ring[: X.shape[0] - n_first] = X[n_first:]
        self.number = number + X.shape[0]

    def _step(self, trees: Trees, scale: Scale) -> None:
        """Let the weights and the levels move on to those of the present window."""
        points = self.points(trees)
        scale.restart(points, points.shape[0])
        self.refresh_levels(trees, scale)
        self.next_step = self.number + _step_length(self.number, self.length)

    def _ordered(self) -> Array:
        """Copy the rows of the ring, the oldest first."""
        return np.roll(self.ring, -(self.number % self.length), axis=0)

    def _numbers_of(self, X: Array) -> Array:
        """Find the rows of X in the window."""
        first = max(self.number - self.length, 0)
        places: dict[bytes, list[int]] = defaultdict(list)
        for number in range(self.number - 1, first - 1, -1):  # the oldest come last, to be popped first
            places[(self.ring[number % self.length] + 0.0).tobytes()].append(number)
        numbers = []
        for row in X:
            if not places[row.tobytes()]:
                raise not_held_error(X, int(np.flatnonzero((row == X).all(axis=1))[0]))
            numbers.append(places[row.tobytes()].pop())
        return np.array(numbers, np.int64)

    def _trees_are_possible(self, trees: Trees) -> Iterator[Complaint]:
        heads = trees.heads
        yield "the tree has been shown other points", heads["next_number"] != self.number
        of_sample = [heads[name] != 0 for name in ("n_points", "n_owed", "next_kept", "log_key")]
        yield "a sample is spoken of where there is a window", np.any(of_sample, axis=0)
        n_taken, n_outside = heads["n_taken"], heads["n_outside"]
        yield "a counter is impossible", ~((n_outside >= 0) & (n_outside <= n_taken) & (n_taken <= self.number))
        yield "the trees have taken too many points", np.full(heads.size, n_taken.astype(float).sum() > _MAX_TAKEN)
        yield "the level is not finite", np.isinf(heads["level"])
        strange, key = np.empty(heads.size, np.bool_), np.uint64(int.from_bytes(os.urandom(8)))
        most_looks = _LOOKS_PER_POINT * (self.length + int(heads["n_leaves"].sum()))
        write_strangers(trees, self.ring, self.number, self.share, key, most_looks, strange)
        yield "the tree holds points that are not its own", strange


def _on_all(change: Callable[[slice], None]) -> None:
    """Change all trees in one call."""
    change(_ALL)


def _held(rows: Array) -> Array:
    """Leave out the rows of a ring that hold nothing."""
    return rows[~np.isnan(rows[:, 0])]


def _step_length(number: int, window: int) -> int:
    """Give the way from a step to the next: an eighth of what is in the window; once it is full, of that, evenly."""
    length = _longest_step(number, window)
    return length if number < window else length - number % length


def _longest_step(number: int, window: int) -> int:
    """Return the most points that can lie between two steps of which the first was taken at `number` or before."""
    return max(min(number, window) // _STEPS_PER_WINDOW, 1)


def _steps(trees: Trees, ends: list[int], weights: list[Array]) -> Steps:
    return Steps(np.array(ends, np.int64), np.array(weights), np.empty((trees.heads.size, len(ends), 2), np.int64))


def _steps_taken(steps: Steps) -> list[Step]:
    if steps.ends.size == 0:
        return []
    counts = steps.counts.sum(axis=0)
    return [Step(int(end), int(n), int(outside)) for end, (n, outside) in zip(steps.ends, counts, strict=True)]


def _room(length: int, share: float) -> int:
    """Give the number of points that a tree hardly ever exceeds (Chernoff's bound for a Poisson number)."""
    mean = length * share
    n = mean
    while n < length and n * math.log(n / mean) - (n - mean) < _UNLIKELY:
        n += 1
    return min(math.ceil(n), length)

"""How far a stream detector has come: all that it counts and keeps beside its forest."""

from typing import Any, NamedTuple

import numpy as np

from imondrian.copying import shallow_copy
from imondrian.drift import Drift, DriftMonitor, count_in_bin
from imondrian.engine.jit import Array, direct, kernel
from imondrian.engine.nodes import MAX_SHOWN
from imondrian.errors import InvalidInputError
from imondrian.samplers import Step
from imondrian.shingles import Shingle
from imondrian.thresholds import StreamingThreshold, count_score

N_SEEN, N_SKIPPED, N_SCORED, N_DRIFTS, N_SHOWN = range(5)
N_DRIFTS_KEPT = 16


class Judged(NamedTuple):
    """What was said of points, in their order."""

    score: Array
    is_anomaly: Array
    threshold: Array


class Progress:
    """Counts, threshold, drift monitor, shingle and feature names of a detector.

    A detector changes a copy and then puts it in the place of the old one, so that an interruption finds the one or
    the other. `count_row` changes all that one row changes in a single call of a kernel, which nothing interrupts.

    Attributes
    ----------
    counts : int64 array
        Rows seen, rows skipped, points scored, drifts reported, and points that the forest had been shown.
    """

    def __init__(self, shingle: Shingle, threshold: StreamingThreshold, window: int, warm_up: int) -> None:
        self.shingle, self.threshold, self.monitor = shingle, threshold, DriftMonitor()
        self.names: list[Any] | None = None
        self.drifts: tuple[Drift, ...] = ()
        self.counts = np.zeros(5, np.int64)
        self._window, self._warm_up = window, warm_up

    def copy(self) -> "Progress":
        """Return another that goes on without this one."""
        other = shallow_copy(self)
        other.shingle, other.threshold = self.shingle.copy(), self.threshold.copy()
        other.monitor, other.counts = self.monitor.copy(), self.counts.copy()
        return other

    def prepared(self, rows: Array, names: list[Any] | None) -> "tuple[Progress, Array]":
        """Return another that has taken in rows but has not counted them yet, and the points that they complete."""
        other = shallow_copy(self)
        other.shingle, other.names = self.shingle.copy(), names
        return other, other.shingle.points(rows)

    @property
    def n_seen(self) -> int:
        """Number of rows so far."""
        return self.counts.item(N_SEEN)

    @property
    def n_scored(self) -> int:
        """Number of points scored so far."""
        return self.counts.item(N_SCORED)

    @property
    def is_warm(self) -> bool:
        """Whether the warm-up is over, so that the next point can be called an anomaly."""
        return self.n_scored >= self._warm_up

    @property
    def is_counting(self) -> bool:
        """Whether the next score counts for the threshold: those of the first half of the warm-up do not."""
        return self.n_scored >= self._warm_up // 2

    @property
    def n_alike(self) -> int:
        """How many points are treated alike: up to the next half of the warm-up."""
        turns = (turn - self.n_scored for turn in (self._warm_up // 2, self._warm_up))
        return min((n for n in turns if n > 0), default=MAX_SHOWN)

    @property
    def n_bytes(self) -> int:
        """Memory taken, in which a full shingle is counted from the start."""
        arrays = (self.threshold.histogram, self.monitor.present, self.monitor.before, self.monitor.moments)
        return sum(array.nbytes for array in arrays) + (self.shingle.size - 1) * self.shingle.n_features * 8

    def check_growth(self, n_rows: int) -> int:
        """Return the number of rows so far, or raise if so many more cannot be counted."""
        n_seen = self.n_seen
        if n_seen + n_rows > MAX_SHOWN:
            raise InvalidInputError(f"The detector has seen {n_seen} rows, and can count {MAX_SHOWN} at most.")
        return n_seen

    def skip(self, n_rows: int) -> None:
        """Count rows that cannot be used."""
        self.counts += np.array([n_rows, n_rows, 0, 0, 0])

    def observe(self, scores: Array, steps: list[Step]) -> Judged:
        """Judge scores that are treated alike, and count them."""
        is_warm = self.is_warm
        if self.is_counting:
            threshold = self.threshold.observe(scores)
        else:
            threshold = np.full(scores.size, self.threshold.threshold)
        self._watch(scores, steps)
        self.counts[N_SEEN] += scores.size
        self.counts[N_SCORED] += scores.size
        return Judged(scores, (scores > threshold) & is_warm, threshold)

    def count_row(self, score: float) -> None:
        """Count the score of one row that was shown to the forest, where no step ends with it."""
        threshold = self.threshold
        direct(
            count_row, threshold.histogram, threshold.clock, self.monitor.present, self.counts, score, threshold.growth
        )

    def _watch(self, scores: Array, steps: list[Step]) -> None:
        """Let the drift monitor look at the scores, block by block: its blocks are the steps of a full window."""
        first = 0
        for step in steps:
            self.monitor.count(scores[first : step.n_rows])
            first, index = step.n_rows, self.n_seen + step.n_rows - 1
            if self.monitor.began[1] >= 0:
                self._report(self.monitor.close(step.n_taken, step.n_outside, index))
            elif self.n_scored + step.n_rows >= self._window:
                self.monitor.begin(step.n_taken, step.n_outside, index)
        self.monitor.count(scores[first:])

    def _report(self, drift: Drift | None) -> None:
        if drift is not None:
            self.drifts = (*self.drifts, drift)[-N_DRIFTS_KEPT:]
            self.counts[N_DRIFTS] = min(self.counts[N_DRIFTS] + 1, MAX_SHOWN)


@kernel
def count_row(histogram: Array, clock: Array, bins: Array, counts: Array, score: float, growth: float) -> None:
    """Count the score of one row everywhere."""
    count_score(histogram, clock, score, growth)
    count_in_bin(bins, score)
    counts[N_SEEN] += 1
    counts[N_SCORED] += 1
    counts[N_SHOWN] += 1

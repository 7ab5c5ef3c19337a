"""Drift detection: reports lasting changes of a stream.

The stream is divided into blocks. Two statistics of each block are compared with those of earlier blocks. One is the
share of insertions (of a point into a tree) in which the point lies outside the tree's root box; the other is the
Kolmogorov distance between the histograms of the block's scores and of all earlier scores. A block is unusual if a
statistic lies more than five standard deviations above its mean over at least eight earlier blocks. One unusual block
may be a burst and is left out of the reference; two in a row are a drift. After a drift, a new reference is collected.
Neither points nor scores are stored.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from imondrian.base.copying import shallow_copy
from imondrian.engine.histogram import count_in_bins
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_COUNT
from imondrian.forest.inputs import as_count, number_or_nan

_N_BINS = 64
_MIN_BLOCKS = 8
_N_DEVIATIONS = 5.0
_KOLMOGOROV_DEVIATION = 0.26  # standard deviation of the Kolmogorov distribution
_COUNT, _MEAN, _SQUARES = 0, 1, 2
_MAX_INSERTIONS = 2**100  # limit of the counts in a file, which are sums over all trees; no forest can reach it
OUTSIDE, SCORES = "outside", "scores"


class Drift(NamedTuple):
    """A report of a lasting change of the stream."""

    index: int  # type: ignore[assignment]  # index of the row at which the drift was detected (hides tuple.index)
    since: int  # index of the first row of the first unusual block
    what: str  # "outside": more points outside the root boxes; "scores": the histogram of scores has changed
    value: float  # the statistic of the last block
    usual: float  # its mean over the earlier blocks


def restored_drift(index: Any, since: Any, what: Any, value: Any, usual: Any) -> Drift:
    """Return a drift from the fields stored in a file; raise ValueError if they are invalid."""
    if what not in (OUTSIDE, SCORES):
        raise ValueError(f"the kind of a drift must be {OUTSIDE!r} or {SCORES!r}, but is {what!r}.")
    index = as_count(index, "the row of a drift", 0, MAX_COUNT)
    since = as_count(since, "the first row of a drift", 0, index)
    statistics = [number_or_nan(value), number_or_nan(usual)]
    if not np.isfinite(statistics).all():
        raise ValueError(f"the statistics of a drift must be finite numbers, but are {value!r:.99} and {usual!r:.99}.")
    return Drift(index, since, what, *statistics)


class DriftMonitor:
    """Detects drift from two statistics of each block of a stream; the caller decides where blocks end.

    Examples
    --------
    >>> import numpy as np
    >>> rng, monitor = np.random.default_rng(0), DriftMonitor()
    >>> monitor.begin(n_taken=0, n_outside=0, index=-1)
    >>> for i in range(1, 21):
    ...     monitor.count(rng.uniform(0.3, 0.6, 100))
    ...     drift = monitor.close(n_taken=1000 * i, n_outside=70 * i, index=100 * i - 1)
    ...     assert drift is None
    >>> for i in range(21, 23):
    ...     monitor.count(rng.uniform(0.3, 0.6, 100))
    ...     drift = monitor.close(n_taken=1000 * i, n_outside=1400 + 900 * (i - 20), index=100 * i - 1)
    >>> drift.what, drift.since, drift.index
    ('outside', 2000, 2199)
    """

    def __init__(self) -> None:
        self.present = np.zeros(_N_BINS)  # histogram of the scores in the current block
        self.before = np.zeros(_N_BINS)  # histogram of the scores in earlier blocks
        self.moments = np.zeros((2, 3))  # of each statistic: count, mean, sum of squared deviations
        self.counts = [0, 0]  # insertions before the current block, and those of points outside the root box
        self.began = [-1, -1]  # index of the first row of the previous and of the current block; -1: no such block
        self.was_unusual = False  # whether the previous block was unusual

    def copy(self) -> "DriftMonitor":
        """Return an independent copy."""
        other = shallow_copy(self)
        other.present, other.before, other.moments = self.present.copy(), self.before.copy(), self.moments.copy()
        return other

    def begin(self, n_taken: int, n_outside: int, index: int) -> None:
        """Begin a block after row `index`; the counts are totals of insertions, and of those outside the root box."""
        self.present[:] = 0.0
        self.counts = [n_taken, n_outside]
        self.began = [self.began[1], index + 1]

    def count(self, scores: Array) -> None:
        """Count scores in the current block. Scores before the first block are dropped when it begins."""
        count_in_bins(self.present, scores)

    def close(self, n_taken: int, n_outside: int, index: int) -> Drift | None:
        """End the block after row `index` and begin the next; return a Drift if one is detected."""
        drift = self._evaluate(n_taken - self.counts[0], n_outside - self.counts[1], index)
        self.begin(n_taken, n_outside, index)
        return drift

    def _evaluate(self, n_taken: int, n_outside: int, index: int) -> Drift | None:
        share = min(max(n_outside / max(n_taken, 1), 0.0), 1.0)  # counts decrease if the forest is built again
        statistics = {OUTSIDE: share, SCORES: self._distance()}
        unusual = next((what for what, value in statistics.items() if self._is_unusual(what, value)), None)
        if unusual is None:
            self._learn(statistics)
        if unusual is None or not self.was_unusual:
            self.was_unusual = unusual is not None
            return None
        value, usual = float(statistics[unusual]), float(self._moments_of(unusual)[_MEAN])
        drift = Drift(index, self.began[0], unusual, value, usual)
        self.before[:], self.moments[:], self.was_unusual = 0.0, 0.0, False
        return drift

    def state(self) -> dict[str, Any]:
        """Return the state in types that JSON supports."""
        arrays = {name: getattr(self, name).tolist() for name in ("present", "before", "moments")}
        return {"counts": self.counts, "began": self.began, "was_odd": self.was_unusual, **arrays}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned.

        Raises
        ------
        ValueError
            If the state is invalid.
        """
        for name in ("present", "before", "moments"):
            array = np.array(state[name], dtype=np.float64)
            if array.shape != getattr(self, name).shape or not ((array >= 0.0) & (array <= MAX_COUNT)).all():
                raise ValueError(f"the state of the drift monitor is damaged: {name}.")
            setattr(self, name, array)
        if (self.moments[:, _MEAN] > 1.0).any():
            raise ValueError("the state of the drift monitor is damaged: the mean of a statistic is above 1.")
        if not isinstance(state["was_odd"], bool):
            raise ValueError("the state of the drift monitor is damaged: was_odd.")  # noqa: TRY004
        self.counts = [as_count(n, "a count of the drift monitor", 0, _MAX_INSERTIONS) for n in state["counts"]]
        self.began = [as_count(row, "a row of the drift monitor", -1, 2**62) for row in state["began"]]
        if len(self.counts) != 2:
            raise ValueError("the state of the drift monitor is damaged: counts.")
        if len(self.began) != 2:
            raise ValueError("the state of the drift monitor is damaged: began.")
        previous, current = self.began
        if previous > current or (state["was_odd"] and previous < 0):
            raise ValueError("the state of the drift monitor is damaged: began.")
        self.was_unusual = state["was_odd"]

    def _moments_of(self, what: str) -> Array:
        return self.moments[0 if what == OUTSIDE else 1]

    def _distance(self) -> float:
        """Return the Kolmogorov distance between the scores of the current block and the earlier ones."""
        if not (self.before.any() and self.present.any()):
            return 0.0
        difference = np.cumsum(self.present) / self.present.sum() - np.cumsum(self.before) / self.before.sum()
        return float(np.abs(difference).max())

    def _is_unusual(self, what: str, value: float) -> bool:
        count, mean, squares = self._moments_of(what)
        if count < _MIN_BLOCKS:
            return False
        deviation = max(math.sqrt(squares / (count - 1)), self._least_deviation(what, mean))
        return bool(value > mean + _N_DEVIATIONS * deviation)

    def _least_deviation(self, what: str, mean: float) -> float:
        """Return the standard deviation that a statistic has by chance alone, as a lower bound."""
        n = max(self.present.sum(), 1.0)
        if what == OUTSIDE:
            share = min(max(mean, 1.0 / n), 0.5)
            return math.sqrt(share * (1.0 - share) / n)
        return _KOLMOGOROV_DEVIATION / math.sqrt(n)

    def _learn(self, statistics: dict[str, float]) -> None:
        """Add the current block to the earlier ones (Welford's method)."""
        for what, value in statistics.items():
            if what == OUTSIDE or self.before.any():  # the first block has no distance to earlier ones
                moments = self._moments_of(what)
                moments[_COUNT] += 1
                deviation = value - moments[_MEAN]
                moments[_MEAN] += deviation / moments[_COUNT]
                moments[_SQUARES] += deviation * (value - moments[_MEAN])
        np.minimum(self.before + self.present, MAX_COUNT, out=self.before)

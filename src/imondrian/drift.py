"""Drift: telling that a stream has moved for good, from how often points lie outside and from how scores are spread.

The stream is looked at in blocks. Two figures of each block are held against those of the blocks before it: the share
of points outside the root box of a tree that takes them, and the distance (Kolmogorov's) between the histogram of the
block's scores and that of all blocks before. A block is odd if a figure lies more than five standard deviations above
its mean over at least eight blocks. One odd block may be a burst; two in a row are a drift. Afterwards the figures are
gathered anew. No point and no score is kept.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from imondrian.copying import shallow_copy
from imondrian.engine.jit import Array, kernel
from imondrian.engine.nodes import MAX_SHOWN
from imondrian.inputs import as_count

_N_BINS = 64
_N_BLOCKS_BEFORE = 8
_N_DEVIATIONS = 5.0
_COUNT, _MEAN, _SQUARES = 0, 1, 2
OUTSIDE, SCORES = "outside", "scores"


@kernel
def count_in_bins(bins: Array, scores: Array) -> None:
    """Count scores in even bins over [0, 1]."""
    for score in scores:
        count_in_bin(bins, score)


@kernel
def count_in_bin(bins: Array, score: float) -> None:
    """Count a score in its bin."""
    if 0.0 <= score <= 1.0:
        bins[min(int(score * bins.size), bins.size - 1)] += 1.0


class Drift(NamedTuple):
    """A report that the stream has moved for good."""

    index: int  # type: ignore[assignment]  # hides tuple.index; of the row at which it was noticed
    since: int  # of the first row of the first odd block
    what: str  # "outside": more points outside the root boxes; "scores": their histogram has moved
    value: float  # of that figure in the last block
    usual: float  # its mean over the blocks before


class DriftMonitor:
    """The two figures of a stream of scores, block by block; whoever counts the scores says where a block ends.

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
        self.present = np.zeros(_N_BINS)
        self.before = np.zeros(_N_BINS)
        self.moments = np.zeros((2, 3))  # of both figures: count, mean, sum of squared deviations
        self.counts = [0, 0]  # points taken, and outside, up to the present block
        self.began = [-1, -1]  # the first rows of the last block and of the present one; -1 before there is any
        self.was_odd = False  # the last block

    def copy(self) -> "DriftMonitor":
        """Return another that goes on without this one."""
        other = shallow_copy(self)
        other.present, other.before, other.moments = self.present.copy(), self.before.copy(), self.moments.copy()
        return other

    def begin(self, n_taken: int, n_outside: int, index: int) -> None:
        """Begin a block after the row of that index, when so many points had been taken, so many of them outside."""
        self.present[:] = 0.0
        self.counts = [n_taken, n_outside]
        self.began = [self.began[1], index + 1]

    def count(self, scores: Array) -> None:
        """Count scores in the present block; what was counted before the first block is dropped when that begins."""
        count_in_bins(self.present, scores)

    def close(self, n_taken: int, n_outside: int, index: int) -> Drift | None:
        """End a block with the row of that index, and begin the next; report a drift, if this is one."""
        drift = self._judged(n_taken - self.counts[0], n_outside - self.counts[1], index)
        self.begin(n_taken, n_outside, index)
        return drift

    def _judged(self, n_taken: int, n_outside: int, index: int) -> Drift | None:
        share = min(max(n_outside / max(n_taken, 1), 0.0), 1.0)  # counts go back if the forest is built again
        figures = {OUTSIDE: share, SCORES: self._distance()}
        odd = next((what for what, value in figures.items() if self._is_odd(what, value)), None)
        if odd is None:
            self._learn(figures)
        if odd is None or not self.was_odd:
            self.was_odd = odd is not None
            return None
        drift = Drift(index, self.began[0], odd, float(figures[odd]), float(self._moments_of(odd)[_MEAN]))
        self.before[:], self.moments[:], self.was_odd = 0.0, 0.0, False
        return drift

    def state(self) -> dict[str, Any]:
        """Give all that changes, as JSON can hold it."""
        arrays = {name: getattr(self, name).tolist() for name in ("present", "before", "moments")}
        return {"counts": self.counts, "began": self.began, "was_odd": self.was_odd, **arrays}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave, or raise a ValueError."""
        for name in ("present", "before", "moments"):
            array = np.array(state[name], dtype=np.float64)
            if array.shape != getattr(self, name).shape or not ((array >= 0.0) & (array <= MAX_SHOWN)).all():
                raise ValueError(f"the state of the drift monitor is damaged: {name}.")
            setattr(self, name, array)
        if (self.moments[:, _MEAN] > 1.0).any():
            raise ValueError("the state of the drift monitor is damaged: the mean of a share is above 1.")
        if not isinstance(state["was_odd"], bool):
            raise ValueError("the state of the drift monitor is damaged: was_odd.")  # noqa: TRY004
        self.counts = [as_count(count, "a count of the drift monitor", 0, 2**62) for count in state["counts"]]
        self.began = [as_count(row, "a row of the drift monitor", -1, 2**62) for row in state["began"]]
        if len(self.counts) != 2 or len(self.began) != 2:
            raise ValueError("the state of the drift monitor is damaged: counts.")
        self.was_odd = state["was_odd"]

    def _moments_of(self, what: str) -> Array:
        return self.moments[0 if what == OUTSIDE else 1]

    def _distance(self) -> float:
        """Give Kolmogorov's distance between the present scores and those before."""
        if not (self.before.any() and self.present.any()):
            return 0.0
        apart = np.cumsum(self.present) / self.present.sum() - np.cumsum(self.before) / self.before.sum()
        return float(np.abs(apart).max())

    def _is_odd(self, what: str, value: float) -> bool:
        count, mean, squares = self._moments_of(what)
        if count < _N_BLOCKS_BEFORE:
            return False
        deviation = max(math.sqrt(squares / (count - 1)), self._least_deviation(what, mean))
        return bool(value > mean + _N_DEVIATIONS * deviation)

    def _least_deviation(self, what: str, mean: float) -> float:
        """Give the deviation that chance alone makes: of a share, and of Kolmogorov's distance."""
        n = max(self.present.sum(), 1.0)
        if what == OUTSIDE:
            share = min(max(mean, 1.0 / n), 0.5)
            return math.sqrt(share * (1.0 - share) / n)
        return 0.26 / math.sqrt(n)

    def _learn(self, figures: dict[str, float]) -> None:
        """Add a block to those before (Welford's method); the first has nothing to be distant from."""
        for what, value in figures.items():
            if what == OUTSIDE or self.before.any():
                moments = self._moments_of(what)
                moments[_COUNT] += 1
                deviation = value - moments[_MEAN]
                moments[_MEAN] += deviation / moments[_COUNT]
                moments[_SQUARES] += deviation * (value - moments[_MEAN])
        np.minimum(self.before + self.present, MAX_SHOWN, out=self.before)

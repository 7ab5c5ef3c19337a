"""The distribution of the scores of a batch: how improbable a score is among them."""

from functools import cached_property
from typing import Any, Self

import numpy as np

from imondrian.engine.histogram import COUNT, N_BINS, SUM
from imondrian.engine.jit import Array
from imondrian.engine.surprise import SURPRISING, new_clock, tail_threshold, write_surprises

_UNIT = 2.0**-24  # scores are rounded up to multiples of it, so that their sums are exact
_SUSPECT_SHARE = 0.1  # share of the scores that may be anomalies
_MIN_COUNT, _MAX_COUNT = 2.0**-62, 2.0**62  # of a bin in a file; fractional for a stream, whose older scores weigh less
_TOLERANCE = 1e-9  # of the mean score of a bin; the sums of a stream are rounded
_MIN_SCORES = 500  # with fewer scores, ordinary ones would often be taken for anomalies


class ScoreDistribution:
    """Computes surprises from a histogram of scores and a tail fitted to the highest scores; see `engine/surprise.py`.

    If more scores are surprising than expected, the surprising scores are weighted down, so that many anomalies do not
    make each other look ordinary. This works for up to a tenth of the scores, if there are at least 500.

    Parameters
    ----------
    histogram : array of shape (2, 1024)
        Number of scores, and sum of scores, in each bin.

    Examples
    --------
    >>> scores = np.random.default_rng(0).normal(0.45, 0.03, 10_000)
    >>> ScoreDistribution.of(scores).surprise([0.45, 0.55, 0.7]).round(1)
    array([ 0.3,  3.5, 14.1])
    """

    def __init__(self, histogram: Array) -> None:
        self._clock = new_clock()
        self.counted = histogram

    @classmethod
    def of_weights(cls, histogram: Array) -> Self:
        """Return the distribution of a histogram that is used as it is, such as that of a stream.

        Its surprising scores are not weighted down again.
        """
        distribution = cls(histogram)
        distribution._histogram = histogram
        return distribution

    @classmethod
    def of(cls, scores: Array, copies: Array | None = None) -> Self:
        """Return the distribution of scores; `copies` is the number of copies of each, by default 1. NaN is ignored.

        The order of the scores has no effect, not even on the last bit.
        """
        counts = np.ones(len(scores)) if copies is None else np.asarray(copies, np.float64)
        is_score = ~np.isnan(scores)
        scores, counts = scores[is_score], counts[is_score]
        bins = np.minimum((scores * N_BINS).astype(np.intp), N_BINS - 1)
        sums = np.bincount(bins, counts * np.ceil(scores / _UNIT), N_BINS) * _UNIT
        return cls(np.array([np.bincount(bins, counts, N_BINS), sums]))

    def surprise(self, scores: Any) -> Array:
        """Return -log10 of the probability of a score at least as high as each of these; NaN for NaN."""
        scores = np.asarray(scores, dtype=np.float64)
        surprises = np.empty(scores.size)
        write_surprises(self._histogram, self._clock, np.ascontiguousarray(scores.ravel()), surprises)
        return surprises.reshape(scores.shape)

    def threshold(self, probability: float) -> float:
        """Return the score that an ordinary row exceeds with this probability; 1 if there are no scores."""
        return float(tail_threshold(self._histogram, self._clock, probability))

    def state(self) -> dict[str, list[Any]]:
        """Return the occupied bins in types that JSON supports, without those of negligible weight."""
        bins = np.flatnonzero(self.counted[COUNT] >= _MIN_COUNT)
        return {
            "bins": bins.tolist(),
            "counts": self.counted[COUNT, bins].tolist(),
            "sums": self.counted[SUM, bins].tolist(),
        }

    @classmethod
    def restored(cls, state: Any) -> Self:
        """Restore what `state` returned; raise ValueError if it is invalid."""
        try:
            bins, counts, sums = (np.array(state[name], np.float64) for name in ("bins", "counts", "sums"))
        except (KeyError, TypeError, ValueError):
            raise ValueError("the distribution of scores is damaged.") from None
        is_valid = bins.ndim == 1 and bins.shape == counts.shape == sums.shape and bins.size <= N_BINS
        if not is_valid or not _are_bins(bins) or not _have_scores(bins, counts, sums):
            raise ValueError("the distribution of scores is damaged.")
        histogram = np.zeros((2, N_BINS))
        histogram[:, bins.astype(np.intp)] = counts, sums
        return cls(histogram)

    @cached_property
    def _histogram(self) -> Array:
        """The histogram in which the surprising scores are weighted down to their expected share of all scores.

        At first, the highest scores, at most a tenth of all, are taken as surprising and weighted down. The surprise of
        each bin is computed; bins that turn out not to be surprising get their full weight back. This is repeated until
        all bins that are weighted down are surprising. Then other bins that turn out to be surprising are weighted down
        too, until there are no more. This takes 2 ms, and a model that is loaded may never need it.
        """
        histogram = self.counted
        bins = np.flatnonzero(histogram[COUNT])
        counts = histogram[COUNT, bins]
        is_surprising = _suspects(counts)
        while (cleared := is_surprising & ~self._is_surprising(histogram, bins, is_surprising)).any():
            is_surprising &= ~cleared
        while (found := ~is_surprising & self._is_surprising(histogram, bins, is_surprising)).any():
            is_surprising |= found
        return _weighted(histogram, bins, is_surprising)

    def _is_surprising(self, histogram: Array, bins: Array, is_surprising: Array) -> Array:
        """Return which bins have a surprising mean score after those in `is_surprising` get their expected weight."""
        means = np.minimum(histogram[SUM, bins] / histogram[COUNT, bins], 1.0)
        surprises = np.empty(means.size)
        write_surprises(_weighted(histogram, bins, is_surprising), self._clock, means, surprises)
        return np.asarray(surprises > SURPRISING)


def _suspects(counts: Array) -> Array:
    """Return which bins may have anomalies: the highest scores, unless there are too few scores to tell."""
    if counts.sum() < _MIN_SCORES:
        return np.zeros(counts.size, np.bool_)
    return np.asarray(np.cumsum(counts[::-1])[::-1] <= _SUSPECT_SHARE * counts.sum())


def _weighted(histogram: Array, bins: Array, is_surprising: Array) -> Array:
    """Return the histogram in which the surprising bins are weighted down to their expected share of all scores."""
    if not is_surprising.any():
        return histogram
    weighted = histogram.copy()
    weighted[:, bins[is_surprising]] *= _weight(histogram[COUNT, bins], is_surprising)
    return weighted


def _weight(counts: Array, is_surprising: Array) -> float:
    """Return the weight, at most 1, that reduces surprising scores to their expected share of all scores."""
    n_surprising = counts[is_surprising].sum()
    return float(min((counts.sum() - n_surprising) * 10.0**-SURPRISING / n_surprising, 1.0))


def _are_bins(bins: Array) -> bool:
    """Return True if these are valid bin numbers without repeats."""
    return bool(((bins >= 0) & (bins < N_BINS) & (bins == np.floor(bins))).all()) and np.unique(bins).size == bins.size


def _have_scores(bins: Array, counts: Array, sums: Array) -> bool:
    """Return True if each bin has a possible weight, and the mean of its scores lies in the bin."""
    if not ((counts >= _MIN_COUNT) & (counts <= _MAX_COUNT)).all():
        return False
    means, lowest = sums / counts, np.maximum(bins / N_BINS - _TOLERANCE, 0.0)
    return bool(((means >= lowest) & (means <= (bins + 1.0) / N_BINS + _TOLERANCE)).all())

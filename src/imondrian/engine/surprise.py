"""Surprise: how improbable a score is among the latest ones, from their histogram and a tail fitted to the highest.

Surprise is -log10 of the probability that an ordinary recent point scores as high: 3 means one in a thousand. Below the
tail, the probability is the share of the weight above the score. In the tail it is extrapolated: on the scale
-log(-log2(score)), on which tails are close to exponential, the excess over the start of the tail has a Weibull
distribution with the mean and the variance of the excesses. The variance is shrunk towards that of an exponential
distribution (shape 1), since the tail often contains few scores.

Surprising scores come in runs. Only the first surprising score of a run has full weight; otherwise, a day of anomalies
would make anomalies ordinary. The others have a small weight, so that a stream that has changed permanently eventually
becomes ordinary.
"""

import math
from typing import NamedTuple

import numpy as np

from imondrian.engine.histogram import (
    COUNT,
    N_BINS,
    SUM,
    WEIGHT,
    bin_of,
    count_score,
    is_score,
    quantile_threshold,
    total_weight,
)
from imondrian.engine.jit import Array, helper, kernel

SINCE = 2  # entry of the clock of a histogram: number of scores since the last surprising one, at most RUN_LENGTH
SURPRISING = 2.5  # a score with a higher surprise is surprising: 1 in 316
RUN_LENGTH = 32.0  # surprising scores with fewer scores between them are a run
RUN_WEIGHT = 1.0 / RUN_LENGTH  # weight of the surprising scores of a run after its first
FULL_WEIGHT = 1.0
_TAIL_SHARE = 0.1  # the tail: the highest scores with this share of the weight
_MIN_TAIL = 0.25  # if the bins of the tail have at most this part of _TAIL_SHARE, the next lower bin is added
_PRIOR = 20.0  # number of scores with the variance of an exponential distribution that are added to the tail
_MIN_EXCESS = 0.01  # lower bound of the mean excess, for scores that are all equal
_MIN_SHAPE, _MAX_SHAPE = 0.7, 3.0
_SHAPE_EXPONENT = -0.543  # the shape of a Weibull distribution is close to (variance / mean ** 2) ** -0.543
_LARGEST = 1.0 - 2.0**-53
_SMALLEST = 2.0**-1000
_LN_10 = math.log(10.0)

_CENTRES = (np.arange(N_BINS) + 0.5) / N_BINS  # of the bins
_LEVELS = -np.log(-np.log2(_CENTRES))  # of the centres
_SLOPES = -1.0 / (_CENTRES * np.log(_CENTRES))  # derivative of the level with respect to the score


def new_clock() -> Array:
    """Return the clock of an empty histogram: weight of the next score, number of scores, and `SINCE`."""
    return np.array([1.0, 0.0, RUN_LENGTH])


class Tail(NamedTuple):
    """The distribution of the highest scores of a histogram, on the scale of `level`."""

    first: int  # the first bin of the tail
    last: int  # the last bin that is not empty
    start: float  # level at which the tail starts
    share: float  # share of the weight in the tail; 0 if the histogram is empty
    scale: float  # of the Weibull distribution of the excess over the start
    shape: float


@helper
def level(score: float) -> float:
    """Return -log(-log2(score)): 0 for 0.5, and higher for higher scores."""
    return -math.log(-math.log2(min(max(score, _SMALLEST), _LARGEST)))


@helper
def level_near(score: float, i: int) -> float:
    """Return the level of a score in bin i: linear within the bin, except in the first and the last one."""
    if 0 < i < N_BINS - 1:
        return _LEVELS[i] + _SLOPES[i] * (score - _CENTRES[i])
    return level(score)


@helper
def score_at(value: float) -> float:
    """Return the score with this level."""
    return 2.0 ** -math.exp(-value)


@helper
def tail_of(histogram: Array, clock: Array) -> Tail:
    """Fit the tail of a weighted histogram by the mean and the variance of the excesses."""
    total = total_weight(histogram)
    if total == 0.0:
        return Tail(0, 0, 0.0, 0.0, 1.0, 1.0)
    last = histogram.shape[1] - 1
    while histogram[COUNT, last] == 0.0:
        last -= 1
    wanted = _TAIL_SHARE * total
    i, weight = last, 0.0
    while i > 0 and weight + histogram[COUNT, i] < wanted:
        weight += histogram[COUNT, i]
        i -= 1
    first = i if weight <= _MIN_TAIL * wanted else i + 1
    start = level(first / histogram.shape[1])
    weight, mean, square = 0.0, 0.0, 0.0
    for i in range(first, last + 1):
        if histogram[COUNT, i] > 0.0:
            average = histogram[SUM, i] / histogram[COUNT, i]
            excess = level_near(average, i) - start
            weight += histogram[COUNT, i]
            mean += histogram[COUNT, i] * excess
            square += histogram[COUNT, i] * excess * excess
    mean, square = mean / weight, square / weight
    n_scores = weight / clock[WEIGHT]
    variance = max(square - mean * mean, 0.0)
    mean = max(mean, _MIN_EXCESS)
    ratio = (variance / (mean * mean) * n_scores + _PRIOR) / (n_scores + _PRIOR)
    shape = min(max(ratio**_SHAPE_EXPONENT, _MIN_SHAPE), _MAX_SHAPE)
    return Tail(first, last, start, weight / total, mean / math.gamma(1.0 + 1.0 / shape), shape)


@helper
def surprise_in(histogram: Array, tail: Tail, score: float) -> float:
    """Return the surprise of a score; 0 if the histogram is empty, NaN if the score is not in [0, 1]."""
    if not is_score(score):
        return math.nan
    if tail.share == 0.0:
        return 0.0
    i = bin_of(histogram, score)
    if i >= tail.first:
        excess = max(level(score) - tail.start, 0.0)
        return ((excess / tail.scale) ** tail.shape - math.log(tail.share)) / _LN_10
    above = histogram[COUNT, i] * (i + 1.0 - score * histogram.shape[1])
    below = histogram[COUNT, i] - above
    lowest = 0
    while lowest < i and histogram[COUNT, lowest] == 0.0:  # a comparison takes less time than an addition
        lowest += 1
    for j in range(lowest, i):
        below += histogram[COUNT, j]
    for j in range(i + 1, tail.last + 1):
        above += histogram[COUNT, j]
    return math.log10((above + below) / above)


@kernel
def write_surprises(histogram: Array, clock: Array, scores: Array, surprises: Array) -> None:
    """Write the surprise of each score, without counting it."""
    tail = tail_of(histogram, clock)
    for i in range(scores.size):
        surprises[i] = surprise_in(histogram, tail, scores[i])


@helper
def threshold_in(histogram: Array, tail: Tail, probability: float) -> float:
    """Return the score whose surprise is -log10(probability); 1 for an empty histogram."""
    if tail.share <= probability:
        return quantile_threshold(histogram, probability)
    return score_at(tail.start + tail.scale * math.log(tail.share / probability) ** (1.0 / tail.shape))


@kernel
def tail_threshold(histogram: Array, clock: Array, probability: float) -> float:
    """Return the score whose surprise is -log10(probability); 1 for an empty histogram."""
    return threshold_in(histogram, tail_of(histogram, clock), probability)


@kernel
def threshold_and_surprise(histogram: Array, clock: Array, score: float, probability: float) -> tuple[float, float]:
    """Return the same threshold as `tail_threshold`, and the surprise of a score."""
    tail = tail_of(histogram, clock)
    return threshold_in(histogram, tail, probability), surprise_in(histogram, tail, score)


@kernel
def surprise_of(histogram: Array, clock: Array, score: float) -> float:
    """Return the surprise of a score, without counting it."""
    return surprise_in(histogram, tail_of(histogram, clock), score)


@helper
def count_with_surprise(
    histogram: Array, clock: Array, score: float, surprise: float, growth: float, run_weight: float
) -> None:
    """Count a score; a surprising one that continues a run has the weight `run_weight`. Ignore NaN."""
    if not is_score(score):
        return
    is_surprising = surprise > SURPRISING
    weight = run_weight if is_surprising and clock[SINCE] < RUN_LENGTH else FULL_WEIGHT
    count_score(histogram, clock, score, growth, weight)
    clock[SINCE] = 0.0 if is_surprising else min(clock[SINCE] + 1.0, RUN_LENGTH)


@kernel
def surprise_and_count(histogram: Array, clock: Array, score: float, growth: float, run_weight: float) -> float:
    """Return the surprise of a score, and count the score."""
    surprise = surprise_in(histogram, tail_of(histogram, clock), score)
    count_with_surprise(histogram, clock, score, surprise, growth, run_weight)
    return surprise

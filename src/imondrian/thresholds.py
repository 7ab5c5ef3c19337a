"""Thresholds above which a score is an anomaly: fixed, by two clusters, or by a share; for batches and streams."""

from collections.abc import Callable
from typing import Any

import numpy as np

from imondrian.copying import shallow_copy
from imondrian.defaults import PRESET, PRESETS, WINDOW
from imondrian.engine.jit import Array, direct, helper, kernel, summing_helper
from imondrian.errors import InvalidInputError
from imondrian.inputs import as_count
from imondrian.option_types import Threshold

Rule = Callable[[Array], float]
_N_BINS = 1024
_COUNT, _SUM = 0, 1
_WEIGHT, _N_COUNTED = 0, 1
_FORGOTTEN = 1e-9  # a bin of less than this share of the weight is not looked at any more
_ROUNDING = 1e-12
_HEAVY = 1e50  # weights are brought down again before they can overflow


def fixed(value: float = 0.5) -> Rule:
    """Make the rule that calls an anomaly what scores above the value (0.5: odder than an average point)."""
    return lambda _scores: value


def two_means(scores: Array) -> float:
    """Part the scores into the two clusters of least squares, and give the middle between their means.

    The labelling by K-means of [Ma2020], in one dimension: exact, by sorting and prefix sums, without iterations or
    a seed. A new score joins the cluster whose mean is nearer. Where all scores are alike, none is an anomaly.
    """
    ordered = np.sort(scores)
    centred = ordered - ordered.mean()
    n_low = np.arange(1, ordered.size)
    sum_low = np.cumsum(centred)[:-1]
    sum_high = centred.sum() - sum_low
    gains = sum_low**2 / n_low + sum_high**2 / (ordered.size - n_low)
    if ordered[0] == ordered[-1]:
        return float(ordered[-1])
    n = int(n_low[gains.argmax()])
    return float((ordered[:n].mean() + ordered[n:].mean()) / 2.0)


def quantile(share: float) -> Rule:
    """Make the rule that calls that share of the scores anomalies."""
    return lambda scores: float(np.quantile(scores, 1.0 - share))


def rule_of(contamination: Any, name: str = "contamination") -> Rule:
    """Return the rule for "auto" (0.5), "kmeans" or a share in (0, 0.5]."""
    if isinstance(contamination, str) and contamination in THRESHOLDS:
        return THRESHOLDS[contamination]
    is_number = isinstance(contamination, (float, int, np.floating)) and not isinstance(contamination, bool)
    if is_number and 0 < contamination <= 0.5:
        return quantile(float(contamination))
    raise InvalidInputError(
        f"{name} must be 'auto', 'kmeans' or a share between 0 (excluded) and 0.5, but is {contamination!r}."
    )


THRESHOLDS: dict[str, Rule] = {"auto": fixed(), "kmeans": two_means}


class StreamingThreshold:
    """The same three rules on a stream of scores, from a histogram that forgets: no score is kept.

    A score weighs half as much after `half_life` others, so that about the last 1.44 * half_life count.

    Parameters
    ----------
    rule : "auto", "kmeans" or float, default=0.01
        0.5; the middle between the means of two clusters; or the share of scores to lie above.
    half_life : int, default=1024
        After how many scores one counts half.

    Examples
    --------
    >>> threshold = StreamingThreshold("kmeans")
    >>> for score in [0.4, 0.45, 0.42, 0.8, 0.41]:
    ...     threshold.update(score)
    >>> threshold.is_anomaly(0.75), threshold.is_anomaly(0.5)
    (True, False)
    """

    def __init__(self, rule: Threshold = PRESETS[PRESET].threshold, half_life: int = WINDOW // 2) -> None:
        rule_of(rule, "rule")  # for its check
        self.rule = rule
        self.half_life = as_count(half_life, "half_life", 1, 2**53)
        self.histogram = np.zeros((2, _N_BINS))  # weight and weighted sum of the scores in each bin
        self.clock = np.array([1.0, 0.0])  # weight of the next score; number of scores counted
        self.growth = 2.0 ** (1.0 / self.half_life)  # of the weight from one score to the next
        self._known = (-1.0, 0.0)  # a threshold, behind the number of scores it was computed from

    def copy(self) -> "StreamingThreshold":
        """Return another that goes on without this one."""
        other = shallow_copy(self)
        other.histogram, other.clock = self.histogram.copy(), self.clock.copy()
        return other

    @property
    def threshold(self) -> float:
        """The score above which a point is an anomaly; 1 (nothing is) as long as the stream has not shown any."""
        n_counted = self.clock[_N_COUNTED]
        if self._known[0] != n_counted:
            self._known = n_counted, self._computed()
        return self._known[1]

    def update(self, score: float) -> None:
        """Count one score, and all earlier ones a little less."""
        if not 0.0 <= score <= 1.0:
            raise InvalidInputError(f"A score must be between 0 and 1, but is {score}.")
        count_score(self.histogram, self.clock, score, self.growth)

    def observe(self, scores: Array) -> Array:
        """Count scores one after the other; give the threshold that was there before each.

        What is no score, not being between 0 and 1, is not counted.
        """
        thresholds = np.empty(len(scores))
        if self.rule == "kmeans":
            count_and_write_two_means(self.histogram, self.clock, scores, self.growth, thresholds)
        elif self.rule != "auto":
            share = float(self.rule)
            count_and_write_upper_share(self.histogram, self.clock, scores, self.growth, share, thresholds)
        else:
            count_scores(self.histogram, self.clock, scores, self.growth)
            thresholds[:] = 0.5
        return thresholds

    def state(self) -> dict[str, Any]:
        """Give all that changes, as JSON can hold it."""
        return {"histogram": self.histogram.tolist(), "weight": float(self.clock[_WEIGHT])}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave, or raise a ValueError."""
        histogram, weight = np.array(state["histogram"], dtype=np.float64), float(state["weight"])
        possible = histogram.shape == self.histogram.shape and np.isfinite(histogram).all() and 0.0 < weight <= _HEAVY
        if not possible or not (histogram[_SUM] >= 0.0).all() or not (histogram[_SUM] <= histogram[_COUNT]).all():
            raise ValueError("the histogram of scores is damaged.")
        self.histogram, self.clock, self._known = histogram, np.array([weight, 0.0]), (-1.0, 0.0)

    def is_anomaly(self, score: float) -> bool:
        """Tell whether the score lies above the present threshold."""
        return bool(score > self.threshold)

    def _computed(self) -> float:
        if self.rule == "auto":
            return 0.5
        if self.rule == "kmeans":
            return float(direct(two_means_of, self.histogram))
        return float(direct(upper_share_of, self.histogram, float(self.rule)))


@kernel
def count_scores(histogram: Array, clock: Array, scores: Array, growth: float) -> None:
    """Count scores one after the other."""
    for i in range(scores.size):
        count_score(histogram, clock, scores[i], growth)


@kernel
def count_score(histogram: Array, clock: Array, score: float, growth: float) -> None:
    """Add the score to its bin; instead of the old ones becoming lighter, the new ones become heavier."""
    if not 0.0 <= score <= 1.0:
        return  # nor NaN
    place = min(int(score * histogram.shape[1]), histogram.shape[1] - 1)
    histogram[_COUNT, place] += clock[_WEIGHT]
    histogram[_SUM, place] += clock[_WEIGHT] * score
    clock[_WEIGHT] *= growth
    clock[_N_COUNTED] += 1.0
    if clock[_WEIGHT] > _HEAVY:
        for i in range(histogram.shape[1]):
            histogram[_COUNT, i] /= clock[_WEIGHT]
            histogram[_SUM, i] /= clock[_WEIGHT]
        clock[_WEIGHT] = 1.0


@kernel
def count_and_write_two_means(histogram: Array, clock: Array, scores: Array, growth: float, thresholds: Array) -> None:
    """Count scores one after the other, and write the threshold by two means before each."""
    for i in range(scores.size):
        thresholds[i] = two_means_of(histogram)
        count_score(histogram, clock, scores[i], growth)


@kernel
def count_and_write_upper_share(
    histogram: Array, clock: Array, scores: Array, growth: float, share: float, thresholds: Array
) -> None:
    """Count scores one after the other, and write the threshold by an upper share before each."""
    for i in range(scores.size):
        thresholds[i] = upper_share_of(histogram, share)
        count_score(histogram, clock, scores[i], growth)


@kernel
def two_means_of(histogram: Array) -> float:
    """Give the middle between the means of the two clusters of least squares, parted between bins; 1 if only one."""
    lightest = _FORGOTTEN * weight_of(histogram)
    first, last = 0, histogram.shape[1] - 1
    while first < last and histogram[_COUNT, first] <= lightest:
        first += 1
    while last > first and histogram[_COUNT, last] <= lightest:
        last -= 1
    n, total = 0.0, 0.0
    for i in range(first, last + 1):
        if histogram[_COUNT, i] > lightest:
            n += histogram[_COUNT, i]
            total += histogram[_SUM, i]
    best, threshold = 0.0, 1.0
    n_low, sum_low = 0.0, 0.0
    for i in range(first, last):
        if histogram[_COUNT, i] > lightest:
            n_low += histogram[_COUNT, i]
            sum_low += histogram[_SUM, i]
            if n - n_low <= lightest:
                break
            gain = parted_squares(n_low, sum_low, n - n_low, total - sum_low)
            if gain > best:
                best = gain
                threshold = 0.5 * (sum_low / n_low + (total - sum_low) / (n - n_low))
    return threshold


@summing_helper
def weight_of(histogram: Array) -> float:
    """Sum the weights of all bins."""
    total = 0.0
    for i in range(histogram.shape[1]):
        total += histogram[_COUNT, i]
    return total


@helper
def parted_squares(n_low: float, sum_low: float, n_high: float, sum_high: float) -> float:
    """Give, but for a factor that does not change, by how much two clusters lower the sum of squares of one."""
    apart = sum_high * n_low - sum_low * n_high
    return apart * apart / (n_low * n_high)


@kernel
def upper_share_of(histogram: Array, share: float) -> float:
    """Give the score above which at most that share of the weight lies; 1 before there is any."""
    wanted = 0.0
    for i in range(histogram.shape[1]):
        wanted += share * histogram[_COUNT, i]
    if wanted == 0.0:
        return 1.0
    i = histogram.shape[1] - 1
    while histogram[_COUNT, i] < wanted and i > 0:
        wanted -= histogram[_COUNT, i]
        i -= 1
    if histogram[_COUNT, i] == 0.0:
        return 0.0
    even = (i + 1.0 - wanted / histogram[_COUNT, i]) / histogram.shape[1]
    mean = histogram[_SUM, i] / histogram[_COUNT, i]
    return max(even, mean + _ROUNDING)  # where all scores are alike, none lies above

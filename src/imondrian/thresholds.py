"""Rules for the threshold above which a score is an anomaly (fixed, two-means, quantile), for batches and streams."""

from typing import Any, Protocol

import numpy as np

from imondrian.copying import shallow_copy
from imondrian.defaults import PRESET, PRESETS, WINDOW
from imondrian.engine.histogram import (
    COUNT,
    MAX_WEIGHT,
    N_COUNTED,
    SUM,
    WEIGHT,
    count_and_write_quantiles,
    count_and_write_two_means,
    count_score,
    count_scores,
    quantile_threshold,
    two_means_threshold,
)
from imondrian.engine.jit import Array, call_without_dispatch
from imondrian.errors import InvalidInputError
from imondrian.inputs import as_count
from imondrian.option_types import Threshold
from imondrian.order_statistics import quantile_of_copies

_N_BINS = 1024
_MAX_LISTED = 2**20  # number of copies up to which they are listed, so that sums are rounded as in a list of all scores


class Rule(Protocol):
    """A rule that computes a threshold."""

    def __call__(self, scores: Array, copies: Array | None = None) -> float:
        """Return the threshold for these scores; `copies` is the number of copies of each, by default 1."""


def fixed(value: float = 0.5) -> Rule:
    """Return the rule with a constant threshold; scores above 0.5 are more isolated than an average point."""
    return lambda scores, copies=None: value  # noqa: ARG005


def two_means(scores: Array, copies: Array | None = None) -> float:
    """Divide the scores into two clusters with the least sum of squares; return the midpoint of their means.

    This is the labelling by K-means of [Ma2020] in one dimension, exact by sorting and prefix sums, without iterations
    or a seed. A new score belongs to the cluster with the nearer mean. If all scores are equal, none is an anomaly.
    """
    if copies is not None and copies.sum(dtype=np.int64) <= max(_MAX_LISTED, 2 * scores.size):
        scores, copies = np.repeat(scores, copies), None
    order = np.argsort(scores)
    ordered, counts = scores[order], np.ones(scores.size) if copies is None else copies[order].astype(np.float64)
    centred = counts * (ordered - _mean(ordered, counts))
    n_low = np.cumsum(counts)[:-1]
    sum_low = np.cumsum(centred)[:-1]
    sum_high = centred.sum() - sum_low
    gains = sum_low**2 / n_low + sum_high**2 / (counts.sum() - n_low)
    if ordered[0] == ordered[-1]:
        return float(ordered[-1])
    n = int(gains.argmax()) + 1
    return float((_mean(ordered[:n], counts[:n]) + _mean(ordered[n:], counts[n:])) / 2.0)


def _mean(scores: Array, counts: Array) -> float:
    return float((scores * counts).sum() / counts.sum())


def quantile(share: float) -> Rule:
    """Return the rule that labels that share of the scores as anomalies."""

    def rule(scores: Array, copies: Array | None = None) -> float:
        if copies is None:
            return float(np.quantile(scores, 1.0 - share))
        return quantile_of_copies(scores, copies, 1.0 - share)

    return rule


def threshold_rule(contamination: Any, name: str = "contamination") -> Rule:
    """Return the rule for "auto" (0.5), "kmeans" or a share in (0, 0.5].

    Raises
    ------
    InvalidInputError
        If the value is anything else; `name` is its name in the message.
    """
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
    """The threshold of a stream of scores, from a histogram with exponentially decaying weights; scores are not stored.

    After `half_life` further scores, a score has half its weight, so about the last 1.44 * half_life scores count.

    Parameters
    ----------
    rule : "auto", "kmeans" or float, default=0.01
        "auto": 0.5. "kmeans": the midpoint of the means of two clusters. A float: the share of scores above the
        threshold.
    half_life : int, default=1024
        Number of scores after which a score has half its weight.

    Examples
    --------
    >>> threshold = StreamingThreshold("kmeans")
    >>> for score in [0.4, 0.45, 0.42, 0.8, 0.41]:
    ...     threshold.update(score)
    >>> threshold.is_anomaly(0.75), threshold.is_anomaly(0.5)
    (True, False)
    """

    def __init__(self, rule: Threshold = PRESETS[PRESET].threshold, half_life: int = WINDOW // 2) -> None:
        threshold_rule(rule, "rule")  # raises if it is invalid
        self.rule = rule
        self.half_life = as_count(half_life, "half_life", 1, 2**53)
        self.histogram = np.zeros((2, _N_BINS))  # weight and weighted sum of the scores in each bin
        self.clock = np.array([1.0, 0.0])  # weight of the next score; number of scores counted
        self.growth = 2.0 ** (1.0 / self.half_life)  # factor from the weight of one score to that of the next
        self._cached = (-1.0, 0.0)  # number of scores, and the threshold computed from them

    def copy(self) -> "StreamingThreshold":
        """Return an independent copy."""
        other = shallow_copy(self)
        other.histogram, other.clock = self.histogram.copy(), self.clock.copy()
        return other

    @property
    def threshold(self) -> float:
        """The score above which a point is an anomaly; "kmeans" and shares give 1 before the first score."""
        n_counted = self.clock[N_COUNTED]
        if self._cached[0] != n_counted:
            self._cached = n_counted, self._compute()
        return self._cached[1]

    def update(self, score: float) -> None:
        """Count one score and reduce the relative weight of all earlier ones."""
        if not 0.0 <= score <= 1.0:
            raise InvalidInputError(f"A score must be between 0 and 1, but is {score}.")
        count_score(self.histogram, self.clock, score, self.growth)

    def observe(self, scores: Array) -> Array:
        """Count scores one after the other; return the threshold before each.

        NaN and values outside [0, 1] are not counted.
        """
        thresholds = np.empty(len(scores))
        if self.rule == "kmeans":
            count_and_write_two_means(self.histogram, self.clock, scores, self.growth, thresholds)
        elif self.rule != "auto":
            share = float(self.rule)
            count_and_write_quantiles(self.histogram, self.clock, scores, self.growth, share, thresholds)
        else:
            count_scores(self.histogram, self.clock, scores, self.growth)
            thresholds[:] = 0.5
        return thresholds

    def state(self) -> dict[str, Any]:
        """Return the state in types that JSON supports."""
        return {"histogram": self.histogram.tolist(), "weight": float(self.clock[WEIGHT])}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned.

        Raises
        ------
        ValueError
            If the state is invalid.
        """
        histogram, weight = np.array(state["histogram"], dtype=np.float64), float(state["weight"])
        is_valid = (
            histogram.shape == self.histogram.shape and np.isfinite(histogram).all() and 0.0 < weight <= MAX_WEIGHT
        )
        if not is_valid or not (histogram[SUM] >= 0.0).all() or not (histogram[SUM] <= histogram[COUNT]).all():
            raise ValueError("the histogram of scores is damaged.")
        self.histogram, self.clock, self._cached = histogram, np.array([weight, 0.0]), (-1.0, 0.0)

    def is_anomaly(self, score: float) -> bool:
        """Return True if the score lies above the current threshold."""
        return bool(score > self.threshold)

    def _compute(self) -> float:
        if self.rule == "auto":
            return 0.5
        if self.rule == "kmeans":
            return float(call_without_dispatch(two_means_threshold, self.histogram))
        return float(call_without_dispatch(quantile_threshold, self.histogram, float(self.rule)))

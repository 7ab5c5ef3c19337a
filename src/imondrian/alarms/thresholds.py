"""Rules for the threshold above which a score is an anomaly, for batches and streams."""

import math
import re
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from imondrian.alarms.score_distribution import ScoreDistribution
from imondrian.base.copying import shallow_copy
from imondrian.base.defaults import AUTO, PRESET, PRESETS, WINDOW, auto_threshold
from imondrian.base.errors import InvalidInputError
from imondrian.base.option_types import Threshold
from imondrian.engine.histogram import (
    COUNT,
    MAX_WEIGHT,
    N_BINS,
    N_COUNTED,
    SUM,
    WEIGHT,
    quantile_threshold,
    two_means_threshold,
)
from imondrian.engine.jit import Array, call_without_dispatch
from imondrian.engine.streaming_thresholds import (
    count_and_write_quantiles,
    count_and_write_tail,
    count_and_write_two_means,
)
from imondrian.engine.surprise import (
    FULL_WEIGHT,
    RUN_LENGTH,
    RUN_WEIGHT,
    SINCE,
    new_clock,
    surprise_and_count,
    surprise_of,
    tail_threshold,
    threshold_and_surprise,
    write_surprises,
)
from imondrian.forest.inputs import as_count, as_owned_array, number_or_nan
from imondrian.forest.order_statistics import quantile_of_copies

FIXED, KMEANS, SHARE, SURPRISE = "fixed", "kmeans", "share", "surprise"  # names of rules
_TEXT = re.compile(
    r"\s*(top|surprise|score)\s+([0-9]+\.?[0-9]*|\.[0-9]+)(?:e([-+]?[0-9]+))?\s*(%?)\s*", re.IGNORECASE | re.ASCII
)
_FORMS = (  # of a threshold
    "a probability below 0.5, the number 0.5 (anomalies have scores above 0.5), 'kmeans', or a string such as 'top 5%',"
    " 'surprise 3' or 'score 0.6'"
)
_MIN_PROBABILITY, _MAX_SURPRISE = 1e-300, 300.0
# the rule for each word, and its largest value
_TEXT_RULES = {"top": (SHARE, 0.5), "surprise": (SURPRISE, _MAX_SURPRISE), "score": (FIXED, 1.0)}
_MAX_TEXT_LENGTH = 100  # characters; matching takes time quadratic in the number of digits
_MAX_COUNT = 1e70  # no bin can weigh more: the sum of all weights is less than twice MAX_WEIGHT times the half-life
# With at most this many copies in total, each score is repeated instead of weighted, so that sums are rounded as for a
# plain list. The limit is twice the number of scores if that is larger.
_MAX_LISTED = 2**20


class Rule(NamedTuple):
    """A rule that computes a threshold: its name, and its parameter if it has one."""

    name: str
    value: float = 0.0  # of "fixed": the threshold; of "share": the share; of "surprise": the surprise

    @property
    def text(self) -> str:
        """The rule as text: "kmeans", "top 5%", "surprise 3" or "score 0.5"."""
        if self.name == KMEANS:
            return KMEANS
        if self.name == SHARE:
            return f"top {_percentage(self.value)}%"
        digits = f"{self.value:.15g}"
        digits = digits if float(digits) == self.value else repr(self.value)
        return f"{'score' if self.name == FIXED else SURPRISE} {digits}"

    @property
    def probability(self) -> float:
        """Of a rule by surprise: the probability that an ordinary row has at least this surprise."""
        return 10.0**-self.value


def stream_rule(threshold: Any, name: str = "threshold") -> Rule:
    """Return the rule for a threshold: a probability below 0.5, the score 0.5, or a string such as "top 5%".

    Raises
    ------
    InvalidInputError
        If the value is anything else; `name` is its name in the message.

    Examples
    --------
    >>> stream_rule(0.001), stream_rule("top 5%")
    (Rule(name='surprise', value=3.0), Rule(name='share', value=0.05))
    """
    rule = _stream_rule_or_none(threshold, name)
    if rule is None:
        raise InvalidInputError(f"{name} must be {_FORMS}, but is {threshold!r:.200}.")
    return rule


def is_auto(threshold: Any, name: str = "threshold") -> bool:
    """Return True if a threshold is "auto", and False if it is valid for `stream_rule`.

    Raises
    ------
    InvalidInputError
        If the value is anything else; `name` is its name in the message.
    """
    if isinstance(threshold, str) and threshold == AUTO:
        return True
    if _stream_rule_or_none(threshold, name) is None:
        raise InvalidInputError(f"{name} must be '{AUTO}', {_FORMS}, but is {threshold!r:.200}.")
    return False


def _stream_rule_or_none(threshold: Any, name: str) -> Rule | None:
    """Return the rule of a threshold; None if it is invalid.

    Raises
    ------
    InvalidInputError
        If it is a probability that is too small.
    """
    rule = _rule_of_text(threshold)
    if rule is None and _is_number(threshold) and 0.0 < threshold < _MIN_PROBABILITY:
        raise InvalidInputError(
            f"{name} must be a probability of at least {_MIN_PROBABILITY} (a surprise of {_MAX_SURPRISE:g}), but is"
            f" {threshold!r}."
        )
    if rule is None and _is_number(threshold) and 0.0 < threshold <= 0.5:
        return Rule(FIXED, 0.5) if threshold == 0.5 else Rule(SURPRISE, _level(threshold))
    return rule


def batch_rule(contamination: Any, preset: Any = PRESET, name: str = "contamination") -> Rule:
    """Return the rule for a contamination: "auto", "kmeans", a share in (0, 0.5], or a string such as "surprise 3".

    "auto" is a surprise of 3 with the preset "practice", and scores above 0.5 with "paper".

    Raises
    ------
    InvalidInputError
        If the value is anything else; `name` is its name in the message.
    """
    if isinstance(contamination, str) and contamination == AUTO:
        return stream_rule(auto_threshold(preset))
    rule = _rule_of_text(contamination)
    if rule is None and _is_number(contamination) and 0.0 < contamination <= 0.5:
        rule = Rule(SHARE, float(contamination))
    if rule is None:
        raise InvalidInputError(
            f"{name} must be 'auto', 'kmeans', a share between 0 (excluded) and 0.5, or a string such as 'top 5%',"
            f" 'surprise 3' or 'score 0.6', but is {contamination!r:.200}."
        )
    return rule


def contamination_of(threshold: Any, name: str = "threshold") -> str:
    """Return the contamination that is equivalent to a threshold.

    A number is a probability in a threshold, but a share of the rows in a contamination, so the result is a string.

    Raises
    ------
    InvalidInputError
        If the threshold is neither "auto" nor valid for `stream_rule`; `name` is its name in the message.

    Examples
    --------
    >>> contamination_of(0.01), contamination_of(0.5), contamination_of("auto")
    ('surprise 2', 'score 0.5', 'auto')
    """
    return AUTO if is_auto(threshold, name) else stream_rule(threshold, name).text


def _rule_of_text(text: Any) -> Rule | None:
    """Return the rule "kmeans", "top 5%", "surprise 3" or "score 0.5"; None if the value is something else."""
    if not isinstance(text, str) or len(text) > _MAX_TEXT_LENGTH:
        return None
    if text == KMEANS:
        return Rule(KMEANS)
    match = _TEXT.fullmatch(text)
    if match is None or (match[1].lower() == "top") != (match[4] == "%"):
        return None
    name, largest = _TEXT_RULES[match[1].lower()]
    exponent = int(match[3] or 0) - (2 if match[4] else 0)  # not divided by 100, which would round a second time
    value = float(f"{match[2]}e{exponent}")
    return Rule(name, value) if 0.0 < value <= largest else None


def _percentage(share: float) -> str:
    """Return 100 times a share with the digits of the share, so that the share can be read back exactly.

    Examples
    --------
    >>> _percentage(0.07), _percentage(0.1), _percentage(1e-30)
    ('7', '10', '1E-28')
    """
    percentage = Decimal(repr(share)).scaleb(2)
    return f"{percentage:f}" if share > 1e-9 else str(percentage)


def _is_number(value: Any) -> bool:
    return isinstance(value, (float, int, np.floating)) and not isinstance(value, bool)


def _level(probability: float) -> float:
    """Return -log10 of a probability; an exact integer for 0.1, 0.01, 0.001 and so on."""
    level = -math.log10(probability)
    return float(round(level)) if math.isclose(level, round(level), abs_tol=1e-12) else level


def batch_threshold(rule: Rule, scores: Array, copies: Array | None = None) -> float:
    """Return the threshold for these scores; `copies` is the number of copies of each, by default 1."""
    if rule.name == FIXED:
        return rule.value
    if rule.name == KMEANS:
        return two_means(scores, copies)
    if rule.name == SHARE:
        return quantile(scores, rule.value, copies)
    return ScoreDistribution.of(scores, copies).threshold(rule.probability)


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


def quantile(scores: Array, share: float, copies: Array | None = None) -> float:
    """Return the threshold that this share of the scores exceeds."""
    if copies is None:
        return float(np.quantile(scores, 1.0 - share))
    return quantile_of_copies(scores, copies, 1.0 - share)


class StreamingThreshold:
    """The threshold of a stream of scores, from a histogram with exponentially decaying weights; scores are not stored.

    After `half_life` further scores, a score has half its weight, so about the last 1.44 * half_life scores count.

    Parameters
    ----------
    rule : float or str, default=0.001
        A number p below 0.5: the threshold is the score with a surprise of -log10(p), which an ordinary point exceeds
        with probability p. "surprise 3" is the same as 0.001. "top 5%": that share of the scores exceeds the threshold.
        "kmeans": the midpoint of the means of two clusters. 0.5: a threshold of 0.5.
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
        self.half_life = as_count(half_life, "half_life", 1, 2**53)
        self.histogram = np.zeros((2, N_BINS))  # weight and weighted sum of the scores in each bin
        self.clock = new_clock()
        self.growth = 2.0 ** (1.0 / self.half_life)  # factor from the weight of one score to that of the next
        self._cached = (-1.0, 0.0)  # number of scores, and the threshold computed from them
        self.rule = stream_rule(rule, "rule")
        self.use_rule(self.rule)

    def use_rule(self, rule: Rule) -> None:
        """Use another rule from now on; the scores counted so far remain.

        "kmeans" and "top 5%" count every score fully. With the other rules, the first surprising score of a run counts
        fully, and its later surprising scores have less weight (see `engine/surprise.py`).
        """
        self.rule, self._cached = rule, (-1.0, 0.0)
        self.run_weight = FULL_WEIGHT if rule.name in (KMEANS, SHARE) else RUN_WEIGHT

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.histogram, self.clock = (as_owned_array(a, np.dtype(np.float64)) for a in (self.histogram, self.clock))

    def copy(self) -> "StreamingThreshold":
        """Return an independent copy."""
        other = shallow_copy(self)
        other.histogram, other.clock = self.histogram.copy(), self.clock.copy()
        return other

    @property
    def threshold(self) -> float:
        """The score above which a point is an anomaly; 1 before the first score, unless the rule is a fixed score."""
        n_counted = self.clock[N_COUNTED]
        if self._cached[0] != n_counted:
            self._cached = n_counted, self._compute()
        return self._cached[1]

    def surprise(self, scores: Array) -> Array:
        """Return the surprise of each score, as if it came next; 0 before the first score."""
        scores = _as_scores(scores)
        surprises = np.empty(len(scores))
        write_surprises(self.histogram, self.clock, scores, surprises)
        return surprises

    def with_surprise(self, score: float) -> tuple[float, float]:
        """Return the threshold, and the surprise of one score as if it came next."""
        state = self.histogram, self.clock, score
        if self.rule.name == SURPRISE:
            both: tuple[float, float] = call_without_dispatch(threshold_and_surprise, *state, self.rule.probability)
            return both
        return self.threshold, call_without_dispatch(surprise_of, *state)

    def distribution(self) -> ScoreDistribution:
        """Return the distribution of the scores counted so far."""
        return ScoreDistribution.of_weights(self.histogram / self.clock[WEIGHT])

    def update(self, score: float) -> None:
        """Count one score and reduce the relative weight of all earlier ones."""
        if not 0.0 <= score <= 1.0:
            raise InvalidInputError(f"A score must be between 0 and 1, but is {score}.")
        surprise_and_count(self.histogram, self.clock, score, self.growth, self.run_weight)

    def observe(self, scores: Array) -> tuple[Array, Array]:
        """Count scores one after the other; return the threshold before each, and the surprise of each.

        NaN and values outside [0, 1] are not counted; their surprise is NaN.
        """
        scores = _as_scores(scores)
        thresholds, surprises = np.empty(len(scores)), np.empty(len(scores))
        state = self.histogram, self.clock, scores, self.growth, self.run_weight
        if self.rule.name == KMEANS:
            count_and_write_two_means(*state, thresholds, surprises)
        elif self.rule.name == SHARE:
            count_and_write_quantiles(*state, self.rule.value, thresholds, surprises)
        else:
            count_and_write_tail(*state, self.rule.probability, thresholds, surprises)
            if self.rule.name == FIXED:
                thresholds[:] = self.rule.value
        return thresholds, surprises

    def state(self) -> dict[str, Any]:
        """Return the state in types that JSON supports."""
        weight, since = float(self.clock[WEIGHT]), float(self.clock[SINCE])
        return {"histogram": self.histogram.tolist(), "weight": weight, "since": since}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; older states do not have "since".

        Raises
        ------
        ValueError
            If the state is invalid.
        """
        histogram, weight = np.array(state["histogram"], dtype=np.float64), float(state["weight"])
        since = number_or_nan(state.get("since", RUN_LENGTH))
        if histogram.shape != self.histogram.shape:
            raise ValueError("the histogram of scores is damaged.")
        check_histogram(histogram, weight, since)
        self.histogram, self.clock, self._cached = histogram, np.array([weight, 0.0, since]), (-1.0, 0.0)

    def is_anomaly(self, score: float) -> bool:
        """Return True if the score lies above the current threshold."""
        return bool(score > self.threshold)

    def _compute(self) -> float:
        if self.rule.name == FIXED:
            return self.rule.value
        if self.rule.name == KMEANS:
            return float(call_without_dispatch(two_means_threshold, self.histogram))
        if self.rule.name == SHARE:
            return float(call_without_dispatch(quantile_threshold, self.histogram, self.rule.value))
        return float(call_without_dispatch(tail_threshold, self.histogram, self.clock, self.rule.probability))


def _as_scores(scores: Any) -> Array:
    """Return a list of scores as an array; raise InvalidInputError if it is something else."""
    try:
        array = np.ascontiguousarray(scores, np.float64)
    except (TypeError, ValueError):
        array = np.empty(())
    if array.ndim != 1 or np.ndim(scores) != 1:
        raise InvalidInputError(f"scores must be a list of numbers, but is {scores!r:.200}.")
    return array


def check_histogram(histogram: Array, weight: float, since: float) -> None:
    """Raise ValueError if a histogram, the weight of its next score, or `since` is impossible."""
    is_valid = bool(np.isfinite(histogram).all()) and 1.0 <= weight <= MAX_WEIGHT
    is_valid = is_valid and bool((histogram[COUNT] <= _MAX_COUNT).all())
    if not is_valid or not (histogram[SUM] >= 0.0).all() or not (histogram[SUM] <= histogram[COUNT]).all():
        raise ValueError("the histogram of scores is damaged.")
    if not 0.0 <= since <= RUN_LENGTH:
        raise ValueError(f"the number of scores since a surprising one must be 0 to {RUN_LENGTH}, but is {since}.")

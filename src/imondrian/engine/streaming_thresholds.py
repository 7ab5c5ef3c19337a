"""Thresholds of a stream: for each score, write threshold and surprise given the scores before it; then count it."""

from imondrian.engine.histogram import quantile_threshold, two_means_threshold
from imondrian.engine.jit import Array, kernel
from imondrian.engine.surprise import count_with_surprise, surprise_and_count, surprise_in, tail_of, threshold_in


@kernel
def count_and_write_tail(
    histogram: Array,
    clock: Array,
    scores: Array,
    growth: float,
    run_weight: float,
    probability: float,
    thresholds: Array,
    surprises: Array,
) -> None:
    """For each score, write the threshold, whose surprise is -log10(probability), and the surprise; then count it."""
    for i in range(scores.size):
        tail = tail_of(histogram, clock)
        thresholds[i] = threshold_in(histogram, tail, probability)
        surprises[i] = surprise_in(histogram, tail, scores[i])
        count_with_surprise(histogram, clock, scores[i], surprises[i], growth, run_weight)


@kernel
def count_and_write_two_means(
    histogram: Array, clock: Array, scores: Array, growth: float, run_weight: float, thresholds: Array, surprises: Array
) -> None:
    """Like `count_and_write_tail`, with two-means thresholds."""
    for i in range(scores.size):
        thresholds[i] = two_means_threshold(histogram)
        surprises[i] = surprise_and_count(histogram, clock, scores[i], growth, run_weight)


@kernel
def count_and_write_quantiles(
    histogram: Array,
    clock: Array,
    scores: Array,
    growth: float,
    run_weight: float,
    share: float,
    thresholds: Array,
    surprises: Array,
) -> None:
    """Like `count_and_write_tail`, with thresholds above which this share of the weight lies."""
    for i in range(scores.size):
        thresholds[i] = quantile_threshold(histogram, share)
        surprises[i] = surprise_and_count(histogram, clock, scores[i], growth, run_weight)

"""Histograms of scores on [0, 1]: one with exponentially decaying weights and its thresholds, and a plain one."""

from imondrian.engine.jit import Array, helper, kernel, summing_helper

N_BINS = 1024  # of a weighted histogram
COUNT, SUM = 0, 1  # the rows of a weighted histogram: weight, and weighted sum of scores, of each bin
WEIGHT, N_COUNTED = 0, 1  # the entries of its clock: weight of the next score, number of scores counted
MAX_WEIGHT = 1e50  # weights are rescaled when they exceed this
_NEGLIGIBLE = 1e-9  # bins with less than this share of the total weight are ignored
_ROUNDING = 1e-12


@helper
def is_score(score: float) -> bool:
    """Return True if the score is in [0, 1], and False for NaN."""
    return 0.0 <= score <= 1.0


@helper
def bin_of(histogram: Array, score: float) -> int:
    """Return the bin of a score in [0, 1]."""
    return min(int(score * histogram.shape[1]), histogram.shape[1] - 1)


@helper
def count_score(histogram: Array, clock: Array, score: float, growth: float, weight: float) -> None:
    """Add the score, which must be in [0, 1], to its bin; `weight` is 1 if the score counts fully, and less if not.

    Instead of reducing old weights, each new score gets a larger weight than the last.
    """
    i = bin_of(histogram, score)
    histogram[COUNT, i] += weight * clock[WEIGHT]
    histogram[SUM, i] += weight * clock[WEIGHT] * score
    clock[WEIGHT] *= growth
    clock[N_COUNTED] += 1.0
    if clock[WEIGHT] > MAX_WEIGHT:
        for i in range(histogram.shape[1]):
            histogram[COUNT, i] /= clock[WEIGHT]
            histogram[SUM, i] /= clock[WEIGHT]
        clock[WEIGHT] = 1.0


@kernel
def two_means_threshold(histogram: Array) -> float:
    """Return the midpoint of the means of two clusters with the least sum of squares; 1 if there is only one cluster.

    This is the labelling by K-means of [Ma2020] on a histogram; the scores of one bin stay together.
    """
    negligible = _NEGLIGIBLE * total_weight(histogram)
    first, last = 0, histogram.shape[1] - 1
    while first < last and histogram[COUNT, first] <= negligible:
        first += 1
    while last > first and histogram[COUNT, last] <= negligible:
        last -= 1
    n, total = 0.0, 0.0
    for i in range(first, last + 1):
        if histogram[COUNT, i] > negligible:
            n += histogram[COUNT, i]
            total += histogram[SUM, i]
    best, threshold = 0.0, 1.0
    n_low, sum_low = 0.0, 0.0
    for i in range(first, last):
        if histogram[COUNT, i] > negligible:
            n_low += histogram[COUNT, i]
            sum_low += histogram[SUM, i]
            if n - n_low <= negligible:
                break
            gain = squares_gain(n_low, sum_low, n - n_low, total - sum_low)
            if gain > best:
                best = gain
                threshold = 0.5 * (sum_low / n_low + (total - sum_low) / (n - n_low))
    return threshold


@summing_helper
def total_weight(histogram: Array) -> float:
    """Return the sum of the weights of all bins."""
    total = 0.0
    for i in range(histogram.shape[1]):
        total += histogram[COUNT, i]
    return total


@helper
def squares_gain(n_low: float, sum_low: float, n_high: float, sum_high: float) -> float:
    """Return, up to a constant factor, how much two clusters reduce the sum of squares of one cluster."""
    difference = sum_high * n_low - sum_low * n_high
    return difference * difference / (n_low * n_high)


@kernel
def quantile_threshold(histogram: Array, share: float) -> float:
    """Return the score above which about that share of the weight lies; 1 for an empty histogram."""
    weight_above = 0.0
    for i in range(histogram.shape[1]):
        weight_above += share * histogram[COUNT, i]
    if weight_above == 0.0:
        return 1.0
    i = histogram.shape[1] - 1
    while histogram[COUNT, i] < weight_above and i > 0:
        weight_above -= histogram[COUNT, i]
        i -= 1
    if histogram[COUNT, i] == 0.0:
        return 0.0
    interpolated = (i + 1.0 - weight_above / histogram[COUNT, i]) / histogram.shape[1]
    mean = histogram[SUM, i] / histogram[COUNT, i]
    return max(interpolated, mean + _ROUNDING)  # if all scores are equal, none lies above


@kernel
def count_in_bins(bins: Array, scores: Array) -> None:
    """Count scores in bins of equal width on [0, 1]."""
    for score in scores:
        count_in_bin(bins, score)


@kernel
def count_in_bin(bins: Array, score: float) -> None:
    """Count a score in its bin; ignore NaN and values outside [0, 1]."""
    if 0.0 <= score <= 1.0:
        bins[min(int(score * bins.size), bins.size - 1)] += 1.0

"""Surprise of scores, compared with a plain version of its definition; its calibration in law."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.alarms.thresholds import StreamingThreshold
from imondrian.engine.histogram import N_BINS
from imondrian.engine.surprise import RUN_LENGTH, RUN_WEIGHT, SURPRISING, new_clock, tail_threshold, write_surprises

SCORES = st.lists(st.floats(0.001, 0.999), min_size=1, max_size=60).map(np.array)
PROBABILITIES = st.floats(1e-6, 0.4)


def histogram_of(scores, weights=None):
    weights = np.ones(len(scores)) if weights is None else weights
    bins = np.minimum((scores * N_BINS).astype(int), N_BINS - 1)
    return np.array([np.bincount(bins, values, N_BINS) for values in (weights, weights * scores)])


def surprises_of(histogram, scores):
    surprises = np.empty(len(scores))
    write_surprises(histogram, new_clock(), np.asarray(scores, float), surprises)
    return surprises


def plain_surprise(histogram, score):
    """Follow the definition word by word, without regard for speed."""
    counts, sums = histogram
    total, first, above = counts.sum(), N_BINS - 1, 0.0
    while first > 0 and above + counts[first] < 0.1 * total:
        above += counts[first]
        first -= 1
    if above > 0.25 * 0.1 * total:
        first += 1

    def level(s):
        return -math.log(-math.log2(min(max(s, 2.0**-1000), 1.0 - 2.0**-53)))

    share = counts[first:].sum() / total
    position = min(int(score * N_BINS), N_BINS - 1)
    if position < first:
        part = counts[position] * (position + 1 - score * N_BINS)
        return -math.log10((part + counts[position + 1 :].sum()) / total)
    start, excesses, weights = level(first / N_BINS), [], []
    for i in range(first, N_BINS):
        if counts[i] > 0.0:
            centre, average = (i + 0.5) / N_BINS, sums[i] / counts[i]
            slope = -1.0 / (centre * math.log(centre))
            near = level(average) if i in (0, N_BINS - 1) else level(centre) + slope * (average - centre)
            excesses.append(near - start)
            weights.append(counts[i])
    mean = np.average(excesses, weights=weights)
    variance = np.average((np.array(excesses) - mean) ** 2, weights=weights)
    mean = max(mean, 0.01)
    n = sum(weights)
    ratio = (variance / mean**2 * n + 20.0) / (n + 20.0)
    shape = min(max(ratio**-0.543, 0.7), 3.0)
    scale = mean / math.gamma(1.0 + 1.0 / shape)
    return -math.log10(share) + (max(level(score) - start, 0.0) / scale) ** shape / math.log(10.0)


@given(scores=SCORES, asked=SCORES)
def test_the_kernel_follows_the_definition(scores, asked):
    histogram = histogram_of(scores)
    expected = [plain_surprise(histogram, score) for score in asked]
    np.testing.assert_allclose(surprises_of(histogram, asked), expected, rtol=1e-9, atol=1e-9)


@given(scores=SCORES, asked=SCORES)
def test_a_higher_score_is_at_least_as_surprising_within_the_tail_and_within_the_body(scores, asked):
    """Between both, the surprise may jump, but stays on its side of the share of the tail."""
    histogram, ordered = histogram_of(scores), np.sort(asked)
    surprises = surprises_of(histogram, ordered)
    assert (surprises >= 0.0).all()
    assert (np.diff(surprises) >= -1e-9).all()


@given(scores=SCORES, probability=PROBABILITIES)
def test_the_threshold_has_the_surprise_of_its_probability(scores, probability):
    histogram = histogram_of(scores)
    threshold = tail_threshold(histogram, new_clock(), probability)
    assert 0.0 <= threshold <= 1.0
    share = 10.0 ** -surprises_of(histogram, [1.0 - 2.0**-53])[0]
    if share < probability < 0.01:  # in the tail, and not beyond the largest float below 1
        assert surprises_of(histogram, [threshold])[0] == pytest.approx(-math.log10(probability), rel=1e-6, abs=1e-6)


@given(score=st.floats(0.0, 1.0), n=st.integers(1, 50))
def test_equal_scores_are_never_surprising(score, n):
    assert surprises_of(histogram_of(np.full(n, score)), [score])[0] < 1.0


def test_nothing_is_surprising_without_scores_and_nan_has_no_surprise():
    empty = np.zeros((2, N_BINS))
    assert surprises_of(empty, [0.0, 0.5, 1.0]).tolist() == [0.0, 0.0, 0.0]
    assert np.isnan(surprises_of(empty, [np.nan, -0.1, 1.1])).all()
    assert tail_threshold(empty, new_clock(), 0.001) == 1.0


@pytest.mark.parametrize("name", ["exponential", "gumbel", "normal", "uniform"])
def test_the_surprise_is_calibrated_for_levels_of_any_shape(name):
    """10,000 scores fit the tail, 200,000 test it: the share above a surprise of 2 and 3 is within a factor of 2.

    By chance alone, the share at 3 (200 scores) differs by a factor of 2 with a probability below 1e-10.
    """
    rng = np.random.default_rng(7)
    draw = {
        "exponential": lambda n: rng.exponential(0.2, n),
        "gumbel": lambda n: rng.gumbel(0.0, 0.15, n),
        "normal": lambda n: rng.normal(0.0, 0.25, n),
        "uniform": lambda n: rng.uniform(-0.3, 0.3, n),
    }[name]
    scores, others = (2.0 ** -np.exp(-draw(n)) for n in (10_000, 200_000))
    surprises = surprises_of(histogram_of(scores), others)
    for level in (2.0, 3.0):
        assert 0.5 < (surprises > level).mean() / 10.0**-level < 2.0 or (name, level) == ("uniform", 3.0)


# -- runs of surprising scores ----------------------------------------------------------------------------------------


def ordinary(n, seed=0):
    return np.random.default_rng(seed).normal(0.45, 0.03, n)


def test_a_run_of_surprising_scores_teaches_little_more_than_its_first():
    alone, in_run, far_apart = (StreamingThreshold(0.001) for _ in range(3))
    for threshold in (alone, in_run, far_apart):
        threshold.observe(np.concatenate([ordinary(3_000), np.full(int(RUN_LENGTH), 0.45)]))
    weight = alone.clock[0]
    alone.observe(np.array([0.9]))
    in_run.observe(np.full(11, 0.9))
    added = [threshold.histogram[0, int(0.9 * N_BINS)] / weight for threshold in (alone, in_run)]
    assert added == pytest.approx([1.0, 1.0 + 10 * RUN_WEIGHT], rel=0.01)
    far_apart.observe(np.array([0.9, *np.full(int(RUN_LENGTH), 0.45), 0.9]))
    assert far_apart.histogram[0, int(0.9 * N_BINS)] / weight == pytest.approx(2.0, rel=0.1)


def test_shares_and_clusters_count_every_score_fully():
    for rule in ("top 5%", "kmeans"):
        threshold = StreamingThreshold(rule, half_life=10**9)
        threshold.observe(np.concatenate([ordinary(1_000), np.full(50, 0.9)]))
        assert threshold.histogram[0].sum() == pytest.approx(1_050)


def test_the_surprise_does_not_depend_on_the_threshold():
    scores = np.concatenate([ordinary(1_000), np.full(20, 0.8), ordinary(100, 1)])
    surprises = [StreamingThreshold(rule).observe(scores)[1] for rule in (0.0001, 0.01, 0.2, 0.5, "surprise 7")]
    for other in surprises[1:]:
        np.testing.assert_array_equal(other, surprises[0])


@given(ends=st.lists(st.integers(0, 300), max_size=4), rule=st.sampled_from([0.001, 0.2, 0.5, "kmeans", "top 5%"]))
def test_scores_can_be_divided_into_blocks_and_the_state_saved_between_them(ends, rule):
    scores = np.concatenate([ordinary(200), np.full(10, 0.8), ordinary(90, 2)])
    whole, part = StreamingThreshold(rule, 50), StreamingThreshold(rule, 50)
    expected, found = whole.observe(scores), []
    for block in np.split(scores, sorted(ends)):
        found.append(part.observe(block))
        resumed = StreamingThreshold(rule, 50)
        resumed.restore(part.state())
        part = resumed
    for ours, theirs in zip(zip(*found, strict=True), expected, strict=True):
        np.testing.assert_array_equal(np.concatenate(ours), theirs)
    assert part.state() == whole.state()


@pytest.mark.parametrize("since", [-1.0, RUN_LENGTH + 1, float("nan"), "3"])
def test_a_damaged_number_of_scores_since_a_surprising_one_is_refused(since):
    with pytest.raises(ValueError, match=r"since a surprising one"):
        StreamingThreshold().restore(StreamingThreshold().state() | {"since": since})


@pytest.mark.parametrize("change", [{"weight": 5e-324}, {"weight": 0.5}, {"histogram": [[1e308] * N_BINS] * 2}])
def test_weights_that_no_stream_can_have_are_refused(change):
    with pytest.raises(ValueError, match="the histogram of scores is damaged"):
        StreamingThreshold().restore(StreamingThreshold().state() | change)


def test_constants_are_those_of_the_documentation():
    assert (SURPRISING, RUN_LENGTH, RUN_WEIGHT) == (2.5, 32, 1 / 32)

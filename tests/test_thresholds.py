"""Thresholds, compared with brute force, K-means of scikit-learn and quantiles; streams compared with batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from imondrian import InvalidInputError, thresholds
from imondrian.order_statistics import median_of_copies, quantile_of_copies
from imondrian.thresholds import StreamingThreshold, fixed, quantile, threshold_rule, two_means

SCORES = st.lists(st.floats(0.001, 0.999), min_size=1, max_size=40).map(np.array)
RNG = np.random.default_rng(0)
TYPICAL = np.clip(np.concatenate([RNG.normal(0.42, 0.04, 900), RNG.normal(0.7, 0.05, 100)]), 0.0, 1.0)


def squares(values):
    return ((values - values.mean()) ** 2).sum() if values.size else 0.0


@given(scores=SCORES)
def test_two_means_is_optimal(scores):
    ordered = np.sort(scores)
    costs = [squares(ordered[:i]) + squares(ordered[i:]) for i in range(1, ordered.size)]
    threshold = two_means(scores)
    low, high = scores[scores <= threshold], scores[scores > threshold]
    assert squares(low) + squares(high) <= min(costs, default=0.0) + 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_two_means_agrees_with_k_means_of_scikit_learn(seed):
    scores = np.random.default_rng(seed).permutation(TYPICAL)
    means = KMeans(2, n_init=10, random_state=seed).fit(scores[:, None]).cluster_centers_
    assert two_means(scores) == pytest.approx(means.mean(), abs=1e-4)


@pytest.mark.parametrize("scores", [[0.4], [0.4, 0.4, 0.4]])
def test_no_score_is_an_anomaly_if_all_are_equal(scores):
    assert not (np.array(scores) > two_means(np.array(scores))).any()


@given(scores=SCORES, share=st.floats(0.01, 0.5))
def test_the_given_share_of_scores_lies_above_the_quantile(scores, share):
    """Up to one score, since the quantile is interpolated between scores, as in scikit-learn."""
    assert (scores > quantile(share)(scores)).mean() <= share + 1 / scores.size
    assert (scores >= quantile(share)(scores)).mean() >= share - 1 / scores.size


def test_rules_are_selected_by_name():
    assert threshold_rule("auto")(TYPICAL) == fixed()(TYPICAL) == 0.5
    assert threshold_rule("kmeans")(TYPICAL) == two_means(TYPICAL)
    assert threshold_rule(0.1)(TYPICAL) == np.quantile(TYPICAL, 0.9)


@pytest.mark.parametrize("wrong", ["mean", 0.0, 0.6, -0.1, None, True, float("nan")])
@pytest.mark.parametrize(("function", "name"), [(threshold_rule, "contamination"), (StreamingThreshold, "rule")])
def test_a_wrong_contamination_is_named(function, name, wrong):
    with pytest.raises(InvalidInputError, match=rf"^{name} must be 'auto', 'kmeans' or a share .* but is"):
        function(wrong)


@pytest.mark.parametrize("contamination", ["auto", "kmeans", 0.05, 0.3])
def test_streaming_and_batch_thresholds_agree(contamination):
    """The histogram has 1,024 bins, so that its thresholds are accurate to about 0.001."""
    stream = StreamingThreshold(contamination, half_life=10**9)
    for score in TYPICAL:
        stream.update(score)
    assert stream.threshold == pytest.approx(threshold_rule(contamination)(TYPICAL), abs=2e-3)
    labels = [stream.is_anomaly(score) for score in TYPICAL]
    assert np.mean(labels == (threshold_rule(contamination)(TYPICAL) < TYPICAL)) > 0.99


@pytest.mark.parametrize("contamination", ["kmeans", 0.1])
def test_old_scores_are_forgotten(contamination):
    moved, fresh = StreamingThreshold(contamination, 100), StreamingThreshold(contamination, 100)
    for score in TYPICAL * 0.3:
        moved.update(score)
    for score in TYPICAL:
        moved.update(score)
        fresh.update(score)
    assert moved.threshold == pytest.approx(fresh.threshold, abs=0.01)


def test_the_threshold_does_not_depend_on_the_scale_of_the_weights():
    threshold = StreamingThreshold("kmeans")
    threshold.observe(np.random.default_rng(0).choice([0.4, 0.42, 0.8], 2_000))
    heavy = StreamingThreshold("kmeans")
    factor = 1e50 / threshold.clock[0]
    heavy.restore({"histogram": (threshold.histogram * factor).tolist(), "weight": 1e50})
    assert heavy.threshold == pytest.approx(threshold.threshold, rel=1e-12)


def test_an_endless_stream_does_not_overflow():
    stream = StreamingThreshold(0.1, half_life=1)
    for score in np.tile(TYPICAL, 3):
        stream.update(score)
    assert np.isfinite(stream.histogram).all()
    assert 0.0 < stream.threshold < 1.0


@pytest.mark.parametrize("contamination", ["kmeans", 0.1])
def test_no_score_is_flagged_before_the_first_update(contamination):
    assert not StreamingThreshold(contamination).is_anomaly(0.99)


def test_scores_of_0_and_1_are_counted():
    stream = StreamingThreshold("kmeans")
    for score in (0.0, 0.0, 1.0):
        stream.update(score)
    assert stream.threshold == pytest.approx(0.5)


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan")])
def test_a_wrong_score_is_named(score):
    with pytest.raises(InvalidInputError, match="A score must be between 0 and 1, but is"):
        StreamingThreshold().update(score)


def test_a_wrong_half_life_is_named():
    with pytest.raises(InvalidInputError, match="half_life must be between 1 and"):
        StreamingThreshold(half_life=0)


@pytest.mark.parametrize("early", [0.1, 0.9])
def test_a_very_old_score_does_not_form_a_cluster(early):
    stream = StreamingThreshold("kmeans", half_life=100)
    stream.update(early)
    for _ in range(5000):
        stream.update(0.4)
    assert not stream.is_anomaly(0.4)
    assert stream.threshold == 1.0


@pytest.mark.parametrize("score", [1.0, 0.4, 409.95 / 1024])
def test_equal_scores_do_not_lie_above_their_quantile(score):
    stream = StreamingThreshold(0.1)
    for _ in range(100):
        stream.update(score)
    assert not stream.is_anomaly(score)


@pytest.mark.parametrize("contamination", ["auto", "kmeans", 0.1])
def test_invalid_scores_are_not_counted(contamination):
    with_invalid, expected = StreamingThreshold(contamination), StreamingThreshold(contamination)
    with_invalid.observe(np.array([0.3, -1e6, np.nan, 7.0, 0.6]))
    expected.observe(np.array([0.3, 0.6]))
    assert with_invalid.threshold == expected.threshold


COPIES = st.lists(st.tuples(st.floats(0.001, 0.999), st.integers(1, 9)), min_size=1, max_size=30)


@given(pairs=COPIES, share=st.floats(0.001, 0.5))
def test_copies_count_like_a_list_of_them_bit_for_bit(pairs, share):
    scores, copies = (np.array(column) for column in zip(*pairs, strict=True))
    listed = np.repeat(scores, copies)
    assert quantile_of_copies(scores, copies, share) == np.quantile(listed, share)
    assert median_of_copies(scores, copies) == np.median(listed)
    for rule in (fixed(), two_means, quantile(share)):
        assert rule(scores, copies) == rule(listed)


@given(pairs=COPIES)
def test_two_means_of_copies_is_the_same_without_listing_them(pairs):
    scores, copies = (np.array(column) for column in zip(*pairs, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "_MAX_LISTED", 0)
        threshold = two_means(scores, copies)
    listed = np.repeat(scores, copies)
    costs = [squares(listed[listed <= t]) + squares(listed[listed > t]) for t in (threshold, two_means(listed))]
    assert costs[0] == pytest.approx(costs[1], abs=1e-9)


def test_very_many_copies_are_not_listed():
    scores, copies = np.array([0.4, 0.6, 0.9]), np.array([2**31, 2**30, 1], np.uint32)
    assert two_means(scores, copies) == pytest.approx(0.5)
    assert quantile(0.1)(scores, copies) == 0.6
    assert median_of_copies(scores, copies) == 0.4

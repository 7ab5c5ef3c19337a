"""Thresholds, compared with brute force, K-means of scikit-learn and quantiles; streams compared with batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from imondrian import InvalidInputError
from imondrian.alarms import thresholds
from imondrian.alarms.score_distribution import ScoreDistribution
from imondrian.alarms.thresholds import (
    FIXED,
    KMEANS,
    SHARE,
    SURPRISE,
    Rule,
    StreamingThreshold,
    batch_rule,
    batch_threshold,
    contamination_of,
    quantile,
    stream_rule,
    two_means,
)
from imondrian.forest.order_statistics import median_of_copies, quantile_of_copies
from imondrian.stream.stream_parameters import checked_threshold

SCORES = st.lists(st.floats(0.001, 0.999), min_size=1, max_size=40).map(np.array)
RNG = np.random.default_rng(0)
TYPICAL = np.clip(np.concatenate([RNG.normal(0.42, 0.04, 900), RNG.normal(0.7, 0.05, 100)]), 0.0, 1.0)


RULES = st.one_of(
    st.just(Rule(KMEANS)),
    st.builds(Rule, st.just(SHARE), st.floats(0.0, 0.5, exclude_min=True)),
    st.builds(Rule, st.just(SURPRISE), st.floats(0.0, 300.0, exclude_min=True)),
    st.builds(Rule, st.just(FIXED), st.floats(0.0, 1.0, exclude_min=True)),
)


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
    assert (scores > quantile(scores, share)).mean() <= share + 1 / scores.size
    assert (scores >= quantile(scores, share)).mean() >= share - 1 / scores.size


def test_rules_are_selected_by_name():
    assert batch_threshold(batch_rule("auto", "paper"), TYPICAL) == 0.5
    assert batch_threshold(batch_rule("score 0.6"), TYPICAL) == 0.6
    assert batch_threshold(batch_rule("kmeans"), TYPICAL) == two_means(TYPICAL)
    assert batch_threshold(batch_rule(0.1), TYPICAL) == np.quantile(TYPICAL, 0.9)
    assert batch_threshold(batch_rule("top 10%"), TYPICAL) == np.quantile(TYPICAL, 0.9)
    tail = ScoreDistribution.of(TYPICAL).threshold(0.001)
    assert batch_threshold(batch_rule("auto", "practice"), TYPICAL) == tail
    assert batch_threshold(batch_rule("surprise 3"), TYPICAL) == tail


def test_a_number_is_a_share_for_estimators_and_a_probability_elsewhere():
    assert batch_rule(0.01) == batch_rule("top 1%") == stream_rule("top 1%") == Rule(SHARE, 0.01)
    assert stream_rule(0.01) == stream_rule("surprise 2") == batch_rule("surprise 2") == Rule(SURPRISE, 2.0)
    assert batch_rule(0.5) == Rule(SHARE, 0.5)
    assert stream_rule(0.5) == stream_rule("score 0.5") == batch_rule("score 0.5") == Rule(FIXED, 0.5)


@given(rule=RULES)
def test_the_text_of_a_rule_means_the_same_rule(rule):
    assert stream_rule(rule.text) == batch_rule(rule.text) == rule
    assert len(rule.text) < 40


@given(number=st.floats(0.0, 0.5, exclude_min=True))
def test_the_text_of_an_accepted_number_means_the_same_rule(number):
    assert batch_rule(batch_rule(number).text) == batch_rule(number)
    if number >= 1e-300:
        rule = stream_rule(number)
        assert stream_rule(rule.text) == batch_rule(rule.text) == rule
    else:
        with pytest.raises(InvalidInputError, match=r"^threshold must be a probability of at least 1e-300 .* but is "):
            stream_rule(number)


@given(threshold=st.one_of(st.floats(1e-300, 0.5), RULES.map(lambda rule: rule.text)))
def test_the_contamination_of_a_threshold_has_its_rule(threshold):
    assert batch_rule(contamination_of(threshold)) == stream_rule(threshold)


@pytest.mark.parametrize("preset", ["practice", "paper"])
def test_the_contamination_of_auto_depends_on_the_preset(preset):
    assert contamination_of("auto") == "auto"
    assert batch_rule("auto", preset).text == {"practice": "surprise 3", "paper": "score 0.5"}[preset]


WRONG = ["mean", 0.0, 0.6, -0.1, None, True, float("nan"), "top 0%", "top 60%", "top 5", "surprise 3%", "surprise 0"]
WRONG += [
    "surprise 1_0",
    "top 1_0%",
    "surprise ٣",
    "top \u0665%",
    "score \uff10.\uff15",
    "\u017furprise 3",
    "top\u00a05%",
    "surprise +3",
]
WRONG += ["score 1.5", "surprise 301", "surprise -1", "surprise nan", "top", "5%", "", ["kmeans"], "top 5% 3"]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize(
    ("function", "name", "first"),
    [
        (batch_rule, "contamination", "'auto', 'kmeans', a share between 0"),
        (stream_rule, "threshold", "a probability below 0.5"),
        (contamination_of, "threshold", "'auto', a probability below 0.5"),
        (lambda threshold: checked_threshold(threshold, "practice"), "threshold", "'auto', a probability below 0.5"),
        (StreamingThreshold, "rule", "a probability below 0.5"),
    ],
)
def test_a_wrong_contamination_is_named(function, name, first, wrong):
    with pytest.raises(InvalidInputError, match=rf"^{name} must be {first}.* but is ") as caught:
        function(wrong)
    assert str(caught.value).endswith(f"but is {wrong!r}.")


AGREEING = {"score 0.5": 0.5, "kmeans": "kmeans", "top 5%": "top 5%", "top 30%": "top 30%"}


@pytest.mark.parametrize("text", AGREEING)
def test_streaming_and_batch_thresholds_agree(text):
    """The histogram has 1,024 bins, so that its thresholds are accurate to about 0.001."""
    stream, expected = StreamingThreshold(AGREEING[text], half_life=10**9), batch_threshold(batch_rule(text), TYPICAL)
    for score in TYPICAL:
        stream.update(score)
    assert stream.threshold == pytest.approx(expected, abs=2e-3)
    labels = [stream.is_anomaly(score) for score in TYPICAL]
    assert np.mean(labels == (expected < TYPICAL)) > 0.99


def test_streaming_and_batch_surprises_agree_without_anomalies():
    """A stream whose weights do not decay has the histogram of a batch; surprising scores may weigh less."""
    scores = np.clip(RNG.normal(0.42, 0.04, 5_000), 0.0, 1.0)
    stream, batch = StreamingThreshold(0.001, half_life=10**9), ScoreDistribution.of(scores)
    stream.observe(scores)
    assert stream.threshold == pytest.approx(batch.threshold(0.001), abs=0.01)
    levels = np.linspace(0.3, 0.6, 31)
    assert stream.surprise(levels) == pytest.approx(batch.surprise(levels), rel=0.1, abs=0.02)


def test_the_distribution_of_a_stream_has_its_threshold_and_surprises():
    stream = StreamingThreshold(0.001, half_life=100)
    stream.observe(TYPICAL)
    distribution, levels = stream.distribution(), np.linspace(0.0, 1.0, 101)
    assert distribution.threshold(0.001) == pytest.approx(stream.threshold, rel=1e-12)
    assert distribution.surprise(levels) == pytest.approx(stream.surprise(levels), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("rule", ["kmeans", "top 10%", 0.1, 0.001, 0.5])
def test_observing_many_scores_equals_updating_one_by_one(rule):
    many, one = StreamingThreshold(rule, 200), StreamingThreshold(rule, 200)
    thresholds, surprises = many.observe(TYPICAL)
    for i, score in enumerate(TYPICAL):
        assert thresholds[i] == one.threshold
        assert surprises[i] == one.surprise(np.array([score]))[0]
        one.update(score)
    assert (many.histogram == one.histogram).all()


@pytest.mark.parametrize("contamination", ["kmeans", "top 10%", 0.1])
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
    stream = StreamingThreshold("top 10%", half_life=1)
    for score in np.tile(TYPICAL, 3):
        stream.update(score)
    assert np.isfinite(stream.histogram).all()
    assert 0.0 < stream.threshold < 1.0


@pytest.mark.parametrize("contamination", ["kmeans", "top 10%", 0.1, 0.001])
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


@pytest.mark.parametrize("rule", ["top 10%", 0.1, 0.001])
@pytest.mark.parametrize("score", [1.0, 0.4, 409.95 / 1024])
def test_equal_scores_do_not_lie_above_their_quantile(score, rule):
    stream = StreamingThreshold(rule)
    for _ in range(100):
        stream.update(score)
    assert not stream.is_anomaly(score)


@pytest.mark.parametrize("contamination", [0.5, "kmeans", "top 10%", 0.1])
def test_invalid_scores_are_not_counted(contamination):
    with_invalid, expected = StreamingThreshold(contamination), StreamingThreshold(contamination)
    _, surprises = with_invalid.observe(np.array([0.3, -1e6, np.nan, 7.0, 0.6]))
    _, expected_surprises = expected.observe(np.array([0.3, 0.6]))
    assert with_invalid.threshold == expected.threshold
    assert np.isnan(surprises[1:4]).all()
    assert (surprises[[0, 4]] == expected_surprises).all()


COPIES = st.lists(st.tuples(st.floats(0.001, 0.999), st.integers(1, 9)), min_size=1, max_size=30)


@given(pairs=COPIES, share=st.floats(0.001, 0.5))
def test_copies_count_like_a_list_of_them_bit_for_bit(pairs, share):
    scores, copies = (np.array(column) for column in zip(*pairs, strict=True))
    listed = np.repeat(scores, copies)
    assert quantile_of_copies(scores, copies, share) == np.quantile(listed, share)
    assert median_of_copies(scores, copies) == np.median(listed)
    for rule in (Rule(FIXED, 0.5), Rule(KMEANS), Rule(SHARE, share), Rule(SURPRISE, 3.0)):
        assert batch_threshold(rule, scores, copies) == batch_threshold(rule, listed)


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
    assert quantile(scores, 0.1, copies) == 0.6
    assert median_of_copies(scores, copies) == 0.4


@pytest.mark.parametrize("scores", [0.5, [[0.5]], "x", None, [[0.5], [0.5, 0.6]]])
@pytest.mark.parametrize("method", ["surprise", "observe"])
def test_scores_must_be_a_list_of_numbers(method, scores):
    with pytest.raises(InvalidInputError, match="scores must be a list of numbers, but is"):
        getattr(StreamingThreshold(0.01), method)(scores)

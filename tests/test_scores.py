"""Properties of scores: high is anomalous, 0.5 is average; explanations name the right feature."""

import numpy as np
import pytest

from imondrian import MondrianForest
from imondrian.engine.threads import Threads
from imondrian.forest.scores import SCORES, ScoringCache

RNG = np.random.default_rng(1)
CROWD = RNG.normal(size=(1000, 3))


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("scale", [None, "std"])
def test_an_outlier_scores_higher_than_the_other_points(kind, scale):
    forest = MondrianForest(max_samples=256, scale=scale).build(CROWD)
    assert forest.score_one([6.0, -6.0, 6.0], kind) > 0.6
    assert forest.score_one([0.0, 0.0, 0.0], kind) < 0.5
    assert forest.score(CROWD, kind).max() < forest.score_one([8.0, 8.0, 8.0], kind)


@pytest.mark.parametrize("kind", SCORES)
def test_the_average_point_scores_a_half(kind):
    forest = MondrianForest(n_trees=200).build(CROWD)
    relative = -np.log2(forest.score(CROWD, kind))
    mean = relative.mean() if kind != "size" else np.exp(np.log(relative).mean())
    assert mean == pytest.approx(1.0, abs=0.35 if kind != "size" else 1e-9)


@pytest.mark.parametrize("kind", SCORES)
def test_a_forest_of_one_point_gives_the_score_a_half(kind):
    forest = MondrianForest().build([[1.0, 2.0]])
    assert forest.score([[1.0, 2.0], [50.0, 50.0]], kind).tolist() == [0.5, 0.5]


def test_box_aware_scores_are_high_for_a_point_next_to_copies():
    forest = MondrianForest().build(np.ones((500, 2)))
    assert forest.score_one([1.0, 1.0], "size") == pytest.approx(0.5)
    assert forest.score_one([1.0, 1.5], "size") > 0.99
    assert forest.score_one([1.0, 1.5], "expected") > 0.9


@pytest.mark.parametrize("kind", ["expected", "size"])
def test_box_aware_scores_increase_with_distance(kind):
    """Path lengths do not depend on how far a point lies outside; box-aware scores do."""
    forest = MondrianForest(max_samples=256).build(CROWD)
    scores = [forest.score_one([distance, 0.0, 0.0], kind) for distance in (4.0, 6.0, 10.0, 100.0)]
    assert scores == sorted(scores)
    assert scores[0] < scores[-1]


def test_scores_with_scale_std_do_not_depend_on_units():
    units = np.array([1e-6, 1.0, 1e6])
    plain = MondrianForest(scale="std").build(CROWD)
    stretched = MondrianForest(scale="std").build(CROWD * units)
    for kind in SCORES:
        np.testing.assert_allclose(plain.score(CROWD, kind), stretched.score(CROWD * units, kind), rtol=1e-6)


def test_weights_have_the_same_effect_as_scaling():
    weights = np.array([1.0, 4.0, 0.25])
    weighted = MondrianForest(scale=weights).build(CROWD)
    scaled = MondrianForest().build(CROWD * weights)
    for kind in SCORES:
        np.testing.assert_allclose(weighted.score(CROWD, kind), scaled.score(CROWD * weights, kind), rtol=1e-12)


@pytest.mark.parametrize("kind", SCORES)
def test_live_and_frozen_trees_give_the_same_scores_bit_for_bit(kind):
    forest = MondrianForest(n_trees=20, max_samples=128).build(CROWD)
    at_once = forest.score(CROWD, kind)
    forest.extend_one(CROWD[0])
    forest.forget(CROWD[:1])
    one_by_one = [forest.score_one(x, kind) for x in CROWD[:50]]
    assert forest.score(CROWD[:50], kind).tolist() == one_by_one
    assert at_once.shape == (1000,)


@pytest.mark.parametrize("n_features", [5, 17, 36])
@pytest.mark.parametrize("kind", SCORES)
def test_a_row_has_the_same_score_alone_and_among_others(kind, n_features):
    points = np.random.default_rng(3).normal(size=(300, n_features))
    forest = MondrianForest(n_trees=10, max_samples=64, scale="std").build(points)
    assert forest.score(points, kind).tolist() == [forest.score_one(x, kind) for x in points]


@pytest.mark.parametrize("kind", SCORES)
def test_few_rows_in_large_trees_have_the_same_scores_on_one_thread_and_on_two(kind):
    forests = [MondrianForest(n_trees=4, n_jobs=n).build(CROWD) for n in (1, 2)]
    few = CROWD[:60] + 0.1
    one, two = (forest.score(few, kind) for forest in forests)
    assert one.tolist() == two.tolist()
    assert all("frozen" not in vars(forest._scoring_cache()) for forest in forests)
    assert np.array_equal(forests[0].score(np.vstack([few] * 10), kind)[:60], one)


def test_a_frozen_copy_is_made_only_for_many_rows():
    trees, _ = MondrianForest(n_trees=4).build(CROWD).state()
    cache = ScoringCache(trees, np.ones(3), Threads(1))
    SCORES["depth"].score(cache, CROWD[:10])
    assert "frozen" not in vars(cache)
    SCORES["depth"].score(cache, CROWD)
    assert "frozen" in vars(cache)
    assert cache.is_worth_freezing(1)


@pytest.mark.parametrize("scale", [None, "std"])
def test_a_shifted_feature_is_found_with_its_direction(scale):
    """Of 100 anomalies with one shifted feature of 20, it has the largest part in at least 95."""
    rng = np.random.default_rng(2)
    forest = MondrianForest(max_samples=256, scale=scale).build(rng.normal(size=(2000, 20)))
    anomalies = rng.normal(size=(100, 20))
    feature, side = rng.integers(20, size=100), rng.choice([-1.0, 1.0], size=100)
    anomalies[np.arange(100), feature] = side * 8.0
    parts = forest.explain(anomalies, "size")
    leading = np.abs(parts).argmax(axis=1)
    assert (leading == feature).sum() >= 95
    assert (np.sign(parts[np.arange(100), feature]) == side).sum() >= 95


def test_points_that_the_forest_holds_are_explained():
    points = np.vstack([CROWD, [[0.0, 9.0, 0.0]]])
    parts = MondrianForest().build(points).explain(points[-1:])
    assert np.abs(parts[0]).argmax() == 1
    assert parts[0, 1] > 0


def test_features_have_equal_shares_if_all_points_are_equal():
    forest = MondrianForest().build(np.ones((5, 2)))
    assert forest.explain([[1.0, 1.0]]).tolist() == [[0.25, 0.25]]

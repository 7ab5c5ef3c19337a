"""Detectors of other libraries: the same protocol for all, with the scores of each library."""

import numpy as np
import pytest
from pyod.models.knn import KNN
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor

from imondrian import MondrianForest
from imondrian.base.errors import InvalidInputError
from imondrian.experiments.baselines.peers import PyodDetector, ScikitDetector, Standardised
from imondrian.experiments.forest_detector import ForestDetector
from imondrian.experiments.methods import BATCH, ONLINE, QUALITY

ALL = {
    f"{table}-{name}": m
    for table, methods in (("b", BATCH), ("o", ONLINE), ("q", QUALITY))
    for name, m in methods.items()
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(120, 4))


@pytest.mark.parametrize("key", ALL)
def test_every_method_follows_the_detector_protocol(rows, key):
    detector = ALL[key].make(3)
    assert detector.fit(rows) is detector
    assert detector.learned_scores().shape == (120,)
    assert detector.score(rows[:7]).shape == (7,)
    assert np.isfinite(detector.learned_scores()).all()
    fewer = detector.fit(rows[:50]).learned_scores()  # forgets all earlier rows
    np.testing.assert_array_equal(fewer, ALL[key].make(3).fit(rows[:50]).learned_scores())


@pytest.mark.parametrize("key", ALL)
def test_scoring_before_learning_raises(rows, key):
    with pytest.raises(ValueError, match=r"no rows|not been shown any points|learned"):
        ALL[key].make(0).score(rows)


@pytest.mark.parametrize("key", ALL)
def test_a_wrong_number_of_features_raises(rows, key):
    with pytest.raises(InvalidInputError, match=r"3 features.* 4"):
        ALL[key].make(0).fit(rows).score(rows[:, :3])


@pytest.mark.parametrize("name", ONLINE)
def test_online_methods_score_all_rows_so_far_in_order_of_arrival(rows, name):
    detector = ONLINE[name].make(1).fit(rows[:60])
    assert detector.extend(rows[60:]) is detector
    outlier = np.array([[30.0, -40.0, 30.0, 10.0]])
    scores = detector.extend(outlier).learned_scores()
    assert scores.shape == (121,)
    assert scores.argmax() == 120


def test_scores_of_scikit_learn_are_negated(rows):
    detector = ScikitDetector(IsolationForest(random_state=0)).fit(rows)
    forest = IsolationForest(random_state=0).fit(rows)
    np.testing.assert_array_equal(detector.score(rows[:9]), -forest.score_samples(rows[:9]))
    np.testing.assert_array_equal(detector.learned_scores(), -forest.score_samples(rows))


def test_a_learned_row_is_not_its_own_neighbour_in_lof(rows):
    detector = BATCH["lof"].make(0).fit(rows)
    plain = LocalOutlierFactor(10).fit(rows)
    np.testing.assert_array_equal(detector.learned_scores(), -plain.negative_outlier_factor_)
    assert not np.allclose(detector.learned_scores(), detector.score(rows))


def test_copies_give_no_warning(rows):
    BATCH["lof"].make(0).fit(np.repeat(rows[:10], 30, axis=0))


def test_scores_of_pyod_are_unchanged(rows):
    detector, plain = PyodDetector(KNN()).fit(rows), KNN().fit(rows)
    np.testing.assert_array_equal(detector.learned_scores(), plain.decision_scores_)
    np.testing.assert_array_equal(detector.score(rows[:5]), plain.decision_function(rows[:5]))


def test_new_rows_are_standardised_with_the_learned_mean_and_deviation(rows):
    detector = Standardised(PyodDetector(KNN())).fit(rows)
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    plain = KNN().fit((rows - mean) / deviation)
    new = 3.0 * rows[:5] + 1.0
    np.testing.assert_allclose(detector.score(new), plain.decision_function((new - mean) / deviation))


@pytest.mark.parametrize("kind", ["depth", "size"])
def test_rescoring_all_rows_equals_scoring_each_row(rows, kind):
    with_copies = np.vstack([rows, rows[:30]])
    detector = ForestDetector(None, kind, None, seed=2).fit(with_copies[:80]).extend(with_copies[80:])
    forest = MondrianForest(100, max_samples=None, scale=None, seed=2).build(with_copies[:80]).extend(with_copies[80:])
    np.testing.assert_allclose(detector.learned_scores(), forest.score(with_copies, kind), rtol=1e-12)

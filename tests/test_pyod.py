"""The PyOD detector: the assertions that PyOD's own tests make for each detector."""

import copy

import numpy as np
import pytest
from numpy.testing import assert_array_equal, assert_array_less
from pyod.utils.data import generate_data
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from imondrian import InvalidInputError, IsolationMondrianForest
from imondrian.pyod import IMForest

pytestmark = [
    pytest.mark.filterwarnings("ignore:Function fit_predict:FutureWarning"),  # deprecated, but PyOD tests it
    pytest.mark.filterwarnings("ignore:.*reject:UserWarning"),
]
N_TRAIN, N_TEST, CONTAMINATION, FLOOR = 200, 100, 0.1, 0.8


@pytest.fixture(scope="module")
def data():
    return generate_data(n_train=N_TRAIN, n_test=N_TEST, contamination=CONTAMINATION, random_state=42)


@pytest.fixture(
    scope="module", params=[{}, {"kind": "size", "scale": "std"}, {"max_samples": None}, {"max_samples": 0.5}]
)
def detector(request, data):
    return IMForest(contamination=CONTAMINATION, random_state=42, **request.param).fit(data[0])


def test_fitted_attributes_exist(detector):
    for name in ("decision_scores_", "labels_", "threshold_", "_mu", "_sigma", "forest_"):
        assert getattr(detector, name) is not None


def test_train_scores(detector, data):
    assert_array_equal(len(detector.decision_scores_), data[0].shape[0])
    assert_array_equal(detector.decision_function(data[0]), detector.decision_scores_)


def test_prediction_scores(detector, data):
    scores = detector.decision_function(data[1])
    assert scores.shape[0] == data[1].shape[0]
    assert roc_auc_score(data[3], scores) >= FLOOR


def test_prediction_labels(detector, data):
    assert detector.predict(data[1]).shape == data[3].shape
    assert set(detector.predict(data[1])) <= {0, 1}
    assert detector.labels_.sum() == pytest.approx(CONTAMINATION * N_TRAIN, abs=1)


@pytest.mark.parametrize("method", ["linear", "unify"])
def test_prediction_proba(detector, data, method):
    probabilities = detector.predict_proba(data[1], method=method)
    assert probabilities.min() >= 0
    assert probabilities.max() <= 1


def test_prediction_proba_with_an_unknown_method(detector, data):
    with pytest.raises(ValueError, match="not a valid"):
        detector.predict_proba(data[1], method="something")


def test_prediction_confidence(detector, data):
    labels, confidence = detector.predict(data[1], return_confidence=True)
    assert labels.shape == data[3].shape == confidence.shape
    assert confidence.min() >= 0
    assert confidence.max() <= 1


@pytest.mark.parametrize("method", ["linear", "unify"])
def test_prediction_proba_confidence(detector, data, method):
    probabilities, confidence = detector.predict_proba(data[1], method=method, return_confidence=True)
    assert probabilities.min() >= 0
    assert probabilities.max() <= 1
    assert confidence.shape == data[3].shape
    assert confidence.min() >= 0
    assert confidence.max() <= 1


def test_prediction_with_rejection(detector, data):
    labels = detector.predict_with_rejection(data[1], return_stats=False)
    assert labels.shape == data[3].shape
    assert set(labels) <= {-2, 0, 1}


def test_fit_predict(data):
    labels = IMForest(contamination=CONTAMINATION, random_state=1).fit_predict(data[0])
    assert labels.shape == data[2].shape


@pytest.mark.parametrize("scoring", ["roc_auc_score", "prc_n_score"])
def test_fit_predict_score(data, scoring):
    IMForest(contamination=CONTAMINATION).fit_predict_score(data[1], data[3], scoring=scoring)


def test_fit_predict_score_with_an_unknown_scoring(data):
    with pytest.raises(NotImplementedError):
        IMForest(contamination=CONTAMINATION).fit_predict_score(data[1], data[3], scoring="something")


def test_predict_rank(detector, data):
    ranks = detector._predict_rank(data[1])
    assert_array_less(ranks, data[0].shape[0] + 1)
    assert_array_less(-0.1, ranks)
    assert np.abs(rankdata(ranks) - rankdata(detector.decision_function(data[1]))).mean() < 10
    normalized = detector._predict_rank(data[1], normalized=True)
    assert_array_less(normalized, 1.01)
    assert_array_less(-0.1, normalized)


def test_model_clone(detector):
    assert clone(detector).get_params() == detector.get_params()


def test_explanations_sum_to_the_score(detector, data):
    np.testing.assert_allclose(np.abs(detector.explain(data[1])).sum(axis=1), detector.decision_function(data[1]))


def test_a_wrong_kind_is_named(data):
    with pytest.raises(ValueError, match="kind must be one of depth, expected, size, but is 'deep'"):
        IMForest(kind="deep").fit(data[0])


def test_an_unfitted_detector_raises_an_error(data):
    with pytest.raises(ValueError, match="not fitted"):
        IMForest().decision_function(data[0])


def test_categories_of_a_single_row_are_refused():
    with pytest.raises(InvalidInputError, match="X must be a table of rows and features, but has 1 dimension"):
        IMForest(n_estimators=5, categorical=[1]).fit(np.arange(5.0))


class FitsWhenCopied:
    """An attribute that fits the detector while it is copied, as another thread could."""

    def __init__(self, model, X):
        self.model, self.X = model, X

    def __deepcopy__(self, _memo):
        self.model.fit(self.X)


@pytest.mark.parametrize("estimator", [IMForest, IsolationMondrianForest])
def test_a_detector_can_be_copied_while_it_is_fitted(estimator):
    X = np.random.default_rng(0).normal(size=(50, 2))
    model = estimator(n_estimators=5, random_state=0)
    model.other = FitsWhenCopied(model, X)
    copied = copy.deepcopy(model)
    assert hasattr(model, "forest_")
    assert not hasattr(copied, "forest_")
    again = copy.deepcopy(model)
    assert (again.decision_function(X) == model.decision_function(X)).all()

"""Detectors of scikit-learn and PyOD, wrapped so that they have the interface `Detector`."""

import warnings
from typing import Any, Self

from sklearn.base import BaseEstimator, clone
from sklearn.preprocessing import StandardScaler

from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.experiments.detector_protocol import Detector
from imondrian.forest.inputs import as_points


class ScikitDetector:
    """A detector of scikit-learn, such as `IsolationForest`; the score is the negative of `score_samples`.

    Parameters
    ----------
    estimator : estimator with `fit` and `score_samples`
    learned : str, optional
        The attribute with the scores of the training rows (low is anomalous), if they differ from scores of new rows:
        `negative_outlier_factor_` of `LocalOutlierFactor`, in which a row is not its own neighbour.

    Examples
    --------
    >>> from sklearn.ensemble import IsolationForest
    >>> detector = ScikitDetector(IsolationForest(random_state=0)).fit([[0.0], [0.1], [0.2], [9.0]])
    >>> int(detector.learned_scores().argmax())
    3
    """

    def __init__(self, estimator: BaseEstimator, learned: str | None = None) -> None:
        self.estimator = estimator
        self._learned = learned
        self._rows: Array | None = None

    def fit(self, X: Any) -> Self:
        """Fit the estimator on these rows."""
        self._rows = as_points(X, None)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Duplicate values are leading")  # of LOF; some sets have copies
            self.estimator.fit(self._rows)
        return self

    def score(self, X: Any) -> Array:
        """Score rows without learning them."""
        return -self.estimator.score_samples(as_points(X, _check_learned(self._rows).shape[1]))

    def learned_scores(self) -> Array:
        """Return the scores of the training rows."""
        rows = _check_learned(self._rows)
        return self.score(rows) if self._learned is None else -getattr(self.estimator, self._learned)


class PyodDetector:
    """A detector of PyOD.

    Examples
    --------
    >>> from pyod.models.knn import KNN
    >>> detector = PyodDetector(KNN(n_neighbors=1)).fit([[0.0], [0.1], [0.2], [9.0]])
    >>> int(detector.learned_scores().argmax())
    3
    """

    def __init__(self, detector: Any) -> None:
        self.detector = detector
        self._rows: Array | None = None

    def fit(self, X: Any) -> Self:
        """Fit the detector on these rows."""
        self._rows = as_points(X, None)
        self.detector = clone(self.detector).fit(self._rows)  # a second fit of ECOD would keep the rows of the first
        return self

    def score(self, X: Any) -> Array:
        """Score rows without learning them."""
        return self.detector.decision_function(as_points(X, _check_learned(self._rows).shape[1]))

    def learned_scores(self) -> Array:
        """Return the scores of the training rows."""
        _check_learned(self._rows)
        return self.detector.decision_scores_


class Standardised:
    """A detector on standardised features: mean 0 and variance 1 over the training rows.

    Examples
    --------
    >>> from pyod.models.knn import KNN
    >>> X = [[0.0, 500.0], [0.1, 900.0], [0.2, 100.0], [9.0, 400.0]]
    >>> int(Standardised(PyodDetector(KNN(n_neighbors=1))).fit(X).learned_scores().argmax())
    3
    """

    def __init__(self, detector: Detector) -> None:
        self.detector = detector
        self._scaler = StandardScaler()

    def fit(self, X: Any) -> Self:
        """Fit the scaler, then the detector on the scaled rows."""
        self.detector.fit(self._scaler.fit_transform(as_points(X, None)))
        return self

    def score(self, X: Any) -> Array:
        """Score rows without learning them."""
        if not hasattr(self._scaler, "mean_"):
            _check_learned(None)
        return self.detector.score(self._scaler.transform(as_points(X, self._scaler.n_features_in_)))

    def learned_scores(self) -> Array:
        """Return the scores of the training rows."""
        return self.detector.learned_scores()


def _check_learned(rows: Array | None) -> Array:
    if rows is None:
        raise InvalidInputError("The detector has not learned any rows: call fit first.")
    return rows

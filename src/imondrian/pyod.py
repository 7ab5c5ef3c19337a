"""The PyOD detector."""

from dataclasses import replace
from typing import Any, Self

from pyod.models.base import BaseDetector
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from imondrian.base.copying import shallow_copy, take_changes
from imondrian.base.defaults import MISSING_VALUES, N_JOBS, N_TREES, PRESET, resolved
from imondrian.base.locking import lock_of
from imondrian.base.option_types import Categorical, Kind, KindOrPreset, MaxSamples, Missing, PresetName, ScaleOrPreset
from imondrian.engine.jit import Array
from imondrian.forest.scores import score_kind
from imondrian.models.fitted_model import FittedModel, new_model, seed_from
from imondrian.rows import mixed_tables
from imondrian.rows.missing_values import check_rows_have_values, without_indicators


class IMForest(BaseDetector):
    """Isolation Mondrian forest: anomaly detection for batches.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees.
    max_samples : "auto", int, float or None, default="auto"
        Maximum number of rows in a tree. "auto" is 256, a float is a share of the rows, and None is all rows.
    preset : {"practice", "paper"}, default="practice"
        "practice": `kind="size"`, `scale="std"`. "paper": `kind="depth"`, `scale=None`.
    kind : {"preset", "depth", "expected", "size"}, default="preset"
        Which score to use; see `imondrian.IsolationMondrianForest`.
    scale : "preset", None, "std" or array-like of shape (n_features,), default="preset"
        Weight of each feature. None: equal weights. "std": one over the standard deviation of the feature.
    contamination : float, default=0.1
        Share of anomalies in the data, which determines the threshold.
    categorical : "auto", or names, indices or a mask of columns, default="auto"
        Which columns are categories; see `imondrian.IsolationMondrianForest`.
    missing : {"median", "indicator", "raise"}, default="median"
        What to do with missing numbers; see `imondrian.IsolationMondrianForest`.
    n_jobs : int or None, default=1
        Number of threads; None means 1, and -1 means one per processor. Results do not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the trees.

    Attributes
    ----------
    decision_scores_ : ndarray of shape (n_rows,)
        Scores of the fitted rows, in (0, 1); high is anomalous.
    threshold_ : float
        The score above which a row is an anomaly.
    labels_ : ndarray of shape (n_rows,)
        1 for each fitted row that is an anomaly, 0 for the others.
    forest_ : MondrianForest
        The underlying forest.

    Examples
    --------
    >>> from imondrian.pyod import IMForest
    >>> detector = IMForest(contamination=0.25, random_state=0).fit([[-1.1], [0.3], [0.5], [100.0]])
    >>> detector.labels_.tolist()
    [0, 0, 0, 1]
    """

    def __init__(  # noqa: PLR0913, PLR0917 (PyOD's detectors accept parameters by position)
        self,
        n_estimators: int = N_TREES,
        max_samples: MaxSamples = "auto",
        preset: PresetName = PRESET,
        kind: KindOrPreset = "preset",
        scale: ScaleOrPreset = "preset",
        contamination: float = 0.1,
        n_jobs: int | None = N_JOBS,
        random_state: Any = None,
        categorical: Categorical = "auto",
        missing: Missing = MISSING_VALUES,
    ) -> None:
        super().__init__(contamination=contamination)
        self.n_estimators = n_estimators
        self.max_samples = max_samples
        self.preset = preset
        self.kind = kind
        self.scale = scale
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.categorical = categorical
        self.missing = missing

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickles and deep copies: a copy, since another thread may fit the detector meanwhile."""
        return self.__dict__.copy()

    def fit(self, X: Any, y: Any = None) -> Self:
        """Build the forest on X.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The rows.
        y : ignored
            Not used to fit; PyOD checks it and warns if it is given.

        Returns
        -------
        IMForest
            This detector.
        """
        with lock_of(self):
            before = shallow_copy(self)
            new = shallow_copy(before)
            new._fit(X, y)  # noqa: SLF001 (of the same class)
            take_changes(self, before, new)
        return self

    def _fit(self, X: Any, y: Any) -> None:
        score_kind(self._kind())  # raises if it is unknown, before any work
        table = mixed_tables.as_table(X, has_categories=not mixed_tables.is_auto_or_empty(self.categorical))
        if mixed_tables.is_numeric(table) and mixed_tables.is_auto_or_empty(self.categorical):
            points, categorical = self._checked(table), []
        else:
            categorical = mixed_tables.categorical_columns(table, self.categorical, _names_of(table))
            points = self._checked(mixed_tables.points_of_table(table, categorical, _names_of(table)))
        points = points.copy()  # another thread may change X
        check_rows_have_values(points, tuple(categorical))
        self._set_n_classes(y)
        parameters = {**self.get_params(), "window": None, "categorical": categorical}
        self._model = new_model(points, parameters, seed_from(check_random_state(self.random_state)))
        self.forest_ = self._model.forest.build(self._model.points_of_forest(points))
        self.decision_scores_ = self.forest_.score(self._model.points_of_forest(points), self._kind())
        self._process_decision_scores()

    def predict(self, X: Any, return_confidence: Any = False) -> Any:  # noqa: FBT002 (signature of PyOD)
        """Label each row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The rows.
        return_confidence : bool, default=False
            Whether to return the confidence as well; see `predict_confidence`.

        Returns
        -------
        ndarray of shape (n_rows,)
            1 for anomalies, 0 for the other rows. With `return_confidence`, a pair of labels and confidence.
        """
        return super(IMForest, shallow_copy(self)).predict(X, return_confidence)

    def predict_proba(self, X: Any, method: str = "linear", return_confidence: Any = False) -> Any:  # noqa: FBT002
        """Return the probabilities that each row is normal and that it is an anomaly.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The rows.
        method : {"linear", "unify"}, default="linear"
            How PyOD converts scores to probabilities.
        return_confidence : bool, default=False
            Whether to return the confidence as well; see `predict_confidence`.

        Returns
        -------
        ndarray of shape (n_rows, 2)
            The probabilities. With `return_confidence`, a pair of probabilities and confidence.
        """
        return super(IMForest, shallow_copy(self)).predict_proba(X, method, return_confidence)

    def predict_confidence(self, X: Any) -> Any:
        """Return how likely each row is to keep its label if the training set changed slightly.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_rows,)
            Confidence in [0, 1].
        """
        return super(IMForest, shallow_copy(self)).predict_confidence(X)

    def decision_function(self, X: Any) -> Array:
        """Return the anomaly score of each row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_rows,)
            Scores in (0, 1); high is anomalous.
        """
        points, model = self._points_and_model(X)
        return model.forest.score(points, self._kind())

    def explain(self, X: Any) -> Array:
        """Divide the score of each row among its features.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
            The part of each feature: positive if its value is unusually high, negative if unusually low; the part of
            a category is never negative. The absolute values of a row sum to its score.
        """
        points, model = self._points_and_model(X)
        return without_indicators(model.forest.explain(points, self._kind()), list(model.indicators))

    def fitted_model(self) -> FittedModel:
        """Return the forest with its parameters and its threshold, for `imondrian.save` and `imondrian.onnx.export`."""
        check_is_fitted(self, ["decision_scores_", "threshold_", "labels_"])
        detector = shallow_copy(self)
        return replace(detector._model, stored_threshold=float(detector.threshold_))  # noqa: SLF001

    def _points_and_model(self, X: Any) -> tuple[Array, FittedModel]:
        """Check rows; return them as points of the forest, and the fitted model."""
        check_is_fitted(self, ["decision_scores_", "threshold_", "labels_"])
        model = self._model
        table = mixed_tables.as_table(X, has_categories=bool(model.categorical))
        if not mixed_tables.is_numeric(table) or model.categorical:
            table = mixed_tables.points_of_table(table, model.categorical, _names_of(table))
        points = self._checked(table)
        check_rows_have_values(points, model.categorical)
        return model.points_of_forest(points), model

    def _checked(self, X: Any) -> Array:
        points: Array = check_array(X, dtype=float, ensure_all_finite=self.missing == "raise" or "allow-nan")
        return points

    def _kind(self) -> Kind:
        """Return which score is used."""
        kind: Kind = resolved(self.kind, "kind", self.preset)
        return kind


def _names_of(X: Any) -> list[Any] | None:
    return list(X.columns) if mixed_tables.is_frame(X) else None

"""The PyOD detector."""

from typing import Any, Self

from pyod.models.base import BaseDetector
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from imondrian.copying import shallow_copy, take_changes
from imondrian.defaults import N_JOBS, N_TREES, PRESET, resolved
from imondrian.engine.jit import Array
from imondrian.forest import MondrianForest
from imondrian.inputs import sample_size
from imondrian.locking import lock_of
from imondrian.option_types import Kind, KindOrPreset, MaxSamples, PresetName, ScaleOrPreset
from imondrian.scores import score_kind


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

    def __init__(
        self,
        n_estimators: int = N_TREES,
        max_samples: MaxSamples = "auto",
        preset: PresetName = PRESET,
        kind: KindOrPreset = "preset",
        scale: ScaleOrPreset = "preset",
        contamination: float = 0.1,
        n_jobs: int | None = N_JOBS,
        random_state: Any = None,
    ) -> None:
        super().__init__(contamination=contamination)
        self.n_estimators = n_estimators
        self.max_samples = max_samples
        self.preset = preset
        self.kind = kind
        self.scale = scale
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Build the forest on X; y is ignored."""
        with lock_of(self):
            before = shallow_copy(self)
            new = shallow_copy(before)
            new._fit(X, y)  # noqa: SLF001 (of the same class)
            take_changes(self, before, new)
        return self

    def _fit(self, X: Any, y: Any) -> None:
        kind = self._kind()
        score_kind(kind)  # raises if it is unknown, before any work
        points = check_array(X, dtype=float)
        self._set_n_classes(y)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        max_samples = sample_size(self.max_samples, points.shape[0])
        scale = resolved(self.scale, "scale", self.preset)
        forest = MondrianForest(
            self.n_estimators,
            max_samples=max_samples,
            scale=scale,
            seed=seed,
            n_jobs=N_JOBS if self.n_jobs is None else self.n_jobs,
        )
        self.forest_ = forest.build(points)
        self.decision_scores_ = self.forest_.score(points, kind)
        self._process_decision_scores()

    def predict(self, X: Any, return_confidence: Any = False) -> Any:  # noqa: FBT002 (signature of PyOD)
        """Return 1 for each row of X that is an anomaly, 0 for the others."""
        return super(IMForest, shallow_copy(self)).predict(X, return_confidence)

    def predict_proba(self, X: Any, method: str = "linear", return_confidence: Any = False) -> Any:  # noqa: FBT002
        """Return the probabilities that each row of X is normal and that it is an anomaly."""
        return super(IMForest, shallow_copy(self)).predict_proba(X, method, return_confidence)

    def predict_confidence(self, X: Any) -> Any:
        """Return the confidence that each row of X would get the same label from a slightly different training set."""
        return super(IMForest, shallow_copy(self)).predict_confidence(X)

    def decision_function(self, X: Any) -> Array:
        """Return the scores of the rows of X in (0, 1); high is anomalous."""
        check_is_fitted(self, ["decision_scores_", "threshold_", "labels_"])
        return self.forest_.score(check_array(X, dtype=float), self._kind())

    def explain(self, X: Any) -> Array:
        """Divide the score of each row among its features: positive if the value is unusually high, negative if low."""
        check_is_fitted(self, ["decision_scores_", "threshold_", "labels_"])
        return self.forest_.explain(check_array(X, dtype=float), self._kind())

    def _kind(self) -> Kind:
        """Return which score is used."""
        kind: Kind = resolved(self.kind, "kind", self.preset)
        return kind

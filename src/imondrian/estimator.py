"""The scikit-learn estimator. Here, and nowhere else, the sign of the score is turned."""

# ruff: noqa: SLF001 (copies of the same estimator are looked into)
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, OutlierMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from imondrian.copying import shallow_copy
from imondrian.defaults import FROM_PRESET, N_TREES, PRESET, PRESETS, resolved, with_preset
from imondrian.engine.jit import Array
from imondrian.fitted import Fitted, fit, new_forest, seed_from, threshold_of_held
from imondrian.forest import MondrianForest
from imondrian.locking import lock_of
from imondrian.option_types import Kind, KindOrPreset, MaxSamples, PresetName, ScaleOrPreset, ThresholdOrPreset
from imondrian.scales import SCALES
from imondrian.scores import SCORES
from imondrian.thresholds import THRESHOLDS

Method = TypeVar("Method", bound=Callable[..., Any])


def _validated(method: Method) -> Method:
    """Check the parameters before a method that fits, as scikit-learn does; its own decorator has no types."""
    return _fit_context(prefer_skip_nested_validation=True)(method)


class IsolationMondrianForest(OutlierMixin, BaseEstimator):
    """Isolation Mondrian forest: anomaly detection for batches and streams.

    Trees cut space at random in proportion to the extent of the points; a point that few cuts isolate is an anomaly.
    Unlike other isolation forests it takes new points, and forgets old ones, exactly as if it had been fitted on the
    present points from the start [1]_.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees.
    max_samples : "auto", int, float or None, default="auto"
        How many points a tree holds at most, its own uniform sample of all it was shown. "auto": 256. A float:
        that share of the points in the first call. None: all points.
    window : int or None, default=None
        Hold the latest points only, so many of them; those that leave the window are forgotten. Of the window a tree
        holds about max_samples points, or all. `fit` on more rows holds the last.
    preset : {"practice", "paper"}, default="practice"
        "practice": `kind="size"`, `scale="std"`, `contamination=0.05`. "paper": `kind="depth"`, `scale=None`,
        `contamination="kmeans"`.
    kind : {"preset", "depth", "expected", "size"}, default="preset"
        What is averaged over the trees: the path length (the paper); the expected depth at which the point would be
        isolated, were it inserted; or the size of its cell over all scales of mass.
    scale : "preset", None, "std" or array-like of shape (n_features,), default="preset"
        Weight of a unit of each feature; "std" is one over its standard deviation. The data are not transformed.
    contamination : "preset", "auto", "kmeans" or float in (0, 0.5], default="preset"
        What is an anomaly: a score above 0.5; above the middle of two clusters of the scores; or that share of them.
    n_jobs : int, default=None
        Number of threads; None is 1, -1 is all processors. Results do not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the trees.

    Attributes
    ----------
    forest_ : MondrianForest
        The forest itself.
    offset_ : float
        ``decision_function = score_samples - offset_``. After `fit` it is that of the fitted rows; after
        `partial_fit` or `forget`, of the points that the forest holds.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, where X has names that are all strings.

    References
    ----------
    .. [1] H. Ma, B. Ghojogh, M. N. Samad, D. Zheng, M. Crowley, "Isolation Mondrian Forest for Batch and Online
       Anomaly Detection", IEEE SMC 2020.

    Examples
    --------
    >>> from imondrian import IsolationMondrianForest
    >>> X = [[-1.1], [0.3], [0.5], [100.0]]
    >>> IsolationMondrianForest(contamination="kmeans", random_state=0).fit_predict(X).tolist()
    [1, 1, 1, -1]
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        "max_samples": [
            None,
            StrOptions({"auto"}),
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="right"),
        ],
        "window": [None, Interval(Integral, 1, None, closed="left")],
        "preset": [StrOptions(set(PRESETS))],
        "kind": [StrOptions({FROM_PRESET, *SCORES})],
        "scale": [None, StrOptions({FROM_PRESET, *SCALES}), "array-like"],
        "contamination": [StrOptions({FROM_PRESET, *THRESHOLDS}), Interval(Real, 0, 0.5, closed="right")],
        "n_jobs": [None, Interval(Integral, 1, None, closed="left"), Interval(Integral, None, -1, closed="right")],
        "random_state": ["random_state"],
    }

    def __init__(  # noqa: PLR0913
        self,
        *,
        n_estimators: int = N_TREES,
        max_samples: MaxSamples = "auto",
        window: int | None = None,
        preset: PresetName = PRESET,
        kind: KindOrPreset = "preset",
        scale: ScaleOrPreset = "preset",
        contamination: ThresholdOrPreset = "preset",
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_estimators = n_estimators
        self.max_samples = max_samples
        self.window = window
        self.preset = preset
        self.kind = kind
        self.scale = scale
        self.contamination = contamination
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "forest_")

    @_validated
    def fit(self, X: Any, y: Any = None) -> Self:
        """Build the forest on X; y is ignored."""
        with lock_of(self):
            new = shallow_copy(self)
            points = validate_data(new, X, dtype=np.float64)
            fitted = fit(points, self.get_params(), self._seed())
            new.forest_, new._offset = fitted.forest, _Offset(fitted.threshold, self._offset_key(fitted.forest))
            self.__dict__ = new.__dict__  # at once, for other threads and if it is interrupted
        return self

    @_validated
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Show the rows of X to the forest, one after the other; the first call needs no `fit` before it."""
        with lock_of(self):  # two threads may both bring the first rows
            new = shallow_copy(self)
            is_first = not hasattr(new, "forest_")
            points = validate_data(new, X, dtype=np.float64, reset=is_first)
            if is_first:
                new.forest_ = new_forest(self.get_params(), points.shape[0], self._seed()).extend(points)
                new._offset = _Offset()
                self.__dict__ = new.__dict__
                return self
        new.forest_.extend(points)
        return self

    def forget(self, X: Any) -> Self:
        """Forget the rows of X exactly: the forest is distributed as if it had never been shown them."""
        points, model = self._checked(X)
        model.forest_.forget(points)
        return self

    def score_samples(self, X: Any) -> Array:
        """Give the opposite of the anomaly score of each row: in (-1, 0), the lower the odder."""
        points, model = self._checked(X)
        return -model.forest_.score(points, model._kind())

    def decision_function(self, X: Any) -> Array:
        """Give `score_samples` less the offset: negative for anomalies."""
        points, model = self._checked(X)
        forest = model.forest_
        return forest.while_unchanged(lambda: -forest.score(points, model._kind()) - model.offset_)

    def predict(self, X: Any) -> Array:
        """Give -1 for each row that is an anomaly, 1 for the others."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def explain(self, X: Any) -> Any:
        """Divide the score of each row among its features; the sizes of a row's parts sum to ``-score_samples``.

        A part is positive where the row lies too high, negative where it lies too low. Of a pandas or polars frame with
        names the result is a frame with the same names, else an array with a column per feature.
        """
        points, model = self._checked(X)
        parts = model.forest_.explain(points, model._kind())
        names = getattr(model, "feature_names_in_", None)
        return parts if names is None or not hasattr(X, "columns") else _frame_like(X, parts, list(names))

    def rescore(self) -> tuple[Array, Array]:
        """Give the points that the forest holds now, and their `score_samples`, without a walk for each."""
        check_is_fitted(self)
        points, scores = self.forest_.rescore(self._kind())
        return points, -scores

    @property
    def offset_(self) -> float:
        """The `score_samples` below which a row is an anomaly."""
        check_is_fitted(self)
        model = shallow_copy(self)
        return model.forest_.while_unchanged(model._find_offset)

    # -- model files ------------------------------------------------------------------------------------------

    def fitted(self) -> Fitted:
        """Give what a model file keeps: the forest, parameters, threshold and names."""
        check_is_fitted(self)
        self._validate_params()
        model = shallow_copy(self)
        names, offset = getattr(model, "feature_names_in_", None), model._offset
        threshold = offset.threshold if offset.key == model._offset_key(model.forest_) else None
        parameters = with_preset(model.get_params())
        return Fitted(model.forest_, parameters, threshold, None if names is None else [str(name) for name in names])

    @classmethod
    def from_fitted(cls, fitted: Fitted) -> Self:
        """Make a fitted estimator from what `fitted` gave."""
        estimator = cls(**fitted.parameters)
        estimator._validate_params()
        estimator.forest_ = fitted.forest
        estimator.n_features_in_ = fitted.forest.n_features
        if fitted.feature_names is not None:
            estimator.feature_names_in_ = np.array(fitted.feature_names, dtype=object)
        estimator._offset = _Offset(fitted.threshold, estimator._offset_key(fitted.forest))
        return estimator

    # -- inside -----------------------------------------------------------------------------------------------

    def _offset_key(self, forest: MondrianForest) -> tuple[Any, ...]:
        """Return what an offset belongs to: after `set_params`, or when the forest has changed, it is another."""
        return self._kind(), resolved(self.contamination, "contamination", self.preset), forest.n_changes

    def _kind(self) -> Kind:
        """Return which score is in use."""
        kind: Kind = resolved(self.kind, "kind", self.preset)
        return kind

    def _find_offset(self) -> float:
        """Return the offset of the forest as it is; it is kept for the next call."""
        offset, key = self._offset, self._offset_key(self.forest_)
        if offset.threshold is None or offset.key != key:
            offset = _Offset(threshold_of_held(self.forest_, self.get_params()), key)
            self._offset.__dict__.update(offset.__dict__)
        return -float(offset.threshold)

    def _checked(self, X: Any) -> tuple[Array, Self]:
        """Check rows; return them, and this estimator as it is now: another thread may fit it again meanwhile."""
        check_is_fitted(self)
        model = shallow_copy(self)
        return validate_data(model, X, dtype=np.float64, reset=False), model

    def _seed(self) -> int:
        return seed_from(check_random_state(self.random_state))


class _Offset:
    """The threshold, once somebody has asked for it; apart, so that asking does not change the estimator."""

    def __init__(self, threshold: float | None = None, key: tuple[Any, ...] = ()) -> None:
        self.threshold = threshold
        self.key = key


def _frame_like(frame: Any, values: Array, names: list[str]) -> Any:
    """Make a frame of the same kind, pandas with its index, or polars."""
    if hasattr(frame, "index"):
        return type(frame)(values, columns=names, index=frame.index)
    return type(frame)(values, schema=names)

"""The scikit-learn estimator. It reverses the sign of the score, as scikit-learn expects; no other module does."""

# ruff: noqa: SLF001 (methods access private attributes of copies of the estimator)
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, OutlierMixin, _fit_context
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from imondrian.alarms.score_distribution import ScoreDistribution
from imondrian.alarms.thresholds import KMEANS, SURPRISE, batch_rule
from imondrian.base.copying import shallow_copy, take_changes
from imondrian.base.defaults import AUTO, FROM_PRESET, MISSING_VALUES, N_TREES, PRESET, PRESETS, resolved, with_preset
from imondrian.base.errors import InvalidInputError
from imondrian.base.locking import lock_of
from imondrian.base.option_types import (
    MISSING,
    Categorical,
    Kind,
    KindOrPreset,
    MaxSamples,
    Missing,
    PresetName,
    ScaleOrPreset,
    ThresholdOrPreset,
)
from imondrian.engine.jit import Array
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.forest.scales import SCALES
from imondrian.forest.scores import SCORES
from imondrian.models.fitted_model import (
    FittedModel,
    distribution_of_held_points,
    fit,
    new_model,
    rule_of,
    seed_from,
    threshold_of_held_points,
)
from imondrian.rows import mixed_tables
from imondrian.rows.missing_values import check_rows_have_values, without_indicators

Method = TypeVar("Method", bound=Callable[..., Any])
Value = TypeVar("Value")
_Key = tuple[Any, ...]


def _validated(method: Method) -> Method:
    """Validate the parameters before the method runs; a typed wrapper of scikit-learn's decorator."""
    return _fit_context(prefer_skip_nested_validation=True)(method)


class _ContaminationTexts(StrOptions):
    """Accepts the named contaminations, and strings such as "top 5%"."""

    def is_satisfied_by(self, val: Any) -> bool:
        """Return True if the value is a valid string."""
        return super().is_satisfied_by(val) or (isinstance(val, str) and _is_rule(val))

    def __str__(self) -> str:
        return f"{super().__str__()} or a string such as 'top 5%', 'surprise 3' or 'score 0.6'"


def _is_rule(contamination: str) -> bool:
    try:
        batch_rule(contamination)
    except InvalidInputError:
        return False
    return True


class IsolationMondrianForest(OutlierMixin, BaseEstimator):
    """Isolation Mondrian forest: anomaly detection for batches and streams.

    Each tree splits the space at random; features with a larger range, times their weight (`scale`), are split more
    often. A point that is isolated by few splits is an anomaly. Unlike scikit-learn's IsolationForest, it can learn new
    points and forget old ones: the result has the same distribution as a forest fitted on the current points [1]_.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees.
    max_samples : "auto", int, float or None, default="auto"
        Maximum number of points in a tree. Each tree holds its own uniform sample of all points learned. "auto" is
        256, a float is a share of the points in the first call, and None is all points.
    window : int or None, default=None
        Number of latest points to keep; older points are forgotten. Each tree holds about max_samples points of the
        window. If `fit` gets more rows than the window holds, it keeps the last ones. None: no points are forgotten.
    preset : {"practice", "paper"}, default="practice"
        "practice": `kind="size"`, `scale="std"`, `contamination=0.05`. "paper": `kind="depth"`, `scale=None`,
        `contamination="kmeans"`.
    kind : {"preset", "depth", "expected", "size"}, default="preset"
        Which score to use. Each averages a quantity over the trees: "depth", the path length, as in the paper;
        "expected", the expected depth at which the point would be isolated if it were inserted; "size", the log size of
        the cells on the path to the point's leaf, averaged such that every halving of the number of points in the cell
        has equal weight.
    scale : "preset", None, "std" or array-like of shape (n_features,), default="preset"
        Weight of each feature. None: equal weights. "std": one over the standard deviation of the feature. The data
        are not transformed.
    contamination : "preset", "auto", "kmeans", float in (0, 0.5], or a string such as "surprise 3", default="preset"
        Which rows are anomalies. A float: that share of the rows, those with the highest scores; "top 5%" is the same
        as 0.05. "surprise 3": those whose surprise is above 3, which an ordinary row exceeds with a probability of
        0.001, so that almost no row of a table without anomalies is labelled; see `surprise_samples`. "kmeans": those
        above the midpoint of the means of two clusters of the scores. "score 0.6": those with an anomaly score above
        0.6. "auto": "surprise 3" with the preset "practice", "score 0.5" with "paper".
    categorical : "auto", or names, indices or a mask of columns, default="auto"
        Which columns are categories, for which only two things count: whether two values are equal, and how common each
        is. "auto": the columns of text, booleans or a categorical type, in data frames (pandas, polars) and arrays of
        objects. Equal numbers and texts are the same category (3, 3.0 and "3"). A missing value is a category of its
        own.
    missing : {"median", "indicator", "raise"}, default="median"
        What to do with missing numbers (NaN, None, NA). "median": replace them with the median of the column.
        "indicator": also add a yes/no feature for each column with gaps in the first call. "raise": raise a ValueError.
        A row without any value is always an error.
    n_jobs : int or None, default=None
        Number of threads; None means 1, and -1 means one per processor. Results do not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the trees.

    Attributes
    ----------
    forest_ : MondrianForest
        The underlying forest.
    categorical_ : tuple of int
        Which columns are categories.
    offset_ : float
        ``decision_function = score_samples - offset_``. After `fit`, the offset is computed from the scores of the
        fitted rows. After `partial_fit`, `forget` or a change of `kind` or `contamination`, it is computed from the
        scores of the points that the forest holds. In one case the scores of the fitted rows are still used: only
        `contamination` has changed, its new value is a surprise, and `fit` computed these scores (with a fixed score as
        `contamination`, such as "score 0.6", it does not).
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if X has column names that are all strings.

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
        "contamination": [_ContaminationTexts({FROM_PRESET, AUTO, KMEANS}), Interval(Real, 0, 0.5, closed="right")],
        "categorical": [StrOptions({mixed_tables.AUTO}), "array-like"],
        "missing": [StrOptions(set(MISSING))],
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
        categorical: Categorical = "auto",
        missing: Missing = MISSING_VALUES,
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
        self.categorical = categorical
        self.missing = missing
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "raise"  # in numeric columns; categories may always be missing
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickles and deep copies.

        The caches are copied now, and the forest later. If another thread learns in between, the caches belong to an
        earlier forest and are computed again. In the other order, caches of a later forest would be taken for valid.
        """
        state: dict[str, Any] = dict(super().__getstate__())
        caches = {
            name: shallow_copy(state[name]) for name in ("_thresholds", "_distributions", "_medians") if name in state
        }
        return state | caches

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "forest_")

    @_validated
    def fit(self, X: Any, y: Any = None) -> Self:
        """Build the forest on X.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The rows.
        y : ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        IsolationMondrianForest
            This estimator.
        """
        with lock_of(self):
            before = shallow_copy(self)
            new = shallow_copy(before)
            points, categorical = new._first_points(X)
            fitted, _ = fit(points, {**new.get_params(), "categorical": categorical}, new._seed())
            new._take(fitted)
            take_changes(self, before, new)
        return self

    @_validated
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn the rows of X, one after the other. It can be called with or without a previous `fit`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The rows.
        y : ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        IsolationMondrianForest
            This estimator.
        """
        with lock_of(self):  # two threads may make the first call at the same time
            before = shallow_copy(self)
            new = shallow_copy(before)
            if not hasattr(new, "forest_"):
                points, categorical = new._first_points(X)
                points = points.copy()  # another thread may change X
                model = new_model(points, {**new.get_params(), "categorical": categorical}, new._seed())
                model.forest.extend(model.points_of_forest(points))
                new._take(model)
                take_changes(self, before, new)
                return self
        new.forest_.extend(new._next_points(X))
        return self

    def forget(self, X: Any) -> Self:
        """Forget the rows of X exactly: the forest is distributed as if it had never learned them.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows that were learned.

        Returns
        -------
        IsolationMondrianForest
            This estimator.

        Raises
        ------
        InvalidInputError
            If a row cannot have been learned, or is not in the window; then no row is forgotten.
        """
        points, model = self._checked(X)
        model.forest_.forget(points)
        return self

    def score_samples(self, X: Any) -> Array:
        """Return the negative anomaly score of each row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_rows,)
            Scores in (-1, 0): the lower, the more anomalous.
        """
        points, model = self._checked(X)
        return -model.forest_.score(points, model._kind())

    def decision_function(self, X: Any) -> Array:
        """Return `score_samples` minus the offset.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_rows,)
            Negative for anomalies.
        """
        points, model = self._checked(X)
        forest = model.forest_
        return forest.while_unchanged(lambda: -forest.score(points, model._kind()) - model.offset_)

    def predict(self, X: Any) -> Array:
        """Label each row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_rows,)
            -1 for anomalies, 1 for the other rows.
        """
        return np.where(self.decision_function(X) < 0, -1, 1)

    def surprise_samples(self, X: Any) -> Array:
        """Return the surprise of each row: -log10 of the probability that an ordinary row has a score as high.

        The probability is computed from the scores of the fitted rows, and extrapolated for the highest scores. After
        `partial_fit`, `forget` or a change of `kind`, or if `fit` was called with a fixed score as `contamination`, it
        is computed from the scores of the points that the forest holds.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_rows,)
            Not negative: the higher, the more anomalous. 3 means that one in a thousand ordinary rows scores as high.
        """
        points, model = self._checked(X)
        forest = model.forest_
        return forest.while_unchanged(lambda: model._find_distribution().surprise(forest.score(points, model._kind())))

    def explain(self, X: Any) -> Any:
        """Divide the score of each row among its features.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The rows.

        Returns
        -------
        array or data frame of shape (n_rows, n_features)
            The part of each feature: positive if its value is unusually high, negative if unusually low; the part of
            a category is never negative. The absolute values of a row sum to ``-score_samples``. A data frame (pandas
            or polars) if X is one with names.
        """
        points, model = self._checked(X)
        parts = without_indicators(model.forest_.explain(points, model._kind()), list(model._indicators))
        names = getattr(model, "feature_names_in_", None)
        return parts if names is None or not hasattr(X, "columns") else _frame_like(X, parts, list(names))

    def rescore(self) -> tuple[Array, Array]:
        """Return the points that the forest holds and their `score_samples`, in one pass over the trees.

        Returns
        -------
        points : ndarray of shape (n_points, n_features)
            Categories are numbers (see `imondrian.base.categories.category_code`), and missing numbers are replaced.
        scores : ndarray of shape (n_points,)
            Scores in (-1, 0), as in `score_samples`.
        """
        check_is_fitted(self)
        points, scores = self.forest_.rescore(self._kind())
        return points[:, : self.n_features_in_], -scores

    @property
    def categorical_(self) -> tuple[int, ...]:
        """Which columns are categories."""
        check_is_fitted(self)
        return self._model().categorical

    @property
    def offset_(self) -> float:
        """The `score_samples` below which a row is an anomaly."""
        check_is_fitted(self)
        model = shallow_copy(self)
        return model.forest_.while_unchanged(model._find_offset)

    # -- model files ------------------------------------------------------------------------------------------

    def fitted_model(self) -> FittedModel:
        """Return the content of a model file: the forest, parameters, threshold, distribution of scores and names."""
        check_is_fitted(self)
        self._validate_params()
        model = shallow_copy(self)
        names = getattr(model, "feature_names_in_", None)
        threshold = model._thresholds.get(model._threshold_key(model.forest_))
        distribution = model._distributions.get(model._distribution_key(model.forest_))
        fitted = replace(model._model(), stored_threshold=threshold, stored_distribution=distribution)
        return fitted if names is None else replace(fitted, feature_names=[str(name) for name in names])

    @classmethod
    def from_fitted_model(cls, fitted: FittedModel) -> Self:
        """Return the fitted estimator of a model that `fitted_model` returned."""
        estimator = cls(**{"categorical": [], "missing": fitted.missing, **fitted.parameters})
        estimator._validate_params()
        estimator.n_features_in_ = fitted.n_features
        if fitted.feature_names is not None:
            estimator.feature_names_in_ = np.array(fitted.feature_names, dtype=object)
        estimator._take(fitted)
        return estimator

    # -- private -----------------------------------------------------------------------------------------------

    def _take(self, fitted: FittedModel) -> None:
        """Store the forest of a model, its threshold, its distribution of scores, its medians and its indicators."""
        self.forest_, self._indicators = fitted.forest, fitted.indicators
        self._medians = _Medians(fitted.stored_fill, fitted.forest.n_changes)
        self._thresholds = _Cache(fitted.stored_threshold, self._threshold_key(fitted.forest))
        self._distributions = _Cache(fitted.stored_distribution, self._distribution_key(fitted.forest))

    def _model(self) -> FittedModel:
        """Return the forest with the parameters and indicators, and with the medians if they are up to date."""
        fill = self._medians.values if self._medians.n_changes == self.forest_.n_changes else None
        model = FittedModel(self.forest_, with_preset(self.get_params()), None, None, fill, self._indicators)
        return replace(model, parameters=model.parameters | {"categorical": list(model.categorical)})

    def _threshold_key(self, forest: MondrianForest) -> _Key:
        """Return what the threshold depends on; `set_params` and learning change it."""
        return self._kind(), resolved(self.contamination, "contamination", self.preset), forest.n_changes

    def _distribution_key(self, forest: MondrianForest) -> _Key:
        """Return what the distribution of scores depends on."""
        return self._kind(), forest.n_changes

    def _kind(self) -> Kind:
        """Return which score is used."""
        kind: Kind = resolved(self.kind, "kind", self.preset)
        return kind

    def _find_offset(self) -> float:
        """Return the offset for the current forest and parameters, and store it for the next call."""
        key = self._threshold_key(self.forest_)
        threshold = self._thresholds.get(key)
        if threshold is None:
            rule = rule_of(with_preset(self.get_params()))
            if rule.name == SURPRISE:
                threshold = self._find_distribution().threshold(rule.probability)
            else:
                threshold = threshold_of_held_points(self.forest_, self.get_params())
            self._thresholds.store(threshold, key)
        return -float(threshold)

    def _find_distribution(self) -> ScoreDistribution:
        """Return the distribution of scores for the current forest and kind, and store it for the next call."""
        key = self._distribution_key(self.forest_)
        distribution = self._distributions.get(key)
        if distribution is None:
            distribution = distribution_of_held_points(self.forest_, self._kind())
            self._distributions.store(distribution, key)
        return distribution

    def _checked(self, X: Any) -> tuple[Array, Self]:
        """Check rows; return them as points of the forest, and a copy of this estimator.

        Callers use the copy, because another thread may fit this estimator again meanwhile.
        """
        check_is_fitted(self)
        model = shallow_copy(self)
        return model._next_points(X), model

    def _first_points(self, X: Any) -> tuple[Array, list[int]]:
        """Check the rows of the first call; return them as float64, with gaps, and the categorical columns."""
        X = mixed_tables.as_table(X, has_categories=not mixed_tables.is_auto_or_empty(self.categorical))
        if mixed_tables.is_numeric(X) and mixed_tables.is_auto_or_empty(self.categorical):
            points, categorical = self._checked_numbers(X, reset=True), []
        else:
            names = self._checked_table(X, reset=True)
            categorical = mixed_tables.categorical_columns(X, self.categorical, names)
            points = self._checked_points(mixed_tables.points_of_table(X, categorical, names))
        check_rows_have_values(points, tuple(categorical))
        return points, categorical

    def _next_points(self, X: Any) -> Array:
        """Check further rows; return them as points of the forest."""
        n_changes, model = self.forest_.n_changes, self._model()
        X = mixed_tables.as_table(X, has_categories=bool(model.categorical))
        if mixed_tables.is_numeric(X) and not model.categorical:
            points = self._checked_numbers(X, reset=False)
        else:
            names = self._checked_table(X, reset=False)
            points = self._checked_points(mixed_tables.points_of_table(X, model.categorical, names))
        check_rows_have_values(points, model.categorical)
        filled = model.points_of_forest(points)
        if filled is not points:
            self._medians.__dict__.update(values=model.fill, n_changes=n_changes)  # for the next call
        return filled

    def _checked_numbers(self, X: Any, *, reset: bool) -> Array:
        """Check a table of numbers."""
        finite: Any = True if self.missing == "raise" else "allow-nan"
        points: Array = validate_data(self, X, dtype=np.float64, reset=reset, ensure_all_finite=finite)
        return points

    def _checked_table(self, X: Any, *, reset: bool) -> Any:
        """Check the shape and the column names of a table of any types; return the names, or None."""
        if not mixed_tables.is_frame(X):
            check_array(X, dtype=None, ensure_all_finite=False)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return getattr(self, "feature_names_in_", None)

    def _checked_points(self, points: Array) -> Array:
        """Check that converted points are finite or, if this is allowed, missing."""
        checked: Array = check_array(points, ensure_all_finite=True if self.missing == "raise" else "allow-nan")
        return checked

    def _seed(self) -> int:
        return seed_from(check_random_state(self.random_state))


class _Cache(Generic[Value]):
    """Caches a threshold or a distribution: the one from `fit`, which is never replaced, and the one computed last.

    This is a separate object so that computing a value does not change the estimator's attributes. Shallow copies of an
    estimator share it, as they share the forest. The key shows for which parameters and which forest a value is valid.
    """

    def __init__(self, fitted: Value | None, key: _Key) -> None:
        self._fitted = self._computed = (fitted, key)

    def get(self, key: _Key) -> Value | None:
        """Return the value for a key, or None if it must be computed."""
        stored = (self._fitted, self._computed)
        return next((value for value, its_key in stored if its_key == key and value is not None), None)

    def store(self, value: Value, key: _Key) -> None:
        """Store a computed value for the next call with the same key."""
        self._computed = (value, key)


class _Medians:
    """The cached medians, which replace missing numbers; a separate object like `_Cache`."""

    def __init__(self, values: Array | None, n_changes: int) -> None:
        self.values = values
        self.n_changes = n_changes  # `n_changes` of the forest when the medians were computed


def _frame_like(frame: Any, values: Array, names: list[str]) -> Any:
    """Return a frame of the same type: pandas with its index, or polars."""
    if hasattr(frame, "index"):
        return type(frame)(values, columns=names, index=frame.index)
    return type(frame)(values, schema=names)

"""A fitted model: a forest with its kind of score, threshold and feature names. Does not need scikit-learn."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np

from imondrian.alarms.score_distribution import ScoreDistribution
from imondrian.alarms.thresholds import FIXED, SURPRISE, Rule, batch_rule, batch_threshold
from imondrian.base.defaults import AUTO, MISSING_VALUES, N_JOBS, PRESET, preset_of, with_preset
from imondrian.base.errors import InvalidInputError
from imondrian.base.locking import cached_attribute
from imondrian.base.option_types import Kind
from imondrian.engine.jit import Array
from imondrian.forest.inputs import as_count, as_points, as_weights, sample_size
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.forest.scores import SCORES
from imondrian.rows.missing_values import (
    checked_fill,
    checked_missing,
    column_medians,
    columns_with_gaps,
    have_values,
    medians_of_copies,
    without_gaps,
    without_indicators,
)

_PARAMETERS = {  # of IsolationMondrianForest
    "n_estimators",
    "max_samples",
    "window",
    "preset",
    "kind",
    "scale",
    "contamination",
    "categorical",
    "missing",
    "n_jobs",
    "random_state",
}
_DEFAULTS_FOR_VERSION_1 = {  # for parameters that files of version 1 do not contain
    "categorical": [],
    "missing": "raise",
}
_LARGEST_SEED = np.iinfo(np.int32).max
_ROWS_PER_BLOCK = 20_000
Progress = Callable[[float], None]  # called with the share of the work that is done, from 0 to 1


def no_progress(_share: float) -> None:
    """Ignore the progress."""


@dataclass(frozen=True)
class FittedModel:
    """A fitted forest with everything needed to score, label and explain rows.

    This is what the file of an estimator stores. `model_files.as_fitted_model` also makes one from a forest or a
    detector; then `parameters` has at most "kind", "contamination" and "missing".

    Points have codes in categorical columns and NaN for missing numbers. The forest has a further categorical column
    for each column with an indicator of missing values.
    """

    forest: MondrianForest
    parameters: dict[str, Any]  # of IsolationMondrianForest, with every value "preset" replaced by that of the preset
    stored_threshold: float | None  # None: not known, computed by `threshold`
    feature_names: list[str] | None  # None: unnamed, in the order of the forest
    # replaces the missing numbers of each feature; None: computed by `fill`
    stored_fill: Array | None = field(default=None, compare=False)
    indicators: tuple[int, ...] = ()  # the features whose missing values have an indicator
    # of the scores of the rows that the forest was fitted on; None: computed by `distribution`
    stored_distribution: ScoreDistribution | None = field(default=None, compare=False)

    @property
    def kind(self) -> Kind:
        """The kind of score: "depth", "expected" or "size"."""
        kind: Kind = self.parameters["kind"]
        return kind

    @property
    def contamination(self) -> Any:
        """How the threshold was found: "kmeans", "auto", a share of the rows, or a string such as "surprise 3"."""
        return self.parameters["contamination"]

    @property
    def rule(self) -> Rule:
        """The rule by which the threshold was found."""
        return rule_of(self.parameters)

    @property
    def n_features(self) -> int:
        """Number of features, without the indicators."""
        return (self.forest.n_features or 0) - len(self.indicators)

    @property
    def categorical(self) -> tuple[int, ...]:
        """Which features are categories, without the indicators."""
        return tuple(j for j in self.forest.categorical if j < self.n_features)

    @property
    def missing(self) -> str:
        """How missing numbers are handled: "raise" (their rows have no score), "median" or "indicator"."""
        return str(self.parameters.get("missing", "raise"))

    @cached_attribute
    def fill(self) -> Array:
        """The medians, which replace missing numbers: the stored ones, or those of the points in the forest."""
        if self.stored_fill is not None:
            return self.stored_fill
        return medians_of_held_points(self.forest)[: self.n_features]

    @cached_attribute
    def threshold(self) -> float:
        """The score above which a row is an anomaly: the stored threshold, or the one that the rule computes.

        A rule based on surprise uses the distribution of scores; a share and "kmeans" use the points in the forest.
        """
        if self.stored_threshold is not None:
            return self.stored_threshold
        if self.rule.name == SURPRISE:
            return self.distribution.threshold(self.rule.probability)
        return threshold_of_held_points(self.forest, self.parameters)

    @cached_attribute
    def distribution(self) -> ScoreDistribution:
        """The stored distribution of scores, or that of the scores of the points in the forest."""
        if self.stored_distribution is not None:
            return self.stored_distribution
        return distribution_of_held_points(self.forest, self.kind)

    def surprise(self, scores: Array) -> Array:
        """Return -log10 of the probability that an ordinary row has a score at least as high; NaN for NaN."""
        return self.distribution.surprise(scores)

    def with_kind(self, kind: Kind | None) -> Self:
        """Return the model with another kind of score (None: the same one) and the same threshold."""
        if kind is None or kind == self.kind:
            return self
        parameters = {**self.parameters, "kind": kind}
        return replace(self, parameters=parameters, stored_threshold=self.threshold, stored_distribution=None)

    def is_usable(self, points: Array) -> Array:
        """Return a mask of the points that have a score.

        A point must have a value and, with missing="raise", no missing number. A missing category is a category of its
        own, but a point in which everything is missing has no value.
        """
        usable = have_values(points, self.categorical)
        return usable & ~np.isnan(points).any(axis=1) if self.missing == "raise" else usable

    def points_of_forest(self, points: Array) -> Array:
        """Return usable points as the forest holds them: missing numbers replaced, indicators appended."""
        if self.missing == "raise" or not (self.indicators or np.isnan(points).any()):
            return points
        return without_gaps(points, self.fill, list(self.indicators))

    def score(self, points: Array, progress: Progress = no_progress) -> Array:
        """Return the scores of points, in (0, 1), where high is anomalous; NaN for points that are not usable."""
        scores = np.full(len(points), np.nan)
        for rows in _blocks(len(points)):
            usable = self.is_usable(points[rows])
            if usable.any():
                scores[rows][usable] = self.forest.score(self.points_of_forest(points[rows][usable]), self.kind)
            progress(rows.stop / len(points))
        return scores

    def explain(self, points: Array) -> Array:
        """Return the part of each feature in the score of each point; see `MondrianForest.explain`.

        The part of an indicator belongs to its feature. The parts of points that are not usable are NaN.
        """
        parts = np.full(points.shape, np.nan)
        for rows in _blocks(len(points)):
            usable = self.is_usable(points[rows])
            if usable.any():
                explained = self.forest.explain(self.points_of_forest(points[rows][usable]), self.kind)
                parts[rows][usable] = without_indicators(explained, list(self.indicators))
        return parts

    # -- model files ------------------------------------------------------------------------------------------

    def notes(self) -> dict[str, Any]:
        """Return what a model file stores in addition to the forest, as JSON values."""
        seed = self.parameters["random_state"]
        stored_seed = (
            seed if isinstance(seed, (int, np.integer)) else None
        )  # a RandomState is not needed: the forest stores its streams
        given = {**_DEFAULTS_FOR_VERSION_1, **self.parameters}
        parameters = given | {"categorical": list(self.categorical), "random_state": stored_seed}
        offset = None if self.stored_threshold is None else -self.stored_threshold
        return {
            "parameters": {name: _as_json_value(value) for name, value in sorted(parameters.items())},
            "offset": offset,
            "feature_names": self.feature_names,
            "fill": None if self.stored_fill is None else self.stored_fill.tolist(),
            "indicators": list(self.indicators),
            "distribution": None if self.stored_distribution is None else self.stored_distribution.state(),
        }

    @classmethod
    def from_notes(cls, forest: MondrianForest, notes: dict[str, Any]) -> Self:
        """Restore a model from its forest and its `notes`; raise ValueError if the notes are invalid."""
        parameters, names, offset = _current_names(notes["parameters"]), notes["feature_names"], notes["offset"]
        _check_parameters(parameters)
        indicators = _checked_indicators(notes.get("indicators", []), forest)
        n_features = (forest.n_features or 0) - len(indicators)
        if names is not None and not _are_names(names, n_features):
            raise ValueError(f"there are {n_features} features, but the names are {names}.")
        if offset is not None and not -1.0 <= offset <= 0.0:
            raise ValueError(f"the offset must be between -1 and 0, but is {offset!r}.")
        fill = notes.get("fill")
        fill = None if fill is None else checked_fill(fill, n_features)
        parameters = parameters if "distribution" in notes else _current_contamination(parameters)
        distribution = notes.get("distribution")
        distribution = None if distribution is None else ScoreDistribution.restored(distribution)
        model = cls(forest, parameters, None if offset is None else -offset, names, fill, indicators, distribution)
        if parameters["categorical"] != list(model.categorical):
            raise ValueError(
                f"categorical must be {list(model.categorical)}, but is {parameters['categorical']!r:.200}."
            )
        return model


# -- fitting ----------------------------------------------------------------------------------------------------------


class FitResult(NamedTuple):
    """A fitted model, and the scores of the rows that it was fitted on."""

    model: FittedModel
    scores: Array | None  # None if they were not computed, because the threshold does not depend on them


def fit(
    points: Array,
    parameters: dict[str, Any],
    seed: int,
    feature_names: list[str] | None = None,
    progress: Progress = no_progress,
) -> FitResult:
    """Build a forest on points and find its threshold.

    Parameters
    ----------
    points : array of shape (n_rows, n_features)
        The rows: codes in categorical columns, NaN for missing numbers. Rows without any value are left out.
    parameters : dict
        Parameters of IsolationMondrianForest; "categorical" is a list of column indices.
    seed : int
        Seed of the forest.
    feature_names : list of str, optional
        Names of the features.
    progress : callable, optional
        Called with the share of the rows that have been scored.

    Returns
    -------
    FitResult
        The fitted model and the scores of the rows; the scores are None if the threshold does not depend on them.

    Raises
    ------
    InvalidInputError
        If a number is missing and parameters["missing"] is "raise", or if no row has a value.
    """
    parameters = _with_defaults(parameters)
    if parameters["missing"] == "raise":
        as_points(points, None)  # raises if a number is missing
    has_value = have_values(points, tuple(parameters["categorical"]))
    usable = points[has_value]  # a copy, which no other thread can change
    if len(usable) == 0 < len(points):
        raise InvalidInputError("No row has a value: everything is missing.")
    empty = new_model(usable, parameters, seed, feature_names)
    model = replace(empty, forest=empty.forest.build(empty.points_of_forest(usable)))
    if model.rule.name == FIXED:
        return FitResult(replace(model, stored_threshold=model.rule.value), None)
    scores = np.full(len(points), np.nan)
    scores[has_value] = model.score(usable, progress)
    return FitResult(with_scores(model, scores), scores)


def with_scores(model: FittedModel, scores: Array) -> FittedModel:
    """Return the model with the threshold and the distribution of the scores of the rows that it was fitted on.

    Rows without a score (NaN) are ignored.
    """
    distribution, rule = ScoreDistribution.of(scores), model.rule
    if rule.name == SURPRISE:
        threshold = distribution.threshold(rule.probability)
    else:
        threshold = batch_threshold(rule, scores[~np.isnan(scores)])
    return replace(model, stored_threshold=threshold, stored_distribution=distribution)


def new_model(
    points: Array,
    parameters: dict[str, Any],
    seed: int,
    feature_names: list[str] | None = None,
    *,
    with_gaps: list[int] | None = None,
) -> FittedModel:
    """Return a model whose forest is empty, with the medians and the indicators of these rows.

    The rows are those of the first call to build or extend. If `max_samples` is a share, it is a share of their number.
    With "indicator", every column in which a number is missing gets an indicator. If the rows are only a sample of
    those to be learned, pass the columns in which any row has a missing number as `with_gaps`.
    """
    parameters = _with_defaults(parameters)
    missing = checked_missing(parameters["missing"])
    with_gaps = columns_with_gaps(points) if with_gaps is None else with_gaps
    indicators = with_gaps if missing == "indicator" else []
    forest = _new_forest(parameters, points.shape, indicators, seed)
    fill = None if missing == "raise" else column_medians(points)
    return FittedModel(forest, parameters, None, feature_names, fill, tuple(indicators))


def _with_defaults(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return complete parameters. `categorical="auto"` finds no category in points, because they are numbers."""
    complete = {"categorical": [], "missing": MISSING_VALUES, **with_preset(parameters)}
    return complete | {"categorical": []} if isinstance(complete["categorical"], str) else complete


def _new_forest(parameters: dict[str, Any], shape: tuple[int, int], indicators: list[int], seed: int) -> MondrianForest:
    """Return an empty forest; if `scale` is a list of weights, a 1 is appended for each indicator."""
    (n_rows, n_features), scale = shape, parameters["scale"]
    if indicators and not (scale is None or isinstance(scale, str)):
        scale = [*as_weights(scale, n_features), *np.ones(len(indicators))]
    categorical = [*parameters["categorical"], *range(n_features, n_features + len(indicators))]
    return MondrianForest(
        parameters["n_estimators"],
        max_samples=sample_size(parameters["max_samples"], n_rows),
        window=parameters["window"],
        scale=scale,
        seed=seed,
        n_jobs=parameters["n_jobs"] or N_JOBS,
        categorical=categorical,
    )


def medians_of_held_points(forest: MondrianForest) -> Array:
    """Return the medians of the points that the forest holds."""
    return medians_of_copies(*forest.points_and_copies())


def distribution_of_held_points(forest: MondrianForest, kind: Kind) -> ScoreDistribution:
    """Return the distribution of the scores of the points that the forest holds."""
    return ScoreDistribution.of(*forest.rescore_without_copies(kind))


def threshold_of_held_points(forest: MondrianForest, parameters: dict[str, Any]) -> float:
    """Return the threshold computed from the scores of the points that the forest holds."""
    parameters = with_preset({"preset": PRESET, **parameters})
    rule = rule_of(parameters)
    if rule.name == FIXED:
        return rule.value
    return batch_threshold(rule, *forest.rescore_without_copies(parameters["kind"]))


def rule_of(parameters: dict[str, Any]) -> Rule:
    """Return the rule for the threshold of a model with these parameters."""
    return batch_rule(parameters["contamination"], parameters.get("preset", PRESET))


def seed_from(random_state: np.random.RandomState) -> int:
    """Draw the seed of a forest from a random state of numpy."""
    return int(random_state.randint(_LARGEST_SEED))


def _blocks(n_rows: int) -> Iterator[slice]:
    for first in range(0, n_rows, _ROWS_PER_BLOCK):
        yield slice(first, min(first + _ROWS_PER_BLOCK, n_rows))


# -- checks of stored parameters --------------------------------------------------------------------------------------


def _current_names(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters under their current names, with defaults for those that older files lack.

    In older files, `kind` is called `score`, and there is no preset.
    """
    if "score" not in parameters:
        return {**_DEFAULTS_FOR_VERSION_1, **parameters}
    others = {name: value for name, value in dict(parameters).items() if name != "score"}
    return {**_DEFAULTS_FOR_VERSION_1, "preset": PRESET, "kind": parameters["score"], **others}


def _current_contamination(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of an older file, in which "auto" means scores above 0.5 with every preset."""
    is_auto = parameters["contamination"] == AUTO
    return parameters | {"contamination": "score 0.5"} if is_auto else parameters


def _check_parameters(parameters: dict[str, Any]) -> None:
    """Raise a ValueError if an estimator cannot have these parameters."""
    if set(parameters) != _PARAMETERS:
        raise ValueError(f"the parameters must be {sorted(_PARAMETERS)}, but are {sorted(parameters)}.")
    preset_of(parameters["preset"])  # raises if it is unknown
    if parameters["kind"] not in SCORES:
        raise ValueError(f"the kind of the score must be one of {sorted(SCORES)}, but is {parameters['kind']!r}.")
    rule_of(parameters)  # raises if it is invalid
    checked_missing(parameters["missing"])
    if isinstance(parameters["scale"], list):
        as_weights(parameters["scale"], None)
    for name, value in parameters.items():
        numbers = value if isinstance(value, list) else [value]
        if not all(number is None or isinstance(number, str) or abs(number) < np.inf for number in numbers):
            raise ValueError(f"{name} must be finite, but is {value!r}.")


def _checked_indicators(indicators: Any, forest: MondrianForest) -> tuple[int, ...]:
    """Return the columns that have indicators, if they are valid.

    These columns must be numeric; their indicators must be categorical and the last columns of the forest.
    """
    if not isinstance(indicators, list):
        raise ValueError(f"the indicators must be a list, but are {indicators!r:.200}.")  # noqa: TRY004
    n_columns, categorical = forest.n_features or 0, set(forest.categorical)
    n_features = n_columns - len(indicators)
    checked = tuple(as_count(j, "an indicator", 0, n_features - 1) for j in indicators)
    are_numeric = len(set(checked) - categorical) == len(checked)
    if not are_numeric or not categorical.issuperset(range(n_features, n_columns)):
        raise ValueError(f"the indicators {indicators!r:.200} do not match the categorical columns of the forest.")
    return checked


def _are_names(names: Any, n_features: int | None) -> bool:
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return is_list and len(names) == n_features == len(set(names))


def _as_json_value(value: Any) -> Any:
    """Convert numpy numbers to Python numbers, and arrays to lists."""
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (str, int, float)):
        return value
    return [_as_json_value(item) for item in value]

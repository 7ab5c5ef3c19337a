"""A fitted model: a forest with its kind of score, threshold and feature names. Does not need scikit-learn."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from imondrian.defaults import N_JOBS, PRESET, preset_of, with_preset
from imondrian.engine.jit import Array
from imondrian.forest import MondrianForest
from imondrian.inputs import as_weights, sample_size
from imondrian.locking import cached_attribute
from imondrian.option_types import Kind
from imondrian.scores import SCORES
from imondrian.thresholds import threshold_rule

_PARAMETERS = {  # of IsolationMondrianForest
    "n_estimators",
    "max_samples",
    "window",
    "preset",
    "kind",
    "scale",
    "contamination",
    "n_jobs",
    "random_state",
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
    detector; then `parameters` has only "kind" and "contamination".
    """

    forest: MondrianForest
    parameters: dict[str, Any]  # of IsolationMondrianForest, with "preset" replaced by the values of the preset
    stored_threshold: float | None  # None: not known, computed by `threshold`
    feature_names: list[str] | None  # None: unnamed, in the order of the forest

    @property
    def kind(self) -> Kind:
        """The kind of score: "depth", "expected" or "size"."""
        kind: Kind = self.parameters["kind"]
        return kind

    @property
    def contamination(self) -> Any:
        """How the threshold was found: "kmeans", "auto" or a share of the rows."""
        return self.parameters["contamination"]

    @cached_attribute
    def threshold(self) -> float:
        """The score above which a row is an anomaly; if none is stored, computed from the points in the forest."""
        if self.stored_threshold is not None:
            return self.stored_threshold
        return threshold_of_held_points(self.forest, self.parameters)

    def with_kind(self, kind: Kind | None) -> Self:
        """Return the model with another kind of score (None: the same one) and the same threshold."""
        if kind is None:
            return self
        return replace(self, parameters={**self.parameters, "kind": kind}, stored_threshold=self.threshold)

    def score(self, points: Array, progress: Progress = no_progress) -> Array:
        """Return the scores of points, in (0, 1), where high is anomalous; NaN for points with a missing value."""
        scores = np.full(len(points), np.nan)
        for rows in _blocks(len(points)):
            usable = ~np.isnan(points[rows]).any(axis=1)
            if usable.any():
                scores[rows][usable] = self.forest.score(points[rows][usable], self.kind)
            progress(rows.stop / len(points))
        return scores

    def explain(self, points: Array) -> Array:
        """Return the part of each feature in the score of each point; see `MondrianForest.explain`.

        Points must not have missing values.
        """
        parts = np.empty(points.shape)
        for rows in _blocks(len(points)):
            parts[rows] = self.forest.explain(points[rows], self.kind)
        return parts

    # -- model files ------------------------------------------------------------------------------------------

    def notes(self) -> dict[str, Any]:
        """Return what a model file stores in addition to the forest, as JSON values."""
        seed = self.parameters["random_state"]
        stored_seed = seed if isinstance(seed, (int, np.integer)) else None  # the forest stores its random streams
        parameters = {**self.parameters, "random_state": stored_seed}
        offset = None if self.stored_threshold is None else -self.stored_threshold
        return {
            "parameters": {name: _as_json_value(value) for name, value in sorted(parameters.items())},
            "offset": offset,
            "feature_names": self.feature_names,
        }

    @classmethod
    def from_notes(cls, forest: MondrianForest, notes: dict[str, Any]) -> Self:
        """Restore a model from its forest and its `notes`; raise ValueError if the notes are invalid."""
        parameters, names, offset = _current_names(notes["parameters"]), notes["feature_names"], notes["offset"]
        _check_parameters(parameters)
        if names is not None and not _are_names(names, forest.n_features):
            raise ValueError(f"there are {forest.n_features} features, but the names are {names}.")
        if offset is not None and not -1.0 <= offset <= 0.0:
            raise ValueError(f"the offset must be between -1 and 0, but is {offset!r}.")
        return cls(forest, parameters, None if offset is None else -offset, names)


# -- fitting ----------------------------------------------------------------------------------------------------------


class FitResult(NamedTuple):
    """A fitted model, and the scores of the rows that it was fitted on."""

    model: FittedModel
    scores: Array | None  # None if they were not computed: the threshold "auto" does not need them


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
        Rows without missing values.
    parameters : dict
        Parameters of IsolationMondrianForest.
    seed : int
        Seed of the forest.
    feature_names : list of str, optional
        Names of the features.
    progress : callable, optional
        Called with the share of the rows that have been scored.

    Returns
    -------
    FitResult
        The fitted model and the scores of the rows; the scores are None if the threshold is "auto".
    """
    parameters = with_preset(parameters)
    forest = new_forest(parameters, points.shape[0], seed).build(points)
    model = FittedModel(forest, parameters, None, feature_names)
    scores = None if model.contamination == "auto" else model.score(points, progress)
    return FitResult(replace(model, stored_threshold=_threshold_of(scores, model.contamination)), scores)


def new_forest(parameters: dict[str, Any], n_rows: int, seed: int) -> MondrianForest:
    """Return an empty forest with these parameters of IsolationMondrianForest.

    `n_rows` is the number of rows of the first call to build or extend, from which `max_samples="auto"` or a share is
    computed.
    """
    parameters = with_preset(parameters)
    return MondrianForest(
        parameters["n_estimators"],
        max_samples=sample_size(parameters["max_samples"], n_rows),
        window=parameters["window"],
        scale=parameters["scale"],
        seed=seed,
        n_jobs=parameters["n_jobs"] or N_JOBS,
    )


def threshold_of_rows(forest: MondrianForest, points: Array, parameters: dict[str, Any]) -> float:
    """Return the threshold computed from the scores of the rows that the forest was fitted on."""
    rule = parameters["contamination"]
    return _threshold_of(None if rule == "auto" else forest.score(points, parameters["kind"]), rule)


def threshold_of_held_points(forest: MondrianForest, parameters: dict[str, Any]) -> float:
    """Return the threshold computed from the scores of the points that the forest holds."""
    parameters = with_preset(parameters)
    rule = parameters["contamination"]
    if rule == "auto":
        return _threshold_of(None, rule)
    return threshold_rule(rule)(*forest.rescore_without_copies(parameters["kind"]))


def seed_from(random_state: np.random.RandomState) -> int:
    """Draw the seed of a forest from a random state of numpy."""
    return int(random_state.randint(_LARGEST_SEED))


def _threshold_of(scores: Array | None, rule: Any) -> float:
    return 0.5 if scores is None else threshold_rule(rule)(scores)


def _blocks(n_rows: int) -> Iterator[slice]:
    for first in range(0, n_rows, _ROWS_PER_BLOCK):
        yield slice(first, min(first + _ROWS_PER_BLOCK, n_rows))


# -- checks of stored parameters --------------------------------------------------------------------------------------


def _current_names(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters under their current names: in version 0.1, `kind` was `score`, and there were no presets."""
    if "score" not in parameters:
        return parameters
    others = {name: value for name, value in dict(parameters).items() if name != "score"}
    return {"preset": PRESET, "kind": parameters["score"], **others}


def _check_parameters(parameters: dict[str, Any]) -> None:
    """Raise a ValueError if an estimator cannot have these parameters."""
    if set(parameters) != _PARAMETERS:
        raise ValueError(f"the parameters must be {sorted(_PARAMETERS)}, but are {sorted(parameters)}.")
    preset_of(parameters["preset"])  # raises if it is unknown
    if parameters["kind"] not in SCORES:
        raise ValueError(f"the kind of the score must be one of {sorted(SCORES)}, but is {parameters['kind']!r}.")
    threshold_rule(parameters["contamination"])  # raises if it is invalid
    if isinstance(parameters["scale"], list):
        as_weights(parameters["scale"], None)
    for name, value in parameters.items():
        numbers = value if isinstance(value, list) else [value]
        if not all(number is None or isinstance(number, str) or abs(number) < np.inf for number in numbers):
            raise ValueError(f"{name} must be finite, but is {value!r}.")


def _are_names(names: Any, n_features: int | None) -> bool:
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return is_list and len(names) == n_features == len(set(names))


def _as_json_value(value: Any) -> Any:
    """Convert numpy numbers to Python numbers, and arrays to lists."""
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, (str, int, float)) else np.asarray(value, dtype=float).tolist()

"""What fitting comes to: a forest, and the score, threshold and names that go with it; scikit-learn is not needed."""

from typing import Any, NamedTuple, Self

import numpy as np

from imondrian.defaults import N_JOBS, PRESET, preset_of, with_preset
from imondrian.engine.jit import Array
from imondrian.forest import MondrianForest
from imondrian.inputs import as_weights, sample_size
from imondrian.scores import SCORES
from imondrian.thresholds import threshold_rule

_PARAMETERS = {
    "n_estimators",
    "max_samples",
    "window",
    "preset",
    "kind",
    "scale",
    "contamination",
    "n_jobs",
    "random_state",
}  # of IsolationMondrianForest
_LARGEST_SEED = np.iinfo(np.int32).max


class Fitted(NamedTuple):
    """A forest that has been fitted, with all it takes to score and label rows: what the file of an estimator holds."""

    forest: MondrianForest
    parameters: dict[str, Any]  # those of IsolationMondrianForest, with what the preset stands for
    threshold: float | None  # the score above which a row is an anomaly; None: not known any more, see `settled`
    feature_names: list[str] | None

    def settled(self) -> Self:
        """Give the same with a threshold: if there is none, that of the points that the forest holds."""
        if self.threshold is not None:
            return self
        return self._replace(threshold=threshold_of_held(self.forest, self.parameters))

    def notes(self) -> dict[str, Any]:
        """Give all but the forest, as JSON can hold it."""
        seed = self.parameters["random_state"]
        known = seed if isinstance(seed, (int, np.integer)) else None  # the forest has the state of its random numbers
        parameters = {name: _plain(value) for name, value in sorted({**self.parameters, "random_state": known}.items())}
        offset = None if self.threshold is None else -self.threshold
        return {"parameters": parameters, "offset": offset, "feature_names": self.feature_names}

    @classmethod
    def from_notes(cls, forest: MondrianForest, notes: dict[str, Any]) -> Self:
        """Put a forest and what `notes` gave together again; notes that cannot be are a ValueError."""
        parameters, names, offset = _renamed(notes["parameters"]), notes["feature_names"], notes["offset"]
        _check_parameters(parameters)
        if names is not None and not _are_names(names, forest.n_features):
            raise ValueError(f"there are {forest.n_features} features, but the names are {names}.")
        if offset is not None and not -1.0 <= offset <= 0.0:
            raise ValueError(f"the offset is {offset!r}.")
        return cls(forest, parameters, None if offset is None else -offset, names)


def _renamed(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters under their present names: version 0.1 wrote `score` for `kind`, and had no presets here."""
    if "score" not in parameters:
        return parameters
    others = {name: value for name, value in dict(parameters).items() if name != "score"}
    return {"preset": PRESET, "kind": parameters["score"], **others}


def _check_parameters(parameters: dict[str, Any]) -> None:
    """Raise a ValueError if an estimator cannot have these parameters."""
    if set(parameters) != _PARAMETERS:
        raise ValueError(f"the parameters are {sorted(parameters)}.")
    preset_of(parameters["preset"])  # for its check
    if parameters["kind"] not in SCORES:
        raise ValueError(f"the kind of the score is {parameters['kind']!r}.")
    threshold_rule(parameters["contamination"])  # for its check
    if isinstance(parameters["scale"], list):
        as_weights(parameters["scale"], None)
    for name, value in parameters.items():
        numbers = value if isinstance(value, list) else [value]
        if not all(number is None or isinstance(number, str) or abs(number) < np.inf for number in numbers):
            raise ValueError(f"{name} is {value!r}.")


def _are_names(names: Any, n_features: int | None) -> bool:
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return is_list and len(names) == n_features == len(set(names))


def fit(points: Array, parameters: dict[str, Any], seed: int, feature_names: list[str] | None = None) -> Fitted:
    """Build a forest on points and find its threshold."""
    parameters = with_preset(parameters)
    forest = new_forest(parameters, points.shape[0], seed).build(points)
    return Fitted(forest, parameters, threshold_of_rows(forest, points, parameters), feature_names)


def new_forest(parameters: dict[str, Any], n_rows: int, seed: int) -> MondrianForest:
    """Make the forest that the parameters describe, to be shown n_rows first."""
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
    """Find the threshold for the rows that the forest was fitted on."""
    if parameters["contamination"] == "auto":
        return 0.5
    return threshold_rule(parameters["contamination"])(forest.score(points, parameters["kind"]))


def threshold_of_held(forest: MondrianForest, parameters: dict[str, Any]) -> float:
    """Find the threshold for the points that the forest holds."""
    parameters = with_preset(parameters)
    if parameters["contamination"] == "auto":
        return 0.5
    return threshold_rule(parameters["contamination"])(forest.rescore(parameters["kind"])[1])


def seed_from(random_state: np.random.RandomState) -> int:
    """Draw the seed of a forest."""
    return int(random_state.randint(_LARGEST_SEED))


def _plain(value: Any) -> Any:
    """Give a number as Python's own, and numbers as a list of them."""
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, (str, int, float)) else np.asarray(value, dtype=float).tolist()

"""The parameters of a stream detector: their validation, and their names in older model files."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from imondrian.alarms.incidents import IncidentRules, checked_rules
from imondrian.alarms.thresholds import SHARE, Rule, is_auto
from imondrian.base.defaults import AUTO, FROM_PRESET, SERIES, auto_threshold, default_warm_up
from imondrian.base.errors import InvalidInputError
from imondrian.base.option_types import ON_ERROR, STREAM_MISSING
from imondrian.engine.nodes import MAX_POINTS
from imondrian.forest.forest_parameters import MAX_SEED
from imondrian.forest.inputs import as_count, as_weights
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.forest.scores import score_kind
from imondrian.rows.mixed_tables import column_indices
from imondrian.stream.row_layout import RowLayout

_MAX_SERIES_FEATURES = 8_000  # the header of a model file has about 53 values for each of them, and may have 524,288
_FORMER_NAMES = {"n_estimators": "n_trees", "score": "kind"}  # in older model files


def checked_parameters(  # noqa: PLR0913
    *,
    n_features: Any,
    window: Any,
    max_samples: Any,
    n_trees: Any,
    threshold: Any,
    preset: Any,
    kind: Any,
    scale: Any,
    seed: Any,
    warm_up: Any,
    learn_anomalies: Any,
    shingle: Any,
    on_error: Any,
    n_jobs: Any,
    categorical: Any,
    missing: Any,
    rules: Any,
) -> dict[str, Any]:
    """Check the arguments of a detector; return them as plain Python types."""
    window, n_features = as_count(window, "window", 1, MAX_POINTS), as_count(n_features, "n_features", 1, MAX_POINTS)
    parameters = {
        "n_features": n_features,
        "window": window,
        "max_samples": None if max_samples is None else as_count(max_samples, "max_samples", 1, MAX_POINTS),
        "n_trees": as_count(n_trees, "n_trees", 1, MAX_POINTS),
        "threshold": checked_threshold(threshold, preset),
        "preset": preset,
        "kind": _checked_kind(kind),
        "scale": scale if scale is None or isinstance(scale, str) else as_weights(scale, None).tolist(),
        "seed": as_count(seed, "seed", 0, MAX_SEED),
        "warm_up": default_warm_up(window, preset) if warm_up is None else as_count(warm_up, "warm_up", 0, MAX_POINTS),
        "learn_anomalies": _checked_choice(learn_anomalies, "learn_anomalies", (True, False)),
        "shingle": as_count(shingle, "shingle", 1, MAX_POINTS),
        "on_error": _checked_choice(on_error, "on_error", ON_ERROR),
        "n_jobs": as_count(n_jobs, "n_jobs", -MAX_POINTS, MAX_POINTS),
        "categorical": _checked_categorical(categorical, n_features),
        "missing": _checked_choice(missing, "missing", STREAM_MISSING),
        "rules": checked_rules(rules),
    }
    if preset == SERIES:
        _check_series(**{name: parameters[name] for name in ("n_features", "shingle", "categorical", "missing")})
    return parameters


def _check_series(n_features: int, shingle: int, categorical: list[Any], missing: str) -> None:
    """Raise InvalidInputError if these arguments cannot be combined with the preset "series"."""
    as_count(n_features, "With the preset 'series', n_features", 1, _MAX_SERIES_FEATURES)
    if shingle != 1:
        raise InvalidInputError(f"The preset 'series' has no shingles, but shingle is {shingle!r}.")
    if categorical:
        raise InvalidInputError(f"The preset 'series' needs numbers, but categorical is {categorical!r:.200}.")
    _checked_choice(missing, "With the preset 'series', missing", ("median", "raise"))


def check_rules_for_numbers(rules: IncidentRules, parameters: dict[str, Any], names: Sequence[Any] | None) -> None:
    """Raise InvalidInputError if a rule is for a categorical feature, which has neither a side nor a distance.

    `names` are the names of the features, or None if they are not known.
    """
    indices = RowLayout.of(parameters).categorical
    categories = parameters["categorical"] if names is None else [names[j] for j in indices]
    for rule, feature in _features_in(rules):
        if feature in categories or (feature in indices and feature not in (names or ())):
            raise InvalidInputError(
                f"{rule} must have features that are numbers, but has {feature!r:.200}, which is a category."
            )


def check_rules_match(rules: IncidentRules, n_features: int, names: Sequence[Any] | None) -> None:
    """Raise InvalidInputError if a rule is for a feature that the rows lack; `names` is None if rows have no names."""
    for rule, feature in _features_in(rules):
        is_index = not isinstance(feature, str) and feature < n_features
        if not is_index and feature not in (names or ()):
            others = "have no names" if names is None else f"have {', '.join(map(str, names)):.500}"
            raise InvalidInputError(
                f"{rule} must have features of the rows, but has {feature!r:.200}; there are {n_features} features, and"
                f" the rows {others}."
            )


def _features_in(rules: IncidentRules) -> Iterator[tuple[str, Any]]:
    """Yield the name of a rule and a feature, for each feature that the rules mention."""
    for rule in ("side", "ignore_within"):
        yield from ((rule, feature) for feature in getattr(rules, rule))


def restored_parameters(notes: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a model file under their current names, with defaults for those that older files lack.

    Versions without categories refused rows with missing numbers. In versions without surprise, a threshold below 0.5
    was a share of the latest points, and "auto" was 0.5.
    """
    parameters = {"categorical": [], "missing": "raise", "rules": {}} | renamed_parameters(notes["parameters"])
    return (
        parameters if "incidents" in notes else parameters | {"threshold": current_threshold(parameters["threshold"])}
    )


def current_threshold(threshold: Any) -> Any:
    """Translate the threshold of a version that did not have surprise into the current notation."""
    if threshold == AUTO:
        return 0.5
    return Rule(SHARE, threshold).text if isinstance(threshold, float) and threshold < 0.5 else threshold


def renamed_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return stored parameters under their current names.

    In older files, `n_trees` is called `n_estimators`, and `kind` is called `score`. The oldest files have neither a
    score nor a scale.
    """
    renamed = {_FORMER_NAMES.get(name, name): value for name, value in dict(parameters).items()}
    return {"kind": FROM_PRESET, "scale": FROM_PRESET} | renamed


def check_forest(forest: MondrianForest, parameters: dict[str, Any]) -> None:
    """Raise ValueError if a detector with these parameters cannot have this forest."""
    layout = RowLayout.of(parameters)
    expected = (parameters["window"], parameters["max_samples"], layout.n_values)
    is_expected = forest.window is not None and expected == (forest.window, forest.max_samples, forest.n_features)
    has_scale = np.array_equal(layout.forest_scale(parameters["scale"]), forest.scale)
    if not is_expected or not has_scale or layout.categorical_values != list(forest.categorical):
        raise ValueError("the forest does not match the parameters of the detector.")
    as_count(parameters["n_trees"], "n_trees", 1, forest.n_trees)


def checked_threshold(threshold: Any, preset: Any) -> float | str:
    """Check the threshold of a detector; return it as a plain Python type, with "auto" replaced by its value."""
    if is_auto(threshold):
        return auto_threshold(preset)
    return threshold if isinstance(threshold, str) else float(threshold)


def _checked_kind(kind: Any) -> Any:
    score_kind(kind)
    return kind


def _checked_categorical(categorical: Any, n_features: int) -> list[Any]:
    """Check the categorical features: indices or a mask, or names, which must be text."""
    names = [] if isinstance(categorical, (str, bytes)) or not isinstance(categorical, Iterable) else list(categorical)
    if not names or not all(isinstance(name, str) for name in names):
        return list(column_indices(categorical, n_features, None))
    if len(set(names)) != len(names) or len(names) > n_features:
        raise InvalidInputError(f"categorical must be at most {n_features} different names, but is {names}.")
    return [str(name) for name in names]


def _checked_choice(value: Any, name: str, choices: tuple[Any, ...]) -> Any:
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise InvalidInputError(f"{name} must be one of {choices}, but is {value!r}.")
    return value

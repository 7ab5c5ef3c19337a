"""Check the configuration of a detector, compute how much memory the detector needs, and create it."""

import re
from functools import cache, lru_cache
from typing import Any, NamedTuple

from imondrian.base.defaults import (
    FROM_PRESET,
    LEARN_ANOMALIES,
    MISSING_VALUES,
    PRESET,
    SEED,
    SERIES,
    SHINGLE,
    default_warm_up,
    with_stream_preset,
)
from imondrian.base.errors import InvalidInputError
from imondrian.engine.nodes import MAX_POINTS, shared_bytes, table_bytes
from imondrian.forest.inputs import as_count
from imondrian.forest.samplers import new_sampler
from imondrian.forest.samplers.category_counts import window_count_bytes
from imondrian.service.changes.keyed_configuration import keyed_memory_bytes, with_keyed_defaults
from imondrian.service.changes.row_labels import TIME
from imondrian.service.changes.settings import RULE_DEFAULTS, RULES, checked_silence, rules_by_index, rules_by_name
from imondrian.service.limits import Limits
from imondrian.stream.detector import StreamDetector
from imondrian.stream.series_views import SeriesViews
from imondrian.stream.stream_gaps import n_mark_entries
from imondrian.stream.stream_parameters import current_threshold, renamed_parameters

NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"
_DETECTOR_DEFAULTS: dict[str, Any] = {  # arguments of `StreamDetector`
    "window": FROM_PRESET,
    "max_samples": FROM_PRESET,
    "n_trees": FROM_PRESET,
    "preset": PRESET,
    "kind": FROM_PRESET,
    "scale": FROM_PRESET,
    "threshold": FROM_PRESET,
    "shingle": SHINGLE,
    "warm_up": None,
    "learn_anomalies": LEARN_ANOMALIES,
    "seed": SEED,
    "categorical": [],
    "missing": MISSING_VALUES,
}
DEFAULTS: dict[str, Any] = {
    **_DETECTOR_DEFAULTS,
    **RULE_DEFAULTS,
    "silence": None,
    "time": TIME,
    "key": None,
    "max_bytes": None,
}
_VALUE_BYTES, _STRING_BYTES, _CHARACTER_BYTES = 8, 76, 4
_USUAL_NAME_BYTES = 2**18  # of all features of a detector: 1,000 names of 13 characters, or 100 names of 256
MAX_TEXT_LENGTH = 100  # characters of a setting
_MAX_MARKED_VALUES = 2**26  # values in a window whose gaps are marked: a model file has a bit for each, in its header


class MemorySettings(NamedTuple):
    """The settings that determine how much memory a detector needs."""

    n_features: int
    window: int
    max_samples: int | None
    n_trees: int
    shingle: int
    n_categorical: int = 0
    missing: str = "raise"
    preset: str = PRESET

    @classmethod
    def of(cls, n_features: int, settings: dict[str, Any]) -> "MemorySettings":
        """Return those of a detector from all of its settings; `categorical` must be a list."""
        names = ("window", "max_samples", "n_trees", "shingle", "missing", "preset")
        sizes = {name: settings[name] for name in names}
        return cls(n_features, **sizes, n_categorical=len(settings["categorical"]))

    @property
    def n_indicators(self) -> int:
        """Number of indicators of missing numbers in a row."""
        return self.n_features - self.n_categorical if self.missing == "indicator" else 0

    @property
    def n_values(self) -> int:
        """Number of values of a point in the forest."""
        n_rows = SeriesViews.size if self.is_series else self.shingle
        return (self.n_features + self.n_indicators) * n_rows

    @property
    def is_series(self) -> bool:
        """Whether the preset is "series"."""
        return self.preset == SERIES

    @property
    def n_categories(self) -> int:
        """Number of values of a point in the forest that are categories."""
        return (self.n_categorical + self.n_indicators) * self.shingle

    @property
    def marks_gaps(self) -> bool:
        """Whether the detector stores which numbers in the window are replacements."""
        return self.missing in ("median", "indicator") and not self.is_series


def checked_name(name: str, limits: Limits) -> str:
    """Return the name of a detector if it is valid, or raise InvalidInputError."""
    if not is_valid_name(name, limits):
        raise InvalidInputError(
            f"The name of a detector must be 1 to {limits.name_length} letters, digits, dots, hyphens or underscores,"
            f" the first a letter or digit, but is {name[:100]!r}."
        )
    return name


def is_valid_name(name: str, limits: Limits) -> bool:
    """Return True if this is a valid name of a detector."""
    return len(name) <= limits.name_length and re.fullmatch(NAME, name) is not None


def checked_configuration(settings: dict[str, Any], limits: Limits) -> tuple[dict[str, Any], int]:
    """Return a complete, checked configuration, and the number of bytes that its detector needs.

    Parameters
    ----------
    settings : dict
        Settings by name. A setting that is absent gets its default, and a setting whose value is "preset" gets the
        value that the preset defines.
    limits : Limits
        The largest values allowed.

    Raises
    ------
    InvalidInputError
        If a setting is unknown, invalid or above a limit.
    """
    check_names_and_lengths(settings, limits)
    features = _checked_features(settings.get("features"), limits)
    configuration = with_stream_preset({"features": features, **DEFAULTS, **_with_key(settings, features)})
    configuration["categorical"] = _checked_categorical(configuration["categorical"], features)
    _check_time(configuration["time"], features)
    if configuration["preset"] == SERIES:
        _check_series(configuration)
    n_bytes = checked_size(size_of(configuration), limits)
    configuration["silence"] = checked_silence(configuration["silence"])
    parameters = parameters_of(configuration)  # checks all other settings
    rules = rules_by_name(parameters["rules"], features)
    complete = {**configuration, "threshold": parameters["threshold"], **rules}
    return complete, keyed_memory_bytes(complete, limits) if is_keyed(complete) else n_bytes


def name_bytes(configuration: dict[str, Any]) -> int:
    """Return the memory of very long names of features, which are stored twice: the bytes beyond the usual size."""
    n_bytes = sum(2 * (_STRING_BYTES + _CHARACTER_BYTES * len(name)) for name in configuration["features"])
    return max(n_bytes - _USUAL_NAME_BYTES, 0)


def is_keyed(configuration: dict[str, Any]) -> bool:
    """Return True if the configuration has a key: the detector is then a fleet with one detector per value of it."""
    return configuration.get("key") is not None


def _with_key(settings: dict[str, Any], features: list[str]) -> dict[str, Any]:
    """Return the settings; if they have a key, add the defaults of detectors with a key."""
    if is_keyed(settings):
        return with_keyed_defaults(settings, features, DEFAULTS["time"])
    if settings.get("max_bytes") is not None:
        raise InvalidInputError("max_bytes limits the memory of keys, so it requires the setting key.")
    return settings


def check_names_and_lengths(settings: dict[str, Any], limits: Limits) -> None:
    """Raise InvalidInputError for the first unknown setting, or the first list or text that is too long.

    This check takes little time and memory whatever the settings contain. It comes before the check by pydantic, which
    would collect an error for every invalid item of a long list.
    """
    for name, value in settings.items():
        if name != "features" and name not in DEFAULTS:
            raise InvalidInputError(f"Unknown setting {name!r:.100}; the settings are features, {', '.join(DEFAULTS)}.")
        if isinstance(value, (list, dict)) and len(value) > limits.features:
            raise InvalidInputError(f"{name} has {len(value)} items, but at most {limits.features} are allowed.")
        texts = value.values() if isinstance(value, dict) else (value,)
        if any(isinstance(text, str) and len(text) > MAX_TEXT_LENGTH for text in texts):
            raise InvalidInputError(f"{name} must not have more than {MAX_TEXT_LENGTH} characters.")


def size_of(configuration: dict[str, Any]) -> MemorySettings:
    """Return the settings that determine how much memory the detector needs."""
    return MemorySettings.of(len(configuration["features"]), configuration)


def max_points_of(configuration: dict[str, Any], limits: Limits) -> int:
    """Return how many points a request may have; fewer than usual if each takes very long."""
    size = size_of(configuration)
    return max(min(limits.points_per_request, limits.values_per_request // (size.n_trees * size.n_values)), 1)


def max_explained_points_of(configuration: dict[str, Any], limits: Limits) -> int:
    """Return how many points a request may explain; fewer than usual if they have many values or very long names."""
    features, n_rows = configuration["features"], configuration["shingle"]  # a point has a part for each value
    n_name_bytes = sum(len(name.encode()) for name in features) * n_rows
    by_size = min(limits.explained_values // (len(features) * n_rows), limits.explained_name_bytes // n_name_bytes)
    return max(min(limits.explained_points, by_size), 1)


def checked_size(size: MemorySettings, limits: Limits) -> int:
    """Return how many bytes a detector of this size needs, or raise InvalidInputError, before any are allocated."""
    as_count(size.n_features, "the number of features", 1, limits.features)
    as_count(size.window, "window", 1, limits.window)
    as_count(size.n_trees, "n_trees", 1, limits.trees)
    as_count(size.shingle, "shingle", 1, MAX_POINTS)
    if size.n_features * size.shingle > limits.features:
        raise InvalidInputError(
            f"The number of features times shingle must be at most {limits.features}, but is {size.n_features} x"
            f" {size.shingle} = {size.n_features * size.shingle}."
        )
    if size.max_samples is not None:
        as_count(size.max_samples, "max_samples", 1, MAX_POINTS)
    n_bytes = memory_bytes_of(size)
    if n_bytes > limits.detector_bytes:
        raise InvalidInputError(
            f"The detector would need {n_bytes} bytes, but at most {limits.detector_bytes} are allowed."
        )
    if size.marks_gaps and size.window * size.n_features > _MAX_MARKED_VALUES:
        raise InvalidInputError(
            f"With missing={size.missing!r}, a window can have at most {_MAX_MARKED_VALUES} values, but would have"
            f" {size.window * size.n_features}."
        )
    return n_bytes


def memory_bytes_of(size: MemorySettings) -> int:
    """Return `StreamDetector.n_bytes` of a detector of this size, without creating it."""
    return copy_bytes_of(size) - _saved_by_sharing(size)


def _saved_by_sharing(size: MemorySettings) -> int:
    """Return how many bytes trees save by sharing their points; in a copy for reads, each tree has its own points."""
    sampler = new_sampler(size.max_samples, size.window)
    n_rows = 0 if size.n_categories else sampler.n_shared_rows(size.n_trees, size.n_values)
    sizes = (size.n_trees, sampler.limit, size.n_values)
    return table_bytes(*sizes) - shared_bytes(*sizes, n_rows) if n_rows else 0


@lru_cache
def copy_bytes_of(size: MemorySettings) -> int:
    """Return how many bytes a copy for reads (`ReadCopy`) of a detector of this size needs."""
    n_coordinates = size.n_values + size.n_categories
    n_slots = new_sampler(size.max_samples, size.window).limit
    trees = table_bytes(size.n_trees, n_slots, n_coordinates, size.n_categories)
    ring = size.window * n_coordinates * _VALUE_BYTES
    counts = window_count_bytes(size.n_categories, size.window)
    shingle = (size.shingle - 1) * size.n_values // size.shingle * _VALUE_BYTES
    medians = 0 if size.missing == "raise" or size.is_series else size.n_features * _VALUE_BYTES
    marks = n_mark_entries(size.window) * (_VALUE_BYTES + size.n_features) if size.marks_gaps else 0
    views = SeriesViews(size.n_features).n_bytes if size.is_series else 0
    return trees + ring + counts + shingle + medians + marks + views + _fixed_bytes()


@cache
def _fixed_bytes() -> int:
    """Return the bytes of the threshold and the drift monitor, which are the same for all detectors."""
    smallest = StreamDetector(1, window=1, n_trees=1, missing="raise")
    return smallest.n_bytes - smallest.forest.n_bytes


def new_detector(configuration: dict[str, Any]) -> StreamDetector:
    """Return a new detector with a configuration."""
    features = configuration["features"]
    settings = {name: configuration[name] for name in _DETECTOR_DEFAULTS}
    settings["categorical"] = [features.index(name) for name in configuration["categorical"]]
    rules = rules_by_index({name: configuration[name] for name in RULES}, features, configuration["categorical"])
    return StreamDetector(len(features), **settings, rules=rules)


def parameters_of(configuration: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a detector with this configuration, without allocating a detector of its size."""
    window, warm_up = configuration["window"], configuration["warm_up"]
    resolved = {"warm_up": default_warm_up(window, configuration["preset"]) if warm_up is None else warm_up}
    sizes = {"window": window, "n_trees": configuration["n_trees"]}
    return new_detector({**configuration, **resolved, **dict.fromkeys(sizes, 1)}).parameters | sizes


def is_former(stored: dict[str, Any]) -> bool:
    """Return True if the configuration is of a version without incidents, where a threshold was a share of points."""
    return "gap" not in stored


def stored_configuration(stored: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """Return a checked configuration from the store.

    Earlier versions had other names for some settings. Before there were categories, rows with missing numbers were
    refused. Before there were incidents, a number as threshold was a share of the points, and "auto" was 0.5.
    """
    settings = {"missing": "raise"} | renamed_parameters(stored)
    if is_former(stored) and "threshold" in settings:
        settings["threshold"] = current_threshold(settings["threshold"])
    configuration, _ = checked_configuration(settings, limits)
    return configuration


def is_same_detector(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return True if two configurations give the same detector, even if only one states the default warm-up."""
    is_same = all(one[name] == other[name] for name in ("features", "silence", "time", "key", "max_bytes"))
    return is_same and parameters_of(one) == parameters_of(other)


def _check_time(time: Any, features: list[str]) -> None:
    """Raise InvalidInputError if points cannot have their times under this name.

    A feature may be called "time", the default of the setting; then points have no times.
    """
    if not isinstance(time, str) or not time or not time.isprintable():
        raise InvalidInputError(f"time must be a name of printable characters, but is {time!r:.200}.")
    if time in features and time != TIME:
        raise InvalidInputError(f"time must not be the name of a feature, but is {time!r:.200}.")


def _check_series(configuration: dict[str, Any]) -> None:
    """Raise InvalidInputError if a setting cannot be combined with the preset "series"."""
    categorical, shingle, missing = (configuration[name] for name in ("categorical", "shingle", "missing"))
    if categorical:
        raise InvalidInputError(
            f"With the preset 'series', all features must be numbers, but categorical has {categorical[0]!r:.200}."
        )
    if shingle != 1:
        raise InvalidInputError(f"With the preset 'series', shingle must be 1, but is {shingle!r:.100}.")
    if missing not in ("median", "raise"):
        raise InvalidInputError(
            f"With the preset 'series', missing must be 'median' or 'raise', but is {missing!r:.100}."
        )


def _checked_categorical(categorical: Any, features: list[str]) -> list[str]:
    """Return the names of the categorical features in the order of the features, or raise InvalidInputError."""
    if not isinstance(categorical, list):
        raise InvalidInputError(f"categorical must be a list of names of features, but is {categorical!r:.200}.")
    for name in categorical:
        if name not in features:
            raise InvalidInputError(f"categorical must be a list of names of features, but has {name!r:.200}.")
        if categorical.count(name) > 1:
            raise InvalidInputError(f"categorical has {name[:100]!r} more than once.")
    return [name for name in features if name in categorical]


def _checked_features(features: Any, limits: Limits) -> list[str]:
    """Return the names of the features if they are valid, or raise InvalidInputError."""
    if not isinstance(features, list) or not features or not all(isinstance(name, str) and name for name in features):
        raise InvalidInputError(f"features must be a list of names, but is {features!r:.200}.")
    for name in features:
        if len(name) > limits.feature_length or not name.isprintable():
            raise InvalidInputError(
                f"The name of a feature must have at most {limits.feature_length} characters, all of them printable,"
                f" but is {name[:100]!r}."
            )
    if len(set(features)) < len(features):
        duplicate = next(name for name in features if features.count(name) > 1)
        raise InvalidInputError(
            f"The names of the features must differ, but {duplicate[:100]!r} appears more than once."
        )
    return features

"""The configuration of a detector: what a client may set, checked, and the detector it makes."""

import math
import re
from functools import cache
from typing import Any, NamedTuple

from imondrian.defaults import (
    FROM_PRESET,
    LEARN_ANOMALIES,
    MAX_SAMPLES,
    N_TREES,
    PRESET,
    SEED,
    SHINGLE,
    WINDOW,
    default_warm_up,
    with_preset,
)
from imondrian.engine.nodes import FIELDS, MAX_POINTS, shape_of
from imondrian.errors import InvalidInputError
from imondrian.inputs import as_count
from imondrian.samplers import new_sampler
from imondrian.service.limits import Limits
from imondrian.stream import StreamDetector, renamed_parameters

NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"
DEFAULTS: dict[str, Any] = {
    "window": WINDOW,
    "max_samples": MAX_SAMPLES,
    "n_trees": N_TREES,
    "preset": PRESET,
    "kind": FROM_PRESET,
    "scale": FROM_PRESET,
    "threshold": FROM_PRESET,
    "shingle": SHINGLE,
    "warm_up": None,
    "learn_anomalies": LEARN_ANOMALIES,
    "seed": SEED,
}


_VALUE = 8  # bytes


class DetectorSize(NamedTuple):
    """The settings of a detector that decide how much memory it takes."""

    n_features: int
    window: int
    max_samples: int | None
    n_trees: int
    shingle: int


def memory_bytes_of(sizes: DetectorSize) -> int:
    """Return what `StreamDetector.n_bytes` is for a detector of these sizes."""
    n_values = sizes.n_features * sizes.shingle
    n_slots = new_sampler(sizes.max_samples, sizes.window).limit
    trees = sum(
        math.prod(shape_of(field, sizes.n_trees, n_slots, n_values)) * field.dtype.itemsize for field in FIELDS.values()
    )
    ring, shingle = sizes.window * n_values * _VALUE, (sizes.shingle - 1) * sizes.n_features * _VALUE
    return trees + ring + shingle + _rest()


@cache
def _rest() -> int:
    """Return the bytes of the threshold and the drift monitor, which are the same in all detectors."""
    smallest = StreamDetector(1, window=1, n_trees=1)
    return smallest.n_bytes - smallest.forest.n_bytes


def checked_name(name: str, limits: Limits) -> str:
    """Check the name of a detector: letters, digits, dots, hyphens and underscores."""
    if not is_valid_name(name, limits):
        raise InvalidInputError(
            f"The name of a detector must be 1 to {limits.name_length} letters, digits, dots, hyphens or underscores,"
            f" the first a letter or digit, but is {name[:100]!r}."
        )
    return name


def is_valid_name(name: str, limits: Limits) -> bool:
    """Return True if a detector can have this name."""
    return len(name) <= limits.name_length and re.fullmatch(NAME, name) is not None


def checked_configuration(given: dict[str, Any], limits: Limits) -> tuple[dict[str, Any], int]:
    """Fill in what is not given and what the preset stands for, and check all of it.

    Return also the bytes that such a detector takes.
    """
    unknown = sorted(set(given) - {"features", *DEFAULTS})
    if unknown:
        raise InvalidInputError(f"There is no setting {unknown[0]!r}; there are features, {', '.join(DEFAULTS)}.")
    features = _checked_features(given.get("features"), limits)
    configuration = with_preset({"features": features, **DEFAULTS, **given})
    n_bytes = checked_size(size_of(configuration), limits)
    parameters_of(configuration)  # for the checks of all other settings
    return configuration, n_bytes


def size_of(configuration: dict[str, Any]) -> DetectorSize:
    """Return the settings that decide how much memory a detector takes."""
    named = {name: configuration[name] for name in DetectorSize._fields if name in configuration}
    return DetectorSize(n_features=len(configuration["features"]), **named)


def checked_size(sizes: DetectorSize, limits: Limits) -> int:
    """Return the bytes that a detector of these sizes takes, or refuse it, before it takes them."""
    as_count(sizes.n_features, "the number of features", 1, limits.features)
    as_count(sizes.window, "window", 1, limits.window)
    as_count(sizes.n_trees, "n_trees", 1, limits.trees)
    as_count(sizes.shingle, "shingle", 1, limits.features // sizes.n_features)
    if sizes.max_samples is not None:
        as_count(sizes.max_samples, "max_samples", 1, MAX_POINTS)
    n_bytes = memory_bytes_of(sizes)
    if n_bytes > limits.detector_bytes:
        raise InvalidInputError(
            f"Such a detector takes {n_bytes} bytes, but at most {limits.detector_bytes} are allowed."
        )
    return n_bytes


def new_detector(configuration: dict[str, Any]) -> StreamDetector:
    """Make the detector of a configuration."""
    settings = {name: configuration[name] for name in DEFAULTS}
    return StreamDetector(len(configuration["features"]), **settings)


def parameters_of(configuration: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the detector of a configuration, without making one of its size."""
    window, warm_up = configuration["window"], configuration["warm_up"]
    in_effect = {"warm_up": default_warm_up(window) if warm_up is None else warm_up}
    sizes = {"window": window, "n_trees": configuration["n_trees"]}
    return new_detector({**configuration, **in_effect, **dict.fromkeys(sizes, 1)}).parameters | sizes


def stored_configuration(kept: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """Check a configuration that was kept, perhaps by version 0.1, which had other names for some settings."""
    configuration, _ = checked_configuration(renamed_parameters(kept), limits)
    return configuration


def is_same_detector(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return True if two configurations make the same detector, even if only one of them states the warm-up."""
    return one["features"] == other["features"] and parameters_of(one) == parameters_of(other)


def _checked_features(features: Any, limits: Limits) -> list[str]:
    """Check the names of the features."""
    if not isinstance(features, list) or not features or not all(isinstance(name, str) and name for name in features):
        raise InvalidInputError(f"features must be a list of names, but is {features!r:.200}.")
    if len(features) > limits.features:
        raise InvalidInputError(f"There are {len(features)} features, but at most {limits.features} are allowed.")
    for name in features:
        if len(name) > limits.feature_length or not name.isprintable():
            raise InvalidInputError(
                f"The name of a feature may have at most {limits.feature_length} characters, all of them printable, but"
                f" there is {name[:100]!r}."
            )
    if len(set(features)) < len(features):
        raise InvalidInputError("The names of the features must differ.")
    return features

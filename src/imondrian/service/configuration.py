"""The configuration of a detector: what a client may set, checked, and the detector it makes."""

import re
from typing import Any

from imondrian.errors import InvalidInputError
from imondrian.inputs import as_count
from imondrian.service.settings import Limits
from imondrian.stream import StreamDetector

NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"
DEFAULTS: dict[str, Any] = {
    "window": 2048,
    "max_samples": 256,
    "n_estimators": 100,
    "preset": "practice",
    "score": "preset",
    "scale": "preset",
    "threshold": 0.01,
    "shingle": 1,
    "warm_up": None,
    "learn_anomalies": True,
    "seed": 0,
}


def checked_name(name: str, limits: Limits) -> str:
    """Check the name of a detector: letters, digits, dots, hyphens and underscores."""
    if len(name) > limits.name_length or re.fullmatch(NAME, name) is None:
        raise InvalidInputError(
            f"The name of a detector must be 1 to {limits.name_length} letters, digits, dots, hyphens or underscores,"
            f" the first a letter or digit, but is {name[:100]!r}."
        )
    return name


def checked_configuration(given: dict[str, Any], limits: Limits) -> tuple[dict[str, Any], int]:
    """Fill in what is not given, and check all of it; give also the bytes that such a detector takes."""
    unknown = sorted(set(given) - {"features", *DEFAULTS})
    if unknown:
        raise InvalidInputError(f"There is no setting {unknown[0]!r}; there are features, {', '.join(DEFAULTS)}.")
    features = _checked_features(given.get("features"), limits)
    configuration = {"features": features, **DEFAULTS, **given}
    as_count(configuration["window"], "window", 1, limits.window)
    as_count(configuration["n_estimators"], "n_estimators", 1, limits.trees)
    as_count(configuration["shingle"], "shingle", 1, limits.features // len(features))
    return configuration, _checked_size(configuration, limits)


def new_detector(configuration: dict[str, Any]) -> StreamDetector:
    """Make the detector of a configuration."""
    settings = {name: configuration[name] for name in DEFAULTS}
    return StreamDetector(len(configuration["features"]), **settings)


def _checked_size(configuration: dict[str, Any], limits: Limits) -> int:
    """Give the bytes that a detector takes, or refuse it, before it takes them: by those with one and two trees."""
    n_bytes = configuration["window"] * configuration["shingle"] * len(configuration["features"]) * 8
    if n_bytes <= limits.detector_bytes:
        one, two = (new_detector({**configuration, "n_estimators": n}).n_bytes for n in (1, 2))
        n_bytes = one + (configuration["n_estimators"] - 1) * (two - one)
    if n_bytes > limits.detector_bytes:
        raise InvalidInputError(
            f"Such a detector takes {n_bytes} bytes, but at most {limits.detector_bytes} are allowed."
        )
    return n_bytes


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

"""Check the configuration of a detector with a key, compute how much memory it may use, and create its fleet."""

from pathlib import Path
from typing import Any

from imondrian.base.defaults import (
    FROM_PRESET,
    KEYED_MAX_SAMPLES,
    KEYED_N_TREES,
    KEYED_WINDOW,
    LEARN_ANOMALIES,
    SERIES,
    SHINGLE,
)
from imondrian.base.errors import InvalidInputError
from imondrian.fleet.fleet import Fleet
from imondrian.forest.inputs import as_count
from imondrian.service.changes.settings import RULES, rules_by_index
from imondrian.service.limits import KEY_BYTES, MIB, Limits

DEFAULT_MAX_BYTES = 256 * MIB  # default memory of the keys
_KEYED_DEFAULTS: dict[str, Any] = {
    "window": KEYED_WINDOW,
    "max_samples": KEYED_MAX_SAMPLES,
    "n_trees": KEYED_N_TREES,
    "missing": "raise",
    "max_bytes": DEFAULT_MAX_BYTES,
}
_FLEET_SETTINGS = ("window", "max_samples", "n_trees", "preset", "kind", "scale", "threshold", "warm_up", "seed")
_FIXED_SETTINGS: dict[str, Any] = {  # settings that can only have one value
    "categorical": [],
    "missing": "raise",
    "shingle": SHINGLE,
    "learn_anomalies": LEARN_ANOMALIES,
}


def with_keyed_defaults(settings: dict[str, Any], features: list[str], default_time: str) -> dict[str, Any]:
    """Return the settings of a detector with a key, with the defaults that only detectors with a key have.

    Raises
    ------
    InvalidInputError
        If a setting cannot be combined with a key.
    """
    _check_key(settings["key"], features, settings.get("time", default_time))
    given = {name: value for name, value in settings.items() if not _is_default(name, value)}
    complete = {**_KEYED_DEFAULTS, **given}
    if complete.get("preset") == SERIES:
        raise InvalidInputError(f"preset must not be {SERIES!r} with a key: the memory of each key would be too large.")
    for name, value in _FIXED_SETTINGS.items():
        if complete.get(name, value) != value:
            raise InvalidInputError(f"{name} must be {value!r} with a key, but is {complete[name]!r:.100}.")
    return complete


def _check_key(key: Any, features: list[str], time: Any) -> None:
    if not isinstance(key, str) or not key or not key.isprintable():
        raise InvalidInputError(f"key must be a name of printable characters, but is {key!r:.200}.")
    if key in features:
        raise InvalidInputError(f"key must not be the name of a feature, but is {key!r:.200}.")
    if key == time:
        raise InvalidInputError(f"key must not be the name of the time of a point, but is {key!r:.200}.")


def _is_default(name: str, value: Any) -> bool:
    """Return True if a setting asks for its default, and this default is different for detectors with a key."""
    return name in _KEYED_DEFAULTS and ((value is None and name == "max_bytes") or value == FROM_PRESET)


def keyed_memory_bytes(configuration: dict[str, Any], limits: Limits) -> int:
    """Return how many bytes a new detector with a key may use; raise InvalidInputError if `max_bytes` is invalid."""
    fleet = new_fleet(configuration | {"max_bytes": None})
    max_bytes = as_count(configuration["max_bytes"], "max_bytes", fleet.bytes_per_key, limits.total_bytes)
    return keyed_bytes(max_bytes, 0)


def keyed_bytes(max_bytes: int, n_keys: int) -> int:
    """Return how many bytes a detector with a key may use, if it has `n_keys` keys, in memory or on the disk."""
    return max_bytes + n_keys * KEY_BYTES


def new_fleet(configuration: dict[str, Any], store: Path | None = None) -> Fleet:
    """Return a new fleet with a configuration."""
    features = configuration["features"]
    settings = {name: configuration[name] for name in _FLEET_SETTINGS}
    rules = rules_by_index({name: configuration[name] for name in RULES}, features, [])
    return Fleet(len(features), **settings, rules=rules, max_bytes=configuration["max_bytes"], store=store)

"""The settings of a running detector that can be changed: the threshold, the rules for incidents, and the silence.

The silence is the time without points after which an incident of missing data opens.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from imondrian.alarms.incidents import IncidentRules, checked_rules
from imondrian.base.defaults import resolved_for_stream
from imondrian.base.durations import seconds_of
from imondrian.base.errors import InvalidInputError
from imondrian.fleet.fleet import Fleet
from imondrian.stream.detector import StreamDetector
from imondrian.stream.stream_parameters import checked_threshold

RULES = IncidentRules._fields
BY_FEATURE = ("side", "ignore_within")  # rules that are dictionaries: feature to value
CHANGEABLE = ("threshold", *RULES, "silence")
RULE_DEFAULTS: dict[str, Any] = {**IncidentRules()._asdict(), "side": {}, "ignore_within": {}}
_MAX_SILENCE = 366 * 86_400.0  # seconds


def checked_silence(silence: Any) -> float | None:
    """Return a duration in seconds, from a number of seconds or a string such as "10m"; None stays None.

    Raises
    ------
    InvalidInputError
        If `silence` is anything else, 0 or less, or longer than a year.

    Examples
    --------
    >>> checked_silence("10m"), checked_silence(1.5)
    (600.0, 1.5)
    """
    if silence is None:
        return None
    seconds: Any = seconds_of(silence) if isinstance(silence, str) else silence
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not 0.0 < seconds <= _MAX_SILENCE:
        raise InvalidInputError(
            "silence must be a number of seconds above 0, at most a year, or a string such as '30s', '10m', '2h' or"
            f" '1d', but is {silence!r:.200}."
        )
    return float(seconds)


def rules_by_index(settings: Mapping[str, Any], features: Sequence[str], categorical: Sequence[str]) -> dict[str, Any]:
    """Check the rules in `settings`, and return them with the indices of features instead of their names."""
    given = {name: settings[name] for name in RULES if name in settings}
    for name in BY_FEATURE:
        if name in given:
            given[name] = _by_index(name, given[name], features, categorical)
    checked = checked_rules(given)
    return {name: getattr(checked, name) for name in given}


def _by_index(name: str, values: Any, features: Sequence[str], categorical: Sequence[str]) -> dict[int, Any]:
    if not isinstance(values, Mapping):
        raise InvalidInputError(f"{name} must be an object with names of features, but is {values!r:.200}.")
    for feature in values:
        if feature not in features or feature in categorical:
            raise InvalidInputError(f"{name} must name numeric features of the detector, but names {feature!r:.200}.")
    return {features.index(feature): value for feature, value in values.items()}


def rules_by_name(rules: IncidentRules, features: Sequence[str]) -> dict[str, Any]:
    """Return rules as settings, with the names of features instead of their indices."""
    named = {
        name: {_name_of(key, features): value for key, value in getattr(rules, name).items()} for name in BY_FEATURE
    }
    return {**rules._asdict(), **named}


def _name_of(feature: Any, features: Sequence[str]) -> str:
    """Return the name of a feature that is given by its name or its index."""
    if isinstance(feature, str):
        return feature
    if not 0 <= feature < len(features):
        raise InvalidInputError(f"A rule is about feature {feature}, but there are only {len(features)} features.")
    return features[feature]


class Changes(NamedTuple):
    """Changes of the settings of a running detector."""

    threshold: float | str | None  # None: unchanged
    rules: dict[str, Any]  # only the rules that change, with the indices of features
    has_silence: bool
    silence: float | None  # new value, if `has_silence`

    @classmethod
    def of(cls, settings: Mapping[str, Any], configuration: Mapping[str, Any]) -> "Changes":
        """Check new settings of a detector; raise InvalidInputError if one is invalid or cannot be changed.

        Parameters
        ----------
        settings : dict
            The new values, by name.
        configuration : dict
            The configuration of the detector.
        """
        check_changeable(settings)
        preset, threshold = configuration["preset"], settings.get("threshold")
        if "threshold" in settings:
            threshold = checked_threshold(resolved_for_stream(threshold, "threshold", preset), preset)
        rules = rules_by_index(settings, configuration["features"], configuration["categorical"])
        return cls(threshold, rules, "silence" in settings, checked_silence(settings.get("silence")))

    def to_bytes(self) -> bytes:
        """Return the changes as bytes, for the journal."""
        pairs = {name: list(value.items()) for name, value in self.rules.items() if name in BY_FEATURE}
        return json.dumps({**self._asdict(), "rules": {**self.rules, **pairs}}).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Changes":
        """Return the changes that `to_bytes` wrote."""
        try:
            return cls(**json.loads(content))
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"The changes of settings cannot be read: {error}.") from None

    def apply(self, detector: StreamDetector | Fleet) -> None:
        """Change the threshold and the rules of a detector; everything that it has learned remains."""
        if self.threshold is not None:
            detector.threshold = self.threshold
        if self.rules:
            detector.rules = checked_rules({**detector.rules._asdict(), **self.rules})


def check_changeable(settings: Mapping[str, Any]) -> None:
    """Raise InvalidInputError if `settings` is empty, or has a setting that cannot be changed."""
    for name in settings:
        if name not in CHANGEABLE:
            raise InvalidInputError(
                f"The setting {name!r:.100} of a detector cannot be changed; these can: {', '.join(CHANGEABLE)}."
            )
    if not settings:
        raise InvalidInputError(f"There is no setting to change; these can be changed: {', '.join(CHANGEABLE)}.")


def settings_of(detector: StreamDetector | Fleet, silence: float | None, features: Sequence[str]) -> dict[str, Any]:
    """Return the current values of the settings that can be changed."""
    return {"threshold": detector.threshold, **rules_by_name(detector.rules, features), "silence": silence}

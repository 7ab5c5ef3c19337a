"""The settings of a stream detector: parameters, which are fixed, and threshold and rules, which can be changed."""

from collections.abc import Collection
from typing import Any, NamedTuple, Self

from imondrian.alarms.incidents import IncidentRules, checked_rules
from imondrian.base.errors import InvalidInputError
from imondrian.cli.option_checks import parse_threshold
from imondrian.cli.options import AlarmOptions, DetectorOptions
from imondrian.fleet.fleet import Fleet
from imondrian.forest.inputs import number_of_text
from imondrian.stream.detector import StreamDetector

_PARAMETERS = {"samples": "max_samples", "trees": "n_trees"}  # options whose parameter has another name
_DROP, _RAISE = "drop", "raise"  # the same rule for missing values: as an option, and as a parameter
_COUNTS = ("gap", "min_points", "cooldown")
_BY_FEATURE = {"side": "both", "ignore_within": "none"}  # rules for single features, with the default of each


def explicit_options(options: DetectorOptions) -> dict[str, Any]:
    """Return the options that the user set, by name, with the values that a detector accepts."""
    given = {name: value for name, value in options._asdict().items() if value is not None}
    if "samples" in given:
        given["samples"] = given["samples"] or None
    if given.get("missing") == _DROP:
        given["missing"] = _RAISE
    return given


def detector_parameters(explicit: dict[str, Any]) -> dict[str, Any]:
    """Convert the options that the user set to arguments of a new detector."""
    return {_PARAMETERS.get(name, name): value for name, value in explicit.items()}


def check_parameters(explicit: dict[str, Any], parameters: dict[str, Any], path: str) -> None:
    """Raise an InvalidInputError if the user set an option that differs from the parameters in the model file."""
    for name, value in explicit.items():
        stored = parameters[_PARAMETERS.get(name, name)]
        if stored != value:
            raise InvalidInputError(
                f"{path} was created with {_as_option(name, stored)}; {_as_option(name, value)} is not possible. "
                "Omit the option, or choose another model file."
            )


def _as_option(name: str, value: Any) -> str:
    """Return an option as the user would write it."""
    option = name.replace("_", "-")
    value = _DROP if name == "missing" and value == _RAISE else value
    if isinstance(value, bool):
        return f"--{option}" if value else f"--no-{option}"
    return f"--{option} {0 if value is None else value}"  # only --samples can be None, for all rows


# -- threshold and rules ----------------------------------------------------------------------------------------------


class AlarmSettings(NamedTuple):
    """The threshold and the rules for incidents that the user gave."""

    threshold: float | str | None  # None: the default, or the threshold of the resumed detector
    rules: dict[str, Any]  # some of the fields of IncidentRules

    @classmethod
    def of(cls, options: AlarmOptions) -> Self:
        """Return the settings of the options; raise InvalidInputError if one is invalid."""
        counts = {name: getattr(options, name) for name in _COUNTS if getattr(options, name) is not None}
        by_feature = {name: _by_feature(name, getattr(options, name)) for name in _BY_FEATURE}
        rules: dict[str, Any] = counts | {name: values for name, values in by_feature.items() if values}
        checked = checked_rules(rules)._asdict()
        return cls(parse_threshold(options.threshold), {name: checked[name] for name in rules})

    def parameters(self) -> dict[str, Any]:
        """Return the settings as arguments of a new detector."""
        return {"rules": self.rules} | ({} if self.threshold is None else {"threshold": self.threshold})

    def check_features(self, names: list[str], categorical: Collection[int]) -> None:
        """Raise InvalidInputError if a rule is for a feature that is not a number, or that does not exist."""
        for rule in _BY_FEATURE:
            for name in self.rules.get(rule, {}):
                if name not in names:
                    known = ", ".join(names)
                    raise InvalidInputError(f"{_option(rule)}: there is no feature {name!r:.200} among {known:.500}.")
                if names.index(name) in categorical:
                    raise InvalidInputError(f"{_option(rule)}: the feature {name!r} is a category, not a number.")

    def apply(self, detector: StreamDetector | Fleet) -> list[str]:
        """Change the settings of a detector or a fleet; return what has changed, in words.

        Rules for features that the user did not name remain.
        """
        threshold, rules = detector.threshold, detector.rules
        merged = {name: {**getattr(rules, name), **self.rules.get(name, {})} for name in _BY_FEATURE}
        detector.rules = rules._replace(**(self.rules | merged))
        if self.threshold is not None:
            detector.threshold = self.threshold
        return _changes(threshold, detector.threshold, rules, detector.rules)


def _by_feature(rule: str, texts: tuple[str, ...]) -> dict[str, Any]:
    """Parse FEATURE=VALUE; the name of a feature may contain "="."""
    values: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.rpartition("=")
        if not separator or not name:
            raise InvalidInputError(f"{_option(rule)} must be FEATURE=VALUE, but is {text!r:.200}.")
        if name in values:
            raise InvalidInputError(f"{_option(rule)} is given twice for the feature {name!r:.200}.")
        values[name] = _distance(value) if rule == "ignore_within" else value.strip()
        try:
            checked_rules({rule: {name: values[name]}})
        except InvalidInputError as error:
            raise InvalidInputError(f"{_option(rule)} {text!r:.200}: {error}") from None
    return values


def _distance(text: str) -> float | str:
    """Return a distance as a number; a share such as "10%", and anything that is not a number, remains text."""
    number = number_of_text(text)
    return text.strip() if number is None else number


def _changes(threshold: Any, new_threshold: Any, rules: IncidentRules, new_rules: IncidentRules) -> list[str]:
    before = {"threshold": threshold} | _flat(rules)
    after = {"threshold": new_threshold} | _flat(new_rules)
    return [
        f"{_option(name)} {_shown(name, value)} from now on (before: {before.get(name, _BY_FEATURE.get(name[0]))})"
        for name, value in after.items()
        if before.get(name) != value
    ]


def _flat(rules: IncidentRules) -> dict[Any, Any]:
    """Return all rules in one dictionary; the key of a rule for a single feature is (rule, feature)."""
    by_feature = {(rule, name): value for rule in _BY_FEATURE for name, value in getattr(rules, rule).items()}
    return {name: getattr(rules, name) for name in _COUNTS} | by_feature


def _shown(name: Any, value: Any) -> str:
    return f"{name[1]}={value}" if isinstance(name, tuple) else str(value)


def _option(name: Any) -> str:
    """Return the name of an option as the user would write it."""
    rule = name[0] if isinstance(name, tuple) else name
    return f"--{rule.replace('_', '-')}"

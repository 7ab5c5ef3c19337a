"""Default settings and presets; every interface reads them from here."""

from typing import TYPE_CHECKING, Any, NamedTuple

from imondrian.errors import InvalidInputError

if TYPE_CHECKING:
    from imondrian.option_types import Kind, Missing, PresetName, Threshold

N_TREES = 100
MAX_SAMPLES = 256
WINDOW = 2048
GAP = 64  # rows between two alarms of an incident
SHINGLE = 1
SEED = 0
LEARN_ANOMALIES = True
N_JOBS = 1
MISSING_VALUES: "Missing" = "median"

# With one detector per key there may be many detectors, so each is smaller than a single one would be.
KEYED_N_TREES = 25
KEYED_MAX_SAMPLES = 64
KEYED_WINDOW = 256


class Preset(NamedTuple):
    """Values of the settings that a preset determines."""

    kind: "Kind"  # which score
    scale: Any  # feature weights
    contamination: "Threshold"  # threshold of estimators; scikit-learn's checks require that some rows are flagged
    table_threshold: "Threshold"  # threshold for tables, on the command line and on Spark
    threshold: "Threshold"  # threshold on streams
    auto: float  # the threshold that "auto" means


PRESET: "PresetName" = "practice"
AUTO = "auto"  # this threshold means: the field `auto` of the preset
FROM_PRESET = "preset"  # this value of a setting means: use the value of the preset
PRESETS: "dict[PresetName, Preset]" = {
    # the best overall in our measurements
    "practice": Preset("size", "std", contamination=0.05, table_threshold=AUTO, threshold=0.001, auto=0.001),
    # as in the paper
    "paper": Preset("depth", None, contamination="kmeans", table_threshold="kmeans", threshold="kmeans", auto=0.5),
}


def default_warm_up(window: int) -> int:
    """Return the default number of points that a detector learns before it flags anomalies."""
    return window // 8


def preset_of(name: Any) -> Preset:
    """Return the preset with this name; raise InvalidInputError if there is no such preset."""
    if not isinstance(name, str) or name not in PRESETS:
        raise InvalidInputError(f"preset must be one of {', '.join(PRESETS)}, but is {name!r}.")
    return PRESETS[name]


def auto_threshold(preset: Any) -> float:
    """Return the threshold that "auto" means with a preset."""
    return preset_of(preset).auto


def resolved(value: Any, setting: str, preset: Any) -> Any:
    """Return the value of a setting; if it is "preset", return the value that the preset has for this setting."""
    return getattr(preset_of(preset), setting) if _is_from_preset(value) else value


def with_preset(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with every value "preset" replaced by the value of the preset `settings["preset"]`.

    Examples
    --------
    >>> with_preset({"preset": "paper", "kind": "preset", "scale": "std", "n_trees": 3})
    {'preset': 'paper', 'kind': 'depth', 'scale': 'std', 'n_trees': 3}
    """
    preset = preset_of(settings["preset"])
    return {
        name: getattr(preset, name) if name in Preset._fields and _is_from_preset(value) else value
        for name, value in settings.items()
    }


def _is_from_preset(value: Any) -> bool:
    return isinstance(value, str) and value == FROM_PRESET

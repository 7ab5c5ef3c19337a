"""Default settings and presets; every interface reads them from here."""

from typing import TYPE_CHECKING, Any, NamedTuple

from imondrian.errors import InvalidInputError

if TYPE_CHECKING:
    from imondrian.option_types import Kind, PresetName, Threshold

N_TREES = 100
MAX_SAMPLES = 256
WINDOW = 2048
SHINGLE = 1
SEED = 0
LEARN_ANOMALIES = True
N_JOBS = 1

# One detector per key: there may be many keys, so each detector is smaller than a single one would be.
KEYED_N_TREES = 25
KEYED_MAX_SAMPLES = 64
KEYED_WINDOW = 256


class Preset(NamedTuple):
    """Settings that belong together."""

    kind: "Kind"  # which score
    scale: Any  # feature weights
    contamination: "Threshold"  # threshold for batches
    threshold: "Threshold"  # threshold on streams


PRESET: "PresetName" = "practice"
FROM_PRESET = "preset"  # this value of a setting means: use the value of the preset
PRESETS: "dict[PresetName, Preset]" = {
    "practice": Preset(
        kind="size", scale="std", contamination=0.05, threshold=0.01
    ),  # the best overall in our measurements
    "paper": Preset(kind="depth", scale=None, contamination="kmeans", threshold="kmeans"),  # as in the paper
}


def default_warm_up(window: int) -> int:
    """Return the default number of points that a detector learns before it flags anomalies."""
    return window // 8


def preset_of(name: Any) -> Preset:
    """Return the preset with this name; raise an InvalidInputError if there is none."""
    if not isinstance(name, str) or name not in PRESETS:
        raise InvalidInputError(f"preset must be one of {', '.join(PRESETS)}, but is {name!r}.")
    return PRESETS[name]


def resolved(value: Any, setting: str, preset: Any) -> Any:
    """Return the value of a setting, or the value of the preset if it is "preset"."""
    return getattr(preset_of(preset), setting) if _is_from_preset(value) else value


def with_preset(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with every value "preset" replaced by that of the preset named in them.

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

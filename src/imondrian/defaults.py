"""The default settings and the presets: written here once, and read from here by every interface."""

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

# One detector per key: there are as many detectors as keys, so each is smaller than a single one.
KEYED_N_TREES = 25
KEYED_MAX_SAMPLES = 64
KEYED_WINDOW = 256


class Preset(NamedTuple):
    """Settings that go together."""

    kind: "Kind"  # which score
    scale: Any  # the weights of the features that the score works with
    contamination: "Threshold"  # the cut-off for batches
    threshold: "Threshold"  # the cut-off on streams


PRESET: "PresetName" = "practice"
FROM_PRESET = "preset"  # the value of a setting that is to be that of the preset
PRESETS: "dict[PresetName, Preset]" = {
    "practice": Preset(kind="size", scale="std", contamination=0.05, threshold=0.01),  # the best all-rounder measured
    "paper": Preset(kind="depth", scale=None, contamination="kmeans", threshold="kmeans"),  # fidelity
}


def default_warm_up(window: int) -> int:
    """Return how many points a detector with this window learns before it calls any an anomaly."""
    return window // 8


def preset_of(name: Any) -> Preset:
    """Return the preset of that name."""
    if not isinstance(name, str) or name not in PRESETS:
        raise InvalidInputError(f"preset must be one of {', '.join(PRESETS)}, but is {name!r}.")
    return PRESETS[name]


def resolved(value: Any, setting: str, preset: Any) -> Any:
    """Return the value of a setting, or the preset's if the value is "preset"."""
    return getattr(preset_of(preset), setting) if _is_from_preset(value) else value


def with_preset(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings in which every "preset" is replaced by the value that the preset among them has.

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

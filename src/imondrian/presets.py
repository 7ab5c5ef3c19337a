"""Settings that go together, by name: what the stream detector, the command line and the service start from."""

from typing import Any, NamedTuple

from imondrian.errors import InvalidInputError


class Preset(NamedTuple):
    """A score, the scale it works with, and what the command line takes for an anomaly."""

    score: str
    scale: Any
    threshold: Any


PRESETS = {
    "practice": Preset(score="size", scale="std", threshold=0.05),  # the best all-rounder measured
    "paper": Preset(score="depth", scale=None, threshold="kmeans"),  # fidelity
}


def preset_of(name: str) -> Preset:
    """Give the preset of that name."""
    if not isinstance(name, str) or name not in PRESETS:
        raise InvalidInputError(f"preset must be one of {', '.join(PRESETS)}, but is {name!r}.")
    return PRESETS[name]

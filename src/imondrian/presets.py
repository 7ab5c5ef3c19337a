"""Settings that go together, by name: what the stream detector, the command line and the service start from."""

from typing import Any, NamedTuple

from imondrian.errors import InvalidInputError


class Preset(NamedTuple):
    """A score and the scale it works with."""

    score: str
    scale: Any


PRESETS = {
    "paper": Preset(score="depth", scale=None),  # fidelity
    "practice": Preset(score="size", scale="std"),  # the best all-rounder measured
}


def preset_of(name: str) -> Preset:
    """Give the preset of that name."""
    if not isinstance(name, str) or name not in PRESETS:
        raise InvalidInputError(f"preset must be one of {', '.join(PRESETS)}, but is {name!r}.")
    return PRESETS[name]

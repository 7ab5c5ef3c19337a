"""Samplers decide which points a tree holds: all points, a uniform sample of them, or points of a sliding window."""

from imondrian.engine.nodes import NO_LIMIT
from imondrian.samplers.reservoir import Reservoir
from imondrian.samplers.sampler import OnTrees, Sampler, Step
from imondrian.samplers.window import Window

__all__ = ["OnTrees", "Reservoir", "Sampler", "Step", "Window", "new_sampler"]


def new_sampler(max_samples: int | None, window: int | None) -> Sampler:
    """Return the sampler for these two settings."""
    limit = NO_LIMIT if max_samples is None else max_samples
    return Reservoir(limit) if window is None else Window(window, min(limit / window, 1.0))

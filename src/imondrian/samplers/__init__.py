"""What a forest remembers of the points it is shown: all or a uniform sample of them, or the latest."""

from imondrian.engine.nodes import NO_LIMIT
from imondrian.samplers.reservoir import Reservoir
from imondrian.samplers.sampler import Sampler
from imondrian.samplers.window import Step, Window

__all__ = ["Reservoir", "Sampler", "Step", "Window", "new_sampler"]


def new_sampler(max_samples: int | None, window: int | None) -> Reservoir | Window:
    """Return the sampler for these two settings."""
    limit = NO_LIMIT if max_samples is None else max_samples
    return Reservoir(limit) if window is None else Window(window, min(limit / window, 1.0))

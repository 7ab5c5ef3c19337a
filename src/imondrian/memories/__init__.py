"""What a forest remembers of the points it is shown: all or a uniform sample of them, or the latest."""

from imondrian.engine.nodes import NO_LIMIT
from imondrian.memories.memory import Memory
from imondrian.memories.sample import Sample
from imondrian.memories.window import Step, Window

__all__ = ["Memory", "Sample", "Step", "Window", "new_memory"]


def new_memory(max_samples: int | None, window: int | None) -> Sample | Window:
    """Make the memory for these two settings."""
    limit = NO_LIMIT if max_samples is None else max_samples
    return Sample(limit) if window is None else Window(window, min(limit / window, 1.0))

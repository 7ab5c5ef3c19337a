"""Samplers decide which points a tree holds: all points, a uniform sample of them, or points of a sliding window."""

from imondrian.base.defaults import MAX_SAMPLES
from imondrian.engine.nodes import NO_LIMIT
from imondrian.forest.samplers.category_counts import MAX_CATEGORIES, CategoryCounts
from imondrian.forest.samplers.reservoir import Reservoir
from imondrian.forest.samplers.sampler import ROWS_PER_BLOCK, NewFeatures, OnTrees, Sampler, Step
from imondrian.forest.samplers.window import Window, selection_of

__all__ = ["ROWS_PER_BLOCK", "NewFeatures", "OnTrees", "Reservoir", "Sampler", "Step", "Window", "new_sampler"]


def new_sampler(max_samples: int | None, window: int | None, n_categorical: int = 0) -> Sampler:
    """Return the sampler for these settings."""
    limit, sample_size = max_samples or NO_LIMIT, max_samples or MAX_SAMPLES
    if window is not None:
        return Window(window, selection_of(window, limit), CategoryCounts(n_categorical, sample_size, window))
    max_categories = NO_LIMIT if max_samples is None else MAX_CATEGORIES
    return Reservoir(limit, CategoryCounts(n_categorical, sample_size, max_categories))

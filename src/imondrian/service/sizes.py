"""The memory that a detector takes, computed from its settings without making it."""

import math
from functools import cache
from typing import NamedTuple

from imondrian.engine.nodes import FIELDS, shape_of
from imondrian.samplers import new_sampler
from imondrian.stream import StreamDetector

_VALUE = 8  # bytes


class Sizes(NamedTuple):
    """The settings of a detector that decide how much memory it takes."""

    n_features: int
    window: int
    max_samples: int | None
    n_trees: int
    shingle: int


def bytes_of(sizes: Sizes) -> int:
    """Return what `StreamDetector.n_bytes` is for a detector of these sizes."""
    n_values = sizes.n_features * sizes.shingle
    n_slots = new_sampler(sizes.max_samples, sizes.window).limit
    trees = sum(
        math.prod(shape_of(field, sizes.n_trees, n_slots, n_values)) * field.dtype.itemsize for field in FIELDS.values()
    )
    ring, shingle = sizes.window * n_values * _VALUE, (sizes.shingle - 1) * sizes.n_features * _VALUE
    return trees + ring + shingle + _rest()


@cache
def _rest() -> int:
    """Return the bytes of the threshold and the drift monitor, which are the same in all detectors."""
    smallest = StreamDetector(1, window=1, n_trees=1)
    return smallest.n_bytes - smallest.forest.n_bytes

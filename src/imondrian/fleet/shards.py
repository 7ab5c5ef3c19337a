"""The tables of a fleet: the detectors of many keys, allocated in shards of equal size.

The number of a detector is called its *entry*. Entry e is detector e % keys_per_shard of shard e // keys_per_shard.
Shards never move or grow, so adding a key never copies the tables. The operating system provides the memory of an entry
when it is first written.

A single detector is also a `Shard`, in which the first axis of every array has the length 1, or n_trees for trees. Such
a *shard with one detector* is either a view of an entry (`Shards.detector`) or has arrays of its own (`new_shard`).
"""

import math
from typing import NamedTuple

import numpy as np

from imondrian.engine.fleet import Shard, shard_arrays, start_detector
from imondrian.engine.jit import Array
from imondrian.engine.nodes import NO_NODE, empty_trees, slice_trees, table_bytes
from imondrian.engine.surprise import new_clock


class DetectorSize(NamedTuple):
    """The sizes of the arrays of one detector."""

    n_features: int
    n_trees: int
    window: int
    n_slots: int  # per tree

    @property
    def n_bytes(self) -> int:
        """Memory of one detector, in bytes."""
        others = shard_arrays(1, self.window, self.n_features).values()
        trees = table_bytes(self.n_trees, self.n_slots, self.n_features)
        return trees + sum(math.prod(shape) * dtype.itemsize for shape, dtype in others)


class Shards:
    """The tables of a fleet, with a list of the free entries. A free entry is *clear*: its arrays are as allocated.

    Parameters
    ----------
    size : DetectorSize
    weights : array of shape (n_features,)
        The feature weights of a new detector.
    keys_per_shard : int
        Number of detectors whose memory is allocated at a time.
    """

    def __init__(self, size: DetectorSize, weights: Array, keys_per_shard: int) -> None:
        self.size = size
        self.keys_per_shard = keys_per_shard
        self._weights = weights
        self._shards: list[Shard] = []
        self._free: list[int] = []  # entries

    def shard(self, index: int) -> Shard:
        """Return a shard by its index."""
        return self._shards[index]

    def take(self) -> int:
        """Remove a clear entry from the free ones and return it. After an interruption, `reclaim` frees it."""
        if not self._free:
            first = len(self._shards) * self.keys_per_shard
            self._shards.append(new_shard(self.size, self.keys_per_shard))
            self._free = list(range(first + self.keys_per_shard - 1, first - 1, -1))
        return self._free.pop()

    def start(self, seed: int) -> int:
        """Start a detector in a free entry; return the entry."""
        entry = self.take()
        index, k = divmod(entry, self.keys_per_shard)
        start_detector(self._shards[index], k, np.uint64(seed), self._weights, new_clock())
        return entry

    def place(self, detector: Shard) -> int:
        """Copy a shard with one detector to a free entry; return the entry."""
        entry = self.take()
        copy_detector(detector, self.detector(entry))
        return entry

    def detector(self, entry: int) -> Shard:
        """Return a view of an entry: a shard with one detector."""
        index, k = divmod(entry, self.keys_per_shard)
        shard = self._shards[index]
        trees = slice_trees(shard.trees, slice(k * self.size.n_trees, (k + 1) * self.size.n_trees))
        return Shard(trees, *(array[k : k + 1] for array in shard[1:]))

    def clear(self, entry: int) -> None:
        """Remove a detector: reset its entry, which becomes free."""
        part = self.detector(entry)
        n_leaves = int(part.trees.heads["n_leaves"].max())
        for array in (part.trees.cuts, part.trees.boxes, part.trees.points, part.trees.copies):
            array[:, :n_leaves] = np.zeros((), array.dtype)
        part.trees.parents[:, : 2 * n_leaves] = 0
        for name in shard_arrays(1, self.size.window, self.size.n_features):
            array = getattr(part, name)
            array[:] = np.zeros((), array.dtype)
        empty = np.zeros((), part.trees.heads.dtype)
        empty["root"], empty["typical_log_size"] = NO_NODE, np.nan
        part.trees.heads[:] = empty  # last: after an interruption, n_leaves is needed to clear the rest
        self._free.append(entry)

    def reclaim(self, used: set[int]) -> None:
        """Free all entries except those in use; called after an interruption."""
        self._free = [entry for entry in self._free if entry not in used]
        idle = set(range(len(self._shards) * self.keys_per_shard)) - used - set(self._free)
        for entry in sorted(idle):
            self.clear(entry)


def new_shard(size: DetectorSize, n_keys: int) -> Shard:
    """Return a shard for n_keys detectors, all of them clear."""
    trees = empty_trees(n_keys * size.n_trees, size.n_slots, size.n_features)
    arrays = shard_arrays(n_keys, size.window, size.n_features)
    return Shard(trees, **{name: np.zeros(shape, dtype) for name, (shape, dtype) in arrays.items()})


def copy_detector(source: Shard, target: Shard) -> None:
    """Copy a shard with one detector to another one, which must be clear."""
    n_leaves = int(source.trees.heads["n_leaves"].max())
    target.trees.heads[:] = source.trees.heads  # first: after an interruption, n_leaves is needed to clear the rest
    for name in ("cuts", "boxes", "points", "copies"):
        getattr(target.trees, name)[:, :n_leaves] = getattr(source.trees, name)[:, :n_leaves]
    target.trees.parents[:, : 2 * n_leaves] = source.trees.parents[:, : 2 * n_leaves]
    for to, array in zip(target[1:], source[1:], strict=True):
        to[:] = array

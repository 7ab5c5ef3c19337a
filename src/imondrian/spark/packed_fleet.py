"""A fleet whose keys can be taken out as few bytes, and put back: what a state store holds of a group of keys."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from imondrian.alarms.incidents import IncidentTracker
from imondrian.alarms.thresholds import check_histogram
from imondrian.engine.compiled_invariants import NONE
from imondrian.engine.fleet import COUNTS, Shard, shard_arrays
from imondrian.engine.histogram import N_BINS, WEIGHT
from imondrian.engine.jit import Array
from imondrian.engine.nodes import HEAD
from imondrian.engine.packed_detectors import pack_cuts, rebuild_trees, unpack_cuts
from imondrian.engine.surprise import SINCE
from imondrian.fleet.fleet import Fleet
from imondrian.fleet.results import Key
from imondrian.fleet.shards import Shards
from imondrian.forest.feature_layout import FeatureLayout
from imondrian.forest.samplers import Window
from imondrian.forest.scales import are_valid_moments, new_scale
from imondrian.stream.detector import StreamDetector

_LENGTH = np.dtype("<u4")
_KEYS_PER_SHARD = 16  # there are many fleets, and each has few keys
_BIN_BYTES = 2 * N_BINS // 8


class PackedFleet(Fleet):
    """A fleet in which every key has the same seed, and which can be packed into bytes.

    The bytes have no unused slots, no boxes and every point once: for 10 features, a seventh of the memory of a key.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, borrow=False)
        scale = new_scale(self._parameters["scale"], FeatureLayout.checked(self._parameters["n_features"], ()))
        self._table.shards = Shards(self._table.shards.size, scale.weights(), _KEYS_PER_SHARD)

    def seed_of(self, key: Key) -> int:
        """Return the seed of every key's detector: that of the fleet."""
        seed: int = self._parameters["seed"]
        return seed

    def settings(self) -> dict[str, Any]:
        """Return the parameters in types that JSON supports."""
        return self.parameters | {"rules": self.rules.as_json_value()}

    def key_count(self) -> int:
        """Return the number of keys."""
        return len(self._table.entries)

    def detached(self, key: Key, missing: str) -> StreamDetector:
        """Forget a key; return a `StreamDetector` that goes on like that of the key, and accepts missing numbers."""
        if key not in self:
            return StreamDetector(**self._parameters | {"seed": self.seed_of(key), "missing": missing})
        detector = self.detector(key)
        notes = detector.notes()
        notes["parameters"]["missing"] = missing
        notes["gaps"] = StreamDetector(**detector.parameters | {"missing": missing}).notes()["gaps"]
        self.forget(key)
        return StreamDetector.from_notes(detector.forest, notes)

    def forget_all(self) -> None:
        """Forget all keys; their memory is used again for others."""
        for entry in self._table.entries.values():
            self._table.shards.clear(entry)
        self._table.entries.clear()
        self._table.changed.clear()
        self._table.trackers.clear()
        self._incidents.clear()

    # -- packing ------------------------------------------------------------------------------------------------------

    def packed(self) -> list[bytes]:
        """Return everything that `put_back` needs, as parts to be joined."""
        trackers = {key: tracker.state() for key, tracker in self._table.trackers.items()}
        parts = [_with_length(json.dumps([list(self._table.entries), list(trackers.items())]).encode())]
        for index, entries, _ in self._by_shard(list(self._table.entries.values())):
            parts += _packed_detectors(self._table.shards.shard(index), entries)
        return parts

    def put_back(self, content: memoryview) -> int:
        """Add the keys that `packed` has returned to a fleet without keys; return how many bytes were read.

        Raises
        ------
        ValueError, TypeError, KeyError
            If the content is damaged.
        """
        reader = _Reader(content)
        keys, trackers = json.loads(reader.bytes(int(reader.array(_LENGTH, 1)[0])).decode())
        entries = [self._table.shards.start(0) for _ in keys]
        self._table.entries.update(zip(keys, entries, strict=True))
        for index, chosen, _ in self._by_shard(entries):
            shard = self._table.shards.shard(index)
            _read_detectors(reader, shard, chosen)
            self._check(shard, chosen)
        for key, notes in trackers:
            tracker = IncidentTracker(self._parameters["rules"])
            counts = self._table.shards.detector(self._table.entries[key]).counts[0]
            tracker.restore(notes, int(counts["n_seen"]), self._parameters["n_features"], 1)
            self._table.trackers[key] = tracker
        return reader.position

    def _by_shard(self, entries: list[int]) -> Iterator[tuple[int, Array, Array]]:
        """Yield for each shard its index, the detectors there, and their positions among the entries."""
        indices, detectors = np.divmod(np.array(entries, np.int64), self._table.shards.keys_per_shard)
        for index in np.unique(indices):
            yield int(index), detectors[indices == index], np.flatnonzero(indices == index)

    def _check(self, shard: Shard, chosen: Array) -> None:
        """Rebuild the trees of detectors; raise ValueError if a detector is impossible, since kernels check nothing."""
        numbers = shard.counts["number"][chosen]
        for k in chosen:
            _check_detector(shard, k, self._table.new_window())
        rings = np.ascontiguousarray(shard.rings[chosen])
        t = rebuild_trees(shard.trees, _trees_of(shard, chosen), rings, numbers, self._selection)
        if t != NONE:
            raise ValueError(f"tree {t} is damaged.")


class _Cuts(NamedTuple):
    """The cuts of some trees, one tree after the other."""

    times: Array
    values: Array
    children: Array
    features: Array

    @classmethod
    def empty(cls, n_cuts: int) -> "_Cuts":
        return cls(np.empty(n_cuts), np.empty(n_cuts), np.empty((n_cuts, 2), np.uint32), np.empty(n_cuts, np.uint32))


def _trees_of(shard: Shard, chosen: Array) -> Array:
    """Return the numbers of the trees of some detectors."""
    n_trees = shard.trees.heads.size // shard.counts.size
    numbers: Array = (chosen[:, None] * n_trees + np.arange(n_trees)).ravel()
    return numbers


def _n_cuts(heads: Array) -> int:
    return int(np.maximum(heads["n_leaves"] - 1, 0).sum())


def _narrow(largest: int) -> np.dtype[Any]:
    """Return the smallest unsigned type for numbers up to `largest`."""
    return np.min_scalar_type(largest)


def _packed_detectors(shard: Shard, chosen: Array) -> list[bytes]:
    """Return detectors of a shard as bytes."""
    trees = _trees_of(shard, chosen)
    heads = shard.trees.heads[trees]
    cuts = _Cuts.empty(_n_cuts(heads))
    pack_cuts(shard.trees, trees, *cuts)
    histograms = shard.histograms[chosen].reshape(chosen.size, -1)
    is_used = histograms != 0.0
    arrays = [
        heads,
        cuts.times,
        cuts.values,
        cuts.children.astype(_narrow(2 * shard.trees.copies.shape[1])),
        cuts.features.astype(_narrow(shard.rings.shape[2])),
        np.packbits(is_used, axis=1),
        histograms[is_used],
        *(getattr(shard, name)[chosen] for name in _plain_arrays(shard)),
    ]
    return [array.tobytes() for array in arrays]


def _plain_arrays(shard: Shard) -> dict[str, Any]:
    """Return the arrays of a shard that are packed as they are."""
    arrays = shard_arrays(1, *shard.rings.shape[1:])
    return {name: described for name, described in arrays.items() if name != "histograms"}


def _read_detectors(reader: "_Reader", shard: Shard, chosen: Array) -> None:
    """Write packed detectors to entries of a shard; raise ValueError if there are too few bytes."""
    trees = _trees_of(shard, chosen)
    heads, n_slots = reader.array(HEAD, trees.size), shard.trees.copies.shape[1]
    if ((heads["n_leaves"] < 0) | (heads["n_leaves"] > n_slots)).any():
        raise ValueError("a tree has an impossible number of leaves.")
    n_cuts = _n_cuts(heads)
    times, values = reader.array(np.dtype(np.float64), n_cuts), reader.array(np.dtype(np.float64), n_cuts)
    children = reader.array(_narrow(2 * n_slots), 2 * n_cuts).reshape(-1, 2).astype(np.uint32)
    features = reader.array(_narrow(shard.rings.shape[2]), n_cuts).astype(np.uint32)
    shard.trees.heads[trees] = heads
    unpack_cuts(shard.trees, trees, times, values, children, features)
    bits = reader.array(np.dtype(np.uint8), chosen.size * _BIN_BYTES).reshape(chosen.size, _BIN_BYTES)
    is_used = np.unpackbits(bits, axis=1).astype(np.bool_)
    histograms = np.zeros(is_used.shape)
    histograms[is_used] = reader.array(np.dtype(np.float64), int(is_used.sum()))
    shard.histograms[chosen] = histograms.reshape(-1, *shard.histograms.shape[1:])
    for name, (shape, dtype) in _plain_arrays(shard).items():
        array = reader.array(dtype, chosen.size * int(np.prod(shape)))
        getattr(shard, name)[chosen] = array.reshape(-1, *shape[1:])


def _check_detector(shard: Shard, k: int, window: Window) -> None:
    """Raise ValueError if a detector is impossible, apart from its trees."""
    counts = {name: int(shard.counts[k][name]) for name in COUNTS.names or ()}
    if counts["n_skipped"] + counts["n_scored"] != counts["n_seen"] or counts["n_scored"] != counts["number"]:
        raise ValueError(f"the counts {counts} are impossible.")
    window.ring, window.number, window.next_step = shard.rings[k], counts["number"], counts["next_step"]
    for problem in window.problems():
        raise ValueError(f"{problem}.")
    if not are_valid_moments(shard.moments[k], 0) or not (shard.weights[k] >= 0.0).all():
        raise ValueError("no points can have the moments.")
    check_histogram(shard.histograms[k], shard.clocks[k, WEIGHT], shard.clocks[k, SINCE])


def _with_length(content: bytes) -> bytes:
    return np.array(len(content), _LENGTH).tobytes() + content


class _Reader:
    """Reads arrays one after the other."""

    def __init__(self, content: memoryview) -> None:
        self._content, self.position = content, 0

    def bytes(self, length: int) -> bytes:
        """Return the next bytes; raise ValueError if there are too few."""
        part = bytes(self._content[self.position : self.position + length])
        if len(part) != length:
            raise ValueError("it is too short.")
        self.position += length
        return part

    def array(self, dtype: np.dtype[Any], n_items: int) -> Array:
        """Return the next items as an aligned array; raise ValueError if there are too few bytes."""
        return np.frombuffer(self.bytes(n_items * dtype.itemsize), dtype)

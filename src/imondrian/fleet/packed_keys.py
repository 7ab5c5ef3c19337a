"""The state of one key in few bytes: without unused slots, and without what can be computed from the rest.

Of the trees, only heads and cuts are stored. Leaves, boxes and populations are computed from the points of the window
(`engine/packed_detectors.py`). A packed key with 10 features takes a ninth of the memory of an unpacked one.

Computed points and boxes may have 0.0 instead of -0.0 and vice versa, because both are equal. Therefore the state of a
key that contains a -0.0 is not packed, but written as in a store (`key_states.py`).
"""

import struct
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from imondrian.base.errors import DamagedFileError
from imondrian.engine.compiled_invariants import NONE
from imondrian.engine.fleet import Shard, shard_arrays
from imondrian.engine.histogram import N_BINS
from imondrian.engine.jit import Array
from imondrian.engine.nodes import HEAD
from imondrian.engine.packed_detectors import pack_cuts, rebuild_window_trees, unpack_cuts
from imondrian.fleet import key_states
from imondrian.fleet.key_states import (
    KeyState,
    check_besides_trees,
    check_problems,
    decoded_incidents,
    encoded_incidents,
)
from imondrian.fleet.shards import DetectorSize, copy_detector
from imondrian.forest.samplers import Window

_START = struct.Struct("<4sI")  # magic, length of the incidents in bytes
_MAGIC = b"IMP1"
DIGEST_BYTES = 16
_BIN_BYTES = 2 * N_BINS // 8
_FLOAT, _BYTE = np.dtype(np.float64), np.dtype(np.uint8)
_PLAIN = tuple(name for name in shard_arrays(1, 1, 1) if name != "histograms")  # arrays that are stored unchanged
_NEGATIVE_ZERO = np.float64(-0.0).view(np.uint64)


def pack(state: KeyState) -> bytes:
    """Return the state as bytes: a digest of 16 bytes, then the rest."""
    if _has_negative_zeros(state.detector):
        return key_states.to_bytes(state)
    incidents = encoded_incidents(state)
    arrays = [array.data for array in _packed_arrays(state.detector)]
    parts: list[bytes | memoryview] = [_START.pack(_MAGIC, len(incidents)), incidents, *arrays]
    digest = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return b"".join([digest.digest(), *parts])


def unpack(content: bytes, detector: Shard, size: DetectorSize, window: Window, key: Any) -> Any:
    """Write a packed state to a detector; return its incidents as a JSON value, or None if it has had no alarm.

    Parameters
    ----------
    content : bytes
    detector : Shard
        A shard with one detector, which must be empty.
    size : DetectorSize
        The size of the detector.
    window : Window
        A window without points, otherwise like that of the detector; used for the checks, and changed by them.
    key : str or int
        Named in error messages.

    Raises
    ------
    DamagedFileError
        If the bytes are damaged. Then the caller must clear the detector.
    """
    try:
        body = memoryview(content)[DIGEST_BYTES:]
        if bytes(body[: len(_MAGIC)]) == key_states.MAGIC:
            state = key_states.from_bytes(content, size, window, key)
            copy_detector(state.detector, detector)
            return state.incidents
        if blake2b(body, digest_size=DIGEST_BYTES).digest() != bytes(content[:DIGEST_BYTES]):
            raise ValueError("the digest does not match.")  # noqa: TRY301
        return _unpack(body, detector, size, window)
    except DamagedFileError:
        raise
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, struct.error) as error:
        raise DamagedFileError(f"The packed state of the key {key!r:.100} is damaged: {str(error)[:300]}") from None


def _has_negative_zeros(detector: Shard) -> bool:
    """Return True if the points or boxes of a detector contain -0.0."""
    if not (detector.rings == 0.0).any():  # all points and bounds of boxes are equal to numbers of the ring
        return False
    n_slots = int(detector.trees.heads["n_leaves"].max())
    arrays = detector.rings, detector.trees.points[:, :n_slots], detector.trees.boxes[:, :n_slots]
    return any((array.view(np.uint64) == _NEGATIVE_ZERO).any() for array in arrays)


class _Cuts(NamedTuple):
    """The cuts of some trees, one tree after the other."""

    times: Array
    values: Array
    children: Array
    features: Array

    @classmethod
    def empty(cls, n_cuts: int) -> "_Cuts":
        return cls(np.empty(n_cuts), np.empty(n_cuts), np.empty((n_cuts, 2), np.uint32), np.empty(n_cuts, np.uint32))


def _packed_arrays(detector: Shard) -> list[Array]:
    """Return the arrays to be written, which are contiguous."""
    trees = detector.trees
    cuts = _Cuts.empty(_n_cuts(trees.heads))
    pack_cuts(trees, np.arange(trees.heads.size), *cuts)
    histogram = detector.histograms.ravel()
    is_used = histogram != 0.0
    return [
        trees.heads,
        cuts.times,
        cuts.values,
        cuts.children.astype(_narrow(2 * trees.copies.shape[1])),
        cuts.features.astype(_narrow(detector.rings.shape[2])),
        np.packbits(is_used),
        histogram[is_used],
        *(getattr(detector, name) for name in _PLAIN),
    ]


def _n_cuts(heads: Array) -> int:
    return int(np.maximum(heads["n_leaves"] - 1, 0).sum())


def _narrow(largest: int) -> np.dtype[Any]:
    """Return the smallest unsigned type for numbers up to `largest`."""
    return np.min_scalar_type(largest)


def _unpack(content: memoryview, detector: Shard, size: DetectorSize, window: Window) -> Any:
    magic, n_incidents = _START.unpack_from(content)
    if magic != _MAGIC:
        raise ValueError("it is not the state of a key.")
    reader = _Reader(content, _START.size)
    incidents = decoded_incidents(reader.bytes(n_incidents))
    _read_cuts(reader, detector, size)
    _read_histogram(reader, detector)
    for name in _PLAIN:
        array = getattr(detector, name)
        array[:] = reader.array(array.dtype, array.size).reshape(array.shape)
    if reader.position != len(content):
        raise ValueError(f"it has {len(content)} bytes, but should have {reader.position}.")
    check_besides_trees(detector, window)
    check_problems(window.head_problems(detector.trees.heads))
    _rebuild(detector, window)
    return incidents


def _read_cuts(reader: "_Reader", detector: Shard, size: DetectorSize) -> None:
    """Read the heads and cuts of the trees."""
    heads = reader.array(HEAD, size.n_trees)
    if ((heads["n_leaves"] < 0) | (heads["n_leaves"] > size.n_slots)).any():
        raise ValueError("a tree has an impossible number of leaves.")
    n_cuts = _n_cuts(heads)
    times, values = reader.array(_FLOAT, n_cuts), reader.array(_FLOAT, n_cuts)
    children = reader.array(_narrow(2 * size.n_slots), 2 * n_cuts).reshape(-1, 2).astype(np.uint32)
    features = reader.array(_narrow(size.n_features), n_cuts).astype(np.uint32)
    detector.trees.heads[:] = heads
    unpack_cuts(detector.trees, np.arange(size.n_trees), times, values, children, features)


def _read_histogram(reader: "_Reader", detector: Shard) -> None:
    is_used = np.unpackbits(reader.array(_BYTE, _BIN_BYTES)).astype(np.bool_)
    detector.histograms.reshape(-1)[is_used] = reader.array(_FLOAT, int(is_used.sum()))


def _rebuild(detector: Shard, window: Window) -> None:
    """Compute the leaves, boxes and populations; raise ValueError if a tree is damaged."""
    chosen, numbers = np.arange(detector.trees.heads.size), detector.counts["number"].copy()
    t = rebuild_window_trees(detector.trees, chosen, detector.rings, numbers, window.selection)
    if t != NONE:
        raise ValueError(f"tree {t} is damaged.")


class _Reader:
    """Reads arrays one after the other."""

    def __init__(self, content: memoryview, position: int) -> None:
        self._content, self.position = content, position

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

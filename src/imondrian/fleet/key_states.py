"""The state of one key as bytes, in the format of a store: all arrays, without unused slots, checked when read."""

import json
import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from imondrian.alarms.thresholds import check_histogram
from imondrian.base.errors import DamagedFileError
from imondrian.engine.compiled_invariants import NONE, first_broken_tree
from imondrian.engine.fleet import COUNTS, Shard, shard_arrays
from imondrian.engine.histogram import WEIGHT
from imondrian.engine.invariants import Problem
from imondrian.engine.jit import Array
from imondrian.engine.nodes import FIELDS, MAX_COUNT, shape_of
from imondrian.engine.surprise import SINCE
from imondrian.fleet.shards import DetectorSize, new_shard
from imondrian.forest.samplers import Window
from imondrian.forest.scales import are_valid_moments

_HEAD = struct.Struct("<4sII")  # magic, slots per tree, length of the incidents in bytes
MAGIC = b"IMK1"
_DIGEST_BYTES = 16


class KeyState(NamedTuple):
    """The state of one key."""

    detector: Shard  # a shard with one detector
    incidents: Any  # state of its `IncidentTracker` as a JSON value; None if the key has had no alarm


def to_bytes(state: KeyState) -> bytes:
    """Return the state as bytes: a digest of 16 bytes, then the rest."""
    n_slots = int(state.detector.trees.heads["n_leaves"].max())
    incidents = encoded_incidents(state)
    parts = [_HEAD.pack(MAGIC, n_slots, len(incidents)), incidents]
    parts += [
        used_slots(name, array, n_slots).tobytes() for name, array in zip(FIELDS, state.detector.trees, strict=True)
    ]
    parts += [array.tobytes() for array in state.detector[1:]]
    content = b"".join(parts)
    return blake2b(content, digest_size=_DIGEST_BYTES).digest() + content


def encoded_incidents(state: KeyState) -> bytes:
    """Return the incidents of a state as JSON; empty if the key has had no alarm."""
    return b"" if state.incidents is None else json.dumps(state.incidents).encode()


def decoded_incidents(content: bytes) -> Any:
    """Return the incidents that `encoded_incidents` has encoded."""
    return json.loads(content.decode()) if content else None


def from_bytes(content: bytes, size: DetectorSize, window: Window, key: Any) -> KeyState:
    """Return the state that `to_bytes` has written.

    Parameters
    ----------
    content : bytes
    size : DetectorSize
        The size of the detector.
    window : Window
        A window without points, otherwise like that of the detector; used for the checks, and changed by them.
    key : str or int
        Named in error messages.

    Raises
    ------
    DamagedFileError
        If the bytes are damaged.
    """
    try:
        if blake2b(content[_DIGEST_BYTES:], digest_size=_DIGEST_BYTES).digest() != content[:_DIGEST_BYTES]:
            raise ValueError("the digest does not match.")  # noqa: TRY301
        return _unpacked(memoryview(content)[_DIGEST_BYTES:], size, window)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, struct.error) as error:
        raise DamagedFileError(f"The stored state of the key {key!r:.100} is damaged: {str(error)[:300]}") from None


def used_slots(name: str, array: Array, n_slots: int) -> Array:
    """Return the first n_slots slots of each tree in an array of `Trees`; `name` is the array's field in `Trees`."""
    shape = shape_of(FIELDS[name], array.shape[0], n_slots, array.shape[-1])
    return np.ascontiguousarray(array[tuple(slice(length) for length in shape)])


def _unpacked(content: memoryview, size: DetectorSize, window: Window) -> KeyState:
    magic, n_slots, n_incidents = _HEAD.unpack_from(content)
    if magic != MAGIC or n_slots > size.n_slots:
        raise ValueError("it has another format, or its trees have too many slots.")
    position = _HEAD.size + n_incidents
    n_bytes = position + _n_bytes(size, n_slots)
    if len(content) != n_bytes:
        raise ValueError(f"it has {len(content)} bytes, but should have {n_bytes}.")
    incidents = decoded_incidents(bytes(content[_HEAD.size : position]))
    detector, reader = new_shard(size, 1), _Reader(content, position)
    for field, array in zip(FIELDS.values(), detector.trees, strict=True):
        shape = shape_of(field, size.n_trees, n_slots, size.n_features)
        array[tuple(slice(length) for length in shape)] = reader.read(shape, field.dtype)
    for name, (shape, dtype) in shard_arrays(1, size.window, size.n_features).items():
        getattr(detector, name)[:] = reader.read(shape, dtype)
    check(detector, window)
    return KeyState(detector, incidents)


def _n_bytes(size: DetectorSize, n_slots: int) -> int:
    """Return the size of the arrays of a detector with n_slots slots per tree, in bytes."""
    return size._replace(n_slots=n_slots).n_bytes


class _Reader:
    """Reads arrays one after the other."""

    def __init__(self, content: memoryview, position: int) -> None:
        self._content, self.position = content, position

    def read(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return the next array."""
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(self._content, dtype, count, self.position).reshape(shape) if count else np.empty(shape)
        self.position += count * dtype.itemsize
        return array


def check(detector: Shard, window: Window) -> None:
    """Raise ValueError if the arrays of a shard with one detector are impossible; kernels do not check them.

    The ring of the detector is assigned to `window`.
    """
    check_besides_trees(detector, window)
    t = first_broken_tree(detector.trees)
    if t != NONE:
        raise ValueError(f"tree {t} is damaged.")
    check_problems(window.tree_check()(detector.trees))


def check_besides_trees(detector: Shard, window: Window) -> None:
    """Raise ValueError if the arrays of a detector besides its trees are impossible.

    The ring of the detector is assigned to `window`.
    """
    counts = detector.counts[0]
    _check_counts({name: int(counts[name]) for name in COUNTS.names or ()})
    window.ring, window.number, window.next_step = detector.rings[0], int(counts["number"]), int(counts["next_step"])
    for problem in window.problems():
        raise ValueError(f"{problem}.")
    if not are_valid_moments(detector.moments[0], 0):
        raise ValueError("the moments of the features are impossible.")
    weights = detector.weights[0]
    if not ((weights >= 0.0) & np.isfinite(weights)).all():
        raise ValueError("a weight of a feature is impossible.")
    check_histogram(detector.histograms[0], detector.clocks[0, WEIGHT], detector.clocks[0, SINCE])


def check_problems(problems: Iterable[Problem]) -> None:
    """Raise ValueError if a tree has one of these problems."""
    for problem, is_wrong in problems:
        if is_wrong.any():
            raise ValueError(f"tree {is_wrong.argmax()} is damaged: {problem}.")


def _check_counts(counts: dict[str, int]) -> None:
    is_possible = all(0 <= count <= MAX_COUNT for count in counts.values())
    if not is_possible or counts["n_skipped"] + counts["n_scored"] != counts["n_seen"]:
        raise ValueError(f"the counts {counts} are impossible.")
    if counts["n_scored"] != counts["number"]:
        raise ValueError(f"the counts {counts} contradict each other.")

"""The detectors of a group of keys on a stream, which are one value in Spark's state store."""

import json
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from hashlib import blake2b
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from imondrian.alarms.incidents import NO_INCIDENT
from imondrian.base.errors import DamagedFileError, InvalidInputError
from imondrian.engine.finite import all_within_limit
from imondrian.engine.jit import Array
from imondrian.fleet.keys import Key
from imondrian.model_files import from_bytes, to_bytes
from imondrian.rows.named_rows import CodedRows
from imondrian.spark.arrow_points import check_usable, usable_rows
from imondrian.spark.group_fleet import GroupFleet
from imondrian.spark.point_columns import Features
from imondrian.stream.detector import StreamDetector

_MAGIC, _DIGEST_BYTES = b"IMG2", 16
_HEAD_BYTES = len(_MAGIC) + _DIGEST_BYTES
_LENGTH = np.dtype("<u4")
_MAX_BYTES = 2**29  # memory of the cached detectors of a worker
_FLEET_SETTINGS = (
    "n_features",
    "n_trees",
    "window",
    "max_samples",
    "threshold",
    "preset",
    "kind",
    "scale",
    "seed",
    "warm_up",
    "on_error",
    "n_jobs",
)


class GroupSettings(NamedTuple):
    """The settings of a query."""

    detector: str  # settings of new detectors, see `detector_settings`
    n_groups: int
    features: Features
    on_error: str


class GroupResults(NamedTuple):
    """The results of the rows of a group."""

    score: Array
    surprise: Array
    threshold: Array
    is_anomaly: Array
    incident: Array


def fits_fleet(detector: StreamDetector) -> bool:
    """Return True if a fleet can process the rows of this detector, except rows with missing numbers."""
    parameters = detector.parameters
    return (
        parameters["preset"] != "series"
        and not parameters["categorical"]
        and parameters["missing"] != "indicator"
        and parameters["learn_anomalies"]
        and parameters["shingle"] == 1
    )


def detector_settings(detector: StreamDetector) -> str:
    """Return as JSON the settings of a detector that fits a fleet: those of the fleet, and the rule `missing`."""
    fleet = {name: detector.parameters[name] for name in _FLEET_SETTINGS}
    rules = detector.rules.as_json_value()
    return json.dumps({"fleet": fleet | {"rules": rules}, "missing": detector.parameters["missing"]})


class KeyGroup:
    """The detectors of a group of keys.

    A key belongs to a fleet with the settings of the query in which the key was new. From its first missing number on,
    it has a `StreamDetector` of its own, because a fleet does not accept missing numbers.

    Parameters
    ----------
    n_groups : int
        The number of groups of the query.

    Attributes
    ----------
    deadlines : dict
        The time in milliseconds after which a key is removed, for keys that can expire.
    """

    def __init__(self, n_groups: int) -> None:
        self.deadlines: dict[str, int] = {}
        self._n_groups = n_groups
        self._fleets: dict[str, GroupFleet] = {}  # by `GroupSettings.detector`
        self._settings: dict[str, str] = {}  # for each key in a fleet, the settings of the fleet
        self._detectors: dict[str, StreamDetector] = {}  # of the other keys

    @property
    def n_keys(self) -> int:
        """The number of keys."""
        return len(self._settings) + len(self._detectors)

    @property
    def n_bytes(self) -> int:
        """Memory of the detectors in bytes."""
        detectors = sum(detector.n_bytes for detector in self._detectors.values())
        return detectors + sum(fleet.n_bytes for fleet in self._fleets.values())

    def process(self, keys: Any, X: Array, settings: GroupSettings) -> GroupResults:
        """Score, label and learn rows. The rows of a key are processed in the given order.

        With `on_error="raise"`, an unusable row raises an InvalidInputError; with "skip", it has the score NaN.
        """
        codes, distinct = pd.factorize(np.asarray(keys, object))
        names: list[str] = distinct.tolist()
        for name in names:
            if name not in self._detectors:
                self._settings.setdefault(name, settings.detector)
        points = X + 0.0  # replaces -0.0, which equals 0.0 but has other bytes
        self._hide_unusable(codes, names, points, settings)
        self._detach(names[code] for code in np.unique(codes[_have_gaps(points)]))
        results = _no_results(len(points))
        for text in dict.fromkeys(self._settings[name] for name in names if name in self._settings):
            is_member = np.array([self._settings.get(name) == text for name in names])
            rows = np.flatnonzero(is_member[codes])
            _write(results, rows, self._fleet(text).process_many(distinct[codes[rows]], points[rows]))
        for name in self._detectors.keys() & set(names):
            rows = np.flatnonzero(codes == names.index(name))
            _write(results, rows, self._detectors[name].process_many(points[rows].view(CodedRows)))
        return results

    def remove_before(self, time: int) -> None:
        """Remove the keys whose deadline is before a time."""
        expired = [key for key, deadline in self.deadlines.items() if deadline < time]
        for key in expired:
            del self.deadlines[key]
            self._detectors.pop(key, None)
            text = self._settings.pop(key, None)
            if text is not None:
                self._fleets[text].forget(key)

    def _fleet(self, text: str) -> GroupFleet:
        """Return the fleet with these settings; it is created if there is none."""
        if text not in self._fleets:
            self._fleets[text] = GroupFleet(**json.loads(text)["fleet"])
        return self._fleets[text]

    def _missing(self, name: str) -> str:
        """Return the rule of a key's detector for missing numbers."""
        rule: str = (
            json.loads(self._settings[name])["missing"]
            if name in self._settings
            else self._detectors[name].parameters["missing"]
        )
        return rule

    def _hide_unusable(self, codes: Array, names: list[str], points: Array, settings: GroupSettings) -> None:
        """Replace unusable points by NaN or, if on_error is "raise", raise InvalidInputError."""
        if all_within_limit(points.ravel()):
            return
        rules = np.array([self._missing(name) for name in names])[codes]
        for rule in np.unique(rules):
            rows = np.flatnonzero(rules == rule)
            is_usable = usable_rows(points[rows], (), str(rule))
            check_usable(points[rows], is_usable, settings.features, settings.on_error)
            points[rows[~is_usable]] = np.nan

    def _detach(self, names: Iterable[str]) -> None:
        """Move keys from their fleets to detectors of their own."""
        for name in names:
            if name in self._settings:
                fleet, missing = self._fleet(self._settings[name]), self._missing(name)
                self._detectors[name] = fleet.detached(name, missing)
                del self._settings[name]

    # -- bytes --------------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Return everything as bytes: the digest of the header, the header, and the states of the keys.

        The header contains the digests of all states, so that groups with equal digests are equal.
        """
        fleets = {
            text: [(key, fleet.pack_key(key)) for key in fleet] for text, fleet in self._fleets.items() if len(fleet)
        }
        detectors = [(name, to_bytes(detector)) for name, detector in self._detectors.items()]
        header = {
            "n_groups": self._n_groups,
            "fleets": [[text, [_described(*part) for part in parts]] for text, parts in fleets.items()],
            "detectors": [[name, len(content), _digest(content).hex()] for name, content in detectors],
            "deadlines": self.deadlines,
        }
        text = json.dumps(header).encode()
        states = [state for parts in fleets.values() for _, state in parts]
        contents = [content for _, content in detectors]
        return b"".join([_MAGIC, _digest(text), np.array(len(text), _LENGTH).tobytes(), text, *states, *contents])

    @classmethod
    def from_bytes(cls, content: bytes, n_groups: int, spare: Self | None = None) -> Self:
        """Return the group that `to_bytes` has written; it takes over the emptied fleets of the group `spare`.

        `spare` must not be used afterwards.

        Raises
        ------
        InvalidInputError
            If the content is not that of a group, or was written by a query with another number of groups.
        DamagedFileError
            If the content is damaged.
        """
        check_group(content)
        try:
            group = cls(n_groups)
            if spare is not None:
                group._fleets = spare._emptied_fleets()  # noqa: SLF001
            group._read(memoryview(content))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            if isinstance(error, (InvalidInputError, DamagedFileError)):
                raise
            raise DamagedFileError(f"The state of a group of keys is damaged: {str(error)[:300]}") from None
        return group

    def _emptied_fleets(self) -> dict[str, GroupFleet]:
        """Forget all keys of the fleets, and return the fleets."""
        for fleet in self._fleets.values():
            fleet.forget_all()
        return self._fleets

    def _read(self, content: memoryview) -> None:
        first = _HEAD_BYTES + _LENGTH.itemsize
        position = first + int(np.frombuffer(content[_HEAD_BYTES:], _LENGTH, 1)[0])
        text = bytes(content[first:position])
        if _digest(text) != digest_of_group(content):
            raise ValueError("the digest does not match.")
        header = json.loads(text.decode())
        if header["n_groups"] != self._n_groups:
            raise InvalidInputError(
                f"The checkpoint was created with n_groups={header['n_groups']}, but this query has"
                f" n_groups={self._n_groups}: use the same number, or a new checkpoint."
            )
        for settings, keys in header["fleets"]:
            fleet = self._fleet(settings)
            for key, length, digest in keys:
                state = bytes(content[position : position + length])
                if _described(key, state) != [key, length, digest]:
                    raise ValueError(f"the digest of the key {key!r:.100} does not match.")
                fleet.unpack_key(key, state)
                self._settings[key] = settings
                position += length
        for name, length, digest in header["detectors"]:
            state = bytes(content[position : position + length])
            if _digest(state).hex() != digest:
                raise ValueError(f"the digest of the key {name!r:.100} does not match.")
            self._detectors[name] = _loaded(state)
            position += length
        if position != len(content):
            raise ValueError(f"it has {len(content)} bytes, but should have {position}.")
        self.deadlines = {str(key): int(deadline) for key, deadline in header["deadlines"].items()}


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _described(key: Key, state: bytes) -> list[Any]:
    """Return a key, the length of its packed state, and the digest with which every packed state begins."""
    return [key, len(state), state[:_DIGEST_BYTES].hex()]


def _have_gaps(points: Array) -> Array:
    """Return which points have missing numbers, but not only missing numbers."""
    n_missing = np.isnan(points).sum(axis=1)
    return np.asarray((n_missing > 0) & (n_missing < points.shape[1]))


def _no_results(n_rows: int) -> GroupResults:
    numbers = np.full((3, n_rows), np.nan)
    incidents = np.full(n_rows, NO_INCIDENT, np.int64)
    return GroupResults(numbers[0], numbers[1], numbers[2], np.zeros(n_rows, np.bool_), incidents)


def _write(results: GroupResults, rows: Array, found: Any) -> None:
    """Write the results of some rows."""
    for name, column in results._asdict().items():
        column[rows] = getattr(found, name)


def _loaded(content: bytes) -> StreamDetector:
    detector = from_bytes(content, "The state of a key")
    if not isinstance(detector, StreamDetector):
        raise DamagedFileError(f"The state of a key must be a StreamDetector, but is {type(detector).__name__}.")
    return detector


def check_group(content: bytes) -> None:
    """Raise InvalidInputError if the content is not the state of a group of keys."""
    if content[: len(_MAGIC)] != _MAGIC:
        raise InvalidInputError(
            "The state in the checkpoint has another form: the checkpoint was created by an earlier version of"
            " imondrian, or with other settings of `imondrian.spark.watch`. Use a new checkpoint."
        )


def digest_of_group(content: bytes | memoryview) -> bytes:
    """Return the digest of a group's content."""
    return bytes(content[len(_MAGIC) : _HEAD_BYTES])


class GroupCache:
    """The groups that a worker wrote last, so that they need not be read again.

    The valid state is always the one in the state store. A cached group is used only if its digest is that of the
    state, so that the group of another batch, or of a failed attempt, is never used instead. Otherwise, the group is
    read from the state, and takes over the emptied fleets of the cached group.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._cached: OrderedDict[Hashable, tuple[bytes, KeyGroup, int]] = OrderedDict()
        self._n_bytes = 0

    def pop(self, name: Hashable, content: bytes, n_groups: int) -> KeyGroup:
        """Remove the group with these bytes from the cache, or read it from the bytes, and return the group.

        The caller may change the group.
        """
        check_group(content)
        digest, group = self._removed(name)
        if group is not None and digest == digest_of_group(content):
            return group
        return KeyGroup.from_bytes(content, n_groups, group)

    def put(self, name: Hashable, group: KeyGroup) -> bytes:
        """Cache a group under a name and return its bytes. The group must not be changed afterwards."""
        content = group.to_bytes()
        self._removed(name)
        self._cached[name] = digest_of_group(content), group, group.n_bytes
        self._n_bytes += group.n_bytes
        while self._n_bytes > self._max_bytes:
            self._removed(next(iter(self._cached)))
        return content

    def _removed(self, name: Hashable) -> tuple[bytes, KeyGroup | None]:
        """Remove a group from the cache; return its digest and the group, or b"" and None if it is not cached."""
        digest, group, n_bytes = self._cached.pop(name, (b"", None, 0))
        self._n_bytes -= n_bytes
        return digest, group

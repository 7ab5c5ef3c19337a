"""Journal entries, how they change a detector, and the versions that scores depend on.

With the same software versions, applying the same entries to the same state gives the same result, bit for bit.
"""

import hashlib
import math
import platform
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate, chain, groupby, repeat
from typing import Any, NamedTuple

import llvmlite
import llvmlite.binding
import numba
import numpy as np

import imondrian
from imondrian.alarms.incidents import NO_INCIDENT, Incident, IncidentEvent
from imondrian.base.defaults import SERIES
from imondrian.base.errors import DamagedFileError, InvalidInputError, NotHeldError, StoreError
from imondrian.engine.jit import Array
from imondrian.model_files import from_bytes
from imondrian.rows.named_rows import CodedRows
from imondrian.service.changes.expected_rows import expected_rows, n_rows_at_once, updated_spread
from imondrian.service.changes.keyed_rows import KeyedRows, LearnedRow, split_content
from imondrian.service.changes.posted_rows import PostedRows
from imondrian.service.changes.row_labels import joined_pair, split_pair
from imondrian.service.changes.settings import Changes, settings_of
from imondrian.service.limits import N_EVENTS_KEPT, Limits, Retention
from imondrian.stream.detector import Results, StreamDetector
from imondrian.stream.series_views import Spread

POINTS, FORGET, MODEL, SETTINGS = "points", "forget", "model", "settings"
LABELLED_POINTS = "labelled points"  # points with labels: categories or times as posted (`row_labels.py`)
TIMED_POINTS = "timed points"  # points of a series with their times in seconds, and perhaps labels
KEYED_POINTS = "keyed points"  # points of a detector with a key, their keys, and perhaps labels
FORGET_KEY = "forget key"
NEW_MODEL = "new model"  # the detector was created from a model file: always the first entry of a journal
MODELS = (MODEL, NEW_MODEL)
# replaces entries that were lost; its content is the next generation (see `EntryApplier`), so that no id of an incident
# is used twice
CUT = "cut"
WITH_POINTS = (POINTS, LABELLED_POINTS, TIMED_POINTS, KEYED_POINTS)


class Entry(NamedTuple):
    """A change to a detector."""

    number: int  # counted from 1
    kind: str
    content: bytes
    request: str | None  # the id of the request, given by the client
    time: float  # of arrival, in seconds since 1970

    def points_and_labels(self) -> tuple[bytes, bytes]:
        """Return the points to learn, and their labels, both empty if there are none."""
        points, _, labels = self.points_times_and_labels()
        return points, labels

    def points_times_and_labels(self) -> tuple[bytes, bytes, bytes]:
        """Return the points to learn, their times in seconds, and their labels, all empty if there are none."""
        if self.kind == TIMED_POINTS:
            points, others = split_pair(self.content)
            return points, *split_pair(others)
        if self.kind == KEYED_POINTS:
            points, _, labels = split_content(self.content)
            return points, b"", labels
        if self.kind == LABELLED_POINTS:
            points, labels = split_pair(self.content)
            return points, b"", labels
        return (self.content if self.kind == POINTS else b""), b"", b""


def entry_of_points(rows: PostedRows | KeyedRows) -> tuple[str, bytes]:
    """Return the kind and the content of an entry that learns rows."""
    if isinstance(rows, KeyedRows):
        return KEYED_POINTS, rows.to_bytes()
    points, labels = rows.points.tobytes(), rows.labels.to_bytes()
    if rows.times is not None:
        return TIMED_POINTS, joined_pair(points, joined_pair(rows.times.tobytes(), labels))
    return (LABELLED_POINTS, joined_pair(points, labels)) if rows.labels else (POINTS, points)


def checked_request_id(request: str | None, limits: Limits) -> str | None:
    """Return the id of a request, which may be None; raise InvalidInputError if it is invalid."""
    max_length = limits.request_id_length
    is_valid = request is None or (
        0 < len(request) <= max_length and all("!" <= character <= "~" for character in request)
    )
    if not is_valid:
        raise InvalidInputError(
            f"The id of a request must be 1 to {max_length} visible ASCII characters, but is {request!r:.200}."
        )
    return request


def digest_of(*values: object) -> bytes:
    """Return a digest of values of any type and of their lengths, so that ("ab", "c") and ("a", "bc") differ."""
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        content = value if isinstance(value, bytes) else repr(value).encode()
        digest.update(b"%d:" % len(content))
        digest.update(content)
    return digest.digest()


class ScoredRow(NamedTuple):
    """A row of the stream with its score."""

    number: int  # in the stream, counted from 0
    score: float
    threshold: float
    is_anomaly: bool
    surprise: float = math.nan  # NaN if a version without surprise stored the row
    incident: int = NO_INCIDENT  # number of the incident that is open after the row
    expected: bytes = b""  # of a series: what was expected (`expected_rows.py`)


class EventMark(NamedTuple):
    """The stored events of a journal: those of the entries before `entry`, and the first `n_events` of `entry`."""

    entry: int = 0
    n_events: int = 0


class AppliedEvent(NamedTuple):
    """An incident opened or closed while a journal entry was applied."""

    entry: Entry
    position: int  # among the events of the entry, from 0
    incident: Incident
    generation: int  # of the detector, part of the ids of its incidents; see `EntryApplier`
    is_opening: bool


class AppliedEvents:
    """Incidents that opened or closed while entries were applied: all are counted, and the latest are kept.

    Older events are not kept: they would be deleted as soon as they were stored, and a large entry can have so many
    events that they take much memory.

    Parameters
    ----------
    stored : EventMark
        The events that are stored already; they are counted, but not kept.

    Attributes
    ----------
    n_events, n_opened : int
        Number of events, and of openings among them.
    latest : deque of AppliedEvent
        The latest events that are not stored yet.
    """

    def __init__(self, stored: EventMark) -> None:
        self.n_events = self.n_opened = self._n_new = 0
        self.latest: deque[AppliedEvent] = deque(maxlen=N_EVENTS_KEPT)
        self._stored, self._next = stored, EventMark()

    @property
    def n_skipped(self) -> int:
        """Number of events that are neither stored nor kept; all of them are older than the events that are kept."""
        return self._n_new - len(self.latest)

    def add(self, entry: Entry, incident: Incident, generation: int, *, is_opening: bool) -> None:
        """Add the next event."""
        position, is_new = self.count(entry, is_opening=is_opening)
        if is_new:
            self.latest.append(AppliedEvent(entry, position, incident, generation, is_opening))

    def count(self, entry: Entry, *, is_opening: bool) -> tuple[int, bool]:
        """Count the next event; return its position among the events of its entry, and whether it is not stored yet."""
        position = self._next.n_events if self._next.entry == entry.number else 0
        self._next = EventMark(entry.number, position + 1)
        self.n_events += 1
        self.n_opened += is_opening
        is_new = self._next > self._stored
        self._n_new += is_new
        return position, is_new


POINTS_PER_LOCK = 1_024  # maximum number of points learned before the lock is released
Outcome = list[ScoredRow] | int | dict[str, Any] | InvalidInputError
KeyedOutcome = list[LearnedRow] | int | dict[str, Any] | InvalidInputError  # of a detector with a key
LockFactory = Callable[[], AbstractContextManager[None]]
StoreWait = Callable[[StoreError], None]  # waits until a change that failed can be tried again, or raises an error


def no_wait(error: StoreError) -> None:
    """Raise the error of a store, instead of waiting."""
    raise error


class EntryApplier:
    """Applies journal entries to a detector.

    Parameters
    ----------
    detector : StreamDetector
    features : sequence of str, optional
        The names of its features.
    silence : float, optional
        Seconds without points after which the detector is silent.
    generation : int, default=0
        Part of the ids of incidents. Increased by each entry after which numbers of incidents may repeat: an entry with
        a model file, or an entry that replaces lost entries.
    spread : Spread, optional
        Of a series: how far the values in the window deviate from the usual ones; None if not known.

    Attributes
    ----------
    detector : StreamDetector
        Replaced by an entry that contains a model.
    silence, generation, spread
        Changed by entries.
    stored_events : EventMark
        The events that are stored already; set while a journal is replayed.
    events : AppliedEvents
        The incidents that opened or closed in the last call of `apply`.
    """

    def __init__(
        self,
        detector: StreamDetector,
        features: Sequence[str] = (),
        silence: float | None = None,
        generation: int = 0,
        spread: Spread | None = None,
    ) -> None:
        self.detector, self.features = detector, features
        self.silence, self.generation, self.spread = silence, generation, spread
        self.stored_events = EventMark()
        self.events = AppliedEvents(self.stored_events)

    @property
    def settings(self) -> dict[str, Any]:
        """The current values of the settings that can be changed."""
        return settings_of(self.detector, self.silence, self.features)

    def apply(self, entries: Iterable[Entry], lock: LockFactory = nullcontext) -> list[Outcome]:
        """Apply entries in order, and return the outcome of each.

        Consecutive entries with points are learned together. The lock is acquired for each change, and released after
        at most `POINTS_PER_LOCK` points.

        Returns
        -------
        list
            For each entry: the scored rows (points), the number of points forgotten (forget) or seen by the new
            detector (model), the settings after the change (settings), the generation (cut), or the error if points
            could not be forgotten.
        """
        outcomes: list[Outcome] = []
        self.events = AppliedEvents(self.stored_events)
        for has_points, group in groupby(entries, key=lambda entry: entry.kind in WITH_POINTS):
            if has_points:
                outcomes += self._learn(list(group), lock)
                continue
            for entry in group:
                with lock():
                    outcomes.append(self._apply_one(entry))
        return outcomes

    def _learn(self, entries: list[Entry], lock: LockFactory) -> list[Outcome]:
        """Score and learn the points of several entries together; the result is the same as one entry at a time."""
        n_features = self.detector.parameters["n_features"]
        blocks = [rows_from(entry, n_features) for entry in entries]
        points, times = (_joined([block[i] for block in blocks]) for i in range(2))
        is_series = self.detector.parameters["preset"] == SERIES
        learn = self._learn_series if is_series else self._learn_points
        ends = list(accumulate(len(block[0]) for block in blocks))
        rows: list[ScoredRow] = []
        while len(rows) < len(points):
            first = len(rows)
            with lock():
                rows += learn(points[first:], times[first:])
                events = self.detector.events
            if events:
                self._add_events(events, entries, [rows[0].number + end - 1 for end in ends])
        return [rows[first:end] for first, end in zip([0, *ends], ends, strict=False)]

    def _learn_points(self, points: Array, _times: Array) -> Iterator[ScoredRow]:
        """Learn the first points, at most `POINTS_PER_LOCK`."""
        return _scored_rows(self.detector.process_many(points[:POINTS_PER_LOCK].view(CodedRows)), repeat(b""))

    def _learn_series(self, points: Array, times: Array) -> Iterator[ScoredRow]:
        """Learn the first rows of a series, as many as `n_rows_at_once` allows.

        Expected values are recorded only for the latest rows: earlier rows leave the history at once.
        """
        detector, n_rows = self.detector, n_rows_at_once(self.detector)
        n_skipped = max(len(points) - Retention().history_rows(points.shape[1]), 0)
        points, times = points[:n_rows], times[:n_rows]
        self.spread = updated_spread(self.spread, detector)
        expected = expected_rows(detector.usual_values(points, times)[n_skipped:], self.spread)
        return _scored_rows(
            detector.process_many(points, times), chain(repeat(b"", min(n_skipped, len(points))), expected)
        )

    def _add_events(self, events: Iterable[IncidentEvent], entries: list[Entry], last_rows: list[int]) -> None:
        """Record events, each with the entry that contains its row; `last_rows` has the last row of each entry."""
        for index, incident in events:
            entry = entries[bisect_left(last_rows, index)]
            self.events.add(entry, incident, self.generation, is_opening=incident.is_open)

    def _apply_one(self, entry: Entry) -> Outcome:
        if entry.kind in MODELS:
            self._replace_detector(entry)
            return self.detector.n_seen
        if entry.kind == SETTINGS:
            changes = Changes.from_bytes(entry.content)
            changes.apply(self.detector)
            self.silence = changes.silence if changes.has_silence else self.silence
            return self.settings
        if entry.kind == CUT:
            self.generation = int(entry.content)
            self._add_event_if_open(entry, self.detector, is_opening=True)
            return self.generation
        if entry.kind != FORGET:
            raise NotImplementedError(f"Unknown kind of journal entry: {entry.kind!r}.")
        points = points_from(entry.content, self.detector.parameters["n_features"])
        try:
            self.detector.forget(points)
        except InvalidInputError as error:  # nothing has changed, and a replay produces the same error
            return self._without_codes(error)
        return len(points)

    def _replace_detector(self, entry: Entry) -> None:
        """Replace the detector by the one in an entry.

        The threshold and the rules stay, unless the entry created the detector. An open incident of the replaced
        detector closes, and an open incident of the new detector opens.
        """
        former, new = self.detector, detector_from(entry.content)
        if entry.kind == MODEL:
            new.threshold, new.rules = former.threshold, former.rules
        self._add_event_if_open(entry, former, is_opening=False)
        self.detector, self.generation, self.spread = new, max(entry.number, self.generation + 1), None
        self._add_event_if_open(entry, new, is_opening=True)

    def _add_event_if_open(self, entry: Entry, detector: StreamDetector, *, is_opening: bool) -> None:
        if detector.incidents and detector.incidents[-1].is_open:
            self.events.add(entry, detector.incidents[-1], self.generation, is_opening=is_opening)

    def _without_codes(self, error: InvalidInputError) -> InvalidInputError:
        """Return an error without the codes of categories, which mean nothing to the client."""
        if isinstance(error, NotHeldError) and self.detector.parameters["categorical"]:
            return InvalidInputError(
                f"Point {error.row} is not in the window, or the request contains it more often than the window."
            )
        return error


def _joined(arrays: list[Array]) -> Array:
    """Return the rows of several arrays in one; a single array is not copied, since it may be large."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _scored_rows(results: Results, expected: Iterable[bytes]) -> Iterator[ScoredRow]:
    """Return the results of rows one by one, each with its expected values."""
    columns = (
        results.index,
        results.score,
        results.threshold,
        results.is_anomaly,
        results.surprise,
        results.incident,
    )
    return map(ScoredRow._make, zip(*(column.tolist() for column in columns), expected, strict=False))


def rows_from(entry: Entry, n_features: int) -> tuple[Array, Array]:
    """Return the points of a journal entry, and their times in seconds (NaN if not known)."""
    content, seconds, _ = entry.points_times_and_labels()
    points = points_from(content, n_features)
    times = points_from(seconds, 1).ravel() if seconds else np.full(len(points), np.nan)
    if len(times) != len(points):
        raise InvalidInputError(f"A journal entry has {len(times)} times for {len(points)} points.")
    return points, times


def points_from(content: bytes, n_features: int) -> Array:
    """Return the points of a journal entry; raise InvalidInputError if its length is wrong."""
    if len(content) % (8 * n_features):
        raise InvalidInputError(f"{len(content)} bytes are not a multiple of {8 * n_features}, the size of a point.")
    return np.frombuffer(bytearray(content), "<f8").reshape(-1, n_features).view(CodedRows)


def detector_from(content: bytes) -> StreamDetector:
    """Return the detector in a model file; raise MemoryError, not DamagedFileError, if memory is short."""
    try:
        model: Any = from_bytes(content)
    except DamagedFileError as error:
        if isinstance(error.__context__, MemoryError):
            raise MemoryError(str(error)) from None  # noqa: TRY004 (the original error)
        raise
    if not isinstance(model, StreamDetector):
        raise DamagedFileError("The model file does not contain a StreamDetector.")
    return model


Versions = dict[str, str]


def current_versions() -> Versions:
    """Return the versions that scores of this process depend on: packages, Python, C library and processor."""
    return {
        "imondrian": imondrian.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "libc": " ".join(platform.libc_ver()).strip(),
        "machine": platform.machine(),
        "processor": numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name(),
        "instructions": _instructions(),
    }


def difference(before: Versions, now: Versions) -> str:
    """Return which versions differ, as text; `before` is empty if the earlier versions are unknown."""
    if not before:
        return "unknown versions"
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return ", ".join(f"{name} {before.get(name, 'unknown')}, now {now.get(name, 'unknown')}" for name in names)


def _instructions() -> str:
    """Return a digest of the instruction sets used: processors of the same name may differ in them."""
    features = numba.config.CPU_FEATURES or llvmlite.binding.get_host_cpu_features().flatten()
    return hashlib.blake2b(features.encode(), digest_size=4).hexdigest()

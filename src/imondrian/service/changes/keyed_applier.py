"""Applies journal entries to a fleet: points with keys, keys to forget, settings.

With the same software versions, applying the same entries to the same fleet gives the same result, bit for bit.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from imondrian.alarms.incidents import Incident
from imondrian.base.errors import DamagedFileError, InvalidInputError, StoreError
from imondrian.engine.jit import Array
from imondrian.fleet.fleet import Fleet
from imondrian.fleet.results import FleetResults, KeyAlarms
from imondrian.service.changes.journal import POINTS_PER_LOCK, Entry, EventMark, LockFactory, StoreWait, points_from
from imondrian.service.changes.keyed_rows import JournalledRows, LearnedRow, journalled_rows
from imondrian.service.changes.settings import Changes, settings_of


class KeyedEvent(NamedTuple):
    """The opening or closing of an incident of a key while a journal entry was applied."""

    entry: Entry
    row: LearnedRow  # at which the incident opened or closed
    incident: Incident


class Learned(NamedTuple):
    """What changed when the points of entries were learned."""

    outcomes: list[list[LearnedRow]]  # the rows of each entry
    events: list[KeyedEvent]  # the incidents that opened or closed
    alarms: dict[str, KeyAlarms]  # by key; only for keys whose alarms may have changed


class _Rows(NamedTuple):
    """The rows of several entries."""

    keys: list[str]
    points: Array
    own_times: list[str | None]
    entries: list[Entry]
    ends: list[int]  # for each entry, the index after its last row

    def entry_of(self, i: int) -> Entry:
        """Return the entry that contains row i."""
        return self.entries[bisect_right(self.ends, i)]


class KeyedApplier:
    """Applies journal entries to a fleet.

    Parameters
    ----------
    fleet : Fleet
    features : sequence of str
        The names of its features.
    silence : float, optional
        Seconds without points after which the detector is silent.
    generation : int, default=0
        Part of the ids of incidents; it increases when journal entries are lost, so that no id is used twice.

    Attributes
    ----------
    stored_events : EventMark
        The events that are stored already; set while a journal is replayed.
    """

    def __init__(
        self, fleet: Fleet, features: Sequence[str], silence: float | None = None, generation: int = 0
    ) -> None:
        self.fleet, self.features = fleet, features
        self.silence, self.generation = silence, generation
        self.stored_events = EventMark()

    @property
    def settings(self) -> dict[str, Any]:
        """The current values of the settings that can be changed."""
        return settings_of(self.fleet, self.silence, self.features)

    def learn(self, entries: list[Entry], lock: LockFactory, wait: StoreWait) -> Learned:
        """Score and learn the points of entries; the result is the same as one entry at a time.

        The lock is acquired for at most `POINTS_PER_LOCK` points at a time. If a key cannot be moved to the disk, only
        the first points are learned, then `wait` is called, and the other points follow.
        """
        rows = _rows_of(entries, len(self.features))
        learned, events, alarms = list[LearnedRow](), list[KeyedEvent](), dict[str, KeyAlarms]()
        while len(learned) < len(rows.keys):
            first = len(learned)
            part = slice(first, first + POINTS_PER_LOCK)
            with lock():
                results, error = self._processed(rows.keys[part], rows.points[part])
                found = self.fleet.events
                alarms |= {str(each.key): each for each in self.fleet.latest_alarms}
            learned += _learned_rows(rows, first, results)
            events += _events_of(found, rows, first, learned)
            if error is not None:
                wait(error)
        outcomes = [learned[start:end] for start, end in zip([0, *rows.ends], rows.ends, strict=False)]
        return Learned(outcomes, events, alarms)

    def _processed(self, keys: list[str], points: Array) -> tuple[FleetResults, StoreError | None]:
        """Process rows; if the store fails, return the results of the rows processed before, and the error."""
        try:
            return self.fleet.process_many(keys, points), None
        except StoreError as error:
            if error.results is None:
                raise
            return error.results, error

    def forget(self, key: str) -> int | InvalidInputError:
        """Forget a key; return how many rows it had (0 if they are damaged), or the error if there is no such key."""
        try:
            n_rows = self._n_rows_of(key)
            self.fleet.forget(key)
        except InvalidInputError as error:  # nothing has changed, and a replay produces the same error
            return error
        return n_rows

    def _n_rows_of(self, key: str) -> int:
        try:
            return self.fleet.n_rows_of(key)
        except DamagedFileError:  # a damaged key can still be forgotten
            return 0

    def change_settings(self, entry: Entry) -> dict[str, Any]:
        """Change settings, and return all of them."""
        changes = Changes.from_bytes(entry.content)
        changes.apply(self.fleet)
        self.silence = changes.silence if changes.has_silence else self.silence
        return self.settings


def _rows_of(entries: list[Entry], n_features: int) -> _Rows:
    blocks = [_checked_rows(entry, n_features) for entry in entries]
    return _Rows(
        [key for _, block in blocks for key in block.keys],
        np.concatenate([points for points, _ in blocks]),
        [time for _, block in blocks for time in block.own_times],
        entries,
        list(accumulate(len(block.keys) for _, block in blocks)),
    )


def _checked_rows(entry: Entry, n_features: int) -> tuple[Array, JournalledRows]:
    block = journalled_rows(entry.content)
    points = np.asarray(points_from(block.points, n_features))
    if len(points) != len(block.keys):
        raise InvalidInputError(f"A journal entry has {len(block.keys)} keys for {len(points)} points.")
    return points, block


def _learned_rows(rows: _Rows, first: int, results: FleetResults) -> Iterator[LearnedRow]:
    """Yield the rows from `first` on that have these results."""
    columns = zip(*(column.tolist() for column in results), strict=True)
    for i, (score, is_anomaly, threshold, index, surprise, incident, is_borrowed) in enumerate(columns, first):
        yield LearnedRow(
            rows.keys[i],
            index,
            rows.entry_of(i).time,
            rows.own_times[i],
            rows.points[i].tobytes(),
            score,
            threshold,
            is_anomaly,
            surprise,
            incident,
            is_borrowed,
        )


def _events_of(found: Sequence[Any], rows: _Rows, first: int, learned: list[LearnedRow]) -> Iterator[KeyedEvent]:
    """Yield events, each with its row among the rows learned from `first` on.

    After a change of the rules, an incident can close at a row before `first`. Its event then gets the first row, from
    `first` on, that has the key of the incident.
    """
    if not found:
        return
    positions = dict[tuple[str, int], int]()
    first_rows = dict[str, int]()
    for i in range(first, len(learned)):
        positions[learned[i].key, learned[i].number] = i
        first_rows.setdefault(learned[i].key, i)
    for key, event in found:
        i = positions.get((key, event.index), first_rows[key])
        yield KeyedEvent(rows.entry_of(i), learned[i], event.incident)

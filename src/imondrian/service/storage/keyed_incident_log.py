"""What is shown of the incidents of a detector with a key: their ids, and the times of their rows.

All of it follows from the journal, so a replay produces the same. A snapshot stores it in two places: a few values of
the detector in the file of the fleet, and one value per key in a table.

A snapshot is complete when the file of the fleet is saved. Saving that file is not part of the transaction that writes
the table, so a key may have two values: one of the last complete snapshot, and one of an interrupted snapshot. Each
value has the number of the last journal entry that it includes; the number in the file of the fleet determines which
value is used.
"""

import json
import sqlite3
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from imondrian.alarms.incidents import Incident, restored_incident
from imondrian.engine.nodes import MAX_COUNT
from imondrian.fleet.results import KeyAlarms
from imondrian.service.changes.journal import Entry, digest_of
from imondrian.service.changes.keyed_applier import KeyedEvent
from imondrian.service.changes.keyed_rows import LearnedRow
from imondrian.service.storage.incident_log import (
    Announcement,
    IncidentNames,
    ListedIncident,
    PendingEvent,
    RowTime,
    announcement_of,
    ended,
    incident_as_json,
    rows_of_incident,
)
from imondrian.service.storage.key_rows import KEYS_PER_TRANSACTION

N_CLOSED = 256  # closed incidents that are shown, besides all open ones


class KeyedIncident(NamedTuple):
    """An incident of a key, with everything that is shown of it."""

    id: str
    key: str
    incident: Incident
    times: dict[int, RowTime]  # of its rows; never modified, since other threads may read it
    ended: float | None = None  # when its key was forgotten, which ends the incident; None if it was not

    @property
    def is_open(self) -> bool:
        """Whether the incident is open."""
        return self.incident.is_open and self.ended is None


class StoredContent(NamedTuple):
    """What is stored for a key."""

    key: str
    number: int  # of the last journal entry that it includes
    content: bytes | None  # empty if there is nothing to store; None if it is damaged


class KeyedIncidentLog:
    """Gives ids to the incidents of all keys, and records the times of their rows.

    One thread changes it while others read it.

    Parameters
    ----------
    id_ : int
        The id of the detector.
    name : str
        Its name.
    features : sequence of str
        The names of its features.

    Attributes
    ----------
    n_lost : int
        Open incidents of the last snapshot that could not be restored, because their values are damaged or missing.
    """

    def __init__(self, id_: int, name: str, features: Sequence[str]) -> None:
        self.n_lost = 0
        self._id, self._name, self._features = id_, name, list(features)
        self._open: dict[str, KeyedIncident] = {}  # by key
        self._closed: deque[KeyedIncident] = deque(maxlen=N_CLOSED)
        self._alarms: dict[str, dict[int, RowTime]] = {}  # times of alarms that incidents may refer to, by key and row
        self._changed: set[str] = set()  # keys whose stored values are outdated
        self._generation = self._n_ids = 0
        self._lock = threading.Lock()

    # -- changes ------------------------------------------------------------------------------------------------

    def add_alarm(self, row: LearnedRow) -> None:
        """Record the time of an alarm; call `update` after the last row of an entry."""
        self._alarms.setdefault(row.key, {})[row.number] = RowTime(row.time, row.own_time)
        self._changed.add(row.key)

    def record(self, event: KeyedEvent) -> PendingEvent:
        """Record that an incident opened or closed; return the event to announce."""
        key, incident, row = event.row.key, event.incident, event.row
        time = RowTime(row.time, row.own_time)
        found = self._open.get(key)
        id_, known = (self._next_id(), {}) if incident.is_open or found is None else (found.id, found.times)
        at = incident.opened if incident.is_open else incident.closed
        times = self._times_of(key, incident, known if at is None else {**known, at: time})
        described = KeyedIncident(id_, key, incident, times)
        self._changed.add(key)
        with self._lock:
            if incident.is_open:
                self._open[key] = described
            else:
                self._open.pop(key, None)
                self._closed.append(described)
        return _pending(event.entry, described, time.time, is_opening=incident.is_open)

    def update(self, alarms: Mapping[str, KeyAlarms]) -> None:
        """Record the current state of open incidents, and drop the times of alarms that no incident can refer to.

        Which times remain does not depend on how the rows are divided into entries and batches.
        """
        for key, (_, incident, rows) in alarms.items():
            found = self._open.get(key)
            if found is not None and incident is not None and found.incident != incident:
                times = self._times_of(key, incident, found.times)
                self._changed.add(key)
                with self._lock:
                    self._open[key] = found._replace(incident=incident, times=times)
            self._keep_alarms(key, rows if incident is None else rows | rows_of_incident(incident))

    def _keep_alarms(self, key: str, needed: Collection[int]) -> None:
        """Drop the times of the alarms of a key, except those of the needed rows."""
        times = self._alarms.pop(key, {})
        kept = {row: time for row, time in times.items() if row in needed}
        if kept:
            self._alarms[key] = kept
        if len(kept) < len(times):
            self._changed.add(key)

    def forget(self, key: str, entry: Entry) -> PendingEvent | None:
        """Forget a key; return the closing of its open incident, if there is one."""
        self._alarms.pop(key, None)
        self._changed.add(key)
        if key not in self._open:
            return None
        with self._lock:
            forgotten = self._open.pop(key)._replace(ended=entry.time)
            self._closed.append(forgotten)
        return _pending(entry, forgotten, entry.time, is_opening=False)

    def renumber(self, generation: int, entry: Entry) -> list[PendingEvent]:
        """Start a new generation of ids after entries were lost; return openings of the open incidents with new ids."""
        self._generation, self._n_ids = generation, 0
        self._changed.update(self._open)
        with self._lock:
            self._open = {key: each._replace(id=self._next_id()) for key, each in self._open.items()}
        return [_pending(entry, each, entry.time, is_opening=True) for each in self._open.values()]

    def _next_id(self) -> str:
        """Return a new id. The number of an incident is not unique: a forgotten key that comes back restarts at 0."""
        self._n_ids += 1
        return f"{self._id}-{self._generation}-{self._n_ids - 1}"

    def _times_of(self, key: str, incident: Incident, known: dict[int, RowTime]) -> dict[int, RowTime]:
        """Return the times of the rows of an incident, as far as they are known."""
        times = {**self._alarms.get(key, {}), **known}
        return {index: times[index] for index in sorted(rows_of_incident(incident)) if index in times}

    # -- from any thread ----------------------------------------------------------------------------------------

    @property
    def n_open(self) -> int:
        """Number of open incidents."""
        return len(self._open)

    def has_open(self, key: str) -> bool:
        """Return True if an incident of a key is open."""
        return key in self._open

    def listed(self) -> list[ListedIncident]:
        """Return the open incidents and the latest closed ones."""
        with self._lock:
            found = [*self._closed, *self._open.values()]
        return [self._listed_one(each) for each in found]

    def _listed_one(self, each: KeyedIncident) -> ListedIncident:
        time = each.times.get(each.incident.opened)
        opened = 0.0 if time is None else time.time
        return ListedIncident(each.is_open, opened, each.incident.number, lambda: self._described(each))

    def _described(self, each: KeyedIncident) -> dict[str, Any]:
        described = self._as_json(each.id, each.key, each.incident, each.times)
        return described if each.ended is None else described | ended(described, each.ended)

    def current(self, stored: dict[str, Any]) -> dict[str, Any]:
        """Return the current description of an open incident; if it is not open any more, its stored description."""
        found = self._open.get(str(stored.get("key")))
        return stored if found is None or found.id != stored["id"] else self._described(found)

    def announcement(self, event: PendingEvent) -> Announcement:
        """Return what is announced about an event."""
        described = self._as_json(event.id, event.key or "", event.incident, dict(event.times))
        return announcement_of(event, described)

    def _as_json(self, id_: str, key: str, incident: Incident, times: dict[int, RowTime]) -> dict[str, Any]:
        names = IncidentNames(id_, self._name, self._features)
        return {**incident_as_json(incident, names, times.get, lambda _code: None), "key": key}

    # -- snapshots ----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what a snapshot stores besides the values of keys, in types that JSON supports."""
        return {
            "generation": self._generation,
            "n_ids": self._n_ids,
            "n_open": len(self._open),
            "closed": [_stored(each) for each in self._closed],
        }

    def changed_keys(self) -> Iterator[list[str]]:
        """Yield the keys whose values must be stored, in portions for one transaction each."""
        keys = iter(self._changed)
        while some := list(islice(keys, KEYS_PER_TRANSACTION)):
            yield some

    def content_of(self, key: str) -> bytes:
        """Return the value that a snapshot stores for a key, or no bytes if none is needed."""
        incident, alarms = self._open.get(key), self._alarms.get(key, {})
        if incident is None and not alarms:
            return b""
        return json.dumps([None if incident is None else _stored(incident), _stored_times(alarms)]).encode()

    def clear_saved(self) -> None:
        """Forget which keys have changed, once their values are stored."""
        self._changed = set()

    def restore(self, state: dict[str, Any], number: int, contents: Iterable[StoredContent]) -> None:
        """Restore what `state` and `content_of` returned after the journal entry `number`.

        Raises
        ------
        ValueError, TypeError, KeyError
            If the state is damaged.
        """
        self._generation, self._n_ids = int(state.get("generation", 0)), int(state.get("n_ids", 0))
        self._closed.extend(_restored(*values) for values in state.get("closed", ()))
        current = self._current(number, contents)
        if "open" in state:  # of a former version, which stored all keys here
            self._restore_former(state)
            return
        restored = []
        for key, content in current.items():
            incident, times = json.loads(content)
            restored += [] if incident is None else [_restored(*incident)]
            if times:
                self._alarms[key] = _restored_times(times)
        self._open = {each.key: each for each in sorted(restored, key=_number_in_id)}
        self.n_lost = max(int(state.get("n_open", 0)) - len(self._open), 0)

    def _current(self, number: int, contents: Iterable[StoredContent]) -> dict[str, bytes]:
        """Return the values that keys had after the journal entry `number`; the next snapshot deletes all others."""
        latest: dict[str, StoredContent] = {}
        for each in contents:
            known = latest.get(each.key)
            if each.number > number or known is not None or not each.content:
                self._changed.add(each.key)
            if each.number <= number and (known is None or known.number < each.number):
                latest[each.key] = each
        return {key: each.content for key, each in latest.items() if each.content}

    def _restore_former(self, state: dict[str, Any]) -> None:
        restored = [_restored(*values) for values in state["open"]]
        self._open = {each.key: each for each in restored}
        self._alarms = {str(key): _restored_times(times) for key, times in state["alarms"]}
        self._changed.update(self._open, self._alarms)


class KeyIncidentTable:
    """The table with the open incident and the latest alarms of each key; changed only inside a transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def contents(self, detector: int) -> Iterator[StoredContent]:
        """Yield everything that is stored for the keys of a detector."""
        sql = "SELECT key, number, content, digest FROM key_incidents WHERE detector = ?"
        for key, number, content, digest in self._database.execute(sql, (detector,)):
            if isinstance(key, str) and isinstance(number, int):
                is_valid = isinstance(content, bytes) and digest == digest_of(detector, key, number, content)
                yield StoredContent(key, number, content if is_valid else None)

    def add(self, detector: int, number: int, contents: Iterable[tuple[str, bytes]]) -> None:
        """Store the contents of keys as of the journal entry `number`, beside those of the last snapshot."""
        rows = [
            (detector, key, number, content, digest_of(detector, key, number, content)) for key, content in contents
        ]
        self._database.executemany("INSERT OR REPLACE INTO key_incidents VALUES (?, ?, ?, ?, ?)", rows)

    def remove_others(self, detector: int, number: int, keys: Iterable[str]) -> None:
        """Delete the contents of keys, except those stored with exactly this `number` that are not empty."""
        sql = "DELETE FROM key_incidents WHERE detector = ? AND key = ? AND (number != ? OR content = x'')"
        self._database.executemany(sql, [(detector, key, number) for key in keys])


def _pending(entry: Entry, described: KeyedIncident, time: float, *, is_opening: bool) -> PendingEvent:
    """Return an event to announce; its position among the events of the entry is set later."""
    return PendingEvent(
        entry.number,
        0,
        is_opening,
        time,
        described.incident,
        0,
        tuple(described.times.items()),
        (),
        described.ended,
        described.id,
        described.key,
    )


def _stored(each: KeyedIncident) -> list[Any]:
    return [each.id, each.key, each.incident.as_json_value(), _stored_times(each.times), each.ended]


def _restored(id_: Any, key: Any, incident: Any, times: Any, end: Any) -> KeyedIncident:
    ended_at = None if end is None else float(end)
    return KeyedIncident(str(id_), str(key), restored_incident(incident, MAX_COUNT), _restored_times(times), ended_at)


def _number_in_id(each: KeyedIncident) -> int:
    """Return the last number in the id of an incident, which orders open incidents: all have the same generation."""
    return int(each.id.rpartition("-")[2])


def _stored_times(times: dict[int, RowTime]) -> list[list[Any]]:
    return [[index, *time] for index, time in times.items()]


def _restored_times(times: Any) -> dict[int, RowTime]:
    return {int(index): RowTime(time, own) for index, time, own in times}

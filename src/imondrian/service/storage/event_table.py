"""The tables of events (openings and closings of incidents), of their delivery, and of silences.

Events are numbered from 1, in the order in which they were committed. Only the latest ones are kept.
"""

import json
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

from imondrian.service.changes.journal import EventMark, digest_of
from imondrian.service.limits import N_EVENTS_KEPT
from imondrian.service.storage.incident_log import ANOMALIES, CLOSED, OPENED, Announcement, ended, silence_as_json

N_SILENCES_KEPT = 64  # per detector
_ALL_EVENTS = 2**53  # more events than any journal entry has
_LAST_ID = """
SELECT max(
    coalesce((SELECT max(id) FROM events), 0),
    coalesce((SELECT CAST(seq AS INTEGER) FROM sqlite_sequence WHERE name = 'events'), 0)
)
"""


class StoredEvent(NamedTuple):
    """An event as it is stored and sent."""

    id: int
    detector: int
    time: float
    content: str  # JSON, without the id

    def as_json(self) -> str:
        """Return the event with its id."""
        return f'{{"id": {self.id}, {self.content[1:]}'


class Silence(NamedTuple):
    """A time without data."""

    number: int  # from 0, among the silences of the detector
    since: float  # when the last data arrived
    opened: float
    closed: float | None


class ReceiverCounts(NamedTuple):
    """Numbers of notifications of a receiver."""

    n_sent: int
    n_given_up: int
    n_waiting: int


class EventTable:
    """The tables of events, their delivery, open incidents and silences; changed only inside a transaction.

    Attributes
    ----------
    receivers : tuple of str
        The keys of the receivers of notifications.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.receivers: tuple[str, ...] = ()

    # -- events -------------------------------------------------------------------------------------------------

    def add(self, detector: int, announcements: Sequence[Announcement], n_skipped: int = 0) -> list[StoredEvent]:
        """Store events of a detector, and put them into the outbox; return them with their ids.

        The `n_skipped` events before them get ids and are given up, as if they had been stored and then deleted.
        """
        if not announcements:
            return []
        self.give_up(n_skipped)
        first = self.last_id() + n_skipped + 1
        stored = [self._add_one(detector, first + i, each) for i, each in enumerate(announcements)]
        last = announcements[-1]
        if last.entry:
            values = (detector, last.entry, last.position + 1)
            self._database.execute("INSERT OR REPLACE INTO announced_events VALUES (?, ?, ?)", values)
        self._delete_oldest(stored[-1].id - N_EVENTS_KEPT)
        return stored

    def _add_one(self, detector: int, id_: int, announcement: Announcement) -> StoredEvent:
        event = {"event": announcement.what, "time": announcement.time, "incident": announcement.incident}
        values = (id_, detector, announcement.time, json.dumps(event, ensure_ascii=False))
        sql = "INSERT INTO events (id, detector, time, content, digest) VALUES (?, ?, ?, ?, ?)"
        self._database.execute(sql, (*values, _digest(*values[1:])))
        self._database.executemany("INSERT INTO outbox VALUES (?, ?)", [(key, id_) for key in self.receivers])
        self._record_open(detector, announcement)
        return StoredEvent(*values)

    def _record_open(self, detector: int, announcement: Announcement) -> None:
        """Record that an incident is open, without values of points, or that it is not open any more."""
        incident = announcement.incident
        key = (detector, _slot_of(incident))
        if announcement.what == OPENED:
            content = json.dumps({**incident, "explanation": [], "text": ""})
            self._database.execute("INSERT OR REPLACE INTO open_incidents VALUES (?, ?, ?)", (*key, content))
        else:
            self._database.execute("DELETE FROM open_incidents WHERE detector = ? AND kind = ?", key)

    def open_incidents(self, detector: int) -> list[dict[str, Any]]:
        """Return the incidents whose opening is stored but whose closing is not, without values of points."""
        sql = "SELECT content FROM open_incidents WHERE detector = ? ORDER BY kind"
        found = (_incident_from(content) for (content,) in self._database.execute(sql, (detector,)).fetchall())
        return [incident for incident in found if incident is not None]

    def close_incidents(
        self, detector: int, incidents: Sequence[dict[str, Any]], time: float, why: str
    ) -> list[StoredEvent]:
        """Store that incidents were closed for a reason other than a row; return the events."""
        closings = [{**each, **ended(each, time), "explanation": [], "text": why} for each in incidents]
        return self.add(detector, [Announcement(0, CLOSED, time, each) for each in closings])

    def give_up(self, n_events: int) -> None:
        """Count events that will never be stored as given up, for each receiver."""
        for key in self.receivers:
            self._count(key, 0, n_events)

    def _delete_oldest(self, last: int) -> None:
        """Delete events up to an id; those that wait for delivery are given up."""
        for key in self.receivers:
            sql = "DELETE FROM outbox WHERE receiver = ? AND event <= ?"
            self._count(key, 0, self._database.execute(sql, (key, last)).rowcount)
        self._database.execute("DELETE FROM events WHERE id <= ?", (last,))

    def after(self, id_: int, limit: int) -> list[StoredEvent]:
        """Return the first events after an id; damaged ones are left out."""
        sql = "SELECT id, detector, time, content, digest FROM events WHERE id > ? ORDER BY id"
        with closing(self._database.execute(sql, (id_,))) as rows:
            return list(islice((event for row in rows if (event := _valid(*row)) is not None), limit))

    def last_id(self) -> int:
        """Return the id of the latest event, even if it was deleted with its detector; 0 if there was no event."""
        return int(self._database.execute(_LAST_ID).fetchone()[0])

    def announced(self, detector: int) -> EventMark:
        """Return which events of the journal of a detector are stored."""
        sql = (
            "SELECT entry, n_events FROM announced_events WHERE detector = ?"
            " UNION ALL SELECT number, ? FROM announced WHERE detector = ?"  # written by former versions
        )
        rows = self._database.execute(sql, (detector, _ALL_EVENTS, detector))
        return max((EventMark(*row) for row in rows), default=EventMark())

    def remove_some(self, detector: int, last: int, limit: int) -> bool:
        """Delete some events of a detector up to an id; return True if any were deleted.

        Events that a receiver has not accepted yet are not deleted: a receiver that is notified of an opening must also
        be notified of the closing.
        """
        waiting = "SELECT event FROM outbox"
        sql = f"SELECT id FROM events WHERE detector = ? AND id <= ? AND id NOT IN ({waiting}) LIMIT ?"  # noqa: S608
        found = self._database.execute(sql, (detector, last, limit)).fetchall()
        self._database.executemany("DELETE FROM events WHERE id = ?", found)
        return bool(found)

    def take_open(self, detector: int, limit: int) -> list[dict[str, Any] | None]:
        """Return some of the open incidents of a detector, and record them as closed; None for a damaged one."""
        some = "FROM open_incidents WHERE detector = ? ORDER BY kind LIMIT ?"
        found = self._database.execute(f"SELECT content {some}", (detector, limit)).fetchall()
        sql = f"DELETE FROM open_incidents WHERE detector = ? AND kind IN (SELECT kind {some})"  # noqa: S608
        self._database.execute(sql, (detector, detector, limit))
        return [_incident_from(content) for (content,) in found]

    def cut(self, detector: int, number: int, time: float) -> None:
        """Record that the journal of a detector ends with entry `number`, and that later numbers will be used again.

        Incidents of anomalies that are open according to the stored events are closed, since lost entries may have
        opened them.
        """
        self._database.execute("UPDATE announced SET number = min(number, ?) WHERE detector = ?", (number, detector))
        sql = "UPDATE announced_events SET entry = ?, n_events = ? WHERE detector = ? AND entry > ?"
        self._database.execute(sql, (number, _ALL_EVENTS, detector, number))
        of_anomalies = [each for each in self.open_incidents(detector) if each["kind"] == ANOMALIES]
        self.close_incidents(detector, of_anomalies, time, "the end of the journal was lost")

    def last_generation(self, detector: int) -> int:
        """Return the largest generation in the incident ids of the stored events, or 0 if there are no such events."""
        sql = "SELECT id, detector, time, content, digest FROM events WHERE detector = ?"
        events = (event for row in self._database.execute(sql, (detector,)) if (event := _valid(*row)) is not None)
        incidents = (json.loads(event.content)["incident"] for event in events)
        return max((int(each["id"].split("-")[1]) for each in incidents if each["kind"] == ANOMALIES), default=0)

    # -- the outbox ---------------------------------------------------------------------------------------------

    def use_receivers(self, keys: tuple[str, ...]) -> None:
        """Set the receivers; the outboxes of all other receivers are deleted."""
        self.receivers = keys
        marks = ", ".join("?" * len(keys))
        for table in ("outbox", "receivers"):
            self._database.execute(f"DELETE FROM {table} WHERE receiver NOT IN ({marks})", keys)  # noqa: S608
        self._database.executemany("INSERT OR IGNORE INTO receivers VALUES (?, 0, 0)", [(key,) for key in keys])

    def has_other_receivers(self, keys: tuple[str, ...]) -> bool:
        """Return True if the stored receivers differ from the given ones."""
        stored = {key for (key,) in self._database.execute("SELECT receiver FROM receivers")}
        return stored != set(keys)

    def waiting(self, key: str, limit: int, blocked: Collection[int] = ()) -> list[StoredEvent]:
        """Return the oldest waiting events of a receiver, except those of blocked detectors; give up damaged ones."""
        marks, found, damaged = ", ".join("?" * len(blocked)), list[StoredEvent](), list[int]()
        sql = (
            "SELECT id, detector, time, content, digest, event FROM outbox LEFT JOIN events ON id = event"  # noqa: S608
            f" WHERE receiver = ? AND (detector IS NULL OR detector NOT IN ({marks})) ORDER BY event"
        )
        with closing(self._database.execute(sql, (key, *blocked))) as rows:
            while len(found) < limit and (row := rows.fetchone()) is not None:
                event = _valid(*row[:-1])
                damaged.append(row[-1]) if event is None else found.append(event)
        for number in damaged:
            self.finish(key, number, is_sent=False)
        return found

    def finish(self, key: str, event: int, *, is_sent: bool) -> None:
        """Remove an event from the outbox of a receiver: it was sent, or it is given up."""
        sql = "DELETE FROM outbox WHERE receiver = ? AND event = ?"
        n_removed = self._database.execute(sql, (key, event)).rowcount
        self._count(key, n_removed * is_sent, n_removed * (not is_sent))

    def counts(self, key: str) -> ReceiverCounts:
        """Return how many notifications of a receiver were sent, were given up, and are waiting."""
        sql = "SELECT sent, given_up FROM receivers WHERE receiver = ?"
        n_sent, n_given_up = self._database.execute(sql, (key,)).fetchone() or (0, 0)
        sql = "SELECT count(*) FROM outbox WHERE receiver = ?"
        return ReceiverCounts(n_sent, n_given_up, int(self._database.execute(sql, (key,)).fetchone()[0]))

    def _count(self, key: str, n_sent: int, n_given_up: int) -> None:
        if n_sent or n_given_up:
            sql = (
                "INSERT INTO receivers VALUES (?, ?, ?) ON CONFLICT (receiver)"
                " DO UPDATE SET sent = sent + excluded.sent, given_up = given_up + excluded.given_up"
            )
            self._database.execute(sql, (key, n_sent, n_given_up))

    # -- silences -----------------------------------------------------------------------------------------------

    def silences(self, detector: int) -> tuple[Silence, ...]:
        """Return the latest silences of a detector, oldest first; only the last one may be open."""
        sql = "SELECT number, since, opened, closed FROM silences WHERE detector = ? ORDER BY number"
        found = (Silence(*row) for row in self._database.execute(sql, (detector,)))
        return tuple(silence for silence in found if _is_valid(silence))

    def open_silence(self, detector: int, name: str, since: float, time: float) -> list[StoredEvent]:
        """Store that a detector is silent, unless that is stored already; return the events."""
        silences = self.silences(detector)
        if silences and silences[-1].closed is None:
            return []
        number = silences[-1].number + 1 if silences else 0
        self._database.execute("INSERT INTO silences VALUES (?, ?, ?, ?, NULL)", (detector, number, since, time))
        self._database.execute(
            "DELETE FROM silences WHERE detector = ? AND number <= ?", (detector, number - N_SILENCES_KEPT)
        )
        incident = silence_as_json(detector, name, number, since, time, None)
        return self.add(detector, [Announcement(0, OPENED, time, incident)])

    def close_silence(self, detector: int, name: str, time: float) -> list[StoredEvent]:
        """Store that a detector is no longer silent, if it was; return the events."""
        silences = self.silences(detector)
        if not silences or silences[-1].closed is not None:
            return []
        number, since, opened, _ = silences[-1]
        time = max(time, opened)
        self._database.execute(
            "UPDATE silences SET closed = ? WHERE detector = ? AND number = ?", (time, detector, number)
        )
        incident = silence_as_json(detector, name, number, since, opened, time)
        return self.add(detector, [Announcement(0, CLOSED, time, incident)])


def _slot_of(incident: dict[str, Any]) -> str:
    """Return what identifies an open incident of a detector: its kind or, if it belongs to a key, its id."""
    return str(incident["kind"] if incident.get("key") is None else incident["id"])


def _incident_from(content: Any) -> dict[str, Any] | None:
    """Return a stored incident, or None if it is damaged."""
    try:
        incident = json.loads(content)
    except (TypeError, ValueError, RecursionError):
        return None
    return incident if isinstance(incident, dict) and {"id", "kind"} <= incident.keys() else None


def _is_valid(silence: Silence) -> bool:
    number, *times = silence
    return isinstance(number, int) and all(isinstance(time, float) or time is silence.closed is None for time in times)


def _valid(id_: Any, detector: Any, time: Any, content: Any, digest: Any) -> StoredEvent | None:
    """Return a stored event, or None if it is damaged or missing."""
    is_valid = isinstance(content, str) and digest in (
        _digest(detector, time, content),
        digest_of(detector, time, content),  # of former versions
    )
    return StoredEvent(id_, detector, time, content) if is_valid else None


def _digest(detector: int, time: float, content: str) -> bytes:
    """Return the digest of an event. The text is encoded, because its repr depends on the version of Python."""
    return digest_of(detector, time, content.encode())

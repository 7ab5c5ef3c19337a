"""The stored events: openings and closings of incidents, those that wait for delivery, and silences.

Events are numbered from 1, in the order in which they were committed. Only the latest ones are kept.
"""

import json
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

from imondrian.service.changes.journal import digest_of
from imondrian.service.storage.incident_log import CLOSED, OPENED, Announcement, silence_as_json

N_EVENTS_KEPT = 10_000  # the oldest are deleted, even if they have not been delivered
N_SILENCES_KEPT = 64  # per detector
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

    number: int  # from 0, of the same detector
    since: float  # when the last data arrived
    opened: float
    closed: float | None


class ReceiverCounts(NamedTuple):
    """Numbers of notifications of a receiver."""

    n_sent: int
    n_given_up: int
    n_waiting: int


class EventTable:
    """The tables `events`, `outbox`, `receivers`, `announced` and `silences`; changed only inside a transaction.

    Attributes
    ----------
    receivers : tuple of str
        The keys of the receivers of notifications.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.receivers: tuple[str, ...] = ()

    # -- events -------------------------------------------------------------------------------------------------

    def add(self, detector: int, announcements: Sequence[Announcement]) -> list[StoredEvent]:
        """Store events of a detector, and put them into the outbox; return them with their ids."""
        stored = [self._add_one(detector, announcement) for announcement in announcements]
        entries = [announcement.entry for announcement in announcements if announcement.entry]
        if entries:
            self._database.execute("INSERT OR REPLACE INTO announced VALUES (?, ?)", (detector, max(entries)))
        if stored:
            self._delete_oldest(stored[-1].id - N_EVENTS_KEPT)
        return stored

    def _add_one(self, detector: int, announcement: Announcement) -> StoredEvent:
        event = {"event": announcement.what, "time": announcement.time, "incident": announcement.incident}
        values = (detector, announcement.time, json.dumps(event))
        sql = "INSERT INTO events (detector, time, content, digest) VALUES (?, ?, ?, ?)"
        id_ = int(self._database.execute(sql, (*values, digest_of(*values))).lastrowid or 0)
        self._database.executemany("INSERT INTO outbox VALUES (?, ?)", [(key, id_) for key in self.receivers])
        return StoredEvent(id_, *values)

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
        """Return the id of the latest event, even if that was deleted with its detector; 0 if there was none."""
        return int(self._database.execute(_LAST_ID).fetchone()[0])

    def announced(self, detector: int) -> int:
        """Return the number of the last journal entry whose events are stored."""
        row = self._database.execute("SELECT number FROM announced WHERE detector = ?", (detector,)).fetchone()
        return 0 if row is None else int(row[0])

    def remove_detector(self, detector: int) -> None:
        """Delete all events and silences of a detector, also those that wait for delivery."""
        sql = "DELETE FROM outbox WHERE event IN (SELECT id FROM events WHERE detector = ?)"
        self._database.execute(sql, (detector,))
        for table in ("events", "announced", "silences"):
            self._database.execute(f"DELETE FROM {table} WHERE detector = ?", (detector,))  # noqa: S608 (names from above)

    def cut(self, detector: int, number: int) -> None:
        """Record that the journal of a detector ends with entry `number`: later numbers will be used again."""
        self._database.execute("UPDATE announced SET number = min(number, ?) WHERE detector = ?", (number, detector))

    # -- the outbox ---------------------------------------------------------------------------------------------

    def use_receivers(self, keys: tuple[str, ...]) -> None:
        """Set the receivers; events that wait for other receivers are deleted."""
        self.receivers = keys
        marks = ", ".join("?" * len(keys))
        for table in ("outbox", "receivers"):
            self._database.execute(f"DELETE FROM {table} WHERE receiver NOT IN ({marks})", keys)  # noqa: S608
        self._database.executemany("INSERT OR IGNORE INTO receivers VALUES (?, 0, 0)", [(key,) for key in keys])

    def has_other_receivers(self, keys: tuple[str, ...]) -> bool:
        """Return True if the stored receivers are not these ones."""
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
        """Return how many notifications of a receiver were sent, given up, and wait."""
        sql = "SELECT sent, given_up FROM receivers WHERE receiver = ?"
        n_sent, n_given_up = self._database.execute(sql, (key,)).fetchone() or (0, 0)
        sql = "SELECT count(*) FROM outbox WHERE receiver = ?"
        return ReceiverCounts(n_sent, n_given_up, int(self._database.execute(sql, (key,)).fetchone()[0]))

    def _count(self, key: str, n_sent: int, n_given_up: int) -> None:
        if n_sent or n_given_up:
            sql = "UPDATE receivers SET sent = sent + ?, given_up = given_up + ? WHERE receiver = ?"
            self._database.execute(sql, (n_sent, n_given_up, key))

    # -- silences -----------------------------------------------------------------------------------------------

    def silences(self, detector: int) -> tuple[Silence, ...]:
        """Return the latest silences of a detector, oldest first; only the last one may be open."""
        sql = "SELECT number, since, opened, closed FROM silences WHERE detector = ? ORDER BY number"
        found = (Silence(*row) for row in self._database.execute(sql, (detector,)))
        return tuple(silence for silence in found if _is_valid(silence))

    def open_silence(self, detector: int, name: str, since: float, time: float) -> list[StoredEvent]:
        """Store that a detector is silent, unless it is stored already; return the events."""
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


def _is_valid(silence: Silence) -> bool:
    number, *times = silence
    return isinstance(number, int) and all(isinstance(time, float) or time is silence.closed is None for time in times)


def _valid(id_: Any, detector: Any, time: Any, content: Any, digest: Any) -> StoredEvent | None:
    """Return a stored event, or None if it is damaged or missing."""
    is_valid = isinstance(content, str) and digest == digest_of(detector, time, content)
    return StoredEvent(id_, detector, time, content) if is_valid else None

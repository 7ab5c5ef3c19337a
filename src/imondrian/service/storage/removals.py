"""Removal of all data of detectors in portions, so that other requests do not wait long for the writer.

All portions are short, and the first one also records that the detector is removed. If the service ends before the
last portion, the removal continues at the next start.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from imondrian.service.limits import N_EVENTS_KEPT
from imondrian.service.storage.event_table import EventTable, StoredEvent
from imondrian.service.storage.sqlite import free_pages

_SECONDS_PER_PORTION = 0.03
_ROWS_AT_ONCE, _EVENTS_AT_ONCE, _PAGES_AT_ONCE = 10, 100, 100  # deleted between two checks of the deadline
_TABLES = {  # tables with data of a detector, and the columns that identify a row
    "entries": "detector, number",
    "versions": "detector, number",
    "silences": "detector, number",
    "snapshots": "rowid",
    "answers": "rowid",
    "damaged": "rowid",
    "latest_rows": "rowid",
    "key_incidents": "rowid",
    "key_files": "rowid",
    "announced": "rowid",
    "announced_events": "rowid",
}
Describe = Callable[[dict[str, Any]], dict[str, Any]]  # turns a stored open incident into its current description


def as_stored(incident: dict[str, Any]) -> dict[str, Any]:
    """Return the description of an incident unchanged."""
    return incident


class RemovalPortion(NamedTuple):
    """What a portion of a removal has done."""

    events: list[StoredEvent]  # closings of incidents
    is_finished: bool


class Removals:
    """The removals that are not finished; changed only inside a transaction."""

    def __init__(self, database: sqlite3.Connection, events: EventTable) -> None:
        self._database, self._events = database, events

    def unfinished(self) -> list[int]:
        """Return the detectors whose removal is not finished."""
        sql = "SELECT detector FROM removals WHERE typeof(last_event) = 'integer'"
        return [detector for (detector,) in self._database.execute(sql)]

    def start(self, detector: int, describe: Describe = as_stored) -> RemovalPortion:
        """Remove a detector, and delete a first portion of its data, which may be all of it."""
        values = (detector, time.time(), self._events.last_id())
        self._database.execute("INSERT OR IGNORE INTO removals VALUES (?, ?, ?, 0)", values)
        self._database.execute("DELETE FROM detectors WHERE id = ?", (detector,))
        return self.proceed(detector, describe)

    def proceed(self, detector: int, describe: Describe = as_stored) -> RemovalPortion:
        """Delete the next portion of the data of a removed detector, and close open incidents.

        An incident is open if its opening is stored, but not its closing. `describe` returns its current description.
        """
        deadline, events = time.monotonic() + _SECONDS_PER_PORTION, list[StoredEvent]()
        for closings in self._steps(detector, describe):
            events += closings
            if time.monotonic() > deadline:
                return RemovalPortion(events, is_finished=False)
        self._database.execute("DELETE FROM removals WHERE detector = ?", (detector,))
        return RemovalPortion(events, is_finished=True)

    def _steps(self, detector: int, describe: Describe) -> Iterator[list[StoredEvent]]:
        """Remove everything in short steps; yield the closings that each step has stored."""
        sql = "SELECT time, last_event, n_closed FROM removals WHERE detector = ?"
        row = self._database.execute(sql, (detector,)).fetchone()
        if row is None:
            return  # the removal is finished
        removed, last_event, n_closed = row
        while self._events.remove_some(detector, last_event, _EVENTS_AT_ONCE):
            yield []
        while taken := self._events.take_open(detector, _ROWS_AT_ONCE):
            n_closed += len(taken)
            self._database.execute("UPDATE removals SET n_closed = ? WHERE detector = ?", (n_closed, detector))
            yield self._close(detector, taken, removed, describe) if n_closed <= N_EVENTS_KEPT else self._skip(taken)
        for table, key_columns in _TABLES.items():
            while self._delete_some(table, key_columns, detector):
                yield []
        while free_pages(self._database, _PAGES_AT_ONCE):
            yield []

    def _close(
        self, detector: int, taken: list[dict[str, Any] | None], removed: float, describe: Describe
    ) -> list[StoredEvent]:
        incidents = [describe(each) for each in taken if each is not None]
        return self._events.close_incidents(detector, incidents, removed, "the detector was removed")

    def _skip(self, taken: list[dict[str, Any] | None]) -> list[StoredEvent]:
        """Give up closings beyond `N_EVENTS_KEPT`: they would displace other closings of the same removal."""
        self._events.give_up(len(taken))
        return []

    def _delete_some(self, table: str, key_columns: str, detector: int) -> bool:
        """Delete some rows of a table; return True if there were any."""
        some = f"SELECT {key_columns} FROM {table} WHERE detector = ? LIMIT ?"  # noqa: S608 (names from above)
        sql = f"DELETE FROM {table} WHERE ({key_columns}) IN ({some})"  # noqa: S608
        return self._database.execute(sql, (detector, _ROWS_AT_ONCE)).rowcount > 0

"""Openings and closings of the incidents of many keys, as JSON values with the key, row numbers from 1 and times."""

from collections.abc import Callable
from typing import Any, NamedTuple

from imondrian.base.errors import InvalidInputError
from imondrian.cli.watch.incident_events import incident_as_json
from imondrian.cli.watch.key_columns import members_of_key
from imondrian.cli.watch.time_column import TimeValue, is_storable
from imondrian.fleet.fleet import Fleet
from imondrian.fleet.keys import Key
from imondrian.fleet.results import KeyEvent

_MAX_ALARMS = 64  # of a key; when there are more, the alarms that are no longer needed are forgotten
_MAX_KEYS = 10_000  # with remembered alarms; when there are more, the alarms of the oldest keys are forgotten
_MAX_NUMBER = 2**53


class StreamRow(NamedTuple):
    """The number and the time of a row, by which the output refers to it."""

    number: int  # in the stream, from 1
    time: TimeValue  # value of the time column


Alarms = dict[Key, dict[int, StreamRow]]  # the remembered rows of each key, by their index among the rows of the key


class KeyedRows(NamedTuple):
    """Rows that the fleet has just processed."""

    keys: list[Key]
    indices: list[int]  # the index of each row among the rows of its key
    is_anomaly: list[bool]
    row: Callable[[int], StreamRow]  # returns the row at a position


class KeyIncidents:
    """Describes the incidents of a fleet; remembers the rows that a later opening or closing may name.

    Parameters
    ----------
    time_column : str or None
        The time column.
    alarms : dict
        The rows that were remembered at the end of the previous run.
    """

    def __init__(self, time_column: str | None, alarms: Alarms) -> None:
        self._has_times = time_column is not None
        self.alarms = alarms

    def observe(
        self, fleet: Fleet, names: list[str], columns: list[str], rows: KeyedRows
    ) -> list[tuple[Key, dict[str, Any]]]:
        """Return the openings and closings that the fleet has just reported, in their order, with their keys.

        `names` are the features, `columns` the key columns.
        """
        latest = self._remember(rows, fleet.events)
        events = [(event.key, self._as_json(event, names, columns)) for event in fleet.events]
        self._forget(fleet, latest)
        return events

    def row_of(self, key: Key, index: int) -> StreamRow | None:
        """Return the row with this index among the rows of the key; None if it is not remembered."""
        return self.alarms.get(key, {}).get(index)

    def _remember(self, rows: KeyedRows, events: tuple[KeyEvent, ...]) -> dict[Key, int]:
        """Remember the rows of alarms and closings; return the index of the latest row of each remembered key."""
        closings = {(key, event.incident.closed) for key, event in events}
        closing_keys, latest = {key for key, _ in closings}, dict[Key, int]()
        columns = zip(rows.keys, rows.indices, rows.is_anomaly, strict=True)
        for position, (key, index, is_anomaly) in enumerate(columns):
            if index == 0:  # a new key, or one that was dropped
                self.alarms.pop(key, None)
            if is_anomaly or (key in closing_keys and (key, index) in closings):
                self.alarms.setdefault(key, {})[index] = rows.row(position)
            if key in self.alarms:
                latest[key] = index
        return latest

    def _forget(self, fleet: Fleet, latest: dict[Key, int]) -> None:
        """Forget the rows that no later event can name; if there are too many keys, forget all rows of the oldest."""
        for key, index in latest.items():
            alarms = self.alarms.get(key, {})
            if not alarms or index - max(alarms) >= fleet.rules.gap:
                self.alarms.pop(key, None)
            elif len(alarms) > _MAX_ALARMS:
                detector = fleet.detector(key)
                kept = {*detector.alarm_rows, *(incident.opened for incident in detector.incidents)}
                self.alarms[key] = {i: row for i, row in alarms.items() if i in kept}
        for key in list(self.alarms)[: max(len(self.alarms) - _MAX_KEYS, 0)]:
            del self.alarms[key]

    def _as_json(self, event: KeyEvent, names: list[str], columns: list[str]) -> dict[str, Any]:
        rows = self.alarms.get(event.key, {})

        def number(index: int) -> int | None:
            return rows[index].number if index in rows else None

        def time(index: int) -> TimeValue:
            return rows[index].time if index in rows else None

        incident = incident_as_json(event.event.incident, names, number, time if self._has_times else None)
        return members_of_key(event.key, columns) | incident


def stored_alarms(alarms: Alarms) -> list[Any]:
    """Return the remembered rows in types that JSON supports."""
    return [[key, [[index, *row] for index, row in rows.items()]] for key, rows in alarms.items()]


def restored_alarms(value: Any, model: str) -> Alarms:
    """Return the remembered rows that a model file stores; raise InvalidInputError if they are invalid."""
    try:
        alarms = {key: {index: StreamRow(*row) for index, *row in rows} for key, rows in value or []}
    except (TypeError, ValueError):
        alarms = {None: {}}
    if not all(_is_key(key) and all(map(_is_row, rows.items())) for key, rows in alarms.items()):
        raise InvalidInputError(f"{model}: the stored rows of incidents are invalid: {value!r:.200}.")
    return alarms


def _is_key(key: Any) -> bool:
    return isinstance(key, str) or type(key) is int


def _is_row(item: tuple[Any, StreamRow]) -> bool:
    index, row = item
    are_numbers = all(type(number) is int and 0 <= number <= _MAX_NUMBER for number in (index, row.number))
    return are_numbers and is_storable(row.time)

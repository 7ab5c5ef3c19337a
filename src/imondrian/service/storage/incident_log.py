"""What is shown of incidents besides the state of the detector: the times of their rows, and the texts of categories.

Both follow from the journal, so a replay produces the same; a snapshot contains those that are needed for the latest
incidents.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from imondrian.alarms.incidents import Incident
from imondrian.base.categories import MISSING_CODE, category_text
from imondrian.engine.jit import Array
from imondrian.models.explanations import MISSING_TEXT
from imondrian.service.changes.journal import AppliedEvent, Entry, EntryApplier, Outcome
from imondrian.service.changes.row_labels import Category, Labels, labels_from, time_text
from imondrian.service.storage.history import History
from imondrian.stream.detector import StreamDetector
from imondrian.stream.incident_records import reasons_in_words

OPENED, CLOSED = "opened", "closed"
ANOMALIES, SILENCE = "anomalies", "silence"
_MAX_TIMES = 1_000  # above this number, times that are no longer needed are dropped


class RowTime(NamedTuple):
    """When a row arrived, in seconds since 1970, and the time that it carried."""

    time: float
    own_time: str | None


class Announcement(NamedTuple):
    """The opening or closing of an incident, to be stored as an event."""

    entry: int  # number of the journal entry that caused it; 0 if none did
    what: str  # OPENED or CLOSED
    time: float
    incident: dict[str, Any]  # as JSON


class ShownIncidents(NamedTuple):
    """The latest incidents of a detector, with everything that is shown of them."""

    incidents: tuple[Incident, ...] = ()
    generation: int = 0
    times: Mapping[int, RowTime] = MappingProxyType({})
    categories: Mapping[float, Category] = MappingProxyType({})

    @property
    def open(self) -> Incident | None:
        """The open incident."""
        return self.incidents[-1] if self.incidents and self.incidents[-1].is_open else None


class IncidentLog:
    """Records the times and categories of incidents while journal entries are applied.

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
    shown : ShownIncidents
        Replaced, not changed, when incidents change, so that other threads can read it.
    """

    def __init__(self, id_: int, name: str, features: Sequence[str]) -> None:
        self.shown = ShownIncidents()
        self._id, self._name, self._features = id_, name, features

    def update(
        self, applier: EntryApplier, entries: list[Entry], outcomes: list[Outcome], history: History
    ) -> list[Announcement]:
        """Record what applied entries have changed, before they are added to the history; return what to announce.

        An entry that replaces the detector must be the only one.
        """
        before = _AppliedRows(entries, outcomes, history, self.shown)
        is_replaced = applier.generation != self.shown.generation
        after = _AppliedRows([], [], None, ShownIncidents()) if is_replaced else before
        announced = [
            self._announcement(event, before if event.generation == self.shown.generation else after)
            for event in applier.events
        ]
        if applier.events or is_replaced or len(self.shown.times) > _MAX_TIMES:
            self.shown = _shown(applier, after)
        else:
            self.shown = _with_alarms(self.shown, applier.detector, after)
        return announced

    def _announcement(self, event: AppliedEvent, rows: "_AppliedRows") -> Announcement:
        """Return what is announced of an event."""
        entry, incident, generation, is_opening = event
        described = self._as_json(incident, generation, rows.time, rows.category)
        is_replaced = not is_opening and incident.is_open
        if is_replaced:
            described |= ended(described, entry.time)
        closing = rows.time(incident.closed) if incident.closed is not None else None
        opening = rows.time(incident.opened)
        time = (opening if is_opening else closing) or RowTime(entry.time, None)
        return Announcement(entry.number, OPENED if is_opening else CLOSED, time.time, described)

    def described(self, incident: Incident, shown: ShownIncidents) -> dict[str, Any]:
        """Return one of the latest incidents as JSON."""
        return self._as_json(incident, shown.generation, shown.times.get, shown.categories.get)

    def _as_json(
        self,
        incident: Incident,
        generation: int,
        time_of: Callable[[int], RowTime | None],
        category_of: Callable[[float], Category | None],
    ) -> dict[str, Any]:
        def text(_feature: int, code: float) -> str:
            if code == MISSING_CODE:
                return MISSING_TEXT
            category = category_of(code)
            return "" if category is None else category_text(category)

        def row(index: int) -> dict[str, Any]:
            time = time_of(index)
            return {
                "index": index,
                "time": None if time is None else time.time,
                "own_time": None if time is None else time.own_time,
            }

        reasons = reasons_in_words(incident, list(self._features), text)
        return {
            "id": f"{self._id}-{generation}-{incident.number}",
            "detector": self._name,
            "kind": ANOMALIES,
            "incident": incident.number,
            "is_open": incident.is_open,
            "first": row(incident.first),
            "last": row(incident.last),
            "opened": row(incident.opened),
            "closed": None if incident.closed is None else row(incident.closed),
            "n_alarms": incident.n_alarms,
            "peak": {**row(incident.peak), "anomaly_score": incident.score, "surprise": incident.surprise},
            "explanation": [
                {
                    "feature": reason.feature,
                    "rows_ago": reason.rows_ago[0],
                    "value": reason.value if reason.text is None else reason.text or None,
                    "expected": reason.expected,
                    "view": reason.view,
                    "share": reason.share,
                    "side": reason.side or None,
                    "text": str(reason),
                }
                for reason in reasons
            ],
            "text": "; ".join(map(str, reasons)),
        }

    def state(self) -> dict[str, Any]:
        """Return what a snapshot stores, in types that JSON supports."""
        shown = self.shown
        return {
            "generation": shown.generation,
            "times": [[index, *time] for index, time in shown.times.items()],
            "categories": list(shown.categories.items()),
        }

    def restore(self, state: dict[str, Any], detector: StreamDetector) -> None:
        """Restore what `state` returned; it is empty in a snapshot of a version without incidents."""
        times = {index: RowTime(time, own) for index, time, own in state.get("times", [])}
        categories = {code: category for code, category in state.get("categories", [])}  # noqa: C416 (lists of pairs)
        self.shown = ShownIncidents(detector.incidents, state.get("generation", 0), times, categories)


def ended(described: dict[str, Any], time: float) -> dict[str, Any]:
    """Return the fields of an incident that ends without a row, because its detector is replaced or removed."""
    return {"is_open": False, "closed": {"index": None, "time": time, "own_time": None}, "id": described["id"]}


def silence_as_json(
    id_: int, name: str, number: int, since: float, opened: float, closed: float | None
) -> dict[str, Any]:
    """Return an incident of missing data as JSON: when the last data arrived, and when it opened and closed."""

    def moment(time: float) -> dict[str, Any]:
        return {"index": None, "time": time, "own_time": None}

    return {
        "id": f"{id_}-silence-{number}",
        "detector": name,
        "kind": SILENCE,
        "incident": number,
        "is_open": closed is None,
        "first": moment(since),
        "last": moment(opened if closed is None else closed),
        "opened": moment(opened),
        "closed": None if closed is None else moment(closed),
        "n_alarms": 0,
        "peak": None,
        "explanation": [],
        "text": f"no data since {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC",
    }


class _AppliedRows:
    """Times and categories of rows: of earlier incidents, of entries that were just applied, and of the history."""

    def __init__(
        self, entries: list[Entry], outcomes: list[Outcome], history: History | None, shown: ShownIncidents
    ) -> None:
        pairs = zip(entries, outcomes, strict=True)
        self._blocks = [(entry, outcome) for entry, outcome in pairs if isinstance(outcome, list)]
        self._first_rows = [rows[0].number for _, rows in self._blocks]
        self._contents: dict[int, tuple[Labels, Array]] = {}  # labels and times in seconds, by position of the block
        self._history, self._shown = history, shown

    def time(self, index: int) -> RowTime | None:
        """Return the time of a row, or None if it is not known."""
        if index in self._shown.times:
            return self._shown.times[index]
        position = bisect_right(self._first_rows, index) - 1
        if position >= 0:
            entry, rows = self._blocks[position]
            return RowTime(entry.time, self._own_time(position, index - rows[0].number, len(rows)))
        if self._history is None or any(index in _rows_of(incident) for incident in self._shown.incidents):
            return None  # of an incident in a model file
        found = self._history.consecutive_rows(index, 1)
        return RowTime(found[0].time, found[0].own_time) if found else None

    def category(self, code: float) -> Category | None:
        """Return the category with a code, or None if it is not known."""
        if code in self._shown.categories:
            return self._shown.categories[code]
        for position in range(len(self._blocks)):
            categories = self._content_of(position)[0].categories
            if code in categories:
                return categories[code]
        if self._history is None or code in _codes_of(self._shown.incidents):
            return None  # of an incident in a model file
        return self._history.category(code)

    def _own_time(self, position: int, i: int, n_rows: int) -> str | None:
        """Return the time that row i of a block carried; in a long block, only the latest rows have it as posted."""
        labels, times = self._content_of(position)
        posted = labels.times_of(n_rows)[i]
        return time_text(times[i].item()) if posted is None and times.size and not np.isnan(times[i]) else posted

    def _content_of(self, position: int) -> tuple[Labels, Array]:
        if position not in self._contents:
            _, times, labels = self._blocks[position][0].points_times_and_labels()
            self._contents[position] = labels_from(labels), np.frombuffer(times, "<f8")
        return self._contents[position]


def _rows_of(incident: Incident) -> set[int]:
    """Return the rows that are named when an incident is shown."""
    rows = {incident.first, incident.last, incident.opened, incident.peak}
    return rows if incident.closed is None else {*rows, incident.closed}


def _with_alarms(shown: ShownIncidents, detector: StreamDetector, rows: _AppliedRows) -> ShownIncidents:
    """Return the latest incidents after alarms that neither opened nor closed one: only the last may have changed."""
    incidents = detector.incidents
    indices = detector.alarm_rows.union(*map(_rows_of, incidents[-1:]))
    times = {index: time for index in indices if (time := rows.time(index)) is not None}
    codes = _codes_of(incidents[-1:]) - shown.categories.keys()
    categories = {code: found for code in codes if (found := rows.category(code)) is not None}
    return ShownIncidents(incidents, shown.generation, {**shown.times, **times}, {**shown.categories, **categories})


def _codes_of(incidents: tuple[Incident, ...]) -> set[float]:
    """Return the codes of the categories in the reasons for incidents; the missing category has no text."""
    reasons = (reason for incident in incidents for reason in incident.reasons if reason.count is not None)
    return {reason.value for reason in reasons} - {MISSING_CODE}


def _shown(applier: EntryApplier, rows: _AppliedRows) -> ShownIncidents:
    """Return the latest incidents of a detector, with the times and categories that are needed for them."""
    detector = applier.detector
    incidents = detector.incidents
    indices = set(detector.alarm_rows).union(*map(_rows_of, incidents))
    codes = _codes_of(incidents)
    times = {index: time for index in sorted(indices) if (time := rows.time(index)) is not None}
    categories = {code: found for code in sorted(codes) if (found := rows.category(code)) is not None}
    return ShownIncidents(incidents, applier.generation, times, categories)

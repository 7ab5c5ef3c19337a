"""Incidents as JSON, with the times of their rows and the texts of categories, which a detector does not store.

Times and texts follow from the journal, so a replay produces the same. A snapshot contains those that are needed for
the latest incidents.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from imondrian.alarms.incidents import Incident
from imondrian.base.categories import MISSING_CODE, category_text
from imondrian.engine.jit import Array
from imondrian.models.explanations import MISSING_TEXT, Reason
from imondrian.service.changes.journal import MODELS, AppliedEvent, Entry, EntryApplier, Outcome
from imondrian.service.changes.row_labels import Category, Labels, labels_from, time_text
from imondrian.service.limits import N_EVENTS_KEPT
from imondrian.service.storage.history import History
from imondrian.stream.detector import StreamDetector
from imondrian.stream.incident_records import reasons_in_words

OPENED, CLOSED = "opened", "closed"
ANOMALIES, SILENCE = "anomalies", "silence"
_MAX_NAME_LENGTH = 64  # of features and categories in texts; longer ones are shortened
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
    position: int = 0  # among the events of the entry


class PendingEvent(NamedTuple):
    """The opening or closing of an incident that is not stored yet.

    It is converted to JSON only when it is stored, because JSON needs several times the memory.
    """

    entry: int  # number of the journal entry
    position: int  # among the events of the entry
    is_opening: bool
    time: float
    incident: Incident
    generation: int  # of the numbering of incidents; part of their ids, see `EntryApplier`
    times: tuple[tuple[int, RowTime], ...]  # of the rows of the incident
    categories: tuple[tuple[float, Category], ...]  # by code
    # when the detector with the incident was replaced, or its key forgotten, which ends the incident; otherwise None
    replaced: float | None
    id: str = ""  # of the incident, if the detector has a key; otherwise empty
    key: str | None = None  # of the incident; None if the detector has no key


class PendingEvents(NamedTuple):
    """The latest events that are not stored yet, and the number of older ones, which are never stored."""

    n_skipped: int = 0
    latest: tuple[PendingEvent, ...] = ()

    def plus(self, later: "PendingEvents") -> "PendingEvents":
        """Return these events and later ones; if there are more than can be kept, the oldest are only counted."""
        latest = (*self.latest, *later.latest)
        n_extra = max(len(latest) - N_EVENTS_KEPT, 0)
        return PendingEvents(self.n_skipped + later.n_skipped + n_extra, latest[n_extra:])

    def after(self, n: int) -> "PendingEvents":
        """Return what remains after the skipped events are counted and the first n of the latest are stored."""
        return PendingEvents(0, self.latest[n:])


class ShownIncidents(NamedTuple):
    """The latest incidents of a detector, with everything that is shown of them."""

    incidents: tuple[Incident, ...] = ()
    generation: int = 0  # part of the incidents' ids; see `EntryApplier`
    times: Mapping[int, RowTime] = MappingProxyType({})
    categories: Mapping[float, Category] = MappingProxyType({})

    @property
    def open(self) -> Incident | None:
        """The open incident."""
        return self.incidents[-1] if self.incidents and self.incidents[-1].is_open else None


class ListedIncident(NamedTuple):
    """An incident that may be part of a response; `describe` is called only if it is."""

    is_open: bool
    opened: float  # seconds since 1970; 0 if it is not known
    number: int
    describe: Callable[[], dict[str, Any]]


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
        self._id, self._name, self._features = id_, name, list(features)

    def update(
        self, applier: EntryApplier, entries: list[Entry], outcomes: list[Outcome], history: History
    ) -> PendingEvents:
        """Record what applied entries have changed, before they are added to the history; return what to announce.

        An entry that replaces the detector must have been applied alone.
        """
        n_earlier = applier.detector.parameters["shingle"] - 1
        before = _AppliedRows(entries, outcomes, history, self.shown, n_earlier)
        is_replaced = entries[0].kind in MODELS
        after = _AppliedRows([], [], None, ShownIncidents()) if is_replaced else before
        for incident in (*applier.detector.incidents, *(event.incident for event in applier.events.latest)):
            before.find_closing(incident)
        pending = tuple(
            _pending(event, before if event.generation == self.shown.generation else after)
            for event in applier.events.latest
        )
        is_renumbered = applier.generation != self.shown.generation
        if applier.events.n_events or is_renumbered or len(self.shown.times) > _MAX_TIMES:
            self.shown = _shown(applier, after)
        else:
            self.shown = _with_alarms(self.shown, applier.detector, after)
        return PendingEvents(applier.events.n_skipped, pending)

    @property
    def n_open(self) -> int:
        """Number of open incidents."""
        return int(self.shown.open is not None)

    def listed(self) -> list[ListedIncident]:
        """Return the latest incidents."""
        shown = self.shown

        def listed_one(incident: Incident) -> ListedIncident:
            time = shown.times.get(incident.opened)
            opened = 0.0 if time is None else time.time
            return ListedIncident(incident.is_open, opened, incident.number, lambda: self.described(incident, shown))

        return [listed_one(incident) for incident in shown.incidents]

    def current(self, stored: dict[str, Any]) -> dict[str, Any]:
        """Return the current description of an open incident; if it is not open any more, its stored description."""
        shown = self.shown
        described = stored if shown.open is None else self.described(shown.open, shown)
        return described if described["id"] == stored["id"] else stored

    def announcement(self, event: PendingEvent) -> Announcement:
        """Return what is announced about an event."""
        described = self._as_json(event.incident, event.generation, dict(event.times).get, dict(event.categories).get)
        return announcement_of(event, described)

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
        names = IncidentNames(f"{self._id}-{generation}-{incident.number}", self._name, self._features)
        return incident_as_json(incident, names, time_of, category_of)

    def state(self) -> dict[str, Any]:
        """Return what a snapshot stores, in types that JSON supports."""
        shown = self.shown
        return {
            "generation": shown.generation,
            "times": [[index, *time] for index, time in shown.times.items()],
            "categories": list(shown.categories.items()),
        }

    def restore(self, state: dict[str, Any], detector: StreamDetector) -> None:
        """Restore what `state` returned; `state` is empty in a snapshot of a version without incidents."""
        times = {index: RowTime(time, own) for index, time, own in state.get("times", [])}
        categories = {code: category for code, category in state.get("categories", [])}  # noqa: C416 (lists of pairs)
        self.shown = ShownIncidents(detector.incidents, state.get("generation", 0), times, categories)


class IncidentNames(NamedTuple):
    """What identifies an incident, and the names of the features in it."""

    id: str
    detector: str
    features: list[str]


def incident_as_json(
    incident: Incident,
    names: IncidentNames,
    time_of: Callable[[int], RowTime | None],
    category_of: Callable[[float], Category | None],
) -> dict[str, Any]:
    """Return an incident as JSON; the functions return the time of a row and the category with a code."""

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

    reasons = reasons_in_words(incident, names.features, text)
    texts = [_short_text(reason) for reason in reasons]
    return {
        "id": names.id,
        "detector": names.detector,
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
                "text": words,
            }
            for reason, words in zip(reasons, texts, strict=True)
        ],
        "text": "; ".join(texts),
    }


def announcement_of(event: PendingEvent, described: dict[str, Any]) -> Announcement:
    """Return what is announced about an event, from its incident as JSON."""
    if event.replaced is not None:
        described = described | ended(described, event.replaced)
    return Announcement(
        event.entry, OPENED if event.is_opening else CLOSED, event.time, described, position=event.position
    )


def _short_text(reason: Reason) -> str:
    """Return a reason in words, with long names shortened."""
    category = None if reason.text is None else _shortened(reason.text)
    return str(reason._replace(feature=_shortened(reason.feature), text=category))


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[: _MAX_NAME_LENGTH - 3]}..."


def ended(described: dict[str, Any], time: float) -> dict[str, Any]:
    """Return the new fields of an incident that ends without a row, for example because its detector is removed."""
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
    """Finds times and categories of rows: in earlier incidents, in entries that were just applied, in the history.

    The result must not depend on which entries are applied together, since a replay groups them differently.

    Parameters
    ----------
    entries, outcomes : list
        The entries that were just applied, and their outcomes.
    history : History or None
        The rows before them.
    shown : ShownIncidents
        The incidents before them.
    n_earlier : int, default=0
        Number of earlier rows that are part of a point.
    """

    def __init__(
        self,
        entries: list[Entry],
        outcomes: list[Outcome],
        history: History | None,
        shown: ShownIncidents,
        n_earlier: int = 0,
    ) -> None:
        pairs = zip(entries, outcomes, strict=True)
        self._blocks = [(entry, outcome) for entry, outcome in pairs if isinstance(outcome, list)]
        self._first_rows = [rows[0].number for _, rows in self._blocks]
        self._contents: dict[int, tuple[Labels, Array]] = {}  # labels and times in seconds, by position of the block
        self._history, self._shown, self._n_earlier = history, shown, n_earlier
        self._times, self._categories = dict[int, RowTime | None](), dict[float, Category | None]()  # found so far
        self._alarming: list[int] | None = None  # the result of `_alarming_blocks`

    def time(self, index: int) -> RowTime | None:
        """Return the time of a row, or None if it is not known."""
        if index not in self._times:
            self._times[index] = self._find_time(index)
        return self._times[index]

    def find_closing(self, incident: Incident) -> None:
        """Find the time of the row at which an incident closed, if it closed in these entries.

        If `gap` was reduced, that row may be long past. Then the time is that of the row at whose arrival the incident
        was closed.
        """
        if incident.closed is None or incident.closed in self._shown.times or incident.closed in self._times:
            return
        for position in range(max(bisect_right(self._first_rows, incident.closed) - 1, 0), len(self._blocks)):
            for row in self._blocks[position][1]:
                if row.number >= incident.closed and row.incident != incident.number:
                    self._times[incident.closed] = self._time_in(position, row.number)
                    return

    def category(self, code: float) -> Category | None:
        """Return the category with a code, or None if it is not known."""
        if code not in self._categories:
            self._categories[code] = self._find_category(code)
        return self._categories[code]

    def _find_time(self, index: int) -> RowTime | None:
        if index in self._shown.times:
            return self._shown.times[index]
        position = bisect_right(self._first_rows, index) - 1
        if position >= 0:
            return self._time_in(position, index)
        if self._history is None or any(index in rows_of_incident(incident) for incident in self._shown.incidents):
            return None  # the row belongs to an incident of a model file
        found = self._history.consecutive_rows(index, 1)
        return RowTime(found[0].time, found[0].own_time) if found else None

    def _time_in(self, position: int, index: int) -> RowTime:
        """Return the time of a row of a block."""
        entry, rows = self._blocks[position]
        return RowTime(entry.time, self._own_time(position, index - rows[0].number, len(rows)))

    def _find_category(self, code: float) -> Category | None:
        if code in self._shown.categories:
            return self._shown.categories[code]
        for position in self._alarming_blocks():
            categories = self._content_of(position)[0].categories
            if code in categories:
                return categories[code]
        if self._history is None or code in _codes_of(self._shown.incidents):
            return None  # the category belongs to an incident of a model file
        return self._history.category(code)

    def _alarming_blocks(self) -> list[int]:
        """Return the blocks with rows that are part of an anomalous point."""
        if self._alarming is None:
            alarms = [row.number for _, rows in self._blocks for row in rows if row.is_anomaly]
            spans = [(rows[0].number, rows[-1].number + self._n_earlier) for _, rows in self._blocks]
            self._alarming = [
                i for i, (first, last) in enumerate(spans) if bisect_right(alarms, last) > bisect_left(alarms, first)
            ]
        return self._alarming

    def _own_time(self, position: int, i: int, n_rows: int) -> str | None:
        """Return the time of row i of a block: as posted, or from its seconds.

        Only the latest rows of a long block have their time as posted.
        """
        labels, times = self._content_of(position)
        posted = labels.time_of(i, n_rows)
        return time_text(times[i].item()) if posted is None and times.size and not np.isnan(times[i]) else posted

    def _content_of(self, position: int) -> tuple[Labels, Array]:
        if position not in self._contents:
            _, times, labels = self._blocks[position][0].points_times_and_labels()
            self._contents[position] = labels_from(labels), np.frombuffer(times, "<f8")
        return self._contents[position]


def _pending(event: AppliedEvent, rows: _AppliedRows) -> PendingEvent:
    """Return an event with the times and categories that are needed to describe it."""
    entry, position, incident, generation, is_opening = event
    is_replaced = not is_opening and incident.is_open
    closing = rows.time(incident.closed) if incident.closed is not None else None
    opening = rows.time(incident.opened)
    time = (opening if is_opening else closing) or RowTime(entry.time, None)
    times = ((index, rows.time(index)) for index in sorted(rows_of_incident(incident)))
    categories = ((code, rows.category(code)) for code in sorted(_codes_of((incident,))))
    return PendingEvent(
        entry.number,
        position,
        is_opening,
        time.time,
        incident,
        generation,
        tuple((index, found) for index, found in times if found is not None),
        tuple((code, found) for code, found in categories if found is not None),
        entry.time if is_replaced else None,
    )


def rows_of_incident(incident: Incident) -> set[int]:
    """Return the rows that are named when an incident is shown."""
    rows = {incident.first, incident.last, incident.opened, incident.peak}
    return rows if incident.closed is None else {*rows, incident.closed}


def _with_alarms(shown: ShownIncidents, detector: StreamDetector, rows: _AppliedRows) -> ShownIncidents:
    """Return the latest incidents after alarms; no incident opened or closed, so only the last one may have changed."""
    incidents = detector.incidents
    indices = detector.alarm_rows.union(*map(rows_of_incident, incidents[-1:]))
    times = {index: time for index in indices if (time := rows.time(index)) is not None}
    codes = _codes_of(incidents[-1:]) - shown.categories.keys()
    categories = {code: found for code in codes if (found := rows.category(code)) is not None}
    return ShownIncidents(incidents, shown.generation, {**shown.times, **times}, {**shown.categories, **categories})


def _codes_of(incidents: tuple[Incident, ...]) -> set[float]:
    """Return the codes of the categories in the reasons for incidents, without the code of a missing category."""
    reasons = (reason for incident in incidents for reason in incident.reasons if reason.count is not None)
    return {reason.value for reason in reasons} - {MISSING_CODE}


def _shown(applier: EntryApplier, rows: _AppliedRows) -> ShownIncidents:
    """Return the latest incidents of a detector, with the times and categories that are needed for them."""
    detector = applier.detector
    incidents = detector.incidents
    indices = set(detector.alarm_rows).union(*map(rows_of_incident, incidents))
    codes = _codes_of(incidents)
    times = {index: time for index in sorted(indices) if (time := rows.time(index)) is not None}
    categories = {code: found for code in sorted(codes) if (found := rows.category(code)) is not None}
    return ShownIncidents(incidents, applier.generation, times, categories)

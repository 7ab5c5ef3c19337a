"""Openings and closings of incidents on a stream as JSON values, with row numbers from 1, times and categories."""

from collections.abc import Callable
from typing import Any, NamedTuple

from imondrian.alarms.incidents import Incident
from imondrian.base.errors import InvalidInputError
from imondrian.cli.stream_words import reason_texts
from imondrian.cli.watch.stream_features import StreamFeatures, has_code
from imondrian.cli.watch.time_column import MAX_TEXT, TimeValue, is_storable
from imondrian.stream.detector import StreamDetector
from imondrian.stream.incident_records import CategoryText, unknown_category

OPENED, CLOSED = "opened", "closed"  # events
ANOMALIES, SILENCE = "anomalies", "silence"  # kinds of incidents
FIELDS = (  # of the NDJSON line that describes an incident
    *("kind", "event", "incident", "first_row", "first_time", "last_row", "last_time", "opened_row", "closed_row"),
    *("closed_time", "n_alarms", "peak", "explanation"),
)


class IncidentState(NamedTuple):
    """What the model file stores: values of earlier rows that a later opening or closing may need."""

    times: dict[int, TimeValue]  # values of the time column by index of the row
    texts: dict[tuple[int, float], str]  # categories in the explanation of the open incident, by feature and code
    earlier: list[dict[int, str]]  # with a shingle: categories of the latest rows, by feature


class ProcessedRows(NamedTuple):
    """Rows that the detector has just processed."""

    first: int  # index of the first row
    values: list[list[Any]]  # of the features, in each row
    times: list[TimeValue]  # values of the time column
    is_anomaly: list[bool]


class WatchIncidents:
    """Describes the incidents of a detector; remembers times and categories, which the detector does not store.

    Parameters
    ----------
    time_column : str or None
        The time column.
    state : IncidentState
        State at the end of the previous run.
    """

    def __init__(self, time_column: str | None, state: IncidentState) -> None:
        self.time_column = time_column
        self.state = state

    def observe(self, detector: StreamDetector, features: StreamFeatures, rows: ProcessedRows) -> list[dict[str, Any]]:
        """Return the openings and closings that the detector has just reported, in their order."""
        alarms = [i for i, is_anomaly in enumerate(rows.is_anomaly) if is_anomaly]
        closings = [
            event.incident.closed - rows.first for event in detector.events if event.incident.closed is not None
        ]
        named = alarms + [i for i in closings if i >= 0]
        times = self.state.times | {rows.first + i: rows.times[i] for i in named}
        events = [
            self._as_json(event.incident, features, times, self._texts(event.incident, features, rows))
            for event in detector.events
        ]
        latest = open_incident(detector)
        self.state = IncidentState(
            {i: times[i] for i in detector.alarm_rows if i in times} if times else {},
            {} if latest is None else self._texts(latest, features, rows),
            self._latest_categories(detector.parameters["shingle"] - 1, features, rows),
        )
        return events

    def skip(self, detector: StreamDetector | None, first: int, times: list[TimeValue]) -> None:
        """Remember the time of the row that closes the open incident, if it is among rows that cannot be used.

        The detector reports the closing with the next usable row.
        """
        incident = open_incident(detector)
        if detector is None or incident is None:
            return
        closed = incident.last + detector.rules.gap
        if first <= closed < first + len(times):
            self.state = self.state._replace(times={**self.state.times, closed: times[closed - first]})

    def _latest_categories(self, n_rows: int, features: StreamFeatures, rows: ProcessedRows) -> list[dict[int, str]]:
        """Return the categories of the latest rows, which are part of the next point."""
        if n_rows == 0 or not features.categorical:
            return []
        return [*self.state.earlier, *(features.texts(values) for values in rows.values[-n_rows:])][-n_rows:]

    def _texts(self, incident: Incident, features: StreamFeatures, rows: ProcessedRows) -> dict[tuple[int, float], str]:
        """Return the categories in the reasons for an incident, by feature and code."""
        keys = [(reason.feature, reason.value) for reason in incident.reasons if reason.count is not None]
        return {key: (self.state.texts.get(key) or self._find(*key, features, rows))[:MAX_TEXT] for key in keys}

    def _find(self, feature: int, code: float, features: StreamFeatures, rows: ProcessedRows) -> str:
        """Return the category that has this code, from the latest row with it; "" if no row has it."""
        latest = (features.texts(values) for values in reversed(rows.values))
        for texts in (*latest, *reversed(self.state.earlier)):
            if feature in texts and has_code(texts[feature], code):
                return texts[feature]
        return ""

    def _as_json(
        self,
        incident: Incident,
        features: StreamFeatures,
        times: dict[int, TimeValue],
        texts: dict[tuple[int, float], str],
    ) -> dict[str, Any]:
        time = None if self.time_column is None else times.get
        return incident_as_json(
            incident, features.names, _number_of, time, lambda feature, code: texts.get((feature, code), "")
        )


def _number_of(index: int) -> int:
    """Return the number of a row, from 1."""
    return index + 1


def incident_as_json(
    incident: Incident,
    names: list[str],
    row: Callable[[int], int | None],
    time: Callable[[int], TimeValue] | None,
    category_text: CategoryText = unknown_category,
) -> dict[str, Any]:
    """Return the opening or the closing of an incident as JSON values, with row numbers and times.

    Parameters
    ----------
    incident : Incident
        The incident, as it is after the event.
    names : list of str
        The names of the features.
    row, time : callable
        Return the number, or the time, of the row with a given index; `time` is None if there is no time column.
    category_text : callable
        Returns the category of a given feature that has a given code.
    """

    def timed(name: str, index: int | None) -> dict[str, TimeValue]:
        return {} if time is None else {name: None if index is None else time(index)}

    return {
        "kind": ANOMALIES,
        "event": OPENED if incident.is_open else CLOSED,
        "incident": incident.number,
        "first_row": row(incident.first),
        **timed("first_time", incident.first),
        "last_row": row(incident.last),
        **timed("last_time", incident.last),
        "opened_row": row(incident.opened),
        "closed_row": None if incident.closed is None else row(incident.closed),
        **timed("closed_time", incident.closed),
        "n_alarms": incident.n_alarms,
        "peak": {
            "row": row(incident.peak),
            **timed("time", incident.peak),
            "anomaly_score": incident.score,
            "surprise": incident.surprise,
        },
        "explanation": "; ".join(reason_texts(incident, names, category_text)) or None,
    }


def open_incident(detector: StreamDetector | None) -> Incident | None:
    """Return the open incident of a detector; None if there is none."""
    latest = () if detector is None else detector.incidents[-1:]
    return latest[0] if latest and latest[0].is_open else None


def stored_incidents(state: IncidentState) -> dict[str, Any]:
    """Return the state in types that JSON supports; categories that are long texts are left out."""
    return {
        "times": [[i, time] for i, time in state.times.items()],
        "texts": [[feature, code, text] for (feature, code), text in state.texts.items() if _is_text(text)],
        "earlier": [[[j, text] for j, text in row.items() if _is_text(text)] for row in state.earlier],
    }


def restored_incidents(value: Any, model: str) -> IncidentState:
    """Return the state in a model file; raise InvalidInputError if it is invalid."""
    if value is None:  # written by Python code, or by an older version
        return IncidentState({}, {}, [])
    try:
        times, texts, earlier = value["times"], value["texts"], value["earlier"]
        state = IncidentState(dict(times), {(j, code): text for j, code, text in texts}, [dict(row) for row in earlier])
    except (TypeError, ValueError, KeyError):
        state = None
    if state is None or not _is_valid(state):
        raise InvalidInputError(f"{model}: the stored times and categories of incidents are invalid: {value!r:.200}.")
    return state


def _is_valid(state: IncidentState) -> bool:
    are_times = all(type(i) is int and is_storable(time) for i, time in state.times.items())
    are_texts = all(
        type(j) is int and type(code) is float and _is_text(text) for (j, code), text in state.texts.items()
    )
    are_rows = all(type(j) is int and _is_text(text) for row in state.earlier for j, text in row.items())
    return are_times and are_texts and are_rows


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and is_storable(value)

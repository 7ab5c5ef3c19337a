"""Incidents: alarms that belong together, when they open and close, and the rules that decide which alarms count."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from imondrian.base.copying import shallow_copy
from imondrian.base.defaults import GAP
from imondrian.base.errors import InvalidInputError
from imondrian.base.option_types import VIEWS, View
from imondrian.engine.alarm_runs import FIRST, LAST, N_ALARMS, PEAK, SCORE, SURPRISE, add_alarm, add_alarms
from imondrian.engine.jit import Array, call_without_dispatch
from imondrian.engine.nodes import MAX_COUNT
from imondrian.forest.inputs import as_count, number_of_text, number_or_nan

N_INCIDENTS_STORED = 64
NO_INCIDENT = -1  # in arrays of incident numbers
N_REASONS = 5  # largest number of reasons that an incident stores
SIDES = ("high", "low", "both")
_OPENS_ALONE = 1.0  # a single alarm opens an incident if its surprise is this much above the threshold: 10 times rarer
_EXPLAINED_AGAIN = 1.0  # an incident is explained again if an alarm exceeds the last explained surprise by this much

Side = Literal["high", "low", "both"]


class IncidentRules(NamedTuple):
    """Which alarms form an incident.

    An incident opens with the second alarm within `gap` rows, or at once with an alarm that is ten times rarer than the
    threshold (than 0.001, if the threshold is not based on surprise): single alarms just above the threshold are to be
    expected, one in a thousand rows by default. It goes on while alarms are at most `gap` rows apart, and closes after
    `gap` rows without one.

    Attributes
    ----------
    gap : int, default=64
        Largest distance between consecutive alarms of an incident, in rows.
    min_points : int, default=1
        Smallest number of alarms with which an incident opens; points that are not alarms do not count. With 1, a
        single alarm opens an incident only if it is ten times rarer than the threshold.
    cooldown : int, default=0
        After an incident closes, no other incident opens within this number of rows.
    side : dict, optional
        For some features, by name or index: which unusual values count, "high", "low" or "both". An alarm does not
        count if the value of the feature with the largest part in its score is unusual on the other side. The features
        must exist and be numeric.
    ignore_within : dict, optional
        For some features, by name or index: a distance from the expected value, or a share of the expected value as
        text, such as "10%". An alarm does not count if the value of the feature with the largest part in its score is
        at most this far from the expected value. The features must exist and be numeric, as for `side`.

    Examples
    --------
    >>> IncidentRules(gap=100, side={"temperature": "high"}, ignore_within={"temperature": "10%"}).gap
    100
    """

    gap: int = GAP
    min_points: int = 1
    cooldown: int = 0
    side: Mapping[Any, Side] = {}
    ignore_within: Mapping[Any, float | str] = {}

    @property
    def need_reasons(self) -> bool:
        """Whether the reasons for an alarm decide if it counts."""
        return bool(self.side or self.ignore_within)

    def as_json_value(self) -> dict[str, Any]:
        """Return the rules in types that JSON supports; rules by feature become lists of pairs."""
        pairs = {name: [list(pair) for pair in getattr(self, name).items()] for name in ("side", "ignore_within")}
        return {**self._asdict(), **pairs}


def checked_rules(rules: Any) -> IncidentRules:
    """Check the rules of a detector: IncidentRules, or a dictionary with some of their fields."""
    fields = rules._asdict() if isinstance(rules, IncidentRules) else rules
    if not isinstance(fields, Mapping):
        raise InvalidInputError(f"rules must be IncidentRules or a dictionary, but is {rules!r:.200}.")
    unknown = [name for name in fields if name not in IncidentRules._fields]
    if unknown:
        raise InvalidInputError(
            f"rules must consist of {', '.join(IncidentRules._fields)}, but {unknown[0]!r:.200} is given."
        )
    given = IncidentRules(**fields)
    return IncidentRules(
        as_count(given.gap, "gap", 1, MAX_COUNT),
        as_count(given.min_points, "min_points", 1, MAX_COUNT),
        as_count(given.cooldown, "cooldown", 0, MAX_COUNT),
        {_checked_feature(name): _checked_side(side) for name, side in _pairs(given.side, "side")},
        {_checked_feature(name): _checked_distance(d) for name, d in _pairs(given.ignore_within, "ignore_within")},
    )


def _pairs(value: Any, name: str) -> list[tuple[Any, Any]]:
    """Return the items of a dictionary, or of a list of pairs, which model files contain."""
    try:
        return [(feature, setting) for feature, setting in (value.items() if isinstance(value, Mapping) else value)]
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name} must be a dictionary, but is {value!r:.200}.") from None


def _checked_feature(feature: Any) -> Any:
    """Check the name or the index of a feature."""
    if isinstance(feature, str):
        return feature
    return as_count(feature, "the index of a feature", 0, MAX_COUNT)


def _checked_side(side: Any) -> Side:
    if side not in SIDES:
        raise InvalidInputError(f"side must be one of {', '.join(SIDES)}, but is {side!r:.200}.")
    checked: Side = side
    return checked


def _checked_distance(distance: Any) -> float | str:
    """Check a distance: a number that is not negative, or a share such as "10%"."""
    number = _share_of(distance) if isinstance(distance, str) else _number_or_none(distance)
    if number is None or not 0.0 <= number < math.inf:
        raise InvalidInputError(
            f"ignore_within must be a number of at least 0, or a share such as '10%', but is {distance!r:.200}."
        )
    return distance if isinstance(distance, str) else number


def _number_or_none(value: Any) -> float | None:
    """Return a number; None if the value is not one."""
    return float(value) if isinstance(value, (int, float, np.number)) and not isinstance(value, bool) else None


def _share_of(text: str) -> float | None:
    """Return the share that a text such as "10%" states; None for other text."""
    number = number_of_text(text.rstrip().removesuffix("%"))
    return number / 100.0 if number is not None and text.rstrip().endswith("%") else None


class AlarmReason(NamedTuple):
    """The part of one value in the score of an alarm, and what was expected instead."""

    feature: int  # index of the feature
    lag: int  # the value lies this many rows before the last row of the point; 0 without a shingle
    share: float  # of the score
    value: float  # the value; for a category, its code
    is_high: bool  # whether the value is unusually high; False for a category
    median: float  # of what was expected
    low: float  # 5 % quantile of what was expected
    high: float  # 95 % quantile of what was expected
    # number of earlier points with this category; None for a number (hides tuple.count)
    count: int | None = None  # type: ignore[assignment]
    n_points: int = 0  # number of earlier points
    view: View | None = None  # of a time series: in which view the value is unusual; None without views


class Incident(NamedTuple):
    """Alarms that belong together. Rows are identified by their index in the stream, from 0."""

    number: int  # from 0, in the order of opening
    first: int  # index of the first alarm
    last: int  # index of the last alarm so far
    n_alarms: int  # number of alarms so far
    opened: int  # index of the row at which it opened
    closed: int | None  # index of the row at which it closed; None while it is open
    peak: int  # index of the alarm with the highest surprise
    score: float  # of the peak
    surprise: float  # of the peak
    reasons: tuple[AlarmReason, ...]  # largest share first, from the latest alarm that was explained

    @property
    def is_open(self) -> bool:
        """Whether the incident is open."""
        return self.closed is None

    def as_json_value(self) -> list[Any]:
        """Return the incident in types that JSON supports."""
        return [*self[:-1], [list(reason) for reason in self.reasons]]


class IncidentEvent(NamedTuple):
    """An incident opens or closes at a row."""

    index: int  # type: ignore[assignment]  # of the row (hides tuple.index)
    incident: Incident  # as it was after the row


class _Opening(NamedTuple):
    """What is known of an open incident besides its alarms."""

    number: int
    opened: int
    reasons: tuple[AlarmReason, ...]

    def incident(self, run: Array, closed: int | None = None) -> Incident:
        """Return the incident with the alarms of a run."""
        return Incident(closed=closed, **self._asdict(), **_figures(run))


class LabelledRows(NamedTuple):
    """Consecutive rows of a stream with their labels."""

    first: int  # index of the first row
    is_alarm: Array
    score: Array
    surprise: Array


Explain = Callable[[int], tuple[AlarmReason, ...]]  # returns the reasons for the alarm at a position in LabelledRows


class IncidentTracker:
    """Finds incidents in the labels of a stream; the result does not depend on how the stream is cut into blocks.

    Attributes
    ----------
    n_opened : int
        Number of incidents so far.
    run : float64 array
        Figures of the current run, in the order given in `engine/alarm_runs.py`; all 0 if there is no current run. The
        alarms of a run are at most `gap` rows apart; they may become an incident or belong to the open one. It is an
        array so that one kernel call, which Ctrl+C cannot interrupt, can add an alarm that only continues an incident.
    """

    def __init__(self, rules: IncidentRules) -> None:
        self.rules = rules
        self.n_opened = 0
        self.run = np.zeros(6)
        self._closed: tuple[Incident, ...] = ()
        self._opening: _Opening | None = None  # of the open incident
        self._explained = 0.0  # surprise of the last alarm that was explained in the open incident

    def copy(self) -> Self:
        """Return an independent copy."""
        other = shallow_copy(self)
        other.run = self.run.copy()
        return other

    @property
    def open(self) -> Incident | None:
        """The open incident."""
        return None if self._opening is None else self._opening.incident(self.run)

    @property
    def latest(self) -> tuple[Incident, ...]:
        """The latest incidents, at most 64; only the last one may be open."""
        return self._closed if self._opening is None else (*self._closed, self._opening.incident(self.run))

    @property
    def is_quiet(self) -> bool:
        """Whether the last run of alarms has ended, or there was none: then rows without an alarm change nothing."""
        return bool(self.run[N_ALARMS] == 0.0)

    def keep_latest(self, n_incidents: int) -> None:
        """Forget all incidents but the latest ones, to save memory."""
        n_closed = max(n_incidents - (self._opening is not None), 0)
        self._closed = self._closed[max(len(self._closed) - n_closed, 0) :]

    def ends_run_at(self, index: int) -> bool:
        """Return True if the row with this index ends a run of alarms, provided that it is not an alarm itself."""
        return bool(self.run[N_ALARMS] and index - self.run[LAST] >= self.rules.gap)

    def only_continues(self, index: int, surprise: float) -> bool:
        """Return True if an alarm at the row with this index changes nothing but the run of an open incident."""
        if self._opening is None or self.rules.need_reasons or self.ends_run_at(index - 1):
            return False
        return surprise < self._explained + _EXPLAINED_AGAIN

    @property
    def alarm_rows(self) -> frozenset[int]:
        """Indices of earlier alarms that the next opening or closing may name: the first, the last and the peak."""
        return frozenset() if self.is_quiet else frozenset(map(int, self.run[[FIRST, LAST, PEAK]]))

    def number_at(self, index: int) -> int:
        """Return the number of the incident that is open after the row with this index, or NO_INCIDENT.

        If the row is an alarm, it must have been counted already.
        """
        return NO_INCIDENT if self._opening is None or self.ends_run_at(index) else self._opening.number

    def observe(
        self, rows: LabelledRows, level: float, names: list[Any] | None, explain: Explain
    ) -> tuple[Array, list[IncidentEvent]]:
        """Process labelled rows.

        Parameters
        ----------
        rows : LabelledRows
        level : float
            Surprise of the threshold or, if its rule is not based on surprise, of the default threshold.
        names : list or None
            The names of the features.
        explain : callable
            Returns the reasons for the alarm at a position in the rows.

        Returns
        -------
        numbers : int array
            For each row the number of the incident that is open after it, or -1.
        events : list of IncidentEvent
            Openings and closings, in their order.
        """
        before, events = self.open, list[IncidentEvent]()
        positions = np.flatnonzero(rows.is_alarm)
        while positions.size:
            n_counted = self._continue_incident(rows, positions)
            if n_counted == 0:
                events += self._end_run(rows.first + positions.item(0) - 1)
                events += self._count_alarm(rows, positions.item(0), level, names, explain)
            positions = positions[max(n_counted, 1) :]
        events += self._end_run(rows.first + len(rows.is_alarm) - 1)
        changed = ([] if before is None else [before]) + [event.incident for event in events]
        return _numbers(rows, {incident.number: incident for incident in changed}.values()), events

    def _continue_incident(self, rows: LabelledRows, positions: Array) -> int:
        """Count the next alarms while they only continue the open incident; return their number."""
        surprises = rows.surprise[positions]
        if not self.only_continues(rows.first + positions.item(0), float(surprises[0])):
            return 0
        ends_run = np.diff(positions, prepend=positions[0]) > self.rules.gap
        needs_explanation = surprises >= self._explained + _EXPLAINED_AGAIN
        others = np.flatnonzero(ends_run | needs_explanation)
        n_counted = others.item(0) if others.size else positions.size
        add_alarms(self.run, rows.first, positions[:n_counted], rows.score, rows.surprise)
        return n_counted

    def _end_run(self, index: int) -> list[IncidentEvent]:
        """End the run of alarms, and close the incident, if the last alarm is at least `gap` rows before this row."""
        if not self.ends_run_at(index):
            return []
        run, opening = self.run, self._opening
        self.run, self._opening = np.zeros(6), None
        if opening is None:
            return []
        closed = int(run[LAST]) + self.rules.gap
        incident = opening.incident(run, closed)
        self._closed = (*self._closed, incident)
        return [IncidentEvent(closed, incident)]

    def _count_alarm(
        self, rows: LabelledRows, position: int, level: float, names: list[Any] | None, explain: Explain
    ) -> list[IncidentEvent]:
        """Count an alarm in the run; open an incident, or add the alarm to the open one."""
        reasons = explain(position) if self.rules.need_reasons else None
        if reasons is not None and self._is_ignored(reasons, names):
            return []
        index, surprise = rows.first + position, float(rows.surprise[position])
        call_without_dispatch(add_alarm, self.run, index, float(rows.score[position]), surprise)
        opens = self._opens(index, surprise, level)
        if not opens and (self._opening is None or surprise < self._explained + _EXPLAINED_AGAIN):
            return []
        reasons, self._explained = explain(position) if reasons is None else reasons, surprise
        if self._opening is not None:
            self._opening = self._opening._replace(reasons=reasons)
            return []
        self._opening = _Opening(self.n_opened, index, reasons)
        self._closed = self._closed[-(N_INCIDENTS_STORED - 1) :]
        self.n_opened += 1
        return [IncidentEvent(index, self._opening.incident(self.run))]

    def _opens(self, index: int, surprise: float, level: float) -> bool:
        """Return True if an incident opens with the last alarm of the run, at the row with this index."""
        if self._opening is not None:
            return False
        closed, n_alarms = self._closed[-1].closed if self._closed else None, self.run[N_ALARMS]
        is_cool = closed is None or index > closed + self.rules.cooldown
        is_rare = n_alarms > 1 or surprise >= level + _OPENS_ALONE
        return is_cool and is_rare and n_alarms >= self.rules.min_points

    def _is_ignored(self, reasons: tuple[AlarmReason, ...], names: list[Any] | None) -> bool:
        """Return True if an alarm does not count because of the side or the distance of its main feature."""
        if not reasons:
            return False
        main = reasons[0]
        keys = self._keys_of(main.feature, names)
        side: Any = next((self.rules.side[key] for key in keys if key in self.rules.side), "both")
        distance = next((self.rules.ignore_within[key] for key in keys if key in self.rules.ignore_within), None)
        if side != "both" and main.is_high != (side == "high"):
            return True
        return distance is not None and abs(main.value - main.median) <= _distance(distance, main.median)

    @staticmethod
    def _keys_of(feature: int, names: list[Any] | None) -> tuple[Any, ...]:
        """Return how rules may refer to a feature: by its name, or by its index unless that is also a name."""
        if names is None:
            return (feature,)
        return (names[feature],) if feature in names else (names[feature], feature)

    # -- saving -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the state, without the rules, in types that JSON supports."""
        return {
            "latest": [incident.as_json_value() for incident in self.latest],
            "n_opened": self.n_opened,
            "run": None if self.is_quiet else list(_figures(self.run).values()),
            "explained": self._explained,
        }

    def restore(self, state: dict[str, Any], n_seen: int, n_features: int = MAX_COUNT, n_rows: int = MAX_COUNT) -> None:
        """Restore what `state` returned for a stream of n_seen rows.

        A point consists of n_rows rows with n_features features each.

        Raises
        ------
        ValueError
            If the state is invalid or contradicts itself.
        """
        self.n_opened = as_count(state["n_opened"], "the number of incidents", 0, n_seen)
        latest = [restored_incident(values, n_seen) for values in state["latest"]]
        numbers = [incident.number for incident in latest]
        is_expected = numbers == list(range(self.n_opened - len(latest), self.n_opened))
        if len(latest) > N_INCIDENTS_STORED or not is_expected or any(incident.is_open for incident in latest[:-1]):
            raise ValueError(
                f"the stored incidents must be the latest of {self.n_opened}, without gaps and at most"
                f" {N_INCIDENTS_STORED}, and only the last may be open, but their numbers are {numbers}."
            )
        self.run = np.zeros(6) if state["run"] is None else _restored_run(state["run"], n_seen)
        self._explained = _finite(state["explained"])
        self._closed, self._opening = tuple(incident for incident in latest if not incident.is_open), None
        if latest and latest[-1].is_open:
            self._opening = _Opening(latest[-1].number, latest[-1].opened, latest[-1].reasons)
            if self.open != latest[-1]:
                raise ValueError("the open incident does not match the latest alarms.")
        reasons = [reason for incident in self.latest for reason in incident.reasons]
        if any(reason.feature >= n_features or reason.lag >= n_rows for reason in reasons):
            raise ValueError(
                f"a reason for an incident must name one of {n_features} features and one of {n_rows} rows of a point."
            )


def _numbers(rows: LabelledRows, incidents: Any) -> Array:
    """Return for each row the number of the incident that is open after it, or NO_INCIDENT."""
    numbers = np.full(len(rows.is_alarm), NO_INCIDENT)
    for incident in incidents:
        first = max(incident.opened - rows.first, 0)
        end = len(numbers) if incident.closed is None else max(incident.closed - rows.first, 0)
        numbers[first:end] = incident.number
    return numbers


def _figures(run: Array) -> dict[str, Any]:
    """Return the fields of an incident that consists of the alarms of a run."""
    names = {"first": FIRST, "last": LAST, "n_alarms": N_ALARMS, "peak": PEAK}
    counts: dict[str, Any] = {name: int(run[i]) for name, i in names.items()}
    return counts | {"score": run.item(SCORE), "surprise": run.item(SURPRISE)}


def _distance(distance: float | str, expected: float) -> float:
    """Return a distance, which may be a share of the expected value."""
    if isinstance(distance, str):
        return (_share_of(distance) or 0.0) * abs(expected)
    return distance


def restored_incident(values: Any, n_seen: int) -> Incident:
    """Return an incident from its JSON value, for a stream of n_seen rows; raise ValueError if it is invalid."""
    number, first, last, n_alarms, opened, closed, peak, score, surprise, reasons = values
    first = as_count(first, "the first row of an incident", 0, n_seen)
    opened = as_count(opened, "the row at which an incident opened", first, n_seen)
    last = as_count(last, "the last row of an incident", opened, n_seen)
    if len(reasons) > N_REASONS:
        raise ValueError(f"an incident has {len(reasons)} reasons, but at most {N_REASONS} are stored.")
    return Incident(
        as_count(number, "the number of an incident", 0, n_seen),
        first,
        last,
        as_count(n_alarms, "the number of alarms", 1, last - first + 1),
        opened,
        None if closed is None else as_count(closed, "the row at which an incident closed", last, n_seen),
        as_count(peak, "the peak of an incident", first, last),
        _finite(score),
        _finite(surprise),
        tuple(_restored_reason(*reason) for reason in reasons),
    )


def _restored_reason(*values: Any) -> AlarmReason:
    reason = AlarmReason(*values)
    feature, lag, n_points = (
        as_count(number, "a number of a reason", 0, MAX_COUNT)
        for number in (reason.feature, reason.lag, reason.n_points)
    )
    if reason.view not in (None, *VIEWS):
        raise ValueError(f"the view of a reason must be one of {', '.join(VIEWS)}, but is {reason.view!r:.200}.")
    numbers: dict[str, Any] = {
        name: _finite(getattr(reason, name)) for name in ("share", "value", "median", "low", "high")
    }
    n_same = None if reason.count is None else as_count(reason.count, "the count of a category", 0, n_points)
    low, high = numbers["low"], numbers["high"]
    if n_same is None and not 0.0 <= high - low < math.inf:
        raise ValueError(f"the expected range of a reason must be finite and ascending, but is {low!r} to {high!r}.")
    return reason._replace(
        feature=feature, lag=lag, is_high=bool(reason.is_high), count=n_same, n_points=n_points, **numbers
    )


def _restored_run(values: Any, n_seen: int) -> Array:
    first, last, n_alarms, peak, score, surprise = values
    first = as_count(first, "the first alarm", 0, n_seen)
    last = as_count(last, "the last alarm", first, n_seen)
    n_alarms = as_count(n_alarms, "the number of alarms", 1, last - first + 1)
    peak = as_count(peak, "the peak", first, last)
    return np.array([first, last, n_alarms, peak, _finite(score), _finite(surprise)])


def _finite(value: Any) -> float:
    """Return a number from a file; raise ValueError if it is not finite."""
    number = number_or_nan(value)
    if not math.isfinite(number):
        raise ValueError(f"the numbers of an incident must be finite numbers, but one is {value!r:.200}.")
    return number

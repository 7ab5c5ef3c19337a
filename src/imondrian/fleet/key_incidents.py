"""The incidents of the keys of a fleet: how a block of rows changes them, and the latest incidents of all keys."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from imondrian.alarms.incidents import (
    NO_INCIDENT,
    AlarmReason,
    Explain,
    Incident,
    IncidentRules,
    IncidentTracker,
)
from imondrian.engine.jit import Array
from imondrian.fleet.blocks import KeyedBlock
from imondrian.fleet.keys import Key
from imondrian.fleet.results import KeyEvent, KeyIncident
from imondrian.forest.samplers import Window
from imondrian.stream.alarm_reasons import AlarmExplainer

N_INCIDENTS_STORED = 1024  # latest incidents of all keys
_IncidentId = tuple[Key, int]  # the key, and the number of the incident among those of the key


class IncidentSettings(NamedTuple):
    """How alarms become incidents."""

    rules: IncidentRules
    level: float  # surprise of the threshold; see `block_scoring.alarm_level`
    names: list[Any] | None  # names of the features


class IncidentChanges(NamedTuple):
    """The changes that a block makes to the incidents. Applying them twice has the same effect as once."""

    open_numbers: Array  # for each row, the number of the key's incident that is open after it, or NO_INCIDENT
    trackers: dict[Key, IncidentTracker]  # those that changed
    incidents: dict[_IncidentId, Incident]  # those that opened or changed
    opened: tuple[_IncidentId, ...]  # at most N_INCIDENTS_STORED, in the order of opening
    events: tuple[KeyEvent, ...]


def incident_changes(
    block: KeyedBlock,
    trackers: dict[Key, IncidentTracker],
    settings: IncidentSettings,
    explainer_of: Callable[[int], Explain],
) -> IncidentChanges:
    """Return the changes that a block, whose rows are labelled, makes to the incidents.

    Parameters
    ----------
    block : KeyedBlock
    trackers : dict
        The incidents of the keys that have had an alarm; they are not changed.
    settings : IncidentSettings
    explainer_of : function
        `explainer_of(i)` returns a function that explains the alarms of key i of the block.
    """
    open_numbers = np.full(len(block.keys), NO_INCIDENT)
    changed, found = dict[Key, IncidentTracker](), list[tuple[int, KeyEvent]]()
    for i in _keys_to_observe(block, trackers):
        key, rows, labelled = block.key_of(i), block.rows_of(i), block.labelled_rows(i)
        before = trackers.get(key)
        tracker = changed[key] = IncidentTracker(settings.rules) if before is None else before.copy()
        tracker.rules = settings.rules
        open_numbers[rows], events = tracker.observe(labelled, settings.level, settings.names, explainer_of(i))
        tracker.keep_latest(1)
        # if the rules were changed, an incident may have closed before the first row of the block
        positions = [max(event.index - labelled.first, 0) for event in events]
        found += [(int(rows[p]), KeyEvent(key, event)) for p, event in zip(positions, events, strict=True)]
    found.sort(key=lambda pair: pair[0])
    events_in_order = tuple(event for _, event in found)
    incidents = {(key, event.incident.number): event.incident for key, event in events_in_order}
    incidents |= {(key, latest.number): latest for key in changed for latest in changed[key].latest}
    opened = [(key, event.incident.number) for key, event in events_in_order if event.incident.is_open]
    return IncidentChanges(open_numbers, changed, incidents, tuple(opened[-N_INCIDENTS_STORED:]), events_in_order)


def _keys_to_observe(block: KeyedBlock, trackers: dict[Key, IncidentTracker]) -> list[int]:
    """Return the numbers of the keys whose incidents may change: keys with an alarm in the block or shortly before."""
    observed = set(block.keys_with_alarms())
    if trackers:
        keys = map(block.key_of, range(len(block.used)))
        observed |= {i for i, key in enumerate(keys) if key in trackers and not trackers[key].is_quiet}
    return sorted(observed)


class LatestIncidents:
    """The latest incidents of all keys, in the order of opening.

    Parameters
    ----------
    incidents : iterable of KeyIncident, default=()
        In the order of opening.
    """

    def __init__(self, incidents: Iterable[KeyIncident] = ()) -> None:
        latest = [((key, incident.number), incident) for key, incident in incidents]
        self._incidents: OrderedDict[_IncidentId, Incident] = OrderedDict(latest[-N_INCIDENTS_STORED:])

    def __iter__(self) -> Iterator[KeyIncident]:
        return (KeyIncident(key, incident) for (key, _), incident in self._incidents.items())

    def apply(self, changes: IncidentChanges) -> None:
        """Update the incidents that changed, and add those that opened."""
        for incident_id, incident in changes.incidents.items():
            if incident_id in self._incidents:
                self._incidents[incident_id] = incident
        for incident_id in changes.opened:
            self._incidents[incident_id] = changes.incidents[incident_id]
        while len(self._incidents) > N_INCIDENTS_STORED:
            self._incidents.popitem(last=False)

    def forget(self, keys: Iterable[Key]) -> None:
        """Remove the incidents of keys."""
        forgotten = set(keys)
        for incident_id in [incident_id for incident_id in self._incidents if incident_id[0] in forgotten]:
            self._incidents.pop(incident_id, None)


class _WindowPoints(NamedTuple):
    """The points of a key's window, for explanations."""

    sampler: Window

    def numbered_points(self, first: int, end: int) -> Array:
        """Return those points with the numbers first, ..., end - 1 that are in the window, oldest first."""
        return self.sampler.numbered_points(first, end)

    def n_numbered_points(self, first: int, end: int) -> int:
        """Return how many of the points with the numbers first, ..., end - 1 are in the window."""
        return self.sampler.n_numbered_points(first, end)


def alarm_explainer(block: KeyedBlock, i: int, prepare: Callable[[], tuple[dict[str, Any], Window]]) -> Explain:
    """Return a function that explains the alarm at a given position among the rows of key i in the block.

    `prepare` returns the parameters of the key's detector, and its window after the block. It is called at most once,
    and only if an alarm is explained.
    """

    @cache
    def prepared() -> tuple[AlarmExplainer, _WindowPoints]:
        parameters, window = prepare()
        return AlarmExplainer(parameters), _WindowPoints(window)

    def reasons(position: int) -> tuple[AlarmReason, ...]:
        explainer, points = prepared()
        return explainer.reasons(points, block.number_of(i, position), None)

    return reasons

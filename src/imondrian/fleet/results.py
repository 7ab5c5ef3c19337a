"""The results of a fleet: scores and labels of rows, and incidents by key."""

from typing import NamedTuple

import numpy as np

from imondrian.alarms.incidents import Incident, IncidentEvent
from imondrian.engine.jit import Array
from imondrian.fleet.keys import Key


class FleetResult(NamedTuple):
    """The result of one row."""

    score: float  # in (0, 1), high is anomalous; NaN for a skipped row
    is_anomaly: bool  # whether the score lies above the threshold; False during the warm-up, unless borrowed
    threshold: float  # the threshold for this row, computed from the rows before it
    index: int  # type: ignore[assignment]  # index of the row among the rows of its key, from 0 (hides tuple.index)
    surprise: float  # -log10 of the probability that an ordinary recent row scores as high
    incident: int | None  # number of the key's incident that is open after the row; None if no incident is open
    is_borrowed: bool  # True if score and label come from the common forest, because the key has not warmed up


class FleetResults(NamedTuple):
    """The results of many rows: the fields of `FleetResult` as arrays; `incident` is -1 where no incident is open."""

    score: Array
    is_anomaly: Array
    threshold: Array
    index: Array  # type: ignore[assignment]
    surprise: Array
    incident: Array
    is_borrowed: Array


class KeyIncident(NamedTuple):
    """An incident of one key."""

    key: Key
    incident: Incident


class KeyEvent(NamedTuple):
    """The opening or closing of an incident of one key."""

    key: Key
    event: IncidentEvent


class KeyAlarms(NamedTuple):
    """The alarms of one key that may still belong to an incident; see `Fleet.latest_alarms`."""

    key: Key
    incident: Incident | None  # the open incident, or None
    rows: frozenset[int]  # indices of the alarms to which the next event may refer: the first, the last and the peak


class KeyChanges(NamedTuple):
    """The keys of a fleet that have changed; see `Fleet.key_changes`."""

    changed: list[Key]  # including new keys; the least recently used one first
    removed: list[Key]  # forgotten or dropped


def joined(results: list[FleetResults]) -> FleetResults:
    """Return the results of consecutive blocks as one."""
    if not results:
        numbers, integers, flags = np.empty(0), np.empty(0, np.int64), np.empty(0, np.bool_)
        return FleetResults(numbers, flags, numbers, integers, numbers, integers, flags)
    return results[0] if len(results) == 1 else FleetResults(*map(np.concatenate, zip(*results, strict=True)))

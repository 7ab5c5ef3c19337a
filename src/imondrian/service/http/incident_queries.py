"""Answers to requests for incidents: of one detector, and of all."""

import logging
from collections.abc import Iterable
from heapq import nlargest
from typing import Any

from imondrian.service.detectors.registry import DetectorHandle
from imondrian.service.http import schemas
from imondrian.service.storage.incident_log import ListedIncident, silence_as_json

_LOG = logging.getLogger("imondrian.service")


def incidents_of(handles: Iterable[DetectorHandle], limit: int, *, only_open: bool = False) -> schemas.Incidents:
    """Return the incidents of detectors, open ones first, then by time, latest first."""
    found = (each for handle in handles for each in _found(handle) if each.is_open or not only_open)
    described = map(_described, nlargest(limit, found, key=lambda each: each[:3]))  # sorting all would hold the GIL
    return schemas.Incidents(incidents=[each for each in described if each is not None])


def n_open_incidents(handle: DetectorHandle) -> int:
    """Return how many incidents of a detector are open."""
    return handle.worker.incidents.n_open + handle.worker.is_silent


def _found(handle: DetectorHandle) -> list[ListedIncident]:
    """Return the incidents of anomalies and of missing data of a detector."""
    worker = handle.worker
    found = worker.incidents.listed()
    for silence in worker.silences:

        def describe_silence(silence: Any = silence) -> dict[str, Any]:
            return silence_as_json(worker.id, worker.name, *silence)

        found.append(ListedIncident(silence.closed is None, silence.opened, silence.number, describe_silence))
    return found


def _described(found: ListedIncident) -> schemas.Incident | None:
    """Return an incident as part of a response. If that fails, log the error and return None: the others are shown."""
    try:
        return schemas.Incident(**found.describe())
    except Exception:  # noqa: BLE001 (one incident must not hide those of all detectors)
        _LOG.exception("Incident %d of a detector cannot be shown.", found.number)
        return None

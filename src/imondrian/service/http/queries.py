"""Answers to read requests: descriptions, scores, explanations, the latest rows, and incidents.

Scores and explanations use a copy of the detector, so they do not wait for learning.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from heapq import nlargest
from typing import Any

import numpy as np

from imondrian.base.defaults import SERIES
from imondrian.rows.named_rows import CodedRows
from imondrian.service.changes.expected_rows import ExpectedRow
from imondrian.service.changes.posted_rows import PostedRows, RowFormat
from imondrian.service.detectors.registry import DetectorHandle
from imondrian.service.errors import NotFoundError
from imondrian.service.http import schemas
from imondrian.service.http.reasons import PointExplainer
from imondrian.service.storage.history import HistoryRow
from imondrian.service.storage.incident_log import ListedIncident, silence_as_json
from imondrian.stream.detector import StreamDetector
from imondrian.stream.series_views import TimeCounts

_LOG = logging.getLogger("imondrian.service")
MAX_POINTS_ON_SHARED_COPY = 100  # making a private copy would cost more than reading so few points


def description_of(handle: DetectorHandle) -> schemas.Description:
    """Return the description of a detector."""
    worker, summary = handle.worker, handle.worker.summary
    return schemas.Description(
        name=handle.record.name,
        created=handle.record.created,
        configuration=schemas.Configuration(**handle.configuration),
        n_seen=summary.n_seen,
        n_waiting=worker.n_waiting,
        n_anomalies=worker.counts.n_anomalies,
        n_incidents=worker.counts.n_incidents + handle.n_silences,
        n_open_incidents=handle.n_open_incidents,
        surprise=worker.view.latest_surprise,
        threshold=schemas.known_number(summary.threshold),
        is_warm=summary.is_warm,
        n_bytes=summary.n_bytes,
        n_missing=summary.n_missing,
        drifts=[schemas.Drift(**drift._asdict()) for drift in summary.drifts],
        times=_times_of(summary.time_counts),
        n_keys=summary.n_keys,
    )


def _times_of(counts: TimeCounts | None) -> schemas.Times | None:
    """Return what was noticed about the times of a series."""
    return None if counts is None else schemas.Times(**counts._asdict() | {"step": schemas.known_number(counts.step)})


def scores_of(handle: DetectorHandle, rows: PostedRows) -> schemas.Scores:
    """Return the score of each point, as if it were the next point of the stream."""
    with _detector_to_read(handle, len(rows.points)) as detector:
        scores = detector.score(rows.points.view(CodedRows), rows.times)
        return schemas.Scores(
            anomaly_score=scores.tolist(),
            surprise=detector.surprise(scores).tolist(),
            threshold=detector.threshold_score,
            n_seen=detector.n_seen,
        )


def explanations_of(handle: DetectorHandle, rows: PostedRows) -> schemas.Explanations:
    """Return the score of each point divided among the features, as if it were the next point of the stream."""
    categorical = handle.row_format.categorical if isinstance(handle.row_format, RowFormat) else ()
    values = rows.labels.values(rows.points, categorical)
    with _detector_to_read(handle, len(rows.points)) as detector:
        explainer = PointExplainer(detector, handle.record.configuration["features"])
        times = [None] * len(values) if rows.times is None else rows.times.tolist()
        explained = [
            explainer.next_point(point, posted, time)
            for point, posted, time in zip(rows.points.view(CodedRows), values, times, strict=True)
        ]
        scores = detector.score(rows.points.view(CodedRows), rows.times)
        surprises = detector.surprise(scores)
    explanations = [
        schemas.Explanation(anomaly_score=score, surprise=surprise, explanation=reasons)
        for score, surprise, reasons in zip(scores.tolist(), surprises.tolist(), explained, strict=True)
    ]
    return schemas.Explanations(explanations=explanations)


def history_of(handle: DetectorHandle, after: int, limit: int) -> schemas.History:
    """Return the latest rows and their scores."""
    rows = handle.worker.history.rows(after)[-limit:]
    return schemas.History(
        index=[row.number for row in rows],
        time=[row.time for row in rows],
        own_time=[row.own_time for row in rows],
        values=[row.values for row in rows],
        anomaly_score=[row.score for row in rows],
        surprise=[schemas.known_number(row.surprise) for row in rows],
        threshold=[row.threshold for row in rows],
        is_anomaly=[row.is_anomaly for row in rows],
        incident=[schemas.known_incident(row.incident) for row in rows],
        **_expected_ranges(handle, rows),
        key=None,
        is_borrowed=None,
    )


def _expected_ranges(handle: DetectorHandle, rows: list[HistoryRow]) -> dict[str, Any]:
    """Return the ranges in which the values of each row of a series were expected."""
    if handle.record.configuration["preset"] != SERIES:
        return {"expected_low": None, "expected_high": None}
    expected = [ExpectedRow.from_bytes(row.expected) for row in rows]
    return {
        "expected_low": [list(map(schemas.known_number, row.low.tolist())) for row in expected],
        "expected_high": [list(map(schemas.known_number, row.high.tolist())) for row in expected],
    }


def explanation_of_row(handle: DetectorHandle, number: int) -> schemas.ExplainedRow:
    """Return a learned row, explained by the current detector as if the window did not hold the row."""
    names, size = handle.record.configuration["features"], handle.record.configuration["shingle"]
    rows = handle.worker.history.consecutive_rows(number, size)
    if not rows:
        raise NotFoundError(f"Row {number} is no longer among the latest rows, or has not been seen.")
    last, detector = rows[-1], handle.worker.read_copy.private_copy()
    return schemas.ExplainedRow(
        index=last.number,
        time=last.time,
        own_time=last.own_time,
        values=last.values,
        anomaly_score=last.score,
        surprise=schemas.known_number(last.surprise),
        threshold=last.threshold,
        is_anomaly=last.is_anomaly,
        incident=schemas.known_incident(last.incident),
        explanation=_learned_reasons(PointExplainer(detector, names), rows),
        key=None,
        is_borrowed=None,
    )


def _learned_reasons(explainer: PointExplainer, rows: list[HistoryRow]) -> list[schemas.Reason]:
    """Return the reasons for the score of a point, which consists of consecutive rows."""
    last, points, values = rows[-1], np.array([row.point for row in rows]), [row.values for row in rows]
    if not last.expected:
        return explainer.learned_point(points, values, last.score)
    usual = ExpectedRow.from_bytes(last.expected).usual
    return explainer.learned_row(points[-1], values[-1], usual, last.score)


@contextmanager
def _detector_to_read(handle: DetectorHandle, n_points: int) -> Iterator[StreamDetector]:
    """Yield the shared copy of a detector or, for many points, a private copy, so that other reads need not wait."""
    if n_points > MAX_POINTS_ON_SHARED_COPY:
        yield handle.worker.read_copy.private_copy()
    else:
        with handle.worker.read_copy.read() as detector:
            yield detector


def incidents_of(handles: Iterable[DetectorHandle], limit: int, *, only_open: bool = False) -> schemas.Incidents:
    """Return the incidents of detectors, open ones first, then by time, latest first."""
    found = (each for handle in handles for each in _listed_incidents(handle) if each.is_open or not only_open)
    latest = nlargest(limit, found, key=lambda each: each[:3])  # sorting all would hold the GIL
    return schemas.Incidents(incidents=[each for each in map(_described_incident, latest) if each is not None])


def _listed_incidents(handle: DetectorHandle) -> list[ListedIncident]:
    """Return the incidents of anomalies and of missing data of a detector."""
    worker = handle.worker
    found = worker.incidents.listed()
    for silence in worker.silences:

        def describe_silence(silence: Any = silence) -> dict[str, Any]:
            return silence_as_json(worker.id, worker.name, *silence)

        found.append(ListedIncident(silence.closed is None, silence.opened, silence.number, describe_silence))
    return found


def _described_incident(found: ListedIncident) -> schemas.Incident | None:
    """Return an incident as part of a response. If that fails, log the error and return None: the others are shown."""
    try:
        return schemas.Incident(**found.describe())
    except Exception:  # noqa: BLE001 (one incident must not hide those of all detectors)
        _LOG.exception("Incident %d of a detector cannot be shown.", found.number)
        return None

"""Answers to read requests, and Prometheus metrics.

Scores and explanations use a copy of the detector, so they do not wait for learning.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from imondrian.alarms.incidents import NO_INCIDENT
from imondrian.base.defaults import SERIES
from imondrian.rows.named_rows import CodedRows
from imondrian.service.changes.expected_rows import ExpectedRow
from imondrian.service.changes.posted_rows import PostedRows, RowFormat
from imondrian.service.delivery.notifier import Channel
from imondrian.service.detectors.registry import DetectorHandle, Registry
from imondrian.service.errors import NotFoundError
from imondrian.service.http import schemas
from imondrian.service.http.incident_queries import n_open_incidents
from imondrian.service.http.reasons import PointExplainer
from imondrian.service.storage.history import HistoryRow
from imondrian.stream.detector import StreamDetector
from imondrian.stream.series_views import TimeCounts

MAX_POINTS_ON_SHARED_COPY = 100  # for so few points, making a private copy would cost more


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
        n_incidents=_n_incidents(handle),
        n_open_incidents=n_open_incidents(handle),
        surprise=worker.view.latest_surprise,
        threshold=known_number(summary.threshold),
        is_warm=summary.is_warm,
        n_bytes=summary.n_bytes,
        n_missing=summary.n_missing,
        drifts=[schemas.Drift(**drift._asdict()) for drift in summary.drifts],
        times=_times_of(summary.time_counts),
        n_keys=summary.n_keys,
    )


def _times_of(counts: TimeCounts | None) -> schemas.Times | None:
    """Return what was noticed about the times of a series."""
    return None if counts is None else schemas.Times(**counts._asdict() | {"step": known_number(counts.step)})


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
        surprise=[known_number(row.surprise) for row in rows],
        threshold=[row.threshold for row in rows],
        is_anomaly=[row.is_anomaly for row in rows],
        incident=[number_or_none(row.incident) for row in rows],
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
        "expected_low": [list(map(known_number, row.low.tolist())) for row in expected],
        "expected_high": [list(map(known_number, row.high.tolist())) for row in expected],
    }


def known_number(value: float) -> float | None:
    """Return a number, or None if it is NaN, that is, not known, like the surprise of rows of earlier versions."""
    return None if math.isnan(value) else value


def number_or_none(incident: int) -> int | None:
    """Return the number of an incident, or None for NO_INCIDENT."""
    return None if incident == NO_INCIDENT else incident


def _n_incidents(handle: DetectorHandle) -> int:
    return handle.worker.counts.n_incidents + _n_silences(handle)


def _n_silences(handle: DetectorHandle) -> int:
    silences = handle.worker.silences
    return silences[-1].number + 1 if silences else 0


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
        surprise=known_number(last.surprise),
        threshold=last.threshold,
        is_anomaly=last.is_anomaly,
        incident=number_or_none(last.incident),
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


_METRICS: dict[str, tuple[str, str, Callable[[DetectorHandle], float | None]]] = {
    "points_total": ("counter", "Points learned.", lambda handle: handle.worker.counts.n_points),
    "anomalies_total": (
        "counter",
        "Anomalies among the points learned.",
        lambda handle: handle.worker.counts.n_anomalies,
    ),
    "requests_total": ("counter", "Requests applied.", lambda handle: handle.worker.n_requests),
    "waiting_points": ("gauge", "Points in the queue.", lambda handle: handle.worker.n_waiting),
    "state_bytes": ("gauge", "Memory of the detector in bytes.", lambda handle: handle.worker.summary.n_bytes),
    "threshold": (
        "gauge",
        "Score above which a point is an anomaly.",
        lambda handle: known_number(handle.worker.summary.threshold),
    ),
    "keys": ("gauge", "Keys of the detector.", lambda handle: handle.worker.summary.n_keys),
    "missing_total": (
        "counter",
        "Missing numbers so far.",
        lambda handle: handle.worker.summary.n_missing,
    ),
    "drifts_total": ("counter", "Drifts reported.", lambda handle: handle.worker.summary.n_drifts),
    "incidents_total": (
        "counter",
        "Incidents of anomalies opened.",
        lambda handle: handle.worker.counts.n_incidents,
    ),
    "silences_total": ("counter", "Incidents of missing data opened.", _n_silences),
    "open_incidents": ("gauge", "Incidents that are open.", n_open_incidents),
    "surprise": (
        "gauge",
        "Surprise of the latest point: -log10 of the probability that an ordinary point scores as high.",
        lambda handle: handle.worker.view.latest_surprise or 0.0,
    ),
}
_SERIES_METRICS: dict[str, tuple[str, str, Callable[[TimeCounts], float]]] = {
    "late_points_total": ("counter", "Points of a series that were late.", lambda counts: counts.n_late),
    "repeated_times_total": ("counter", "Points of a series with a repeated time.", lambda counts: counts.n_repeated),
    "holes_total": ("counter", "Holes in a series.", lambda counts: counts.n_holes),
    "step_seconds": (
        "gauge",
        "Usual time between two points of a series.",
        lambda counts: known_number(counts.step) or 0.0,
    ),
}
_NOTIFICATION_METRICS: dict[str, tuple[str, str, Callable[[Channel], float]]] = {
    "notifications_sent_total": ("counter", "Notifications accepted.", lambda channel: channel.counts.n_sent),
    "notifications_failed_total": (
        "counter",
        "Failed attempts to send a notification since the start.",
        lambda channel: channel.n_failed,
    ),
    "notifications_given_up_total": (
        "counter",
        "Notifications given up.",
        lambda channel: channel.counts.n_given_up,
    ),
    "notifications_waiting": ("gauge", "Notifications that wait.", lambda channel: channel.counts.n_waiting),
}


def metrics_of(registry: Registry) -> str:
    """Return the metrics of all detectors and receivers in the text format of Prometheus."""
    detectors = registry.all()
    lines = ["# HELP imondrian_detectors Number of detectors.", "# TYPE imondrian_detectors gauge"]
    lines.append(f"imondrian_detectors {len(detectors)}")
    lines += [
        "# HELP imondrian_detectors_set_aside Number of detectors that could not be recovered at the start.",
        "# TYPE imondrian_detectors_set_aside gauge",
        f"imondrian_detectors_set_aside {registry.n_set_aside}",
    ]
    for name, (kind, help_text, value) in _METRICS.items():
        lines += [f"# HELP imondrian_{name} {help_text}", f"# TYPE imondrian_{name} {kind}"]
        figures = ((handle.record.name, value(handle)) for handle in detectors)
        lines += [f'imondrian_{name}{{detector="{label}"}} {each}' for label, each in figures if each is not None]
    lines += _lines_of_series(detectors)
    for name, (kind, help_text, figure) in _NOTIFICATION_METRICS.items() if registry.notifier.channels else ():
        lines += [f"# HELP imondrian_{name} {help_text}", f"# TYPE imondrian_{name} {kind}"]
        lines += [
            f'imondrian_{name}{{receiver="{_label(channel)}"}} {figure(channel)}'
            for channel in registry.notifier.channels
        ]
    return "\n".join(lines) + "\n"


def _lines_of_series(detectors: list[DetectorHandle]) -> list[str]:
    """Return the metrics of the detectors whose preset is "series"."""
    counts = {handle.record.name: handle.worker.summary.time_counts for handle in detectors}
    series = {name: found for name, found in counts.items() if found is not None}
    lines: list[str] = []
    for name, (kind, help_text, value) in _SERIES_METRICS.items() if series else ():
        lines += [f"# HELP imondrian_{name} {help_text}", f"# TYPE imondrian_{name} {kind}"]
        lines += [f'imondrian_{name}{{detector="{detector}"}} {value(found)}' for detector, found in series.items()]
    return lines


def _label(channel: Channel) -> str:
    """Return the label of a receiver; it is printable ASCII."""
    return channel.label.replace("\\", "\\\\").replace('"', '\\"')

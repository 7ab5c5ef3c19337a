"""Answers to read requests, and Prometheus metrics.

Scores and explanations use a copy of the detector, so they do not wait for learning.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from imondrian.engine.jit import Array
from imondrian.named_rows import CodedRows
from imondrian.service import schemas
from imondrian.service.errors import NotFoundError
from imondrian.service.posted_rows import PostedRows
from imondrian.service.reasons import PointExplainer
from imondrian.service.registry import DetectorHandle, Registry
from imondrian.stream import StreamDetector

MAX_POINTS_ON_SHARED_COPY = 100  # for so few, a private copy would cost more


def description_of(handle: DetectorHandle) -> schemas.Description:
    """Return the description of a detector."""
    worker, summary = handle.worker, handle.worker.summary
    return schemas.Description(
        name=handle.record.name,
        created=handle.record.created,
        configuration=schemas.Configuration(**handle.record.configuration),
        n_seen=summary.n_seen,
        n_waiting=worker.n_waiting,
        n_anomalies=worker.counts.n_anomalies,
        threshold=summary.threshold,
        is_warm=summary.is_warm,
        n_bytes=summary.n_bytes,
        n_missing=summary.n_missing,
        drifts=[schemas.Drift(**drift._asdict()) for drift in summary.drifts],
    )


def scores_of(handle: DetectorHandle, points: Array) -> schemas.Scores:
    """Return the scores of points, each as if it were the next point of the stream."""
    with _detector_to_read(handle, len(points)) as detector:
        scores = detector.score(points.view(CodedRows)).tolist()
        return schemas.Scores(anomaly_score=scores, threshold=detector.threshold_score, n_seen=detector.n_seen)


def explanations_of(handle: DetectorHandle, rows: PostedRows) -> schemas.Explanations:
    """Return the scores of points divided among the features, each as if it were the next point of the stream."""
    values = rows.labels.values(rows.points, handle.row_format.categorical)
    with _detector_to_read(handle, len(rows.points)) as detector:
        explainer = PointExplainer(detector, handle.record.configuration["features"])
        explained = [
            explainer.next_point(point, posted)
            for point, posted in zip(rows.points.view(CodedRows), values, strict=True)
        ]
        scores = detector.score(rows.points.view(CodedRows)).tolist()
    explanations = [
        schemas.Explanation(anomaly_score=score, explanation=reasons)
        for score, reasons in zip(scores, explained, strict=True)
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
        threshold=[row.threshold for row in rows],
        is_anomaly=[row.is_anomaly for row in rows],
    )


def explanation_of_row(handle: DetectorHandle, number: int) -> schemas.ExplainedRow:
    """Return a learned row, explained by the current detector without that row, if the window still holds it."""
    names, size = handle.record.configuration["features"], handle.record.configuration["shingle"]
    rows = handle.worker.history.consecutive_rows(number, size)
    if not rows:
        raise NotFoundError(f"Row {number} is no longer among the latest rows, or has not been seen.")
    last, points, values = rows[-1], np.array([row.point for row in rows]), [row.values for row in rows]
    detector = handle.worker.read_copy.private_copy()
    return schemas.ExplainedRow(
        index=last.number,
        time=last.time,
        own_time=last.own_time,
        values=last.values,
        anomaly_score=last.score,
        threshold=last.threshold,
        is_anomaly=last.is_anomaly,
        explanation=PointExplainer(detector, names).learned_point(points, values, last.score),
    )


@contextmanager
def _detector_to_read(handle: DetectorHandle, n_points: int) -> Iterator[StreamDetector]:
    """Yield the shared copy of a detector; for many points yield a private one, so that other reads need not wait."""
    if n_points > MAX_POINTS_ON_SHARED_COPY:
        yield handle.worker.read_copy.private_copy()
    else:
        with handle.worker.read_copy.read() as detector:
            yield detector


_METRICS: dict[str, tuple[str, str, Callable[[DetectorHandle], float]]] = {
    "points_total": ("counter", "Points learned.", lambda handle: handle.worker.counts.n_points),
    "anomalies_total": (
        "counter",
        "Anomalies among the points learned.",
        lambda handle: handle.worker.counts.n_anomalies,
    ),
    "requests_total": ("counter", "Requests applied.", lambda handle: handle.worker.n_requests),
    "waiting_points": ("gauge", "Points in the queue.", lambda handle: handle.worker.n_waiting),
    "state_bytes": ("gauge", "Memory of the detector in bytes.", lambda handle: handle.worker.summary.n_bytes),
    "threshold": ("gauge", "Score above which a point is an anomaly.", lambda handle: handle.worker.summary.threshold),
    "missing_total": (
        "counter",
        "Missing numbers that were replaced.",
        lambda handle: handle.worker.summary.n_missing,
    ),
    "drifts_total": ("counter", "Drifts reported.", lambda handle: handle.worker.summary.n_drifts),
}


def metrics_of(registry: Registry) -> str:
    """Return the metrics of all detectors in the text format of Prometheus."""
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
        lines += [f'imondrian_{name}{{detector="{handle.record.name}"}} {value(handle)}' for handle in detectors]
    return "\n".join(lines) + "\n"

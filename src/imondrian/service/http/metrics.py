"""The metrics of the detectors and of the receivers of notifications, for Prometheus."""

from collections.abc import Callable

from imondrian.service.delivery.notifier import Channel
from imondrian.service.detectors.registry import DetectorHandle, Registry
from imondrian.service.http.schemas import known_number
from imondrian.stream.series_views import TimeCounts

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
        "Incidents opened because of anomalies.",
        lambda handle: handle.worker.counts.n_incidents,
    ),
    "silences_total": ("counter", "Incidents opened because of missing data.", lambda handle: handle.n_silences),
    "open_incidents": ("gauge", "Incidents that are open.", lambda handle: handle.n_open_incidents),
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

"""Figures for Prometheus, in its text format."""

from collections.abc import Callable

from imondrian.service.registry import Known, Registry

_FIGURES: dict[str, tuple[str, str, Callable[[Known], float]]] = {
    "points_total": ("counter", "Points learned.", lambda known: known.live.counts.n_points),
    "anomalies_total": ("counter", "Anomalies among them.", lambda known: known.live.counts.n_anomalies),
    "requests_total": ("counter", "Requests done.", lambda known: known.live.n_requests),
    "waiting_points": ("gauge", "Points that wait.", lambda known: known.live.n_waiting),
    "state_bytes": ("gauge", "Memory of the detector.", lambda known: known.live.figures.n_bytes),
    "threshold": ("gauge", "Score above which a point is an anomaly.", lambda known: known.live.figures.threshold),
    "drifts_total": ("counter", "Drifts reported.", lambda known: known.live.figures.n_drifts),
}


def metrics_of(registry: Registry) -> str:
    """Write all figures of all detectors."""
    detectors = registry.all()
    lines = ["# HELP imondrian_detectors Number of detectors.", "# TYPE imondrian_detectors gauge"]
    lines.append(f"imondrian_detectors {len(detectors)}")
    lines += [
        "# HELP imondrian_detectors_set_aside Number of detectors that could not be recovered at the start.",
        "# TYPE imondrian_detectors_set_aside gauge",
        f"imondrian_detectors_set_aside {registry.n_aside}",
    ]
    for name, (kind, told, figure) in _FIGURES.items():
        lines += [f"# HELP imondrian_{name} {told}", f"# TYPE imondrian_{name} {kind}"]
        lines += [f'imondrian_{name}{{detector="{known.kept.name}"}} {figure(known)}' for known in detectors]
    return "\n".join(lines) + "\n"

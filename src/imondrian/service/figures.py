"""A detector in figures, read off between two changes of it."""

from typing import NamedTuple

from imondrian.drift import Drift
from imondrian.stream import StreamDetector


class Figures(NamedTuple):
    """How a detector stands."""

    n_seen: int
    threshold: float
    is_warm: bool
    n_bytes: int
    n_drifts: int
    drifts: tuple[Drift, ...]


def figures_of(detector: StreamDetector) -> Figures:
    """Read the figures off."""
    return Figures(
        detector.n_seen, detector.threshold, detector.is_warm, detector.n_bytes, detector.n_drifts, detector.drifts
    )

"""Alarms on streams: how often they are false, and how useful they are, with every rule for the threshold.

1. Calibration: the share of rows flagged on streams without anomalies, divided by the requested probability.
2. Usefulness: on the series of NAB, the windows in which an incident opens, the incidents that open outside of any
   window, and F1 of incidents; on labelled streams, F1 of the rows flagged.

The data are in the folder named by IMONDRIAN_DATA. Usage: python benchmarks/alarms.py
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from imondrian import StreamDetector
from imondrian.base.defaults import PRESETS
from imondrian.datasets import load
from series_data import Series, nab_series

HERE = Path(__file__).parent
PROBABILITIES = 0.01, 0.001
DIMENSIONS = 1, 5, 20
N_ROWS = 30_000
RULES = (0.0001, 0.001, 0.01, "top 0.1%", "top 1%", "top 2%", "top 5%", "top 10%", "kmeans", 0.5)
STREAMS = ("annthyroid", "mammography", "shuttle", "http", "forestcover", "smtp", "satellite")
MAX_ROWS = 60_000


def main() -> None:
    """Print the tables of both parts, one per preset, and write the figures as JSON."""
    figures = {"calibration": calibration(), "usefulness": usefulness()}
    target = HERE / "results" / "alarms.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(figures, indent=1))
    print(f"\nwritten to {target}")


# -- calibration ------------------------------------------------------------------------------------------------------


def autoregressive(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Return AR(1) series with the coefficient 0.9."""
    X, noise = np.zeros((n, d)), rng.normal(size=(n, d))
    for i in range(1, n):
        X[i] = 0.9 * X[i - 1] + noise[i]
    return X


def mixture(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Return points of five clusters of different width."""
    centres, widths, which = 6.0 * rng.normal(size=(5, d)), rng.uniform(0.3, 2.0, 5), rng.integers(0, 5, n)
    return centres[which] + widths[which][:, None] * rng.normal(size=(n, d))


def seasonal(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Return noisy waves with a period of 288 rows."""
    phases = 2.0 * np.pi * np.arange(n)[:, None] / 288 + rng.uniform(0.0, 6.0, d)
    return 3.0 * np.sin(phases) + 0.5 * rng.normal(size=(n, d))


GENERATORS: dict[str, Callable[[np.random.Generator, int, int], np.ndarray]] = {
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "uniform": lambda rng, n, d: rng.uniform(size=(n, d)),
    "t (3 degrees)": lambda rng, n, d: rng.standard_t(3, size=(n, d)),
    "log-normal": lambda rng, n, d: np.exp(rng.normal(size=(n, d))),
    "mixture": mixture,
    "AR(1)": autoregressive,
    "seasonal": seasonal,
}


def calibration() -> dict[str, dict[str, list[float]]]:
    """Print and return the share flagged divided by the probability, for each preset, stream and dimension."""
    found: dict[str, dict[str, list[float]]] = {}
    for preset in PRESETS:
        print(f"\n| {preset} | " + " | ".join(f"d = {d}, p = {p}" for d in DIMENSIONS for p in PROBABILITIES) + " |")
        print(f"|{'---|' * (1 + len(DIMENSIONS) * len(PROBABILITIES))}")
        found[preset] = {name: [r for d in DIMENSIONS for r in ratios(name, d, preset)] for name in GENERATORS}
        for name, values in found[preset].items():
            print(f"| {name} | {' | '.join(f'{value:.2f}' for value in values)} |", flush=True)
    return found


def ratios(name: str, d: int, preset: str) -> list[float]:
    """Return the share of rows flagged, divided by each probability, on a stream without anomalies."""
    X = GENERATORS[name](np.random.default_rng([1, d]), N_ROWS, d)
    detector = StreamDetector(d, preset=preset, threshold=PROBABILITIES[0])
    surprise = detector.process_many(X).surprise[detector.parameters["warm_up"] :]
    return [float((surprise > -np.log10(p)).mean() / p) for p in PROBABILITIES]


# -- usefulness -------------------------------------------------------------------------------------------------------


class SeriesResult(NamedTuple):
    """Incidents on one series."""

    n_windows: int
    n_found: int
    n_false: int

    @property
    def f1(self) -> float:
        """F1 of incidents; a window is found if an incident opens in it."""
        return 2.0 * self.n_found / (self.n_found + self.n_false + self.n_windows)


def usefulness() -> dict[str, dict[str, list[float]]]:
    """Print and return, for each preset and rule, the incidents on all series, and F1 on series and streams."""
    series, streams = list(nab_series()), dict(labelled_streams())
    found: dict[str, dict[str, list[float]]] = {}
    for preset in PRESETS:
        columns = (
            "windows found of 33",
            "false incidents",
            "incidents without anomalies",
            "F1 of incidents (20 series)",
            f"F1 of rows ({len(streams)} streams)",
            "mean",
        )
        print(f"\n| {preset} | {' | '.join(columns)} |\n|{'---|' * (1 + len(columns))}")
        found[preset] = {str(rule): measure(rule, preset, series, streams) for rule in RULES}
        for rule, (windows, false, clean, *f1s) in found[preset].items():
            cells = [f"{windows:.0f}", f"{false:.0f}", f"{clean:.0f}", *(f"{f1:.3f}" for f1 in f1s)]
            print(f"| `{rule}` | {' | '.join(cells)} |", flush=True)
    return found


def measure(
    rule: float | str, preset: str, series: list[Series], streams: dict[str, tuple[np.ndarray, np.ndarray]]
) -> list[float]:
    """Return the figures of one rule."""
    results = {one.name: incidents_on(one, rule, preset) for one in series}
    real = [result for name, result in results.items() if name.startswith("real")]
    clean = [result.n_false for name, result in results.items() if name.startswith("artificialNoAnomaly")]
    f1_series = float(np.mean([result.f1 for result in results.values() if result.n_windows]))
    f1_streams = float(np.mean([f1_on(X, y, rule, preset) for X, y in streams.values()]))
    n_found, n_false = sum(result.n_found for result in real), sum(result.n_false for result in real)
    return [n_found, n_false, sum(clean), f1_series, f1_streams, (f1_series + f1_streams) / 2.0]


def incidents_on(series: Series, rule: float | str, preset: str) -> SeriesResult:
    """Count the windows in which an incident opens, and the incidents that open outside of any window.

    An incident that opened before a window does not make the window found: nobody is notified in the window.
    """
    detector = StreamDetector(1, threshold=rule, preset=preset)
    opened = []
    for first in range(0, len(series.values), 1_000):
        detector.process_many(series.values[first : first + 1_000])
        opened += [event.index for event in detector.events if event.incident.is_open]
    n_found = sum(any(first <= index <= last for index in opened) for first, last in series.windows)
    return SeriesResult(len(series.windows), n_found, int((~series.is_in_window[opened]).sum()))


def labelled_streams() -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """Yield the points and labels of each stream, shuffled, at most MAX_ROWS rows."""
    for name in STREAMS:
        data = load(name)
        rows = np.random.default_rng(0).permutation(len(data.X))[:MAX_ROWS]
        yield name, (data.X[rows], data.y[rows].astype(bool))


def f1_on(X: np.ndarray, is_anomaly: np.ndarray, rule: float | str, preset: str) -> float:
    """Return F1 of the rows that are flagged on a stream."""
    is_flagged = StreamDetector(X.shape[1], threshold=rule, preset=preset).process_many(X).is_anomaly
    return float(2.0 * (is_flagged & is_anomaly).sum() / max(is_flagged.sum() + is_anomaly.sum(), 1))


if __name__ == "__main__":
    main()

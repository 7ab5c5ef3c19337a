"""False alarms of a fleet by threshold: incidents on ordinary rows, and the share of anomalies that open one.

Usage: python benchmarks/fleet_thresholds.py [n_keys] [n_rows], by default 500 keys with 1,000 rows each, for three kinds
of ordinary streams: normal, exponential, and autoregressive values. Afterwards every key gets one row that is 8 standard
deviations above its mean, and, separately, a run of 5 rows that are 5 above.
"""

import sys

import numpy as np

from imondrian import Fleet

PROBABILITIES = (1e-3, 1e-4, 1e-5, 1e-6)
N_WARM = 256  # rows of each key that are not counted


def main() -> None:
    """Print a table."""
    n_keys, n_rows = (int(argument) for argument in (sys.argv[1:] + ["500", "1000"][len(sys.argv) - 1 :]))
    print("stream        p        alarms a 100,000 rows  incidents a 100,000 rows  spikes found  runs found")
    for name, stream in STREAMS.items():
        rows = stream(np.random.default_rng(0), n_keys, n_rows + N_WARM)
        for probability in PROBABILITIES:
            alarms, incidents, spikes, runs = measure(rows, probability)
            print(f"{name:13} {probability:g} {alarms:15.1f} {incidents:22.1f} {spikes:18.1%} {runs:12.1%}", flush=True)


def measure(rows: np.ndarray, probability: float) -> tuple[float, float, float, float]:
    """Return alarms and incidents per 100,000 ordinary rows, and the shares of spikes and runs found."""
    n_keys, n_rows = rows.shape
    fleet, keys, n_alarms, n_incidents = Fleet(1, threshold=probability), np.arange(n_keys), 0, 0
    for first in range(0, n_rows, N_WARM):
        part = rows[:, first : first + N_WARM]
        results = fleet.process_many(np.tile(keys, part.shape[1]), part.T.reshape(-1, 1))
        if first:
            n_alarms += int(results.is_anomaly.sum())
            n_incidents += sum(event.event.incident.is_open for event in fleet.events)
    factor = 100_000 / (n_keys * (n_rows - N_WARM))
    means, spreads = rows.mean(axis=1), rows.std(axis=1)
    single = [fleet.detector(key) for key in keys.tolist()]
    before = [detector.incidents[-1:] for detector in single]
    is_free = [not (latest and latest[0].is_open) for latest in before]
    runs = []
    for key in keys.tolist():
        detector = fleet.detector(key)
        detector.process_many(np.full((5, 1), means[key] + 5 * spreads[key]))
        runs.append(any(event.incident.is_open for event in detector.events))
    spikes = []
    for key, detector in zip(keys.tolist(), single, strict=True):
        detector.process([means[key] + 8 * spreads[key]])
        spikes.append(bool(detector.events))
    return (
        n_alarms * factor,
        n_incidents * factor,
        float(np.mean(np.array(spikes)[is_free])),
        float(np.mean(np.array(runs)[is_free])),
    )


def autoregressive(rng: np.random.Generator, n_keys: int, n_rows: int) -> np.ndarray:
    """Return rows that depend on the row before, with the coefficient 0.8."""
    rows = rng.normal(size=(n_keys, n_rows))
    for i in range(1, n_rows):
        rows[:, i] = 0.8 * rows[:, i - 1] + 0.6 * rows[:, i]
    return rows


STREAMS = {
    "normal": lambda rng, *size: rng.normal(size=size),
    "exponential": lambda rng, *size: rng.exponential(size=size),
    "autoregressive": autoregressive,
}

if __name__ == "__main__":
    main()

"""False alarms of a fleet by threshold: incidents on ordinary rows, and the share of anomalies that open one.

Usage: python benchmarks/fleet_thresholds.py [n_keys] [n_rows], by default 500 keys with 1,000 rows each, for three
kinds of ordinary streams: normal, exponential, and autoregressive values. Afterwards, one copy of every key's detector
gets a row that is 8 standard deviations above the mean of the key, and another copy a row that is 20 above it.
"""

import sys

import numpy as np

from imondrian import Fleet

PROBABILITIES = (1e-3, 1e-4, 1e-5, 1e-6)
N_WARM = 256  # rows of each key that are not counted


def main() -> None:
    """Print a table."""
    n_keys, n_rows = (int(argument) for argument in (sys.argv[1:] + ["500", "1000"][len(sys.argv) - 1 :]))
    print("stream, p, alarms and incidents per 100,000 ordinary rows, incidents at rows 8 and 20 deviations above mean")
    for name, stream in STREAMS.items():
        rows = stream(np.random.default_rng(0), n_keys, n_rows + N_WARM)
        for probability in PROBABILITIES:
            alarms, incidents, *found = measure(rows, probability)
            shares = "  ".join(f"{share:.0%}" for share in found)
            print(f"{name}  {probability:g}  {alarms:.1f}  {incidents:.1f}  {shares}", flush=True)


def measure(rows: np.ndarray, probability: float) -> list[float]:
    """Return alarms and incidents per 100,000 ordinary rows, and the shares of unusual rows that open an incident."""
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
    shares = [np.mean([opens(fleet, key, means[key] + n * spreads[key]) for key in keys.tolist()]) for n in (8, 20)]
    return [n_alarms * factor, n_incidents * factor, *map(float, shares)]


def opens(fleet: Fleet, key: int, value: float) -> bool:
    """Return True if a row with this value opens an incident of the key, or belongs to an open one."""
    return fleet.detector(key).process([value]).incident is not None


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

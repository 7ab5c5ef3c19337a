"""What each threshold flags on all open data sets: the table behind the default of the command line.

python benchmarks/thresholds.py  (the data sets are in the folder named by IMONDRIAN_DATA, or downloaded)
"""

from collections.abc import Iterator

import numpy as np

from imondrian import MondrianForest
from imondrian.datasets import load, names
from imondrian.defaults import PRESETS
from imondrian.thresholds import threshold_rule

RULES = ("kmeans", "auto", 0.01, 0.02, 0.05, 0.1)
SEEDS = range(3)
MAX_ROWS = 20_000


def main() -> None:
    """Print a table for each preset."""
    sets = dict(data_sets())
    print(f"{len(sets)} sets: {', '.join(sets)}")
    for name, preset in PRESETS.items():
        results = np.array([measure_rules(X, is_anomaly, preset.kind, preset.scale) for X, is_anomaly in sets.values()])
        columns = ("rows flagged: mean", "median", "anomalies found", "precision", "F1")
        print(f"\n| preset {name} | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
        for k, rule in enumerate(RULES):
            share, recall, precision, f1 = results[:, k].mean(axis=0)
            median = np.median(results[:, k, 0])
            print(f"| `{rule}` | {share:.1%} | {median:.1%} | {recall:.1%} | {precision:.1%} | {f1:.3f} |")


def data_sets() -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """Yield the points and labels of each open data set, shuffled, at most MAX_ROWS rows."""
    for name in names("open"):
        data = load(name)
        rows = np.random.default_rng(0).permutation(len(data.X))[:MAX_ROWS]
        yield name, (data.X[rows], data.y[rows].astype(bool))


def measure_rules(X: np.ndarray, is_anomaly: np.ndarray, kind: str, scale: str | None) -> np.ndarray:
    """Return for each rule the share flagged, recall, precision and F1, averaged over the seeds."""
    figures = np.zeros((len(RULES), 4))
    for seed in SEEDS:
        scores = MondrianForest(100, max_samples=256, scale=scale, seed=seed, n_jobs=-1).build(X).score(X, kind)
        for k, rule in enumerate(RULES):
            is_flagged = scores > threshold_rule(rule)(scores)
            n_right = int((is_flagged & is_anomaly).sum())
            n_flagged, n_anomalies = int(is_flagged.sum()), int(is_anomaly.sum())
            f1 = 2.0 * n_right / (n_flagged + n_anomalies)
            figures[k] += [n_flagged / len(X), n_right / n_anomalies, n_right / max(n_flagged, 1), f1]
    return figures / len(SEEDS)


if __name__ == "__main__":
    main()

"""What each threshold flags on all open data sets and on tables without anomalies: the tables behind the defaults.

python benchmarks/thresholds.py  (the data sets are in the folder named by IMONDRIAN_DATA, or downloaded)
"""

from collections.abc import Callable, Iterator

import numpy as np

from imondrian import MondrianForest
from imondrian.alarms.score_distribution import ScoreDistribution
from imondrian.alarms.thresholds import batch_rule, batch_threshold
from imondrian.base.defaults import PRESETS, Preset
from imondrian.datasets import load, names

RULES = ("kmeans", "score 0.5", "top 10%", "top 5%", "top 2%", "top 1%", "surprise 2", "surprise 2.5", "surprise 3")
SEEDS = range(3)
MAX_ROWS = 20_000
Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
CLEAN_TABLES: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "uniform": lambda rng, shape: rng.random(shape),
    "t distribution, 3 degrees of freedom": lambda rng, shape: rng.standard_t(3, shape),
    "log-normal": lambda rng, shape: rng.lognormal(size=shape),
}
FEATURES = (1, 5, 20)
ROWS = {50: 60, 300: 40, 500: 40, 2_000: 10, 20_000: 2}  # number of tables of each length
LEVELS = (2.0, 3.0)  # levels of surprise


def main() -> None:
    """Print what each rule flags, then how well the surprise is calibrated, with each preset."""
    sets = dict(data_sets())
    print(f"{len(sets)} sets: {', '.join(sets)}")
    for name, preset in PRESETS.items():
        print_rules(name, np.array([measure_rules(X, is_anomaly, preset) for X, is_anomaly in sets.values()]))
    for name, preset in PRESETS.items():
        print_calibration(name, preset)


def print_rules(name: str, results: np.ndarray) -> None:
    """Print a table of rules for a preset."""
    columns = ("rows flagged: mean", "median", "anomalies found", "precision", "F1")
    print(f"\n| preset {name} | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for k, rule in enumerate(RULES):
        share, recall, precision, f1 = results[:, k].mean(axis=0)
        median = np.median(results[:, k, 0])
        print(f"| `{rule}` | {share:.2%} | {median:.2%} | {recall:.1%} | {precision:.1%} | {f1:.3f} |")


def data_sets() -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """Yield the points and labels of each open data set, shuffled, at most MAX_ROWS rows."""
    for name in names("open"):
        data = load(name)
        rows = np.random.default_rng(0).permutation(len(data.X))[:MAX_ROWS]
        yield name, (data.X[rows], data.y[rows].astype(bool))


def measure_rules(X: np.ndarray, is_anomaly: np.ndarray, preset: Preset) -> np.ndarray:
    """Return for each rule the share flagged, recall, precision and F1, averaged over the seeds."""
    figures = np.zeros((len(RULES), 4))
    for seed in SEEDS:
        scores = scores_of(X, preset, seed)
        for k, rule in enumerate(RULES):
            is_flagged = scores > batch_threshold(batch_rule(rule), scores)
            n_right = int((is_flagged & is_anomaly).sum())
            n_flagged, n_anomalies = int(is_flagged.sum()), int(is_anomaly.sum())
            f1 = 2.0 * n_right / (n_flagged + n_anomalies)
            figures[k] += [n_flagged / len(X), n_right / n_anomalies, n_right / max(n_flagged, 1), f1]
    return figures / len(SEEDS)


def scores_of(X: np.ndarray, preset: Preset, seed: int) -> np.ndarray:
    """Return the scores of rows in a forest built on them."""
    forest = MondrianForest(100, max_samples=256, scale=preset.scale, seed=seed, n_jobs=-1)
    return forest.build(X).score(X, preset.kind)


def print_calibration(name: str, preset: Preset) -> None:
    """Print the share of rows with a high surprise in tables without anomalies, by kind and length of the table."""
    columns = [f"{n_rows:,} rows" for n_rows in ROWS]
    print(f"\n| preset {name}: surprise above 2, 3 | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for table, draw in CLEAN_TABLES.items():
        cells = [clean_shares(draw, n_rows, preset) for n_rows in ROWS]
        print(f"| {table} | {' | '.join(', '.join(f'{share:.2%}' for share in shares) for shares in cells)} |")


def clean_shares(draw: Draw, n_rows: int, preset: Preset) -> np.ndarray:
    """Return the share of rows above each level, averaged over numbers of features and seeds."""
    shares = np.zeros(len(LEVELS))
    for n_features in FEATURES:
        for seed in range(ROWS[n_rows]):
            scores = scores_of(draw(np.random.default_rng(seed), (n_rows, n_features)), preset, seed)
            distribution = ScoreDistribution.of(scores)
            shares += [(scores > distribution.threshold(10.0**-level)).mean() for level in LEVELS]
    return shares / (len(FEATURES) * ROWS[n_rows])


if __name__ == "__main__":
    main()

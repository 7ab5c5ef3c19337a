"""How well anomalies rank in tables with categories and gaps, compared with other libraries: `make quality`.

Three parts, each with one setting for all tables: the public tables with labels; numbers deleted at random from the
open numeric sets; and a category never seen before, planted in a table of orders. The data are in the folder named by
IMONDRIAN_DATA.
"""

import argparse
import csv
import gzip
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from imondrian import MondrianForest
from imondrian.base.categories import category_codes
from imondrian.datasets import load, names
from peers import present, why_missing

SEEDS = range(3)
MAX_ROWS = 10_000
ALL_CATEGORICAL = ("aid362", "apascal", "bank", "chess", "cmc", "solar-flare")  # numbers are codes in these tables
SHARES_DELETED = (0.0, 0.1, 0.3)
N_ORDERS, N_PLANTINGS = 2_000, 100
TOP = N_ORDERS // 100


class Table(NamedTuple):
    """A table with labels: numbers (NaN: missing), and categories as codes."""

    name: str
    X: np.ndarray
    categorical: list[int]
    is_anomaly: np.ndarray


def main() -> None:
    """Run the chosen parts, and print their tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="default: all parts")
    for part in parser.parse_args().part or PARTS:
        PARTS[part]()
        print()


# -- public tables ----------------------------------------------------------------------------------------------------


def compare_on_tables() -> None:
    """Print AUC and average precision of every method on every table, means over the seeds, times 100."""
    methods = {name: method for name, method in METHODS.items() if name in present(METHODS)}
    print(f"| table | {' | '.join(methods)} |\n|{'---|' * (len(methods) + 1)}")
    figures = []
    for table in tables():
        found = [mean_figures(method, table) for method in methods.values()]
        figures.append(found)
        print_row(table.name, found)
    print_row("**mean**", np.nanmean(figures, axis=0))
    for name in METHODS:
        if name not in methods:
            print(f"\nNot measured: {why_missing(name)}")


def print_row(name: str, figures: list[tuple[float, float]]) -> None:
    """Print one row of the table."""
    print(f"| {name} | {' | '.join(f'{100 * auc:.1f} / {100 * ap:.1f}' for auc, ap in figures)} |", flush=True)


def mean_figures(method: Callable[[Table, int], np.ndarray | None], table: Table) -> tuple[float, float]:
    """Return the AUC and the average precision, averaged over the seeds; NaN if the method does not apply."""
    scores = [method(table, seed) for seed in SEEDS]
    if scores[0] is None:
        return np.nan, np.nan
    auc = np.mean([roc_auc_score(table.is_anomaly, score) for score in scores])
    return float(auc), float(np.mean([average_precision_score(table.is_anomaly, score) for score in scores]))


def tables() -> Iterator[Table]:
    """Yield the tables, each with at most MAX_ROWS rows."""
    folder = Path(os.environ.get("IMONDRIAN_DATA", ".")) / "tables"
    paths = sorted(folder.glob("*.csv.gz"))
    if not paths:
        sys.exit(f"There are no tables in {folder}; set IMONDRIAN_DATA.")
    for path in paths:
        with gzip.open(path, "rt", newline="") as file:
            rows = list(csv.reader(file))[1 : MAX_ROWS + 1]
        name = path.name.removesuffix(".csv.gz")
        columns = [
            column(list(cells), name in ALL_CATEGORICAL) for cells in zip(*[row[:-1] for row in rows], strict=True)
        ]
        X = np.column_stack([values for values, _ in columns])
        categorical = [j for j, (_, is_category) in enumerate(columns) if is_category]
        yield Table(name, X, categorical, np.array([row[-1] == "1" for row in rows]))


def column(cells: list[str], is_category: bool) -> tuple[np.ndarray, bool]:  # noqa: FBT001
    """Return the values of a column, and True if they are categories: text always is, numbers if `is_category`."""
    if not is_category:
        try:
            return np.array([float(cell) if cell else np.nan for cell in cells]), False
        except ValueError:
            pass
    return category_codes([cell or None for cell in cells]), True


def with_medians(X: np.ndarray, categorical: list[int]) -> np.ndarray:
    """Replace missing numbers with the median of their column; a column without values becomes 0."""
    filled = X.copy()
    for j in set(range(X.shape[1])) - set(categorical):
        known = X[~np.isnan(X[:, j]), j]
        filled[np.isnan(X[:, j]), j] = np.median(known) if known.size else 0.0
    return filled


# -- methods ----------------------------------------------------------------------------------------------------------


def ours(table: Table, seed: int) -> np.ndarray:
    """Score with the preset `practice`."""
    forest = MondrianForest(100, max_samples=256, scale="std", seed=seed, categorical=table.categorical, n_jobs=-1)
    points = with_medians(table.X, table.categorical)
    return forest.build(points).score(points, "size")


def one_hot_isolation_forest(table: Table, seed: int) -> np.ndarray:
    """Score with the isolation forest of scikit-learn; gaps are filled with medians, and categories one-hot encoded."""
    from sklearn.ensemble import IsolationForest

    points = one_hot(table)
    return -IsolationForest(n_estimators=100, max_samples=256, random_state=seed).fit(points).score_samples(points)


def one_hot(table: Table) -> np.ndarray:
    """Return the numbers, filled with medians, and one column of 0 and 1 per category."""
    filled = with_medians(table.X, table.categorical)
    columns = [filled[:, [j]] for j in range(filled.shape[1]) if j not in table.categorical]
    columns += [(filled[:, [j]] == np.unique(filled[:, j])).astype(float) for j in table.categorical]
    return np.hstack(columns)


def isotree(table: Table, seed: int) -> np.ndarray:
    """Score with isotree, which has its own methods for categories and gaps."""
    import pandas as pd
    from isotree import IsolationForest

    columns = {
        f"c{j}": pd.Categorical(table.X[:, j].astype(str)) if j in table.categorical else table.X[:, j]
        for j in range(table.X.shape[1])
    }
    frame = pd.DataFrame(columns)
    forest = IsolationForest(ntrees=100, sample_size=256, ndim=1, random_seed=seed + 1, nthreads=2)
    return forest.fit(frame).predict(frame)


def log_frequency(table: Table, seed: int) -> np.ndarray | None:  # noqa: ARG001 (all methods have the same arguments)
    """Return the sum of -log frequency of the categories of a row; None for a table without categories."""
    scores = np.zeros(len(table.X))
    for j in table.categorical:
        _, index, counts = np.unique(table.X[:, j], return_inverse=True, return_counts=True)
        scores -= np.log(counts[index] / len(table.X))
    return scores if table.categorical else None


METHODS: dict[str, Callable[[Table, int], np.ndarray | None]] = {
    "ours": ours,
    "scikit-learn": one_hot_isolation_forest,
    "isotree": isotree,
    "-log frequency": log_frequency,
}


# -- deleted values ---------------------------------------------------------------------------------------------------


def delete_values() -> None:
    """Print the mean AUC on the open numeric sets with a share of the values deleted at random."""
    print("| values deleted | mean AUC |\n|---|---|")
    for share in SHARES_DELETED:
        aucs = [auc_with_deleted(name, share) for name in names("open")]
        print(f"| {share:.0%} | {100 * np.mean(aucs):.1f} |", flush=True)


def auc_with_deleted(name: str, share: float) -> float:
    """Return the AUC on one set, averaged over the seeds; every row keeps at least one value."""
    data = load(name)
    chosen = np.random.default_rng(0).permutation(len(data.X))[:MAX_ROWS]
    X, aucs = data.X[chosen], []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        is_deleted = rng.random(X.shape) < share
        is_deleted[np.arange(len(X)), rng.integers(0, X.shape[1], len(X))] = False
        table = Table(name, np.where(is_deleted, np.nan, X), [], data.y[chosen].astype(bool))
        aucs.append(roc_auc_score(table.is_anomaly, ours(table, seed)))
    return float(np.mean(aucs))


# -- a category never seen ---------------------------------------------------------------------------------------------


def plant_categories() -> None:
    """Print how often a row whose only oddity is a new category is in the top 1 % and is explained by it."""
    print(f"| ordinary features | in the top {TOP} of {N_ORDERS} | and explained by the category | median rank |")
    print("|---|---|---|---|")
    for n_features in (1, 2, 3, 5, 7, 10):
        ranks, is_explained = zip(*(planted(n_features, seed) for seed in range(N_PLANTINGS)), strict=True)
        in_top = np.array(ranks) <= TOP
        both = in_top & np.array(is_explained)
        print(f"| {n_features} | {in_top.mean():.0%} | {both.mean():.0%} | {np.median(ranks):.0f} |", flush=True)


def planted(n_features: int, seed: int) -> tuple[int, bool]:
    """Plant one row with a new country; return its rank, and whether the country has the largest share."""
    orders, row = planted_orders(n_features, seed)
    forest = MondrianForest(100, max_samples=256, scale="std", seed=seed, categorical=[0], n_jobs=-1).build(orders)
    scores = forest.score(orders, "size")
    return int((scores >= scores[row]).sum()), int(np.abs(forest.explain(orders[[row]], "size")[0]).argmax()) == 0


def planted_orders(n_features: int, seed: int) -> tuple[np.ndarray, int]:
    """Return orders with a country and ordinary numbers of several shapes, and the row with a country of its own."""
    rng = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1, 13)
    country = rng.choice(12, N_ORDERS, p=shares / shares.sum()).astype(float)
    shapes = (rng.normal, rng.lognormal, rng.uniform, rng.exponential, lambda size: rng.integers(1, 6, size))
    numbers = [shapes[j % len(shapes)](size=N_ORDERS) for j in range(n_features)]
    row = int(rng.integers(N_ORDERS))
    country[row] = 99.0
    for values in numbers:
        values[row] = np.median(values)  # ordinary in every other respect
    return np.column_stack([country, *numbers]), row


PARTS = {"tables": compare_on_tables, "deleted": delete_values, "planted": plant_categories}

if __name__ == "__main__":
    main()

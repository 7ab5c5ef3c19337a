"""How well hidden values are predicted from the other features of a row: `make expected`.

On every open numeric set, one value at a time is hidden in rows that the forest has not seen, and predicted: by
`MondrianForest.expected_values`, by krcf, by the ten nearest rows (scikit-learn's KNNImputer) and by the median. Then
the cost of expected values is compared with that of explanations. The data are in the folder named by IMONDRIAN_DATA.

krcf has no function to impute a value in a row: it extrapolates series. A row is therefore shown to it as a series that
starts with a marker and ends with the hidden feature, and the last value is extrapolated.
"""

import argparse
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np

from imondrian import MondrianForest
from imondrian.datasets import load, names
from peers import present, why_missing
from workloads import SAMPLES, TREES

MAX_ROWS, MAX_HIDDEN, N_FEATURES = 2_500, 500, 3
N_NEIGHBOURS = 10
MARKER = 20.0  # in standard deviations, far from all values
N_NAMED = 3  # features that an explanation names
N_ROUNDS = 5


class HiddenValues(NamedTuple):
    """A table to learn, and rows to predict; all features have the standard deviation 1 in the table."""

    name: str
    table: np.ndarray
    rows: np.ndarray
    features: list[int]  # the features that are hidden, one at a time


class Prediction(NamedTuple):
    """The predicted values of one feature; low and high are None if the method predicts no range."""

    values: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None


def main() -> None:
    """Run the chosen parts, and print their tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="default: all parts")
    for part in parser.parse_args().part or PARTS:
        PARTS[part]()
        print()


# -- errors -----------------------------------------------------------------------------------------------------------


def compare_errors() -> None:
    """Print the mean absolute error of each method on each set in standard deviations, and how good our ranges are."""
    methods = {name: method for name, method in METHODS.items() if name in present(METHODS)}
    print(f"| set | {' | '.join(methods)} | in our range | width of our range |\n|{'---|' * (len(methods) + 3)}")
    found = []
    for hidden in hidden_values():
        figures = [errors(method, hidden) for method in methods.values()]
        found.append([*(error for error, _, _ in figures), *figures[0][1:]])
        print_row(hidden.name, found[-1])
    print_row("**mean**", np.mean(found, axis=0).tolist())
    for name in METHODS:
        if name not in methods:
            print(f"\nNot measured: {why_missing(name)}")


def print_row(name: str, figures: list[float]) -> None:
    """Print one row of the table."""
    *errors_of_methods, covered, width = figures
    print(f"| {name} | {' | '.join(f'{e:.3f}' for e in errors_of_methods)} | {covered:.0%} | {width:.2f} |", flush=True)


def hidden_values() -> Iterator[HiddenValues]:
    """Yield the open numeric sets, shuffled; a fifth of the rows, at most MAX_HIDDEN, are predicted."""
    for name in names("open"):
        rng = np.random.default_rng(0)
        X = load(name).X
        X = X[rng.permutation(len(X))[:MAX_ROWS]]
        n_hidden = min(len(X) // 5, MAX_HIDDEN)
        deviation = X[n_hidden:].std(axis=0)
        features = rng.permutation(np.flatnonzero(deviation > 0.0))[:N_FEATURES]
        scaled = X / np.where(deviation > 0.0, deviation, 1.0)
        yield HiddenValues(name, scaled[n_hidden:], scaled[:n_hidden], features.tolist())


def errors(method: Callable[[HiddenValues, int], Prediction], hidden: HiddenValues) -> tuple[float, float, float]:
    """Return the mean absolute error, the share of values within the predicted ranges, and the mean width of these."""
    figures = []
    for j in hidden.features:
        truth, found = hidden.rows[:, j], method(hidden, j)
        error = float(np.abs(found.values - truth).mean())
        if found.low is None or found.high is None:
            figures.append((error, np.nan, np.nan))
        else:
            is_inside = (found.low <= truth) & (truth <= found.high)
            figures.append((error, float(is_inside.mean()), float((found.high - found.low).mean())))
    error, covered, width = np.mean(figures, axis=0).tolist()
    return error, covered, width


def with_hidden(hidden: HiddenValues, j: int) -> np.ndarray:
    """Return the rows without feature j."""
    rows = hidden.rows.copy()
    rows[:, j] = np.nan
    return rows


# -- methods ----------------------------------------------------------------------------------------------------------


def ours(hidden: HiddenValues, j: int) -> Prediction:
    """Predict with a forest that has the settings of the preset `practice`."""
    forest = MondrianForest(TREES, max_samples=SAMPLES, scale="std", n_jobs=-1).build(hidden.table)
    median, low, high, _ = forest.expected_values(with_hidden(hidden, j), [j])
    return Prediction(median[:, 0], low[:, 0], high[:, 0])


def krcf(hidden: HiddenValues, j: int) -> Prediction:
    """Predict the last value of a row as that of a series, with a random cut forest of krcf."""
    from krcf import RandomCutForest

    size = hidden.table.shape[1] + 1
    options = {"dimensions": 1, "shingle_size": size, "internal_shingling": True, "random_seed": 0}
    forest = RandomCutForest({**options, "num_trees": TREES, "sample_size": SAMPLES, "output_after": SAMPLES})
    order = [k for k in range(size - 1) if k != j]
    means = hidden.table.mean(axis=0)
    for row in hidden.table - means:
        for value in (MARKER, *row[order], row[j]):
            forest.update([value])
    found = []
    for row in hidden.rows - means:
        copy = forest.clone()
        for value in (MARKER, *row[order]):
            copy.update([value])
        extrapolated = copy.extrapolate(1)
        found.append([extrapolated[name][0] for name in ("values", "lower", "upper")])
    values, low, high = np.array(found).T + means[j]
    return Prediction(values, low, high)


def nearest_rows(hidden: HiddenValues, j: int) -> Prediction:
    """Predict with the ten nearest rows of the table."""
    from sklearn.impute import KNNImputer

    imputer = KNNImputer(n_neighbors=N_NEIGHBOURS).fit(hidden.table)
    return Prediction(imputer.transform(with_hidden(hidden, j))[:, j])


def median(hidden: HiddenValues, j: int) -> Prediction:
    """Predict the median of the table."""
    return Prediction(np.full(len(hidden.rows), np.median(hidden.table[:, j])))


METHODS: dict[str, Callable[[HiddenValues, int], Prediction]] = {
    "ours": ours,
    "krcf": krcf,
    "scikit-learn": nearest_rows,
    "median": median,
}


# -- cost -------------------------------------------------------------------------------------------------------------


def compare_cost() -> None:
    """Print the time per row of an explanation, and of the expected values of the features with the largest parts."""
    print(
        f"| set | features | explanation, us | one expected value | {N_NAMED} expected values |\n|---|---|---|---|---|"
    )
    found = []
    for hidden in hidden_values():
        forest = MondrianForest(TREES, max_samples=SAMPLES, scale="std").build(hidden.table)
        explanation, one, several = times_per_row(forest, hidden.rows)
        found.append((one / explanation, several / explanation))
        n_features = hidden.rows.shape[1]
        ratios = " | ".join(f"{ratio:.2f}" for ratio in found[-1])
        print(f"| {hidden.name} | {n_features} | {1e6 * explanation:.0f} | {ratios} |", flush=True)
    print(f"| **mean** | | | {' | '.join(f'{ratio:.2f}' for ratio in np.mean(found, axis=0))} |")


def times_per_row(forest: MondrianForest, rows: np.ndarray) -> list[float]:
    """Return the shortest time of several alternating rounds, in seconds per row."""
    leading = np.argsort(-np.abs(forest.explain(rows, "size")), axis=1)
    tasks: list[Callable[[], object]] = [
        lambda: forest.explain(rows, "size"),
        lambda: forest.expected_values(rows, leading[:, :1]),
        lambda: forest.expected_values(rows, leading[:, :N_NAMED]),
    ]
    times = [[timed(task) for task in tasks] for _ in range(N_ROUNDS)]
    return (np.min(times, axis=0) / len(rows)).tolist()


def timed(task: Callable[[], object]) -> float:
    """Return the duration of a task in seconds."""
    start = perf_counter()
    task()
    return perf_counter() - start


PARTS = {"errors": compare_errors, "cost": compare_cost}

if __name__ == "__main__":
    main()

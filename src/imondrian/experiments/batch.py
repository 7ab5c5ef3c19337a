"""Table II of the paper: batches, by cross validation."""

from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import NamedTuple

from sklearn.model_selection import StratifiedKFold

from imondrian.datasets import Dataset
from imondrian.engine.jit import Array
from imondrian.experiments.cells import measured_cells
from imondrian.experiments.measures import auc
from imondrian.experiments.methods import Method
from imondrian.experiments.repeats import Row, Tell, affordable
from imondrian.experiments.workers import Each

N_FOLDS = 10
FEWER_FOLDS = {"wine": 2}  # too few anomalies for ten
COLUMNS = ("set", "method", "seed", "fold", "part", "n_rows", "auc", "seconds")


class Fold(NamedTuple):
    """One division of a set."""

    seed: int
    number: int
    train: Array
    test: Array


def run(
    sets: Sequence[Dataset],
    methods: Mapping[str, Method],
    seeds: Sequence[int],
    n_folds: int,
    budget: float,
    each: Each,
    tell: Tell,
) -> list[Row]:
    """Fit every method on the training part of every fold, and score both parts.

    Folds are shuffled and stratified (the paper does not say how they were drawn). Features are not scaled. A method
    that would take longer than the budget on a set is run on fewer folds, at least on one.
    """
    return measured_cells("batch", _cell, sets, methods, (seeds, n_folds, budget), each, tell)


def _cell(data: Dataset, method: Method, seeds: Sequence[int], n_folds: int, budget: float) -> list[Row]:
    return [
        {"seed": fold.seed, "fold": fold.number} | row
        for fold in affordable(folds_of(data, seeds, n_folds), budget)
        for row in measured(data, method, fold)
    ]


def folds_of(data: Dataset, seeds: Sequence[int], n_folds: int) -> list[Fold]:
    """Divide a set, anew for each seed."""
    n_folds = min(n_folds, FEWER_FOLDS.get(data.name, n_folds))
    return [
        Fold(seed, number, train, test)
        for seed in seeds
        for number, (train, test) in enumerate(_division(data, n_folds, seed), 1)
    ]


def _division(data: Dataset, n_folds: int, seed: int) -> Iterator[tuple[Array, Array]]:
    return StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(data.X, data.y)


def measured(data: Dataset, method: Method, fold: Fold) -> list[Row]:
    """Measure training (fitting, and scoring what was fitted) and test (scoring what is new)."""
    detector = method.make(1000 * fold.seed + fold.number)
    start = perf_counter()
    train_scores = detector.fit(data.X[fold.train]).learned_scores()
    trained = perf_counter()
    test_scores = detector.score(data.X[fold.test])
    tested = perf_counter()
    parts: dict[str, tuple[Array, Array, float]] = {
        "train": (fold.train, train_scores, trained - start),
        "test": (fold.test, test_scores, tested - trained),
    }
    return [
        {"part": part, "n_rows": len(places), "auc": auc(data.y[places], scores), "seconds": seconds}
        for part, (places, scores, seconds) in parts.items()
    ]

"""Table II of the paper: batch detection, by cross-validation."""

from collections.abc import Mapping, Sequence
from time import perf_counter

from imondrian.datasets import Dataset
from imondrian.experiments.grid import run_grid
from imondrian.experiments.methods import Method, warm_up
from imondrian.experiments.ranking_metrics import auc
from imondrian.experiments.repeats import Row, StepProgress, within_budget
from imondrian.experiments.splits import Split, n_folds_of, published_folds
from imondrian.experiments.worker_pool import ParallelMap

COLUMNS = ("set", "method", "seed", "fold", "part", "n_rows", "auc", "seconds")


def run(
    sets: Sequence[Dataset],
    methods: Mapping[str, Method],
    seeds: Sequence[int],
    n_folds: int,
    budget: float,
    parallel_map: ParallelMap,
    progress: StepProgress,
) -> list[Row]:
    """Fit every method on the training part of every fold and score both parts, once for each seed.

    Features are not scaled. A method that would exceed the budget on a set is run for fewer
    pairs of seed and fold, at least one; the pairs of the last seeds are left out first.
    """
    return run_grid("batch", _cell, sets, methods, (seeds, n_folds, budget), parallel_map, progress)


def _cell(data: Dataset, method: Method, seeds: Sequence[int], n_folds: int, budget: float) -> list[Row]:
    warm_up(method, data.X)
    folds = list(enumerate(published_folds(data, n_folds_of(data, n_folds)), 1))
    repeats = [(seed, number, fold) for seed in seeds for number, fold in folds]
    return [
        {"seed": seed, "fold": number} | row
        for seed, number, fold in within_budget(repeats, budget)
        for row in measure_fold(data, method, fold, 1000 * seed + number)
    ]


def measure_fold(data: Dataset, method: Method, split: Split, seed: int) -> list[Row]:
    """Measure training (fitting, and scoring the training rows) and test (scoring the test rows)."""
    train, test = split
    detector = method.make(seed)
    start = perf_counter()
    train_scores = detector.fit(data.X[train]).learned_scores()
    trained = perf_counter()
    test_scores = detector.score(data.X[test])
    tested = perf_counter()
    return [
        {"part": part, "n_rows": len(rows), "auc": auc(data.y[rows], scores), "seconds": seconds}
        for part, rows, scores, seconds in (
            ("train", train, train_scores, trained - start),
            ("test", test, test_scores, tested - trained),
        )
    ]

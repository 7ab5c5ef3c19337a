"""Beyond the paper: which system is best over all open data sets, in batches and for new rows (novelty)."""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

import numpy as np

from imondrian.datasets import Dataset
from imondrian.engine.jit import Array
from imondrian.experiments.detector_protocol import Detector
from imondrian.experiments.grid import run_grid
from imondrian.experiments.methods import Method, warm_up
from imondrian.experiments.ranking_metrics import auc, average_precision
from imondrian.experiments.repeats import Row, StepProgress, within_budget
from imondrian.experiments.worker_pool import ParallelMap

COLUMNS = ("set", "method", "mode", "seed", "n_rows", "auc", "average_precision", "seconds")
MIN_ANOMALIES = 30
Outcome = tuple[Array, Array]  # of the rows that are scored: which of them are anomalies, and their scores


def run(
    sets: Sequence[Dataset],
    methods: Mapping[str, Method],
    seeds: Sequence[int],
    max_rows: int,
    budget: float,
    parallel_map: ParallelMap,
    progress: StepProgress,
) -> list[Row]:
    """Run every method on every set in both modes; for each seed, on a random sample of at most max_rows rows."""
    return run_grid("quality", _cell, sets, methods, (seeds, max_rows, budget / len(MODES)), parallel_map, progress)


def _cell(data: Dataset, method: Method, seeds: Sequence[int], max_rows: int, budget: float) -> list[Row]:
    warm_up(method, data.X)
    return [
        {"mode": mode, "seed": seed} | _measure(data, method, mode, seed, max_rows)
        for mode in MODES
        for seed in within_budget(seeds, budget)
    ]


def chosen_rows(data: Dataset, seed: int, max_rows: int) -> Array:
    """Draw up to `max_rows` rows with the set's share of anomalies, but at least 30 anomalies (or all that it has)."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data.y))
    anomalies, normal = order[data.y[order] == 1], order[data.y[order] == 0]
    n_anomalies = max(round(len(anomalies) * min(max_rows / len(order), 1.0)), min(MIN_ANOMALIES, len(anomalies)))
    return rng.permutation(np.concatenate([anomalies[:n_anomalies], normal[: max_rows - n_anomalies]]))


def _measure(data: Dataset, method: Method, mode: str, seed: int, max_rows: int) -> Row:
    selected = chosen_rows(data, seed, max_rows)
    detector = method.make(seed)
    start = perf_counter()
    is_anomaly, scores = MODES[mode](detector, data.X[selected], data.y[selected].astype(bool))
    seconds = perf_counter() - start
    return {
        "n_rows": len(selected),
        "auc": auc(is_anomaly, scores),
        "average_precision": average_precision(is_anomaly, scores),
        "seconds": seconds,
    }


def batch(detector: Detector, X: Array, is_anomaly: Array) -> Outcome:
    """Fit on all rows and score them."""
    return is_anomaly, detector.fit(X).learned_scores()


def novelty(detector: Detector, X: Array, is_anomaly: Array) -> Outcome:
    """Fit on half of the inliers and score all other rows."""
    inliers = np.flatnonzero(~is_anomaly)
    fitted = inliers[: len(inliers) // 2]
    others = np.setdiff1d(np.arange(len(X)), fitted)
    return is_anomaly[others], detector.fit(X[fitted]).score(X[others])


MODES: dict[str, Callable[[Detector, Array, Array], Outcome]] = {"batch": batch, "novelty": novelty}

"""Scoring many rows with 100 trees of 256 samples, with one and with two threads; ours with the score `depth`."""

from collections.abc import Callable
from functools import partial

import numpy as np
from joblib import parallel_config

from contests import Contest, Effort
from peers import FORESTS, fitted, present, scoring
from timing import Entrant, Measurement, Task, time_tasks
from workloads import SAMPLES, TREES, normal_points

FEATURES = (3, 10, 36, 77)
REPEATS = {100_000: 7, 1_000_000: 3}  # by the number of rows
N_WARM_UP = 10_000


def name_of(n_rows: int, n_features: int) -> str:
    """Return the name of the workload."""
    return f"score {n_rows} rows, {TREES} x {SAMPLES}, d = {n_features}"


def measure(effort: Effort, n_rows: int, n_features: int) -> list[Measurement]:
    """Fit every forest on the rows, then score them."""
    X = normal_points(effort.rows(n_rows), n_features)
    tasks = {
        Entrant(name, n_threads): scoring_task(name, X, n_threads) for n_threads in (1, 2) for name in present(FORESTS)
    }
    return time_tasks(name_of(n_rows, n_features), tasks, effort.repeats(REPEATS[n_rows]), "s")


def scoring_task(name: str, X: np.ndarray, n_threads: int) -> Task:
    """Return a task that scores all rows and is warmed up with some of them."""
    score = partial(score_with_threads, scoring(name, fitted(name, X, n_threads)), n_threads=n_threads)
    return Task(partial(score, X), warm_up=partial(score, X[:N_WARM_UP]))


def score_with_threads(score: Callable[[np.ndarray], np.ndarray], X: np.ndarray, n_threads: int) -> np.ndarray:
    """Score X. scikit-learn gets its number of threads from joblib, the others when they are created."""
    with parallel_config(backend="threading", n_jobs=n_threads):
        return score(X)


CONTESTS = [
    Contest((name_of(n_rows, n_features),), partial(measure, n_rows=n_rows, n_features=n_features))
    for n_rows in REPEATS
    for n_features in FEATURES
]

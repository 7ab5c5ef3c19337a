"""Categorical features: scoring and extending with 2, 5 or 10 of 10 features categorical, compared with 10 numbers."""

from collections.abc import Callable
from functools import partial

import numpy as np

from contests import Contest, Effort
from imondrian import MondrianForest
from timing import Entrant, Measurement, Task, time_tasks
from workloads import SAMPLES, TREES, WINDOW, normal_points

N_FEATURES, N_CATEGORIES, BLOCK, N_EXTENDED, REPEATS = 10, 20, 2_000, 1_000, 9
NUMBERS_OF_CATEGORICAL = (0, 2, 5, 10)
Work = Callable[[MondrianForest, np.ndarray], object]


def name_of(work: str) -> str:
    """Return the name of the workload."""
    return f"categories, d = {N_FEATURES}: {work}"


def contestant_of(n_categorical: int) -> str:
    """Return the name of a contestant; the one without categories is "ours", to which the others are compared."""
    return f"{n_categorical} categorical" if n_categorical else "ours"


def points_with_categories(n_rows: int, n_categorical: int) -> np.ndarray:
    """Return points whose first features are categories, each with equal probability."""
    points = normal_points(n_rows, N_FEATURES)
    rng = np.random.default_rng(20201013)
    points[:, :n_categorical] = rng.integers(0, N_CATEGORIES, (n_rows, n_categorical))
    return points


def fixed_forest(n_categorical: int, X: np.ndarray) -> MondrianForest:
    """Return a forest whose trees hold samples of all points."""
    return MondrianForest(TREES, max_samples=SAMPLES, scale="std", categorical=range(n_categorical)).build(X)


def window_forest(n_categorical: int, X: np.ndarray) -> MondrianForest:
    """Return a forest that follows the latest points."""
    categorical = range(n_categorical)
    return MondrianForest(TREES, max_samples=SAMPLES, window=WINDOW, scale="std", categorical=categorical).build(X)


def extend(forest: MondrianForest, X: np.ndarray) -> object:
    """Extend a new forest that keeps every point; it has a fifth of the trees."""
    return MondrianForest(forest.n_trees // 5, scale="std", categorical=forest.categorical).extend(X[:N_EXTENDED])


WORKLOADS: dict[str, tuple[Callable[[int, np.ndarray], MondrianForest], Work, int]] = {
    **{
        f"score by {kind}": (fixed_forest, partial(MondrianForest.score, kind=kind), BLOCK)
        for kind in ("depth", "expected", "size")
    },
    **{
        f"stream by {kind}": (window_forest, partial(MondrianForest.score_and_extend, kind=kind), BLOCK)
        for kind in ("depth", "expected", "size")
    },
    "extend": (fixed_forest, extend, N_EXTENDED),
}


def measure(effort: Effort, work: str) -> list[Measurement]:
    """Time the same work with different numbers of categorical features, alternately."""
    new_forest, function, n_rows = WORKLOADS[work]
    tasks = {}
    for n_categorical in NUMBERS_OF_CATEGORICAL:
        X = points_with_categories(2 * WINDOW + BLOCK, n_categorical)
        forest = new_forest(n_categorical, X[: 2 * WINDOW])
        tasks[Entrant(contestant_of(n_categorical))] = Task(partial(function, forest, X[2 * WINDOW :]), n_rows)
    return time_tasks(name_of(work), tasks, effort.repeats(REPEATS), "us a row")


CONTESTS = [Contest((name_of(work),), partial(measure, work=work)) for work in WORKLOADS]

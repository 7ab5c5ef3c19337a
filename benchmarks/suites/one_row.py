"""Scoring one row at a time, a different row each time: with the forest itself and through each adapter."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from contests import Contest, Effort
from peers import FORESTS, fitted, present, scoring, why_missing
from stream_peers import N_WARM, new_river
from timing import Entrant, Measurement, Task, cycling_task, time_tasks
from workloads import SAMPLES, TREES, as_records, normal_points

FOREST = "score one row: MondrianForest.score_one"
RIVER = "score one row: River's score_one on a dictionary"
SCIKIT_LEARN = "score one row: scikit-learn's score_samples"
PYOD = "score one row: PyOD's decision_function"
N_ROWS = 300  # distinct rows
N_SLOW = 10  # rows per run of contestants that take milliseconds
SLOW = {"scikit-learn", "pyod"}
REPEATS = 15


def by_forest(effort: Effort) -> list[Measurement]:
    """Score a point with ours, and a table of one row with the peers."""
    X = normal_points(10_000, 10)
    forests = {name: fitted(name, X) for name in present(FORESTS)}
    calls = {name: scoring(name, forest) for name, forest in forests.items()}
    rows = {name: tables(X) for name in calls}
    calls["ours"], rows["ours"] = forests["ours"].score_one, list(X[:N_ROWS])
    return compare(FOREST, effort, calls, rows)


def through_river(effort: Effort) -> list[Measurement]:
    """Score a dictionary; the peer is River's half-space trees, 10 of them."""
    from imondrian.river import IsolationMondrianForest

    records = as_records(normal_points(N_WARM + N_ROWS, 10))
    ours = IsolationMondrianForest(TREES, SAMPLES, kind="depth", scale=None, seed=0)
    for record in records[:N_WARM]:
        ours.learn_one(record)
    calls = {"ours": ours.score_one, "river": new_river(records).score_one}
    return compare(RIVER, effort, calls, dict.fromkeys(calls, records[N_WARM:]))


def through_scikit_learn(effort: Effort) -> list[Measurement]:
    """Score a table of one row with the scikit-learn estimators."""
    from imondrian import IsolationMondrianForest

    X = normal_points(10_000, 10)
    settings = {"kind": "depth", "scale": None, "contamination": "score 0.5"}
    ours = IsolationMondrianForest(n_estimators=TREES, max_samples=SAMPLES, random_state=0, **settings).fit(X)
    calls = {"ours": ours.score_samples, "scikit-learn": fitted("scikit-learn", X).score_samples}
    return compare(SCIKIT_LEARN, effort, calls, dict.fromkeys(calls, tables(X)))


def through_pyod(effort: Effort) -> list[Measurement]:
    """Score a table of one row with the PyOD detectors; PyOD's forest is that of scikit-learn."""
    from pyod.models.iforest import IForest

    from imondrian.pyod import IMForest

    X = normal_points(10_000, 10)
    parameters = {"n_estimators": TREES, "max_samples": SAMPLES, "random_state": 0}
    calls = {"ours": IMForest(kind="depth", scale=None, **parameters).fit(X), "pyod": IForest(**parameters).fit(X)}
    calls = {name: detector.decision_function for name, detector in calls.items()}
    return compare(PYOD, effort, calls, dict.fromkeys(calls, tables(X)))


def tables(X: np.ndarray) -> list[np.ndarray]:
    """Return tables of one row each."""
    return [x[None].copy() for x in X[:N_ROWS]]


def compare(
    workload: str, effort: Effort, calls: dict[str, Callable[[Any], object]], rows: dict[str, list[Any]]
) -> list[Measurement]:
    """Time the calls, each with its rows."""
    tasks: dict[Entrant, Task] = {
        Entrant(name): cycling_task(call, rows[name], N_SLOW if name in SLOW else N_ROWS)
        for name, call in calls.items()
    }
    return time_tasks(workload, tasks, effort.repeats(REPEATS), "us a row")


CONTESTS = [
    Contest((FOREST,), by_forest),
    Contest((RIVER,), through_river, partial(why_missing, "river")),
    Contest((SCIKIT_LEARN,), through_scikit_learn, partial(why_missing, "scikit-learn")),
    Contest((PYOD,), through_pyod, partial(why_missing, "pyod")),
]

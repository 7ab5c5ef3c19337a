"""Box-aware scores and explanations, one row at a time and in blocks, beside krcf."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from contests import Contest, Effort
from imondrian import MondrianForest
from peers import present
from stream_peers import N_WARM, new_krcf
from timing import Entrant, Measurement, Task, cycling_task, time_tasks
from workloads import SAMPLES, TREES, normal_points

N_ROWS, BLOCK, N_BLOCKS, REPEATS = 300, 2_000, 3, 9
Query = Callable[[MondrianForest, Any], object]


def score_of_row(forest: MondrianForest, x: np.ndarray, kind: str) -> float:
    """Score one row."""
    return forest.score_one(x, kind)


def scores_of_block(forest: MondrianForest, X: np.ndarray, kind: str) -> np.ndarray:
    """Score a block of rows."""
    return forest.score(X, kind)


def explanation_of_row(forest: MondrianForest, x: np.ndarray) -> np.ndarray:
    """Explain one row."""
    return forest.explain(x[None])


WORKLOADS: dict[str, tuple[Query, Query, str]] = {  # for one row, for a block, and the method of krcf
    "score by expected": (partial(score_of_row, kind="expected"), partial(scores_of_block, kind="expected"), "score"),
    "score by size": (partial(score_of_row, kind="size"), partial(scores_of_block, kind="size"), "score"),
    "explain": (explanation_of_row, MondrianForest.explain, "attribution"),
}


def row_name(what: str) -> str:
    """Return the name of the workload for one row at a time."""
    return f"{what}, d = 10: one row"


def block_name(what: str) -> str:
    """Return the name of the workload for blocks."""
    return f"{what}, d = 10: blocks of {BLOCK}"


def measure(effort: Effort, what: str) -> list[Measurement]:
    """Time ours row by row and in blocks, each alternating with krcf, which has no blocks."""
    X = normal_points(N_WARM + N_BLOCKS * BLOCK, 10)
    of_row, of_block, method = WORKLOADS[what]
    forests = {n: MondrianForest(TREES, max_samples=SAMPLES, scale="std", n_jobs=n).build(X[:N_WARM]) for n in (1, 2)}
    rows, blocks = list(X[N_WARM : N_WARM + N_ROWS]), np.split(X[N_WARM:], N_BLOCKS)
    peers: dict[Entrant, Task] = {
        Entrant(name): cycling_task(getattr(new_krcf(X), method), rows, N_ROWS) for name in present(["krcf"])
    }
    single = {Entrant("ours"): cycling_task(partial(of_row, forests[1]), rows, N_ROWS)}
    many = {Entrant("ours", n): cycling_task(partial(of_block, forests[n]), blocks, 1, each=BLOCK) for n in (1, 2)}
    repeats = effort.repeats(REPEATS)
    return [
        *time_tasks(row_name(what), single | peers, repeats, "us a row"),
        *time_tasks(block_name(what), many | peers, repeats, "us a row"),
    ]


CONTESTS = [Contest((row_name(what), block_name(what)), partial(measure, what=what)) for what in WORKLOADS]

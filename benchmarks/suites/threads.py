"""Two threads beside one, for our functions and for pure arithmetic, which shows the limit of the machine."""

from collections.abc import Callable
from functools import partial

import numba
import numpy as np

from contests import Contest, Effort
from imondrian import MondrianForest
from imondrian.engine.threads import Threads
from timing import Entrant, Measurement, Task, time_tasks
from workloads import SAMPLES, TREES, normal_points

ARITHMETIC = "two threads: pure arithmetic"
FIT = f"two threads: fit {TREES} x 2000, d = 10"
SCORE = f"two threads: score 100000 rows, {TREES} x {SAMPLES}, d = 10"
EXTEND = f"two threads: extend 2000 points, {TREES} trees, d = 10"
MACHINE = "this machine"
REPEATS, N_STEPS = 25, 40_000_000


def arithmetic(_effort: Effort) -> Callable[[int], object]:
    """Return arithmetic without memory access, divided among the threads."""
    return lambda n_threads: Threads(n_threads).run([partial(spin, N_STEPS // n_threads)] * n_threads)


@numba.njit(nogil=True)
def spin(n: int) -> int:
    """Multiply and add n times."""
    word = np.uint64(1)
    for i in range(n):
        word = (word ^ (word >> np.uint64(29))) * np.uint64(6364136223846793005) + np.uint64(i)
    return word


def fit(effort: Effort) -> Callable[[int], object]:
    """Build trees that hold every point."""
    X = normal_points(effort.rows(2_000), 10)
    return lambda n_threads: MondrianForest(TREES, n_jobs=n_threads).build(X)


def score(effort: Effort) -> Callable[[int], object]:
    """Score many rows."""
    X = normal_points(effort.rows(100_000), 10)
    forests = {n: MondrianForest(TREES, max_samples=SAMPLES, n_jobs=n).build(X) for n in (1, 2)}
    return lambda n_threads: forests[n_threads].score(X)


def extend(effort: Effort) -> Callable[[int], object]:
    """Extend empty trees that hold every point."""
    X = normal_points(effort.rows(2_000), 10)
    return lambda n_threads: MondrianForest(TREES, n_jobs=n_threads).extend(X)


def measure(effort: Effort, workload: str) -> list[Measurement]:
    """Time one thread and two threads alternately."""
    contestant, make = WORKLOADS[workload]
    task = make(effort)
    tasks = {Entrant(contestant, n_threads): Task(partial(task, n_threads)) for n_threads in (1, 2)}
    return time_tasks(workload, tasks, effort.repeats(REPEATS), "s")


WORKLOADS: dict[str, tuple[str, Callable[[Effort], Callable[[int], object]]]] = {
    ARITHMETIC: (MACHINE, arithmetic),
    FIT: ("ours", fit),
    SCORE: ("ours", score),
    EXTEND: ("ours", extend),
}
CONTESTS = [Contest((workload,), partial(measure, workload=workload)) for workload in WORKLOADS]

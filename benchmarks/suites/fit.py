"""Fitting 100 trees of 256 samples, with one and with two threads."""

from functools import partial

from contests import Contest, Effort
from peers import FORESTS, fitted, present
from timing import Entrant, Measurement, Task, time_tasks
from workloads import SAMPLES, TREES, normal_points

ROWS = (10_000, 100_000, 1_000_000)
REPEATS = 7


def name_of(n_rows: int) -> str:
    """Return the name of the workload."""
    return f"fit {TREES} x {SAMPLES}, n = {n_rows}, d = 10"


def measure(effort: Effort, n_rows: int) -> list[Measurement]:
    """Create and fit every forest."""
    X = normal_points(effort.rows(n_rows), 10)
    tasks = {
        Entrant(name, n_threads): Task(partial(fitted, name, X, n_threads))
        for n_threads in (1, 2)
        for name in present(FORESTS)
    }
    return time_tasks(name_of(n_rows), tasks, effort.repeats(REPEATS), "s")


CONTESTS = [Contest((name_of(n_rows),), partial(measure, n_rows=n_rows)) for n_rows in ROWS]

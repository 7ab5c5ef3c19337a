"""Fleets: one detector per key (24 trees, 64 of the last 256 points, d = 1), and krcf with one forest per key."""

import numpy as np

from contests import Contest, Effort
from fleet import BLOCK, peer_forests, return_seconds, warm_fleet
from peers import why_missing
from processes import in_new_process
from timing import Entrant, Measurement, Task, measurements, time_tasks

N_KEYS, N_PEER_KEYS, N_PEER_ROWS, N_STORED, REPEATS = 10_000, 500, 2_000, 500, 5
N_MEMORY_KEYS = {"ours": 10_000, "krcf": 500}
ROWS = f"fleet, {N_KEYS} keys, d = 1: blocks of {BLOCK}"
MEMORY = "fleet, d = 1: memory a key"
RETURN = "fleet, d = 1: back from the store"
LATE_RETURN = "fleet, d = 1: back from the store, 99 %"


def measure_rows(effort: Effort) -> list[Measurement]:
    """Score and learn rows of all keys in random order; krcf has fewer keys, which favours it."""
    n_keys, rng = effort.rows(N_KEYS), np.random.default_rng(1)
    tasks = {Entrant("ours", n): block_task(n_keys, n, rng, effort) for n in (1, 2)}
    if why_missing("krcf") is None:
        tasks[Entrant("krcf")] = peer_task(rng)
    return time_tasks(ROWS, tasks, effort.repeats(REPEATS), "us a row")


def block_task(n_keys: int, n_threads: int, rng: np.random.Generator, effort: Effort) -> Task:
    """Return the task that processes a block."""
    fleet, n_rows = warm_fleet(n_keys, n_keys, n_jobs=n_threads), effort.rows(BLOCK)

    def run() -> None:
        fleet.process_many(rng.integers(0, n_keys, n_rows), rng.normal(size=(n_rows, 1)))

    return Task(run, n_rows)


def peer_task(rng: np.random.Generator) -> Task:
    """Return the task that scores and learns with krcf, row by row."""
    forests = peer_forests(N_PEER_KEYS)

    def run() -> None:
        keys, rows = rng.integers(0, N_PEER_KEYS, N_PEER_ROWS).tolist(), rng.normal(size=(N_PEER_ROWS, 1))
        for key, row in zip(keys, rows, strict=True):
            forests[key].score(row)
            forests[key].update(row)

    return Task(run, N_PEER_ROWS)


def measure_memory(_effort: Effort) -> list[Measurement]:
    """Return the resident memory per key, each in a new process."""
    names = ["ours"] if why_missing("krcf") else ["ours", "krcf"]
    found = {Entrant(name): [in_new_process("fleet_memory", name, N_MEMORY_KEYS[name])["KB"]] for name in names}
    return measurements(MEMORY, found, "KB")


def measure_return(effort: Effort) -> list[Measurement]:
    """Return the processor time to read a key from the store: the median, and the 99 % quantile."""
    milliseconds = np.array(return_seconds(effort.rows(N_STORED))) * 1e3
    shares = {RETURN: 0.5, LATE_RETURN: 0.99}
    return [Measurement(name, "ours", 1, "ms", [float(np.quantile(milliseconds, q))]) for name, q in shares.items()]


CONTESTS = [
    Contest((ROWS,), measure_rows),
    Contest((MEMORY,), measure_memory),
    Contest((RETURN, LATE_RETURN), measure_return),
]

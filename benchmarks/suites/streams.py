"""Streams: score and learn each row; 100 trees, 256 of the last 2,048 points, one by one and in blocks."""

from collections.abc import Callable
from functools import partial

import numpy as np

from contests import Contest, Effort
from peers import present
from stream_peers import N_WARM, STREAMS, our_detector, our_stream
from timing import Entrant, Measurement, Task, cycling_task, time_tasks
from workloads import normal_points

PRESETS = ("paper", "practice")
REPEATS, N_ROWS, N_SLOW, BLOCK = 9, 500, 3, 2_000
Tasks = dict[Entrant, Task]


def name_of(preset: str, mode: str) -> str:
    """Return the name of the workload; the mode is "process" (one by one) or "many" (in blocks)."""
    return f"stream, {preset}: {mode}"


def measure(effort: Effort, preset: str, mode: str) -> list[Measurement]:
    """Time ours alternating with the peers, which process rows one by one; all get the same rows."""
    repeats = effort.repeats(REPEATS)
    X = normal_points(N_WARM + (repeats + 1) * BLOCK, 10)  # so that no row is repeated
    peers = {Entrant(name): peer_task(name, X) for name in present(STREAMS) if name != "ours"}
    return time_tasks(name_of(preset, mode), MODES[mode](X, preset) | peers, repeats, "us a point")


def one_by_one(X: np.ndarray, preset: str) -> Tasks:
    """Return the task that calls `process`."""
    stream = our_stream(X, preset)
    return {Entrant("ours"): cycling_task(stream.step, stream.rows, N_ROWS)}


def in_blocks(X: np.ndarray, preset: str) -> Tasks:
    """Return the tasks that call `process_many`, with one and with two threads."""
    blocks = [X[first : first + BLOCK] for first in range(N_WARM, len(X), BLOCK)]
    detectors = {n_threads: our_detector(X.shape[1], preset, n_threads) for n_threads in (1, 2)}
    for detector in detectors.values():
        detector.process_many(X[:N_WARM])
    return {
        Entrant("ours", n_threads): cycling_task(detector.process_many, blocks, 1, each=BLOCK)
        for n_threads, detector in detectors.items()
    }


def peer_task(name: str, X: np.ndarray) -> Task:
    """Return the task of a peer, row by row."""
    stream = STREAMS[name](X)
    return cycling_task(stream.step, stream.rows, N_SLOW if name == "rrcf" else N_ROWS)


MODES: dict[str, Callable[[np.ndarray, str], Tasks]] = {"process": one_by_one, "many": in_blocks}
CONTESTS = [
    Contest((name_of(preset, mode),), partial(measure, preset=preset, mode=mode))
    for preset in PRESETS
    for mode in MODES
]

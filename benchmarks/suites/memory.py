"""Peak memory of each contestant in its own process, including the interpreter and the data."""

from functools import partial

from contests import Contest, Effort
from peers import FORESTS, present
from processes import DATA_ALONE, in_new_process
from stream_peers import STREAMS
from timing import Entrant, Measurement, measure_alternately, measurements
from workloads import SAMPLES, TREES, WINDOW

N_ROWS, N_POINTS, N_SLOW = 1_000_000, 10_000, 5
BATCH = f"peak memory: fit {TREES} x {SAMPLES} and score, {N_ROWS} x 10"
STREAM = f"peak memory: stream, {TREES} x {SAMPLES} of {WINDOW}, d = 10"
REPEATS = 2


def measure_batch(effort: Effort) -> list[Measurement]:
    """Fit and score; the data alone for comparison."""
    sizes = dict.fromkeys((*present(FORESTS), DATA_ALONE), effort.rows(N_ROWS))
    return peaks(effort, BATCH, "batch_memory", sizes)


def measure_stream(effort: Effort) -> list[Measurement]:
    """Score and learn one by one. rrcf is slow, so it gets few points; it has its full size from the start."""
    sizes = {name: N_SLOW if name == "rrcf" else effort.rows(N_POINTS) for name in present(STREAMS)}
    return peaks(effort, STREAM, "stream_memory", sizes)


def peaks(effort: Effort, workload: str, function: str, sizes: dict[str, int]) -> list[Measurement]:
    """Measure the contestants alternately, after one start of ours that compiles missing kernels."""
    peak(function, "ours", sizes["ours"])
    measures = {Entrant(name): partial(peak, function, name, size) for name, size in sizes.items()}
    return measurements(workload, measure_alternately(measures, effort.repeats(REPEATS)), "MB")


def peak(function: str, name: str, size: int) -> float:
    """Return the peak memory of one contestant in MB."""
    return float(in_new_process(function, name, size)["MB"])


CONTESTS = [Contest((BATCH,), measure_batch), Contest((STREAM,), measure_stream)]

"""Start-up: from a new process to the first score, and compiling with an empty cache."""

import tempfile
from functools import partial

from contests import Contest, Effort
from peers import FORESTS, present
from processes import in_new_process
from timing import Entrant, Measurement, measure_alternately, measurements

START = "start-up: import, build, score one row"
FIRST_USE = "first use: compile every kernel"
FIRST_STREAM = "first use: compile every kernel, streams too"
REPEATS, COMPILE_REPEATS = 5, 3


def measure_start(effort: Effort) -> list[Measurement]:
    """Start the contestants alternately, after one start that loads files and compiles missing kernels."""
    measures = {Entrant(name): partial(seconds_of_start, name) for name in present(FORESTS)}
    measure_alternately(measures, 1)
    return measurements(START, measure_alternately(measures, effort.repeats(REPEATS)), "s")


def seconds_of_start(name: str) -> float:
    """Return the start-up seconds of one contestant."""
    return float(in_new_process("start_up", name)["s"])


def measure_first_use(effort: Effort) -> list[Measurement]:
    """Compile every kernel: first those of the forest, then those of streams."""
    found = [first_use() for _ in range(effort.repeats(COMPILE_REPEATS))]
    return [
        *measurements(FIRST_USE, {Entrant("ours"): [one["forest"] for one in found]}, "s"),
        *measurements(FIRST_STREAM, {Entrant("ours"): [one["all"] for one in found]}, "s"),
    ]


def first_use() -> dict[str, float]:
    """Compile into an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        return in_new_process("first_use", NUMBA_CACHE_DIR=cache)


CONTESTS = [Contest((START,), measure_start), Contest((FIRST_USE, FIRST_STREAM), measure_first_use)]

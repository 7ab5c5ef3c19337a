"""The counters of a stream detector, and a kernel that makes all updates for one row."""

from imondrian.engine.histogram import count_in_bin
from imondrian.engine.jit import Array, kernel
from imondrian.engine.surprise import surprise_and_count

N_SEEN, N_SKIPPED, N_SCORED, N_DRIFTS, N_SHOWN = range(5)  # indices of the counters


@kernel
def count_row(
    histogram: Array, clock: Array, bins: Array, counts: Array, score: float, growth: float, run_weight: float
) -> float:
    """Count the score of one row in the threshold's histogram, in the drift monitor's bins and in the counters.

    Return its surprise. These updates are a single kernel call, so that an interruption (Ctrl+C) cannot come between
    them.
    """
    surprise = surprise_and_count(histogram, clock, score, growth, run_weight)
    count_in_bin(bins, score)
    counts[N_SEEN] += 1
    counts[N_SCORED] += 1
    counts[N_SHOWN] += 1
    return surprise

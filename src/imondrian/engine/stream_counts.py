"""The counters of a stream detector, and a kernel that makes all updates for one row."""

from imondrian.engine.histogram import count_in_bin, count_score
from imondrian.engine.jit import Array, kernel

N_SEEN, N_SKIPPED, N_SCORED, N_DRIFTS, N_SHOWN = range(5)  # indices of the counters


@kernel
def count_row(histogram: Array, clock: Array, bins: Array, counts: Array, score: float, growth: float) -> None:
    """Count the score of one row in the threshold's histogram, in the drift monitor's bins and in the counters.

    These updates are a single kernel call, so that an interruption (Ctrl+C) cannot come between them.
    """
    count_score(histogram, clock, score, growth)
    count_in_bin(bins, score)
    counts[N_SEEN] += 1
    counts[N_SCORED] += 1
    counts[N_SHOWN] += 1

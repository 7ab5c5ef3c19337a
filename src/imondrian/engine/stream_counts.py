"""The counters of a stream detector, and kernels that make all updates for one row.

Each kernel is one call, so that an interruption (Ctrl+C) cannot come between the updates.
"""

from imondrian.engine.alarm_runs import count_in_run
from imondrian.engine.histogram import count_in_bin
from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.surprise import count_with_surprise

N_SEEN, N_SKIPPED, N_SCORED, N_DRIFTS, N_SHOWN = range(5)  # indices of the counters


@helper
def _count(
    histogram: Array,
    clock: Array,
    bins: Array,
    counts: Array,
    score: float,
    surprise: float,
    growth: float,
    run_weight: float,
) -> None:
    count_with_surprise(histogram, clock, score, surprise, growth, run_weight)
    count_in_bin(bins, score)
    counts[N_SEEN] += 1
    counts[N_SCORED] += 1
    counts[N_SHOWN] += 1


@kernel
def count_row(
    histogram: Array,
    clock: Array,
    bins: Array,
    counts: Array,
    score: float,
    surprise: float,
    growth: float,
    run_weight: float,
) -> None:
    """Count the score of one row in the threshold's histogram, in the drift monitor's bins and in the counters."""
    _count(histogram, clock, bins, counts, score, surprise, growth, run_weight)


@kernel
def count_alarm(  # noqa: PLR0913, PLR0917
    histogram: Array,
    clock: Array,
    bins: Array,
    counts: Array,
    score: float,
    surprise: float,
    growth: float,
    run_weight: float,
    rows: Array,
    peak: Array,
) -> None:
    """Like `count_row` for an alarm, which is also added to a run of alarms."""
    count_in_run(rows, peak, counts[N_SEEN], score, surprise)
    _count(histogram, clock, bins, counts, score, surprise, growth, run_weight)

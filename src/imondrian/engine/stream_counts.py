"""The counters of a stream detector, and kernels that make all updates for one row.

Each kernel is one call, so that an interruption (Ctrl+C) cannot come between the updates.
"""

from typing import NamedTuple

from imondrian.engine.alarm_runs import count_in_run
from imondrian.engine.histogram import count_in_bin
from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.surprise import count_with_surprise

# indices of the counters: rows seen and skipped, points scored, drifts reported, points shown to the forest
N_SEEN, N_SKIPPED, N_SCORED, N_DRIFTS, N_SHOWN = range(5)


class Counted(NamedTuple):
    """The arrays in which a kernel counts a row."""

    histogram: Array  # of the threshold
    clock: Array  # of that histogram: its counters and the weight of the next score, see `new_clock`
    bins: Array  # of the drift monitor
    counts: Array  # of the detector


class WeightedScore(NamedTuple):
    """The score of a row, and how much it counts for the threshold."""

    score: float
    surprise: float
    growth: float  # factor from the weight of one score to that of the next, in the threshold's histogram
    run_weight: float  # weight of a surprising score that continues a run of them


@helper
def count(counted: Counted, row: WeightedScore) -> None:
    """Count a row in the threshold's histogram, in the drift monitor's bins and in the counters."""
    count_with_surprise(counted.histogram, counted.clock, row.score, row.surprise, row.growth, row.run_weight)
    count_in_bin(counted.bins, row.score)
    counted.counts[N_SEEN] += 1
    counted.counts[N_SCORED] += 1
    counted.counts[N_SHOWN] += 1


@kernel
def count_row(counted: Counted, row: WeightedScore) -> None:
    """Count a row that is not an alarm."""
    count(counted, row)


@kernel
def count_alarm(counted: Counted, row: WeightedScore, run: Array) -> None:
    """Count an alarm, and add it to a run of alarms."""
    count_in_run(run, counted.counts[N_SEEN], row.score, row.surprise)
    count(counted, row)

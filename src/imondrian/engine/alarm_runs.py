"""Runs of alarms: the figures of alarms that belong together."""

from imondrian.engine.jit import Array, helper, kernel

FIRST, LAST, N_ALARMS, PEAK = range(4)  # entries of `rows`: indices of the first and last alarm, their number, the peak
SCORE, SURPRISE = range(2)  # entries of `peak`, the alarm with the highest surprise


@helper
def count_in_run(rows: Array, peak: Array, index: int, score: float, surprise: float) -> None:
    """Add the alarm at the row with this index to a run."""
    is_first = rows[N_ALARMS] == 0
    if is_first:
        rows[FIRST] = index
    if is_first or surprise > peak[SURPRISE]:
        rows[PEAK] = index
        peak[SCORE] = score
        peak[SURPRISE] = surprise
    rows[LAST] = index
    rows[N_ALARMS] += 1


@kernel
def add_alarm(rows: Array, peak: Array, index: int, score: float, surprise: float) -> None:
    """Add one alarm to a run."""
    count_in_run(rows, peak, index, score, surprise)


@kernel
def add_alarms(rows: Array, peak: Array, first: int, positions: Array, scores: Array, surprises: Array) -> None:
    """Add the alarms at some positions of a block to a run; `first` is the index of the first row of the block."""
    for position in positions:
        count_in_run(rows, peak, first + position, scores[position], surprises[position])

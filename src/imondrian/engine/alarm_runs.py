"""Runs of alarms: the figures of alarms that belong together."""

from imondrian.engine.jit import Array, helper, kernel

# entries of `alarms`: indices of the first and last alarm, number of alarms, index of that with the highest surprise
FIRST, LAST, N_ALARMS, PEAK = range(4)
SCORE, SURPRISE = range(2)  # entries of `peak`: score and surprise of the alarm with the highest surprise


@helper
def count_in_run(alarms: Array, peak: Array, index: int, score: float, surprise: float) -> None:
    """Add the alarm at the row with this index to a run."""
    is_first = alarms[N_ALARMS] == 0
    if is_first:
        alarms[FIRST] = index
    if is_first or surprise > peak[SURPRISE]:
        alarms[PEAK] = index
        peak[SCORE] = score
        peak[SURPRISE] = surprise
    alarms[LAST] = index
    alarms[N_ALARMS] += 1


@kernel
def add_alarm(alarms: Array, peak: Array, index: int, score: float, surprise: float) -> None:
    """Add one alarm to a run."""
    count_in_run(alarms, peak, index, score, surprise)


@kernel
def add_alarms(alarms: Array, peak: Array, first: int, positions: Array, scores: Array, surprises: Array) -> None:
    """Add the alarms at some positions of a block to a run; `first` is the index of the first row of the block."""
    for position in positions:
        count_in_run(alarms, peak, first + position, scores[position], surprises[position])

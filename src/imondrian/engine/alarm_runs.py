"""Runs of alarms: the figures of alarms that belong together, in one array."""

from imondrian.engine.jit import Array, helper, kernel

# entries of a run: indices of the first and the last alarm, number of alarms; index, score and surprise of the alarm
# with the highest surprise
FIRST, LAST, N_ALARMS, PEAK, SCORE, SURPRISE = range(6)


@helper
def count_in_run(run: Array, index: int, score: float, surprise: float) -> None:
    """Add the alarm at the row with this index to a run."""
    is_first = run[N_ALARMS] == 0.0
    if is_first:
        run[FIRST] = index
    if is_first or surprise > run[SURPRISE]:
        run[PEAK] = index
        run[SCORE] = score
        run[SURPRISE] = surprise
    run[LAST] = index
    run[N_ALARMS] += 1.0


@kernel
def add_alarm(run: Array, index: int, score: float, surprise: float) -> None:
    """Add one alarm to a run."""
    count_in_run(run, index, score, surprise)


@kernel
def add_alarms(run: Array, first: int, positions: Array, scores: Array, surprises: Array) -> None:
    """Add the alarms at some positions of a block to a run; `first` is the index of the first row of the block."""
    for position in positions:
        count_in_run(run, first + position, scores[position], surprises[position])

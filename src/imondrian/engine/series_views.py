"""The two views of a time series: deviations from what is usual at this hour of the day, and from the recent level."""

import math

from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.nodes import MAX_VALUE

N_VIEWS = 2
HOUR, LEVEL = 0, 1  # the views
COUNT, MEAN = 0, 1  # the rows of `hours` and `level`
LAST, STEP = 0, 1  # the entries of `clock`: the latest time and the typical step, in seconds; NaN if not known
N_STEPS, N_LATE, N_REPEATED, N_HOLES, LATE_RUN = range(5)  # the entries of `counts`; LATE_RUN: late rows in succession

HOURS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_DAY = 24, 3600.0, 86400.0
N_VALUES_OF_HOUR = 50.0  # the mean for an hour of the day covers about this many of its latest values
HALF_LIFE = 200.0  # of the recent level, in rows
N_VALUES_OF_DEVIATION = 16.0  # the mean absolute deviation covers about this many of the latest values
LARGEST_DEVIATION = 100.0  # in mean absolute deviations; a mean learns a larger deviation as one of this size
MAX_SECONDS = 1e12  # largest absolute time; beyond all dates, and differences are exact to 0.0002 seconds
N_STEPS_AVERAGED = 100  # the typical step is the mean of about this many steps
LONGEST_STEP = 4.0  # in typical steps; a longer step counts as one of this length
HOLE = 100.0  # in typical steps; a longer step is a hole: the level before it says nothing about the next row
LONGEST_LATE_RUN = 100  # after this many late rows in succession, the source is assumed to have set its clock back
_LEVEL_WEIGHT = 1.0 - 0.5 ** (1.0 / HALF_LIFE)


@kernel
def write_views(  # noqa: PLR0913, PLR0917
    rows: Array,
    times: Array,
    hours: Array,
    level: Array,
    mean_deviation: Array,
    clock: Array,
    counts: Array,
    usual: Array,
    points: Array,
) -> None:
    """Write what is usual for each row, and its deviations from that; then learn the row.

    Parameters
    ----------
    rows : array of shape (n_rows, n_features)
        NaN: the number is missing. Its deviations are 0, and it is not learned.
    times : array of shape (n_rows,)
        Seconds. NaN: the time is not known; it is taken to be one typical step after the latest time.
    hours : array of shape (2, HOURS_PER_DAY, n_features)
        For each hour of the day, the number of values learned (up to N_VALUES_OF_HOUR), and their mean.
    level : array of shape (2, n_features)
        The number of values learned since the last hole (up to 1 / _LEVEL_WEIGHT, or 289), and their exponential mean.
    mean_deviation : array of shape (N_VIEWS, n_features)
        The mean absolute deviation of about the latest N_VALUES_OF_DEVIATION values; 0 if not known.
    clock : array of shape (2,)
        Its entries are `LAST` and `STEP`.
    counts : int64 array of shape (5,)
        Its entries are `N_STEPS` to `LATE_RUN`.
    usual : array of shape (n_rows, N_VIEWS, n_features)
        Where the usual values are written; NaN if nothing is known yet.
    points : array of shape (n_rows, N_VIEWS * n_features)
        Where the deviations are written.
    """
    n_features = rows.shape[1]
    for i in range(rows.shape[0]):
        hour = _hour_of_day(_advance(times[i], clock, counts, level))
        for j in range(n_features):
            _write_usual(usual[i], j, hours, hour, level)
            _write_deviation(rows[i], usual[i], points[i], j)
            if not math.isnan(rows[i, j]):
                _learn(rows[i, j], hours[:, hour, :], j, 1.0 / N_VALUES_OF_HOUR, mean_deviation[HOUR])
                _learn(rows[i, j], level, j, _LEVEL_WEIGHT, mean_deviation[LEVEL])


@helper
def _advance(time: float, clock: Array, counts: Array, level: Array) -> float:
    """Set the latest time to that of the next row, unless the row is late; return the row's time, NaN if not known."""
    last = clock[LAST]
    if math.isnan(time):
        time = clock[LAST] = _guessed_time(last, clock[STEP])
    elif math.isnan(last):
        clock[LAST] = time
    elif time < last:
        counts[N_LATE] += 1
        counts[LATE_RUN] += 1
        if counts[LATE_RUN] == LONGEST_LATE_RUN:  # otherwise a single time far ahead would make all later rows late
            clock[LAST], counts[LATE_RUN] = time, 0
    else:
        counts[LATE_RUN] = 0
        clock[LAST] = time
        if time == last:
            counts[N_REPEATED] += 1
        else:
            _count_step(time - last, clock, counts, level)
    return time


@helper
def _guessed_time(last: float, step: float) -> float:
    """Return the time of a row without one: the latest time (NaN if there is none) plus the typical step, if known."""
    return last if math.isnan(step) else min(last + step, MAX_SECONDS)


@helper
def _count_step(passed: float, clock: Array, counts: Array, level: Array) -> None:
    """Update the typical step; after a hole, restart the level.

    A hole counts as a step as well, so that a typical step that has become too short grows again.
    """
    step = passed if math.isnan(clock[STEP]) else clock[STEP]
    if passed > HOLE * step:
        counts[N_HOLES] += 1
        level[COUNT, :] = 0.0
    counts[N_STEPS] = min(counts[N_STEPS] + 1, N_STEPS_AVERAGED)
    clock[STEP] = step + (min(passed, LONGEST_STEP * step) - step) / counts[N_STEPS]


@helper
def _hour_of_day(time: float) -> int:
    """Return the hour of the day, from 0; 0 if the time is not known."""
    if math.isnan(time):
        return 0
    return int((time - math.floor(time / SECONDS_PER_DAY) * SECONDS_PER_DAY) / SECONDS_PER_HOUR) % HOURS_PER_DAY


@helper
def _write_usual(usual: Array, j: int, hours: Array, hour: int, level: Array) -> None:
    """Write the usual values of feature j; where one is not known, the other takes its place."""
    of_hour = hours[MEAN, hour, j] if hours[COUNT, hour, j] > 0.0 else math.nan
    recent = level[MEAN, j] if level[COUNT, j] > 0.0 else math.nan
    usual[HOUR, j] = recent if math.isnan(of_hour) else of_hour
    usual[LEVEL, j] = of_hour if math.isnan(recent) else recent


@kernel
def write_deviations(row: Array, usual: Array, point: Array) -> None:
    """Write the deviations of a row from what is usual in each view."""
    for j in range(row.size):
        _write_deviation(row, usual, point, j)


@helper
def _write_deviation(row: Array, usual: Array, point: Array, j: int) -> None:
    """Write the deviations of feature j, one for each view."""
    for view in range(N_VIEWS):
        point[view * row.size + j] = _deviation(row[j], usual[view, j])


@helper
def _deviation(value: float, usual: float) -> float:
    """Return value - usual, within the range of values that a forest accepts; 0 if either is not known."""
    if math.isnan(value) or math.isnan(usual):
        return 0.0
    return _limited(value - usual)


@helper
def _limited(value: float) -> float:
    return min(max(value, -MAX_VALUE), MAX_VALUE)


@helper
def _learn(value: float, means: Array, j: int, weight: float, mean_deviation: Array) -> None:
    """Move the mean of feature j towards a value; until it has 1 / weight values, all of them have the same weight.

    A single wrong value, however large, must not determine the mean for a long time: its deviation is limited.
    """
    deviation = value - means[MEAN, j]
    if means[COUNT, j] > 0.0:
        if mean_deviation[j] > 0.0:
            limit = LARGEST_DEVIATION * mean_deviation[j]
            deviation = min(max(deviation, -limit), limit)
        mean_deviation[j] += (abs(deviation) - mean_deviation[j]) / N_VALUES_OF_DEVIATION
    means[COUNT, j] = min(means[COUNT, j] + 1.0, 1.0 / weight)
    mean = means[MEAN, j] + deviation * max(weight, 1.0 / means[COUNT, j])
    means[MEAN, j] = _limited(mean)  # rounding may exceed the limit

"""The two views of a time series: how far each value is from what is usual at this hour, and from the recent level."""

import math
from typing import Any, NamedTuple

import numpy as np

from imondrian.base.copying import shallow_copy
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_COUNT, MAX_VALUE
from imondrian.engine.series_views import (
    COUNT,
    HALF_LIFE,
    HOURS_PER_DAY,
    LAST,
    LATE_RUN,
    LONGEST_LATE_RUN,
    MAX_SECONDS,
    MEAN,
    N_HOLES,
    N_LATE,
    N_REPEATED,
    N_STEPS_AVERAGED,
    N_VALUES_OF_HOUR,
    N_VIEWS,
    STEP,
    write_deviations,
    write_views,
)
from imondrian.forest.inputs import as_count


class TimeCounts(NamedTuple):
    """Facts about the times of a series."""

    n_late: int  # rows whose time is before the latest time, which may be assumed or set back (see `SeriesViews`)
    n_repeated: int  # rows whose time equals the latest time so far
    n_holes: int  # steps that are more than 100 times as long as usual
    step: float  # the usual time between two rows, in seconds; NaN if not known


class ViewedRows(NamedTuple):
    """Rows of a series and what is usual for them."""

    values: Array  # of shape (n_rows, n_features); NaN for a missing number
    usual: Array  # of shape (n_rows, 2, n_features): the usual values in both views; NaN if nothing was known


class Spread(NamedTuple):
    """How far values deviate from the usual ones: the 5 % and 95 % quantiles of the deviations, in both views."""

    low: Array  # of shape (2, n_features)
    high: Array

    @classmethod
    def of_points(cls, points: Array) -> "Spread":
        """Return the spread of the points of a forest, of which there must be at least one."""
        low, high = np.quantile(points.reshape(len(points), N_VIEWS, -1), [0.05, 0.95], axis=0)
        return cls(low, high)

    def range_around(self, usual: Array) -> tuple[Array, Array]:
        """Return the range of ordinary values of each feature, from the view in which this range is narrower.

        Parameters
        ----------
        usual : array of shape (..., 2, n_features)
            The usual values in both views.

        Returns
        -------
        low, high : arrays of shape (..., n_features)
        """
        columns = ..., np.argmin(self.high - self.low, axis=0), np.arange(self.low.shape[1])
        return (usual + self.low)[columns], (usual + self.high)[columns]


class SeriesViews:
    """The usual values of a time series, and the deviations from them, which are the points of the forest.

    A point has two values for each feature: the deviation from what is usual at this hour of the day (the mean of about
    the latest 50 values in this hour), and from the recent level (the exponential mean with a half-life of 200 rows).
    Where one of the two is not known yet, the other takes its place. Without times, all rows belong to the same hour.
    When the means are updated, a deviation is limited to 100 times the recent mean absolute deviation.

    A row whose time is not known is assumed to come one usual step after the latest time so far. A step that is more
    than 100 times as long as usual is a hole in the series: after it, the recent level restarts. Late and repeated rows
    are processed in the order in which they arrive, with the hour of their own time; after 100 late rows in succession,
    the clock is assumed to have been set back, and time continues from the last of them.

    Parameters
    ----------
    n_features : int
        Number of values in a row.

    Attributes
    ----------
    viewed : ViewedRows
        The rows whose points were computed last.

    Examples
    --------
    >>> views = SeriesViews(1)
    >>> views.points(np.array([[1.0], [2.0], [6.0]]), np.array([0.0, 1800.0, 3600.0])).tolist()
    [[0.0, 0.0], [1.0, 1.0], [4.5, 4.5]]
    >>> views.points(np.array([[3.0]]), np.array([86_400.0])).tolist()  # usual at this hour: 1.5, the mean of 1 and 2
    [[1.5, 0.0]]
    """

    size = N_VIEWS  # values of a point for each feature
    n_rows_needed = 0  # each row completes a point

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features
        self._hours, self._level = np.zeros((2, HOURS_PER_DAY, n_features)), np.zeros((2, n_features))
        self._mean_deviation = np.zeros((N_VIEWS, n_features))
        self._clock, self._counts = np.full(2, np.nan), np.zeros(5, np.int64)
        self.viewed = ViewedRows(np.empty((0, n_features)), np.empty((0, N_VIEWS, n_features)))

    def copy(self) -> "SeriesViews":
        """Return an independent copy."""
        other = shallow_copy(self)
        for name in _ARRAYS:
            setattr(other, name, getattr(self, name).copy())
        return other

    @property
    def n_bytes(self) -> int:
        """Memory used in bytes."""
        return sum(getattr(self, name).nbytes for name in _ARRAYS)

    @property
    def time_counts(self) -> TimeCounts:
        """Facts about the times so far."""
        counts = self._counts.tolist()
        return TimeCounts(counts[N_LATE], counts[N_REPEATED], counts[N_HOLES], self._clock.item(STEP))

    @property
    def n_irregular_times(self) -> int:
        """Number of times that are late, repeated or after a hole; at most the number of rows."""
        return sum(self.time_counts[:3])

    def points(self, rows: Array, times: Array | None) -> Array:
        """Return the points of the next rows, and learn the rows; NaN means a missing number or an unknown time."""
        times = np.full(len(rows), np.nan) if times is None else times
        usual = np.empty((len(rows), N_VIEWS, self.n_features))
        points = np.empty((len(rows), N_VIEWS * self.n_features))
        means = self._hours, self._level, self._mean_deviation
        write_views(rows, times, *means, self._clock, self._counts, usual, points)
        self.viewed = ViewedRows(rows, usual)
        return points

    def preview(self, rows: Array, times: Array | None) -> Array:
        """Return the point of each row as if that row came next; nothing is learned."""
        times = np.full(len(rows), np.nan) if times is None else times
        return np.vstack([self.copy().points(rows[i : i + 1], times[i : i + 1]) for i in range(len(rows))])

    def without_values(self, before: "SeriesViews", times: Array | None) -> "SeriesViews":
        """Return these views as if the latest rows had no values; `before` are the views before these rows."""
        other = before.copy()
        other.points(np.full_like(self.viewed.values, np.nan), times)
        other.viewed = self.viewed
        return other

    def usual_at(self, time: float) -> Array:
        """Return the usual values of both views if the next row comes at this time; NaN if nothing is known."""
        other = self.copy()
        other.points(np.full((1, self.n_features), np.nan), np.array([time]))
        usual: Array = other.viewed.usual[0]
        return usual

    def notes(self) -> dict[str, Any]:
        """Return the state in types that JSON supports."""
        return {"views": self._notes()}

    def _notes(self) -> dict[str, Any]:
        return {
            "hours": self._hours.ravel().tolist(),
            "level": self._level.ravel().tolist(),
            "spread": self._mean_deviation.ravel().tolist(),  # model files use this name for the mean deviation
            "clock": [None if math.isnan(value) else value for value in self._clock.tolist()],
            "counts": self._counts.tolist(),
        }

    def restore(self, notes: dict[str, Any]) -> None:
        """Restore the state that `notes` returned.

        Raises
        ------
        ValueError
            If the notes are invalid.
        """
        notes = notes["views"]
        hours, level = _means(notes["hours"], self._hours.shape), _means(notes["level"], self._level.shape)
        mean_deviation = np.array(notes["spread"], np.float64).reshape(self._mean_deviation.shape)
        clock = np.array([math.nan if value is None else float(value) for value in notes["clock"]])
        counts = [as_count(count, "a count of times", 0, MAX_COUNT) for count in notes["counts"]]
        is_valid = (
            (hours[COUNT] <= N_VALUES_OF_HOUR).all()
            and (level[COUNT] <= _MAX_LEVEL_COUNT).all()
            and ((mean_deviation >= 0.0) & (mean_deviation <= 2.0 * MAX_VALUE)).all()
            and clock.shape == (2,)
            and len(counts) == 5
            and not abs(clock[LAST]) > MAX_SECONDS
            and not clock[STEP] <= 0.0
            and not clock[STEP] > 2.0 * MAX_SECONDS
            and math.isnan(clock[STEP]) == (counts[0] == 0)
            and counts[0] <= N_STEPS_AVERAGED
            and counts[LATE_RUN] < LONGEST_LATE_RUN
            and not (math.isnan(clock[LAST]) and any(counts))
        )
        if not is_valid:
            raise ValueError("the usual values of the series are damaged.")
        self._hours, self._level, self._mean_deviation = hours, level, mean_deviation
        self._clock, self._counts = clock, np.array(counts)


def deviations(row: Array, usual: Array) -> Array:
    """Return the point of a row, given the usual values in both views; bit for bit as `SeriesViews.points` does."""
    point = np.empty(usual.size)
    write_deviations(row, usual, point)
    return point


_ARRAYS = ("_hours", "_level", "_mean_deviation", "_clock", "_counts")  # the attributes that hold the state
_MAX_LEVEL_COUNT = 1.0 / (1.0 - 0.5 ** (1.0 / HALF_LIFE))


def _means(values: Any, shape: tuple[int, ...]) -> Array:
    """Return stored counts and means; raise ValueError if they are impossible."""
    means = np.array(values, np.float64).reshape(shape)
    if not ((means[COUNT] >= 0.0).all() and (np.abs(means[MEAN]) <= MAX_VALUE).all()):
        raise ValueError("the usual values of the series are damaged.")
    return means

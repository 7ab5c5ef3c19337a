"""The times of the rows of a stream, in seconds since 1970; the offset of a time zone is ignored."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from numbers import Real
from typing import Any

import numpy as np

from imondrian.base.categories import is_missing
from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.engine.series_views import MAX_SECONDS


def as_seconds(time: Any) -> float:
    """Return a time in seconds since 1970; NaN if it is missing (None, NaN, NaT, NA).

    The hour of the day is read as it was written: for a `datetime` with a time zone, the offset is ignored.

    Parameters
    ----------
    time : number, datetime, numpy.datetime64, pandas.Timestamp, text or None
        A number is in seconds. Text is in ISO format, such as "2024-05-01 14:05".

    Raises
    ------
    InvalidInputError
        If the time is none of these, or too far from 1970.

    Examples
    --------
    >>> as_seconds("1970-01-02 00:00:01"), as_seconds(86401), as_seconds(np.datetime64("1970-01-02T00:00:01"))
    (86401.0, 86401.0, 86401.0)
    """
    if is_missing(time):
        return math.nan
    try:
        seconds = _seconds(time)
    except (ValueError, OverflowError):
        seconds = math.inf
    if MAX_SECONDS < abs(seconds) < math.inf:
        raise InvalidInputError(f"The time {time!r:.200} is too far from 1970. A number must be in seconds.")
    if math.isinf(seconds):
        raise InvalidInputError(
            "A time must be a number of seconds since 1970, a datetime, or ISO text such as '2024-05-01 14:05', but is"
            f" {time!r:.200}."
        )
    return seconds


def _seconds(time: Any) -> float:
    """Return a time in seconds; raise ValueError if the argument is not a time."""
    if isinstance(time, str):
        time = datetime.fromisoformat(time.strip())
    if isinstance(time, datetime):
        return time.replace(tzinfo=UTC).timestamp()
    if isinstance(time, np.datetime64):
        return float(_of_datetimes(np.array([time]))[0])
    if isinstance(time, (Real, np.number)) and not isinstance(time, (bool, np.bool_, np.timedelta64)):
        return float(time)
    raise ValueError(f"{time!r} is not a time.")


def as_times(times: Any, n_rows: int) -> Array:
    """Return the times of rows in seconds, each converted by `as_seconds`; all NaN if `times` is None.

    Raises
    ------
    InvalidInputError
        If there are more or fewer times than rows, or one of them is not a time.
    """
    if times is None:
        return np.full(n_rows, np.nan)
    seconds = _array_of(times)
    if seconds.shape != (n_rows,):
        raise InvalidInputError(f"There are {n_rows} rows, but the shape of times is {seconds.shape}.")
    too_large = np.abs(seconds) > MAX_SECONDS
    if too_large.any():
        as_seconds(float(seconds[np.argmax(too_large)]))
    return seconds


def _array_of(times: Any) -> Array:
    if isinstance(times, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(times), np.nan, _array_of(times.data))
    if getattr(getattr(times, "dtype", None), "time_zone", None) is not None:
        times = list(times)  # polars would convert the times to UTC, which changes their hours
    try:
        array = np.asarray(times)
    except ValueError:  # nested sequences of different lengths
        raise InvalidInputError(f"times must be a sequence of times, but is {times!r:.200}.") from None
    if array.dtype.kind == "M":
        return _of_datetimes(array)
    if array.dtype.kind in "fiu":
        return array.astype(np.float64)
    if not isinstance(times, Iterable) or isinstance(times, (str, bytes)):
        raise InvalidInputError(f"times must be a sequence of times, but is {times!r:.200}.")
    return np.array([as_seconds(time) for time in times], dtype=np.float64)


def _of_datetimes(array: Array) -> Array:
    """Return NumPy datetimes in seconds; NaT becomes NaN. Times in finer units are rounded down to nanoseconds."""
    if np.datetime_data(array.dtype)[0] in ("ps", "fs", "as"):
        array = array.astype("datetime64[ns]")  # otherwise the difference below would overflow
    days = array.astype("datetime64[D]")
    seconds = days.astype(np.int64) * 86400.0 + (array - days) / np.timedelta64(1, "s")
    return np.where(np.isnat(array), np.nan, seconds)

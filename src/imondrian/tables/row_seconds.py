"""Convert times of rows to seconds since 1970, from dates in a recognised format or numbers in a common unit."""

import math
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from imondrian.engine.jit import Array
from imondrian.engine.series_views import MAX_SECONDS
from imondrian.tables.cells import MISSING_TEXTS, as_cell, without_missing_texts
from imondrian.tables.dates import DateFormat, as_datetimes, is_known_format, recognise_dates, related_formats

_UNITS = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}  # per second
_UNITS_OF_DATES = {"ms": 1e3, "us": 1e6, "ns": 1e9}
_MILLISECONDS = pl.Datetime("ms")
_LARGEST = 1e11  # the year 5138 in seconds: a larger number is in a smaller unit
_N_TRIED = 100  # if no format fits the whole column, the number of distinct values whose formats are tried


class TimeFormat(NamedTuple):
    """How the times of rows are written: as text, or as numbers since 1970."""

    text: str  # a format of strptime, or a unit
    is_doubtful: bool = False  # True: day and month could also be swapped

    @property
    def is_number(self) -> bool:
        """Whether times are numbers."""
        return self.text in _UNITS

    @property
    def has_date(self) -> bool:
        """Whether times have a date, not only a time of day."""
        return self.is_number or DateFormat(self.text).has_date

    def describe(self) -> str:
        """Return what a user should know about how times are read; "" if it is obvious."""
        if self.is_number:
            return f"numbers are {self.text} since 1970"
        return "dates are read with the month before the day" if self.is_doubtful else ""

    def seconds(self, values: list[Any]) -> Array:
        """Return times in seconds; NaN for each value that is missing, or that is not in this format.

        The hour is read as written: time zones are ignored. A date may also lack the time of day, or have it in
        another format. A number that would be after the year 5138 must be in another unit, so its time is unknown.

        Examples
        --------
        >>> TimeFormat("%Y-%m-%d %H:%M").seconds(["1970-01-02 00:01", "1970-01-02", "yesterday"]).tolist()
        [86460.0, 86400.0, nan]
        """
        if self.is_number:
            seconds = np.array([_number(value) for value in values], np.float64) / _UNITS[self.text]
            return np.where(np.abs(seconds) <= _LARGEST, seconds, np.nan)
        cells = pl.Series([value.strip() if isinstance(value, str) else None for value in values], dtype=pl.String)
        parsed = as_datetimes(cells, DateFormat(self.text))
        for related in related_formats(self.text):
            if not (parsed.is_null() & cells.is_not_null()).any():
                break
            parsed = parsed.fill_null(as_datetimes(cells, DateFormat(related)))
        return parsed.dt.epoch("us").cast(pl.Float64).fill_null(math.nan).to_numpy() / 1e6


def time_format_of(value: Any) -> TimeFormat | None:
    """Return how a time is written; None if a value is not recognised as a time.

    A number is in seconds, unless that would be after the year 5138: then it is in the largest unit that avoids this.

    Examples
    --------
    >>> time_format_of("2024-05-01T14:05:00Z").text, time_format_of(1714572300000).text, time_format_of("soon")
    ('%Y-%m-%d %H:%M:%S%.f', 'milliseconds', None)
    """
    number = _number(value)
    if not math.isnan(number):
        units = (unit for unit, size in _UNITS.items() if abs(number) <= _LARGEST * size)
        unit = next(units, None)
        return None if unit is None else TimeFormat(unit)
    if not isinstance(value, str) or value.strip() in MISSING_TEXTS:
        return None
    found = recognise_dates(as_cell(value))
    return None if found is None else TimeFormat(*found)


def seconds_of_column(column: pl.Series) -> tuple[Array, TimeFormat | None]:
    """Return the times in a column of a table, and how they are written; NaN where a cell is not a time.

    If no single format fits the column, the format is that of the first time with a date among the first 100 distinct
    values, or else of the first time of day among them. If there is neither, or if the type of the column is date or
    datetime, the format is None.
    """
    if column.dtype in (pl.Date, pl.Datetime):
        return _seconds_of_dates(column), None
    cells = without_missing_texts(column)
    dates = recognise_dates(cells) if cells.dtype == pl.String else None
    found = TimeFormat(*dates) if dates else _first_format(cells)
    return np.full(column.len(), math.nan) if found is None else found.seconds(cells.to_list()), found


def is_time_format(text: object) -> bool:
    """Return True if a text from a model file is valid as `TimeFormat.text`."""
    return text in _UNITS or is_known_format(text)


def _seconds_of_dates(column: pl.Series) -> Array:
    """Return dates or datetimes in seconds; NaN where one is missing or beyond MAX_SECONDS."""
    times = column.dt.replace_time_zone(None) if isinstance(column.dtype, pl.Datetime) else column.cast(_MILLISECONDS)
    unit = times.dtype.time_unit if isinstance(times.dtype, pl.Datetime) else "ms"
    seconds = times.to_physical().cast(pl.Float64).fill_null(math.nan).to_numpy() / _UNITS_OF_DATES[unit]
    return np.where(np.abs(seconds) <= MAX_SECONDS, seconds, np.nan)


def _first_format(cells: pl.Series) -> TimeFormat | None:
    """Return the format of the first value that is a time with a date, or else of the first time of day."""
    values = cells.drop_nulls().unique(maintain_order=True)[:_N_TRIED].to_list()
    formats = [found for found in map(time_format_of, values) if found is not None]
    return next((found for found in formats if found.has_date), formats[0] if formats else None)


def _number(value: Any) -> float:
    """Return a number, or the number that a text represents; NaN if there is none or it is too large in every unit."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return math.nan
    try:
        number = float(value) if not isinstance(value, str) or _is_plain(value) else math.nan
    except (ValueError, OverflowError):
        return math.nan
    return number if abs(number) <= _LARGEST * _UNITS["nanoseconds"] else math.nan


def _is_plain(text: str) -> bool:
    """Return True if a text has no underscores or non-ASCII digits, which `float` accepts but tables do not."""
    return text.isascii() and "_" not in text

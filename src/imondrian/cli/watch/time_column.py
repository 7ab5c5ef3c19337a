"""The time column of a stream: which one it is, and its values as they are displayed and in seconds."""

import math
from typing import Any, NamedTuple

import numpy as np

from imondrian.base.errors import InvalidInputError
from imondrian.cli.console import Console
from imondrian.cli.stream_words import WITHOUT_TIMES, time_facts
from imondrian.engine.jit import Array
from imondrian.stream.series_views import TimeCounts
from imondrian.tables.cells import as_cell, shown
from imondrian.tables.dates import recognise_dates
from imondrian.tables.line_records import Values, is_missing
from imondrian.tables.row_seconds import TimeFormat, is_time_format, time_format_of

TimeValue = str | int | float | None  # a value of the time column
MAX_TEXT = 200  # largest number of characters of a time or a category
_MAX_INTEGER = 2**63


class TimeState(NamedTuple):
    """What the model file stores."""

    column: str | None = None
    format: TimeFormat | None = None  # of the times, recognised from the first one that has a date


class WatchTimes:
    """The time column of a stream.

    Parameters
    ----------
    column : str or None
        The column that the user named. If it is None and times are used, the column is that of the previous run, or
        the only column of dates.
    uses_times : bool
        Whether the detector uses times. If not, they are only displayed.
    state : TimeState
        State at the end of the previous run.
    console : Console
        Where to print how times are read.

    Attributes
    ----------
    column : str or None
        The column; None: there is none, or the first record has not been read.
    n_unknown : int
        Number of rows of this run whose time could not be read.
    first_unknown : str
        The first such row, for example "row 7, 'soon'".
    """

    def __init__(self, column: str | None, *, uses_times: bool, state: TimeState, console: Console) -> None:
        is_same = column is None or column == state.column
        self.column = column or (state.column if uses_times else None)
        self._format = state.format if is_same else None
        self.uses_times = uses_times
        self._console = console
        self._choice_note = ""  # says which column was chosen
        self.n_unknown, self.first_unknown = 0, ""

    @property
    def state(self) -> TimeState:
        """What the model file stores."""
        return TimeState(self.column, self._format) if self.uses_times else TimeState()

    def choose(self, record: Values, others: set[str]) -> None:
        """Choose the column by the first record, if times are used and no column was named.

        `others` are columns that the user has named for something else.
        """
        if not self.uses_times or self.column is not None:
            return
        dates = [name for name, value in record.items() if name not in others and _is_date(value)]
        if len(dates) == 1:
            self.column = dates[0]
            self._choice_note = f"times: column {self.column!r} (use --time to choose another)"
        else:
            found = f"several columns are dates: {', '.join(dates)}" if dates else "no column is a date"
            self._choice_note = f"times: none, because {found}; {WITHOUT_TIMES}. Name a column with --time."

    def announce(self) -> None:
        """Print which column was chosen."""
        if self._choice_note:
            self._console.note(self._choice_note)

    def of(self, record: Values) -> TimeValue:
        """Return the time of a record as it is displayed; None if there is no time column."""
        return None if self.column is None else as_time(record.get(self.column))

    def seconds(self, times: list[TimeValue], first: int) -> Array | None:
        """Return times in seconds, NaN where one is unknown; None if times are not used, or there is no time column.

        `first` is the index in the stream, from 0, of the row with the first of these times.
        """
        if not self.uses_times or self.column is None:
            return None
        for i, time in enumerate(times if self._format is None else ()):
            self._recognise(time, is_first=first + i == 0)
            if self._format is not None:
                break
        seconds = np.full(len(times), np.nan) if self._format is None else self._format.seconds(times)
        self._count_unknown(np.flatnonzero(np.isnan(seconds)).tolist(), times, first)
        return seconds

    def _recognise(self, time: TimeValue, *, is_first: bool) -> None:
        """Recognise the format of the times from one of them, if it has a date.

        A time without a date raises InvalidInputError in the first row, and is ignored in later rows.
        """
        found = time_format_of(time)
        if found is None:
            return
        if not found.has_date:
            if is_first:
                raise InvalidInputError(f"Column {self.column!r} has times without a date, such as {shown(time)}.")
            return
        self._format = found
        if found.describe():
            self._console.note(f"times: column {self.column!r}: {found.describe()}")

    def _count_unknown(self, unknown: list[int], times: list[TimeValue], first: int) -> None:
        if unknown and not self.n_unknown:
            time = times[unknown[0]]
            self.first_unknown = f"row {first + unknown[0] + 1:,}, {'missing' if is_missing(time) else shown(time)}"
        self.n_unknown += len(unknown)


def as_time(value: Any) -> TimeValue:
    """Return a value of the time column: text, shortened if it is long, a storable number, or None."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()[:MAX_TEXT]  # without lone surrogates
    return value if is_storable(value) else None


def is_storable(value: Any) -> bool:
    """Return True for None, finite floats, integers of up to 63 bits, and short text without lone surrogates."""
    if isinstance(value, str):
        return len(value) <= MAX_TEXT and _is_encodable(value)
    if type(value) is int:
        return abs(value) < _MAX_INTEGER
    return value is None or (type(value) is float and math.isfinite(value))


def _is_encodable(text: str) -> bool:
    """Return True if a text can be encoded as UTF-8: it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_date(value: Any) -> bool:
    found = recognise_dates(as_cell(value)) if isinstance(value, str) else None
    return found is not None and found.has_date


def times_in_words(now: TimeCounts, before: TimeCounts | None, times: WatchTimes) -> str:
    """Return what was noticed about the times of a run, such as "a row every 5 min, 2 late rows, 1 hole".

    Parameters
    ----------
    now : TimeCounts
        The counts at the end of the run.
    before : TimeCounts or None
        The counts at its start; None: there was no detector yet.
    times : WatchTimes
        The times of the run.
    """
    if times.column is None:
        return f"none; {WITHOUT_TIMES}"
    n_unknown = f", {times.n_unknown:,} unknown (the first: {times.first_unknown})" if times.n_unknown else ""
    return f"{time_facts(now, before)}{n_unknown}"


def stored_times(state: TimeState) -> dict[str, Any]:
    """Return the state in types that JSON supports."""
    return {"column": state.column, "format": None if state.format is None else list(state.format)}


def restored_times(value: Any, model: str) -> TimeState:
    """Return the state in a model file; raise InvalidInputError if it is invalid."""
    if value is None:  # written by Python code, or by an older version
        return TimeState()
    try:
        column, notation = value["column"], value["format"]
        state = TimeState(column, None if notation is None else TimeFormat(*notation))
    except (TypeError, ValueError, KeyError):
        state = None
    if state is None or not _is_valid(state):
        raise InvalidInputError(f"{model}: the stored format of times is invalid: {value!r:.200}.")
    return state


def _is_valid(state: TimeState) -> bool:
    notation = state.format
    is_column = state.column is None or isinstance(state.column, str)
    is_format = notation is None or (
        isinstance(notation.text, str) and is_time_format(notation.text) and isinstance(notation.is_doubtful, bool)
    )
    return is_column and is_format

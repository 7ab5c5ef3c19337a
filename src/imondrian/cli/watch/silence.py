"""Silence on a stream: no input for too long is an incident of its own."""

import math
import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

from imondrian.base.durations import in_words, seconds_of
from imondrian.base.errors import InvalidInputError
from imondrian.cli.watch.incident_events import CLOSED, OPENED, SILENCE
from imondrian.cli.watch.time_column import TimeValue, is_storable

_MAX_NUMBER = 2**53
_MAX_TIME = 253_402_300_799.0  # end of the year 9999, in seconds since 1970


def parse_duration(text: str, name: str) -> float:
    """Return the seconds of a duration such as 30s, 10m, 1.5h or 2d; raise InvalidInputError if the text is not one.

    Examples
    --------
    >>> parse_duration("10m", "--silence")
    600.0
    """
    seconds = seconds_of(text)
    if not seconds:
        raise InvalidInputError(
            f"{name} must be a number above 0 followed by s, m, h or d, such as 30s or 10m, but is {text!r:.200}."
        )
    return seconds


class SilenceState(NamedTuple):
    """What the model file stores."""

    n_silences: int = 0
    since: float | None = None  # if there is a silence: time of the last input, in seconds since 1970
    last_time: TimeValue = None  # if there is a silence: value of the time column in the last row


class Silence:
    """Opens an incident when no row has arrived for a while, and closes it with the next row.

    Parameters
    ----------
    limit : float or None
        Seconds without a row; None: an incident is never opened.
    time_column : str or None
        The time column.
    state : SilenceState
        State at the end of the previous run; a silence that is open goes on.
    n_rows : int
        Number of rows so far.
    """

    def __init__(self, limit: float | None, time_column: str | None, state: SilenceState, n_rows: int) -> None:
        self._limit = math.inf if limit is None else limit
        self.time_column = time_column
        self._last_row = n_rows
        self._last_time: TimeValue = state.last_time
        self._since = state.since
        self.n_silences = state.n_silences
        passed = 0.0 if state.since is None else max(time.time() - state.since, 0.0)
        # the time of the latest row; until this run has a row, the start of the run or of the silence that is open
        self._heard = time.monotonic() - passed

    @property
    def is_open(self) -> bool:
        """Whether there is a silence."""
        return self._since is not None

    @property
    def state(self) -> SilenceState:
        """What the model file stores."""
        return SilenceState(self.n_silences, self._since, self._last_time if self.is_open else None)

    def end(self, first_row: int) -> list[dict[str, Any]]:
        """End the silence, if there is one, and return its closing; `first_row` is the number of the row after it."""
        if self._since is None:
            return []
        closed = self._event(CLOSED, first_row)
        self._since = None
        return [closed]

    def record_rows(self, n_rows: int, last_time: TimeValue) -> None:
        """Record that n_rows rows have been processed so far; a silence is measured from now on."""
        self._heard, self._last_row, self._last_time = time.monotonic(), n_rows, last_time

    def check(self) -> list[dict[str, Any]]:
        """Return the opening of a silence, if one begins; to be called while no row arrives."""
        passed = time.monotonic() - self._heard
        if self.is_open or passed < self._limit:
            return []
        self._since = time.time() - passed
        self.n_silences += 1
        return [self._event(OPENED, None)]

    def _event(self, event: str, next_row: int | None) -> dict[str, Any]:
        passed = time.monotonic() - self._heard
        times = {} if self.time_column is None else {"last_time": self._last_time}
        return {
            "kind": SILENCE,
            "event": event,
            "incident": self.n_silences - 1,
            "last_row": self._last_row or None,
            "next_row": next_row,
            **times,
            "since": datetime.fromtimestamp(self._since or 0.0, UTC).isoformat(timespec="seconds"),
            "seconds": round(passed, 1),
            "explanation": f"no input for {in_words(passed)}",
        }


def restored_silence(value: Any, model: str) -> SilenceState:
    """Return the state in a model file; raise InvalidInputError if it is invalid."""
    if value is None:  # written by Python code, or by an older version
        return SilenceState()
    is_valid = isinstance(value, dict) and set(value) == set(SilenceState._fields)
    state = SilenceState(**value) if is_valid else SilenceState(-1)
    is_count = type(state.n_silences) is int and (0 if state.since is None else 1) <= state.n_silences <= _MAX_NUMBER
    is_start = state.since is None or (type(state.since) is float and 0.0 <= state.since <= _MAX_TIME)
    if not is_count or not is_start or not is_storable(state.last_time):
        raise InvalidInputError(f"{model}: the stored silence is invalid: {value!r:.200}.")
    return state

"""Consecutive rows of a stream: their values, times and feature names."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from imondrian.engine.jit import Array


class StreamRows(NamedTuple):
    """Checked rows in the order in which they arrive."""

    values: Array  # of shape (n_rows, n_features)
    times: Array | None  # in seconds, NaN if not known; None: the detector does not use times
    names: list[Any] | None  # names of the features

    def part(self, first: int, end: int) -> "StreamRows":
        """Return the rows from `first` up to, but not including, `end`."""
        times = None if self.times is None else self.times[first:end]
        return self._replace(values=self.values[first:end], times=times)

    def usable_runs(self, is_usable: Array) -> Iterator["tuple[StreamRows | None, int]"]:
        """Yield each run of usable or unusable rows: the rows (None if they are unusable) and their number.

        `self.values` must hold the usable rows only, `self.times` the times of all rows.
        """
        n_done, position = 0, 0
        for usable, run in groupby(is_usable):
            n = len(list(run))
            times = None if self.times is None else self.times[position : position + n]
            yield (self._replace(values=self.values[n_done : n_done + n], times=times) if usable else None), n
            n_done, position = n_done + n * bool(usable), position + n

"""The axis of rows or times: coordinates and ticks."""

from typing import Any

import numpy as np
from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.plots.labels import text_size
from imondrian.plots.style import TEXT_SIZE, axes_size
from imondrian.plots.validation import as_finite, check_length

_dates: Any = dates  # untyped
FIRST_YEAR, LAST_YEAR = np.datetime64("0002"), np.datetime64("9998")  # matplotlib's range, less a year on each side


def x_coordinates(when: Any, n_rows: int) -> Array:
    """Return the x coordinate of each row."""
    if when is None:
        return np.arange(1, n_rows + 1)
    array = _as_days(when) if _is_time(when) else as_finite(when, "when", 1)
    check_length(array, "when", n_rows)
    return array


def set_ticks(axes: Axes, when: Any, n_rows: int) -> None:
    """Set the ticks: dates for times, round row numbers if `when` is None, else those that matplotlib chooses."""
    if when is None:
        _set_row_ticks(axes, n_rows)
    elif _is_time(when):
        _set_date_ticks(axes)


def _is_time(when: Any) -> bool:
    return np.asarray(when).dtype.kind == "M"


def _as_days(when: Any) -> Array:
    """Convert times to days, the unit of matplotlib's date axis."""
    times = np.asarray(when)
    if times.ndim != 1:
        raise InvalidInputError(f"when must have 1 dimension, but its shape is {times.shape}.")
    years = times.astype("datetime64[Y]")  # the coarsest unit, which cannot overflow
    wrong = ~((years >= FIRST_YEAR) & (years <= LAST_YEAR))  # also True for NaT
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(f"when[{i}] is {times[i]}: years must be between {FIRST_YEAR} and {LAST_YEAR}.")
    return np.asarray(_dates.date2num(times.astype("datetime64[us]")))


def _set_row_ticks(axes: Axes, n_rows: int) -> None:
    """Set ticks at round row numbers between 1 and n_rows."""
    n_fitting = int(axes_size(axes)[0] / (1.6 * text_size(f"{n_rows:,}", TEXT_SIZE)[0]))
    locator = MaxNLocator(int(np.clip(n_fitting, 1, 10)), integer=True, steps=[1, 2, 5, 10])
    ticks = np.array(locator.tick_values(1, n_rows))
    axes.set_xticks(ticks[(ticks >= 1) & (ticks <= n_rows)])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _set_date_ticks(axes: Axes) -> None:
    axes.xaxis_date()
    locator = _dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(_dates.ConciseDateFormatter(locator))

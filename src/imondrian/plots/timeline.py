"""Plot of the scores in the order of rows or of time, with the threshold of each row."""

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import dates
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.plots.labels import text_size
from imondrian.plots.markers import draw_rows
from imondrian.plots.style import INK, TEXT_SIZE, add_legend, axes_size, finish, new_axes, score_range
from imondrian.plots.validation import as_finite, as_number, as_numbers, as_scores, check_length

_dates: Any = dates  # untyped
_MAX_CORNERS = 5_000  # points of the threshold line
_FIRST_YEAR, _LAST_YEAR = np.datetime64("0002"), np.datetime64("9998")  # range of matplotlib's date axis


def plot_timeline(
    scores: npt.ArrayLike,
    threshold: npt.ArrayLike,
    when: npt.ArrayLike | None = None,
    name: str = "row",
    *,
    axes: Axes | None = None,
) -> Figure:
    """Plot the scores in sequence, with those above the threshold on top.

    Parameters
    ----------
    scores : array of shape (n_rows,)
        Between 0 and 1, high is anomalous; NaN for rows that were not scored.
    threshold : float or array of shape (n_rows,)
        The score above which a row is an anomaly; an array if each row has its own.
    when : array of shape (n_rows,), optional
        Numbers or datetime64 values for the x axis; by default the row numbers, starting at 1.
    name : str, default="row"
        Label of the x axis.
    axes : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Figure

    Examples
    --------
    >>> figure = plot_timeline([0.4, 0.42, 0.81, 0.39], threshold=0.5)
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['normal: 3 rows', 'anomalies: 1 row', 'threshold 0.5']
    """
    all_scores = as_scores(scores)
    is_scored = ~np.isnan(all_scores)
    values, thresholds = all_scores[is_scored], _thresholds(threshold, is_scored)
    x = _x_coordinates(when, all_scores.size)[is_scored]
    axes = new_axes(8.0, 4.0) if axes is None else axes
    if when is None:
        _set_row_ticks(axes, all_scores.size)
    elif _is_time(when):
        _set_date_ticks(axes)
    handles = draw_rows(axes, x, values, values > thresholds)
    add_legend(axes, [*handles, _draw_threshold(axes, x, thresholds)])
    axes.set_ylim(score_range(values, thresholds))
    return finish(axes, name, "anomaly score")


def _thresholds(threshold: Any, is_scored: Array) -> Array:
    """Return the threshold of each row that was scored."""
    if np.ndim(threshold) == 0:
        return np.full(np.count_nonzero(is_scored), as_number(threshold, "threshold"))
    array = as_numbers(threshold, "threshold", 1)
    check_length(array, "threshold", is_scored.size)
    wrong = np.isnan(array) & is_scored
    if wrong.any():
        raise InvalidInputError(f"threshold[{int(np.flatnonzero(wrong)[0])}] is nan, but that row has a score.")
    return array[is_scored]


def _x_coordinates(when: Any, n_rows: int) -> Array:
    """Return the x coordinate of each row."""
    if when is None:
        return np.arange(1, n_rows + 1)
    array = _as_days(when) if _is_time(when) else as_finite(when, "when", 1)
    check_length(array, "when", n_rows)
    return array


def _is_time(when: Any) -> bool:
    return np.asarray(when).dtype.kind == "M"


def _as_days(when: Any) -> Array:
    """Convert times to days, the unit of matplotlib's date axis."""
    times = np.asarray(when)
    if times.ndim != 1:
        raise InvalidInputError(f"when must have 1 dimension(s), but its shape is {times.shape}.")
    years = times.astype("datetime64[Y]")  # the coarsest unit, which cannot overflow
    wrong = ~((years >= _FIRST_YEAR) & (years <= _LAST_YEAR))  # also True for NaT
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(f"when[{i}] is {times[i]}: years must be between {_FIRST_YEAR} and {_LAST_YEAR}.")
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


def _draw_threshold(axes: Axes, x: Array, thresholds: Array) -> Artist:
    """Draw a constant threshold across the axes, or one that changes as a line through the rows."""
    lowest, highest = thresholds.min(), thresholds.max()
    if lowest == highest:
        return axes.axhline(lowest, color=INK, linewidth=1.2, zorder=3.5, label=f"threshold {lowest:.4g}")
    order = np.argsort(x, kind="stable")
    corners = order[np.unique(np.linspace(0, order.size - 1, _MAX_CORNERS).astype(np.int64))]
    label = f"threshold, {lowest:.4g} to {highest:.4g}"
    return axes.plot(x[corners], thresholds[corners], color=INK, linewidth=1.2, zorder=3.5, label=label)[0]

"""Picture of the scores in the order of their rows or of time, beside the threshold as it was."""

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
from imondrian.plots.checks import as_finite, as_numbers, as_scores, as_threshold, check_length
from imondrian.plots.crowd import draw_crowd
from imondrian.plots.lettering import text_size
from imondrian.plots.style import INK, TEXT_SIZE, finished, new_axes, put_legend, room, score_range

_dates: Any = dates  # which has no types
_MOST_CORNERS = 5_000  # of the line of the threshold
_FIRST_YEAR, _LAST_YEAR = np.datetime64("0002"), np.datetime64("9998")  # what a calendar's axis can show


def plot_timeline(
    scores: npt.ArrayLike,
    threshold: npt.ArrayLike,
    when: npt.ArrayLike | None = None,
    name: str = "row",
    *,
    axes: Axes | None = None,
) -> Figure:
    """Draw the scores one after the other, those above the threshold in front.

    Parameters
    ----------
    scores : array of shape (n_rows,)
        Between 0 and 1, high is odd; NaN for rows that were not scored.
    threshold : float or array of shape (n_rows,)
        The score above which a row is an anomaly; an array if it was another one for each row.
    when : array of shape (n_rows,), optional
        Numbers or numpy's datetime64 along the axis; by default the numbers of the rows, from 1.
    name : str, default="row"
        Of that axis.
    axes : Axes, optional
        Where to draw; on a figure of its own by default.

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
    values, limits = all_scores[is_scored], _thresholds(threshold, is_scored)
    places = _places(when, all_scores.size)[is_scored]
    axes = new_axes(8.0, 4.0) if axes is None else axes
    if when is None:
        _count_rows(axes, all_scores.size)
    elif _is_time(when):
        _write_dates(axes)
    handles = draw_crowd(axes, places, values, values > limits)
    put_legend(axes, [*handles, _draw_threshold(axes, places, limits)])
    axes.set_ylim(score_range(values, limits))
    return finished(axes, name, "anomaly score")


def _thresholds(threshold: Any, is_scored: Array) -> Array:
    """Give the threshold of each row that was scored."""
    if np.ndim(threshold) == 0:
        return np.full(np.count_nonzero(is_scored), as_threshold(threshold, "threshold"))
    array = as_numbers(threshold, "threshold", 1)
    check_length(array, "threshold", is_scored.size)
    wrong = np.isnan(array) & is_scored
    if wrong.any():
        raise InvalidInputError(f"threshold[{int(np.flatnonzero(wrong)[0])}] is nan, but that row has a score.")
    return array[is_scored]


def _places(when: Any, n_rows: int) -> Array:
    """Give the place of each row along the axis."""
    if when is None:
        return np.arange(1, n_rows + 1)
    array = _as_days(when) if _is_time(when) else as_finite(when, "when", 1)
    check_length(array, "when", n_rows)
    return array


def _is_time(when: Any) -> bool:
    return np.asarray(when).dtype.kind == "M"


def _as_days(when: Any) -> Array:
    """Turn times into the days that axes count in."""
    times = np.asarray(when)
    if times.ndim != 1:
        raise InvalidInputError(f"when must have 1 dimension(s), but its shape is {times.shape}.")
    years = times.astype("datetime64[Y]")  # no unit is coarser: it cannot overflow
    wrong = ~((years >= _FIRST_YEAR) & (years <= _LAST_YEAR))  # nor "not a time"
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(f"when[{i}] is {times[i]}: years must lie between {_FIRST_YEAR} and {_LAST_YEAR}.")
    return np.asarray(_dates.date2num(times.astype("datetime64[us]")))


def _count_rows(axes: Axes, n_rows: int) -> None:
    """Write round numbers, of rows that there are."""
    n_fitting = int(room(axes)[0] / (1.6 * text_size(f"{n_rows:,}", TEXT_SIZE)[0]))
    locator = MaxNLocator(int(np.clip(n_fitting, 1, 10)), integer=True, steps=[1, 2, 5, 10])
    ticks = np.array(locator.tick_values(1, n_rows))
    axes.set_xticks(ticks[(ticks >= 1) & (ticks <= n_rows)])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _write_dates(axes: Axes) -> None:
    axes.xaxis_date()
    locator = _dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(_dates.ConciseDateFormatter(locator))


def _draw_threshold(axes: Axes, places: Array, limits: Array) -> Artist:
    """Draw the threshold across the picture if there is one, else as it was for each row."""
    lowest, highest = limits.min(), limits.max()
    if lowest == highest:
        return axes.axhline(lowest, color=INK, linewidth=1.2, zorder=3.5, label=f"threshold {lowest:.4g}")
    order = np.argsort(places, kind="stable")
    corners = order[np.unique(np.linspace(0, order.size - 1, _MOST_CORNERS).astype(np.int64))]
    label = f"threshold, {lowest:.4g} to {highest:.4g}"
    return axes.plot(places[corners], limits[corners], color=INK, linewidth=1.2, zorder=3.5, label=label)[0]

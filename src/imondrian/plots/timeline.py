"""Plot of the scores in the order of rows or of time, with the threshold of each row."""

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.plots.markers import draw_rows
from imondrian.plots.style import INK, add_legend, finish, new_axes, score_range
from imondrian.plots.time_axis import set_ticks, x_coordinates
from imondrian.plots.validation import as_number, as_numbers, as_scores, check_length

_MAX_CORNERS = 5_000  # largest number of points of the threshold line


def plot_timeline(
    scores: npt.ArrayLike,
    threshold: npt.ArrayLike,
    when: npt.ArrayLike | None = None,
    name: str = "row",
    *,
    axes: Axes | None = None,
) -> Figure:
    """Plot the scores in sequence; those above the threshold are drawn over the others.

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
    x = x_coordinates(when, all_scores.size)[is_scored]
    axes = new_axes(8.0, 4.0) if axes is None else axes
    set_ticks(axes, when, all_scores.size)
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


def _draw_threshold(axes: Axes, x: Array, thresholds: Array) -> Artist:
    """Draw a constant threshold as a line across the axes; one that changes, as a line from row to row."""
    lowest, highest = thresholds.min(), thresholds.max()
    if lowest == highest:
        return axes.axhline(lowest, color=INK, linewidth=1.2, zorder=3.5, label=f"threshold {lowest:.4g}")
    order = np.argsort(x, kind="stable")
    corners = order[np.unique(np.linspace(0, order.size - 1, _MAX_CORNERS).astype(np.int64))]
    label = f"threshold, {lowest:.4g} to {highest:.4g}"
    return axes.plot(x[corners], thresholds[corners], color=INK, linewidth=1.2, zorder=3.5, label=label)[0]

"""Histogram of the scores, with the number of anomalies at each threshold."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, StrMethodFormatter

from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.plots.labels import fitted_label
from imondrian.plots.markers import row_count
from imondrian.plots.style import (
    ANOMALY,
    GREY,
    INK,
    NORMAL,
    TEXT_SIZE,
    RowStyle,
    add_legend,
    axes_size,
    finish,
    new_axes,
    score_range,
)
from imondrian.plots.validation import as_number, as_scores

_MIN_BARS, _MAX_BARS = 12, 60
_MIN_BAR_WIDTH = 0.0125  # width of a bar, as a share of the axes
_SHARE_OF_NAME = 0.35  # largest width of the name of a threshold, as a share of the width of the axes
_MAX_LINEAR = 30  # tallest bar on a linear axis; beside a taller one, a bar of a single row would be invisible
_DASHES: tuple[Any, ...] = ((0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), (0, (9, 3)))


def plot_scores(
    scores: npt.ArrayLike,
    thresholds: Mapping[str, float],
    chosen: str | None = None,
    *,
    axes: Axes | None = None,
) -> Figure:
    """Plot the histogram of the scores with the thresholds.

    Parameters
    ----------
    scores : array of shape (n_rows,)
        Between 0 and 1, high is anomalous; NaN for rows that were not scored.
    thresholds : mapping of names to numbers
        Scores above which a row is an anomaly, by the name of the rule.
    chosen : str, optional
        Name of the threshold in use; scores above it are coloured as anomalies.
    axes : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Figure

    Examples
    --------
    >>> figure = plot_scores([0.4, 0.42, 0.81, 0.39], {"auto": 0.5, "kmeans": 0.6}, chosen="kmeans")
    >>> for text in figure.axes[0].get_legend().get_texts():
    ...     print(text.get_text())
    normal: 3 rows
    anomalies: 1 row
    chosen threshold kmeans at 0.6: 1 row above
    threshold auto at 0.5: 1 row above
    """
    values = as_scores(scores)
    values = values[~np.isnan(values)]
    checked = {name: as_number(value, f"thresholds[{name!r:.60}]") for name, value in thresholds.items()}
    if chosen is not None and chosen not in checked:
        raise InvalidInputError(f"chosen must be one of {list(checked)}, but is {chosen!r}.")
    threshold = None if chosen is None else checked[chosen]
    axes = new_axes(7.0, 3.6 + 0.2 * len(checked)) if axes is None else axes
    lowest, highest = score_range(values, np.array([*checked.values()]))
    edges = _edges(values, threshold, _MIN_BAR_WIDTH * (highest - lowest))
    handles = _draw_bars(axes, values, edges, threshold) + _draw_lines(axes, values, checked, chosen)
    add_legend(axes, handles)
    axes.set_xlim(min(lowest, edges[0]), max(highest, edges[-1]))
    return finish(axes, "anomaly score", _set_scale(axes, _counts(values, edges).max()))


def _edges(values: Array, threshold: float | None, min_width: float) -> Array:
    """Return the edges of bars of equal width; one is the threshold, so no bar mixes normal and anomalous scores."""
    lowest, highest = values.min(), values.max()
    anchor = threshold if threshold is not None and 0.0 <= threshold <= 1.0 else lowest
    n_bars = np.clip(np.sqrt(values.size), _MIN_BARS, _MAX_BARS)
    width = max((highest - lowest) / n_bars, min_width)
    first, last = np.ceil((lowest - anchor) / width) - 1.0, np.ceil((highest - anchor) / width)
    return anchor + width * np.arange(first, last + 1.0)


def _counts(values: Array, edges: Array) -> Array:
    """Count the scores in each bar; a score on an edge belongs to the bar on its left."""
    bars = np.clip(np.searchsorted(edges, values, side="left") - 1, 0, edges.size - 2)
    return np.bincount(bars, minlength=edges.size - 1)


def _draw_bars(axes: Axes, values: Array, edges: Array, threshold: float | None) -> list[Artist]:
    """Draw the bars; those above the threshold in the style of anomalies."""
    if threshold is None:
        return [_draw_class(axes, values, edges, NORMAL, "scored")]
    is_above = values > threshold
    return [
        _draw_class(axes, values[~is_above], edges, NORMAL, NORMAL.label),
        _draw_class(axes, values[is_above], edges, ANOMALY, ANOMALY.label),
    ]


def _draw_class(axes: Axes, values: Array, edges: Array, row_style: RowStyle, label: str) -> Artist:
    counts = _counts(values, edges)
    bars = np.flatnonzero(counts)
    style: dict[str, Any] = {"facecolor": row_style.colour, "edgecolor": "white", "linewidth": 0.4}
    axes.bar(edges[bars], counts[bars], np.diff(edges)[bars], align="edge", zorder=row_style.zorder, **style)
    return Patch(facecolor=row_style.colour, label=f"{label}: {row_count(values.size)}")


def _draw_lines(axes: Axes, values: Array, thresholds: dict[str, float], chosen: str | None) -> list[Artist]:
    """Draw the thresholds as lines: the chosen one solid and first in the legend, the others in ascending order."""
    others = sorted((name for name in thresholds if name != chosen), key=thresholds.__getitem__)
    dashes = cycle(_DASHES)
    lines = [_draw_line(axes, values, name, thresholds[name], color=GREY, linestyle=next(dashes)) for name in others]
    if chosen is not None:
        lines.insert(0, _draw_line(axes, values, chosen, thresholds[chosen], color=INK, linewidth=2.2))
        lines[0].set_label(f"chosen {lines[0].get_label()}")
    return lines


def _draw_line(axes: Axes, values: Array, name: str, threshold: float, **style: Any) -> Artist:
    text, n_above = f"{threshold:.4g}", int(np.count_nonzero(values > threshold))
    if name != text:
        text = f"{fitted_label(name, _SHARE_OF_NAME * axes_size(axes)[0], TEXT_SIZE)} at {text}"
    return axes.axvline(threshold, label=f"threshold {text}: {row_count(n_above)} above", zorder=5, **style)


def _set_scale(axes: Axes, tallest: int) -> str:
    """Choose a scale on which a single row is visible; return the label of the axis."""
    if tallest <= _MAX_LINEAR:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        return "rows per bar"
    axes.set_yscale("symlog", linthresh=1.0, linscale=0.5)
    steps = (1, 2, 5) if tallest <= 1_000 else (1,)
    decades = range(int(np.log10(tallest)) + 1)
    axes.yaxis.set_major_locator(FixedLocator([0, *(step * 10**decade for decade in decades for step in steps)]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_ylim(0.0, 1.4 * tallest)
    return "rows per bar (log scale)"

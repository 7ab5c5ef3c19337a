"""Style shared by all plots: colours, markers, text sizes, new axes, and the legend above the axes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from imondrian.engine.jit import Array
from imondrian.plots.labels import fitted_label, text_size

NAME_SIZE = 10.0  # of axis labels, in points
TEXT_SIZE = 9.0  # of ticks and legends
SMALL_SIZE = 8.0  # of text inside the axes
INK = "#222222"
GREY = "#555555"
TOO_HIGH = "#A63603"
TOO_LOW = "#74A9CF"
CATEGORY = "#8C6BB1"
_MARGIN, _MIN_MARGIN = 0.05, 0.005  # around scores: as a share of their range, and the minimum in units of score
_HANDLE_WIDTH = 4.8 * TEXT_SIZE  # width of a legend entry without its text, in points
_MAX_NAME_WIDTH = 0.6  # as a fraction of the width of the axes; the rest is for a power of ten or a date


class RowStyle(NamedTuple):
    """How rows of one kind are drawn; kinds differ in hue, in lightness and in their markers."""

    label: str
    colour: str
    edge_colour: str
    marker: str
    size_factor: float  # of the area of a marker
    opacity: float
    max_drawn: int  # largest number of markers
    zorder: int


NORMAL = RowStyle("normal", "#5A97C8", "none", "o", 1.0, 0.75, 20_000, 3)
ANOMALY = RowStyle("anomalies", "#B3200E", "white", "^", 1.5, 1.0, 50_000, 4)


def new_axes(width: float, height: float) -> Axes:
    """Return axes that fill a new figure of this width and height in inches."""
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def axes_size(axes: Axes) -> tuple[float, float]:
    """Return the width and height of the axes in points; before the figure has been laid out, a low estimate."""
    pixels_per_point = axes.figure.figure.dpi / 72.0
    return axes.bbox.width / pixels_per_point, axes.bbox.height / pixels_per_point


def score_range(values: Array, thresholds: Array) -> tuple[float, float]:
    """Return the limits of an axis that shows all scores and every threshold between 0 and 1."""
    shown = np.concatenate([values, thresholds[(thresholds >= 0.0) & (thresholds <= 1.0)]])
    margin = max(_MARGIN * (shown.max() - shown.min()), _MIN_MARGIN)
    return shown.min() - margin, shown.max() + margin


def add_legend(axes: Axes, handles: Sequence[Artist]) -> None:
    """Add the legend above the axes, where it covers nothing, in as many columns as fit."""
    widths = [_HANDLE_WIDTH + text_size(str(handle.get_label()), TEXT_SIZE)[0] for handle in handles]
    n_columns = len(handles)
    while n_columns > 1 and sum(map(max, np.array_split(widths, n_columns))) > axes_size(axes)[0]:
        n_columns -= 1
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.2,
        ncols=n_columns,
        fontsize=TEXT_SIZE,
        frameon=False,
    )


def finish(axes: Axes, x_name: Any, y_name: Any) -> Figure:
    """Label the axes, hide the top and right spines, and return the figure of the axes."""
    width, height = axes_size(axes)
    axes.set_xlabel(fitted_label(x_name, _MAX_NAME_WIDTH * width, NAME_SIZE), fontsize=NAME_SIZE)
    axes.set_ylabel(fitted_label(y_name, height, NAME_SIZE), fontsize=NAME_SIZE)
    axes.tick_params(labelsize=TEXT_SIZE)
    axes.xaxis.get_offset_text().set_fontsize(TEXT_SIZE)
    axes.yaxis.get_offset_text().set(fontsize=TEXT_SIZE, horizontalalignment="right")  # beside the legend
    axes.spines[["top", "right"]].set_visible(False)
    return axes.figure.figure

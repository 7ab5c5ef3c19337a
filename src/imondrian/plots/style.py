"""How all pictures look: colours, marks and sizes, the axes they are drawn on, and the legend above these."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from imondrian.engine.jit import Array
from imondrian.plots.lettering import label_of, text_size

NAME_SIZE = 10.0  # of the names of axes, in points
TEXT_SIZE = 9.0  # of ticks and legends
SMALL_SIZE = 8.0  # of what is written inside of a picture
INK = "#222222"
GREY = "#555555"
TOO_HIGH = "#A63603"
TOO_LOW = "#74A9CF"
_MARGIN, _LEAST_MARGIN = 0.05, 0.005  # around scores: a share of their range, and a score
_HANDLE = 4.8 * TEXT_SIZE  # what an entry of a legend takes beside its text, in points
_SHARE_OF_NAME = 0.6  # of the width of the axes; beside it may stand a power of ten, or a date


class Look(NamedTuple):
    """How a kind of rows is drawn; the kinds differ in hue, in lightness and in their marks."""

    word: str
    colour: str
    edge: str
    marker: str
    growth: float  # of the area of a mark
    opacity: float
    most: int  # marks that are drawn
    layer: int


NORMAL = Look("normal", "#5A97C8", "none", "o", 1.0, 0.75, 20_000, 3)
ANOMALY = Look("anomalies", "#B3200E", "white", "^", 1.5, 1.0, 50_000, 4)


def new_axes(width: float, height: float) -> Axes:
    """Make axes that fill a figure of so many inches."""
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def room(axes: Axes) -> tuple[float, float]:
    """Give width and height of the axes in points; before a layout this is about the least they will have."""
    point = axes.figure.figure.dpi / 72.0
    return axes.bbox.width / point, axes.bbox.height / point


def score_range(values: Array, limits: Array) -> tuple[float, float]:
    """Give the ends of an axis on which all scores are seen, and of the thresholds those that a score can reach."""
    shown = np.concatenate([values, limits[(limits >= 0.0) & (limits <= 1.0)]])
    margin = max(_MARGIN * (shown.max() - shown.min()), _LEAST_MARGIN)
    return shown.min() - margin, shown.max() + margin


def put_legend(axes: Axes, handles: Sequence[Artist]) -> None:
    """Write the legend above the axes, where it hides nothing, in as many columns as there is room for."""
    widths = [_HANDLE + text_size(str(handle.get_label()), TEXT_SIZE)[0] for handle in handles]
    n_columns = len(handles)
    while n_columns > 1 and sum(map(max, np.array_split(widths, n_columns))) > room(axes)[0]:
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


def finished(axes: Axes, x_name: Any, y_name: Any) -> Figure:
    """Name the axes, take away what says nothing, and give the whole figure that they belong to."""
    width, height = room(axes)
    axes.set_xlabel(label_of(x_name, _SHARE_OF_NAME * width, NAME_SIZE), fontsize=NAME_SIZE)
    axes.set_ylabel(label_of(y_name, height, NAME_SIZE), fontsize=NAME_SIZE)
    axes.tick_params(labelsize=TEXT_SIZE)
    axes.xaxis.get_offset_text().set_fontsize(TEXT_SIZE)
    axes.yaxis.get_offset_text().set(fontsize=TEXT_SIZE, horizontalalignment="right")  # beside the legend
    axes.spines[["top", "right"]].set_visible(False)
    return axes.figure.figure

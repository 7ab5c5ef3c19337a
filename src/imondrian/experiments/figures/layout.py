"""Sheets of panels: all of one size, placed in inches, so that nothing moves and nothing overlaps."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from imondrian.plots.labels import text_size

PAGE_WIDTH = 9.0  # inches; a page of 900 pixels shows each in a hundred
TEXT_SIZE = 8.0  # points, the least that can be read there
TITLE_SIZE = 9.0
HEAD_SIZE = 10.0
_INCH = 72.0  # points
_HANDLE, _SPACING = 4.0 * TEXT_SIZE, 1.5 * TEXT_SIZE  # beside a text in a key, and between its columns, in points


class Margins(NamedTuple):
    """Room around all panels, in inches."""

    left: float
    right: float
    bottom: float
    top: float


class Sheet(NamedTuple):
    """A figure of panels, row by row."""

    figure: Figure
    panels: list[list[Axes]]


class Titles(dict[str, str]):
    """What things are called; those that are not listed, by their names."""

    def __missing__(self, name: str) -> str:
        return name


def width_of_panels(margins: Margins, column_gaps: Sequence[float]) -> float:
    """Tell how wide panels with these gaps between them can be."""
    return (PAGE_WIDTH - margins.left - margins.right - sum(column_gaps)) / (len(column_gaps) + 1)


def new_sheet(margins: Margins, column_gaps: Sequence[float], row_gaps: Sequence[float], high: float) -> Sheet:
    """Lay out panels with these gaps between them, as wide as the page allows and so high; all in inches."""
    wide = width_of_panels(margins, column_gaps)
    height = margins.bottom + margins.top + sum(row_gaps) + (len(row_gaps) + 1) * high
    lefts = list(accumulate((wide + gap for gap in column_gaps), initial=margins.left))
    bottoms = list(accumulate((-high - gap for gap in row_gaps), initial=height - margins.top - high))
    figure = Figure(figsize=(PAGE_WIDTH, height))
    return Sheet(figure, [[add_panel(figure, (left, bottom, wide, high)) for left in lefts] for bottom in bottoms])


def add_panel(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Add axes: left, bottom, width and height in inches."""
    width, height = figure.get_size_inches()
    return figure.add_axes((box[0] / width, box[1] / height, box[2] / width, box[3] / height))


def bounding_box(panels: Sequence[Axes]) -> Bbox:
    """Give the box of several panels, in shares of the page."""
    return Bbox.union([axes.get_position() for axes in panels])


def inches(texts: Sequence[str], size: float) -> float:
    """Give the width of the widest of these texts."""
    return max(text_size(text, size)[0] for text in texts) / _INCH


def legend_columns(handles: Sequence[Artist]) -> int:
    """Tell in how many columns a key fits below the panels."""
    widths = [_HANDLE + text_size(str(handle.get_label()), TEXT_SIZE)[0] for handle in handles]
    n_columns = len(handles)
    while n_columns > 1 and _width(np.array_split(widths, n_columns)) > _INCH * PAGE_WIDTH:
        n_columns -= 1
    return n_columns


def _width(columns: Sequence[np.ndarray]) -> float:
    return sum(float(column.max()) + _SPACING for column in columns)


def add_legend(
    figure: Figure, handles: Sequence[Artist], n_columns: int, place: Literal["lower center", "lower right"]
) -> None:
    """Write the key to all panels at the lower edge."""
    figure.legend(
        handles=handles,
        loc=place,
        ncols=n_columns,
        fontsize=TEXT_SIZE,
        frameon=False,
        borderaxespad=0.3,
        columnspacing=_SPACING / TEXT_SIZE,
        handletextpad=0.5,
    )

"""Layout of figures with many panels of one size, placed in inches so that nothing moves or overlaps."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from imondrian.plots.labels import text_size

PAGE_WIDTH = 9.0  # inches; on a page of 900 pixels, an inch is 100 pixels
TEXT_SIZE = 8.0  # points, the smallest size that is readable on such a page
TITLE_SIZE = 9.0
HEAD_SIZE = 10.0
_POINTS_PER_INCH = 72.0
_HANDLE = 4.0 * TEXT_SIZE  # width of a legend entry without its text, in points
_SPACING = 1.5 * TEXT_SIZE  # between the columns of a legend, in points


class Margins(NamedTuple):
    """Margins around all panels, in inches."""

    left: float
    right: float
    bottom: float
    top: float


class Sheet(NamedTuple):
    """A figure with its panels, row by row."""

    figure: Figure
    panels: list[list[Axes]]


class Titles(dict[str, str]):
    """Titles by name; a name without a title is its own title."""

    def __missing__(self, name: str) -> str:
        return name


def width_of_panels(margins: Margins, column_gaps: Sequence[float]) -> float:
    """Return the width of panels, in inches, with these gaps between them."""
    return (PAGE_WIDTH - margins.left - margins.right - sum(column_gaps)) / (len(column_gaps) + 1)


def new_sheet(
    margins: Margins, column_gaps: Sequence[float], row_gaps: Sequence[float], height_of_panels: float
) -> Sheet:
    """Return a sheet of panels with these gaps and this height in inches, as wide as the page allows."""
    width = width_of_panels(margins, column_gaps)
    height = margins.bottom + margins.top + sum(row_gaps) + (len(row_gaps) + 1) * height_of_panels
    lefts = list(accumulate((width + gap for gap in column_gaps), initial=margins.left))
    bottoms = list(
        accumulate((-height_of_panels - gap for gap in row_gaps), initial=height - margins.top - height_of_panels)
    )
    figure = Figure(figsize=(PAGE_WIDTH, height))
    return Sheet(
        figure, [[add_panel(figure, (left, bottom, width, height_of_panels)) for left in lefts] for bottom in bottoms]
    )


def add_panel(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Add axes at `box`: left, bottom, width and height in inches."""
    width, height = figure.get_size_inches()
    return figure.add_axes((box[0] / width, box[1] / height, box[2] / width, box[3] / height))


def bounding_box(panels: Sequence[Axes]) -> Bbox:
    """Return the bounding box of several panels, in figure coordinates."""
    return Bbox.union([axes.get_position() for axes in panels])


def text_width(texts: Sequence[str], size: float) -> float:
    """Return the width of the widest text, in inches."""
    return max(text_size(text, size)[0] for text in texts) / _POINTS_PER_INCH


def legend_columns(handles: Sequence[Artist]) -> int:
    """Return the largest number of columns with which a legend is not wider than the page."""
    widths = [_HANDLE + text_size(str(handle.get_label()), TEXT_SIZE)[0] for handle in handles]
    n_columns = len(handles)
    while n_columns > 1 and _width(np.array_split(widths, n_columns)) > _POINTS_PER_INCH * PAGE_WIDTH:
        n_columns -= 1
    return n_columns


def _width(columns: Sequence[np.ndarray]) -> float:
    return sum(float(column.max()) + _SPACING for column in columns)


def add_legend(
    figure: Figure, handles: Sequence[Artist], n_columns: int, location: Literal["lower center", "lower right"]
) -> None:
    """Add a legend for all panels at the lower edge."""
    figure.legend(
        handles=handles,
        loc=location,
        ncols=n_columns,
        fontsize=TEXT_SIZE,
        frameon=False,
        borderaxespad=0.3,
        columnspacing=_SPACING / TEXT_SIZE,
        handletextpad=0.5,
    )

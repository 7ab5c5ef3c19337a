"""Helpers that inspect a figure: its legend, its markers, and texts that overlap or are outside."""

from io import BytesIO
from itertools import combinations, pairwise

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba

from imondrian.plots import write_figure
from imondrian.plots.style import ANOMALY, NORMAL

HOSTILE_NAMES = [
    "a$b$",
    "_x",
    "",
    "W" * 300,
    "ünïcode Ω ≤ é",
    "two\nlines\tand a tab",
    r"\$\alpha$ {_^%&#}",
    "\x00\x07",
    "$",
]


HOSTILE_PAIRS = list(pairwise(HOSTILE_NAMES))[::2]


def legend(figure):
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def names(figure):
    return figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()


def marks(figure, row_style):
    """Coordinates of all markers of a style."""
    return np.concatenate(
        [
            np.asarray(marks.get_offsets())
            for marks in figure.axes[0].collections
            if isinstance(marks, PathCollection)
            and np.allclose(marks.get_facecolor(), to_rgba(row_style.colour, row_style.opacity))
        ]
    )


def anomalies(figure):
    return marks(figure, ANOMALY)


def normals(figure):
    return marks(figure, NORMAL)


def bars(figure, colour):
    return [bar for bar in figure.axes[0].patches if np.allclose(bar.get_facecolor(), to_rgba(colour))]


def written(figure, kind="png"):
    file = BytesIO()
    write_figure(figure, file, kind)
    return file.getvalue()


def boxes(figure):
    """Bounding boxes of all visible texts, with the texts."""
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    return [
        (text.get_text(), text.get_window_extent(canvas.get_renderer()))
        for axes in figure.axes
        for text in _texts(axes)
        if text.get_visible() and text.get_text()
    ]


def _texts(axes):
    for axis in (axes.xaxis, axes.yaxis):
        for tick in axis._update_ticks():
            yield from (tick.label1, tick.label2)
        yield from (axis.label, axis.offsetText)
    yield from axes.texts
    if axes.get_legend() is not None:
        yield from axes.get_legend().get_texts()


def clashes(figure):
    """Texts that overlap each other or extend beyond the figure."""
    seen = boxes(figure)
    pairs = [(one, two) for (one, a), (two, b) in combinations(seen, 2) if a.shrunk(0.98, 0.98).overlaps(b)]
    frame = figure.bbox.padded(1.0)
    outside = [text for text, box in seen if not (frame.contains(*box.min) and frame.contains(*box.max))]
    return pairs + outside

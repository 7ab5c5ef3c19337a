"""Rows as marks: the normal ones a crowd that may be thinned out, the anomalies in front of it."""

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from imondrian.engine.jit import Array
from imondrian.plots.style import ANOMALY, NORMAL, Look

_LARGEST, _SMALLEST = 30.0, 4.0  # areas of a mark in square points
_AREA = 400.0  # of a mark, divided by the root of their number


def draw_crowd(axes: Axes, x: Array, y: Array, is_anomaly: Array) -> list[Artist]:
    """Draw a mark for each row, as many as can be told apart, and give what the legend says of them."""
    return [draw_marks(axes, x[rows], y[rows], look) for look, rows in ((NORMAL, ~is_anomaly), (ANOMALY, is_anomaly))]


def draw_marks(axes: Axes, x: Array, y: Array, look: Look) -> Artist:
    """Draw rows of one kind, rasterized so that files stay small, and give what the legend says of them."""
    drawn = thinned(x.size, look.most)
    area = look.growth * float(np.clip(_AREA / np.sqrt(max(x.size, 1)), _SMALLEST, _LARGEST))
    axes.scatter(
        x[drawn],
        y[drawn],
        s=area,
        c=look.colour,
        marker=look.marker,
        edgecolors=look.edge,
        linewidths=0.01 * area,  # small marks would be all edge
        alpha=look.opacity,
        zorder=look.layer,
        rasterized=True,
    )
    return Line2D([], [], linestyle="", marker=look.marker, color=look.colour, label=_legend(look, x.size, drawn.size))


def thinned(n_rows: int, most: int) -> Array:
    """Choose at most so many rows, always the same; by lot, since regular steps could fall in with a season."""
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, most, replace=False))


def count_of(n_rows: int) -> str:
    """Say how many rows there are."""
    return "1 row" if n_rows == 1 else f"{n_rows:,} rows"


def _legend(look: Look, n_rows: int, n_drawn: int) -> str:
    return f"{look.word}: {count_of(n_rows)}" + (f", {n_drawn:,} of them drawn" if n_drawn < n_rows else "")

"""Markers for rows: normal rows with the anomalies on top; of many rows of a kind, only a sample is drawn."""

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from imondrian.engine.jit import Array
from imondrian.plots.style import ANOMALY, NORMAL, RowStyle

_MAX_AREA, _MIN_AREA = 30.0, 4.0  # of a marker, in square points
_AREA = 400.0  # of a marker, before division by the square root of the number of markers


def draw_rows(axes: Axes, x: Array, y: Array, is_anomaly: Array) -> list[Artist]:
    """Draw the normal rows and, on top, the anomalies; return their legend entries."""
    kinds = ((NORMAL, ~is_anomaly), (ANOMALY, is_anomaly))
    return [draw_markers(axes, x[rows], y[rows], row_style) for row_style, rows in kinds]


def draw_markers(axes: Axes, x: Array, y: Array, row_style: RowStyle) -> Artist:
    """Draw at most `max_drawn` rows in one style, rasterized to keep files small; return their legend entry."""
    drawn = subsample(x.size, row_style.max_drawn)
    area = row_style.size_factor * float(np.clip(_AREA / np.sqrt(max(x.size, 1)), _MIN_AREA, _MAX_AREA))
    axes.scatter(
        x[drawn],
        y[drawn],
        s=area,
        c=row_style.colour,
        marker=row_style.marker,
        edgecolors=row_style.edge_colour,
        linewidths=0.01 * area,  # a wider edge would cover a small marker
        alpha=row_style.opacity,
        zorder=row_style.zorder,
        rasterized=True,
    )
    label = _legend_label(row_style, x.size, drawn.size)
    return Line2D([], [], linestyle="", marker=row_style.marker, color=row_style.colour, label=label)


def subsample(n_rows: int, max_rows: int) -> Array:
    """Return the indices of at most `max_rows` rows, the same on every call.

    They are drawn at random, because a regular step could coincide with a period of the data.
    """
    if n_rows <= max_rows:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, max_rows, replace=False))


def row_count(n_rows: int) -> str:
    """Return the number of rows as text, such as "1 row" or "20,000 rows"."""
    return "1 row" if n_rows == 1 else f"{n_rows:,} rows"


def _legend_label(row_style: RowStyle, n_rows: int, n_drawn: int) -> str:
    return f"{row_style.label}: {row_count(n_rows)}" + (f", {n_drawn:,} of them drawn" if n_drawn < n_rows else "")

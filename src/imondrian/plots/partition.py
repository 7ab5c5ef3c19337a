"""Plot of the partition of the plane by the cuts of a tree over two features."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.engine.plain_tree import Tree
from imondrian.plots.markers import draw_markers
from imondrian.plots.style import GREY, NORMAL, add_legend, finish, new_axes
from imondrian.plots.validation import as_names, as_number, as_plane_points, check_tree

_SHADES = LinearSegmentedColormap.from_list("times", ["#1A1A1A", "#9AA3AD"])
_MAX_LINE_WIDTH, _MIN_LINE_WIDTH = 2.8, 0.7
_POINT = NORMAL._replace(label="points", max_drawn=5_000, zorder=1)  # behind the cuts


def plot_partition(
    tree: Tree,
    points: npt.ArrayLike | None = None,
    names: Sequence[str] = ("x", "y"),
    *,
    max_time: float | None = None,
    axes: Axes | None = None,
) -> Figure:
    """Plot the Mondrian partition of a tree: each cut ends at the bounding box of the points that it separates.

    Parameters
    ----------
    tree : Tree
        One of ``forest.trees()``, over two features.
    points : array of shape (n_rows, 2), optional
        Points to show behind the cuts; at most 5,000 are drawn, a fixed random subset.
    names : sequence of two names, default=("x", "y")
        Names of the features.
    max_time : float, optional
        Show the partition at this time: later cuts are not drawn.
    axes : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Figure

    Examples
    --------
    >>> from imondrian import MondrianForest
    >>> points = [[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]]
    >>> tree = next(MondrianForest(1).build(points).trees())
    >>> figure = plot_partition(tree, points)
    >>> len(figure.axes[0].collections[0].get_segments())  # one cut fewer than points
    2
    """
    n_features = check_tree(tree)
    if n_features != 2:
        raise InvalidInputError(f"plot_partition needs a tree over 2 features, but this tree has {n_features}.")
    pairs = None if points is None else as_plane_points(points)
    x_name, y_name = as_names(names, 2)
    last = np.inf if max_time is None else as_number(max_time, "max_time")
    axes = new_axes(6.0, 5.2) if axes is None else axes
    handles = _draw_cuts(axes, tree, np.flatnonzero((tree.left >= 0) & (tree.split_time <= last)))
    handles.append(_draw_box(axes, tree.lower[0], tree.upper[0]))
    if pairs is not None:
        handles.append(draw_markers(axes, pairs[:, 0], pairs[:, 1], _POINT))
    axes.autoscale_view()
    add_legend(axes, handles)
    return finish(axes, x_name, y_name)


def _draw_cuts(axes: Axes, tree: Tree, nodes: Array) -> list[Artist]:
    """Draw the cuts of the nodes, latest first: early cuts are thicker and darker, and on top."""
    order = nodes[np.argsort(-tree.split_time[nodes], kind="stable")]
    ranks = np.arange(order.size)[::-1]  # ranks instead of times, which may be skewed
    lateness = np.log1p(ranks) / np.log(max(order.size, 2))
    widths, colours = _MAX_LINE_WIDTH + (_MIN_LINE_WIDTH - _MAX_LINE_WIDTH) * lateness, _SHADES(lateness)
    lines = _segments(tree, order)
    axes.add_collection(LineCollection(list(lines), linewidths=widths, colors=colours, capstyle="butt", zorder=2))
    _mark_flat_cuts(axes, lines, tree.split_feature[order])
    if order.size == 0:
        return [Line2D([], [], linestyle="", label="no cuts")]
    ends = {-1: f"first of {order.size:,} cuts, at time {tree.split_time[order[-1]]:.3g}"}
    if order.size > 1:
        ends[0] = f"last cut, at time {tree.split_time[order[0]]:.3g}"
    return [Line2D([], [], linewidth=widths[i], color=colours[i], label=label) for i, label in ends.items()]


def _segments(tree: Tree, nodes: Array) -> Array:
    """Return the two ends of each cut: across the box of its node, at the split value."""
    rows, feature = np.arange(nodes.size), tree.split_feature[nodes]
    ends = np.stack([tree.lower[nodes], tree.upper[nodes]], axis=1)
    ends[rows, :, feature] = tree.split_value[nodes, None]
    return ends


def _mark_flat_cuts(axes: Axes, lines: Array, features: Array) -> None:
    """Draw markers for the cuts of flat boxes, whose lines have length 0 and would be invisible."""
    is_flat = (lines[:, 0] == lines[:, 1]).all(axis=1)
    for feature, marker in enumerate("|_"):
        x, y = lines[is_flat & (features == feature), 0].T
        axes.plot(x, y, linestyle="", marker=marker, markersize=12.0, color=GREY, zorder=2)


def _draw_box(axes: Axes, lower: Array, upper: Array) -> Artist:
    """Draw the outline of the bounding box of all points in the tree."""
    style: dict[str, Any] = {"edgecolor": GREY, "linewidth": 1.0, "linestyle": (0, (4, 2))}
    axes.add_patch(Rectangle((lower[0], lower[1]), *(upper - lower), facecolor="none", zorder=1.5, **style))
    return Line2D([], [], color=GREY, linewidth=1.0, linestyle=style["linestyle"], label="box of all points")

"""Plot of two features: the score over the plane, and the boundary of the normal region."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.forest.inputs import as_count
from imondrian.plots.markers import draw_rows
from imondrian.plots.style import INK, NAME_SIZE, TEXT_SIZE, add_legend, finish, new_axes, score_range
from imondrian.plots.validation import as_finite, as_flags, as_names, as_number, as_plane_points

_SHADES = LinearSegmentedColormap.from_list("scores", ["#8C96A3", "#FFFFFF"])
_MAX_NODES = 5_000  # along an axis of a grid
_MIN_RELATIVE_WIDTH, _MIN_WIDTH = 1e-9, 1e-280  # smallest width of a grid: relative to its values, and absolute


class Surface(NamedTuple):
    """Scores at the nodes of a grid."""

    x: npt.ArrayLike  # n increasing values
    y: npt.ArrayLike  # m increasing values
    scores: npt.ArrayLike  # m x n


class Grid(NamedTuple):
    """A grid over points: its axes, and its nodes as rows to score, in ascending order of y, then x."""

    x: Array
    y: Array
    nodes: Array


def plot_regions(
    points: npt.ArrayLike,
    is_anomaly: npt.ArrayLike,
    surface: Surface,
    threshold: float,
    names: Sequence[str] = ("x", "y"),
    *,
    axes: Axes | None = None,
) -> Figure:
    """Plot the region detected as normal, as in the figures of Ma et al. (2020).

    As in the paper, the normal region is grey and anomalies are triangles. Unlike the paper: the shade of grey shows
    the score, and a line shows the boundary of the normal region.

    Parameters
    ----------
    points : array of shape (n_rows, 2)
    is_anomaly : array of shape (n_rows,)
        Which rows are anomalies.
    surface : Surface
        The scores over the plane; see `grid_over`.
    threshold : float
        Scores up to this value are normal.
    names : sequence of two names, default=("x", "y")
        Names of the features.
    axes : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Figure

    Examples
    --------
    >>> points = [[0.0, 0.0], [1.0, 1.0]]
    >>> x, y, nodes = grid_over(points, n=3)
    >>> scores = nodes.sum(axis=1).clip(0, 2) / 2  # in practice, the scores of a forest
    >>> figure = plot_regions(points, [False, True], Surface(x, y, scores.reshape(3, 3)), threshold=0.5)
    >>> figure.axes[1].get_ylabel()
    'anomaly score'
    """
    pairs = as_plane_points(points)
    flags = as_flags(is_anomaly, "is_anomaly", pairs.shape[0])
    checked, threshold = _as_surface(surface), as_number(threshold, "threshold")
    x_name, y_name = as_names(names, 2)
    axes = new_axes(7.0, 5.4) if axes is None else axes
    _draw_surface(axes, checked, threshold)
    handles = draw_rows(axes, pairs[:, 0], pairs[:, 1], flags)
    add_legend(axes, [*handles, _draw_boundary(axes, checked, threshold)])
    return finish(axes, x_name, y_name)


def grid_over(points: npt.ArrayLike, n: int = 200, margin: float = 0.1) -> Grid:
    """Return a grid that covers the points.

    Parameters
    ----------
    points : array of shape (n_rows, 2)
    n : int, default=200
        Number of nodes along each axis.
    margin : float, default=0.1
        Margin on each side, as a share of the range of the points.

    Returns
    -------
    Grid
        `x` and `y`, n values each, and the n * n `nodes`; their scores, reshaped to (n, n), make a `Surface`.

    Examples
    --------
    >>> x, y, nodes = grid_over([[0.0, 10.0], [1.0, 20.0]], n=2, margin=0.0)
    >>> nodes.tolist()
    [[0.0, 10.0], [1.0, 10.0], [0.0, 20.0], [1.0, 20.0]]
    """
    pairs, n = as_plane_points(points), as_count(n, "n", 2, _MAX_NODES)
    share = as_number(margin, "margin")
    if not 0.0 <= share < np.inf:
        raise InvalidInputError(f"margin must be a finite number of at least 0, but is {margin!r}.")
    x, y = (_spread(pairs[:, j], n, share) for j in range(2))
    return Grid(x, y, np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2))


def _as_surface(surface: Surface) -> Surface:
    """Check the scores at the nodes of a grid."""
    x, y = (_as_increasing(values, f"surface.{name}") for values, name in zip(surface[:2], "xy", strict=True))
    scores = as_finite(surface.scores, "surface.scores", 2)
    if scores.shape != (y.size, x.size):
        raise InvalidInputError(
            f"surface.scores must be {y.size} x {x.size}, one for each node, but its shape is {scores.shape}."
        )
    return Surface(x, y, scores)


def _as_increasing(values: Any, name: str) -> Array:
    array = as_finite(values, name, 1)
    if array.size < 2 or not (np.diff(array) > 0.0).all():
        raise InvalidInputError(f"{name} must be at least 2 increasing numbers, but is {array!r:.200}.")
    return array


def _draw_surface(axes: Axes, surface: Surface, threshold: float) -> None:
    """Draw the scores as shades, and mark the threshold on the colour bar."""
    lowest, highest = score_range(np.ravel(surface.scores), np.array([threshold]))
    mesh = axes.pcolormesh(*surface, cmap=_SHADES, vmin=lowest, vmax=highest, shading="nearest", rasterized=True)
    bar = axes.figure.colorbar(mesh, ax=axes)
    bar.set_label("anomaly score", fontsize=NAME_SIZE)
    bar.ax.tick_params(labelsize=TEXT_SIZE)
    if lowest < threshold < highest:
        bar.ax.axhline(threshold, color=INK, linewidth=1.5)


def _draw_boundary(axes: Axes, surface: Surface, threshold: float) -> Artist:
    """Draw the boundary of the normal region, if it is within the axes."""
    lowest, highest = np.min(surface.scores), np.max(surface.scores)
    if not lowest <= threshold < highest:
        return Patch(facecolor="none", label=f"{'everything' if highest <= threshold else 'nothing'} shown is normal")
    axes.contour(*surface, levels=[threshold], colors=INK, linewidths=1.5, zorder=2.5)
    return Line2D([], [], color=INK, linewidth=1.5, label=f"boundary of the normal region (score {threshold:.4g})")


def _spread(values: Array, n: int, margin: float) -> Array:
    """Return n evenly spaced values over the range of the values plus a margin on each side.

    If the values are (nearly) constant, the margin is ignored and each side gets at least 0.5.
    """
    lowest, highest = values.min(), values.max()
    size = max(abs(lowest), abs(highest))
    extra = margin * (highest - lowest)
    if highest - lowest <= max(_MIN_RELATIVE_WIDTH * size, _MIN_WIDTH):
        extra = max(0.5, 1e-3 * size)
    return np.linspace(lowest - extra, highest + extra, n)

"""Picture of two features: the score of every place, and where the normal region ends."""

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

from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.inputs import as_count
from imondrian.plots.checks import as_finite, as_flags, as_names, as_pairs, as_threshold
from imondrian.plots.crowd import draw_crowd
from imondrian.plots.style import INK, NAME_SIZE, TEXT_SIZE, finished, new_axes, put_legend, score_range

_SHADES = LinearSegmentedColormap.from_list("scores", ["#8C96A3", "#FFFFFF"])
_FINEST = 5_000  # places along an axis of a grid
_NARROWEST, _TINY = 1e-9, 1e-280  # width of a grid, beside the size of its numbers and at all


class Surface(NamedTuple):
    """Scores at the nodes of a grid."""

    x: npt.ArrayLike  # n places, increasing
    y: npt.ArrayLike  # m places, increasing
    scores: npt.ArrayLike  # m x n


class Grid(NamedTuple):
    """A grid over points: its axes, and its nodes as rows to score, those of the lowest y first."""

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
    """Draw the region that is detected as normal, as in the figures of Ma et al. (2020).

    As there, what is normal lies in grey and the anomalies are triangles. Differs: the grey tells the score, and a line
    where the normal region ends.

    Parameters
    ----------
    points : array of shape (n_rows, 2)
    is_anomaly : array of shape (n_rows,)
        Which rows are anomalies.
    surface : Surface
        The scores over the plane; see `grid_over`.
    threshold : float
        The region of the scores up to this is normal.
    names : sequence of two names, default=("x", "y")
    axes : Axes, optional
        Where to draw; on a figure of its own by default.

    Returns
    -------
    Figure

    Examples
    --------
    >>> points = [[0.0, 0.0], [1.0, 1.0]]
    >>> x, y, nodes = grid_over(points, n=3)
    >>> scores = nodes.sum(axis=1).clip(0, 2) / 2  # those of a forest
    >>> figure = plot_regions(points, [False, True], Surface(x, y, scores.reshape(3, 3)), threshold=0.5)
    >>> figure.axes[1].get_ylabel()
    'anomaly score'
    """
    pairs = as_pairs(points)
    odd = as_flags(is_anomaly, pairs.shape[0])
    checked, limit = _as_surface(surface), as_threshold(threshold, "threshold")
    x_name, y_name = as_names(names, 2)
    axes = new_axes(7.0, 5.4) if axes is None else axes
    _draw_surface(axes, checked, limit)
    handles = draw_crowd(axes, pairs[:, 0], pairs[:, 1], odd)
    put_legend(axes, [*handles, _draw_boundary(axes, checked, limit)])
    return finished(axes, x_name, y_name)


def grid_over(points: npt.ArrayLike, n: int = 200, margin: float = 0.1) -> Grid:
    """Lay a grid over the points.

    Parameters
    ----------
    points : array of shape (n_rows, 2)
    n : int, default=200
        Number of places along each axis.
    margin : float, default=0.1
        What is added on each side, as a share of the width of the points.

    Returns
    -------
    Grid
        Of `x` and `y`, n places each, and the n * n `nodes`; their scores, shaped (n, n), make a `Surface`.

    Examples
    --------
    >>> x, y, nodes = grid_over([[0.0, 10.0], [1.0, 20.0]], n=2, margin=0.0)
    >>> nodes.tolist()
    [[0.0, 10.0], [1.0, 10.0], [0.0, 20.0], [1.0, 20.0]]
    """
    pairs, n = as_pairs(points), as_count(n, "n", 2, _FINEST)
    share = as_threshold(margin, "margin")
    if not 0.0 <= share < np.inf:
        raise InvalidInputError(f"margin must be a share of at least 0, but is {margin!r}.")
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


def _draw_surface(axes: Axes, surface: Surface, limit: float) -> None:
    """Draw the scores in shades, and mark the threshold on the bar that explains them."""
    lowest, highest = score_range(np.ravel(surface.scores), np.array([limit]))
    mesh = axes.pcolormesh(*surface, cmap=_SHADES, vmin=lowest, vmax=highest, shading="nearest", rasterized=True)
    bar = axes.figure.colorbar(mesh, ax=axes)
    bar.set_label("anomaly score", fontsize=NAME_SIZE)
    bar.ax.tick_params(labelsize=TEXT_SIZE)
    if lowest < limit < highest:
        bar.ax.axhline(limit, color=INK, linewidth=1.5)


def _draw_boundary(axes: Axes, surface: Surface, limit: float) -> Artist:
    """Draw the line where the normal region ends, if it ends within the picture."""
    lowest, highest = np.min(surface.scores), np.max(surface.scores)
    if not lowest <= limit < highest:
        return Patch(facecolor="none", label=f"{'all' if highest <= limit else 'nothing'} in sight is normal")
    axes.contour(*surface, levels=[limit], colors=INK, linewidths=1.5, zorder=2.5)
    return Line2D([], [], color=INK, linewidth=1.5, label=f"end of the normal region (score {limit:.4g})")


def _spread(values: Array, n: int, margin: float) -> Array:
    """Give n places from the least value to the largest and a margin beyond; around a constant, half a unit beyond."""
    lowest, highest = values.min(), values.max()
    size = max(abs(lowest), abs(highest))
    beyond = margin * (highest - lowest)
    if highest - lowest <= max(_NARROWEST * size, _TINY):
        beyond = max(0.5, 1e-3 * size)
    return np.linspace(lowest - beyond, highest + beyond, n)

"""Scatter plot of two features, with the anomalies on top."""

from collections.abc import Sequence

import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from imondrian.plots.markers import draw_rows
from imondrian.plots.style import add_legend, finish, new_axes
from imondrian.plots.validation import as_flags, as_names, as_plane_points


def plot_scatter(
    points: npt.ArrayLike,
    is_anomaly: npt.ArrayLike,
    names: Sequence[str] = ("x", "y"),
    *,
    axes: Axes | None = None,
) -> Figure:
    """Plot the rows by two of their features.

    Parameters
    ----------
    points : array of shape (n_rows, 2)
    is_anomaly : array of shape (n_rows,)
        Which rows are anomalies. At most 20,000 of the other rows are drawn, chosen at random but always the same.
    names : sequence of two names, default=("x", "y")
        Names of the features.
    axes : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Figure

    Examples
    --------
    >>> figure = plot_scatter([[0.0, 1.0], [0.1, 1.1], [5.0, 9.0]], [False, False, True], names=("length", "width"))
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['normal: 2 rows', 'anomalies: 1 row']
    """
    pairs = as_plane_points(points)
    flags = as_flags(is_anomaly, "is_anomaly", pairs.shape[0])
    x_name, y_name = as_names(names, 2)
    axes = new_axes(6.0, 5.0) if axes is None else axes
    add_legend(axes, draw_rows(axes, pairs[:, 0], pairs[:, 1], flags))
    return finish(axes, x_name, y_name)

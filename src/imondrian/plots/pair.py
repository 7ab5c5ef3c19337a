"""Picture of two features: every row a mark, the anomalies in front."""

from collections.abc import Sequence

import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from imondrian.plots.checks import as_flags, as_names, as_pairs
from imondrian.plots.crowd import draw_crowd
from imondrian.plots.style import finished, new_axes, put_legend


def plot_pair(
    points: npt.ArrayLike,
    is_anomaly: npt.ArrayLike,
    names: Sequence[str] = ("x", "y"),
    *,
    axes: Axes | None = None,
) -> Figure:
    """Draw the rows by two of their features.

    Parameters
    ----------
    points : array of shape (n_rows, 2)
    is_anomaly : array of shape (n_rows,)
        Which rows are anomalies. Of the others no more than 20,000 are drawn, chosen by lot and always the same.
    names : sequence of two names, default=("x", "y")
    axes : Axes, optional
        Where to draw; on a figure of its own by default.

    Returns
    -------
    Figure

    Examples
    --------
    >>> figure = plot_pair([[0.0, 1.0], [0.1, 1.1], [5.0, 9.0]], [False, False, True], names=("length", "width"))
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['normal: 2 rows', 'anomalies: 1 row']
    """
    pairs = as_pairs(points)
    odd = as_flags(is_anomaly, pairs.shape[0])
    x_name, y_name = as_names(names, 2)
    axes = new_axes(6.0, 5.0) if axes is None else axes
    put_legend(axes, draw_crowd(axes, pairs[:, 0], pairs[:, 1], odd))
    return finished(axes, x_name, y_name)

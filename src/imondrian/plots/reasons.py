"""Picture of what makes rows odd: the leading features, and on which side the rows lie."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure

from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.inputs import as_count
from imondrian.plots.checks import as_names, as_numbers
from imondrian.plots.lettering import label_of
from imondrian.plots.style import INK, SMALL_SIZE, TEXT_SIZE, TOO_HIGH, TOO_LOW, finished, new_axes, put_legend, room

_SHARE_OF_NAMES = 0.4  # of the width
_MOST_BARS = 200
_LINE = 1.7  # height of a bar beside that of its name; a legend and the axis take some of the room
_PALE = 0.5  # opacity of the bar that sums up many


class _Leading(NamedTuple):
    """The features of the largest shares."""

    features: Array
    n_others: int
    sizes: Array  # shares too high and too low, 2 x n_bars; the last bar is that of the others, if there are any


def plot_reasons(
    parts: npt.ArrayLike,
    names: Sequence[str],
    *,
    n_features: int = 12,
    axes: Axes | None = None,
) -> Figure:
    """Draw which features make up the scores of the rows, in the mean.

    Parameters
    ----------
    parts : array of shape (n_rows, n_columns)
        Explanations: positive where the row lies too high, negative too low; the sizes of a row sum to its score.
        Rows with a NaN were not scored, and do not count.
    names : sequence of n_columns names
    n_features : int, default=12
        How many features are shown, at the most 200, and fewer in low axes; the others are summed up.
    axes : Axes, optional
        Where to draw; on a figure of its own by default.

    Returns
    -------
    Figure

    Examples
    --------
    >>> figure = plot_reasons([[0.6, -0.2, 0.0], [0.5, 0.1, 0.1]], ["age", "height", "weight"], n_features=2)
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['age', 'height', '1 other']
    """
    table = as_numbers(parts, "parts", 2)
    listed = as_names(names, table.shape[1])
    shares = _mean_shares(table)
    n_shown = min(as_count(n_features, "n_features", 1, _MOST_BARS), table.shape[1])
    axes = new_axes(7.0, 1.3 + 0.27 * (n_shown + 1)) if axes is None else axes
    n_fitting = int(room(axes)[1] / (_LINE * TEXT_SIZE)) - 1
    leading = _leading(shares, max(min(n_shown, n_fitting), 1))
    _draw_bars(axes, leading)
    _write_names(axes, leading, listed)
    return finished(axes, "mean share of the score (%)", "feature")


def _mean_shares(parts: Array) -> Array:
    """Give for each feature the percent of the score that come from lying too high, and too low, in the mean."""
    sizes = np.abs(parts).sum(axis=1)
    counts = np.isfinite(sizes) & (sizes > 0.0)
    if not counts.any():
        raise InvalidInputError(f"parts explains no score: none of its {sizes.size} row(s) has a part other than 0.")
    shares = parts[counts] / sizes[counts, None]
    return 100.0 * np.stack([np.maximum(shares, 0.0).mean(axis=0), np.maximum(-shares, 0.0).mean(axis=0)])


def _leading(shares: Array, n_features: int) -> _Leading:
    """Put the features of the largest shares first, and sum up the rest."""
    order = np.argsort(-shares.sum(axis=0), kind="stable")
    first, rest = order[:n_features], order[n_features:]
    sizes = shares[:, first]
    if rest.size > 0:
        sizes = np.column_stack([sizes, shares[:, rest].sum(axis=1)])
    return _Leading(first, rest.size, sizes)


def _draw_bars(axes: Axes, leading: _Leading) -> None:
    """Draw the bars from the top down, each with its percentage at the end."""
    high, low = leading.sizes
    places = np.arange(high.size)
    opacity = np.where(places < leading.features.size, 1.0, _PALE)
    bars: list[Any] = [
        axes.barh(places, high, color=to_rgba_array(TOO_HIGH, opacity), label="too high"),
        axes.barh(places, low, left=high, color=to_rgba_array(TOO_LOW, opacity), label="too low"),
    ]
    for place, size in zip(places, high + low, strict=True):
        text = f"{size:.1f}" if size >= 0.05 or size == 0.0 else "< 0.1"
        axes.annotate(
            text, (size, place), (3, 0), textcoords="offset points", va="center", fontsize=SMALL_SIZE, color=INK
        )
    axes.set_xlim(0.0, 1.12 * (high + low).max())
    axes.set_ylim(high.size - 0.4, -0.6)
    put_legend(axes, bars)


def _write_names(axes: Axes, leading: _Leading, names: list[Any]) -> None:
    width = room(axes)[0] * _SHARE_OF_NAMES
    labels = [label_of(names[j], width, TEXT_SIZE) for j in leading.features]
    if leading.n_others > 0:
        labels.append("1 other" if leading.n_others == 1 else f"{leading.n_others} others")
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)

"""Bar chart of the features with the largest shares of the score, coloured by whether they are too high or too low."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure

from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.forest.inputs import as_count
from imondrian.plots.labels import fitted_label
from imondrian.plots.style import (
    CATEGORY,
    INK,
    SMALL_SIZE,
    TEXT_SIZE,
    TOO_HIGH,
    TOO_LOW,
    add_legend,
    axes_size,
    finish,
    new_axes,
)
from imondrian.plots.validation import as_names, as_numbers

_SHARE_OF_NAMES = 0.4  # largest width of a feature name, as a share of the width of the axes
_MAX_BARS = 200
_BAR_PITCH = 1.7  # distance between bars, as a multiple of TEXT_SIZE; leaves space for the legend and the axis
_CATEGORY = "unusual category"
_COLOURS = {"too high": TOO_HIGH, "too low": TOO_LOW, _CATEGORY: CATEGORY}  # in the order of the rows of `sizes`
_PALE = 0.5  # opacity of the bar that sums the other features


class _TopFeatures(NamedTuple):
    """The features with the largest shares."""

    features: Array
    n_others: int
    # 3 x n_bars: shares due to numbers that are too high (first row) and too low (second row), and due to categories
    # (third row); the last bar sums the other features, if any
    sizes: Array


def plot_explanations(
    parts: npt.ArrayLike,
    names: Sequence[str],
    *,
    n_shown: int = 12,
    categorical: Collection[int] = (),
    axes: Axes | None = None,
) -> Figure:
    """Plot how much each feature contributes to the scores of the rows, on average.

    Parameters
    ----------
    parts : array of shape (n_rows, n_features)
        Explanations: positive where the value is too high, negative where it is too low; the absolute values of a row
        sum to its score. Rows with a NaN were not scored and are ignored.
    names : sequence of n_features names
        Names of the features.
    n_shown : int, default=12
        Number of features to show: at most 200, and fewer if the axes are too short. The others are summed in one bar.
    categorical : collection of int
        Indices of the features that are categories, which are neither high nor low.
    axes : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Figure

    Examples
    --------
    >>> figure = plot_explanations([[0.6, -0.2, 0.0], [0.5, 0.1, 0.1]], ["age", "height", "weight"], n_shown=2)
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['age', 'height', '1 other']
    """
    table = as_numbers(parts, "parts", 2)
    listed = as_names(names, table.shape[1])
    shares = _mean_shares(table, np.isin(np.arange(table.shape[1]), list(categorical)))
    n_shown = min(as_count(n_shown, "n_shown", 1, _MAX_BARS), table.shape[1])
    axes = new_axes(7.0, 1.3 + 0.27 * (n_shown + 1)) if axes is None else axes
    n_fitting = int(axes_size(axes)[1] / (_BAR_PITCH * TEXT_SIZE)) - 1
    top = _top_features(shares, max(min(n_shown, n_fitting), 1))
    _draw_bars(axes, top)
    _write_names(axes, top, listed)
    return finish(axes, "mean share of the score (%)", "feature")


def _mean_shares(parts: Array, is_category: Array) -> Array:
    """Return the mean percentage of the score due to each feature being too high, too low, or an unusual category."""
    sizes = np.abs(parts).sum(axis=1)
    is_explained = np.isfinite(sizes) & (sizes > 0.0)
    if not is_explained.any():
        raise InvalidInputError(f"parts explains no score: each of its {sizes.size} row(s) has a NaN or only zeros.")
    shares = parts[is_explained] / sizes[is_explained, None]
    high, low = np.maximum(shares, 0.0).mean(axis=0), np.maximum(-shares, 0.0).mean(axis=0)
    return 100.0 * np.stack([high * ~is_category, low * ~is_category, (high + low) * is_category])


def _top_features(shares: Array, n_shown: int) -> _TopFeatures:
    """Return the features with the largest shares, and the sum of the others."""
    order = np.argsort(-shares.sum(axis=0), kind="stable")
    first, rest = order[:n_shown], order[n_shown:]
    sizes = shares[:, first]
    if rest.size > 0:
        sizes = np.column_stack([sizes, shares[:, rest].sum(axis=1)])
    return _TopFeatures(first, rest.size, sizes)


def _draw_bars(axes: Axes, top: _TopFeatures) -> None:
    """Draw the bars from top to bottom, each with its percentage at the end."""
    positions, totals = np.arange(top.sizes.shape[1]), top.sizes.sum(axis=0)
    opacity = np.where(positions < top.features.size, 1.0, _PALE)
    starts = np.cumsum(top.sizes, axis=0) - top.sizes
    bars: list[Any] = [
        axes.barh(positions, sizes, left=left, color=to_rgba_array(colour, opacity), label=label)
        for sizes, left, (label, colour) in zip(top.sizes, starts, _COLOURS.items(), strict=True)
        if label != _CATEGORY or sizes.any()
    ]
    for position, size in zip(positions, totals, strict=True):
        text = f"{size:.1f}" if size >= 0.05 or size == 0.0 else "< 0.1"
        axes.annotate(
            text, (size, position), (3, 0), textcoords="offset points", va="center", fontsize=SMALL_SIZE, color=INK
        )
    axes.set_xlim(0.0, 1.12 * totals.max())
    axes.set_ylim(totals.size - 0.4, -0.6)
    add_legend(axes, bars)


def _write_names(axes: Axes, top: _TopFeatures, names: list[Any]) -> None:
    width = axes_size(axes)[0] * _SHARE_OF_NAMES
    labels = [fitted_label(names[j], width, TEXT_SIZE) for j in top.features]
    if top.n_others > 0:
        labels.append("1 other" if top.n_others == 1 else f"{top.n_others} others")
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)

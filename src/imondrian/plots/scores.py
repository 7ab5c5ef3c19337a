"""Picture of how the scores are spread, and what each threshold would call an anomaly."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, StrMethodFormatter

from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.plots.checks import as_scores, as_threshold
from imondrian.plots.crowd import count_of
from imondrian.plots.lettering import label_of
from imondrian.plots.style import (
    ANOMALY,
    GREY,
    INK,
    NORMAL,
    TEXT_SIZE,
    Look,
    finished,
    new_axes,
    put_legend,
    room,
    score_range,
)

_FEWEST_BARS, _MOST_BARS = 12, 60
_NARROWEST = 0.0125  # of a bar, as a share of the picture
_SHARE_OF_NAME = 0.35  # of the width
_TALLEST_EVEN = 30  # if a bar is taller, one row could not be seen beside it on an even axis
_DASHES: tuple[Any, ...] = ((0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), (0, (9, 3)))


def plot_scores(
    scores: npt.ArrayLike,
    thresholds: Mapping[str, float],
    chosen: str | None = None,
    *,
    axes: Axes | None = None,
) -> Figure:
    """Draw the histogram of the scores with the thresholds.

    Parameters
    ----------
    scores : array of shape (n_rows,)
        Between 0 and 1, high is odd; NaN for rows that were not scored.
    thresholds : mapping of names to numbers
        Scores above which a row is an anomaly, each by the name of its rule.
    chosen : str, optional
        Name of the threshold that counts; the scores above it are coloured.
    axes : Axes, optional
        Where to draw; on a figure of its own by default.

    Returns
    -------
    Figure

    Examples
    --------
    >>> figure = plot_scores([0.4, 0.42, 0.81, 0.39], {"auto": 0.5, "kmeans": 0.6}, chosen="kmeans")
    >>> for text in figure.axes[0].get_legend().get_texts():
    ...     print(text.get_text())
    normal: 3 rows
    anomalies: 1 row
    chosen threshold kmeans at 0.6: 1 row above
    threshold auto at 0.5: 1 row above
    """
    values = as_scores(scores)
    values = values[~np.isnan(values)]
    limits = {name: as_threshold(value, f"thresholds[{name!r:.60}]") for name, value in thresholds.items()}
    if chosen is not None and chosen not in limits:
        raise InvalidInputError(f"chosen must be one of {list(limits)}, but is {chosen!r}.")
    limit = None if chosen is None else limits[chosen]
    axes = new_axes(7.0, 3.6 + 0.2 * len(limits)) if axes is None else axes
    lowest, highest = score_range(values, np.array([*limits.values()]))
    edges = _edges(values, limit, _NARROWEST * (highest - lowest))
    handles = _draw_bars(axes, values, edges, limit) + _draw_lines(axes, values, limits, chosen)
    put_legend(axes, handles)
    axes.set_xlim(min(lowest, edges[0]), max(highest, edges[-1]))
    return finished(axes, "anomaly score", _set_scale(axes, _counts(values, edges).max()))


def _edges(values: Array, limit: float | None, narrowest: float) -> Array:
    """Lay bars of equal width side by side so that one ends at the limit: none holds scores of both kinds."""
    lowest, highest = values.min(), values.max()
    anchor = limit if limit is not None and 0.0 <= limit <= 1.0 else lowest
    n_bars = np.clip(np.sqrt(values.size), _FEWEST_BARS, _MOST_BARS)
    width = max((highest - lowest) / n_bars, narrowest)
    first, last = np.ceil((lowest - anchor) / width) - 1.0, np.ceil((highest - anchor) / width)
    return anchor + width * np.arange(first, last + 1.0)


def _counts(values: Array, edges: Array) -> Array:
    """Count the scores in each bar; a score on an edge belongs to the bar on its left."""
    places = np.clip(np.searchsorted(edges, values, side="left") - 1, 0, edges.size - 2)
    return np.bincount(places, minlength=edges.size - 1)


def _draw_bars(axes: Axes, values: Array, edges: Array, limit: float | None) -> list[Artist]:
    """Draw a bar for each stretch of scores; those above the limit are another kind."""
    if limit is None:
        return [_draw_kind(axes, values, edges, NORMAL, "scored")]
    is_above = values > limit
    return [
        _draw_kind(axes, values[~is_above], edges, NORMAL, NORMAL.word),
        _draw_kind(axes, values[is_above], edges, ANOMALY, ANOMALY.word),
    ]


def _draw_kind(axes: Axes, values: Array, edges: Array, look: Look, word: str) -> Artist:
    counts = _counts(values, edges)
    bars = np.flatnonzero(counts)
    style: dict[str, Any] = {"facecolor": look.colour, "edgecolor": "white", "linewidth": 0.4}
    axes.bar(edges[bars], counts[bars], np.diff(edges)[bars], align="edge", zorder=look.layer, **style)
    return Patch(facecolor=look.colour, label=f"{word}: {count_of(values.size)}")


def _draw_lines(axes: Axes, values: Array, limits: dict[str, float], chosen: str | None) -> list[Artist]:
    """Draw the thresholds as lines, the chosen one solid and first in the legend, the others by their values."""
    others = sorted((name for name in limits if name != chosen), key=limits.__getitem__)
    dashes = cycle(_DASHES)
    lines = [_draw_line(axes, values, name, limits[name], color=GREY, linestyle=next(dashes)) for name in others]
    if chosen is not None:
        lines.insert(0, _draw_line(axes, values, chosen, limits[chosen], color=INK, linewidth=2.2))
        lines[0].set_label(f"chosen {lines[0].get_label()}")
    return lines


def _draw_line(axes: Axes, values: Array, name: str, limit: float, **style: Any) -> Artist:
    place, n_above = f"{limit:.4g}", int(np.count_nonzero(values > limit))
    if name != place:
        place = f"{label_of(name, _SHARE_OF_NAME * room(axes)[0], TEXT_SIZE)} at {place}"
    return axes.axvline(limit, label=f"threshold {place}: {count_of(n_above)} above", zorder=5, **style)


def _set_scale(axes: Axes, tallest: int) -> str:
    """Choose an axis of counts on which one row can be seen, and give its name."""
    if tallest <= _TALLEST_EVEN:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        return "rows per bar"
    axes.set_yscale("symlog", linthresh=1.0, linscale=0.5)
    steps = (1, 2, 5) if tallest <= 1_000 else (1,)
    decades = range(int(np.log10(tallest)) + 1)
    axes.yaxis.set_major_locator(FixedLocator([0, *(step * 10**decade for decade in decades for step in steps)]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_ylim(0.0, 1.4 * tallest)
    return "rows per bar (log scale)"

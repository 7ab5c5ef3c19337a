"""Plot of a time series: its values with the expected range, its incidents, and below them the surprise of each row."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.plots.labels import fitted_label
from imondrian.plots.style import ANOMALY, GREY, INK, NAME_SIZE, NORMAL, SMALL_SIZE, add_legend, finish
from imondrian.plots.time_axis import set_ticks, x_coordinates
from imondrian.plots.validation import as_finite, as_flags, as_names, as_number, as_numbers, check_length

MAX_PANELS = 6  # columns of values that are plotted; the others are left out
_WIDTH, _VALUE_HEIGHT, _SURPRISE_HEIGHT = 10.0, 2.3, 1.5  # in inches
_MAX_BINS = 4_000  # a line of more than 2 * _MAX_BINS rows is drawn as the extremes of _MAX_BINS bins
_MARGIN = 0.06  # above and below values, as a share of their range
_BAND_QUANTILES = (0.02, 0.98)  # of the bounds of the expected range; the y axis extends at least this far
_GAP = 40.0  # a step longer than this many median steps is drawn as a gap
_MIN_SPAN = 0.004  # smallest width of an incident, as a share of the axis: a narrower one would not be visible
_BAND, _SHADE, _LABELLED, _WARM_UP = "#BFD9EC", "#F4C9C2", "#2E8B57", "#ECECEC"


class Band(NamedTuple):
    """The expected range at some rows."""

    rows: npt.ArrayLike  # indices of rows, increasing
    low: npt.ArrayLike  # of shape (n_rows_of_band, n_values)
    high: npt.ArrayLike


class Surprises(NamedTuple):
    """What the lower panel shows for each row, and above which value a row is an anomaly."""

    values: npt.ArrayLike  # of shape (n_rows,); NaN for rows without a score
    threshold: npt.ArrayLike  # one number, or one for each row
    name: str = "surprise"


def plot_series(  # noqa: PLR0913
    values: npt.ArrayLike,
    surprises: Surprises,
    when: npt.ArrayLike | None = None,
    names: Sequence[Any] | None = None,
    *,
    expected: Band | None = None,
    incidents: Sequence[tuple[int, int]] = (),
    labelled: npt.ArrayLike | None = None,
    n_warm_up: int = 0,
    x_name: str = "row",
    width: float = _WIDTH,
) -> Figure:
    """Plot the values of a series with the expected range and the incidents, and below them the surprise.

    Parameters
    ----------
    values : array of shape (n_rows,) or (n_rows, n_values)
        NaN for missing numbers. Each column has its own panel; only the first 6 columns are plotted.
    surprises : Surprises
        The surprise of each row (see `Result.surprise`) and the threshold of the surprise, such as 3 for a probability
        of 0.001; or another measure with its threshold.
    when : array of shape (n_rows,), optional
        Numbers or datetime64 values for the x axis; by default the row numbers, starting at 1.
    names : sequence, optional
        A name for each column of values.
    expected : Band, optional
        The expected range, computed before the rows were learned: see `StreamDetector.expected_range`.
    incidents : sequence of pairs of int, default=()
        First and last row of each incident, from 0.
    labelled : array of bool of shape (n_rows,), optional
        Rows that are known to be anomalous; a line above the values marks them.
    n_warm_up : int, default=0
        Number of rows at the start that cannot be anomalies; their surprise is not plotted.
    x_name : str, default="row"
        Label of the x axis.
    width : float, default=10
        Width of the figure in inches.

    Returns
    -------
    Figure

    Examples
    --------
    >>> surprises = Surprises([0.2, 0.4, 5.0, 0.3], threshold=3.0)
    >>> figure = plot_series([1.0, 1.1, 9.0, 1.0], surprises, names=["load"], incidents=[(2, 2)])
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['load', 'surprise']
    """
    table = _as_table(values)
    n_rows, n_values = table.shape
    x = x_coordinates(when, n_rows).astype(np.float64)
    labels = [f"value {j + 1}" for j in range(n_values)] if names is None else as_names(names, n_values)
    is_labelled = np.zeros(n_rows, bool) if labelled is None else as_flags(labelled, "labelled", n_rows)
    *upper, lower = _new_panels(min(n_values, MAX_PANELS), as_number(width, "width"))
    line = _Line(x, _gaps(x))
    handles: list[Artist] = []
    for j, axes in enumerate(upper):
        handles = _draw_value(axes, line, table[:, j], None if expected is None else _column(expected, j, n_rows))
        _draw_labelled(axes, x, is_labelled)
        finish(axes, "", "")
        _name(axes, labels[j], len(upper))
    _draw_surprises(lower, line, surprises, n_warm_up)
    _shade((*upper, lower), _warm_up_span(x, n_warm_up), _WARM_UP)
    _shade((*upper, lower), [span for rows in incidents for span in _spans(rows, line)], _SHADE)
    handles += [Patch(color=_SHADE, label=f"incidents: {len(incidents)}")]
    handles += [Patch(color=_WARM_UP, label="warm-up")] if n_warm_up else []
    handles += [Line2D([], [], color=_LABELLED, linewidth=4, label="labelled")] if is_labelled.any() else []
    set_ticks(lower, when, n_rows)
    lower.margins(x=0.01)
    add_legend(upper[0], handles)
    return finish(lower, x_name, surprises.name)


def _as_table(values: Any) -> Array:
    """Check the values; return them as a table, even if there is only one column."""
    table = as_numbers(values, "values", np.ndim(values) if np.ndim(values) in (1, 2) else 2)
    return np.where(np.isfinite(table), table, np.nan).reshape(len(table), -1)


def _column(band: Band, j: int, n_rows: int) -> tuple[Array, Array, Array]:
    """Check the expected range; return its rows, and its bounds for one value."""
    rows = as_finite(band.rows, "expected.rows", 1).astype(np.int64)
    if rows.min() < 0 or rows.max() >= n_rows or (np.diff(rows) <= 0).any():
        raise InvalidInputError(f"expected.rows must be increasing, between 0 and {n_rows - 1}.")
    low, high = (_as_table(bound) for bound in (band.low, band.high))
    check_length(low, "expected.low", rows.size)
    check_length(high, "expected.high", rows.size)
    if j >= min(low.shape[1], high.shape[1]):
        raise InvalidInputError(f"The expected range needs bounds for each value, but has none for value {j + 1}.")
    return rows, low[:, j], high[:, j]


class _Line(NamedTuple):
    """The x coordinates of all rows, and where lines are broken."""

    x: Array
    gaps: Array  # the last x before each gap

    def through(self, rows: Array, *columns: Array) -> list[Array]:
        """Return the x coordinates of rows, and their values in columns, with NaN at each gap."""
        rows_at = self.x[rows]
        breaks = np.unique(np.searchsorted(rows_at, self.gaps, side="right"))
        breaks = breaks[(breaks > 0) & (breaks < rows.size)]
        return [np.insert(values, breaks, np.nan) for values in (rows_at, *columns)]


def _gaps(x: Array) -> Array:
    """Return the x before each step that is far longer than usual."""
    ordered = np.sort(x)
    steps = np.diff(ordered)
    if not (steps > 0.0).any():
        return np.empty(0)
    return ordered[:-1][steps > _GAP * np.median(steps[steps > 0.0])]


def _spans(incident: tuple[int, int], line: _Line) -> list[tuple[float, float]]:
    """Return the parts of the x axis that an incident takes up, each wide enough to be visible."""
    first, last = incident
    if not 0 <= first <= last < line.x.size:
        raise InvalidInputError(f"An incident must be between rows 0 and {line.x.size - 1}, but is {first} to {last}.")
    x = np.sort(line.x[first : last + 1])
    parts = np.split(x, np.unique(np.searchsorted(x, line.gaps, side="right")))
    least = _MIN_SPAN * float(line.x.max() - line.x.min())
    return [_widened(part[0], part[-1], least) for part in parts if part.size]


def _widened(start: float, end: float, least: float) -> tuple[float, float]:
    extra = max(least - (end - start), 0.0) / 2.0
    return start - extra, end + extra


def _warm_up_span(x: Array, n_warm_up: int) -> list[tuple[float, float]]:
    warm_up = x[:n_warm_up]
    return [(warm_up.min(), warm_up.max())] if warm_up.size else []


def _new_panels(n_values: int, width: float) -> list[Axes]:
    """Return the axes of a new figure, one for each value and one for the surprise, with the same x axis."""
    heights = [*([_value_height(n_values)] * n_values), _SURPRISE_HEIGHT]
    figure = Figure(figsize=(width, sum(heights) + 0.4), layout="constrained")
    axes = figure.subplots(n_values + 1, 1, sharex=True, gridspec_kw={"height_ratios": heights})
    return list(axes)


def _value_height(n_values: int) -> float:
    """Return the height of a panel in inches."""
    return _VALUE_HEIGHT if n_values == 1 else 0.75 * _VALUE_HEIGHT


def _name(axes: Axes, name: Any, n_values: int) -> None:
    """Write the name of a value beside its panel, in smaller letters if there are several panels."""
    size, height = NAME_SIZE if n_values == 1 else SMALL_SIZE, 0.85 * 72.0 * _value_height(n_values)
    axes.set_ylabel(fitted_label(name, height, size), fontsize=size)
    axes.set_xlabel("")


def _draw_value(axes: Axes, line: _Line, y: Array, band: tuple[Array, Array, Array] | None) -> list[Artist]:
    """Draw the values of one panel in front of their expected range; return the legend entries."""
    handles = [_draw_line(axes, line, y, NORMAL.colour, 0.9)]
    shown = [np.nanmin(y), np.nanmax(y)] if np.isfinite(y).any() else [0.0, 1.0]
    if band is not None:
        rows, low, high = band
        order = np.argsort(line.x[rows], kind="stable")
        x, bottom, top = line.through(rows[order], low[order], high[order])
        axes.fill_between(x, bottom, top, color=_BAND, linewidth=0, zorder=1.5)
        handles.append(Patch(color=_BAND, label="expected range (90 %)"))
        bounds = np.concatenate([low, high])
        if np.isfinite(bounds).any():
            shown += np.nanquantile(bounds, _BAND_QUANTILES).tolist()
    margin = _MARGIN * (max(shown) - min(shown)) or max(abs(shown[0]), 1.0) * _MARGIN
    axes.set_ylim(min(shown) - margin, max(shown) + margin)
    return handles


def _draw_line(axes: Axes, line: _Line, y: Array, colour: str, width: float) -> Artist:
    """Draw a line through all rows; a row with a gap on both sides is a dot."""
    x, y = line.through(drawn := _rows_to_draw(line.x, y), y[drawn])
    is_gap = np.isnan(np.concatenate([[np.nan], y, [np.nan]]))
    is_single = is_gap[:-2] & is_gap[2:] & ~is_gap[1:-1]
    axes.plot(x[is_single], y[is_single], color=colour, linestyle="", marker=".", markersize=2.0, zorder=3)
    return axes.plot(x, y, color=colour, linewidth=width, zorder=3, label="value")[0]


def _draw_surprises(axes: Axes, line: _Line, surprises: Surprises, n_warm_up: int) -> None:
    """Draw the surprise of each row, the threshold, and a marker for each anomaly."""
    x, name = line.x, f"{surprises.name} of rows"
    y = as_numbers(surprises.values, name, 1)
    check_length(y, name, x.size)
    y[:n_warm_up] = np.nan
    thresholds = np.broadcast_to(as_numbers(surprises.threshold, "threshold", np.ndim(surprises.threshold)), x.shape)
    _draw_line(axes, line, y, GREY, 0.7)
    is_anomaly = y > thresholds
    marker = {"s": 14, "c": ANOMALY.colour, "marker": ANOMALY.marker, "linewidths": 0, "zorder": 4}
    axes.scatter(x[is_anomaly], y[is_anomaly], **marker)  # type: ignore[arg-type]
    order = np.argsort(x, kind="stable")
    axes.plot(x[order], thresholds[order], color=INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=3.5)
    axes.set_ylim(bottom=min(0.0, float(np.nanmin(y))) if np.isfinite(y).any() else 0.0)


def _draw_labelled(axes: Axes, x: Array, is_labelled: Array) -> None:
    """Draw a line above the values over each run of labelled rows."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_labelled, [False]]).astype(np.int8)))
    for first, end in edges.reshape(-1, 2):
        axes.plot(
            [x[first:end].min(), x[first:end].max()],
            [1.0, 1.0],
            transform=axes.get_xaxis_transform(),
            color=_LABELLED,
            linewidth=5,
            solid_capstyle="projecting",
            clip_on=False,
            zorder=5,
        )


def _shade(panels: Sequence[Axes], spans: list[tuple[float, float]], colour: str) -> None:
    for axes in panels:
        for start, end in spans:
            axes.axvspan(start, end, color=colour, linewidth=0, zorder=1, alpha=0.75)


def _rows_to_draw(x: Array, y: Array) -> Array:
    """Return the rows that are needed to draw the line, in the order of x.

    These are all rows or, if there are many, those with the lowest and the highest value of each bin.
    """
    order = np.argsort(x, kind="stable")
    if order.size <= 2 * _MAX_BINS:
        return order
    parts = np.array_split(order, _MAX_BINS)
    kept = [_extremes(part, y) for part in parts]
    return np.concatenate(kept)


def _extremes(rows: Array, y: Array) -> Array:
    """Return the rows with the lowest and the highest value, in their order."""
    values = y[rows]
    if np.isnan(values).all():
        return rows[:1]
    return rows[np.unique([np.nanargmin(values), np.nanargmax(values)])]

"""Plot of the quality of each method over many sets: its mean, and its result on each set."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.experiments.figures.layout import (
    HEAD_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    Margins,
    Titles,
    add_legend,
    new_sheet,
    text_width,
)
from imondrian.experiments.repeats import Row
from imondrian.plots.style import INK

MEASURES = {"auc": "AUC, %", "average_precision": "average precision, %"}
_OURS, _OTHERS = "#0072B2", "#767676"
_DOT, _MEAN = 3.0, 7.0  # size of markers in points
_FAINT = 0.4  # opacity of dots
_ROW = 0.21  # inches per method
_ABOVE, _BETWEEN, _BELOW = 0.3, 0.5, 0.75  # inches above, between and below the panels
_ROUND = 10.0  # the axis starts and ends at a multiple of this


class MethodResult(NamedTuple):
    """The results of a method in one mode: the mean over seeds on each set, and the number of sets without a result."""

    method: str
    values: Array
    n_missing: int


def quality_figure(
    rows: Sequence[Row],
    ours: Collection[str] = (),
    measure: str = "auc",
    titles: Mapping[str, str] | None = None,
) -> Figure:
    """Plot a panel for each mode, with the methods ordered from the best mean over the sets to the worst.

    Parameters
    ----------
    rows : sequence of dict
        With the keys `set`, `method`, `mode` and the measure, in per cent; rows that differ only in the seed are
        averaged first. A value that is not a number counts as missing; the number of sets is then shown beside the
        mean.
    ours : collection of str
        Methods to highlight.
    measure : "auc" or "average_precision"
    titles : mapping, optional
        Titles of methods and modes, where they differ from the names.

    Examples
    --------
    >>> row = {"set": "wine", "mode": "batch"}
    >>> figure = quality_figure([row | {"method": "lof", "auc": 90.0}, row | {"method": "knn", "auc": 95.0}])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['knn', 'lof']
    """
    if measure not in MEASURES:
        raise InvalidInputError(f"measure must be one of {list(MEASURES)}, but is {measure!r}.")
    results = _results(rows, measure)
    if not results:
        raise InvalidInputError(f"rows must have at least one number for {measure!r}, but have none.")
    title_of = Titles(titles or {})
    all_results = [result for method_results in results.values() for result in method_results]
    left = text_width([title_of[result.method] for result in all_results], TITLE_SIZE) + 0.2
    right = text_width([_mean_text(result) for result in all_results], TITLE_SIZE) + 0.2
    gaps, height = [_BETWEEN] * (len(results) - 1), _ROW * max(map(len, results.values()))
    sheet = new_sheet(Margins(left, right, _BELOW, _ABOVE), [], gaps, height)
    for (axes,), (mode, method_results) in zip(sheet.panels, results.items(), strict=True):
        _draw(axes, method_results, ours)
        _write(axes, method_results, ours, title_of)
        axes.set_title(title_of[mode], fontsize=HEAD_SIZE, color=INK, loc="left", pad=4.0)
        axes.set_xlim(_limits(all_results))
    axes.set_xlabel(MEASURES[measure], fontsize=TITLE_SIZE)
    add_legend(sheet.figure, _legend_handles([result.method in ours for result in all_results]), 3, "lower center")
    return sheet.figure


def _results(rows: Sequence[Row], measure: str) -> dict[str, list[MethodResult]]:
    """Average over the seeds, and order the methods of each mode by their means over the sets, best first."""
    values: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in rows:
        if row[measure] is not None and np.isfinite(row[measure]):
            methods = values.setdefault(row["mode"], {})
            methods.setdefault(row["method"], {}).setdefault(row["set"], []).append(row[measure])
    return {mode: _ordered(methods) for mode, methods in values.items()}


def _ordered(methods: Mapping[str, Mapping[str, Sequence[float]]]) -> list[MethodResult]:
    n_sets = len({name for sets in methods.values() for name in sets})
    method_results = [
        MethodResult(method, np.array([np.mean(seeds) for seeds in sets.values()]), n_sets - len(sets))
        for method, sets in methods.items()
    ]
    return sorted(method_results, key=lambda result: -result.values.mean())


def _mean_text(result: MethodResult) -> str:
    """Return the mean as text, with the number of sets if some are missing."""
    n_sets = result.values.size + result.n_missing
    return f"{result.values.mean():.1f}" + (f" ({result.values.size} of {n_sets} sets)" if result.n_missing else "")


def _draw(axes: Axes, method_results: Sequence[MethodResult], ours: Collection[str]) -> None:
    for i, result in enumerate(method_results):
        colour = _OURS if result.method in ours else _OTHERS
        heights = np.full(result.values.size, i)
        axes.plot(result.values, heights, "o", color=colour, markersize=_DOT, alpha=_FAINT, mew=0.0, clip_on=False)
        axes.plot([result.values.mean()], [i], "D", color=colour, markersize=_MEAN, markeredgecolor="white")
    axes.set_ylim(len(method_results) - 0.5, -0.5)
    axes.grid(axis="x", color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _write(axes: Axes, method_results: Sequence[MethodResult], ours: Collection[str], title_of: Titles) -> None:
    """Write the names on the left and the means on the right."""
    axes.set_yticks(range(len(method_results)), [title_of[result.method] for result in method_results])
    axes.tick_params(axis="y", length=0.0, labelsize=TITLE_SIZE)
    axes.tick_params(axis="x", length=2.5, labelsize=TEXT_SIZE)
    for i, (result, label) in enumerate(zip(method_results, axes.get_yticklabels(), strict=True)):
        colour = _OURS if result.method in ours else INK
        label.set_color(colour)
        axes.annotate(
            _mean_text(result),
            (1.0, i),
            (6.0, 0.0),
            axes.get_yaxis_transform(),
            "offset points",
            va="center",
            fontsize=TITLE_SIZE,
            color=colour,
        )


def _limits(method_results: Sequence[MethodResult]) -> tuple[float, float]:
    values = np.concatenate([result.values for result in method_results])
    return _ROUND * np.floor(values.min() / _ROUND), _ROUND * np.ceil(values.max() / _ROUND)


def _legend_handles(is_ours: Sequence[bool]) -> list[Artist]:
    handles: list[Artist] = [
        Line2D([], [], linestyle="", marker="D", color=_OTHERS, markersize=_MEAN, label="mean over the sets"),
        Line2D([], [], linestyle="", marker="o", color=_OTHERS, markersize=_DOT, alpha=_FAINT, label="a set"),
    ]
    if any(is_ours):
        handles.append(Line2D([], [], linestyle="", marker="D", color=_OURS, markersize=_MEAN, label="ours"))
    return handles

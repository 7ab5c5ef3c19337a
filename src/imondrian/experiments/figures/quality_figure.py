"""Which system is best over many sets: the mean of each, in front of what it reaches on each set."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.experiments.figures.layout import (
    HEAD_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    Margins,
    Titles,
    add_legend,
    inches,
    new_sheet,
)
from imondrian.experiments.repeats import Row
from imondrian.plots.style import INK

MEASURES = {"auc": "AUC, %", "average_precision": "average precision, %"}
_OURS, _OTHERS = "#0072B2", "#767676"
_DOT, _MEAN = 3.0, 7.0  # size of marks in points
_FAINT = 0.4  # opacity of dots
_ROW = 0.21  # inches for a method
_ABOVE, _BETWEEN, _BELOW = 0.3, 0.5, 0.75  # inches above, between and below the panels
_ROUND = 10.0  # the axis begins and ends at a multiple of this


class Standing(NamedTuple):
    """What a method reaches in a mode on each set, as the mean over the seeds; and how many sets it lacks."""

    method: str
    values: Array
    n_missing: int


def quality_figure(
    rows: Sequence[Row],
    ours: Collection[str] = (),
    measure: str = "auc",
    titles: Mapping[str, str] | None = None,
) -> Figure:
    """Draw a panel for each mode: the methods from the best mean over the sets to the worst.

    Parameters
    ----------
    rows : sequence of dict
        With the keys set, method, mode and the measure, in per cent; those that differ only in the seed are averaged
        first. What is not a number counts as missing, which is said beside the mean.
    ours : collection of str
        Methods to be seen at a glance.
    measure : "auc" or "average_precision"
    titles : mapping, optional
        What to call methods and modes, where that differs from their names.

    Examples
    --------
    >>> row = {"set": "wine", "mode": "batch"}
    >>> figure = quality_figure([row | {"method": "lof", "auc": 90.0}, row | {"method": "knn", "auc": 95.0}])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['knn', 'lof']
    """
    if measure not in MEASURES:
        raise InvalidInputError(f"measure must be one of {list(MEASURES)}, but is {measure!r}.")
    standings = _standings(rows, measure)
    if not standings:
        raise InvalidInputError(f"There must be rows with a number for {measure!r}, but there are none.")
    called = Titles(titles or {})
    all_places = [place for places in standings.values() for place in places]
    left = inches([called[place.method] for place in all_places], TITLE_SIZE) + 0.2
    right = inches([_words(place) for place in all_places], TITLE_SIZE) + 0.2
    gaps, high = [_BETWEEN] * (len(standings) - 1), _ROW * max(map(len, standings.values()))
    sheet = new_sheet(Margins(left, right, _BELOW, _ABOVE), [], gaps, high)
    for (axes,), (mode, places) in zip(sheet.panels, standings.items(), strict=True):
        _draw(axes, places, ours)
        _write(axes, places, ours, called)
        axes.set_title(called[mode], fontsize=HEAD_SIZE, color=INK, loc="left", pad=4.0)
        axes.set_xlim(_ends(all_places))
    axes.set_xlabel(MEASURES[measure], fontsize=TITLE_SIZE)
    add_legend(sheet.figure, _key([place.method in ours for place in all_places]), 3, "lower center")
    return sheet.figure


def _standings(rows: Sequence[Row], measure: str) -> dict[str, list[Standing]]:
    """Average over the seeds, and order the methods of each mode by their means over the sets, the best first."""
    values: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in rows:
        if row[measure] is not None and np.isfinite(row[measure]):
            methods = values.setdefault(row["mode"], {})
            methods.setdefault(row["method"], {}).setdefault(row["set"], []).append(row[measure])
    return {mode: _ordered(methods) for mode, methods in values.items()}


def _ordered(methods: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Standing]:
    n_sets = len({name for sets in methods.values() for name in sets})
    places = [
        Standing(method, np.array([np.mean(seeds) for seeds in sets.values()]), n_sets - len(sets))
        for method, sets in methods.items()
    ]
    return sorted(places, key=lambda place: -place.values.mean())


def _words(place: Standing) -> str:
    """Write the mean, and where sets are missing of how many it is."""
    n_sets = place.values.size + place.n_missing
    return f"{place.values.mean():.1f}" + (f" ({place.values.size} of {n_sets} sets)" if place.n_missing else "")


def _draw(axes: Axes, places: Sequence[Standing], ours: Collection[str]) -> None:
    for i, place in enumerate(places):
        colour = _OURS if place.method in ours else _OTHERS
        heights = np.full(place.values.size, i)
        axes.plot(place.values, heights, "o", color=colour, markersize=_DOT, alpha=_FAINT, mew=0.0, clip_on=False)
        axes.plot([place.values.mean()], [i], "D", color=colour, markersize=_MEAN, markeredgecolor="white")
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.grid(axis="x", color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _write(axes: Axes, places: Sequence[Standing], ours: Collection[str], called: Titles) -> None:
    """Write the names at the left and the means at the right."""
    axes.set_yticks(range(len(places)), [called[place.method] for place in places])
    axes.tick_params(axis="y", length=0.0, labelsize=TITLE_SIZE)
    axes.tick_params(axis="x", length=2.5, labelsize=TEXT_SIZE)
    for i, (place, label) in enumerate(zip(places, axes.get_yticklabels(), strict=True)):
        colour = _OURS if place.method in ours else INK
        label.set_color(colour)
        axes.annotate(
            _words(place),
            (1.0, i),
            (6.0, 0.0),
            axes.get_yaxis_transform(),
            "offset points",
            va="center",
            fontsize=TITLE_SIZE,
            color=colour,
        )


def _ends(places: Sequence[Standing]) -> tuple[float, float]:
    values = np.concatenate([place.values for place in places])
    return _ROUND * np.floor(values.min() / _ROUND), _ROUND * np.ceil(values.max() / _ROUND)


def _key(is_ours: Sequence[bool]) -> list[Artist]:
    handles: list[Artist] = [
        Line2D([], [], linestyle="", marker="D", color=_OTHERS, markersize=_MEAN, label="mean over the sets"),
        Line2D([], [], linestyle="", marker="o", color=_OTHERS, markersize=_DOT, alpha=_FAINT, label="a set"),
    ]
    if any(is_ours):
        handles.append(Line2D([], [], linestyle="", marker="D", color=_OURS, markersize=_MEAN, label="ours"))
    return handles

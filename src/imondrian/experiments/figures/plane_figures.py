"""Figures 1 and 2 of the paper: the scores over the plane, and the rows with their labels."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

from imondrian.base.errors import InvalidInputError
from imondrian.experiments.figures.layout import (
    HEAD_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    Margins,
    Sheet,
    Titles,
    add_legend,
    add_panel,
    bounding_box,
    new_sheet,
    width_of_panels,
)
from imondrian.experiments.figures.panels import SHADES, draw_labels, draw_scores, label_legend, scale_of
from imondrian.experiments.synthetic_experiment import DatasetMaps, DetectionMap
from imondrian.plots.style import GREY, INK

_LEFT, _RIGHT, _BOTTOM = 0.58, 0.06, 0.85  # inches around the panels
_CLOSE, _APART = 0.06, 0.22  # inches between panels of a group, and between groups
_CAPTION, _TITLE, _HEAD = 0.19, 0.18, 0.24  # inches above a panel, a column and several columns
_FLATNESS = 0.8  # height over width of a panel of Figure 2, so that all fit on a page
_SCORES = "score"
_MANY_TICKS = 0.7  # if the scores span at least this much, the colour bar has no space for a number at each tenth

Cell = tuple[DetectionMap, str | None]  # a panel: a map, and the rule whose labels it shows; None: it shows the scores


def batch_figure(
    datasets: Sequence[DatasetMaps], shown: Mapping[str, Sequence[str]], titles: Mapping[str, str] | None = None
) -> Figure:
    """Plot Figure 1: a row for each set; for each method its scores, and the labels by each of its rules.

    As in the paper, rows detected as normal are orange circles, rows detected as anomalous are green triangles, and the
    region detected as normal is grey. Unlike the paper: wrongly labelled rows have a black edge and are counted above
    the panel; all scores have one colour scale.

    Parameters
    ----------
    datasets : sequence of DatasetMaps
        Data sets with the maps of the same methods.
    shown : mapping
        The methods to draw, each with its rules, in this order.
    titles : mapping, optional
        Titles of methods, rules and sets, where they differ from the names.

    Examples
    --------
    >>> from imondrian.experiments.synthetic_experiment import run
    >>> result = run(["blob"], seed=0, seeds=[], progress=lambda *_: None, n_nodes=20)
    >>> figure = batch_figure(result.batch, {"imforest": ["0.5"]}, titles={"imforest": "iMForest"})
    >>> [text.get_text() for text in figure.texts]
    ['iMForest', 'blob']
    """
    _check_any(datasets)
    columns = [(method, rule) for method, rules in shown.items() for rule in (None, *rules)]
    cells = [[(_map_of(dataset, method), rule) for method, rule in columns] for dataset in datasets]
    column_gaps = [_CLOSE if one == two else _APART for (one, _), (two, _) in pairwise(columns)]
    margins = Margins(_LEFT, _RIGHT, _BOTTOM, _CAPTION + _TITLE + _HEAD)
    side = width_of_panels(margins, column_gaps)
    sheet = new_sheet(margins, column_gaps, [_CAPTION + _CLOSE] * (len(datasets) - 1), side)
    title_of = Titles(titles or {})
    for axes, (_, rule) in zip(sheet.panels[0], columns, strict=True):
        _write_title(axes, title_of[rule or _SCORES])
    for method in shown:
        group = [axes for axes, (name, _) in zip(sheet.panels[0], columns, strict=True) if name == method]
        _write_head(sheet.figure, group, title_of[method])
    for dataset, panels in zip(datasets, sheet.panels, strict=True):
        _write_side(sheet.figure, panels[:1], title_of[dataset.name])
    return _fill_panels(sheet, cells)


def online_figure(datasets: Sequence[DatasetMaps], rule: str, titles: Mapping[str, str] | None = None) -> Figure:
    """Plot Figure 2: a column for each step; for each set a row of scores and a row of labels.

    Colours and markers are those of `batch_figure`.

    Parameters
    ----------
    datasets : sequence of DatasetMaps
        Data sets with the maps of the same steps.
    rule : str
        The rule that labels the rows.
    titles : mapping, optional
        Titles of sets, where they differ from the names.

    Examples
    --------
    >>> from imondrian.experiments.synthetic_experiment import run
    >>> result = run(["blob"], seed=0, seeds=[], progress=lambda *_: None, n_nodes=20)
    >>> figure = online_figure(result.online, rule="K-means")
    >>> [axes.texts[0].get_text() for axes in figure.axes[:5]]
    ['t = 1', 't = 2', 't = 3', 't = 4', 't = 5']
    """
    _check_any(datasets)
    cells: list[list[Cell]] = [
        [(item, shown) for item in dataset.maps] for dataset in datasets for shown in (None, rule)
    ]
    row_gaps = [_CAPTION + (_CLOSE if i % 2 == 0 else _APART) for i in range(len(cells) - 1)]
    margins = Margins(_LEFT, _RIGHT, _BOTTOM, _CAPTION + _TITLE)
    column_gaps = [_CLOSE] * (len(cells[0]) - 1)
    sheet = new_sheet(margins, column_gaps, row_gaps, _FLATNESS * width_of_panels(margins, column_gaps))
    title_of = Titles(titles or {})
    for axes, (item, _) in zip(sheet.panels[0], cells[0], strict=True):
        _write_title(axes, f"t = {item.detection.step}")
    for i, dataset in enumerate(datasets):
        _write_side(sheet.figure, [panels[0] for panels in sheet.panels[2 * i : 2 * i + 2]], title_of[dataset.name])
    return _fill_panels(sheet, cells)


def _check_any(datasets: Sequence[DatasetMaps]) -> None:
    if not datasets:
        raise InvalidInputError("datasets must not be empty.")


def _map_of(dataset: DatasetMaps, method: str) -> DetectionMap:
    for item in dataset.maps:
        if item.detection.method == method:
            return item
    methods = ", ".join(item.detection.method for item in dataset.maps)
    raise InvalidInputError(f"The set {dataset.name} must have a map of {method!r}, but has maps of: {methods}.")


def _write_title(axes: Axes, text: str) -> None:
    up = 72.0 * _CAPTION
    axes.annotate(
        text, (0.5, 1.0), (0.0, up), "axes fraction", "offset points", ha="center", fontsize=TITLE_SIZE, color=INK
    )


def _write_head(figure: Figure, group: Sequence[Axes], text: str) -> None:
    """Write a title above several columns, with a line below it across them."""
    box, height = bounding_box(group), figure.get_size_inches()[1]
    line = box.y1 + (_CAPTION + _TITLE) / height
    figure.add_artist(Line2D([box.x0, box.x1], [line, line], color=GREY, linewidth=0.8))
    figure.text((box.x0 + box.x1) / 2.0, line + 0.04 / height, text, ha="center", fontsize=HEAD_SIZE, color=INK)


def _write_side(figure: Figure, group: Sequence[Axes], text: str) -> None:
    """Write a vertical title to the left of several rows."""
    box = bounding_box(group)
    figure.text(
        0.14 / figure.get_size_inches()[0],
        (box.y0 + box.y1) / 2.0,
        text,
        rotation="vertical",
        ha="center",
        va="center",
        fontsize=HEAD_SIZE,
        color=INK,
    )


def _fill_panels(sheet: Sheet, cells: Sequence[Sequence[Cell]]) -> Figure:
    """Fill the panels, and add the legend below them."""
    scale = scale_of(item.surface for row in cells for item, rule in row if rule is None)
    for panels, row in zip(sheet.panels, cells, strict=True):
        for axes, (item, rule) in zip(panels, row, strict=True):
            if rule is None:
                draw_scores(axes, item, scale)
            else:
                draw_labels(axes, item, rule)
        panels[0].tick_params(labelleft=True)
    for axes in sheet.panels[-1]:
        axes.tick_params(labelbottom=True)
    _add_legends(sheet.figure, scale)
    return sheet.figure


def _add_legends(figure: Figure, scale: BoundaryNorm) -> None:
    axes = add_panel(figure, (_LEFT, 0.4, 2.0, 0.13))
    bar = figure.colorbar(ScalarMappable(scale, SHADES), cax=axes, orientation="horizontal")
    bar.set_label("anomaly score", fontsize=TITLE_SIZE, labelpad=1.0)
    bar.set_ticks(MultipleLocator(0.1 if np.ptp(scale.boundaries) < _MANY_TICKS else 0.2))
    bar.ax.tick_params(labelsize=TEXT_SIZE, length=2.0, pad=1.5)
    bar.ax.minorticks_off()
    add_legend(figure, label_legend(), 3, "lower right")

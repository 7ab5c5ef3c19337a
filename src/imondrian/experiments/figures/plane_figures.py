"""Figures 1 and 2 of the paper: the scores of every place of the plane, and the rows as they are labelled."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

from imondrian.errors import InvalidInputError
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
from imondrian.experiments.synthetic_experiment import Scene, View
from imondrian.plots.style import GREY, INK

_LEFT, _RIGHT, _BOTTOM = 0.58, 0.06, 0.85  # inches around the panels
_CLOSE, _APART = 0.06, 0.22  # inches between panels that belong together, and between others
_CAPTION, _TITLE, _HEAD = 0.19, 0.18, 0.24  # inches for what stands above a panel, a column and several columns
_FLATNESS = 0.8  # height of a panel of Figure 2 over its width, so that a page holds all of them
_SCORES = "score"
_MANY_TICKS = 0.7  # a range of scores over which the bar has no room for a number at each tenth

Cell = tuple[View, str | None]  # what a panel shows: the labels by a rule, or else the scores


def batch_figure(
    scenes: Sequence[Scene], shown: Mapping[str, Sequence[str]], titles: Mapping[str, str] | None = None
) -> Figure:
    """Draw Figure 1: a row for each set; for each method its scores, and the labels by each of its rules.

    As in the paper, what is detected normal is an orange circle, what is detected anomalous a green triangle, and the
    region that is detected as normal lies in grey. Differs: rows that are labelled wrongly have a black edge and are
    counted above the panel; all scores are shaded on one scale.

    Parameters
    ----------
    scenes : sequence of Scene
        Sets, each seen by the same methods.
    shown : mapping
        The methods to draw, and of each the rules, in this order.
    titles : mapping, optional
        What to call methods, rules and sets, where that differs from their names.

    Examples
    --------
    >>> from imondrian.experiments.synthetic_experiment import run
    >>> result = run(["blob"], seed=0, seeds=[], progress=lambda *_: None, n_places=20)
    >>> figure = batch_figure(result.batch, {"imforest": ["0.5"]}, titles={"imforest": "iMForest"})
    >>> [text.get_text() for text in figure.texts]
    ['iMForest', 'blob']
    """
    _check_any(scenes)
    columns = [(method, rule) for method, rules in shown.items() for rule in (None, *rules)]
    cells = [[(_seen_by(scene, method), rule) for method, rule in columns] for scene in scenes]
    column_gaps = [_CLOSE if one == two else _APART for (one, _), (two, _) in pairwise(columns)]
    margins = Margins(_LEFT, _RIGHT, _BOTTOM, _CAPTION + _TITLE + _HEAD)
    side = width_of_panels(margins, column_gaps)
    sheet = new_sheet(margins, column_gaps, [_CAPTION + _CLOSE] * (len(scenes) - 1), side)
    called = Titles(titles or {})
    for axes, (_, rule) in zip(sheet.panels[0], columns, strict=True):
        _write_title(axes, called[rule or _SCORES])
    for method in shown:
        group = [axes for axes, (name, _) in zip(sheet.panels[0], columns, strict=True) if name == method]
        _write_head(sheet.figure, group, called[method])
    for scene, panels in zip(scenes, sheet.panels, strict=True):
        _write_side(sheet.figure, panels[:1], called[scene.name])
    return _finished(sheet, cells)


def online_figure(scenes: Sequence[Scene], rule: str, titles: Mapping[str, str] | None = None) -> Figure:
    """Draw Figure 2: a column for each step; for each set a row of scores, and one of labels.

    Colours and marks are those of `batch_figure`.

    Parameters
    ----------
    scenes : sequence of Scene
        Sets, each seen at the same steps.
    rule : str
        By which rows are labelled.
    titles : mapping, optional
        What to call sets, where that differs from their names.

    Examples
    --------
    >>> from imondrian.experiments.synthetic_experiment import run
    >>> result = run(["blob"], seed=0, seeds=[], progress=lambda *_: None, n_places=20)
    >>> figure = online_figure(result.online, rule="K-means")
    >>> [axes.texts[0].get_text() for axes in figure.axes[:5]]
    ['t = 1', 't = 2', 't = 3', 't = 4', 't = 5']
    """
    _check_any(scenes)
    cells: list[list[Cell]] = [[(view, shown) for view in scene.views] for scene in scenes for shown in (None, rule)]
    row_gaps = [_CAPTION + (_CLOSE if i % 2 == 0 else _APART) for i in range(len(cells) - 1)]
    margins = Margins(_LEFT, _RIGHT, _BOTTOM, _CAPTION + _TITLE)
    column_gaps = [_CLOSE] * (len(cells[0]) - 1)
    sheet = new_sheet(margins, column_gaps, row_gaps, _FLATNESS * width_of_panels(margins, column_gaps))
    called = Titles(titles or {})
    for axes, (view, _) in zip(sheet.panels[0], cells[0], strict=True):
        _write_title(axes, f"t = {view.verdict.step}")
    for i, scene in enumerate(scenes):
        _write_side(sheet.figure, [panels[0] for panels in sheet.panels[2 * i : 2 * i + 2]], called[scene.name])
    return _finished(sheet, cells)


def _check_any(scenes: Sequence[Scene]) -> None:
    if not scenes:
        raise InvalidInputError("There must be sets to draw, but there are none.")


def _seen_by(scene: Scene, method: str) -> View:
    for view in scene.views:
        if view.verdict.method == method:
            return view
    methods = ", ".join(view.verdict.method for view in scene.views)
    raise InvalidInputError(f"The set {scene.name} is not seen by {method!r}, but by: {methods}.")


def _write_title(axes: Axes, text: str) -> None:
    up = 72.0 * _CAPTION
    axes.annotate(
        text, (0.5, 1.0), (0.0, up), "axes fraction", "offset points", ha="center", fontsize=TITLE_SIZE, color=INK
    )


def _write_head(figure: Figure, group: Sequence[Axes], text: str) -> None:
    """Write a title above several columns, and draw a line that holds them together."""
    box, height = bounding_box(group), figure.get_size_inches()[1]
    line = box.y1 + (_CAPTION + _TITLE) / height
    figure.add_artist(Line2D([box.x0, box.x1], [line, line], color=GREY, linewidth=0.8))
    figure.text((box.x0 + box.x1) / 2.0, line + 0.04 / height, text, ha="center", fontsize=HEAD_SIZE, color=INK)


def _write_side(figure: Figure, group: Sequence[Axes], text: str) -> None:
    """Write a title left of several rows."""
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


def _finished(sheet: Sheet, cells: Sequence[Sequence[Cell]]) -> Figure:
    """Fill the panels, and write the key to them below."""
    scale = scale_of(view.surface for row in cells for view, rule in row if rule is None)
    for panels, row in zip(sheet.panels, cells, strict=True):
        for axes, (view, rule) in zip(panels, row, strict=True):
            if rule is None:
                draw_scores(axes, view, scale)
            else:
                draw_labels(axes, view, rule)
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

"""Plot of Table III of the paper: the AUC of each method after each stage, with the published values."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, cycle
from typing import NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.experiments.figures.layout import (
    TEXT_SIZE,
    TITLE_SIZE,
    Margins,
    Sheet,
    Titles,
    add_legend,
    legend_columns,
    new_sheet,
)
from imondrian.experiments.repeats import Row
from imondrian.plots.style import GREY, INK

Published = Mapping[tuple[str, str], Sequence[float | None] | None]

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#B0518A", "#E69F00", "#46A5DC", "#4D4D4D", "#8C5A2B")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_DASHES = (0.0, (3.5, 1.8))
_BAND = 0.18  # opacity
_MAX_COLUMNS = 4
_PANEL_HEIGHT = 1.85  # inches
_LEFT, _BELOW, _LEGEND_ROW = 0.55, 0.5, 0.18  # inches left of the panels, below them, and for a row of the legend
_ROUND = 10.0  # the AUC axis starts and ends at a multiple of this


class StageResults(NamedTuple):
    """The AUC of a method on a set, stage by stage."""

    stages: Array
    means: Array  # over the seeds
    deviations: Array
    published: Array  # empty if nothing was published


class LineStyle(NamedTuple):
    """How a method is drawn, the same in every panel."""

    colour: str
    marker: str


def stages_figure(rows: Sequence[Row], published: Published, titles: Mapping[str, str] | None = None) -> Figure:
    """Plot a panel for each set with a line for each method, in order of appearance.

    Solid lines are measured: the mean over the seeds, in a band of one standard deviation on either side. Dashed lines
    in the same colour are published.

    Parameters
    ----------
    rows : sequence of dict
        With the keys set, method, seed, part (the number of the stage) and auc (in per cent); a value that is not
        a number leaves a gap.
    published : mapping
        From (method, set) to the AUC of all stages; None or no entry if nothing was published.
    titles : mapping, optional
        Titles of methods and sets, where they differ from the names.

    Examples
    --------
    >>> rows = [{"set": "wine", "method": "lof", "seed": 0, "part": str(part), "auc": 80.0 + part} for part in (1, 2)]
    >>> figure = stages_figure(rows, {("lof", "wine"): [79.0, 83.0]}, titles={"lof": "LOF"})
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['LOF', 'measured', 'published']
    """
    if not rows:
        raise InvalidInputError("rows must not be empty.")
    title_of = Titles(titles or {})
    sets, methods = (list(dict.fromkeys(row[key] for row in rows)) for key in ("set", "method"))
    results = {(method, name): _stage_results(rows, published, method, name) for method in methods for name in sets}
    line_styles = dict(zip(methods, map(LineStyle, cycle(_COLOURS), cycle(_MARKERS)), strict=False))
    handles = [
        *(_handle(line_style, title_of[name]) for name, line_style in line_styles.items()),
        *_line_kinds(results.values()),
    ]
    n_columns = legend_columns(handles)
    sheet = _new_sheet(len(sets), n_legend_rows=-(-len(handles) // n_columns))
    add_legend(sheet.figure, handles, n_columns, "lower center")
    for axes, name in zip(chain(*sheet.panels), sets, strict=True):
        for method, line_style in line_styles.items():
            _draw(axes, results[method, name], line_style)
        axes.set_title(title_of[name], fontsize=TITLE_SIZE, pad=3.0, color=INK)
    _share_axes(sheet, list(results.values()))
    return sheet.figure


def _stage_results(rows: Sequence[Row], published: Published, method: str, name: str) -> StageResults:
    selected = [row for row in rows if (row["method"], row["set"]) == (method, name)]
    stages = sorted({int(row["part"]) for row in selected})
    values = [
        np.array([row["auc"] for row in selected if int(row["part"]) == stage], dtype=np.float64) for stage in stages
    ]
    means = np.array([value.mean() for value in values])
    deviations = np.array([value.std(ddof=1) if value.size > 1 else 0.0 for value in values])
    return StageResults(
        np.array(stages), means, deviations, np.array(published.get((method, name)) or [], dtype=np.float64)
    )


def _handle(line_style: LineStyle, title: str) -> Artist:
    return Line2D([], [], color=line_style.colour, marker=line_style.marker, markersize=4.0, linewidth=1.4, label=title)


def _line_kinds(results: Iterable[StageResults]) -> list[Artist]:
    """Return the legend entries for solid lines, bands and dashed lines, if drawn."""
    all_results = list(results)
    handles: list[Artist] = [Line2D([], [], color=GREY, linewidth=1.4, label="measured")]
    if any((result.deviations > 0.0).any() for result in all_results):
        handles.append(Patch(facecolor=GREY, alpha=_BAND, label="± standard deviation over seeds"))
    if any(result.published.size > 0 for result in all_results):
        handles.append(Line2D([], [], color=GREY, linewidth=1.1, linestyle=_DASHES, label="published"))
    return handles


def _new_sheet(n_panels: int, n_legend_rows: int) -> Sheet:
    """Return a sheet with this number of panels; the last row may have fewer."""
    n_columns = min(n_panels, _MAX_COLUMNS)
    n_rows = -(-n_panels // n_columns)
    margins = Margins(_LEFT, 0.1, _BELOW + _LEGEND_ROW * n_legend_rows, 0.25)
    sheet = new_sheet(margins, [0.12] * (n_columns - 1), [0.3] * (n_rows - 1), _PANEL_HEIGHT)
    n_last = n_panels - (n_rows - 1) * n_columns
    for axes in sheet.panels[-1][n_last:]:
        axes.remove()
    del sheet.panels[-1][n_last:]
    return sheet


def _draw(axes: Axes, result: StageResults, line_style: LineStyle) -> None:
    stages, means, deviations, published = result
    axes.fill_between(
        stages, means - deviations, means + deviations, color=line_style.colour, alpha=_BAND, linewidth=0.0
    )
    axes.plot(
        stages, means, color=line_style.colour, marker=line_style.marker, markersize=3.5, linewidth=1.4, clip_on=False
    )
    axes.plot(1 + np.arange(published.size), published, color=line_style.colour, linewidth=1.1, linestyle=_DASHES)


def _share_axes(sheet: Sheet, results: Sequence[StageResults]) -> None:
    """Set the same limits for all panels; labels are left of each row and below each column."""
    values = np.concatenate([np.concatenate([result.means, result.published]) for result in results])
    n_stages = max(max(result.stages.max(initial=1), result.published.size) for result in results)
    limits = _ROUND * np.floor(np.nanmin(values) / _ROUND), _ROUND * np.ceil(np.nanmax(values) / _ROUND)
    for i, panels in enumerate(sheet.panels):
        panels[0].set_ylabel("AUC, %", fontsize=TITLE_SIZE)
        for j, axes in enumerate(panels):
            is_lowest = all(len(below) <= j for below in sheet.panels[i + 1 :])
            axes.set(xlim=(0.75, n_stages + 0.25), ylim=limits, xticks=range(1, n_stages + 1))
            axes.set_xlabel("stage" if is_lowest else "", fontsize=TITLE_SIZE, labelpad=1.0)
            axes.tick_params(labelsize=TEXT_SIZE, length=2.5, pad=2.0, labelleft=j == 0, labelbottom=is_lowest)
            axes.grid(axis="y", color="#E4E4E4", linewidth=0.7)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)

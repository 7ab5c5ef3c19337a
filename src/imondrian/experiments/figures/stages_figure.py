"""Table III of the paper as a picture: how good each system is after each stage, beside what was published."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, cycle
from typing import NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
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

PublishedResult = Mapping[tuple[str, str], Sequence[float | None] | None]

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#B0518A", "#E69F00", "#46A5DC", "#4D4D4D", "#8C5A2B")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_DASHES = (0.0, (3.5, 1.8))
_BAND = 0.18  # opacity
_MOST_COLUMNS = 4
_HIGH = 1.85  # inches of a panel
_LEFT, _BELOW, _KEY_ROW = 0.55, 0.5, 0.18  # inches beside the panels, below them, and for a row of the key
_ROUND = 10.0  # the axis of the areas begins and ends at a multiple of this


class Course(NamedTuple):
    """The areas of a method on a set, stage by stage."""

    stages: Array
    means: Array  # over the seeds
    deviations: Array
    published: Array  # none where nothing was


class LineStyle(NamedTuple):
    """How a method is drawn, in every panel alike."""

    colour: str
    marker: str


def stages_figure(rows: Sequence[Row], published: PublishedResult, titles: Mapping[str, str] | None = None) -> Figure:
    """Draw a panel for each set, and in it a line for each method, in the order in which they come.

    Solid is what was measured, the mean over the seeds amid a standard deviation on either side; dashed, in the same
    colour, is what was published.

    Parameters
    ----------
    rows : sequence of dict
        With the keys set, method, seed, part (the number of the stage) and auc (in per cent); what is not a number
        leaves a gap.
    published : mapping
        From a method and a set to the areas of all stages; None, or no entry, where nothing was published.
    titles : mapping, optional
        What to call methods and sets, where that differs from their names.

    Examples
    --------
    >>> rows = [{"set": "wine", "method": "lof", "seed": 0, "part": str(part), "auc": 80.0 + part} for part in (1, 2)]
    >>> figure = stages_figure(rows, {("lof", "wine"): [79.0, 83.0]}, titles={"lof": "LOF"})
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['LOF', 'measured', 'published']
    """
    if not rows:
        raise InvalidInputError("There must be rows to draw, but there are none.")
    called = Titles(titles or {})
    sets, methods = (list(dict.fromkeys(row[key] for row in rows)) for key in ("set", "method"))
    courses = {(method, name): _course(rows, published, method, name) for method in methods for name in sets}
    line_styles = dict(zip(methods, map(LineStyle, cycle(_COLOURS), cycle(_MARKERS)), strict=False))
    handles = [
        *(_handle(line_style, called[name]) for name, line_style in line_styles.items()),
        *_kinds(courses.values()),
    ]
    n_columns = legend_columns(handles)
    sheet = _new_sheet(len(sets), n_key_rows=-(-len(handles) // n_columns))
    add_legend(sheet.figure, handles, n_columns, "lower center")
    for axes, name in zip(chain(*sheet.panels), sets, strict=True):
        for method, line_style in line_styles.items():
            _draw(axes, courses[method, name], line_style)
        axes.set_title(called[name], fontsize=TITLE_SIZE, pad=3.0, color=INK)
    _share_axes(sheet, list(courses.values()))
    return sheet.figure


def _course(rows: Sequence[Row], published: PublishedResult, method: str, name: str) -> Course:
    chosen = [row for row in rows if (row["method"], row["set"]) == (method, name)]
    stages = sorted({int(row["part"]) for row in chosen})
    areas = [
        np.array([row["auc"] for row in chosen if int(row["part"]) == stage], dtype=np.float64) for stage in stages
    ]
    means = np.array([area.mean() for area in areas])
    deviations = np.array([area.std(ddof=1) if area.size > 1 else 0.0 for area in areas])
    return Course(np.array(stages), means, deviations, np.array(published.get((method, name)) or [], dtype=np.float64))


def _handle(line_style: LineStyle, title: str) -> Artist:
    return Line2D([], [], color=line_style.colour, marker=line_style.marker, markersize=4.0, linewidth=1.4, label=title)


def _kinds(courses: Iterable[Course]) -> list[Artist]:
    """Say what is solid, what is a band and what is dashed; only of what there is."""
    all_courses = list(courses)
    handles: list[Artist] = [Line2D([], [], color=GREY, linewidth=1.4, label="measured")]
    if any((course.deviations > 0.0).any() for course in all_courses):
        handles.append(Patch(facecolor=GREY, alpha=_BAND, label="± standard deviation over seeds"))
    if any(course.published.size > 0 for course in all_courses):
        handles.append(Line2D([], [], color=GREY, linewidth=1.1, linestyle=_DASHES, label="published"))
    return handles


def _new_sheet(n_panels: int, n_key_rows: int) -> Sheet:
    """Lay out so many panels, all of one height, the last row as long as they last."""
    n_columns = min(n_panels, _MOST_COLUMNS)
    n_rows = -(-n_panels // n_columns)
    margins = Margins(_LEFT, 0.1, _BELOW + _KEY_ROW * n_key_rows, 0.25)
    sheet = new_sheet(margins, [0.12] * (n_columns - 1), [0.3] * (n_rows - 1), _HIGH)
    n_last = n_panels - (n_rows - 1) * n_columns
    for axes in sheet.panels[-1][n_last:]:
        axes.remove()
    del sheet.panels[-1][n_last:]
    return sheet


def _draw(axes: Axes, course: Course, line_style: LineStyle) -> None:
    stages, means, deviations, published = course
    axes.fill_between(
        stages, means - deviations, means + deviations, color=line_style.colour, alpha=_BAND, linewidth=0.0
    )
    axes.plot(
        stages, means, color=line_style.colour, marker=line_style.marker, markersize=3.5, linewidth=1.4, clip_on=False
    )
    axes.plot(1 + np.arange(published.size), published, color=line_style.colour, linewidth=1.1, linestyle=_DASHES)


def _share_axes(sheet: Sheet, courses: Sequence[Course]) -> None:
    """Give all panels the same axes; names and numbers stand left of a row, and below a column."""
    values = np.concatenate([np.concatenate([course.means, course.published]) for course in courses])
    n_stages = max(max(course.stages.max(initial=1), course.published.size) for course in courses)
    ends = _ROUND * np.floor(np.nanmin(values) / _ROUND), _ROUND * np.ceil(np.nanmax(values) / _ROUND)
    for i, panels in enumerate(sheet.panels):
        panels[0].set_ylabel("AUC, %", fontsize=TITLE_SIZE)
        for j, axes in enumerate(panels):
            is_lowest = all(len(below) <= j for below in sheet.panels[i + 1 :])
            axes.set(xlim=(0.75, n_stages + 0.25), ylim=ends, xticks=range(1, n_stages + 1))
            axes.set_xlabel("stage" if is_lowest else "", fontsize=TITLE_SIZE, labelpad=1.0)
            axes.tick_params(labelsize=TEXT_SIZE, length=2.5, pad=2.0, labelleft=j == 0, labelbottom=is_lowest)
            axes.grid(axis="y", color="#E4E4E4", linewidth=0.7)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)

"""Panels of the plane: its scores in shades, or its rows as they are labelled, and the key to both."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from imondrian.engine.jit import Array
from imondrian.experiments.figures.layout import TEXT_SIZE
from imondrian.experiments.synthetic_experiment import View
from imondrian.plots import Surface
from imondrian.plots.style import INK

SHADES = colormaps["YlGnBu_r"]
_STEP = 0.02  # of the score from one shade to the next; few shades also make small files
_BEYOND = 0.002  # of all scores, below the scale and as many above
_GREY = "#D4D4D4"
_ORANGE, _GREEN = "#E8820C", "#00795C"  # the paper's colours, in shades that differ in lightness, too
_AREA = 4.2  # of a mark in a panel of a square inch, in square points
_LARGEST = 3.0  # square inches, up to which marks grow with the panel
_EDGE = 0.55  # points


class Mark(NamedTuple):
    """How rows of one outcome are drawn; those that are labelled wrongly have an edge."""

    word: str
    is_flagged: bool
    is_outlier: bool
    colour: str
    marker: str
    edge: str
    growth: float  # of the area


MARKS = (
    Mark("detected normal", False, False, _ORANGE, "o", "none", 1.0),
    Mark("the same, but an outlier (FN)", False, True, _ORANGE, "o", INK, 1.5),
    Mark("detected anomalous", True, True, _GREEN, "^", "none", 1.4),
    Mark("the same, but an inlier (FP)", True, False, _GREEN, "^", INK, 1.6),
)


def scale_of(surfaces: Iterable[Surface]) -> BoundaryNorm:
    """Give the one scale of all these scores, in round steps; the few beyond it share the shades of its ends."""
    scores = np.concatenate([np.ravel(surface.scores) for surface in surfaces])
    lowest, highest = np.quantile(scores, [_BEYOND, 1.0 - _BEYOND])
    steps = np.arange(np.floor(lowest / _STEP), np.floor(highest / _STEP) + 2)
    return BoundaryNorm(steps * _STEP, SHADES.N, extend="both")


def draw_scores(axes: Axes, view: View, scale: BoundaryNorm) -> None:
    """Shade the scores of the plane, and say above from where to where they reach."""
    scores = np.asarray(view.surface.scores)
    axes.pcolormesh(*view.surface, norm=scale, cmap=SHADES, shading="nearest", rasterized=True)
    _finish(axes, view.surface, f"{scores.min():.2f} to {scores.max():.2f}")


def draw_labels(axes: Axes, view: View, rule: str) -> None:
    """Draw the rows as a rule labels them, the region that it takes for normal behind, and above how many are wrong."""
    verdict, threshold = view.verdict, view.verdict.thresholds[rule]
    is_flagged = verdict.scores > threshold
    _draw_region(axes, view.surface, threshold)
    for mark in sorted(MARKS, key=lambda mark: mark.is_flagged != mark.is_outlier):  # what is wrong in front
        is_it = (is_flagged == mark.is_flagged) & (verdict.is_outlier == mark.is_outlier)
        _draw_marks(axes, verdict.points[is_it], mark)
    missed, false = verdict.is_outlier & ~is_flagged, is_flagged & ~verdict.is_outlier
    _finish(axes, view.surface, f"{np.count_nonzero(missed)} FN, {np.count_nonzero(false)} FP")


def _draw_region(axes: Axes, surface: Surface, threshold: float) -> None:
    is_normal = np.asarray(surface.scores) <= threshold
    region = np.ma.masked_array(np.zeros(is_normal.shape), ~is_normal)
    axes.pcolormesh(surface.x, surface.y, region, cmap=ListedColormap([_GREY]), shading="nearest", rasterized=True)


def _draw_marks(axes: Axes, points: Array, mark: Mark) -> None:
    panel = np.prod(axes.figure.figure.get_size_inches() * axes.get_position().size)
    axes.scatter(
        points[:, 0],
        points[:, 1],
        s=mark.growth * _AREA * min(float(panel), _LARGEST),
        c=mark.colour,
        marker=mark.marker,
        edgecolors=mark.edge,
        linewidths=_EDGE,
        label=mark.word,
        rasterized=True,
    )


def _finish(axes: Axes, surface: Surface, caption: str) -> None:
    x, y = np.asarray(surface.x), np.asarray(surface.y)
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    axes.set_title(caption, fontsize=TEXT_SIZE, pad=2.5, color=INK)
    axes.tick_params(labelsize=TEXT_SIZE, length=2.0, pad=1.5, labelbottom=False, labelleft=False)
    axes.locator_params(nbins=3)


def label_legend() -> list[Artist]:
    """Give what a legend says of marks and region."""
    marks: list[Artist] = [
        Line2D(
            [], [], linestyle="", marker=mark.marker, markersize=5.5, color=mark.colour, label=mark.word,
            markeredgecolor=mark.edge, markeredgewidth=0.9,
        )
        for mark in MARKS
    ]  # fmt: skip
    return [*marks, Patch(facecolor=_GREY, label="region detected as normal")]

"""Draw panels of the plane of two features, with the scores as shades or the rows with their labels, and a legend."""

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
from imondrian.experiments.synthetic_experiment import DetectionMap
from imondrian.plots import Surface
from imondrian.plots.style import INK

SHADES = colormaps["YlGnBu_r"]
_STEP = 0.02  # difference in score between shades; few shades also make small files
_OUTSIDE = 0.002  # share of all scores below the colour scale, and above it
_GREY = "#D4D4D4"
_ORANGE, _GREEN = "#E8820C", "#00795C"  # the paper's colours, in shades that also differ in lightness
_AREA = 4.2  # of a marker in a panel of one square inch, in square points
_MAX_PANEL_AREA = 3.0  # square inches; in larger panels markers stay the same size
_EDGE = 0.55  # points


class OutcomeStyle(NamedTuple):
    """How rows of one outcome are drawn; wrongly labelled rows have an edge."""

    label: str
    is_flagged: bool
    is_outlier: bool
    colour: str
    marker: str
    edge: str
    size_factor: float  # multiplies the area of a marker


OUTCOMES = (
    OutcomeStyle("detected normal", False, False, _ORANGE, "o", "none", 1.0),
    OutcomeStyle("missed outlier (FN)", False, True, _ORANGE, "o", INK, 1.5),
    OutcomeStyle("detected anomalous", True, True, _GREEN, "^", "none", 1.4),
    OutcomeStyle("false alarm (FP)", True, False, _GREEN, "^", INK, 1.6),
)


def scale_of(surfaces: Iterable[Surface]) -> BoundaryNorm:
    """Return one colour scale for all scores, in round steps; the few scores outside it get the shades of its ends."""
    scores = np.concatenate([np.ravel(surface.scores) for surface in surfaces])
    lowest, highest = np.quantile(scores, [_OUTSIDE, 1.0 - _OUTSIDE])
    steps = np.arange(np.floor(lowest / _STEP), np.floor(highest / _STEP) + 2)
    return BoundaryNorm(steps * _STEP, SHADES.N, extend="both")


def draw_scores(axes: Axes, item: DetectionMap, scale: BoundaryNorm) -> None:
    """Draw the scores over the plane, with their range as the title."""
    scores = np.asarray(item.surface.scores)
    axes.pcolormesh(*item.surface, norm=scale, cmap=SHADES, shading="nearest", rasterized=True)
    _finish(axes, item.surface, f"{scores.min():.2f} to {scores.max():.2f}")


def draw_labels(axes: Axes, item: DetectionMap, rule: str) -> None:
    """Draw the rows as labelled by a rule over its normal region, with the number of errors as the title."""
    detection, threshold = item.detection, item.detection.thresholds[rule]
    is_flagged = detection.scores > threshold
    _draw_region(axes, item.surface, threshold)
    for style in sorted(OUTCOMES, key=lambda style: style.is_flagged != style.is_outlier):  # errors on top
        has_outcome = (is_flagged == style.is_flagged) & (detection.is_outlier == style.is_outlier)
        _draw_markers(axes, detection.points[has_outcome], style)
    missed, false = detection.is_outlier & ~is_flagged, is_flagged & ~detection.is_outlier
    _finish(axes, item.surface, f"{np.count_nonzero(missed)} FN, {np.count_nonzero(false)} FP")


def _draw_region(axes: Axes, surface: Surface, threshold: float) -> None:
    is_normal = np.asarray(surface.scores) <= threshold
    region = np.ma.masked_array(np.zeros(is_normal.shape), ~is_normal)
    axes.pcolormesh(surface.x, surface.y, region, cmap=ListedColormap([_GREY]), shading="nearest", rasterized=True)


def _draw_markers(axes: Axes, points: Array, style: OutcomeStyle) -> None:
    panel = np.prod(axes.figure.figure.get_size_inches() * axes.get_position().size)
    axes.scatter(
        points[:, 0],
        points[:, 1],
        s=style.size_factor * _AREA * min(float(panel), _MAX_PANEL_AREA),
        c=style.colour,
        marker=style.marker,
        edgecolors=style.edge,
        linewidths=_EDGE,
        label=style.label,
        rasterized=True,
    )


def _finish(axes: Axes, surface: Surface, caption: str) -> None:
    x, y = np.asarray(surface.x), np.asarray(surface.y)
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    axes.set_title(caption, fontsize=TEXT_SIZE, pad=2.5, color=INK)
    axes.tick_params(labelsize=TEXT_SIZE, length=2.0, pad=1.5, labelbottom=False, labelleft=False)
    axes.locator_params(nbins=3)


def label_legend() -> list[Artist]:
    """Return the legend entries of the markers and the normal region."""
    marks: list[Artist] = [
        Line2D(
            [], [], linestyle="", marker=style.marker, markersize=5.5, color=style.colour, label=style.label,
            markeredgecolor=style.edge, markeredgewidth=0.9,
        )
        for style in OUTCOMES
    ]  # fmt: skip
    return [*marks, Patch(facecolor=_GREY, label="region detected as normal")]

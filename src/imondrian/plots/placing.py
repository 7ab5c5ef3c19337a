"""Where a label finds room: boxes in points that touch neither lines nor each other."""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from imondrian.engine.jit import Array
from imondrian.plots.style import room

GAP = 3.0  # points between a label and what it belongs to
_AIR = 1.0  # around a label, in points
_BEFORE = {"left": 0.0, "center": 0.5, "right": 1.0, "bottom": 0.0, "top": 1.0}  # share of a label before its place


class Spot(NamedTuple):
    """Where a label may stand beside a place: steps to the right and up in points, and the side that lies there."""

    right: float
    up: float
    horizontal: str
    vertical: str


BELOW = Spot(0.0, -GAP, "center", "top")
ABOVE_RIGHT = Spot(GAP, GAP, "left", "bottom")
ABOVE_LEFT = Spot(-GAP, GAP, "right", "bottom")


def in_points(axes: Axes, places: Array) -> Array:
    """Measure places, n x 2 in the units of the data, from the lower left corner of the axes in points.

    A layout that comes later moves them apart: before it, axes have about the least size.
    """
    corner = axes.transAxes.transform((0.0, 0.0))
    return (axes.transData.transform(places) - corner) * (72.0 / axes.figure.figure.dpi)


def box_of(size: tuple[float, float], place: Array, spot: Spot) -> Array:
    """Give left, bottom, right and top of a label of that width and height."""
    width, height = size
    left = place[0] + spot.right - width * _BEFORE[spot.horizontal]
    bottom = place[1] + spot.up - height * _BEFORE[spot.vertical]
    return np.array([left - _AIR, bottom - _AIR, left + width + _AIR, bottom + height + _AIR])


def is_free(box: Array, taken: Array, axes: Axes) -> bool:
    """Tell whether a box lies within the axes and touches none of those that are taken."""
    is_inside = (box >= 0.0).all() and (box[2:] <= room(axes)).all()
    touches = (taken[:, :2] <= box[2:]).all(axis=1) & (taken[:, 2:] >= box[:2]).all(axis=1)
    return bool(is_inside and not touches.any())

"""Find free space for labels: boxes, in units of 1/72 inch, that overlap neither lines nor each other."""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from imondrian.engine.jit import Array
from imondrian.plots.style import axes_size

GAP = 3.0  # points between a label and the position it belongs to
_PADDING = 1.0  # points around a label
# share of a label that lies to the left of its anchor, or below it
_ALIGNMENT = {"left": 0.0, "center": 0.5, "right": 1.0, "bottom": 0.0, "top": 1.0}


class LabelPosition(NamedTuple):
    """An offset from the anchor of a label, in units of 1/72 inch, and the side of the label that has this offset."""

    right: float
    up: float
    horizontal: str
    vertical: str


BELOW = LabelPosition(0.0, -GAP, "center", "top")
ABOVE_RIGHT = LabelPosition(GAP, GAP, "left", "bottom")
ABOVE_LEFT = LabelPosition(-GAP, GAP, "right", "bottom")


def to_points(axes: Axes, coordinates: Array) -> Array:
    """Convert n x 2 data coordinates to distances from the lower left corner of the axes, in units of 1/72 inch.

    Before a figure is laid out, its axes have about their smallest size, so the layout can only move positions further
    apart.
    """
    corner = axes.transAxes.transform((0.0, 0.0))
    return (axes.transData.transform(coordinates) - corner) * (72.0 / axes.figure.figure.dpi)


def label_box(size: tuple[float, float], anchor: Array, position: LabelPosition) -> Array:
    """Return the left, bottom, right and top of a label; `size` is its width and height."""
    width, height = size
    left = anchor[0] + position.right - width * _ALIGNMENT[position.horizontal]
    bottom = anchor[1] + position.up - height * _ALIGNMENT[position.vertical]
    return np.array([left - _PADDING, bottom - _PADDING, left + width + _PADDING, bottom + height + _PADDING])


def is_free(box: Array, occupied: Array, axes: Axes) -> bool:
    """Return True if a box is within the axes and touches none of the occupied boxes."""
    is_inside = (box >= 0.0).all() and (box[2:] <= axes_size(axes)).all()
    touches = (occupied[:, :2] <= box[2:]).all(axis=1) & (occupied[:, 2:] >= box[:2]).all(axis=1)
    return bool(is_inside and not touches.any())

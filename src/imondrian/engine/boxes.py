"""Tight boxes: how far a point hangs over one, stretching it, shrinking it. A leaf's box is its point."""

import numpy as np

from imondrian.engine.jit import Array, helper
from imondrian.engine.nodes import LOWER, UPPER, Trees, is_leaf, slot_of
from imondrian.engine.randomness import LARGEST


@helper
def bound(trees: Trees, t: int, node: int, side: int, j: int) -> float:
    """Give the LOWER or UPPER bound of the node's box along feature j."""
    if is_leaf(node):
        return trees.points[t, slot_of(node), j]
    return trees.boxes[t, slot_of(node), side, j]


@helper
def overhang(trees: Trees, t: int, node: int, x: Array, weights: Array) -> float:
    """Sum over the features how far x lies outside the node's box, weighted: the rate of Algorithm 5."""
    slot = slot_of(node)
    rate = 0.0
    if is_leaf(node):
        for j in range(x.size):
            rate += weights[j] * abs(x[j] - trees.points[t, slot, j])
    else:
        for j in range(x.size):
            below = trees.boxes[t, slot, LOWER, j] - x[j]
            above = x[j] - trees.boxes[t, slot, UPPER, j]
            rate += weights[j] * max(below, above, 0.0)
    return min(rate, LARGEST)


@helper
def overhangs(trees: Trees, t: int, node: int, x: Array) -> Array:
    """Give how far x lies outside the node's box along each feature, unweighted."""
    sizes = np.empty(x.size)
    for j in range(x.size):
        below = bound(trees, t, node, LOWER, j) - x[j]
        above = x[j] - bound(trees, t, node, UPPER, j)
        sizes[j] = max(below, above, 0.0)
    return sizes


@helper
def extent(trees: Trees, t: int, node: int, weights: Array) -> float:
    """Sum the side lengths of the node's box, weighted; 0 for a leaf."""
    slot = slot_of(node)
    rate = 0.0
    if not is_leaf(node):
        for j in range(weights.size):
            rate += weights[j] * (trees.boxes[t, slot, UPPER, j] - trees.boxes[t, slot, LOWER, j])
    return min(rate, LARGEST)


@helper
def stretch(trees: Trees, t: int, node: int, x: Array) -> None:
    """Stretch the box of an inner node over x."""
    slot = slot_of(node)
    for j in range(x.size):
        trees.boxes[t, slot, LOWER, j] = min(trees.boxes[t, slot, LOWER, j], x[j])
        trees.boxes[t, slot, UPPER, j] = max(trees.boxes[t, slot, UPPER, j], x[j])


@helper
def fit_box(trees: Trees, t: int, node: int) -> bool:
    """Make the box of an inner node the union of its children's; tell whether that changed it."""
    slot = slot_of(node)
    left, right = trees.cuts[t, slot]["left"], trees.cuts[t, slot]["right"]
    changed = False
    for j in range(trees.points.shape[2]):
        lower = min(bound(trees, t, left, LOWER, j), bound(trees, t, right, LOWER, j))
        upper = max(bound(trees, t, left, UPPER, j), bound(trees, t, right, UPPER, j))
        if lower != trees.boxes[t, slot, LOWER, j] or upper != trees.boxes[t, slot, UPPER, j]:
            changed = True
            trees.boxes[t, slot, LOWER, j] = lower
            trees.boxes[t, slot, UPPER, j] = upper
    return changed

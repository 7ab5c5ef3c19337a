"""Tight boxes: how far a point hangs over one, stretching it, shrinking it. A leaf's box is its point."""

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
def copy_box(trees: Trees, t: int, node: int, box: Array) -> None:
    """Write the bounds of the node's box into the rows LOWER and UPPER of `box`."""
    slot = slot_of(node)
    if is_leaf(node):
        for j in range(box.shape[1]):
            box[LOWER, j] = trees.points[t, slot, j]
            box[UPPER, j] = trees.points[t, slot, j]
    else:
        for j in range(box.shape[1]):
            box[LOWER, j] = trees.boxes[t, slot, LOWER, j]
            box[UPPER, j] = trees.boxes[t, slot, UPPER, j]


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
def is_outside(trees: Trees, t: int, node: int, x: Array) -> bool:
    """Tell whether x lies outside the box of an inner node."""
    slot = slot_of(node)
    for j in range(x.size):
        if x[j] < trees.boxes[t, slot, LOWER, j] or x[j] > trees.boxes[t, slot, UPPER, j]:
            return True
    return False


@helper
def stretch(trees: Trees, t: int, node: int, x: Array) -> None:
    """Stretch the box of an inner node over x."""
    slot = slot_of(node)
    for j in range(x.size):
        trees.boxes[t, slot, LOWER, j] = min(trees.boxes[t, slot, LOWER, j], x[j])
        trees.boxes[t, slot, UPPER, j] = max(trees.boxes[t, slot, UPPER, j], x[j])


@helper
def shrink(trees: Trees, t: int, node: int, x: Array) -> bool:
    """Tighten the box of an inner node that x has left; tell whether that changed it. Only x can have held a bound."""
    slot = slot_of(node)
    changed = False
    for j in range(x.size):
        for side in (LOWER, UPPER):
            if trees.boxes[t, slot, side, j] == x[j]:
                tight = children_bound(trees, t, slot, side, j)
                changed |= tight != x[j]
                trees.boxes[t, slot, side, j] = tight
    return changed


@helper
def children_bound(trees: Trees, t: int, slot: int, side: int, j: int) -> float:
    """Give the bound of the box around the boxes of both children."""
    left = bound(trees, t, trees.cuts[t, slot]["left"], side, j)
    right = bound(trees, t, trees.cuts[t, slot]["right"], side, j)
    return min(left, right) if side == LOWER else max(left, right)

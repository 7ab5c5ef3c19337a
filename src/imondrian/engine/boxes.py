"""Tight boxes: how far a point hangs over one, stretching it, shrinking it. A leaf's box is its point."""

from imondrian.engine.jit import Array, helper, summing_helper
from imondrian.engine.nodes import LOWER, UPPER, Trees, is_leaf, slot_of
from imondrian.engine.randomness import LARGEST


@helper
def bound(trees: Trees, t: int, node: int, side: int, j: int) -> float:
    """Give the LOWER or UPPER bound of the node's box along feature j."""
    if is_leaf(node):
        return trees.points[t, slot_of(node), j]
    return trees.boxes[t, slot_of(node), side, j]


@summing_helper
def overhang(trees: Trees, t: int, node: int, x: Array, weights: Array) -> float:
    """Sum over the features how far x lies outside the box of an inner node, weighted: the rate of Algorithm 5."""
    slot = slot_of(node)
    rate = 0.0
    for j in range(x.size):
        rate += weights[j] * distance(trees.boxes[t, slot, LOWER, j], trees.boxes[t, slot, UPPER, j], x[j])
    return min(rate, LARGEST)


@summing_helper
def leaf_overhang(trees: Trees, t: int, leaf: int, x: Array, weights: Array) -> float:
    """Do for a leaf what `overhang` does for an inner node (apart: a choice inside would cost six times the time)."""
    slot = slot_of(leaf)
    rate = 0.0
    for j in range(x.size):
        rate += weights[j] * abs(x[j] - trees.points[t, slot, j])
    return min(rate, LARGEST)


@helper
def distance(lower: float, upper: float, value: float) -> float:
    """Give how far a value lies outside an interval, without a branch, since no processor can guess it."""
    return greater(greater(lower - value, value - upper), 0.0)


@helper
def copy_box(trees: Trees, t: int, node: int, slot: int) -> None:
    """Give the inner node in a slot the box of another node."""
    if is_leaf(node):
        for j in range(trees.points.shape[2]):
            trees.boxes[t, slot, LOWER, j] = trees.points[t, slot_of(node), j]
            trees.boxes[t, slot, UPPER, j] = trees.points[t, slot_of(node), j]
    else:
        for j in range(trees.points.shape[2]):
            trees.boxes[t, slot, LOWER, j] = trees.boxes[t, slot_of(node), LOWER, j]
            trees.boxes[t, slot, UPPER, j] = trees.boxes[t, slot_of(node), UPPER, j]


@summing_helper
def extent(trees: Trees, t: int, node: int, weights: Array) -> float:
    """Sum the side lengths of the box of an inner node, weighted."""
    slot = slot_of(node)
    rate = 0.0
    for j in range(weights.size):
        rate += weights[j] * (trees.boxes[t, slot, UPPER, j] - trees.boxes[t, slot, LOWER, j])
    return min(rate, LARGEST)


@summing_helper
def overhang_and_extent(trees: Trees, t: int, node: int, x: Array, weights: Array) -> tuple[float, float]:
    """Give both in one pass over the box of an inner node."""
    slot = slot_of(node)
    rate, size = 0.0, 0.0
    for j in range(x.size):
        lower, upper = trees.boxes[t, slot, LOWER, j], trees.boxes[t, slot, UPPER, j]
        rate += weights[j] * distance(lower, upper, x[j])
        size += weights[j] * (upper - lower)
    return min(rate, LARGEST), min(size, LARGEST)


@summing_helper
def overhang_and_reach(trees: Trees, t: int, node: int, x: Array, weights: Array) -> tuple[float, float]:
    """Give the overhang also without weights: that is 0 only inside; the other may be so small that it vanishes."""
    slot = slot_of(node)
    rate, reach = 0.0, 0.0
    for j in range(x.size):
        apart = distance(trees.boxes[t, slot, LOWER, j], trees.boxes[t, slot, UPPER, j], x[j])
        rate += weights[j] * apart
        reach += apart
    return min(rate, LARGEST), reach


@helper
def stretch(trees: Trees, t: int, node: int, x: Array) -> None:
    """Stretch the box of an inner node over x."""
    slot = slot_of(node)
    for j in range(x.size):
        trees.boxes[t, slot, LOWER, j] = lesser(trees.boxes[t, slot, LOWER, j], x[j])
        trees.boxes[t, slot, UPPER, j] = greater(trees.boxes[t, slot, UPPER, j], x[j])


@helper
def lesser(a: float, b: float) -> float:
    """Give the lesser of two numbers; unlike min it need not think of NaN, and is several times as fast."""
    return a if a < b else b  # noqa: FURB136


@helper
def greater(a: float, b: float) -> float:
    """Give the greater of two numbers."""
    return a if a > b else b  # noqa: FURB136


@helper
def shrink(trees: Trees, t: int, node: int, x: Array) -> bool:
    """Tighten the box of an inner node that x has left around its children; tell whether that changed it."""
    slot = slot_of(node)
    if not is_on_face(trees, t, slot, x):
        return False  # only x can have held a bound
    lower, upper = trees.boxes[t, slot, LOWER], trees.boxes[t, slot, UPPER]
    left_lower, left_upper = faces(trees, t, trees.cuts[t, slot]["left"])
    right_lower, right_upper = faces(trees, t, trees.cuts[t, slot]["right"])
    n_changed = 0
    for j in range(x.size):
        low, high = lesser(left_lower[j], right_lower[j]), greater(left_upper[j], right_upper[j])
        n_changed += (low != lower[j]) | (high != upper[j])
        lower[j], upper[j] = low, high
    return n_changed > 0


@helper
def is_on_face(trees: Trees, t: int, slot: int, x: Array) -> bool:
    """Tell whether x lies on a face of the box of the inner node in a slot."""
    n_held = 0
    for j in range(x.size):
        n_held += (x[j] == trees.boxes[t, slot, LOWER, j]) | (x[j] == trees.boxes[t, slot, UPPER, j])
    return n_held > 0


@helper
def faces(trees: Trees, t: int, node: int) -> tuple[Array, Array]:
    """Give the lower and the upper bounds of the node's box."""
    slot = slot_of(node)
    if is_leaf(node):
        return trees.points[t, slot], trees.points[t, slot]
    return trees.boxes[t, slot, LOWER], trees.boxes[t, slot, UPPER]

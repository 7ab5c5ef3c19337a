"""Tight boxes: the distance of a point from a box, stretching and shrinking a box. The box of a leaf is its point."""

from imondrian.engine.jit import Array, helper, summing_helper
from imondrian.engine.nodes import LOWER, UPPER, Trees, is_leaf, point_index, slot_of
from imondrian.engine.randomness import LARGEST


@helper
def bound(trees: Trees, t: int, node: int, side: int, j: int) -> float:
    """Return the LOWER or UPPER bound of the node's box along feature j."""
    if is_leaf(node):
        return trees.points[point_index(trees, t, slot_of(node))][j]
    return trees.boxes[t, slot_of(node), side, j]


@summing_helper
def overhang(trees: Trees, t: int, node: int, x: Array, weights: Array) -> float:
    """Return the weighted distance of x from the box of an inner node, summed over features (a rate of Algorithm 5)."""
    slot = slot_of(node)
    rate = 0.0
    for j in range(weights.size):
        rate += weights[j] * distance(trees.boxes[t, slot, LOWER, j], trees.boxes[t, slot, UPPER, j], x[j])
    return min(rate, LARGEST)


@summing_helper
def leaf_overhang(trees: Trees, t: int, leaf: int, x: Array, weights: Array) -> float:
    """Like `overhang` for a leaf. A separate function: a test for leaves inside the loop takes six times as long."""
    point = trees.points[point_index(trees, t, slot_of(leaf))]
    rate = 0.0
    for j in range(weights.size):
        rate += weights[j] * abs(x[j] - point[j])
    return min(rate, LARGEST)


@helper
def distance(lower: float, upper: float, value: float) -> float:
    """Return how far a value lies outside an interval, without a branch, which the CPU could not predict."""
    return greater(greater(lower - value, value - upper), 0.0)


@helper
def copy_box(trees: Trees, t: int, node: int, slot: int) -> None:
    """Copy the box of a node to the inner node in a slot."""
    if is_leaf(node):
        point = trees.points[point_index(trees, t, slot_of(node))]
        for j in range(trees.boxes.shape[3]):
            trees.boxes[t, slot, LOWER, j] = point[j]
            trees.boxes[t, slot, UPPER, j] = point[j]
    else:
        for j in range(trees.boxes.shape[3]):
            trees.boxes[t, slot, LOWER, j] = trees.boxes[t, slot_of(node), LOWER, j]
            trees.boxes[t, slot, UPPER, j] = trees.boxes[t, slot_of(node), UPPER, j]


@summing_helper
def extent(trees: Trees, t: int, node: int, weights: Array) -> float:
    """Return the weighted sum of the side lengths of the box of an inner node."""
    slot = slot_of(node)
    rate = 0.0
    for j in range(weights.size):
        rate += weights[j] * (trees.boxes[t, slot, UPPER, j] - trees.boxes[t, slot, LOWER, j])
    return min(rate, LARGEST)


@summing_helper
def overhang_and_extent(trees: Trees, t: int, node: int, x: Array, weights: Array) -> tuple[float, float]:
    """Return `overhang` and `extent` in one pass over the box of an inner node."""
    slot = slot_of(node)
    rate, size = 0.0, 0.0
    for j in range(weights.size):
        lower, upper = trees.boxes[t, slot, LOWER, j], trees.boxes[t, slot, UPPER, j]
        rate += weights[j] * distance(lower, upper, x[j])
        size += weights[j] * (upper - lower)
    return min(rate, LARGEST), min(size, LARGEST)


@summing_helper
def weighted_and_unweighted_overhang(trees: Trees, t: int, node: int, x: Array, weights: Array) -> tuple[float, float]:
    """Return the overhang with and without weights.

    The unweighted one is 0 if and only if x lies inside the box; the weighted one may underflow to 0.
    """
    slot = slot_of(node)
    rate, unweighted = 0.0, 0.0
    for j in range(weights.size):
        overhang_j = distance(trees.boxes[t, slot, LOWER, j], trees.boxes[t, slot, UPPER, j], x[j])
        rate += weights[j] * overhang_j
        unweighted += overhang_j
    return min(rate, LARGEST), unweighted


@helper
def stretch(trees: Trees, t: int, node: int, x: Array) -> None:
    """Stretch the box of an inner node to contain x."""
    slot = slot_of(node)
    for j in range(trees.boxes.shape[3]):
        trees.boxes[t, slot, LOWER, j] = lesser(trees.boxes[t, slot, LOWER, j], x[j])
        trees.boxes[t, slot, UPPER, j] = greater(trees.boxes[t, slot, UPPER, j], x[j])


@helper
def lesser(a: float, b: float) -> float:
    """Return the lesser of two numbers. It does not handle NaN and is therefore several times as fast as min."""
    return a if a < b else b  # noqa: FURB136


@helper
def greater(a: float, b: float) -> float:
    """Return the greater of two numbers; see `lesser`."""
    return a if a > b else b  # noqa: FURB136


@helper
def shrink(trees: Trees, t: int, node: int, x: Array) -> bool:
    """Shrink the box of an inner node to fit its children after x was removed; return True if the box changed."""
    slot = slot_of(node)
    if not is_on_face(trees, t, slot, x):
        return False  # x did not define any bound
    lower, upper = trees.boxes[t, slot, LOWER], trees.boxes[t, slot, UPPER]
    left_lower, left_upper = bounds(trees, t, trees.cuts[t, slot]["left"])
    right_lower, right_upper = bounds(trees, t, trees.cuts[t, slot]["right"])
    n_changed = 0
    for j in range(trees.boxes.shape[3]):
        low, high = lesser(left_lower[j], right_lower[j]), greater(left_upper[j], right_upper[j])
        n_changed += (low != lower[j]) | (high != upper[j])
        lower[j], upper[j] = low, high
    return n_changed > 0


@helper
def is_on_face(trees: Trees, t: int, slot: int, x: Array) -> bool:
    """Return True if x lies on a face of the box of the inner node in a slot."""
    n_faces = 0
    for j in range(trees.boxes.shape[3]):
        n_faces += (x[j] == trees.boxes[t, slot, LOWER, j]) | (x[j] == trees.boxes[t, slot, UPPER, j])
    return n_faces > 0


@helper
def bounds(trees: Trees, t: int, node: int) -> tuple[Array, Array]:
    """Return the lower and the upper bounds of the node's box."""
    slot = slot_of(node)
    if is_leaf(node):
        point = trees.points[point_index(trees, t, slot)]
        return point, point
    return trees.boxes[t, slot, LOWER], trees.boxes[t, slot, UPPER]

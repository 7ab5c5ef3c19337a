"""Rebuild trees from the contents of a model file: heads, cuts, copies, and the row number of the point in each leaf.

Points, parents, populations and boxes are computed. All input is checked, and rebuilding stops at the first problem.
"""

import math

import numpy as np

from imondrian.engine.boxes import bounds, greater, lesser
from imondrian.engine.compiled_invariants import (
    NONE,
    exists,
    has_possible_counts,
    is_zero,
    n_inner,
    population_of,
)
from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.nodes import LOWER, NO_NODE, UPPER, Trees, inner_node, is_leaf, leaf_node, slot_of
from imondrian.engine.places import n_categorical, write_placed_row

SOUND = 0
(
    _COUNTER,
    _UNUSED,
    _ROOT,
    _CHILD,
    _FEATURE,
    _NO_POINT,
    _NO_COPY,
    _TWO_PARENTS,
    _CYCLE,
    _POPULATION,
    _TIME,
    _SEPARATION,
) = range(1, 13)
PROBLEMS = {
    _COUNTER: "a counter is impossible",
    _UNUSED: "an unused slot is not zero",
    _ROOT: "the root is not a node of the tree",
    _CHILD: "a child is not a node of the tree",
    _FEATURE: "a cut names a feature that does not exist",
    _NO_POINT: "a leaf names a point that does not exist",
    _NO_COPY: "a leaf holds no point",
    _TWO_PARENTS: "a child is the root or has another parent",
    _CYCLE: "a node is not below the root",
    _POPULATION: "a population is too large",
    _TIME: "a cut happens before the one above, or its time is not finite",
    _SEPARATION: "a cut does not separate its children",
}
_MAX_POPULATION = np.int64(2**32 - 1)


@kernel
def rebuild_trees(trees: Trees, rows: Array, leaves: Array, is_referenced: Array, position: Array) -> int:
    """Compute points, parents, populations and boxes of all trees; return the first problem, or SOUND.

    Parameters
    ----------
    trees : Trees
        Trees with heads, copies, and cuts without populations. Everything else must be zero, and is written.
    rows : array
        The coded rows to which leaves can refer; a row of NaN is unused. All numbers must be within MAX_VALUE.
    leaves : array of shape (n_trees, n_slots)
        The row number of the point in each leaf.
    is_referenced : array
        Output, False at first: for each row, whether a leaf refers to it.
    position : array of two integers
        Output: the tree and the slot of the problem; the slot is NONE if the problem concerns the whole tree.
    """
    order = np.empty(trees.cuts.shape[1], np.uint32)
    for t in range(trees.heads.size):
        problem, slot = rebuild(trees, t, rows, leaves, is_referenced, order)
        if problem != SOUND:
            position[0], position[1] = t, slot
            return problem
    return SOUND


@helper
def rebuild(trees: Trees, t: int, rows: Array, leaves: Array, is_referenced: Array, order: Array) -> tuple[int, int]:
    """Rebuild tree t; return the first problem, or SOUND, and its slot or NONE. `order` is scratch space."""
    if not has_possible_counts(trees, t):
        return _COUNTER, NONE
    problem, slot = check_unused_slots(trees, t, leaves)
    if problem == SOUND:
        problem, slot = check_nodes(trees, t)
    if problem == SOUND:
        problem, slot = write_leaves(trees, t, rows, leaves, is_referenced)
    if problem == SOUND:
        problem, slot = write_parents(trees, t)
    if problem == SOUND and write_order(trees, t, order) < n_inner(trees, t):
        problem, slot = _CYCLE, NONE
    if problem == SOUND:
        problem, slot = write_inner_nodes(trees, t, order)
    return problem, slot


@helper
def check_unused_slots(trees: Trees, t: int, leaves: Array) -> tuple[int, int]:
    """Check that unused slots are zero. All functions that return a pair return a problem, or SOUND, and its slot."""
    for slot in range(trees.heads[t]["n_leaves"], trees.points.shape[1]):
        if trees.copies[t, slot] != 0 or leaves[t, slot] != 0:
            return _UNUSED, slot
    for slot in range(n_inner(trees, t), trees.cuts.shape[1]):
        cut = trees.cuts[t, slot]
        numbers = cut["left"] | cut["right"] | cut["split_feature"]
        if numbers != 0 or not is_zero(cut["split_time"]) or not is_zero(cut["split_value"]):
            return _UNUSED, slot
    return SOUND, NONE


@helper
def check_nodes(trees: Trees, t: int) -> tuple[int, int]:
    """Check that the root and all children are nodes in use, and that the features of cuts exist."""
    root = trees.heads[t]["root"]
    if trees.heads[t]["n_leaves"] == 0:
        return (SOUND if root == NO_NODE else _ROOT), NONE
    if not exists(trees, t, root):
        return _ROOT, NONE
    for slot in range(n_inner(trees, t)):
        cut = trees.cuts[t, slot]
        if not exists(trees, t, cut["left"]) or not exists(trees, t, cut["right"]):
            return _CHILD, slot
        if cut["split_feature"] >= trees.boxes.shape[3]:
            return _FEATURE, slot
    return SOUND, NONE


@helper
def write_leaves(trees: Trees, t: int, rows: Array, leaves: Array, is_referenced: Array) -> tuple[int, int]:
    """Write the point of each leaf; check that the leaf's row exists and that the leaf has copies."""
    for slot in range(trees.heads[t]["n_leaves"]):
        number = leaves[t, slot]
        if not 0 <= number < rows.shape[0] or math.isnan(rows[number, 0]):
            return _NO_POINT, slot
        if trees.copies[t, slot] == 0:
            return _NO_COPY, slot
        is_referenced[number] = True
        write_point(trees, t, slot, rows[number])
    return SOUND, NONE


@helper
def write_point(trees: Trees, t: int, slot: int, row: Array) -> None:
    """Write a coded row to a leaf slot."""
    if n_categorical(trees) > 0:
        write_placed_row(trees, t, row, trees.points[t, slot])
        return
    for j in range(row.size):
        trees.points[t, slot, j] = row[j]


@helper
def write_parents(trees: Trees, t: int) -> tuple[int, int]:
    """Write the parent of each node; check that no node is a child twice, and that the root is not a child."""
    root = trees.heads[t]["root"]
    for slot in range(trees.heads[t]["n_leaves"]):
        trees.parents[t, leaf_node(slot)] = NO_NODE
    for slot in range(n_inner(trees, t)):
        trees.parents[t, inner_node(slot)] = NO_NODE
    for slot in range(n_inner(trees, t)):
        left, right = trees.cuts[t, slot]["left"], trees.cuts[t, slot]["right"]
        has_parent = trees.parents[t, left] != NO_NODE or trees.parents[t, right] != NO_NODE
        if has_parent or left == right or root in (left, right):
            return _TWO_PARENTS, slot
        trees.parents[t, left] = trees.parents[t, right] = inner_node(slot)
    return SOUND, NONE


@helper
def write_order(trees: Trees, t: int, order: Array) -> int:
    """Write the inner nodes, from the root down, to `order`; return their number.

    A node comes before its children, and the left subtree before the right one. This is the order in which `build`
    creates nodes, so that memory is read sequentially. `write_parents` has checked that no node has two parents, so
    each is reached at most once. The end of `order` is the stack of the nodes to visit.
    """
    n_done, top = 0, order.size
    if n_inner(trees, t) > 0 and not is_leaf(trees.heads[t]["root"]):
        top -= 1
        order[top] = trees.heads[t]["root"]
    while top < order.size:
        node = order[top]
        top += 1
        order[n_done] = node
        n_done += 1
        cut = trees.cuts[t, slot_of(node)]
        if not is_leaf(cut["right"]):
            top -= 1
            order[top] = cut["right"]
        if not is_leaf(cut["left"]):
            top -= 1
            order[top] = cut["left"]
    return n_done


@helper
def write_inner_nodes(trees: Trees, t: int, order: Array) -> tuple[int, int]:
    """Write the population and the box of each inner node, children first; check the cuts.

    A bound of the box that is zero becomes 0.0, never -0.0.
    """
    for i in range(n_inner(trees, t) - 1, -1, -1):
        slot = slot_of(order[i])
        cut = trees.cuts[t, slot]
        n = population_of(trees, t, cut["left"]) + population_of(trees, t, cut["right"])
        if n > _MAX_POPULATION:
            return _POPULATION, slot
        cut["population"] = n
        if not has_time_in_order(trees, t, slot):
            return _TIME, slot
        if not write_box(trees, t, slot):
            return _SEPARATION, slot
    return SOUND, NONE


@helper
def has_time_in_order(trees: Trees, t: int, slot: int) -> bool:
    """Return True if the split time is finite and not before that of the parent."""
    above, earlier = trees.parents[t, inner_node(slot)], 0.0
    if above != NO_NODE:
        earlier = trees.cuts[t, slot_of(above)]["split_time"]
    return earlier <= trees.cuts[t, slot]["split_time"] < math.inf


@helper
def write_box(trees: Trees, t: int, slot: int) -> bool:
    """Write the bounding box of the children's boxes; return True if the cut separates them."""
    cut = trees.cuts[t, slot]
    left_lower, left_upper = bounds(trees, t, cut["left"])
    right_lower, right_upper = bounds(trees, t, cut["right"])
    lower, upper = trees.boxes[t, slot, LOWER], trees.boxes[t, slot, UPPER]
    for j in range(trees.boxes.shape[3]):
        lower[j] = lesser(left_lower[j], right_lower[j]) + 0.0
        upper[j] = greater(left_upper[j], right_upper[j]) + 0.0
    q = cut["split_feature"]
    return left_upper[q] < cut["split_value"] <= right_lower[q]

"""Extend a tree by one point, as if the point had been there from the start: Algorithm 5 of [Ma2020]."""

from imondrian.engine.boxes import copy_box, distance, leaf_overhang, stretch, weighted_and_unweighted_overhang
from imondrian.engine.jit import Array, helper
from imondrian.engine.nodes import (
    LOWER,
    NO_NODE,
    UPPER,
    Trees,
    child_towards,
    inner_node,
    is_leaf,
    is_point_of,
    new_leaf,
    point_index,
    population,
    replace_in_parent,
    shares_points,
    slot_of,
)
from imondrian.engine.randomness import LARGEST, draw_feature, exponential, time_after, value_in_gap


@helper
def extend(trees: Trees, t: int, x: Array, weights: Array) -> None:
    """Insert x into tree t, keeping the tree a sample of the Mondrian process.

    Algorithm 5 of [Ma2020]. Unlike the paper: one exponential clock per descent instead of one per node (the same law,
    because the exponential distribution is memoryless); populations are increased on the path; a copy of a leaf's point
    is counted in the leaf, since no cut can separate them; `x[q] < p` goes left here as everywhere.
    """
    if trees.heads[t]["n_leaves"] == 0:
        insert_first_point(trees, t, x)
        return
    clock = exponential(trees.heads, t)
    node, time = trees.heads[t]["root"], 0.0
    while not is_leaf(node):
        cut = trees.cuts[t, slot_of(node)]
        rate, unweighted = weighted_and_unweighted_overhang(trees, t, node, x, weights)
        spent = rate * (cut["split_time"] - time)
        if clock < spent:
            insert_above(trees, t, node, x, weights, rate, time_after(time, clock, rate, cut["split_time"]))
            return
        clock -= spent
        time = cut["split_time"]
        cut["population"] += 1
        if unweighted > 0.0:
            stretch(trees, t, node, x)
        node = child_towards(trees, t, node, x)
    if is_point_of(trees, t, node, x):
        add_copy(trees, t, node, x)
    else:
        rate = leaf_overhang(trees, t, node, x, weights)
        insert_above(trees, t, node, x, weights, rate, time_after(time, clock, rate, LARGEST))


@helper
def add_copy(trees: Trees, t: int, leaf: int, x: Array) -> None:
    """Count x in the leaf of an equal point. If points are shared, the leaf then refers to the row of x.

    So a leaf always refers to the row of its newest copy, which leaves the window last.
    """
    trees.copies[t, slot_of(leaf)] += 1
    if shares_points(trees):
        free = trees.heads[t]["n_leaves"]
        trees.rows[t, slot_of(leaf)] = trees.rows[t, free]
        trees.rows[t, free] = 0
        point = trees.points[point_index(trees, t, slot_of(leaf))]
        for j in range(x.size):
            point[j] = x[j]


@helper
def insert_first_point(trees: Trees, t: int, x: Array) -> None:
    """Make x the first leaf of an empty tree."""
    leaf = new_leaf(trees, t, 0, x, 1)
    trees.heads[t]["root"] = leaf
    trees.parents[t, leaf] = NO_NODE


@helper
def insert_above(trees: Trees, t: int, node: int, x: Array, weights: Array, rate: float, time: float) -> None:
    """Insert a new parent above the node; its cut, at this time, separates the node's box from x.

    `rate` is the weighted overhang of x over the box.
    """
    slot = trees.heads[t]["n_leaves"] - 1
    copy_box(trees, t, node, slot)
    sizes = trees.boxes[t, slot + 1, LOWER]  # scratch space: the next free slot
    for j in range(weights.size):
        sizes[j] = distance(trees.boxes[t, slot, LOWER, j], trees.boxes[t, slot, UPPER, j], x[j])
    feature = draw_feature(trees.heads, t, sizes, weights, rate)
    for j in range(weights.size):
        sizes[j] = 0.0  # unused slots are zero
    lower, upper = trees.boxes[t, slot, LOWER, feature], trees.boxes[t, slot, UPPER, feature]
    x_is_above = x[feature] > upper
    parent, leaf = inner_node(slot), new_leaf(trees, t, slot + 1, x, 1)
    replace_in_parent(trees, t, node, parent)
    trees.parents[t, node] = parent
    trees.parents[t, leaf] = parent
    cut = trees.cuts[t, slot]
    cut["split_time"] = time
    cut["split_feature"] = feature
    cut["population"] = population(trees, t, node) + 1
    cut["split_value"] = value_in_gap(
        trees.heads, t, upper if x_is_above else x[feature], x[feature] if x_is_above else lower
    )
    cut["left"] = node if x_is_above else leaf
    cut["right"] = leaf if x_is_above else node
    stretch(trees, t, parent, x)

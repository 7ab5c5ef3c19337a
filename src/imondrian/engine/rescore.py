"""The points that the trees hold, and their scores in one pass over the nodes instead of one walk per point.

This is possible if all trees hold the same points in the same leaf slots (`is_aligned`).
"""

import math

import numpy as np

from imondrian.engine.average_path_length import average_path_length, relative_depth
from imondrian.engine.boxes import extent
from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.logarithms import floored_log
from imondrian.engine.nodes import (
    Trees,
    is_leaf,
    leaf_towards,
    population,
    slice_trees,
    slot_of,
    tree_population,
    with_own_points,
)
from imondrian.engine.places import coded_points, new_placed_row, placed_row


def is_aligned(trees: Trees) -> bool:
    """Return True if all trees hold the same points in the same slots."""
    n_leaves = trees.heads["n_leaves"]
    used = int(n_leaves[0])
    if not (n_leaves == used).all():
        return False
    trees = with_own_points(trees)
    return all(
        np.array_equal(trees.copies[t, :used], trees.copies[0, :used])
        and np.array_equal(coded_points(trees, trees.points[t, :used]), coded_points(trees, trees.points[0, :used]))
        for t in range(1, n_leaves.size)
    )


def trees_with_all_points(trees: Trees) -> Trees:
    """Return the first tree if all trees hold the same points in the same slots (`is_aligned`), otherwise all trees."""
    return slice_trees(trees, slice(1)) if is_aligned(trees) else trees


def points_and_copies(trees: Trees) -> tuple[Array, Array]:
    """Return the point in each leaf of the trees as a coded row, and how many copies of it the leaf holds."""
    # indices instead of a mask: if growing was interrupted, the arrays `copies` and `points` differ in length
    held = np.nonzero(trees.copies)
    return coded_points(trees, trees.points[held]), trees.copies[held]


@kernel
def write_leaf_slots(trees: Trees, X: Array, slots: Array) -> None:
    """Write the slot of the leaf into which each row of X falls in the first tree."""
    row = new_placed_row(trees)
    for i in range(X.shape[0]):
        slots[i] = slot_of(leaf_of_row(trees, 0, X[i], row))


@helper
def leaf_of_row(trees: Trees, t: int, x: Array, row: Array) -> int:
    """Return the leaf of a coded row; `row` is scratch space."""
    return leaf_towards(trees, t, placed_row(trees, t, x, row))


@kernel
def add_held_depths(trees: Trees, sums: Array) -> None:
    """Like `frozen.add_frozen_depths`, for the point in every leaf slot."""
    nodes, depths = np.empty(sums.size + 1, np.uint32), np.empty(sums.size + 1, np.int64)
    for t in range(trees.heads.size):
        average = average_path_length(tree_population(trees, t))
        nodes[0], depths[0], n_stacked = trees.heads[t]["root"], 0, 1
        while n_stacked > 0:
            n_stacked -= 1
            node, depth = nodes[n_stacked], depths[n_stacked]
            if is_leaf(node):
                length = depth + average_path_length(trees.copies[t, slot_of(node)])
                sums[slot_of(node)] += relative_depth(length, average)
            else:
                cut = trees.cuts[t, slot_of(node)]
                nodes[n_stacked], nodes[n_stacked + 1] = cut["left"], cut["right"]
                depths[n_stacked], depths[n_stacked + 1] = depth + 1, depth + 1
                n_stacked += 2


@kernel
def add_held_log_sizes(trees: Trees, weights: Array, means: Array, sums: Array) -> None:
    """Like `frozen.add_frozen_log_sizes`, for the point in every leaf slot."""
    nodes, totals = np.empty(sums.size + 1, np.uint32), np.empty(sums.size + 1)
    for t in range(trees.heads.size):
        n_points = float(tree_population(trees, t))
        if n_points < 2.0 or is_leaf(trees.heads[t]["root"]):
            continue  # all points of the tree are equal: their log size exceeds the tree's mean by 0
        nodes[0], totals[0], n_stacked = trees.heads[t]["root"], 0.0, 1
        while n_stacked > 0:
            n_stacked -= 1
            node, total = nodes[n_stacked], totals[n_stacked]
            size = floored_log(extent(trees, t, node, weights))
            n = float(trees.cuts[t, slot_of(node)]["population"])
            for below in (trees.cuts[t, slot_of(node)]["left"], trees.cuts[t, slot_of(node)]["right"]):
                n_below = float(population(trees, t, below))
                total_below = total + math.log(n / n_below) * size
                if is_leaf(below):
                    total_below += math.log(n_below) * (size - 0.5 * math.log(n_below))
                    sums[slot_of(below)] += total_below / math.log(n_points) - means[t]
                else:
                    nodes[n_stacked], totals[n_stacked] = below, total_below
                    n_stacked += 1

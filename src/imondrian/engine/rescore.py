"""The points that the trees hold, and their scores in one pass over the nodes, without a walk for each.

One pass is enough for trees that hold the same points in the same leaf slots: `is_aligned` tells.
"""

import math

import numpy as np

from imondrian.engine.average_path_length import average_path_length, relative_depth
from imondrian.engine.boxes import extent
from imondrian.engine.jit import Array, kernel
from imondrian.engine.logarithms import floored_log
from imondrian.engine.nodes import Trees, is_leaf, leaf_towards, part, population, slot_of, tree_population


def is_aligned(trees: Trees) -> bool:
    """Tell whether all trees hold the same points in the same slots."""
    n_leaves = trees.heads["n_leaves"]
    used = int(n_leaves[0])
    if not (n_leaves == used).all():
        return False
    return all(
        np.array_equal(trees.copies[t, :used], trees.copies[0, :used])
        and np.array_equal(trees.points[t, :used], trees.points[0, :used])
        for t in range(1, n_leaves.size)
    )


def witnesses(trees: Trees) -> Trees:
    """Give trees that hold all the points held: one of aligned trees, else all of them."""
    return part(trees, slice(1)) if is_aligned(trees) else trees


def held_points(trees: Trees) -> Array:
    """List the points in the leaves of the trees, each as often as it is held."""
    held = trees.copies > 0
    return np.repeat(trees.points[held], trees.copies[held], axis=0)


@kernel
def write_leaf_slots(trees: Trees, X: Array, slots: Array) -> None:
    """Write the slot of the leaf into which each row of X falls in the first tree."""
    for i in range(X.shape[0]):
        slots[i] = slot_of(leaf_towards(trees, 0, X[i]))


@kernel
def add_held_depths(trees: Trees, sums: Array) -> None:
    """Do for the point in every leaf slot what `frozen.add_frozen_depths` does for a row."""
    nodes, depths = np.empty(sums.size + 1, np.uint32), np.empty(sums.size + 1, np.int64)
    for t in range(trees.heads.size):
        average = average_path_length(tree_population(trees, t))
        nodes[0], depths[0], n_waiting = trees.heads[t]["root"], 0, 1
        while n_waiting > 0:
            n_waiting -= 1
            node, depth = nodes[n_waiting], depths[n_waiting]
            if is_leaf(node):
                length = depth + average_path_length(trees.copies[t, slot_of(node)])
                sums[slot_of(node)] += relative_depth(length, average)
            else:
                cut = trees.cuts[t, slot_of(node)]
                nodes[n_waiting], nodes[n_waiting + 1] = cut["left"], cut["right"]
                depths[n_waiting], depths[n_waiting + 1] = depth + 1, depth + 1
                n_waiting += 2


@kernel
def add_held_log_sizes(trees: Trees, weights: Array, means: Array, sums: Array) -> None:
    """Do for the point in every leaf slot what `frozen.add_frozen_log_sizes` does for a row."""
    nodes, totals = np.empty(sums.size + 1, np.uint32), np.empty(sums.size + 1)
    for t in range(trees.heads.size):
        crowd = float(tree_population(trees, t))
        if crowd < 2.0 or is_leaf(trees.heads[t]["root"]):
            continue  # all points alike: no excess
        nodes[0], totals[0], n_waiting = trees.heads[t]["root"], 0.0, 1
        while n_waiting > 0:
            n_waiting -= 1
            node, total = nodes[n_waiting], totals[n_waiting]
            size = floored_log(extent(trees, t, node, weights))
            n = float(trees.cuts[t, slot_of(node)]["population"])
            for below in (trees.cuts[t, slot_of(node)]["left"], trees.cuts[t, slot_of(node)]["right"]):
                n_below = float(population(trees, t, below))
                held = total + math.log(n / n_below) * size
                if is_leaf(below):
                    held += math.log(n_below) * (size - 0.5 * math.log(n_below))
                    sums[slot_of(below)] += held / math.log(crowd) - means[t]
                else:
                    nodes[n_waiting], totals[n_waiting] = below, held
                    n_waiting += 1

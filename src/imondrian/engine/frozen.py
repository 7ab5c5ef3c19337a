"""A compact copy of the trees for the path lengths of many rows: one small record per node, breadth first."""

from typing import NamedTuple

import numpy as np

from imondrian.engine.harmonic import average_path_length, relative_depth
from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.nodes import NO_NODE, Trees, is_leaf, slot_of, tree_population

_LANES = 12  # rows that walk one tree side by side, so that their memory reads overlap
_STRIDE = 4  # steps between two looks whether all have arrived
_BLOCK = 85 * _LANES  # rows that stay in the cache while the trees pass by

STEP = np.dtype([("split_value", np.float64), ("split_feature", np.uint32), ("left", np.uint32)])


class Frozen(NamedTuple):
    """The trees one after the other. Siblings lie side by side, the left one first; a leaf leads to itself."""

    steps: Array
    depths: Array  # of a leaf, relative to c(n) of its tree
    roots: Array


def freeze(trees: Trees) -> Frozen:
    """Copy the trees into the compact form."""
    n_nodes = np.maximum(2 * trees.heads["n_leaves"] - 1, 1)
    roots = np.concatenate([[0], np.cumsum(n_nodes)])
    frozen = Frozen(np.zeros(roots[-1], STEP), np.zeros(roots[-1]), roots[:-1].astype(np.uint32))
    copy_trees(trees, frozen, np.empty(n_nodes.max(), np.uint32))
    return frozen


@kernel
def copy_trees(trees: Trees, frozen: Frozen, queue: Array) -> None:
    """Copy every tree, breadth first; one without points becomes a leaf of average depth."""
    for t in range(frozen.roots.size):
        root = frozen.roots[t]
        queue[0] = trees.heads[t]["root"]
        depth, level_ends, end = 0, 1, 1
        average = average_path_length(tree_population(trees, t))
        i = 0
        while i < end:
            if i == level_ends:
                depth, level_ends = depth + 1, end
            step = frozen.steps[root + i]
            node = queue[i]
            if node == NO_NODE or is_leaf(node):
                step["split_value"] = np.inf
                step["left"] = root + i
                below = average_path_length(trees.copies[t, slot_of(node)]) if node != NO_NODE else 0.0
                frozen.depths[root + i] = relative_depth(depth + below, average)
            else:
                cut = trees.cuts[t, slot_of(node)]
                step["split_value"] = cut["split_value"]
                step["split_feature"] = cut["split_feature"]
                step["left"] = root + end
                queue[end], queue[end + 1] = cut["left"], cut["right"]
                end += 2
            i += 1


@kernel
def add_frozen_depths(frozen: Frozen, X: Array, sums: Array) -> None:
    """Do as `depth.add_depths` does, to the last bit, on the frozen trees."""
    lanes = np.empty(_LANES, np.uint32)
    for first in range(0, X.shape[0], _BLOCK):
        last = min(first + _BLOCK, X.shape[0])
        for t in range(frozen.roots.size):
            i = first
            while i + _LANES <= last:
                walk_together(frozen, frozen.roots[t], X, i, lanes)
                for lane in range(_LANES):
                    sums[i + lane] += frozen.depths[lanes[lane]]
                i += _LANES
            while i < last:
                sums[i] += frozen.depths[walk_alone(frozen, frozen.roots[t], X, i)]
                i += 1


@helper
def walk_together(frozen: Frozen, root: int, X: Array, i: int, lanes: Array) -> None:
    """Bring the rows i, i + 1, ... to their leaves; one that has arrived marks time."""
    for lane in range(_LANES):
        lanes[lane] = root
    on_the_way = True
    while on_the_way:
        for _ in range(_STRIDE):
            for lane in range(_LANES):
                step = frozen.steps[lanes[lane]]
                goes_right = X[i + lane, step["split_feature"]] >= step["split_value"]
                lanes[lane] = step["left"] + np.uint32(goes_right)
        on_the_way = False
        for lane in range(_LANES):
            on_the_way |= frozen.steps[lanes[lane]]["left"] != lanes[lane]


@helper
def walk_alone(frozen: Frozen, root: int, X: Array, i: int) -> int:
    """Bring row i to its leaf."""
    node = root
    step = frozen.steps[node]
    while step["left"] != node:
        node = step["left"] + np.uint32(X[i, step["split_feature"]] >= step["split_value"])
        step = frozen.steps[node]
    return node

"""A compact copy of the trees for the path lengths of many rows: one small record per node, breadth first."""

from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.harmonic import average_path_length, relative_depth
from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.nodes import NO_NODE, Trees, is_leaf, slot_of, tree_population

_LANES = 12  # rows that walk one tree side by side, so that their memory reads overlap
_STRIDE = 4  # steps between two looks whether all have arrived
_BLOCK = 43 * _LANES  # rows that stay in the cache while the trees pass by
_32, _LOW_32 = np.uint64(32), np.uint64(0xFFFFFFFF)

STEP = np.dtype([("split_value", np.float64), ("way", np.uint64)])  # way: the feature (high 32 bits), the left child


class Frozen(NamedTuple):
    """The trees one after the other. Siblings lie side by side, the left one first; a leaf leads to itself."""

    steps: Array
    depths: Array  # of a leaf, relative to c(n) of its tree
    roots: Array


def freeze(trees: Trees) -> Frozen:
    """Copy the trees into the compact form."""
    n_nodes = np.maximum(2 * trees.heads["n_leaves"] - 1, 1)
    roots = np.concatenate([[0], np.cumsum(n_nodes)])
    frozen = Frozen(np.zeros(roots[-1], STEP), np.zeros(roots[-1]), roots[:-1].astype(np.uint64))
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
                step["way"] = root + np.uint64(i)
                below = average_path_length(trees.copies[t, slot_of(node)]) if node != NO_NODE else 0.0
                frozen.depths[root + i] = relative_depth(depth + below, average)
            else:
                cut = trees.cuts[t, slot_of(node)]
                step["split_value"] = cut["split_value"]
                step["way"] = (np.uint64(cut["split_feature"]) << _32) | (root + np.uint64(end))
                queue[end], queue[end + 1] = cut["left"], cut["right"]
                end += 2
            i += 1


@kernel
def add_frozen_depths(frozen: Frozen, X: Array, sums: Array) -> None:
    """Do as `depth.add_depths` does, to the last bit, on the frozen trees."""
    n_together = X.shape[0] - X.shape[0] % _LANES
    for first in range(0, n_together, _BLOCK):
        last = np.uint64(min(first + _BLOCK, n_together))
        for t in range(frozen.roots.size):
            i = np.uint64(first)
            while i < last:
                walk_together(frozen.steps, frozen.depths, frozen.roots[t], X, i, sums)
                i += np.uint64(_LANES)
    for t in range(frozen.roots.size):  # apart from the others: in their loop it would cost the registers
        for row in range(n_together, X.shape[0]):
            walk_alone(frozen.steps, frozen.depths, frozen.roots[t], X, row, sums)


@helper
def next_node(steps: Array, node: int, X: Array, i: int) -> int:
    """Take row i one step down; at a leaf it marks time."""
    step = steps[node]
    return (step["way"] & _LOW_32) + np.uint64(X[i, step["way"] >> _32] >= step["split_value"])


@helper
def left_to_go(steps: Array, node: int) -> int:
    """Give 0 at a leaf, which leads to itself."""
    return (steps[node]["way"] & _LOW_32) ^ node


@helper
def walk_alone(steps: Array, depths: Array, root: int, X: Array, i: int, sums: Array) -> None:
    """Bring row i to its leaf, and add the leaf's depth."""
    node = root
    while left_to_go(steps, node) != 0:
        node = next_node(steps, node, X, i)
    sums[i] += depths[node]


@helper
def walk_together(steps: Array, depths: Array, root: int, X: Array, i: Any, sums: Array) -> None:
    """Bring twelve rows to their leaves; written out, since only variables, not arrays, stay in registers."""
    a = b = c = d = e = f = g = h = k = l = m = n = root  # noqa: E741
    while True:
        for _ in range(_STRIDE):
            a = next_node(steps, a, X, i)
            b = next_node(steps, b, X, i + np.uint64(1))
            c = next_node(steps, c, X, i + np.uint64(2))
            d = next_node(steps, d, X, i + np.uint64(3))
            e = next_node(steps, e, X, i + np.uint64(4))
            f = next_node(steps, f, X, i + np.uint64(5))
            g = next_node(steps, g, X, i + np.uint64(6))
            h = next_node(steps, h, X, i + np.uint64(7))
            k = next_node(steps, k, X, i + np.uint64(8))
            l = next_node(steps, l, X, i + np.uint64(9))  # noqa: E741
            m = next_node(steps, m, X, i + np.uint64(10))
            n = next_node(steps, n, X, i + np.uint64(11))
        first = left_to_go(steps, a) | left_to_go(steps, b) | left_to_go(steps, c) | left_to_go(steps, d)
        second = left_to_go(steps, e) | left_to_go(steps, f) | left_to_go(steps, g) | left_to_go(steps, h)
        third = left_to_go(steps, k) | left_to_go(steps, l) | left_to_go(steps, m) | left_to_go(steps, n)
        if first | second | third == 0:
            break
    sums[i] += depths[a]
    sums[i + np.uint64(1)] += depths[b]
    sums[i + np.uint64(2)] += depths[c]
    sums[i + np.uint64(3)] += depths[d]
    sums[i + np.uint64(4)] += depths[e]
    sums[i + np.uint64(5)] += depths[f]
    sums[i + np.uint64(6)] += depths[g]
    sums[i + np.uint64(7)] += depths[h]
    sums[i + np.uint64(8)] += depths[k]
    sums[i + np.uint64(9)] += depths[l]
    sums[i + np.uint64(10)] += depths[m]
    sums[i + np.uint64(11)] += depths[n]

"""A compact copy of the trees for path lengths: one key and one word per node, breadth first; eight walks at a time.

Numbers are compared as whole numbers of the same order (`key_of`): that takes a cycle where comparing floats takes
six, and its outcome can be added to a node without a branch, which no processor could guess. Eight walks go on by
turns, eight rows in one tree or one row in eight trees, so that none waits for memory alone.
"""

from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.harmonic import average_path_length, relative_depth, score_of_depth
from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.nodes import NO_NODE, Trees, is_leaf, slot_of, tree_population

LANES = 8  # walks side by side
_NUMBERS_PER_BLOCK = 8192  # that stay in the cache while the trees pass by
_STRIDE = 4  # steps between two looks whether all have arrived
_32, _LOW_32, _ONE = np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(1)
_NEGATIVE, _HIGHEST = np.int64(-(2**63)), np.uint64(2**64 - 1)


class Frozen(NamedTuple):
    """The trees one after the other. Siblings lie side by side, the left one first; a leaf leads to itself."""

    keys: Array  # of the split value
    features: Array  # times LANES
    rights: Array  # the right child; the left one lies before it
    depths: Array  # of a leaf, relative to c(n) of its tree
    roots: Array


def freeze(trees: Trees) -> Frozen:
    """Copy the trees into the compact form."""
    n_nodes = np.maximum(2 * trees.heads["n_leaves"] - 1, 1)
    roots = np.concatenate([[0], np.cumsum(n_nodes)])
    size = int(roots[-1])
    frozen = Frozen(
        np.zeros(size, np.uint64),
        np.zeros(size, np.uint32),
        np.zeros(size, np.uint32),
        np.zeros(size),
        roots[:-1].astype(np.uint64),
    )
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
            node, place = queue[i], root + np.uint64(i)
            if node == NO_NODE or is_leaf(node):
                frozen.keys[place] = _HIGHEST
                frozen.rights[place] = place + _ONE  # no key reaches the highest: it stays at the left, here
                below = average_path_length(trees.copies[t, slot_of(node)]) if node != NO_NODE else 0.0
                frozen.depths[place] = relative_depth(depth + below, average)
            else:
                cut = trees.cuts[t, slot_of(node)]
                frozen.keys[place] = key_of(cut["split_value"])
                frozen.features[place] = LANES * cut["split_feature"]
                frozen.rights[place] = root + np.uint64(end + 1)
                queue[end], queue[end + 1] = cut["left"], cut["right"]
                end += 2
            i += 1


@helper
def key_of(value: float) -> Any:
    """Give a whole number that lies below that of another value just if the value does; 0.0 and -0.0 have the same."""
    bits = np.float64(value + 0.0).view(np.int64)
    return np.int64(bits ^ ((bits >> 63) | _NEGATIVE)).view(np.uint64)


@kernel
def add_frozen_depths(frozen: Frozen, X: Array, sums: Array) -> None:
    """Do as `depth.add_depths` does, to the last bit, on the frozen trees."""
    length = LANES * max(_NUMBERS_PER_BLOCK // (LANES * X.shape[1]), 4)
    keys, depths = np.empty(length * X.shape[1], np.uint64), np.empty(length)
    for first in range(0, X.shape[0], length):
        n_rows = min(length, X.shape[0] - first)
        write_keys(X, first, n_rows, keys)
        add_depths_of_block(frozen, keys, X.shape[1], n_rows, depths)
        for i in range(n_rows):
            sums[first + i] += depths[i]


@helper
def write_keys(X: Array, first: int, n_rows: int, keys: Array) -> None:
    """Write the keys of some rows in groups of eight, feature by feature; the last group may have some left over."""
    for i in range(n_rows):
        group, lane = i // LANES, i % LANES
        for j in range(X.shape[1]):
            keys[(group * X.shape[1] + j) * LANES + lane] = key_of(X[first + i, j])
    for i in range(n_rows, -(-n_rows // LANES) * LANES):
        group, lane = i // LANES, i % LANES
        for j in range(X.shape[1]):
            keys[(group * X.shape[1] + j) * LANES + lane] = np.uint64(0)


@helper
def add_depths_of_block(frozen: Frozen, keys: Array, n_features: int, n_rows: int, depths: Array) -> None:
    """Add up the relative depths of the rows of a block over the trees."""
    depths[:] = 0.0
    width = np.uint64(n_features * LANES)
    for t in range(frozen.roots.size):
        root, place = frozen.roots[t], np.uint64(0)
        for i in range(0, n_rows, LANES):
            a, b, c, d, e, f, g, h = eight_leaves(frozen, keys, place, root, root, root, root, root, root, root, root)
            depths[i] += frozen.depths[a]
            depths[i + 1] += frozen.depths[b]
            depths[i + 2] += frozen.depths[c]
            depths[i + 3] += frozen.depths[d]
            depths[i + 4] += frozen.depths[e]
            depths[i + 5] += frozen.depths[f]
            depths[i + 6] += frozen.depths[g]
            depths[i + 7] += frozen.depths[h]
            place += width


@kernel
def frozen_score_of_row(frozen: Frozen, x: Array) -> float:
    """Give the score of one row by path length, as that of many is, to the last bit."""
    keys, roots = np.empty(x.size * LANES, np.uint64), frozen.roots
    for j in range(x.size):
        keys[j * LANES : (j + 1) * LANES] = key_of(x[j])
    total, last = 0.0, roots.size - 1
    for t in range(0, roots.size, LANES):
        leaves = eight_leaves(
            frozen,
            keys,
            np.uint64(0),
            roots[t],
            roots[min(t + 1, last)],
            roots[min(t + 2, last)],
            roots[min(t + 3, last)],
            roots[min(t + 4, last)],
            roots[min(t + 5, last)],
            roots[min(t + 6, last)],
            roots[min(t + 7, last)],
        )
        n_lanes = min(roots.size - t, LANES)
        for lane, leaf in enumerate(leaves):
            if lane < n_lanes:
                total += frozen.depths[leaf]
    return score_of_depth(total / roots.size)


@helper
def eight_leaves(  # noqa: PLR0913, PLR0917
    frozen: Frozen,
    keys: Array,
    i: Any,
    a: Any,
    b: Any,
    c: Any,
    d: Any,
    e: Any,
    f: Any,
    g: Any,
    h: Any,
) -> tuple[Any, ...]:
    """Bring eight walks from their roots to their leaves; their keys lie side by side from place i on.

    Written out, since only variables, not arrays, stay in registers.
    """
    while True:
        for _ in range(_STRIDE):
            a = next_node(frozen, a, keys, i)
            b = next_node(frozen, b, keys, i + np.uint64(1))
            c = next_node(frozen, c, keys, i + np.uint64(2))
            d = next_node(frozen, d, keys, i + np.uint64(3))
            e = next_node(frozen, e, keys, i + np.uint64(4))
            f = next_node(frozen, f, keys, i + np.uint64(5))
            g = next_node(frozen, g, keys, i + np.uint64(6))
            h = next_node(frozen, h, keys, i + np.uint64(7))
        first = left_to_go(frozen, a) | left_to_go(frozen, b) | left_to_go(frozen, c) | left_to_go(frozen, d)
        second = left_to_go(frozen, e) | left_to_go(frozen, f) | left_to_go(frozen, g) | left_to_go(frozen, h)
        if first | second == 0:
            return a, b, c, d, e, f, g, h


@helper
def next_node(frozen: Frozen, node: Any, keys: Array, i: Any) -> Any:
    """Take one step down: to the right child, or one place to the left of it; at a leaf it marks time."""
    goes_left = keys[i + np.uint64(frozen.features[node])] < frozen.keys[node]
    return np.uint64(frozen.rights[node]) - np.uint64(goes_left)


@helper
def left_to_go(frozen: Frozen, node: Any) -> Any:
    """Give 0 at a leaf, which leads to itself."""
    return np.uint64(frozen.rights[node]) - node - _ONE

"""A compact copy of the trees for the scores of many rows: few words per node, breadth first; eight walks at a time.

Numbers are compared as whole numbers of the same order (`key_of`): that takes a cycle where comparing floats takes
six, and its outcome can be taken off a node's number without a branch, which could not be guessed. Eight walks go on by
turns, eight rows in one tree or one row in eight trees, so that none waits for memory alone.
"""

from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.average_path_length import average_path_length, relative_depth
from imondrian.engine.box_scores_static import excess_above, expected_depth_above, new_way
from imondrian.engine.jit import Array, helper, kernel, making_helper
from imondrian.engine.nodes import NO_NODE, Trees, is_leaf, slot_of, tree_population
from imondrian.engine.score_formula import score_of_depth

LANES = 8  # walks side by side
_NUMBERS_PER_BLOCK = 8192  # that stay in the cache while the trees pass by
_STRIDE = 4  # steps between two looks whether all have arrived
_ONE = np.uint64(1)
_NEGATIVE, _HIGHEST = np.int64(-(2**63)), np.uint64(2**64 - 1)


class Frozen(NamedTuple):
    """The trees one after the other. Siblings lie side by side, the left one first; a leaf leads to itself."""

    keys: Array  # of the split value
    features: Array  # times LANES
    rights: Array  # the right child; the left one lies before it
    depths: Array  # of a leaf, relative to c(n) of its tree
    nodes: Array  # of the live tree
    levels: Array  # edges from the root
    roots: Array


class Block(NamedTuple):
    """Rows that stay in the cache while the trees pass by."""

    keys: Array  # of their numbers, in groups of LANES rows, feature by feature
    leaves: Array  # the frozen leaves into which they fall in a tree
    depths: Array  # summed over the trees


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
        np.zeros(size, np.uint32),
        np.zeros(size, np.uint32),
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
            frozen.nodes[place], frozen.levels[place] = node, depth
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
    """Add to each row's sum its path length relative to c(n) in every tree, n the points that the tree holds."""
    block = new_block(X)
    for first in range(0, X.shape[0], block.leaves.size):
        n_rows = write_keys(X, first, block)
        block.depths[:n_rows] = 0.0
        for t in range(frozen.roots.size):
            add_depths_of_rows(frozen, t, block, X.shape[1], n_rows)
        for i in range(n_rows):
            sums[first + i] += block.depths[i]


@helper
def add_depths_of_rows(frozen: Frozen, t: int, block: Block, n_features: int, n_rows: int) -> None:
    """Add the depths of the rows of a block in a tree to their sums."""
    root, place, width = frozen.roots[t], np.uint64(0), np.uint64(n_features * LANES)
    depths, leaf_depths = block.depths, frozen.depths
    for i in range(0, n_rows, LANES):
        a, b, c, d, e, f, g, h = eight_leaves(frozen, block.keys, place, root, root, root, root, root, root, root, root)
        depths[i] += leaf_depths[a]
        depths[i + 1] += leaf_depths[b]
        depths[i + 2] += leaf_depths[c]
        depths[i + 3] += leaf_depths[d]
        depths[i + 4] += leaf_depths[e]
        depths[i + 5] += leaf_depths[f]
        depths[i + 6] += leaf_depths[g]
        depths[i + 7] += leaf_depths[h]
        place += width


@kernel
def add_frozen_expected_depths(trees: Trees, frozen: Frozen, X: Array, weights: Array, sums: Array) -> None:
    """Add to each row's sum its expected depth relative to c(n) in every tree, n the points that the tree holds."""
    block, way = new_block(X), new_way(trees.cuts.shape[1])
    for first in range(0, X.shape[0], block.leaves.size):
        n_rows = write_keys(X, first, block)
        for t in range(frozen.roots.size):
            n = tree_population(trees, t)
            average = average_path_length(n)
            find_leaves_of_rows(frozen, t, block, X.shape[1], n_rows)
            for i in range(n_rows):
                leaf, depth, x = frozen.nodes[block.leaves[i]], int(frozen.levels[block.leaves[i]]), X[first + i]
                length = expected_depth_above(trees, t, leaf, depth, x, weights, way) if n > 1 else 0.0
                sums[first + i] += relative_depth(length, average)


@kernel
def add_frozen_log_sizes(
    trees: Trees, frozen: Frozen, X: Array, weights: Array, insides: Array, means: Array, sums: Array
) -> None:
    """Add to each row's sum by how much its log size exceeds the mean one in every tree."""
    block, way = new_block(X), new_way(trees.cuts.shape[1])
    for first in range(0, X.shape[0], block.leaves.size):
        n_rows = write_keys(X, first, block)
        for t in range(frozen.roots.size):
            if tree_population(trees, t) > 1:
                find_leaves_of_rows(frozen, t, block, X.shape[1], n_rows)
                for i in range(n_rows):
                    leaf, x = frozen.nodes[block.leaves[i]], X[first + i]
                    sums[first + i] += excess_above(trees, t, leaf, x, weights, way, insides, means[t])


@making_helper
def new_block(X: Array) -> Block:
    """Make room for as many rows as stay in the cache."""
    length = LANES * max(_NUMBERS_PER_BLOCK // (LANES * X.shape[1]), 4)
    return Block(np.empty(length * X.shape[1], np.uint64), np.empty(length, np.uint64), np.empty(length))


@helper
def write_keys(X: Array, first: int, block: Block) -> int:
    """Write the keys of the rows from one on, and give their number; lanes left over in the last group walk left."""
    n_rows = min(block.leaves.size, X.shape[0] - first)
    for i in range(-(-n_rows // LANES) * LANES):
        group, lane = i // LANES, i % LANES
        for j in range(X.shape[1]):
            key = key_of(X[first + i, j]) if i < n_rows else np.uint64(0)
            block.keys[(group * X.shape[1] + j) * LANES + lane] = key
    return n_rows


@helper
def find_leaves_of_rows(frozen: Frozen, t: int, block: Block, n_features: int, n_rows: int) -> None:
    """Bring the rows of a block to their leaves in a tree."""
    root, place, width = frozen.roots[t], np.uint64(0), np.uint64(n_features * LANES)
    for i in range(0, n_rows, LANES):
        a, b, c, d, e, f, g, h = eight_leaves(frozen, block.keys, place, root, root, root, root, root, root, root, root)
        block.leaves[i] = a
        block.leaves[i + 1] = b
        block.leaves[i + 2] = c
        block.leaves[i + 3] = d
        block.leaves[i + 4] = e
        block.leaves[i + 5] = f
        block.leaves[i + 6] = g
        block.leaves[i + 7] = h
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

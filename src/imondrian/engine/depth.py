"""The path length of a point: Algorithm 3 of [Ma2020]."""

import numpy as np

from imondrian.engine.ahead import find_leaves
from imondrian.engine.harmonic import average_path_length, relative_depth, score_of_depth
from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.nodes import Trees, child_towards, is_leaf, slot_of, tree_population


@helper
def path_length(trees: Trees, t: int, x: Array) -> float:
    """Count the edges from the root to the leaf of x.

    Algorithm 3 of [Ma2020]. Differs: it ends, at the leaf, and adds c(k) for a leaf of k copies, as iForest does.
    """
    node, depth = trees.heads[t]["root"], 0
    while not is_leaf(node):
        node = child_towards(trees, t, node, x)
        depth += 1
    return depth + average_path_length(trees.copies[t, slot_of(node)])


@kernel
def add_depths(trees: Trees, X: Array, sums: Array) -> None:
    """Add to each row's sum its path length relative to c(n) in every tree, n the points that the tree holds."""
    for t in range(trees.heads.size):
        n = tree_population(trees, t)
        average = average_path_length(n)
        for i in range(X.shape[0]):
            sums[i] += relative_depth(path_length(trees, t, X[i]) if n > 1 else 0.0, average)


@kernel
def depth_score_of_row(trees: Trees, x: Array) -> float:
    """Give the score of one row by path length, as that of many is, to the last bit; it walks all trees at once."""
    leaves, depths = np.empty(trees.heads.size, np.uint32), np.empty(trees.heads.size, np.int64)
    find_leaves(trees, x, leaves, depths)
    total, n, average = 0.0, 0, 0.0
    for t in range(trees.heads.size):
        if tree_population(trees, t) != n:
            n = tree_population(trees, t)
            average = average_path_length(n)
        length = depths[t] + average_path_length(trees.copies[t, slot_of(leaves[t])]) if n > 1 else 0.0
        total += relative_depth(length, average)
    return score_of_depth(total / trees.heads.size)

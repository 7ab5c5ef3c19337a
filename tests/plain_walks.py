"""Plain implementations of the walks, one row in one tree at a time, to compare with the faster ones."""

import numba

from imondrian.engine.average_path_length import average_path_length, relative_depth
from imondrian.engine.box_scores_live import excess, expected_depth
from imondrian.engine.nodes import child_towards, is_leaf, slot_of, tree_population

plain = numba.njit(error_model="numpy")


@plain
def path_length(trees, t, x):
    """Count the edges from the root to the leaf of x, and add c(k) for k copies there."""
    node, depth = trees.heads[t]["root"], 0
    while not is_leaf(node):
        node = child_towards(trees, t, node, x)
        depth += 1
    return depth + average_path_length(trees.copies[t, slot_of(node)])


@plain
def add_depths(trees, X, sums):
    """Add to each row's sum its path length in every tree, relative to c(n) for a tree of n points."""
    for t in range(trees.heads.size):
        n = tree_population(trees, t)
        average = average_path_length(n)
        for i in range(X.shape[0]):
            sums[i] += relative_depth(path_length(trees, t, X[i]) if n > 1 else 0.0, average)


@plain
def add_expected_depths(trees, X, weights, sums):
    """Add to each row's sum its expected depth in every tree, relative to c(n) for a tree of n points."""
    for t in range(trees.heads.size):
        n = tree_population(trees, t)
        average = average_path_length(n)
        for i in range(X.shape[0]):
            sums[i] += relative_depth(expected_depth(trees, t, X[i], weights) if n > 1 else 0.0, average)


@plain
def add_log_sizes(trees, X, weights, means, sums):
    """Add to each row's sum the excess of its log size over the tree's mean, for every tree."""
    for t in range(trees.heads.size):
        if tree_population(trees, t) > 1:
            for i in range(X.shape[0]):
                sums[i] += excess(trees, t, X[i], weights, means[t])

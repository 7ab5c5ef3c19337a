"""Plain walks, a row and a tree at a time, with which the faster ones are compared."""

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
    """Add to each row's sum its path length relative to c(n) in every tree, n the points that the tree holds."""
    for t in range(trees.heads.size):
        n = tree_population(trees, t)
        average = average_path_length(n)
        for i in range(X.shape[0]):
            sums[i] += relative_depth(path_length(trees, t, X[i]) if n > 1 else 0.0, average)


@plain
def add_expected_depths(trees, X, weights, sums):
    """Add to each row's sum its expected depth relative to c(n) in every tree, n the points that the tree holds."""
    for t in range(trees.heads.size):
        n = tree_population(trees, t)
        average = average_path_length(n)
        for i in range(X.shape[0]):
            sums[i] += relative_depth(expected_depth(trees, t, X[i], weights) if n > 1 else 0.0, average)


@plain
def add_log_sizes(trees, X, weights, means, sums):
    """Add to each row's sum by how much its log size exceeds the mean one in every tree."""
    for t in range(trees.heads.size):
        if tree_population(trees, t) > 1:
            for i in range(X.shape[0]):
                sums[i] += excess(trees, t, X[i], weights, means[t])

"""The scores of one row, without what only many rows are worth; to the last bit those of many."""

import numpy as np

from imondrian.engine.average_path_length import average_path_length, relative_depth
from imondrian.engine.box_scores_live import excess
from imondrian.engine.box_scores_static import excess_above, expected_depth_above, new_way
from imondrian.engine.jit import Array, kernel
from imondrian.engine.nodes import Trees, slot_of, tree_population
from imondrian.engine.prefetch import find_leaves
from imondrian.engine.score_formula import score_of_depth, score_of_log_size


@kernel
def depth_score_of_row(trees: Trees, x: Array) -> float:
    """Score by path length."""
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


@kernel
def expected_score_of_row(trees: Trees, x: Array, weights: Array) -> float:
    """Score by expected depth."""
    leaves, depths = np.empty(trees.heads.size, np.uint32), np.empty(trees.heads.size, np.int64)
    way = new_way(find_leaves(trees, x, leaves, depths))
    total, n, average = 0.0, 0, 0.0
    for t in range(trees.heads.size):
        if tree_population(trees, t) != n:
            n = tree_population(trees, t)
            average = average_path_length(n)
        length = expected_depth_above(trees, t, leaves[t], depths[t], x, weights, way) if n > 1 else 0.0
        total += relative_depth(length, average)
    return score_of_depth(total / trees.heads.size)


@kernel
def size_score_of_row(trees: Trees, x: Array, weights: Array, insides: Array, means: Array) -> float:
    """Score by log size in trees at rest."""
    leaves, depths = np.empty(trees.heads.size, np.uint32), np.empty(trees.heads.size, np.int64)
    way = new_way(find_leaves(trees, x, leaves, depths))
    total = 0.0
    for t in range(trees.heads.size):
        if tree_population(trees, t) > 1:
            total += excess_above(trees, t, leaves[t], x, weights, way, insides, means[t])
    return score_of_log_size(total / trees.heads.size)


@kernel
def sliding_size_score_of_row(trees: Trees, x: Array, weights: Array) -> float:
    """Score by log size over the level that each tree keeps, before the row is shown to the trees."""
    total = 0.0
    for t in range(trees.heads.size):
        level = trees.heads[t]["level"]
        if tree_population(trees, t) > 1 and not np.isnan(level):
            total += excess(trees, t, x, weights, level)
    return score_of_log_size(total / trees.heads.size)

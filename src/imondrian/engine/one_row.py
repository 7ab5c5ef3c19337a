"""The score of one row, without the set-up that pays off only for many rows.

The scores are equal, bit for bit, to those of the kernels for many rows. All trees are walked level by level
(`prefetch.find_leaves`), except in `window_size_score_of_row`. Walking one tree after the other takes 1.4 to 2.1 times
as long for `depth` (100 trees of 256 points, 2 to 25 features).
"""

import numpy as np

from imondrian.engine.average_path_length import average_path_length, relative_depth
from imondrian.engine.box_scores_live import excess_of_row
from imondrian.engine.box_scores_static import excess_from_leaf, expected_depth_from_leaf, new_path
from imondrian.engine.jit import Array, kernel
from imondrian.engine.nodes import Trees, slot_of, tree_population
from imondrian.engine.places import new_placed_row, placed_in_all_trees
from imondrian.engine.prefetch import find_leaves
from imondrian.engine.score_formula import score_of_depth, score_of_log_size


@kernel
def depth_score_of_row(trees: Trees, x: Array) -> float:
    """Return the score by path length."""
    leaves, depths = np.empty(trees.heads.size, np.uint32), np.empty(trees.heads.size, np.int64)
    find_leaves(trees, placed_in_all_trees(trees, x), leaves, depths)
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
    """Return the score by expected depth."""
    leaves, depths = np.empty(trees.heads.size, np.uint32), np.empty(trees.heads.size, np.int64)
    rows = placed_in_all_trees(trees, x)
    path = new_path(find_leaves(trees, rows, leaves, depths))
    step = int(rows.shape[0] > 1)
    total, n, average = 0.0, 0, 0.0
    for t in range(trees.heads.size):
        if tree_population(trees, t) != n:
            n = tree_population(trees, t)
            average = average_path_length(n)
        length = (
            expected_depth_from_leaf(trees, t, leaves[t], depths[t], rows[t * step], weights, path) if n > 1 else 0.0
        )
        total += relative_depth(length, average)
    return score_of_depth(total / trees.heads.size)


@kernel
def size_score_of_row(trees: Trees, x: Array, weights: Array, sums_above: Array, means: Array) -> float:
    """Return the score by log size in trees that do not change."""
    leaves, depths = np.empty(trees.heads.size, np.uint32), np.empty(trees.heads.size, np.int64)
    rows = placed_in_all_trees(trees, x)
    path = new_path(find_leaves(trees, rows, leaves, depths))
    step = int(rows.shape[0] > 1)
    total = 0.0
    for t in range(trees.heads.size):
        if tree_population(trees, t) > 1:
            total += excess_from_leaf(trees, t, leaves[t], rows[t * step], weights, path, sums_above, means[t])
    return score_of_log_size(total / trees.heads.size)


@kernel
def window_size_score_of_row(trees: Trees, x: Array, weights: Array) -> float:
    """Return the score by log size, relative to the typical log size stored in each tree; the row is not inserted."""
    total, row = 0.0, new_placed_row(trees)
    for t in range(trees.heads.size):
        typical_log_size = trees.heads[t]["typical_log_size"]
        if tree_population(trees, t) > 1 and not np.isnan(typical_log_size):
            total += excess_of_row(trees, t, x, weights, typical_log_size, row)
    return score_of_log_size(total / trees.heads.size)

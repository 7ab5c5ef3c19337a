"""Walk many trees level by level, so that cache misses overlap.

A single walk waits at every node for memory and for the comparison. If many walks advance in lockstep, all nodes of a
level are loaded at the same time. Tree numbers are unsigned here: a signed index would be compared with 0 at each step,
because negative ones count from the end.
"""

from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.jit import Array, allocating_helper, helper, prefetch, select
from imondrian.engine.nodes import Trees, shares_points

_LINE = 8  # floats in a cache line
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_LEAF = np.uint32(1)


@allocating_helper
def find_leaves(trees: Trees, rows: Array, leaves: Array, depths: Array) -> int:
    """Write, for every tree that holds points, the leaf of a row and its depth; return the greatest depth.

    The row is rows[t] in tree t or, if `rows` has only one row, rows[0] in all trees (`places.placed_in_all_trees`).
    """
    active, step = np.empty(trees.heads.size, np.uint64), np.uint64(rows.shape[0] > 1)
    n_active = _ZERO
    for t in range(trees.heads.size):
        leaves[t], depths[t] = trees.heads[t]["root"], 0
        active[n_active] = t
        n_active += np.uint64(trees.heads[t]["n_leaves"] > 1)
    depth = 0
    while n_active > _ZERO:
        depth += 1
        k = n_remaining = _ZERO
        while k < n_active:
            t = active[k]
            node = next_node(trees, t, leaves[t], rows[t * step])
            leaves[t], depths[t], active[n_remaining] = node, depth, t
            n_remaining += is_inner(node)  # without a branch, which the CPU could not predict
            k += _ONE
        n_active = n_remaining
    return depth


class Paths(NamedTuple):
    """Paths of rows in trees, with scratch space."""

    trees: Array
    rows: Array
    nodes: Array  # the current node of each path
    active: Array  # the paths that have not reached a leaf


@allocating_helper
def new_paths(n: int) -> Paths:
    """Allocate n paths, all of the first row in the first tree."""
    return Paths(np.zeros(n, np.uint64), np.zeros(n, np.uint64), np.empty(n, np.uint32), np.empty(n, np.uint64))


@helper
def prefetch_paths(trees: Trees, X: Array, paths: Paths, n_paths: int) -> None:
    """Prefetch all nodes on the first n_paths paths, so that the following work finds them in the cache."""
    n_active = _ZERO
    for i in range(n_paths):
        head = trees.heads[paths.trees[i]]
        paths.nodes[i], paths.active[n_active] = head["root"], i
        n_active += np.uint64(head["n_leaves"] > 1)
    while n_active > _ZERO:
        k = n_remaining = _ZERO
        while k < n_active:
            path = paths.active[k]
            t, node = paths.trees[path], paths.nodes[path]
            prefetch_box(trees, t, node)
            node = next_node(trees, t, node, X[paths.rows[path]])
            prefetch(trees.parents, np.int64(t * np.uint64(trees.parents.shape[1]) + np.uint64(node)))
            paths.nodes[path], paths.active[n_remaining] = node, path
            n_remaining += is_inner(node)
            k += _ONE
        n_active = n_remaining
    for i in range(n_paths):
        if trees.heads[paths.trees[i]]["n_leaves"] > 0:
            prefetch_point(trees, paths.trees[i], paths.nodes[i])


@helper
def next_node(trees: Trees, t: Any, node: Any, x: Array) -> Any:
    """Like `child_towards`, but by a conditional move: slower for a single walk, faster for many."""
    cut = trees.cuts[t, node >> _LEAF]
    return select(x[cut["split_feature"]] >= cut["split_value"], cut["right"], cut["left"])


@helper
def as_signed(t: Any) -> Any:
    """Convert a tree number to int64, as other functions expect; they would be compiled again for another type."""
    return np.int64(t)


@helper
def is_inner(node: Any) -> Any:
    """Return 1 for an inner node, 0 for a leaf."""
    return np.uint64(~node & _LEAF)


@helper
def prefetch_box(trees: Trees, t: Any, node: Any) -> None:
    """Prefetch the box of an inner node."""
    width = np.uint64(2 * trees.boxes.shape[3])
    first = np.int64((t * np.uint64(trees.boxes.shape[1]) + np.uint64(node >> _LEAF)) * width)
    for j in range(0, 2 * trees.boxes.shape[3], _LINE):
        prefetch(trees.boxes, first + j)


@helper
def prefetch_point(trees: Trees, t: Any, leaf: Any) -> None:
    """Prefetch the point of a leaf."""
    width = np.uint64(trees.points.shape[2])
    if shares_points(trees):
        first = np.int64(np.uint64(trees.rows[t, leaf >> _LEAF]) * width)
    else:
        first = np.int64((t * np.uint64(trees.points.shape[1]) + np.uint64(leaf >> _LEAF)) * width)
    for j in range(0, trees.points.shape[2], _LINE):
        prefetch(trees.points, first + j)

"""Ways down many trees at once, level by level, so that memory is waited for once and not in turn.

A single walk waits at every node for memory and for the comparison; of many walks that go on by turns, all nodes of a
level are on their way at the same time. Numbers of trees are unsigned here: signed ones would be checked at each step.
"""

from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.jit import Array, choice, fetch, helper, making_helper
from imondrian.engine.nodes import Trees

_LINE = 8  # numbers that come from memory at a time
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_LEAF = np.uint32(1)


@making_helper
def find_leaves(trees: Trees, x: Array, leaves: Array, depths: Array) -> int:
    """Write of every tree that holds points the leaf into which x falls, and its depth; give the greatest."""
    waiting = np.empty(trees.heads.size, np.uint64)
    n_waiting = _ZERO
    for t in range(trees.heads.size):
        leaves[t], depths[t] = trees.heads[t]["root"], 0
        waiting[n_waiting] = t
        n_waiting += np.uint64(trees.heads[t]["n_leaves"] > 1)
    depth = 0
    while n_waiting > _ZERO:
        depth += 1
        k = n_left = _ZERO
        while k < n_waiting:
            t = waiting[k]
            node = next_node(trees, t, leaves[t], x)
            leaves[t], depths[t], waiting[n_left] = node, depth, t
            n_left += is_inner(node)  # without a branch, since no processor can guess it
            k += _ONE
        n_waiting = n_left
    return depth


class Ways(NamedTuple):
    """Ways of rows in trees, and scratch paper for them."""

    trees: Array
    rows: Array
    nodes: Array  # where each is
    waiting: Array  # those not yet at a leaf


@making_helper
def new_ways(n: int) -> Ways:
    """Make room for n ways, of the first row in the first tree."""
    return Ways(np.zeros(n, np.uint64), np.zeros(n, np.uint64), np.empty(n, np.uint32), np.empty(n, np.uint64))


@helper
def fetch_ways(trees: Trees, X: Array, ways: Ways, n_ways: int) -> None:
    """Ask for all that lies on the first ways, so that the work that follows finds it in the cache."""
    n_waiting = _ZERO
    for i in range(n_ways):
        head = trees.heads[ways.trees[i]]
        ways.nodes[i], ways.waiting[n_waiting] = head["root"], i
        n_waiting += np.uint64(head["n_leaves"] > 1)
    while n_waiting > _ZERO:
        k = n_left = _ZERO
        while k < n_waiting:
            way = ways.waiting[k]
            t, node = ways.trees[way], ways.nodes[way]
            fetch_box(trees, t, node)
            node = next_node(trees, t, node, X[ways.rows[way]])
            fetch(trees.parents, np.int64(t * np.uint64(trees.parents.shape[1]) + np.uint64(node)))
            ways.nodes[way], ways.waiting[n_left] = node, way
            n_left += is_inner(node)
            k += _ONE
        n_waiting = n_left
    for i in range(n_ways):
        if trees.heads[ways.trees[i]]["n_leaves"] > 0:
            fetch_point(trees, ways.trees[i], ways.nodes[i])


@helper
def next_node(trees: Trees, t: Any, node: Any, x: Array) -> Any:
    """Do as `child_towards`, without a branch: slower for a single walk, faster for many."""
    cut = trees.cuts[t, node >> _LEAF]
    return choice(x[cut["split_feature"]] >= cut["split_value"], cut["right"], cut["left"])


@helper
def signed(t: Any) -> Any:
    """Give the number of a tree as all other functions take it: they would be compiled again for another type."""
    return np.int64(t)


@helper
def is_inner(node: Any) -> Any:
    """Give 1 for an inner node, 0 for a leaf."""
    return np.uint64(~node & _LEAF)


@helper
def fetch_box(trees: Trees, t: Any, node: Any) -> None:
    """Ask for the box of an inner node."""
    width = np.uint64(2 * trees.boxes.shape[3])
    first = np.int64((t * np.uint64(trees.boxes.shape[1]) + np.uint64(node >> _LEAF)) * width)
    for j in range(0, 2 * trees.boxes.shape[3], _LINE):
        fetch(trees.boxes, first + j)


@helper
def fetch_point(trees: Trees, t: Any, leaf: Any) -> None:
    """Ask for the point of a leaf."""
    width = np.uint64(trees.points.shape[2])
    first = np.int64((t * np.uint64(trees.points.shape[1]) + np.uint64(leaf >> _LEAF)) * width)
    for j in range(0, trees.points.shape[2], _LINE):
        fetch(trees.points, first + j)

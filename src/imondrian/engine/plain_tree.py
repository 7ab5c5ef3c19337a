"""One tree as plain arrays, to inspect or to plot."""

from typing import NamedTuple

import numpy as np

from imondrian.engine.jit import Array
from imondrian.engine.nodes import LOWER, NO_NODE, UPPER, Trees, slice_trees, with_own_points


class Tree(NamedTuple):
    """A copy of a tree. Nodes are numbered breadth first, so the root is node 0; -1 means "none"."""

    parent: Array
    left: Array
    right: Array
    depth: Array
    population: Array
    split_feature: Array  # the coordinate that is cut; -1 in a leaf
    split_value: Array  # NaN in a leaf; x < split_value goes left
    split_time: Array  # infinite in a leaf
    lower: Array  # the tight box, n_nodes x n_coordinates
    upper: Array


def plain_tree(trees: Trees, t: int) -> Tree:
    """Copy tree t to plain arrays."""
    own_points = with_own_points(slice_trees(trees, slice(t, t + 1))).points[0]
    cuts, (node, depth) = trees.cuts[t], _breadth_first(trees, t)
    number = np.full(trees.parents.shape[1], -1)
    number[node] = np.arange(node.size)
    is_leaf, slot = node & 1 == 1, node >> 1

    def by_node_kind(in_leaf: float | Array, in_inner: Array) -> Array:
        return np.where(is_leaf if in_inner.ndim == 1 else is_leaf[:, None], in_leaf, in_inner)

    above, points = trees.parents[t, node], own_points[slot, : trees.boxes.shape[3]]
    return Tree(
        parent=np.where(above == NO_NODE, -1, number[np.where(above == NO_NODE, 0, above)]),
        left=by_node_kind(-1, number[cuts["left"][slot]]),
        right=by_node_kind(-1, number[cuts["right"][slot]]),
        depth=depth,
        population=by_node_kind(trees.copies[t, slot], cuts["population"][slot]).astype(np.int64),
        split_feature=by_node_kind(-1, cuts["split_feature"][slot].astype(np.int64)),
        split_value=by_node_kind(np.nan, cuts["split_value"][slot]),
        split_time=by_node_kind(np.inf, cuts["split_time"][slot]),
        lower=by_node_kind(points, trees.boxes[t, slot, LOWER]),
        upper=by_node_kind(points, trees.boxes[t, slot, UPPER]),
    )


def _breadth_first(trees: Trees, t: int) -> tuple[Array, Array]:
    """Return the nodes level by level, and the level of each."""
    levels = [trees.heads["root"][t : t + 1]] if trees.heads[t]["n_leaves"] > 0 else []
    while levels and levels[-1].size > 0:
        inner = trees.cuts[t, levels[-1][levels[-1] & 1 == 0] >> 1]
        levels.append(np.stack([inner["left"], inner["right"]], axis=1).ravel())
    depth = np.repeat(np.arange(len(levels)), [level.size for level in levels])
    return np.concatenate([np.empty(0, np.uint32), *levels]), depth

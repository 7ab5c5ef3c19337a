"""Forget a point: the inverse of extend. Afterwards the tree is distributed as if the point had never been there."""

from imondrian.engine.boxes import shrink
from imondrian.engine.jit import Array, helper
from imondrian.engine.nodes import (
    NO_NODE,
    Trees,
    clear_leaf,
    free_slots,
    point_index,
    replace_in_parent,
    sibling,
    slot_of,
)


@helper
def forget(trees: Trees, t: int, leaf: int) -> None:
    """Remove one point of the leaf from tree t.

    The leaf's sibling takes the place of their parent, and the boxes above shrink: a Mondrian tree restricted to fewer
    points is a Mondrian tree. This step is not in the paper.
    """
    parent = trees.parents[t, leaf]
    if trees.copies[t, slot_of(leaf)] > 1:
        trees.copies[t, slot_of(leaf)] -= 1
        decrement_populations(trees, t, parent)
    elif parent == NO_NODE:
        remove_last_point(trees, t)
    else:
        grandparent = trees.parents[t, parent]
        replace_in_parent(trees, t, parent, sibling(trees, t, leaf))
        shrink_ancestors(trees, t, grandparent, trees.points[point_index(trees, t, slot_of(leaf))])
        decrement_populations(trees, t, grandparent)
        free_slots(trees, t, leaf, parent)


@helper
def decrement_populations(trees: Trees, t: int, node: int) -> None:
    """Subtract one point from the node and all its ancestors."""
    while node != NO_NODE:
        trees.cuts[t, slot_of(node)]["population"] -= 1
        node = trees.parents[t, node]


@helper
def shrink_ancestors(trees: Trees, t: int, node: int, x: Array) -> None:
    """Shrink the boxes of the node and its ancestors after x was removed, up to the first box that does not change."""
    while node != NO_NODE and shrink(trees, t, node, x):
        node = trees.parents[t, node]


@helper
def remove_last_point(trees: Trees, t: int) -> None:
    """Empty a tree that consists of a single leaf."""
    clear_leaf(trees, t, trees.heads[t]["root"])
    trees.heads[t]["root"] = NO_NODE
    trees.heads[t]["n_leaves"] = 0

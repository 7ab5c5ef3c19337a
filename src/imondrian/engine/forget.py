"""Forget a point: the mirror image of extend, after which the tree is distributed as if it had never been there."""

from imondrian.engine.boxes import shrink
from imondrian.engine.jit import Array, helper
from imondrian.engine.nodes import NO_NODE, Trees, put_in_place, release, sibling, slot_of, wipe_leaf


@helper
def forget(trees: Trees, t: int, leaf: int) -> None:
    """Remove one point of the leaf from tree t.

    A Mondrian tree restricted to fewer points is a Mondrian tree: the leaf's sibling takes the place of their
    parent, and the boxes above shrink. The paper has no such step; it is ours.
    """
    above = trees.parents[t, leaf]
    if trees.copies[t, slot_of(leaf)] > 1:
        trees.copies[t, slot_of(leaf)] -= 1
        count_down(trees, t, above)
    elif above == NO_NODE:
        uproot(trees, t)
    else:
        higher = trees.parents[t, above]
        put_in_place(trees, t, above, sibling(trees, t, leaf))
        shrink_above(trees, t, higher, trees.points[t, slot_of(leaf)])
        count_down(trees, t, higher)
        release(trees, t, leaf, above)


@helper
def count_down(trees: Trees, t: int, node: int) -> None:
    """Count one point less in the node and all above it."""
    while node != NO_NODE:
        trees.cuts[t, slot_of(node)]["population"] -= 1
        node = trees.parents[t, node]


@helper
def shrink_above(trees: Trees, t: int, node: int, x: Array) -> None:
    """Tighten the boxes that x has left, from the node upwards; above one that stays as it is, all stay."""
    while node != NO_NODE and shrink(trees, t, node, x):
        node = trees.parents[t, node]


@helper
def uproot(trees: Trees, t: int) -> None:
    """Empty a tree that is a single leaf."""
    wipe_leaf(trees, t, trees.heads[t]["root"])
    trees.heads[t]["root"] = NO_NODE
    trees.heads[t]["n_leaves"] = 0

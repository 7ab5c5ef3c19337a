"""The node table: what a forest's trees consist of, declared once, and how nodes are linked.

Trees lie side by side in shared arrays. A tree of k distinct points has k leaves in the leaf slots 0..k-1 and
k - 1 inner nodes in the inner slots 0..k-2: the slots stay dense, a freed one is filled by the last.
A node is named by one number: 2 * slot for an inner node, 2 * slot + 1 for a leaf.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.jit import Array, helper

NO_NODE = np.uint32(0xFFFFFFFF)
MAX_POINTS = 2**31 - 2  # in one tree: node numbers and populations fit in 32 bits
MAX_SHOWN = 2**53  # points in all that a forest can be shown: counts stay exact, also as float64
NO_LIMIT = 2**62  # as the size of a sample: it takes every point
MAX_SIZE = 1e153  # of a value: squares and spans stay far from overflow
LOWER, UPPER = 0, 1
_ONE = np.uint32(1)

CUT = np.dtype(
    [
        ("split_time", np.float64),  # when the cut happens, not before its parent's
        ("split_value", np.float64),  # x < split_value goes left
        ("left", np.uint32),
        ("right", np.uint32),
        ("split_feature", np.uint32),
        ("population", np.uint32),  # points below, copies counted
    ]
)
HEAD = np.dtype(
    [
        ("stream", np.uint64),  # the state of its random numbers
        ("n_leaves", np.int64),
        ("root", np.uint32),  # NO_NODE in an empty tree
        # what the tree has been shown, see remember.py
        ("n_points", np.int64),  # shown and not forgotten
        ("n_owed", np.int64),  # forgotten, and not yet made up for by a new point
        ("next_kept", np.int64),  # number of the next point that a full sample takes
        ("log_key", np.float64),  # log of the largest key in a full sample
        # what it has taken from a window, see window.py
        ("next_number", np.int64),  # of the point it is to be shown next
        ("lot", np.uint64),  # what its choice among the points of a window hangs on
        ("n_taken", np.int64),  # points taken so far
        ("n_outside", np.int64),  # those of them that lay outside its root box
        ("level", np.float64),  # mean log size of its points at the window's last step; NaN where not kept up
    ]
)


class Field(NamedTuple):
    """One array of the table: its type and its axes (the name of a size, or a number). Unused slots are zero."""

    dtype: np.dtype[Any]
    axes: tuple[str | int, ...]


FIELDS = {
    # of an inner node
    "cuts": Field(CUT, ("tree", "slot")),
    "boxes": Field(np.dtype(np.float64), ("tree", "slot", 2, "feature")),  # LOWER and UPPER, tight
    # of a leaf
    "points": Field(np.dtype(np.float64), ("tree", "slot", "feature")),  # its box
    "copies": Field(np.dtype(np.uint32), ("tree", "slot")),  # its population
    # of both, by node number
    "parents": Field(np.dtype(np.uint32), ("tree", "node")),  # NO_NODE above the root
    # of a tree
    "heads": Field(HEAD, ("tree",)),
}


class Trees(NamedTuple):
    """The arrays of FIELDS; kernels take it with the number t of a tree."""

    cuts: Array
    boxes: Array
    points: Array
    copies: Array
    parents: Array
    heads: Array


def shape_of(field: Field, n_trees: int, n_slots: int, n_features: int) -> tuple[int, ...]:
    """Give the shape of a field's array."""
    sizes = {"tree": n_trees, "slot": n_slots, "node": 2 * n_slots, "feature": n_features}
    return tuple(axis if isinstance(axis, int) else sizes[axis] for axis in field.axes)


def empty_trees(n_trees: int, n_slots: int, n_features: int) -> Trees:
    """Make trees without points; memory is touched only when a slot is used."""
    fields = FIELDS.values()
    trees = Trees(*(np.zeros(shape_of(field, n_trees, n_slots, n_features), field.dtype) for field in fields))
    trees.heads["root"] = NO_NODE
    trees.heads["level"] = np.nan
    return trees


def resized(trees: Trees, n_slots: int, n_features: int | None = None) -> Trees:
    """Copy the trees into tables with room for n_slots leaves each, at least those in use.

    Features that are new are 0 in all points.
    """
    for name in FIELDS:
        trees = with_room(trees, name, n_slots, n_features)
    return trees


def with_room(trees: Trees, name: str, n_slots: int, n_features: int | None = None) -> Trees:
    """Replace one array by a copy with room for n_slots leaves in each tree, at least those in use."""
    n_trees, n_known = trees.heads.size, trees.boxes.shape[3] if name == "boxes" else trees.points.shape[2]
    used = int(trees.heads["n_leaves"].max(initial=0))
    new = np.zeros(shape_of(FIELDS[name], n_trees, n_slots, n_features or n_known), FIELDS[name].dtype)
    kept = tuple(slice(length) for length in shape_of(FIELDS[name], n_trees, used, n_known))
    new[kept] = getattr(trees, name)[kept]
    return trees._replace(**{name: new})


def part(trees: Trees, some: slice) -> Trees:
    """Show some of the trees alone; changes reach the whole."""
    if some.start is None and some.stop is None:
        return trees
    return Trees(*(array[some] for array in trees))


def joined(parts: Sequence[Trees]) -> Trees:
    """Put the trees of all parts side by side."""
    n_slots = max(part.points.shape[1] for part in parts)
    arrays = zip(*(resized(part, n_slots) for part in parts), strict=True)
    return Trees(*(np.concatenate(some) for some in arrays))


@helper
def is_leaf(node: int) -> bool:
    """Tell whether the node is a leaf."""
    return node & _ONE == _ONE


@helper
def slot_of(node: int) -> Any:
    """Give the slot of a node among those of its kind."""
    return node >> _ONE


@helper
def inner_node(slot: int) -> Any:
    """Name the inner node in a slot."""
    return np.uint32(2 * slot)


@helper
def leaf_node(slot: int) -> Any:
    """Name the leaf in a slot."""
    return np.uint32(2 * slot + 1)


@helper
def population(trees: Trees, t: int, node: int) -> int:
    """Count the points below a node, copies included."""
    if is_leaf(node):
        return trees.copies[t, slot_of(node)]
    return trees.cuts[t, slot_of(node)]["population"]


@helper
def tree_population(trees: Trees, t: int) -> int:
    """Count the points that tree t holds."""
    return int(population(trees, t, trees.heads[t]["root"])) if trees.heads[t]["n_leaves"] > 0 else 0


@helper
def child_towards(trees: Trees, t: int, node: int, x: Array) -> Any:
    """Give the child of an inner node into which x falls: left if x[q] < p (the one rule everywhere)."""
    cut = trees.cuts[t, slot_of(node)]
    goes_right = np.int64(x[cut["split_feature"]] >= cut["split_value"])
    return np.uint32(cut["left"] ^ ((cut["left"] ^ cut["right"]) & np.uint32(-goes_right)))  # one type for all nodes


@helper
def leaf_towards(trees: Trees, t: int, x: Array) -> int:
    """Give the leaf into which x falls."""
    node = trees.heads[t]["root"]
    while not is_leaf(node):
        node = child_towards(trees, t, node, x)
    return node


@helper
def is_point_of(trees: Trees, t: int, leaf: int, x: Array) -> bool:
    """Tell whether x is a copy of the leaf's point."""
    slot = slot_of(leaf)
    for j in range(x.size):
        if trees.points[t, slot, j] != x[j]:
            return False
    return True


@helper
def sibling(trees: Trees, t: int, node: int) -> int:
    """Give the other child of the node's parent."""
    cut = trees.cuts[t, slot_of(trees.parents[t, node])]
    return cut["right"] if cut["left"] == node else cut["left"]


@helper
def new_leaf(trees: Trees, t: int, slot: int, x: Array, n_copies: int) -> int:
    """Put n_copies of x into a free leaf slot."""
    trees.heads[t]["n_leaves"] += 1
    trees.copies[t, slot] = n_copies
    for j in range(x.size):
        trees.points[t, slot, j] = x[j]
    return leaf_node(slot)


@helper
def move_leaf(trees: Trees, t: int, old: int, new: int) -> None:
    """Move a leaf to another slot; the old one is left as it is."""
    put_in_place(trees, t, old, new)
    trees.copies[t, slot_of(new)] = trees.copies[t, slot_of(old)]
    for j in range(trees.points.shape[2]):
        trees.points[t, slot_of(new), j] = trees.points[t, slot_of(old), j]


@helper
def put_in_place(trees: Trees, t: int, old: int, new: int) -> None:
    """Hang the node `new` where `old` hangs: below its parent, or as the root."""
    above = trees.parents[t, old]
    trees.parents[t, new] = above
    if above == NO_NODE:
        trees.heads[t]["root"] = new
    else:
        cut = trees.cuts[t, slot_of(above)]
        if cut["left"] == old:
            cut["left"] = new
        else:
            cut["right"] = new


@helper
def release(trees: Trees, t: int, leaf: int, inner: int) -> None:
    """Free the slots of a leaf and an inner node that hang nowhere; the last of each kind move in."""
    last_leaf = leaf_node(trees.heads[t]["n_leaves"] - 1)
    last_inner = inner_node(trees.heads[t]["n_leaves"] - 2)
    if leaf != last_leaf:
        move_leaf(trees, t, last_leaf, leaf)
    if inner != last_inner:
        put_in_place(trees, t, last_inner, inner)
        cut = trees.cuts[t, slot_of(last_inner)]
        trees.cuts[t, slot_of(inner)] = cut
        for j in range(trees.points.shape[2]):
            trees.boxes[t, slot_of(inner), LOWER, j] = trees.boxes[t, slot_of(last_inner), LOWER, j]
            trees.boxes[t, slot_of(inner), UPPER, j] = trees.boxes[t, slot_of(last_inner), UPPER, j]
        trees.parents[t, cut["left"]] = inner
        trees.parents[t, cut["right"]] = inner
    wipe(trees, t, last_leaf, last_inner)
    trees.heads[t]["n_leaves"] -= 1


@helper
def wipe(trees: Trees, t: int, leaf: int, inner: int) -> None:
    """Zero the slots of a leaf and an inner node, so that nothing of a forgotten point stays."""
    wipe_leaf(trees, t, leaf)
    cut = trees.cuts[t, slot_of(inner)]
    cut["split_time"] = 0.0
    cut["split_value"] = 0.0
    cut["left"] = 0
    cut["right"] = 0
    cut["split_feature"] = 0
    cut["population"] = 0
    trees.parents[t, inner] = 0
    for j in range(trees.points.shape[2]):
        trees.boxes[t, slot_of(inner), LOWER, j] = 0.0
        trees.boxes[t, slot_of(inner), UPPER, j] = 0.0


@helper
def wipe_leaf(trees: Trees, t: int, leaf: int) -> None:
    """Zero the slot of a leaf."""
    trees.copies[t, slot_of(leaf)] = 0
    trees.parents[t, leaf] = 0
    for j in range(trees.points.shape[2]):
        trees.points[t, slot_of(leaf), j] = 0.0

"""The node table: the arrays that hold the trees of a forest, and how nodes are linked.

All trees share these arrays. A tree of k distinct points has k leaves in the leaf slots 0..k-1 and k - 1 inner nodes
in the inner slots 0..k-2. There are no gaps: a freed slot is filled by the last node of its kind. A node is identified
by one number: 2 * slot for an inner node, 2 * slot + 1 for a leaf.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.jit import Array, helper

NO_NODE = np.uint32(0xFFFFFFFF)
MAX_POINTS = 2**31 - 2  # largest number of points in a tree: node numbers and populations fit in 32 bits
MAX_COUNT = 2**53  # largest count, such as that of the points shown to a forest: exact, also as float64
NO_LIMIT = 2**62  # sample size of a tree that holds every point
MAX_VALUE = 1e153  # largest absolute value of a feature: squares and extents stay far from overflow
LOWER, UPPER = 0, 1
_ONE = np.uint32(1)

CUT = np.dtype(
    [
        ("split_time", np.float64),  # not before that of the parent
        ("split_value", np.float64),  # x < split_value goes left
        ("left", np.uint32),
        ("right", np.uint32),
        ("split_feature", np.uint32),
        ("population", np.uint32),  # number of points below, including copies
    ]
)
HEAD = np.dtype(
    [
        ("stream", np.uint64),  # state of the random number generator
        ("n_leaves", np.int64),
        ("root", np.uint32),  # NO_NODE in an empty tree
        # state of the tree's sample, see reservoir.py
        ("n_points", np.int64),  # number of points shown and not forgotten
        ("n_owed", np.int64),  # forgotten points not yet replaced by new ones
        ("next_kept", np.int64),  # value of n_points at which a full sample accepts the next point
        ("log_key", np.float64),  # log of the largest key in a full sample
        # state of the tree's part of a window, see window.py
        ("next_number", np.int64),  # index (arrival order) of the next point it will be shown
        # the key of all hashes of the tree, which determine the points of a window that it holds, the places of
        # categories, random draws of expected values, and samples of distributed fitting
        ("hash_key", np.uint64),
        ("n_taken", np.int64),  # number of points inserted so far
        ("n_outside", np.int64),  # number of inserted points that lay outside the root box
        # mean log size of the cells of the tree's points, at the window's last step; NaN if not maintained
        ("typical_log_size", np.float64),
    ]
)


class Field(NamedTuple):
    """One array of the table: its type and its axes (names of sizes, or numbers). Unused slots are zero."""

    dtype: np.dtype[Any]
    axes: tuple[str | int, ...]


FIELDS = {
    # for each inner node
    "cuts": Field(CUT, ("tree", "slot")),
    "boxes": Field(np.dtype(np.float64), ("tree", "slot", 2, "coordinate")),  # LOWER and UPPER, tight
    # for each leaf
    "points": Field(np.dtype(np.float64), ("tree", "slot", "value")),  # see `Trees`
    "copies": Field(np.dtype(np.uint32), ("tree", "slot")),  # the number of copies of the point: the population
    # for each node, by node number
    "parents": Field(np.dtype(np.uint32), ("tree", "node")),  # NO_NODE for the root
    # for each tree
    "heads": Field(HEAD, ("tree",)),
    # for each leaf, but only in trees that share their points: the row of the point; see `sharing_trees`
    "rows": Field(np.dtype(np.uint32), ("tree", 0)),
}
_NO_ROWS = np.empty((0, 0), FIELDS["rows"].dtype)


class Trees(NamedTuple):
    """The arrays of FIELDS. Most helpers that take them also take the index t of a tree; kernels do not.

    A point consists of its coordinates, which are also the box of its leaf, and the codes of its categories; see
    `places.py`.
    """

    cuts: Array
    boxes: Array
    points: Array
    copies: Array
    parents: Array
    heads: Array
    rows: Array = _NO_ROWS


def shape_of(field: Field, n_trees: int, n_slots: int, n_coordinates: int, n_categorical: int = 0) -> tuple[int, ...]:
    """Return the shape of a field's array."""
    sizes = {
        "tree": n_trees,
        "slot": n_slots,
        "node": 2 * n_slots,
        "coordinate": n_coordinates,
        "value": n_coordinates + n_categorical,
    }
    return tuple(axis if isinstance(axis, int) else sizes[axis] for axis in field.axes)


def table_bytes(n_trees: int, n_slots: int, n_coordinates: int, n_categorical: int = 0) -> int:
    """Return the size of the whole table in bytes."""
    sizes = (n_trees, n_slots, n_coordinates, n_categorical)
    return sum(math.prod(shape_of(field, *sizes)) * field.dtype.itemsize for field in FIELDS.values())


def empty_trees(n_trees: int, n_slots: int, n_coordinates: int, n_categorical: int = 0) -> Trees:
    """Return trees without points. The memory of a slot is not touched until the slot is used."""
    sizes = (n_trees, n_slots, n_coordinates, n_categorical)
    trees = Trees(*(np.zeros(shape_of(field, *sizes), field.dtype) for field in FIELDS.values()))
    trees.heads["root"] = NO_NODE
    trees.heads["typical_log_size"] = np.nan
    return trees


def shared_bytes(n_trees: int, n_slots: int, n_coordinates: int, n_rows: int) -> int:
    """Return the size of the table in bytes if the trees share n_rows points."""
    n_point_bytes = FIELDS["points"].dtype.itemsize * n_coordinates
    n_saved_per_slot = n_point_bytes - FIELDS["rows"].dtype.itemsize
    return table_bytes(n_trees, n_slots, n_coordinates) + n_rows * n_point_bytes - n_trees * n_slots * n_saved_per_slot


def sharing_trees(trees: Trees, n_rows: int) -> Trees:
    """Return trees like these whose leaves refer to rows of one table of n_rows points, all zero so far.

    The point of a leaf is then points[0, rows[t, slot]] instead of points[t, slot]; see `point_index`. This takes less
    memory. With categories it is impossible, because a point has other coordinates in each tree (see `places.py`). A
    row must not change while a leaf refers to it: see `window.py`. Only trees of a window share points, and only in
    memory: in files and fleets, all trees have points of their own. Other arrays are not copied.
    """
    points = np.zeros((1, n_rows, trees.points.shape[2]))
    return trees._replace(points=points, rows=np.zeros(trees.copies.shape, FIELDS["rows"].dtype))


def with_own_points(trees: Trees) -> Trees:
    """Return trees like these with points of their own; arrays besides the points are not copied."""
    if trees.rows.shape[1] == 0:
        return trees
    points = trees.points[0, trees.rows]
    points[np.arange(points.shape[1]) >= trees.heads["n_leaves"][:, None]] = 0.0
    return trees._replace(points=points, rows=trees.rows[:, :0].copy())


def resized(trees: Trees, n_slots: int) -> Trees:
    """Return a copy of the trees with n_slots slots per tree; n_slots must be at least the number in use."""
    for name in FIELDS:
        trees = with_capacity(trees, name, n_slots)
    return trees


def with_capacity(trees: Trees, name: str, n_slots: int) -> Trees:
    """Replace one array by a copy with n_slots slots per tree; n_slots must be at least the number in use."""
    field, n_used = FIELDS[name], int(trees.heads["n_leaves"].max(initial=0))
    n_coordinates, n_values = trees.boxes.shape[3], trees.points.shape[2]
    widths = (n_coordinates, n_values - n_coordinates)
    if name == "rows" and trees.rows.shape[1] == 0:
        return trees._replace(rows=np.zeros(shape_of(field, trees.heads.size, n_slots, *widths), field.dtype))
    if name == "rows":
        field = FIELDS["copies"]  # the same type, and one item per slot
    if name == "points" and trees.rows.shape[1] > 0:
        return trees
    new = np.zeros(shape_of(field, trees.heads.size, n_slots, *widths), field.dtype)
    used = tuple(slice(length) for length in shape_of(field, trees.heads.size, n_used, *widths))
    new[used] = getattr(trees, name)[used]
    return trees._replace(**{name: new})


def slice_trees(trees: Trees, part: slice) -> Trees:
    """Return a view of a slice of the trees; changes to the view change the trees."""
    if part.start is None and part.stop is None:
        return trees
    parts = Trees(*(array[part] for array in trees))
    return parts if trees.rows.shape[1] == 0 else parts._replace(points=trees.points)


def joined(parts: Sequence[Trees]) -> Trees:
    """Concatenate the trees of all parts, which have points of their own."""
    n_slots = max(part.points.shape[1] for part in parts)
    arrays_by_field = zip(*(resized(part, n_slots) for part in parts), strict=True)
    return Trees(*(np.concatenate(arrays) for arrays in arrays_by_field))


@helper
def is_leaf(node: int) -> bool:
    """Return True if the node is a leaf."""
    return node & _ONE == _ONE


@helper
def slot_of(node: int) -> Any:
    """Return the slot of a node among the nodes of its kind."""
    return node >> _ONE


@helper
def inner_node(slot: int) -> Any:
    """Return the number of the inner node in a slot."""
    return np.uint32(2 * slot)


@helper
def leaf_node(slot: int) -> Any:
    """Return the number of the leaf in a slot."""
    return np.uint32(2 * slot + 1)


@helper
def population(trees: Trees, t: int, node: int) -> int:
    """Return the number of points below a node, including copies."""
    if is_leaf(node):
        return trees.copies[t, slot_of(node)]
    return trees.cuts[t, slot_of(node)]["population"]


@helper
def tree_population(trees: Trees, t: int) -> int:
    """Return the number of points that tree t holds."""
    return int(population(trees, t, trees.heads[t]["root"])) if trees.heads[t]["n_leaves"] > 0 else 0


@helper
def child_towards(trees: Trees, t: int, node: int, x: Array) -> Any:
    """Return the child of an inner node into which x falls: left if x[split_feature] < split_value.

    All code uses this rule.
    """
    cut = trees.cuts[t, slot_of(node)]
    goes_right = np.int64(x[cut["split_feature"]] >= cut["split_value"])
    return np.uint32(cut["left"] ^ ((cut["left"] ^ cut["right"]) & np.uint32(-goes_right)))  # always uint32


@helper
def leaf_towards(trees: Trees, t: int, x: Array) -> int:
    """Return the leaf into which x falls."""
    node = trees.heads[t]["root"]
    while not is_leaf(node):
        node = child_towards(trees, t, node, x)
    return node


@helper
def shares_points(trees: Trees) -> bool:
    """Return True if the leaves of the trees refer to a table of points."""
    return trees.rows.shape[1] > 0


@helper
def point_index(trees: Trees, t: int, slot: int) -> tuple[Any, Any]:
    """Return the index of the point in a leaf slot: trees.points[point_index(trees, t, slot)] is a view of it."""
    if shares_points(trees):
        return np.uint64(0), np.uint64(trees.rows[t, slot])
    return np.uint64(t), np.uint64(slot)


@helper
def is_point_of(trees: Trees, t: int, leaf: int, x: Array) -> bool:
    """Return True if x equals the leaf's point."""
    point = trees.points[point_index(trees, t, slot_of(leaf))]
    for j in range(trees.boxes.shape[3]):
        if point[j] != x[j]:
            return False
    return True


@helper
def sibling(trees: Trees, t: int, node: int) -> int:
    """Return the other child of the node's parent."""
    cut = trees.cuts[t, slot_of(trees.parents[t, node])]
    return cut["right"] if cut["left"] == node else cut["left"]


@helper
def new_leaf(trees: Trees, t: int, slot: int, x: Array, n_copies: int) -> int:
    """Create a leaf of n_copies of x in a free slot; if points are shared, the slot already has the row of x."""
    trees.heads[t]["n_leaves"] += 1
    trees.copies[t, slot] = n_copies
    point = trees.points[point_index(trees, t, slot)]
    for j in range(x.size):
        point[j] = x[j]
    return leaf_node(slot)


@helper
def move_leaf(trees: Trees, t: int, old: int, new: int) -> None:
    """Copy a leaf to another slot and link it there; the old slot is not cleared."""
    replace_in_parent(trees, t, old, new)
    trees.copies[t, slot_of(new)] = trees.copies[t, slot_of(old)]
    if shares_points(trees):
        trees.rows[t, slot_of(new)] = trees.rows[t, slot_of(old)]
        return
    for j in range(trees.points.shape[2]):
        trees.points[t, slot_of(new), j] = trees.points[t, slot_of(old), j]


@helper
def replace_in_parent(trees: Trees, t: int, old: int, new: int) -> None:
    """Make `new` the child of old's parent in place of `old`, or the root if `old` is the root."""
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
def free_slots(trees: Trees, t: int, leaf: int, inner: int) -> None:
    """Free the slots of an unlinked leaf and an unlinked inner node; the last node of each kind moves there."""
    last_leaf = leaf_node(trees.heads[t]["n_leaves"] - 1)
    last_inner = inner_node(trees.heads[t]["n_leaves"] - 2)
    if leaf != last_leaf:
        move_leaf(trees, t, last_leaf, leaf)
    if inner != last_inner:
        replace_in_parent(trees, t, last_inner, inner)
        cut = trees.cuts[t, slot_of(last_inner)]
        trees.cuts[t, slot_of(inner)] = cut
        for j in range(trees.boxes.shape[3]):
            trees.boxes[t, slot_of(inner), LOWER, j] = trees.boxes[t, slot_of(last_inner), LOWER, j]
            trees.boxes[t, slot_of(inner), UPPER, j] = trees.boxes[t, slot_of(last_inner), UPPER, j]
        trees.parents[t, cut["left"]] = inner
        trees.parents[t, cut["right"]] = inner
    clear_slots(trees, t, last_leaf, last_inner)
    trees.heads[t]["n_leaves"] -= 1


@helper
def clear_slots(trees: Trees, t: int, leaf: int, inner: int) -> None:
    """Zero the slots of a leaf and an inner node, so that no trace of a forgotten point remains."""
    clear_leaf(trees, t, leaf)
    cut = trees.cuts[t, slot_of(inner)]
    cut["split_time"] = 0.0
    cut["split_value"] = 0.0
    cut["left"] = 0
    cut["right"] = 0
    cut["split_feature"] = 0
    cut["population"] = 0
    trees.parents[t, inner] = 0
    for j in range(trees.boxes.shape[3]):
        trees.boxes[t, slot_of(inner), LOWER, j] = 0.0
        trees.boxes[t, slot_of(inner), UPPER, j] = 0.0


@helper
def clear_leaf(trees: Trees, t: int, leaf: int) -> None:
    """Zero the slot of a leaf."""
    trees.copies[t, slot_of(leaf)] = 0
    trees.parents[t, leaf] = 0
    if shares_points(trees):
        trees.rows[t, slot_of(leaf)] = 0
        return
    for j in range(trees.points.shape[2]):
        trees.points[t, slot_of(leaf), j] = 0.0

"""Trees in model files of version 3: each distinct point is stored once; boxes and populations are recomputed."""

import os

import numpy as np

from imondrian.engine.compiled_invariants import NONE
from imondrian.engine.finite import all_within_limit
from imondrian.engine.jit import Array
from imondrian.engine.nodes import HEAD, Trees, empty_trees
from imondrian.engine.places import coded_points
from imondrian.engine.point_numbers import number_points
from imondrian.engine.rebuild import PROBLEMS, SOUND, rebuild_trees
from imondrian.forest.samplers.sampler import ANY
from imondrian.models.full_trees import TableSizes, array_name
from imondrian.models.member_arrays import Layout, narrowest

MAX_EXPANSION = 512  # the trees in memory may be at most this many times as large as the file
_FLOAT, _POSITION = np.dtype(np.float64), np.dtype(np.int64)
_NEGATIVE_ZERO = np.float64(-0.0).view(np.uint64)
_CUT_COLUMNS = {"split_time": _FLOAT, "split_value": _FLOAT, "left": None, "right": None, "split_feature": None}


def pack(trees: Trees, n_slots: int, ring: Array | None) -> dict[str, Array]:
    """Return the arrays to be written for the first n_slots slots of each tree, by name. They are copies.

    `ring` contains the points of the window, if there is one. Indices and counts have the smallest type that fits.
    """
    coded = np.ascontiguousarray(coded_points(trees, trees.points))
    ring_rows = np.empty((0, coded.shape[2])) if ring is None else ring
    leaves, first_leaf = np.zeros(coded.shape[:2], np.int64), np.empty(coded.shape[0] * coded.shape[1], np.int64)
    n_leaves, key = np.ascontiguousarray(trees.heads["n_leaves"]), np.uint64(int.from_bytes(os.urandom(8)))
    n_points = number_points(coded.view(np.uint64), n_leaves, ring_rows.view(np.uint64), key, leaves, first_leaf)
    points = coded.reshape(-1, coded.shape[2])[first_leaf[:n_points]]
    arrays = {array_name("heads", name): trees.heads[name].copy() for name in HEAD.names or ()}
    for name, dtype in _CUT_COLUMNS.items():
        column = trees.cuts[name][:, :n_slots]
        arrays[array_name("cuts", name)] = narrowest(column) if dtype is None else column.copy()
    copies = narrowest(trees.copies[:, :n_slots])
    arrays |= {"points": points, "leaves": narrowest(leaves[:, :n_slots]), "copies": copies}
    return arrays | {"negative_zeros": _negative_zeros(trees.boxes[:, :n_slots], points, ring_rows)}


def _negative_zeros(boxes: Array, points: Array, ring: Array) -> Array:
    """Return the positions of all bounds that are -0.0 in the flattened boxes.

    Bounds are computed from the points when a file is read, except for the signs of zeros: 0.0 and -0.0 are equal, so
    either of them can be the bound.
    """
    if not any((rows.view(np.uint64) == _NEGATIVE_ZERO).any() for rows in (points, ring)):
        return np.empty(0, _POSITION)
    return np.flatnonzero(boxes.view(np.uint64) == _NEGATIVE_ZERO).astype(_POSITION)


def layouts(sizes: TableSizes) -> dict[str, Layout]:
    """Return the shapes and types of the arrays that `pack` returns, by name."""
    slots = sizes.n_trees, sizes.n_slots
    heads: dict[str, Layout] = {array_name("heads", name): (slots[:1], HEAD[name]) for name in HEAD.names or ()}
    cuts: dict[str, Layout] = {array_name("cuts", name): (slots, dtype) for name, dtype in _CUT_COLUMNS.items()}
    return {
        **heads,
        **cuts,
        "points": ((ANY, sizes.n_coordinates), _FLOAT),
        "leaves": (slots, None),
        "copies": (slots, None),
        "negative_zeros": ((ANY,), _POSITION),
    }


def unpack(arrays: dict[str, Array], sizes: TableSizes, ring: Array | None, n_bytes: int) -> Trees:
    """Return the trees; raise ValueError if one is damaged, or if they are too large for a file of n_bytes bytes.

    `ring` contains the points of the window, if there is one; the caller has checked them.
    """
    if sizes.n_bytes > MAX_EXPANSION * n_bytes:
        raise ValueError(f"its trees would take {sizes.n_bytes} bytes, more than {MAX_EXPANSION} times its length.")
    rows = _checked_rows(arrays["points"], sizes, ring)
    trees = empty_trees(*sizes)
    for name in HEAD.names or ():
        trees.heads[name] = arrays[array_name("heads", name)]
    for name in _CUT_COLUMNS:
        trees.cuts[name] = _checked_array(arrays, array_name("cuts", name))
    trees.copies[:] = _checked_array(arrays, "copies")
    is_referenced, position = np.zeros(rows.shape[0], np.bool_), np.zeros(2, np.int64)
    problem = rebuild_trees(trees, rows, arrays["leaves"].astype(np.int64), is_referenced, position)
    if problem != SOUND:
        where = "the tree as a whole" if position[1] == NONE else f"slot {position[1]}"
        raise ValueError(f"tree {position[0]} is damaged: {PROBLEMS[problem]}: {where}.")
    if not is_referenced[rows.shape[0] - arrays["points"].shape[0] :].all():
        raise ValueError("points.npy is damaged: one of its points is in no leaf.")
    _write_negative_zeros(trees, arrays["negative_zeros"])
    return trees


def _checked_array(arrays: dict[str, Array], name: str) -> Array:
    """Return an array; raise ValueError if it has an integer that needs more than 32 bits."""
    array = arrays[name]
    if array.dtype == np.uint64 and array.max(initial=0) > np.iinfo(np.uint32).max:
        raise ValueError(f"{name}.npy is damaged: a number needs more than 32 bits.")
    return array


def _checked_rows(points: Array, sizes: TableSizes, ring: Array | None) -> Array:
    """Return the rows to which leaves can refer: the ring, then these points; raise ValueError if one is invalid."""
    if not all_within_limit(points.ravel()):
        raise ValueError("a point is not finite or too large.")
    rarities = points[:, sizes.n_coordinates - 2 * sizes.n_categorical : sizes.n_coordinates - sizes.n_categorical]
    if not ((rarities > 0.0) & (rarities <= 1.0)).all():
        raise ValueError("a rarity is not in (0, 1].")
    if ring is None:
        return points.copy()
    return np.concatenate([ring, points]) if points.size else ring


def _write_negative_zeros(trees: Trees, positions: Array) -> None:
    """Replace 0.0 by -0.0 at these positions of the flattened boxes; raise ValueError if a position is wrong."""
    if positions.size == 0:
        return
    bounds, n_bounds = trees.boxes.reshape(-1), trees.boxes[0, 0].size
    if not (positions[0] >= 0 and positions[-1] < bounds.size and (np.diff(positions) > 0).all()):
        raise ValueError("negative_zeros.npy is damaged: its positions are not ascending, or are not in the boxes.")
    t, slot = np.divmod(positions // n_bounds, trees.boxes.shape[1])
    if (slot >= trees.heads["n_leaves"][t] - 1).any() or (bounds[positions] != 0.0).any():
        raise ValueError("negative_zeros.npy is damaged: a position is not that of a bound that is zero.")
    bounds[positions] = -0.0

"""The checks of `invariants` as compiled functions, for all trees of a forest."""

import math
from typing import Any

import numpy as np

from imondrian.engine.jit import helper, kernel
from imondrian.engine.nodes import LOWER, MAX_COUNT, MAX_VALUE, NO_NODE, UPPER, Trees, is_leaf, slot_of
from imondrian.engine.places import n_categorical, place, place_key

NONE = -1


@kernel
def first_broken_tree(trees: Trees) -> int:
    """Return the number of the first tree in which an invariant is broken, NONE if there is no such tree."""
    for t in range(trees.heads.size):
        if not is_sound(trees, t):
            return t
    return NONE


@helper
def is_sound(trees: Trees, t: int) -> bool:
    """Return True if all invariants hold for tree t; each check relies on those before it."""
    return (
        has_possible_counts(trees, t)
        and has_zeros_in_unused_slots(trees, t)
        and has_nodes_that_exist(trees, t)
        and has_parents_and_children_that_agree(trees, t)
        and has_populations_that_add_up(trees, t)
        and has_finite_points(trees, t)
        and has_categories_in_their_places(trees, t)
        and has_sound_cuts(trees, t)
    )


@helper
def has_possible_counts(trees: Trees, t: int) -> bool:
    """Return True if all counters lie in their ranges."""
    head = trees.heads[t]
    if not 0 <= head["n_leaves"] <= trees.points.shape[1]:
        return False
    if head["n_points"] < 0 or head["n_owed"] < 0 or head["next_kept"] < 0:
        return False
    if head["n_points"] > MAX_COUNT or head["n_owed"] > MAX_COUNT - head["n_points"]:
        return False
    return -math.inf < head["log_key"] <= 0.0


@helper
def n_inner(trees: Trees, t: int) -> int:
    """Return the number of inner nodes of tree t."""
    return max(trees.heads[t]["n_leaves"] - 1, 0)


@helper
def is_zero(value: float) -> bool:
    """Return True for 0.0, and False for -0.0."""
    return value == 0.0 and math.copysign(1.0, value) > 0.0


@helper
def has_zeros_in_unused_slots(trees: Trees, t: int) -> bool:
    """Return True if all unused slots are zero."""
    for slot in range(trees.heads[t]["n_leaves"], trees.points.shape[1]):
        if trees.copies[t, slot] != 0 or trees.parents[t, 2 * slot + 1] != 0:
            return False
        for j in range(trees.points.shape[2]):
            if not is_zero(trees.points[t, slot, j]):
                return False
    for slot in range(n_inner(trees, t), trees.cuts.shape[1]):
        cut = trees.cuts[t, slot]
        numbers = cut["left"] | cut["right"] | cut["split_feature"] | cut["population"] | trees.parents[t, 2 * slot]
        if numbers != 0 or not is_zero(cut["split_time"]) or not is_zero(cut["split_value"]):
            return False
        for j in range(trees.boxes.shape[3]):
            if not is_zero(trees.boxes[t, slot, LOWER, j]) or not is_zero(trees.boxes[t, slot, UPPER, j]):
                return False
    return True


@helper
def exists(trees: Trees, t: int, node: int) -> bool:
    """Return True if `node` is the number of a node in use."""
    n_nodes = trees.heads[t]["n_leaves"] if is_leaf(node) else n_inner(trees, t)
    return bool(np.int64(slot_of(node)) < n_nodes)


@helper
def has_nodes_that_exist(trees: Trees, t: int) -> bool:
    """Return True if root and children are nodes in use and cuts name existing features."""
    root = trees.heads[t]["root"]
    if trees.heads[t]["n_leaves"] == 0:
        return root == NO_NODE
    if not exists(trees, t, root):
        return False
    for slot in range(n_inner(trees, t)):
        cut = trees.cuts[t, slot]
        if not exists(trees, t, cut["left"]) or not exists(trees, t, cut["right"]):
            return False
        if cut["split_feature"] >= trees.boxes.shape[3]:
            return False
    return True


@helper
def has_parents_and_children_that_agree(trees: Trees, t: int) -> bool:
    """Return True if each child names its parent, the root names none, and no node is a child twice."""
    for slot in range(n_inner(trees, t)):
        cut = trees.cuts[t, slot]
        if trees.parents[t, cut["left"]] != 2 * slot or trees.parents[t, cut["right"]] != 2 * slot:
            return False
        if cut["left"] == cut["right"]:
            return False
    return trees.heads[t]["n_leaves"] == 0 or trees.parents[t, trees.heads[t]["root"]] == NO_NODE


@helper
def population_of(trees: Trees, t: int, node: int) -> Any:
    """Return the number of points below a node as a signed 64-bit integer."""
    slot = slot_of(node)
    return np.int64(trees.copies[t, slot]) if is_leaf(node) else np.int64(trees.cuts[t, slot]["population"])


@helper
def has_populations_that_add_up(trees: Trees, t: int) -> bool:
    """Return True if each leaf holds a point and each inner node the sum of its children; this rules out cycles."""
    for slot in range(trees.heads[t]["n_leaves"]):
        if trees.copies[t, slot] == 0:
            return False
    for slot in range(n_inner(trees, t)):
        cut = trees.cuts[t, slot]
        below = population_of(trees, t, cut["left"]) + population_of(trees, t, cut["right"])
        if np.int64(cut["population"]) != below:
            return False
    return True


@helper
def has_finite_points(trees: Trees, t: int) -> bool:
    """Return True if every value is finite and within MAX_VALUE."""
    for slot in range(trees.heads[t]["n_leaves"]):
        for j in range(trees.points.shape[2]):
            if not abs(trees.points[t, slot, j]) <= MAX_VALUE:
                return False
    return True


@helper
def has_categories_in_their_places(trees: Trees, t: int) -> bool:
    """Return True if every rarity lies in (0, 1] and every category is at its place."""
    n_codes, n_coordinates = n_categorical(trees), trees.boxes.shape[3]
    for slot in range(trees.heads[t]["n_leaves"]):
        for k in range(n_codes):
            rarity, code = (
                trees.points[t, slot, n_coordinates - 2 * n_codes + k],
                trees.points[t, slot, n_coordinates + k],
            )
            is_in_place = trees.points[t, slot, n_coordinates - n_codes + k] == place(
                place_key(trees.heads, t, k), code
            )
            if not is_in_place or not 0.0 < rarity <= 1.0:
                return False
    return True


@helper
def bound(trees: Trees, t: int, node: int, side: int, j: int) -> float:
    """Return a bound of the box of a node along feature j."""
    slot = slot_of(node)
    return trees.points[t, slot, j] if is_leaf(node) else trees.boxes[t, slot, side, j]


@helper
def has_sound_cuts(trees: Trees, t: int) -> bool:
    """Return True if split times are finite and ordered, cuts separate their children, and boxes are tight."""
    for slot in range(n_inner(trees, t)):
        cut, above, earlier = trees.cuts[t, slot], trees.parents[t, 2 * slot], 0.0
        if above != NO_NODE:
            earlier = trees.cuts[t, slot_of(above)]["split_time"]
        if not earlier <= cut["split_time"] < math.inf:
            return False
        q, left, right = cut["split_feature"], cut["left"], cut["right"]
        if not bound(trees, t, left, UPPER, q) < cut["split_value"] <= bound(trees, t, right, LOWER, q):
            return False
        for j in range(trees.boxes.shape[3]):
            lower = min(bound(trees, t, left, LOWER, j), bound(trees, t, right, LOWER, j))
            upper = max(bound(trees, t, left, UPPER, j), bound(trees, t, right, UPPER, j))
            if trees.boxes[t, slot, LOWER, j] != lower or trees.boxes[t, slot, UPPER, j] != upper:
                return False
    return True

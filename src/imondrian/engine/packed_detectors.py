"""Pack the trees of detectors with windows: only heads and cuts are stored, and the rest is rebuilt.

A tree holds the points of the window that its hash key selects. Following the cuts from the root finds the leaf of each
point. Parents, copies, populations and boxes are computed from cuts and leaves.
"""

import numpy as np

from imondrian.engine.boxes import bound
from imondrian.engine.compiled_invariants import NONE, has_nodes_that_exist, has_possible_counts, is_sound, n_inner
from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.nodes import (
    LOWER,
    NO_NODE,
    UPPER,
    Trees,
    child_towards,
    inner_node,
    is_leaf,
    is_point_of,
    population,
    slot_of,
)
from imondrian.engine.window import Selection, is_selected


@kernel
def pack_cuts(trees: Trees, chosen: Array, times: Array, values: Array, children: Array, features: Array) -> None:
    """Copy the cuts of the chosen trees to these arrays, one tree after the other."""
    end = 0
    for t in chosen:
        for slot in range(n_inner(trees, t)):
            cut = trees.cuts[t, slot]
            times[end], values[end], features[end] = cut["split_time"], cut["split_value"], cut["split_feature"]
            children[end, 0], children[end, 1] = cut["left"], cut["right"]
            end += 1


@kernel
def unpack_cuts(trees: Trees, chosen: Array, times: Array, values: Array, children: Array, features: Array) -> None:
    """Copy the cuts to the chosen trees, from arrays that `pack_cuts` has written.

    The trees must have their heads, and all slots must be zero. The caller has checked that no tree has more leaves
    than slots, and that the lengths of the arrays match the numbers of leaves.
    """
    end = 0
    for t in chosen:
        for slot in range(n_inner(trees, t)):
            cut = trees.cuts[t, slot]
            cut["split_time"], cut["split_value"], cut["split_feature"] = times[end], values[end], features[end]
            cut["left"], cut["right"] = children[end, 0], children[end, 1]
            end += 1


@kernel
def rebuild_window_trees(trees: Trees, chosen: Array, rings: Array, numbers: Array, selection: Selection) -> int:
    """Rebuild the chosen trees, which have heads and cuts; return the first damaged tree, or NONE.

    `chosen` contains the trees of the first detector, then those of the second, and so on. rings[k] and numbers[k], the
    number of the next point, belong to the k-th of these detectors.
    """
    n_trees, order = chosen.size // max(numbers.size, 1), np.empty(trees.cuts.shape[1], np.uint32)
    for i in range(chosen.size):
        k = i // n_trees
        if not rebuild(trees, chosen[i], rings[k], numbers[k], selection, order):
            return int(chosen[i])
    return NONE


@helper
def rebuild(trees: Trees, t: int, ring: Array, number: int, selection: Selection, order: Array) -> bool:
    """Rebuild tree t from its head, its cuts and the window; return True if it is sound. `order` is scratch space."""
    if not has_possible_counts(trees, t) or not has_nodes_that_exist(trees, t):
        return False
    write_parents(trees, t)
    for i in range(max(number - ring.shape[0], 0), number):
        if is_selected(trees.heads, t, i, selection) and not write_point(trees, t, ring[i % ring.shape[0]]):
            return False
    if write_order(trees, t, order) != n_inner(trees, t):
        return False
    write_inner_nodes(trees, t, order)
    return is_sound(trees, t)


@helper
def write_parents(trees: Trees, t: int) -> None:
    """Write the parent of every node."""
    if trees.heads[t]["n_leaves"] > 0:
        trees.parents[t, trees.heads[t]["root"]] = NO_NODE
    for slot in range(n_inner(trees, t)):
        trees.parents[t, trees.cuts[t, slot]["left"]] = inner_node(slot)
        trees.parents[t, trees.cuts[t, slot]["right"]] = inner_node(slot)


@helper
def write_point(trees: Trees, t: int, x: Array) -> bool:
    """Write x to its leaf, or count it if the leaf has the same point; return False if that is impossible."""
    n_leaves = trees.heads[t]["n_leaves"]
    if n_leaves == 0:
        return False
    node, n_steps = trees.heads[t]["root"], 0
    while not is_leaf(node):
        node = child_towards(trees, t, node, x)
        n_steps += 1
        if n_steps > n_leaves:  # the cuts form a cycle
            return False
    slot = slot_of(node)
    if trees.copies[t, slot] == 0:
        for j in range(x.size):
            trees.points[t, slot, j] = x[j]
    elif not is_point_of(trees, t, node, x):
        return False
    trees.copies[t, slot] += np.uint32(1)
    return True


@helper
def write_order(trees: Trees, t: int, order: Array) -> int:
    """Write the inner nodes, from the root down, each before its children; return their number.

    The end of `order` is the stack of the nodes to visit. If the cuts form a cycle, the function returns
    NONE or too small a number. A node with two parents may remain unnoticed here; `is_sound` finds it.
    """
    n_done, top, root = 0, order.size, trees.heads[t]["root"]
    if trees.heads[t]["n_leaves"] > 0 and not is_leaf(root):
        top -= 1
        order[top] = root
    while top < order.size and n_done < n_inner(trees, t):
        node = order[top]
        top += 1
        order[n_done] = node
        n_done += 1
        cut = trees.cuts[t, slot_of(node)]
        for child in (cut["left"], cut["right"]):
            if not is_leaf(child):
                if top <= n_done:
                    return NONE
                top -= 1
                order[top] = child
    return n_done if top == order.size else NONE


@helper
def write_inner_nodes(trees: Trees, t: int, order: Array) -> None:
    """Write the population and the box of each inner node, children first."""
    for i in range(n_inner(trees, t) - 1, -1, -1):
        slot = slot_of(order[i])
        left, right = trees.cuts[t, slot]["left"], trees.cuts[t, slot]["right"]
        trees.cuts[t, slot]["population"] = population(trees, t, left) + population(trees, t, right)
        for j in range(trees.boxes.shape[3]):
            lower, upper = bound(trees, t, left, LOWER, j), bound(trees, t, left, UPPER, j)
            trees.boxes[t, slot, LOWER, j] = min(lower, bound(trees, t, right, LOWER, j))
            trees.boxes[t, slot, UPPER, j] = max(upper, bound(trees, t, right, UPPER, j))

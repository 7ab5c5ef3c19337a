"""Build a tree from a sample: Algorithm 2 of [Ma2020], which Algorithm 1 calls for every tree."""

import numpy as np

from imondrian.engine.boxes import greater, lesser
from imondrian.engine.jit import Array, allocating_helper, helper
from imondrian.engine.nodes import (
    LOWER,
    NO_NODE,
    UPPER,
    Trees,
    clear_leaf,
    inner_node,
    leaf_node,
    move_leaf,
    new_leaf,
    slot_of,
)
from imondrian.engine.randomness import (
    LARGEST,
    draw_feature,
    exponential,
    time_after,
    total_rate,
    value_in_gap,
)

_FIRST, _END, _PARENT, _ON_RIGHT = 0, 1, 2, 3


@allocating_helper
def build(trees: Trees, t: int, X: Array, weights: Array) -> None:
    """Build the empty tree t on the rows of X, which are placed rows: categories are already places (see `places.py`).

    Algorithm 2 of [Ma2020], with a stack instead of recursion (left before right). Unlike the paper: equal rows become
    one leaf that counts them, since no cut can separate them; rates are weighted by feature. Leaf slots are in the
    order of the rows, so that trees built on the same points have the same points in the same slots.
    """
    rows, sizes = np.arange(X.shape[0]), np.empty(weights.size)
    stack = np.empty((rows.size + 1, 4), np.int64)
    n_tasks = push(stack, 0, 0, rows.size, int(NO_NODE), 0)
    n_inner = 0
    while n_tasks > 0:
        n_tasks -= 1
        first, end = stack[n_tasks, _FIRST], stack[n_tasks, _END]
        parent, on_right = stack[n_tasks, _PARENT], stack[n_tasks, _ON_RIGHT]
        if are_all_equal(X, rows, first, end, sizes.size):
            row = smallest_row(rows, first, end)
            attach(trees, t, new_leaf(trees, t, row, X[row], end - first), parent, on_right)
            continue
        node = inner_node(n_inner)
        attach(trees, t, node, parent, on_right)
        enclose(trees, t, n_inner, X, rows, first, end, sizes)
        draw_cut(trees, t, n_inner, sizes, weights)
        trees.cuts[t, n_inner]["population"] = end - first
        middle = partition(trees, t, n_inner, X, rows, first, end)
        n_tasks = push(stack, n_tasks, middle, end, node, 1)
        n_tasks = push(stack, n_tasks, first, middle, node, 0)
        n_inner += 1
    compact_leaves(trees, t, X.shape[0])


@helper
def push(stack: Array, n_tasks: int, first: int, end: int, parent: int, on_right: int) -> int:
    """Push a task onto the stack and return the new number of tasks."""
    stack[n_tasks, _FIRST] = first
    stack[n_tasks, _END] = end
    stack[n_tasks, _PARENT] = parent
    stack[n_tasks, _ON_RIGHT] = on_right
    return n_tasks + 1


@helper
def are_all_equal(X: Array, rows: Array, first: int, end: int, n_coordinates: int) -> bool:
    """Return True if the rows X[rows[first:end]] are all equal in their first n_coordinates values."""
    for i in range(first + 1, end):
        for j in range(n_coordinates):
            if X[rows[i], j] != X[rows[first], j]:
                return False
    return True


@helper
def enclose(trees: Trees, t: int, slot: int, X: Array, rows: Array, first: int, end: int, sizes: Array) -> None:
    """Write the tight box of X[rows[first:end]] to the inner node, and its side lengths to `sizes`."""
    lower, upper = trees.boxes[t, slot, LOWER], trees.boxes[t, slot, UPPER]
    n_quads = sizes.size // 4
    for j in range(0, 4 * n_quads, 4):
        enclose_four(X, rows, first, end, j, lower, upper)
    for j in range(4 * n_quads, sizes.size):
        enclose_one(X, rows, first, end, j, lower, upper)
    for j in range(sizes.size):
        sizes[j] = upper[j] - lower[j]


@helper
def enclose_one(X: Array, rows: Array, first: int, end: int, j: int, lower: Array, upper: Array) -> None:
    """Write the bounds along one feature."""
    low = high = X[rows[first], j]
    for i in range(first + 1, end):
        value = X[rows[i], j]
        low, high = lesser(low, value), greater(high, value)
    lower[j], upper[j] = low, high


@helper
def enclose_four(X: Array, rows: Array, first: int, end: int, j: int, lower: Array, upper: Array) -> None:
    """Write the bounds along four features at once: one row lookup for all four, and SIMD instructions."""
    row = rows[first]
    low_a = high_a = X[row, j]
    low_b = high_b = X[row, j + 1]
    low_c = high_c = X[row, j + 2]
    low_d = high_d = X[row, j + 3]
    for i in range(first + 1, end):
        row = rows[i]
        a, b, c, d = X[row, j], X[row, j + 1], X[row, j + 2], X[row, j + 3]
        low_a, low_b, low_c, low_d = lesser(low_a, a), lesser(low_b, b), lesser(low_c, c), lesser(low_d, d)
        high_a, high_b, high_c, high_d = greater(high_a, a), greater(high_b, b), greater(high_c, c), greater(high_d, d)
    lower[j], lower[j + 1], lower[j + 2], lower[j + 3] = low_a, low_b, low_c, low_d
    upper[j], upper[j + 1], upper[j + 2], upper[j + 3] = high_a, high_b, high_c, high_d


@helper
def attach(trees: Trees, t: int, node: int, parent: int, on_right: int) -> None:
    """Make the node the left or right child of its parent, or the root."""
    trees.parents[t, node] = parent
    if parent == NO_NODE:
        trees.heads[t]["root"] = node
    elif on_right == 1:
        trees.cuts[t, slot_of(parent)]["right"] = node
    else:
        trees.cuts[t, slot_of(parent)]["left"] = node


@helper
def draw_cut(trees: Trees, t: int, slot: int, sizes: Array, weights: Array) -> None:
    """Draw the time, feature and value of the cut through a box with these side lengths."""
    parent = trees.parents[t, inner_node(slot)]
    time = 0.0 if parent == NO_NODE else trees.cuts[t, slot_of(parent)]["split_time"]
    rate = total_rate(sizes, weights)
    cut = trees.cuts[t, slot]
    cut["split_time"] = time_after(time, exponential(trees.heads, t), rate, LARGEST)
    feature = draw_feature(trees.heads, t, sizes, weights, rate)
    cut["split_feature"] = feature
    lower, upper = trees.boxes[t, slot, LOWER, feature], trees.boxes[t, slot, UPPER, feature]
    cut["split_value"] = value_in_gap(trees.heads, t, lower, upper)


@helper
def partition(trees: Trees, t: int, slot: int, X: Array, rows: Array, first: int, end: int) -> int:
    """Move the rows that go left to the front; return the position of the first row that goes right."""
    feature, value = trees.cuts[t, slot]["split_feature"], trees.cuts[t, slot]["split_value"]
    middle = first
    for i in range(first, end):
        row = rows[i]
        rows[i] = rows[middle]
        rows[middle] = row
        middle += X[row, feature] < value  # branch-free: the outcome is unpredictable
    return middle


@helper
def smallest_row(rows: Array, first: int, end: int) -> int:
    """Return the smallest of some row numbers."""
    row = rows[first]
    for i in range(first + 1, end):
        row = min(row, rows[i])
    return row


@helper
def compact_leaves(trees: Trees, t: int, n_rows: int) -> None:
    """Close the gaps that copies have left in the leaf slots, keeping the order of the leaves."""
    if trees.heads[t]["n_leaves"] < n_rows:
        n_leaves = 0
        for slot in range(n_rows):
            if trees.copies[t, slot] > 0:
                if slot > n_leaves:
                    move_leaf(trees, t, leaf_node(slot), leaf_node(n_leaves))
                    clear_leaf(trees, t, leaf_node(slot))
                n_leaves += 1

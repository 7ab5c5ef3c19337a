"""Build a tree from a sample at once: Algorithm 2 of [Ma2020], for every tree of Algorithm 1."""

import numpy as np

from imondrian.engine.boxes import greater, lesser
from imondrian.engine.jit import Array, helper, making_helper
from imondrian.engine.nodes import (
    LOWER,
    NO_NODE,
    UPPER,
    Trees,
    inner_node,
    leaf_node,
    move_leaf,
    new_leaf,
    slot_of,
    wipe_leaf,
)
from imondrian.engine.randomness import (
    LARGEST,
    exponential,
    feature_by_rate,
    time_after,
    total_rate,
    value_in_gap,
)

_FIRST, _LAST, _ABOVE, _ON_RIGHT = 0, 1, 2, 3


@making_helper
def build(trees: Trees, t: int, X: Array, weights: Array) -> None:
    """Grow the empty tree t over the rows of X.

    Algorithm 2 of [Ma2020], the recursion (left before right) written as a stack. Differs: rows that are copies of
    one another become one leaf that counts them, since no cut can part them; rates are weighted by feature.
    Leaves lie in the order of the rows, so that trees over the same points have the same points in the same slots.
    """
    rows, sizes = np.arange(X.shape[0]), np.empty(X.shape[1])
    waiting = np.empty((rows.size + 1, 4), np.int64)
    n_waiting = pushed(waiting, 0, 0, rows.size, int(NO_NODE), 0)
    n_inner = 0
    while n_waiting > 0:
        n_waiting -= 1
        first, last = waiting[n_waiting, _FIRST], waiting[n_waiting, _LAST]
        above, on_right = waiting[n_waiting, _ABOVE], waiting[n_waiting, _ON_RIGHT]
        if all_copies(X, rows, first, last):
            row = smallest(rows, first, last)
            hang(trees, t, new_leaf(trees, t, row, X[row], last - first), above, on_right)
            continue
        node = inner_node(n_inner)
        hang(trees, t, node, above, on_right)
        enclose(trees, t, n_inner, X, rows, first, last, sizes)
        draw_cut(trees, t, n_inner, sizes, weights)
        trees.cuts[t, n_inner]["population"] = last - first
        middle = partition(trees, t, n_inner, X, rows, first, last)
        n_waiting = pushed(waiting, n_waiting, middle, last, node, 1)
        n_waiting = pushed(waiting, n_waiting, first, middle, node, 0)
        n_inner += 1
    close_ranks(trees, t, X.shape[0])


@helper
def pushed(waiting: Array, n_waiting: int, first: int, last: int, above: int, on_right: int) -> int:
    """Put a task on the stack and give the stack's new height."""
    waiting[n_waiting, _FIRST] = first
    waiting[n_waiting, _LAST] = last
    waiting[n_waiting, _ABOVE] = above
    waiting[n_waiting, _ON_RIGHT] = on_right
    return n_waiting + 1


@helper
def all_copies(X: Array, rows: Array, first: int, last: int) -> bool:
    """Tell whether X[rows[first:last]] are one and the same point."""
    for i in range(first + 1, last):
        for j in range(X.shape[1]):
            if X[rows[i], j] != X[rows[first], j]:
                return False
    return True


@helper
def enclose(trees: Trees, t: int, slot: int, X: Array, rows: Array, first: int, last: int, sizes: Array) -> None:
    """Make the smallest box around X[rows[first:last]] that of the inner node, and write its side lengths."""
    lower, upper = trees.boxes[t, slot, LOWER], trees.boxes[t, slot, UPPER]
    n_quads = X.shape[1] // 4
    for j in range(0, 4 * n_quads, 4):
        enclose_four(X, rows, first, last, j, lower, upper)
    for j in range(4 * n_quads, X.shape[1]):
        enclose_one(X, rows, first, last, j, lower, upper)
    for j in range(X.shape[1]):
        sizes[j] = upper[j] - lower[j]


@helper
def enclose_one(X: Array, rows: Array, first: int, last: int, j: int, lower: Array, upper: Array) -> None:
    """Write the bounds along one feature."""
    low = high = X[rows[first], j]
    for i in range(first + 1, last):
        value = X[rows[i], j]
        low, high = lesser(low, value), greater(high, value)
    lower[j], upper[j] = low, high


@helper
def enclose_four(X: Array, rows: Array, first: int, last: int, j: int, lower: Array, upper: Array) -> None:
    """Write the bounds along four features at once: rows are looked up once, and processors reckon with four."""
    row = rows[first]
    low_a = high_a = X[row, j]
    low_b = high_b = X[row, j + 1]
    low_c = high_c = X[row, j + 2]
    low_d = high_d = X[row, j + 3]
    for i in range(first + 1, last):
        row = rows[i]
        a, b, c, d = X[row, j], X[row, j + 1], X[row, j + 2], X[row, j + 3]
        low_a, low_b, low_c, low_d = lesser(low_a, a), lesser(low_b, b), lesser(low_c, c), lesser(low_d, d)
        high_a, high_b, high_c, high_d = greater(high_a, a), greater(high_b, b), greater(high_c, c), greater(high_d, d)
    lower[j], lower[j + 1], lower[j + 2], lower[j + 3] = low_a, low_b, low_c, low_d
    upper[j], upper[j + 1], upper[j + 2], upper[j + 3] = high_a, high_b, high_c, high_d


@helper
def hang(trees: Trees, t: int, node: int, above: int, on_right: int) -> None:
    """Make the node the left or right child of the one above, or the root."""
    trees.parents[t, node] = above
    if above == NO_NODE:
        trees.heads[t]["root"] = node
    elif on_right == 1:
        trees.cuts[t, slot_of(above)]["right"] = node
    else:
        trees.cuts[t, slot_of(above)]["left"] = node


@helper
def draw_cut(trees: Trees, t: int, slot: int, sizes: Array, weights: Array) -> None:
    """Draw time, feature and value of the cut through a box with these side lengths."""
    above = trees.parents[t, inner_node(slot)]
    time = 0.0 if above == NO_NODE else trees.cuts[t, slot_of(above)]["split_time"]
    rate = total_rate(sizes, weights)
    cut = trees.cuts[t, slot]
    cut["split_time"] = time_after(time, exponential(trees.heads, t), rate, LARGEST)
    feature = feature_by_rate(trees.heads, t, sizes, weights, rate)
    cut["split_feature"] = feature
    lower, upper = trees.boxes[t, slot, LOWER, feature], trees.boxes[t, slot, UPPER, feature]
    cut["split_value"] = value_in_gap(trees.heads, t, lower, upper)


@helper
def partition(trees: Trees, t: int, slot: int, X: Array, rows: Array, first: int, last: int) -> int:
    """Bring the rows that go left to the front, and tell where those that go right begin."""
    feature, value = trees.cuts[t, slot]["split_feature"], trees.cuts[t, slot]["split_value"]
    middle = first
    for i in range(first, last):
        row = rows[i]
        rows[i] = rows[middle]
        rows[middle] = row
        middle += X[row, feature] < value  # without a branch, since no processor can guess it
    return middle


@helper
def smallest(rows: Array, first: int, last: int) -> int:
    """Give the first of some rows."""
    row = rows[first]
    for i in range(first + 1, last):
        row = min(row, rows[i])
    return row


@helper
def close_ranks(trees: Trees, t: int, n_rows: int) -> None:
    """Move the leaves up, in their order, where copies have left slots free."""
    if trees.heads[t]["n_leaves"] < n_rows:
        n_leaves = 0
        for slot in range(n_rows):
            if trees.copies[t, slot] > 0:
                if slot > n_leaves:
                    move_leaf(trees, t, leaf_node(slot), leaf_node(n_leaves))
                    wipe_leaf(trees, t, leaf_node(slot))
                n_leaves += 1

"""Expected values: what the value of a coordinate would be, given the other coordinates of a row.

In each tree, a row is followed to its leaf. A cut on a coordinate that is not known (the one that is asked for, or a
gap in the row) does not say which side the row belongs to. Therefore N_WALKS walks start at the root, and at such a cut
they divide between the two sides in proportion to the population, with random rounding. Of the leaves reached, the one
nearest to the row in the row's known coordinates is chosen, and the value of its point is the expected value.

A tree that holds the row itself is walked as if that point had been forgotten: otherwise a row would be its own
neighbour, and every value would be as expected.

Nothing is drawn from the streams of the trees: random sides depend on the tree and on the number of the draw alone.
"""

from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.jit import Array, allocating_helper, helper, kernel
from imondrian.engine.nodes import NO_NODE, Trees, child_towards, is_leaf, point_index, population, slot_of
from imondrian.engine.places import n_categorical, write_placed_row
from imondrian.engine.randomness import LARGEST, mix_bits, uniform_from_bits
from imondrian.engine.reservoir import find_held_leaf, start_search

N_WALKS = 4  # number of walks in a tree; see docs/decisions/052-expected-values.md
_DRAW_STEP = np.uint64(0xA0761D6478BD642F)
_OFF_PATH = -1


class Search(NamedTuple):
    """Scratch space for the walks in a tree."""

    row: Array  # the row as the tree sees it; NaN where a coordinate is not known
    to_search: Array  # a stack of nodes, to find the leaf of the row itself
    # groups of walks that are waiting to be continued, at most N_WALKS
    nodes: Array
    counts: Array  # the number of walks in the group
    depths: Array  # of the group's node if it is on the path of the row itself; otherwise _OFF_PATH
    path: Array  # the nodes from the root to the leaf of the row itself


@kernel
def write_expected_values(trees: Trees, X: Array, features: Array, weights: Array, values: Array) -> int:
    """Write what each tree expects in coordinate features[i, k] of row i to values[i, k]; return the number of trees.

    X has coded rows, in which NaN is a gap. The coordinate of a category is its place, and its value is its code. Trees
    without points expect nothing, and are not counted.
    """
    search, n_trees = new_search(trees), 0
    for t in range(trees.heads.size):
        if trees.heads[t]["n_leaves"] > 0:
            for i in range(X.shape[0]):
                write_values_of_row(trees, t, X[i], features[i], weights, search, values[i], n_trees)
            n_trees += 1
    return n_trees


@kernel
def write_most_frequent(values: Array, most_frequent: Array, shares: Array) -> None:
    """Write the most frequent of the sorted values[i] (of equally frequent ones, the smallest), and its share."""
    n = values.shape[1]
    for i in range(values.shape[0]):
        n_most = first = 0
        for last in range(n):
            if values[i, last] != values[i, first]:
                first = last
            if last - first + 1 > n_most:
                n_most, most_frequent[i] = last - first + 1, values[i, last]
        shares[i] = n_most / n


@allocating_helper
def new_search(trees: Trees) -> Search:
    """Allocate scratch space."""
    n_slots = trees.cuts.shape[1] + 1
    return Search(
        np.empty(trees.points.shape[2]),
        np.empty(n_slots, np.uint32),
        np.empty(N_WALKS, np.uint32),
        np.empty(N_WALKS, np.int64),
        np.empty(N_WALKS, np.int64),
        np.empty(n_slots, np.uint32),
    )


@helper
def write_values_of_row(
    trees: Trees, t: int, x: Array, features: Array, weights: Array, search: Search, values: Array, column: int
) -> None:
    """Write to values[k, column] what tree t expects in coordinate features[k] of a coded row."""
    row, n_codes = search.row, n_categorical(trees)
    first_place = weights.size - n_codes
    write_row_with_gaps(trees, t, x, row)
    n_path = write_path_of_copy(trees, t, search)
    for k in range(features.size):
        j = features[k]
        rarity = j - n_codes if j >= first_place else j  # of a category, both the place and the rarity are hidden
        old, old_rarity = row[j], row[rarity]
        row[j] = row[rarity] = np.nan
        leaf = nearest_leaf(trees, t, weights, search, n_path)
        values[k, column] = trees.points[point_index(trees, t, slot_of(leaf))][j + n_codes if j >= first_place else j]
        row[rarity], row[j] = old_rarity, old


@helper
def write_row_with_gaps(trees: Trees, t: int, x: Array, row: Array) -> None:
    """Write a coded row as tree t sees it; the place of a missing category is NaN."""
    n_codes = n_categorical(trees)
    if n_codes == 0:
        for j in range(x.size):
            row[j] = x[j]
        return
    write_placed_row(trees, t, x, row)
    for j in range(x.size - n_codes, x.size):
        if np.isnan(x[j]):
            row[j] = np.nan


@helper
def write_path_of_copy(trees: Trees, t: int, search: Search) -> int:
    """Write the path to a leaf that holds the row; return its length, 0 if there is no such leaf or it is the root."""
    row = search.row
    for j in range(trees.boxes.shape[3]):
        if np.isnan(row[j]):
            return 0  # the trees hold no rows with gaps
    leaf, _ = find_held_leaf(trees, t, row, start_search(trees, t, search.to_search), search.to_search)
    if leaf == NO_NODE or trees.parents[t, leaf] == NO_NODE:
        return 0
    n_path, node = 0, leaf
    while node != NO_NODE:
        search.path[n_path] = node
        node = trees.parents[t, node]
        n_path += 1
    for depth in range(n_path // 2):
        last = n_path - 1 - depth
        search.path[depth], search.path[last] = search.path[last], search.path[depth]
    return n_path


@helper
def nearest_leaf(trees: Trees, t: int, weights: Array, search: Search, n_path: int) -> Any:
    """Return the nearest leaf reached; of equally near ones, draw one in proportion to the walks that end there."""
    nodes, counts, depths, path, row = search.nodes, search.counts, search.depths, search.path, search.row
    nodes[0], counts[0] = trees.heads[t]["root"], n_useful_walks(row, weights.size)
    depths[0] = 0 if n_path > 0 else _OFF_PATH
    n_waiting, n_draws = 1, 0
    least, n_nearest, nearest = np.inf, 0, NO_NODE
    while n_waiting > 0:
        n_waiting -= 1
        node, count, depth = nodes[n_waiting], counts[n_waiting], depths[n_waiting]
        while not is_leaf(node):
            cut, below = trees.cuts[t, slot_of(node)], child_towards(trees, t, node, row)
            is_known = not np.isnan(row[cut["split_feature"]])
            if is_known and depth == _OFF_PATH:
                node = below
                continue
            left, right = cut["left"], cut["right"]
            on_path = path[depth + 1] if depth != _OFF_PATH else NO_NODE
            if is_only_copy(trees, t, on_path):
                node, depth = right if on_path == left else left, _OFF_PATH  # forgotten: the sibling takes its place
                continue
            if not is_known:
                n_points = float(cut["population"]) - (depth != _OFF_PATH)
                share = (float(population(trees, t, left)) - (on_path == left)) / n_points
                n_left = int(count * share + hashed_draw(trees.heads, t, n_draws))
                n_draws += 1
                if 0 < n_left < count:
                    nodes[n_waiting], counts[n_waiting] = right, count - n_left
                    depths[n_waiting] = depth + 1 if on_path == right else _OFF_PATH
                    n_waiting += 1
                    count = n_left
                below = left if n_left > 0 else right
            depth = depth + 1 if on_path == below else _OFF_PATH
            node = below
        distance = known_distance(trees, t, node, row, weights)
        if distance < least:
            least, n_nearest, nearest = distance, count, node
        elif distance == least:
            n_nearest += count
            if hashed_draw(trees.heads, t, n_draws) * n_nearest < count:
                nearest = node
            n_draws += 1
    return nearest


@helper
def n_useful_walks(row: Array, n_coordinates: int) -> int:
    """Return the number of walks: one if no coordinate is known, since all leaves are equally near then."""
    for j in range(n_coordinates):
        if not np.isnan(row[j]):
            return N_WALKS
    return 1


@helper
def is_only_copy(trees: Trees, t: int, node: Any) -> bool:
    """Return True if the node, which is on the path of the row itself, is the row's leaf and holds one copy."""
    return node != NO_NODE and is_leaf(node) and trees.copies[t, slot_of(node)] == 1


@helper
def known_distance(trees: Trees, t: int, leaf: int, row: Array, weights: Array) -> float:
    """Return the weighted distance between the row and the leaf's point in the coordinates that are known."""
    point, distance = trees.points[point_index(trees, t, slot_of(leaf))], 0.0
    for j in range(weights.size):
        part = weights[j] * abs(row[j] - point[j])
        distance += part if part == part else 0.0  # noqa: PLR0124 (NaN: not known)
    return min(distance, LARGEST)  # less than the infinity that the search starts with


@helper
def hashed_draw(heads: Array, t: int, number: int) -> float:
    """Hash (tree, number of the draw) to a reproducible uniform number in [0, 1)."""
    return uniform_from_bits(mix_bits(heads[t]["hash_key"] + np.uint64(number + 1) * _DRAW_STEP))

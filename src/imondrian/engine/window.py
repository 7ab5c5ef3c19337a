"""Sliding window: a tree holds those points of the window that a hash of its key and the point's number selects.

Points are numbered as they arrive. Whether tree t *selects* point i depends only on the tree's hash key, i and the
`Selection`: the same test decides whether to insert a point and whether to forget it when it leaves the window, so
membership is not stored. The points of the window are stored in a ring buffer shared by all trees, point i in row i
modulo the ring's length; a row without a point is NaN.

If the trees share one table of points (`nodes.sharing_trees`), point i is in row i modulo the length of that table. The
trees that select the point write it there. The table has room for the window and one block more. So when a row is
reused, its old point left the window in an earlier block, and no tree holds it. If a tree holds copies of a point, the
leaf refers to the newest copy, which leaves the window last; this copy may have 0.0 where an older one has -0.0.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.average_path_length import average_path_length, relative_depth
from imondrian.engine.box_scores_live import excess_of_row, expected_depth_of_row, mean_log_size
from imondrian.engine.boxes import overhang
from imondrian.engine.build import build
from imondrian.engine.depth import write_path_lengths
from imondrian.engine.extend import extend
from imondrian.engine.forget import forget
from imondrian.engine.jit import Array, allocating_helper, helper, kernel
from imondrian.engine.nodes import (
    Trees,
    is_point_of,
    leaf_towards,
    point_index,
    shares_points,
    slot_of,
    tree_population,
)
from imondrian.engine.places import (
    n_categorical,
    new_placed_row,
    new_placed_rows,
    placed_row,
    placed_rows,
    write_coded_row,
    write_placed_row,
)
from imondrian.engine.prefetch import Paths, as_signed, new_paths, prefetch_paths
from imondrian.engine.randomness import STEP, hashed_uniform, mix_bits
from imondrian.engine.score_formula import score_of_depth, score_of_log_size

STEPS_PER_WINDOW = 8  # number of updates of weights and typical log sizes while a full window is replaced

# Points are not shared if the mean depth of the points of a tree exceeds this: finding them would take long, and a file
# may contain any tree.
MAX_MEAN_DEPTH = 256


class Selection(NamedTuple):
    """Which points of the window a tree holds: at most one of each stratum, a block of `stratum` consecutive points."""

    share: float  # probability that a tree holds a given point
    stratum: int  # share * stratum is at most 1


class StepPlan(NamedTuple):
    """The steps in a block of rows: the instants between rows at which the weights are updated."""

    positions: Array  # number of rows shown before each step
    weights: Array  # the weights before the first step and after each step, one row each
    counts: Array  # output, for each tree and step: points inserted so far, and those outside the root box


@kernel
def slide_trees(trees: Trees, ring: Array, selection: Selection, number: int, X: Array, weights: Array) -> None:
    """Show the rows of X to every tree as points `number`, `number` + 1, ...

    X must not have more rows than the ring.
    """
    row = new_placed_row(trees)
    for t in range(trees.heads.size):
        for i in range(X.shape[0]):
            slide(trees, t, ring, selection, number + i, X[i], weights, row)
        store_next_number(trees, t, number + X.shape[0], selection)


@kernel
def slide_trees_by_one(trees: Trees, ring: Array, selection: Selection, number: int, X: Array, weights: Array) -> None:
    """Like `slide_trees` for one row, with prefetching for all trees.

    Without prefetching it takes 1.1 to 1.2 times as long (100 trees of 256 points, 3 to 30 features).
    """
    length, paths, scratch = ring.shape[0], new_paths(trees.heads.size), new_placed_rows(trees, trees.heads.size)
    if number >= length:
        leaving = ring[number % length : number % length + 1]
        n_selected = write_selecting_trees(trees, number - length, selection, paths.trees)
        rows = place_on_paths(trees, leaving, paths, n_selected, scratch)
        prefetch_paths(trees, rows, paths, n_selected)
        for k in range(n_selected):
            forget_placed(trees, as_signed(paths.trees[k]), rows[paths.rows[k]])
    n_selected = write_selecting_trees(trees, number, selection, paths.trees)
    rows = place_on_paths(trees, X, paths, n_selected, scratch)
    prefetch_paths(trees, rows, paths, n_selected)
    for k in range(n_selected):
        insert_placed(trees, as_signed(paths.trees[k]), number, rows[paths.rows[k]], weights)
    for t in range(trees.heads.size):
        store_next_number(trees, t, number + 1, selection)


@helper
def write_selecting_trees(trees: Trees, number: int, selection: Selection, chosen: Array) -> int:
    """Write the numbers of the trees that select the point; return how many there are."""
    index, low, high = interval_of(number, selection)
    n_selected = 0
    for t in range(trees.heads.size):
        chosen[n_selected] = t
        n_selected += low <= hashed_uniform(trees.heads, t, index) < high
    return n_selected


@allocating_helper
def place_on_paths(trees: Trees, X: Array, paths: Paths, n_paths: int, scratch: Array) -> Array:
    """Return rows such that rows[paths.rows[k]] is the single coded row of X as the tree of path k sees it."""
    if n_categorical(trees) == 0:
        return X
    for k in range(n_paths):
        paths.rows[k] = k
        write_placed_row(trees, as_signed(paths.trees[k]), X[0], scratch[k])
    return scratch


@helper
def is_selected(heads: Array, t: int, number: int, selection: Selection) -> bool:
    """Return True if tree t holds this point while it is in the window; the probability is `selection.share`.

    For tree t, each stratum has one uniform number, and each point of the stratum has an interval of the length
    `share`. The point whose interval contains the number is selected, so at most one point of a stratum is.
    """
    index, low, high = interval_of(number, selection)
    return low <= hashed_uniform(heads, t, index) < high


@helper
def interval_of(number: int, selection: Selection) -> tuple[Any, Any, Any]:
    """Return the index of the stratum of a point, and the interval of the point."""
    index, stratum = np.uint64(number) // np.uint64(selection.stratum), np.uint64(selection.stratum)
    place = np.float64(np.int64(np.uint64(number) - index * stratum))
    return np.int64(index), place * selection.share, (place + 1.0) * selection.share


@helper
def slide(
    trees: Trees, t: int, ring: Array, selection: Selection, number: int, x: Array, weights: Array, row: Array
) -> None:
    """Forget the point that leaves the window when x arrives, if tree t holds it; insert x if tree t selects it.

    `row` is scratch space for a placed row.
    """
    length = ring.shape[0]
    if number >= length and is_selected(trees.heads, t, number - length, selection):
        forget_row(trees, t, ring[number % length], row)
    if is_selected(trees.heads, t, number, selection):
        insert_placed(trees, t, number, placed_row(trees, t, x, row), weights)


@helper
def insert_placed(trees: Trees, t: int, number: int, x: Array, weights: Array) -> None:
    """Extend tree t by the placed row x, which has this number, if the tree has a free slot."""
    n_leaves = trees.heads[t]["n_leaves"]
    if n_leaves < trees.copies.shape[1]:
        if shares_points(trees):
            trees.rows[t, n_leaves] = shared_row(trees, number)
        count_insertion(trees, t, x, weights)
        extend(trees, t, x, weights)


@helper
def shared_row(trees: Trees, number: int) -> int:
    """Return the row of a point in the table of shared points."""
    return number % trees.points.shape[1]


@helper
def store_next_number(trees: Trees, t: int, number: int, selection: Selection) -> None:
    """Store the number of the next point in the tree's head. With share 0, rows are only scored: do nothing."""
    if selection.share > 0.0:
        trees.heads[t]["next_number"] = number


@helper
def forget_row(trees: Trees, t: int, x: Array, row: Array) -> None:
    """Forget a coded row if tree t holds it; `row` is scratch space."""
    forget_placed(trees, t, placed_row(trees, t, x, row))


@helper
def forget_placed(trees: Trees, t: int, x: Array) -> None:
    """Forget the placed row x if tree t holds it; no tree holds a row of NaN."""
    if trees.heads[t]["n_leaves"] > 0:
        leaf = leaf_towards(trees, t, x)
        if is_point_of(trees, t, leaf, x):
            forget(trees, t, leaf)


@helper
def count_insertion(trees: Trees, t: int, x: Array, weights: Array) -> None:
    """Count x, and whether it lies outside the root box."""
    head = trees.heads[t]
    head["n_taken"] += 1
    if head["n_leaves"] > 1 and overhang(trees, t, head["root"], x, weights) > 0.0:
        head["n_outside"] += 1


@kernel
def score_depths_and_slide(
    trees: Trees, ring: Array, selection: Selection, number: int, X: Array, steps: StepPlan, parts: Array
) -> None:
    """Like `slide_trees`; before each row is shown, write its depth in each tree, relative to c(n), to parts[t].

    Rows between which the tree does not change are walked together.
    """
    row, rows = new_placed_row(trees), new_placed_rows(trees, X.shape[0])
    for t in range(trees.heads.size):
        placed = placed_rows(trees, t, X, rows)
        first, step = 0, 0
        while first < X.shape[0]:
            end = end_of_rows_before_change(trees, t, ring, selection, number, first, X.shape[0])
            write_relative_depths(trees, t, placed, first, end, parts[t])
            for i in range(first, end - 1):
                step = advance_step(trees, t, steps, step, i)
            slide(trees, t, ring, selection, number + end - 1, X[end - 1], steps.weights[step], row)
            step = advance_step(trees, t, steps, step, end - 1)
            first = end
        store_next_number(trees, t, number + X.shape[0], selection)


@helper
def end_of_rows_before_change(
    trees: Trees, t: int, ring: Array, selection: Selection, number: int, first: int, n_rows: int
) -> int:
    """Return the end (exclusive) of the rows from `first` on that see the same tree.

    This is one past the first row that changes it.
    """
    for i in range(first, n_rows):
        new, old = number + i, number + i - ring.shape[0]
        if is_selected(trees.heads, t, new, selection) or (old >= 0 and is_selected(trees.heads, t, old, selection)):
            return i + 1
    return n_rows


@helper
def write_relative_depths(trees: Trees, t: int, X: Array, first: int, end: int, depths: Array) -> None:
    """Write the depths of some rows in a tree, relative to c(n)."""
    n = tree_population(trees, t)
    if n > 1:
        write_path_lengths(trees, t, X, first, end, depths)
    average = average_path_length(n)
    for i in range(first, end):
        depths[i] = relative_depth(depths[i] if n > 1 else 0.0, average)


@kernel
def score_expected_depths_and_slide(
    trees: Trees, ring: Array, selection: Selection, number: int, X: Array, steps: StepPlan, parts: Array
) -> None:
    """Like `score_depths_and_slide`, for expected depths."""
    row = new_placed_row(trees)
    for t in range(trees.heads.size):
        step, n, average = 0, 0, 0.0
        for i in range(X.shape[0]):
            weights = steps.weights[step]
            if tree_population(trees, t) != n:
                n = tree_population(trees, t)
                average = average_path_length(n)
            length = expected_depth_of_row(trees, t, X[i], weights, row) if n > 1 else 0.0
            parts[t, i] = relative_depth(length, average)
            slide(trees, t, ring, selection, number + i, X[i], weights, row)
            step = advance_step(trees, t, steps, step, i)
        store_next_number(trees, t, number + X.shape[0], selection)


@kernel
def score_log_sizes_and_slide(
    trees: Trees, ring: Array, selection: Selection, number: int, X: Array, steps: StepPlan, parts: Array
) -> None:
    """Like `slide_trees`; before each row is shown, write its log size minus the tree's typical log size to parts[t].

    At each step, the typical log size is set to the mean log size of the points that the tree holds.
    """
    row = new_placed_row(trees)
    for t in range(trees.heads.size):
        step = 0
        for i in range(X.shape[0]):
            weights, typical_log_size = steps.weights[step], trees.heads[t]["typical_log_size"]
            has_size = tree_population(trees, t) > 1 and not np.isnan(typical_log_size)
            parts[t, i] = excess_of_row(trees, t, X[i], weights, typical_log_size, row) if has_size else 0.0
            slide(trees, t, ring, selection, number + i, X[i], weights, row)
            if advance_step(trees, t, steps, step, i) > step:
                step += 1
                write_typical_log_size(trees, t, steps.weights[step])
        store_next_number(trees, t, number + X.shape[0], selection)


@kernel
def step_length(number: int, window: int) -> int:
    """Return the distance from a step to the next: an eighth of the window or, while it fills, of the points so far."""
    length = longest_step(number, window)
    return length if number < window else length - number % length


@kernel
def longest_step(number: int, window: int) -> int:
    """Return an upper bound on the distance between the last step at or before `number` and the next."""
    return max(min(number, window) // STEPS_PER_WINDOW, 1)


@helper
def advance_step(trees: Trees, t: int, steps: StepPlan, step: int, i: int) -> int:
    """Return the index of the next step after row i; if a step follows row i directly, write the tree's counts."""
    if step == steps.positions.size or i + 1 < steps.positions[step]:
        return step
    steps.counts[t, step, 0] = trees.heads[t]["n_taken"]
    steps.counts[t, step, 1] = trees.heads[t]["n_outside"]
    return step + 1


@kernel
def write_typical_log_sizes(trees: Trees, weights: Array) -> None:
    """Store every tree's mean log size in its head."""
    for t in range(trees.heads.size):
        write_typical_log_size(trees, t, weights)


@helper
def write_typical_log_size(trees: Trees, t: int, weights: Array) -> None:
    """Store the tree's mean log size in its head; NaN for fewer than two points."""
    has_size = tree_population(trees, t) > 1
    trees.heads[t]["typical_log_size"] = mean_log_size(trees, t, weights) if has_size else np.nan


@kernel
def build_on_window(trees: Trees, ring: Array, number: int, weights: Array, selection: Selection) -> None:
    """Build every (empty) tree on the points of the ring that it holds before point `number` arrives."""
    rows, counts = new_placed_rows(trees, trees.copies.shape[1]), np.empty(trees.copies.shape[1], np.int64)
    for t in range(trees.heads.size):
        points = selected_points(trees, t, ring, number, selection)
        if points.shape[0] > 0:
            build(trees, t, placed_rows(trees, t, points, rows[: points.shape[0]]), weights)
        if shares_points(trees) and trees.heads[t]["n_leaves"] < points.shape[0]:
            for slot in range(trees.heads[t]["n_leaves"], points.shape[0]):
                trees.rows[t, slot] = 0
            refer_to_window(trees, trees, t, ring, number, selection, counts)


@allocating_helper
def selected_points(trees: Trees, t: int, ring: Array, number: int, selection: Selection) -> Array:
    """Copy the points of the window that tree t holds, oldest first, up to the number of its slots.

    If points are shared, also write the row of each point to the slot in which `build` creates its leaf.
    """
    points = np.empty((min(ring.shape[0], trees.copies.shape[1]), ring.shape[1]))
    n_selected = 0
    for i in range(max(number - ring.shape[0], 0), number):
        x = ring[i % ring.shape[0]]
        if is_selected(trees.heads, t, i, selection) and not np.isnan(x[0]) and n_selected < points.shape[0]:
            points[n_selected] = x
            if shares_points(trees):
                trees.rows[t, n_selected] = shared_row(trees, i)
            n_selected += 1
    return points[:n_selected]


@kernel
def share_points(trees: Trees, sharing: Trees, ring: Array, number: int, selection: Selection) -> bool:
    """Write the points of `trees`, all from the window, to `sharing`, which is `sharing_trees` of the same trees.

    Return False if that is impossible: a leaf does not have as many copies as its tree selects in the window, or its
    newest copy has other bits (0.0 instead of -0.0 or vice versa); or if a tree is so deep that this would take long.
    """
    counts = np.empty(trees.copies.shape[1], np.int64)
    for t in range(trees.heads.size):
        if is_deep(trees, t):
            return False
        refer_to_window(trees, sharing, t, ring, number, selection, counts)
        for slot in range(trees.heads[t]["n_leaves"]):
            if counts[slot] != trees.copies[t, slot] or not has_same_bits(trees, sharing, t, slot):
                return False
    return True


@helper
def is_deep(trees: Trees, t: int) -> bool:
    """Return True if the mean depth of the points exceeds MAX_MEAN_DEPTH, as it may with extreme values."""
    total: Any = np.int64(0)
    for slot in range(trees.heads[t]["n_leaves"] - 1):
        total += np.int64(trees.cuts[t, slot]["population"])  # each point is counted at every node above it
    return bool(total > MAX_MEAN_DEPTH * tree_population(trees, t))


@helper
def refer_to_window(
    trees: Trees, sharing: Trees, t: int, ring: Array, number: int, selection: Selection, counts: Array
) -> None:
    """Make each leaf refer to the newest copy of its point in the window that the tree selects; count the copies."""
    n_leaves = trees.heads[t]["n_leaves"]
    for slot in range(n_leaves):
        counts[slot] = 0
    for i in range(max(number - ring.shape[0], 0), number if n_leaves > 0 else 0):
        x = ring[i % ring.shape[0]]
        if is_selected(trees.heads, t, i, selection) and not np.isnan(x[0]):
            leaf = leaf_towards(trees, t, x)
            if is_point_of(trees, t, leaf, x):
                row = shared_row(sharing, i)
                sharing.rows[t, slot_of(leaf)] = row
                for j in range(x.size):
                    sharing.points[0, row, j] = x[j]
                counts[slot_of(leaf)] += 1


@helper
def has_same_bits(trees: Trees, others: Trees, t: int, slot: int) -> bool:
    """Return True if the point in a leaf slot has the same bits in other trees."""
    point, other = trees.points[point_index(trees, t, slot)], others.points[point_index(others, t, slot)]
    for j in range(point.size):
        if point[j] != other[j] or math.copysign(1.0, point[j]) != math.copysign(1.0, other[j]):
            return False
    return True


@kernel
def forget_by_number(trees: Trees, ring: Array, selection: Selection, numbers: Array) -> None:
    """Forget the points with these numbers in every tree that holds them, then clear their rows of the ring."""
    row = new_placed_row(trees)
    for t in range(trees.heads.size):
        for i in numbers:
            if is_selected(trees.heads, t, i, selection):
                forget_row(trees, t, ring[i % ring.shape[0]], row)
    for i in numbers:
        ring[i % ring.shape[0]] = np.nan
        if shares_points(trees):
            trees.points[0, shared_row(trees, i)] = 0.0


@kernel
def write_selected(heads: Array, numbers: Array, selection: Selection, chosen: Array) -> None:
    """Write, for each point number, whether the first tree holds the point while it is in the window."""
    for i in range(numbers.size):
        chosen[i] = is_selected(heads, 0, numbers[i], selection)


@kernel
def find_foreign_points(
    trees: Trees, ring: Array, number: int, selection: Selection, key: np.uint64, max_lookups: int, is_foreign: Array
) -> None:
    """Write, for every tree, whether it holds a point that is not among the points of the window that it selects.

    Rows of the ring are found by a hash with a secret key, so that no file can make the search slow. If many rows are
    equal, one look-up is made for each of them; after max_lookups look-ups, the remaining points are accepted.
    """
    first_of, next_of = ring_index(ring, number, key)
    n_lookups, row, x = 0, np.empty(ring.shape[1]), np.empty(ring.shape[1])
    for t in range(trees.heads.size):
        is_foreign[t] = False
        for slot in range(trees.heads[t]["n_leaves"]):
            write_coded_row(trees, t, slot, x)
            position = find_row(ring, first_of, hash_row_with_key(x, row, key), x)
            n_left: Any = np.int64(trees.copies[t, slot])
            while position >= 0 and n_left > 0 and n_lookups < max_lookups:
                n_left -= is_selected(trees.heads, t, number_at(position, number, ring.shape[0]), selection)
                position = next_of[position]
                n_lookups += 1
            if n_left > 0 and (position < 0 or n_lookups < max_lookups):
                is_foreign[t] = True


@allocating_helper
def ring_index(ring: Array, number: int, key: np.uint64) -> tuple[Array, Array]:
    """Return a hash table of the distinct rows of a ring, and for each row the next equal row."""
    n_entries = 8
    while n_entries < 2 * ring.shape[0]:
        n_entries *= 2
    first_of, next_of, row = np.full(n_entries, -1), np.full(ring.shape[0], -1), np.empty(ring.shape[1])
    for i in range(min(number, ring.shape[0])):
        if not np.isnan(ring[i, 0]):
            entry = find_entry(ring, first_of, hash_row_with_key(ring[i], row, key), ring[i])
            next_of[i] = first_of[entry]
            first_of[entry] = i
    return first_of, next_of


@helper
def hash_row_with_key(x: Array, row: Array, key: np.uint64) -> Any:
    """Hash a row to 64 bits; 0.0 and -0.0 count as equal."""
    for j in range(x.size):
        row[j] = x[j] + 0.0
    bits, total = row.view(np.uint64), np.uint64(0)
    for j in range(x.size):
        total += mix_bits((bits[j] ^ key) + np.uint64(j) * STEP)  # a sum: the CPU mixes several words at once
    return mix_bits(total)


@helper
def find_entry(ring: Array, first_of: Array, row_hash: Any, x: Array) -> Any:
    """Return the entry of the hash table that contains a row, or a free entry if there is none."""
    mask = np.int64(first_of.size - 1)  # the size is a power of two
    entry = np.int64(row_hash & np.uint64(mask))
    while first_of[entry] >= 0 and not is_same_row(ring[first_of[entry]], x):
        entry = (entry + 1) & mask
    return entry


@helper
def find_row(ring: Array, first_of: Array, row_hash: Any, x: Array) -> int:
    """Return the position of a row in the ring, or -1 if it is not there."""
    return first_of[find_entry(ring, first_of, row_hash, x)]


@helper
def is_same_row(x: Array, other: Array) -> bool:
    """Return True if two rows are equal."""
    for j in range(x.size):
        if x[j] != other[j]:
            return False
    return True


@helper
def number_at(position: int, number: int, length: int) -> int:
    """Return the number of the point at a position of the ring when point `number` is the next to arrive."""
    return number - 1 - (number - 1 - position) % length


@kernel
def write_scores_of_depths(parts: Array, scores: Array) -> None:
    """Convert the mean of each column of relative depths to a score."""
    for i in range(scores.size):
        scores[i] = score_of_depth(mean_over_trees(parts, i))


@kernel
def write_scores_of_log_sizes(parts: Array, scores: Array) -> None:
    """Convert the mean of each column of excesses over the typical log size to a score."""
    for i in range(scores.size):
        scores[i] = score_of_log_size(mean_over_trees(parts, i))


@helper
def mean_over_trees(parts: Array, i: int) -> float:
    """Return the mean of column i, summed in the order of the trees."""
    total = 0.0
    for t in range(parts.shape[0]):
        total += parts[t, i]
    return total / parts.shape[0]

"""What a tree holds of a window over the latest points: those that its lot chooses, which may be all of them.

Points are numbered as they come. Whether tree t holds point i hangs on t and i alone, so that the same test that
let it in says what to forget when it leaves, and membership needs no storage. The points of the window lie in a ring
shared by all trees, number i in row i modulo its length; a row that holds none (any more) is NaN.
"""

from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.average_path_length import average_path_length, relative_depth
from imondrian.engine.box_scores_live import excess, expected_depth, mean_log_size
from imondrian.engine.boxes import overhang
from imondrian.engine.build import build
from imondrian.engine.depth import write_path_lengths
from imondrian.engine.extend import extend
from imondrian.engine.forget import forget
from imondrian.engine.jit import Array, helper, kernel, making_helper
from imondrian.engine.nodes import Trees, is_point_of, leaf_towards, tree_population
from imondrian.engine.prefetch import fetch_ways, new_ways, signed
from imondrian.engine.randomness import STEP, lot_of, mixed
from imondrian.engine.score_formula import score_of_depth, score_of_log_size


class Steps(NamedTuple):
    """Where, in a block of rows, the weights move on."""

    ends: Array  # so many rows have been shown when a step is taken
    weights: Array  # before the first step, after it, after the second, ...
    counts: Array  # by tree, written at each step: points taken so far, and those of them outside the root box


@kernel
def slide_trees(trees: Trees, ring: Array, share: float, number: int, X: Array, weights: Array) -> None:
    """Show the rows of X, no more than the ring has, to every tree, as points `number`, `number` + 1, ..."""
    for t in range(trees.heads.size):
        for i in range(X.shape[0]):
            slide(trees, t, ring, share, number + i, X[i], weights)
        note_number(trees, t, number + X.shape[0], share)


@kernel
def slide_trees_by_one(trees: Trees, ring: Array, share: float, number: int, X: Array, weights: Array) -> None:
    """Do as `slide_trees` with one row: what the trees need of memory is asked for before they need it."""
    length, ways = ring.shape[0], new_ways(trees.heads.size)
    if number >= length:
        leaving = ring[number % length : number % length + 1]
        n_chosen = choose(trees, number - length, share, ways.trees)
        fetch_ways(trees, leaving, ways, n_chosen)
        for k in range(n_chosen):
            let_go(trees, signed(ways.trees[k]), leaving[0])
    n_chosen = choose(trees, number, share, ways.trees)
    fetch_ways(trees, X, ways, n_chosen)
    for k in range(n_chosen):
        take(trees, signed(ways.trees[k]), X[0], weights)
    for t in range(trees.heads.size):
        note_number(trees, t, number + 1, share)


@helper
def choose(trees: Trees, number: int, share: float, chosen: Array) -> int:
    """List the trees whose lot chooses that point, and give their number."""
    n_chosen = 0
    for t in range(trees.heads.size):
        chosen[n_chosen] = t
        n_chosen += lot_of(trees.heads, t, number) < share
    return n_chosen


@helper
def slide(trees: Trees, t: int, ring: Array, share: float, number: int, x: Array, weights: Array) -> None:
    """Let tree t forget the point that leaves the window as x comes in, and take x if it is chosen."""
    length = ring.shape[0]
    if number >= length and lot_of(trees.heads, t, number - length) < share:
        let_go(trees, t, ring[number % length])
    if lot_of(trees.heads, t, number) < share:
        take(trees, t, x, weights)


@helper
def take(trees: Trees, t: int, x: Array, weights: Array) -> None:
    """Extend tree t by x, if it has room."""
    if trees.heads[t]["n_leaves"] < trees.points.shape[1]:
        count_taken(trees, t, x, weights)
        extend(trees, t, x, weights)


@helper
def note_number(trees: Trees, t: int, number: int, share: float) -> None:
    """Keep the number of the next point in the tree's head, unless points are shown that no tree can choose."""
    if share > 0.0:
        trees.heads[t]["next_number"] = number


@helper
def let_go(trees: Trees, t: int, x: Array) -> None:
    """Forget x if tree t holds it; a row of NaN is nowhere."""
    if trees.heads[t]["n_leaves"] > 0:
        leaf = leaf_towards(trees, t, x)
        if is_point_of(trees, t, leaf, x):
            forget(trees, t, leaf)


@helper
def count_taken(trees: Trees, t: int, x: Array, weights: Array) -> None:
    """Count x, and whether it lies outside the root box."""
    head = trees.heads[t]
    head["n_taken"] += 1
    if head["n_leaves"] > 1 and overhang(trees, t, head["root"], x, weights) > 0.0:
        head["n_outside"] += 1


@kernel
def score_depths_and_slide(
    trees: Trees, ring: Array, share: float, number: int, X: Array, steps: Steps, parts: Array
) -> None:
    """Do as `slide_trees`; before each row is shown, write its depth relative to c(n) in every tree into parts[t].

    Rows between two that change the tree are walked together.
    """
    for t in range(trees.heads.size):
        first, step = 0, 0
        while first < X.shape[0]:
            last = end_of_rest(trees, t, ring, share, number, first, X.shape[0])
            write_relative_depths(trees, t, X, first, last, parts[t])
            for i in range(first, last - 1):
                step = step_after(trees, t, steps, step, i)
            slide(trees, t, ring, share, number + last - 1, X[last - 1], steps.weights[step])
            step = step_after(trees, t, steps, step, last - 1)
            first = last
        note_number(trees, t, number + X.shape[0], share)


@helper
def end_of_rest(trees: Trees, t: int, ring: Array, share: float, number: int, first: int, n_rows: int) -> int:
    """Give where the rows from one on end that find tree t as it is: after the next that changes it."""
    for i in range(first, n_rows):
        passed = number + i - ring.shape[0]
        if lot_of(trees.heads, t, number + i) < share or (passed >= 0 and lot_of(trees.heads, t, passed) < share):
            return i + 1
    return n_rows


@helper
def write_relative_depths(trees: Trees, t: int, X: Array, first: int, last: int, depths: Array) -> None:
    """Write the depths of some rows in a tree, relative to c(n)."""
    n = tree_population(trees, t)
    if n > 1:
        write_path_lengths(trees, t, X, first, last, depths)
    average = average_path_length(n)
    for i in range(first, last):
        depths[i] = relative_depth(depths[i] if n > 1 else 0.0, average)


@kernel
def score_expected_depths_and_slide(
    trees: Trees, ring: Array, share: float, number: int, X: Array, steps: Steps, parts: Array
) -> None:
    """Do as `score_depths_and_slide`, with expected depths."""
    for t in range(trees.heads.size):
        step, n, average = 0, 0, 0.0
        for i in range(X.shape[0]):
            weights = steps.weights[step]
            if tree_population(trees, t) != n:
                n = tree_population(trees, t)
                average = average_path_length(n)
            parts[t, i] = relative_depth(expected_depth(trees, t, X[i], weights) if n > 1 else 0.0, average)
            slide(trees, t, ring, share, number + i, X[i], weights)
            step = step_after(trees, t, steps, step, i)
        note_number(trees, t, number + X.shape[0], share)


@kernel
def score_log_sizes_and_slide(
    trees: Trees, ring: Array, share: float, number: int, X: Array, steps: Steps, parts: Array
) -> None:
    """Do as `slide_trees`; before each row is shown, write its log size over the tree's level into parts[t].

    At each step the level becomes that of the present points.
    """
    for t in range(trees.heads.size):
        step = 0
        for i in range(X.shape[0]):
            weights, level = steps.weights[step], trees.heads[t]["level"]
            has_scale = tree_population(trees, t) > 1 and not np.isnan(level)
            parts[t, i] = excess(trees, t, X[i], weights, level) if has_scale else 0.0
            slide(trees, t, ring, share, number + i, X[i], weights)
            if step_after(trees, t, steps, step, i) > step:
                step += 1
                write_level(trees, t, steps.weights[step])
        note_number(trees, t, number + X.shape[0], share)


@helper
def step_after(trees: Trees, t: int, steps: Steps, step: int, i: int) -> int:
    """Tell which step comes next after row i; where one ends, note what the tree has counted."""
    if step == steps.ends.size or i + 1 < steps.ends[step]:
        return step
    steps.counts[t, step, 0] = trees.heads[t]["n_taken"]
    steps.counts[t, step, 1] = trees.heads[t]["n_outside"]
    return step + 1


@kernel
def write_levels(trees: Trees, weights: Array) -> None:
    """Keep every tree's mean log size in its head."""
    for t in range(trees.heads.size):
        write_level(trees, t, weights)


@helper
def write_level(trees: Trees, t: int, weights: Array) -> None:
    """Keep the tree's mean log size in its head; one with fewer than two points has none."""
    has_scale = tree_population(trees, t) > 1
    trees.heads[t]["level"] = mean_log_size(trees, t, weights) if has_scale else np.nan


@kernel
def build_on_window(trees: Trees, ring: Array, number: int, weights: Array, share: float) -> None:
    """Build every (empty) tree on those points of the ring that it holds before point `number` comes."""
    for t in range(trees.heads.size):
        points = chosen_points(trees, t, ring, number, share)
        if points.shape[0] > 0:
            build(trees, t, points, weights)


@making_helper
def chosen_points(trees: Trees, t: int, ring: Array, number: int, share: float) -> Array:
    """Copy the points in the window that tree t holds, oldest first, as many as it has room for."""
    points = np.empty((min(ring.shape[0], trees.points.shape[1]), ring.shape[1]))
    n_chosen = 0
    for i in range(max(number - ring.shape[0], 0), number):
        x = ring[i % ring.shape[0]]
        if lot_of(trees.heads, t, i) < share and not np.isnan(x[0]) and n_chosen < points.shape[0]:
            points[n_chosen] = x
            n_chosen += 1
    return points[:n_chosen]


@kernel
def forget_numbers(trees: Trees, ring: Array, share: float, numbers: Array) -> None:
    """Forget some points of the window in every tree that holds them, and then in the ring."""
    for t in range(trees.heads.size):
        for i in numbers:
            if lot_of(trees.heads, t, i) < share:
                let_go(trees, t, ring[i % ring.shape[0]])
    for i in numbers:
        ring[i % ring.shape[0]] = np.nan


@kernel
def write_chosen(heads: Array, numbers: Array, share: float, chosen: Array) -> None:
    """Tell of each point, by its number, whether the first tree holds it while it is in the window."""
    for i in range(numbers.size):
        chosen[i] = lot_of(heads, 0, numbers[i]) < share


@kernel
def write_strangers(
    trees: Trees, ring: Array, number: int, share: float, key: np.uint64, most_looks: int, strange: Array
) -> None:
    """Find out for every tree whether it holds a point that is not one of the window's points that it chooses.

    The rows of the ring are found by a hash with a secret key, so that no file can make the search long. Where many
    rows are alike, each look asks whether the tree has chosen one of them; after so many looks in all it is believed.
    """
    first_of, next_of = ring_index(ring, number, key)
    n_looks, row = 0, np.empty(ring.shape[1])
    for t in range(trees.heads.size):
        strange[t] = False
        for slot in range(trees.heads[t]["n_leaves"]):
            place = find_row(ring, first_of, hash_of(trees.points[t, slot], row, key), trees.points[t, slot])
            n_left: Any = np.int64(trees.copies[t, slot])
            while place >= 0 and n_left > 0 and n_looks < most_looks:
                n_left -= lot_of(trees.heads, t, number_at(place, number, ring.shape[0])) < share
                place = next_of[place]
                n_looks += 1
            if n_left > 0 and (place < 0 or n_looks < most_looks):
                strange[t] = True


@making_helper
def ring_index(ring: Array, number: int, key: np.uint64) -> tuple[Array, Array]:
    """Return a hash table of the different rows of a ring, and for each place the next one with the same row."""
    n_places = 8
    while n_places < 2 * ring.shape[0]:
        n_places *= 2
    first_of, next_of, row = np.full(n_places, -1), np.full(ring.shape[0], -1), np.empty(ring.shape[1])
    for i in range(min(number, ring.shape[0])):
        if not np.isnan(ring[i, 0]):
            at = entry_of(ring, first_of, hash_of(ring[i], row, key), ring[i])
            next_of[i] = first_of[at]
            first_of[at] = i
    return first_of, next_of


@helper
def hash_of(x: Array, row: Array, key: np.uint64) -> Any:
    """Hash a row to 64 bits; 0.0 and -0.0 are the same number."""
    for j in range(x.size):
        row[j] = x[j] + 0.0
    bits, word = row.view(np.uint64), key
    for j in range(x.size):
        word = mixed(word ^ bits[j]) + STEP
    return mixed(word ^ key)


@helper
def entry_of(ring: Array, first_of: Array, word: Any, x: Array) -> Any:
    """Return the entry of the hash table for a row: the one it has, or a free one."""
    last = np.int64(first_of.size - 1)  # the size is a power of two
    at = np.int64(word & np.uint64(last))
    while first_of[at] >= 0 and not is_same_row(ring[first_of[at]], x):
        at = (at + 1) & last
    return at


@helper
def find_row(ring: Array, first_of: Array, word: Any, x: Array) -> int:
    """Return a place of the ring that holds that row, -1 if there is none."""
    return first_of[entry_of(ring, first_of, word, x)]


@helper
def is_same_row(x: Array, other: Array) -> bool:
    """Return True if two rows are equal."""
    for j in range(x.size):
        if x[j] != other[j]:
            return False
    return True


@helper
def number_at(place: int, number: int, length: int) -> int:
    """Return the number of the point at a place of a ring in which point `number` comes next."""
    return number - 1 - (number - 1 - place) % length


@kernel
def write_scores_of_depths(parts: Array, scores: Array) -> None:
    """Turn the mean of each column of relative depths into a score."""
    for i in range(scores.size):
        scores[i] = score_of_depth(mean_over_trees(parts, i))


@kernel
def write_scores_of_log_sizes(parts: Array, scores: Array) -> None:
    """Turn the mean of each column of log sizes over the level into a score."""
    for i in range(scores.size):
        scores[i] = score_of_log_size(mean_over_trees(parts, i))


@helper
def mean_over_trees(parts: Array, i: int) -> float:
    """Average column i, tree by tree in their order."""
    total = 0.0
    for t in range(parts.shape[0]):
        total += parts[t, i]
    return total / parts.shape[0]

"""What a tree holds of a window over the latest points: those that its lot chooses, which may be all of them.

Points are numbered as they come. Whether tree t holds point i hangs on t and i alone, so that the same test that
let it in says what to forget when it leaves, and membership needs no storage. The points of the window lie in a ring
shared by all trees, number i in row i modulo its length; a row that holds none (any more) is NaN.
"""

from typing import NamedTuple

import numpy as np

from imondrian.engine.boxes import overhang
from imondrian.engine.build import build
from imondrian.engine.depth import path_length
from imondrian.engine.extend import extend
from imondrian.engine.forget import forget
from imondrian.engine.harmonic import average_path_length, relative_depth, score_of_depth, score_of_log_size
from imondrian.engine.isolation import EXTENT, LOG, excess, expected_depth, mean_log_size, write_size, write_sizes
from imondrian.engine.jit import Array, helper, kernel, making_helper
from imondrian.engine.nodes import Trees, child_towards, is_leaf, is_point_of, leaf_towards, slot_of, tree_population
from imondrian.engine.randomness import lot_of


class Steps(NamedTuple):
    """Where, in a block of rows, the weights move on."""

    ends: Array  # so many rows have been shown when a step is taken
    weights: Array  # before the first step, after it, after the second, ...
    counts: Array  # by tree, written at each step: points taken so far, and those of them outside the root box


class Pane(NamedTuple):
    """What all trees, or some of them, are shown the points of a window through."""

    ring: Array  # the points
    sizes: Array  # of the trees' boxes, see isolation.py, kept up for walks by size; of no slot where they are not
    share: float  # of the points that a tree holds


@kernel
def slide_trees(trees: Trees, pane: Pane, number: int, X: Array, weights: Array) -> None:
    """Show the rows of X, no more than the ring has, to every tree, as points `number`, `number` + 1, ..."""
    for t in range(trees.heads.size):
        for i in range(X.shape[0]):
            slide(trees, t, pane, number + i, X[i], weights)
        note_number(trees, t, number + X.shape[0], pane.share)


@helper
def slide(trees: Trees, t: int, pane: Pane, number: int, x: Array, weights: Array) -> None:
    """Let tree t forget the point that leaves the window as x comes in, and take x if it is chosen."""
    length = pane.ring.shape[0]
    if number >= length and lot_of(trees.heads, t, number - length) < pane.share:
        let_go(trees, t, pane.ring[number % length], weights, pane.sizes)
    if lot_of(trees.heads, t, number) < pane.share and trees.heads[t]["n_leaves"] < trees.points.shape[1]:
        count_taken(trees, t, x, weights)
        extend(trees, t, x, weights)
        refresh_sizes(trees, t, x, weights, pane.sizes)


@helper
def note_number(trees: Trees, t: int, number: int, share: float) -> None:
    """Keep the number of the next point in the tree's head, unless points are shown that no tree can choose."""
    if share > 0.0:
        trees.heads[t]["next_number"] = number


@helper
def let_go(trees: Trees, t: int, x: Array, weights: Array, sizes: Array) -> None:
    """Forget x if tree t holds it; a row of NaN is nowhere."""
    n_leaves = trees.heads[t]["n_leaves"]
    if n_leaves == 0:
        return
    leaf = leaf_towards(trees, t, x)
    if is_point_of(trees, t, leaf, x):
        above = trees.parents[t, leaf]
        forget(trees, t, leaf)
        if trees.heads[t]["n_leaves"] < n_leaves and n_leaves > 1 and sizes.shape[1] > 0:
            for which in (EXTENT, LOG):  # the last inner node has moved into the place of the one above the leaf
                sizes[t, slot_of(above), which] = sizes[t, n_leaves - 2, which]
            refresh_sizes(trees, t, x, weights, sizes)


@helper
def refresh_sizes(trees: Trees, t: int, x: Array, weights: Array, sizes: Array) -> None:
    """Write the sizes of the boxes on the way of x, which has come or gone, where sizes are kept up."""
    if sizes.shape[1] > 0 and trees.heads[t]["n_leaves"] > 0:
        node = trees.heads[t]["root"]
        while not is_leaf(node):
            write_size(trees, t, node, weights, sizes)
            node = child_towards(trees, t, node, x)


@helper
def count_taken(trees: Trees, t: int, x: Array, weights: Array) -> None:
    """Count x, and whether it lies outside the root box."""
    head = trees.heads[t]
    head["n_taken"] += 1
    if head["n_leaves"] > 1 and overhang(trees, t, head["root"], x, weights) > 0.0:
        head["n_outside"] += 1


@kernel
def score_depths_and_slide(trees: Trees, pane: Pane, number: int, X: Array, steps: Steps, parts: Array) -> None:
    """Do as `slide_trees`; before each row is shown, write its depth relative to c(n) in every tree into parts[t]."""
    for t in range(trees.heads.size):
        step, n, average = 0, 0, 0.0
        for i in range(X.shape[0]):
            if tree_population(trees, t) != n:
                n = tree_population(trees, t)
                average = average_path_length(n)
            parts[t, i] = relative_depth(path_length(trees, t, X[i]) if n > 1 else 0.0, average)
            slide(trees, t, pane, number + i, X[i], steps.weights[step])
            step = step_after(trees, t, steps, step, i)
        note_number(trees, t, number + X.shape[0], pane.share)


@kernel
def score_expected_depths_and_slide(trees: Trees, pane: Pane, number: int, X: Array, steps: Steps, parts: Array) -> None:
    """Do as `score_depths_and_slide`, with expected depths."""
    for t in range(trees.heads.size):
        step, n, average = 0, 0, 0.0
        for i in range(X.shape[0]):
            weights = steps.weights[step]
            if tree_population(trees, t) != n:
                n = tree_population(trees, t)
                average = average_path_length(n)
            parts[t, i] = relative_depth(expected_depth(trees, t, X[i], weights) if n > 1 else 0.0, average)
            slide(trees, t, pane, number + i, X[i], weights)
            step = step_after(trees, t, steps, step, i)
        note_number(trees, t, number + X.shape[0], pane.share)


@kernel
def score_log_sizes_and_slide(trees: Trees, pane: Pane, number: int, X: Array, steps: Steps, parts: Array) -> None:
    """Do as `slide_trees`; before each row is shown, write its log size over the tree's level into parts[t].

    At each step the level becomes that of the present points.
    """
    for t in range(trees.heads.size):
        step = 0
        for i in range(X.shape[0]):
            weights, level = steps.weights[step], trees.heads[t]["level"]
            has_scale = tree_population(trees, t) > 1 and not np.isnan(level)
            parts[t, i] = excess(trees, t, X[i], weights, pane.sizes, level) if has_scale else 0.0
            slide(trees, t, pane, number + i, X[i], weights)
            if step_after(trees, t, steps, step, i) > step:
                step += 1
                write_level(trees, t, steps.weights[step], pane.sizes)
        note_number(trees, t, number + X.shape[0], pane.share)


@helper
def step_after(trees: Trees, t: int, steps: Steps, step: int, i: int) -> int:
    """Tell which step comes next after row i; where one ends, note what the tree has counted."""
    if step == steps.ends.size or i + 1 < steps.ends[step]:
        return step
    steps.counts[t, step, 0] = trees.heads[t]["n_taken"]
    steps.counts[t, step, 1] = trees.heads[t]["n_outside"]
    return step + 1


@kernel
def write_levels(trees: Trees, weights: Array, sizes: Array) -> None:
    """Write the sizes of all boxes, and keep every tree's mean log size in its head."""
    for t in range(trees.heads.size):
        write_level(trees, t, weights, sizes)


@helper
def write_level(trees: Trees, t: int, weights: Array, sizes: Array) -> None:
    """Do so for one tree; one with fewer than two points has no mean log size."""
    write_sizes(trees, t, weights, sizes)
    has_scale = tree_population(trees, t) > 1
    trees.heads[t]["level"] = mean_log_size(trees, t, sizes) if has_scale else np.nan


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
def forget_numbers(trees: Trees, pane: Pane, numbers: Array, weights: Array) -> None:
    """Forget some points of the window in every tree that holds them."""
    for t in range(trees.heads.size):
        for i in numbers:
            if lot_of(trees.heads, t, i) < pane.share:
                let_go(trees, t, pane.ring[i % pane.ring.shape[0]], weights, pane.sizes)


@kernel
def write_chosen(heads: Array, numbers: Array, share: float, chosen: Array) -> None:
    """Tell of each point, by its number, whether the first tree holds it while it is in the window."""
    for i in range(numbers.size):
        chosen[i] = lot_of(heads, 0, numbers[i]) < share


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

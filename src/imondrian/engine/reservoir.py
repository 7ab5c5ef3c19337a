"""Reservoir sampling: a tree holds all points that it is shown, or a uniform sample of bounded size.

The sample is a reservoir (Algorithm L of [Li1994], which draws the number of the next point it will accept, so that the
points in between cost nothing). It stays uniform when points are forgotten: later points compensate for forgotten ones
(random pairing, [Gemulla2008]). Copies are indistinguishable, so copies in the sample are forgotten before copies
outside; the sample then holds fewer copies than a uniform sample would.
"""

import math
from typing import Any

import numpy as np

from imondrian.engine.build import build
from imondrian.engine.extend import extend
from imondrian.engine.forget import forget
from imondrian.engine.jit import Array, allocating_helper, helper, kernel
from imondrian.engine.nodes import (
    MAX_VALUE,
    NO_LIMIT,
    NO_NODE,
    Trees,
    child_towards,
    is_leaf,
    point_index,
    population,
    slot_of,
    tree_population,
)
from imondrian.engine.places import n_categorical, new_placed_row, new_placed_rows, placed_row, placed_rows
from imondrian.engine.prefetch import Paths, new_paths, prefetch_paths
from imondrian.engine.randomness import exponential, sample_without_replacement, uniform

_SMALLEST_KEY, _LARGEST_KEY = 1e-300, 1.0 - 2.0**-53
_LARGE_TREE = 2048  # a tree with more leaves does not fit into the cache
_ROWS_AHEAD = 16  # number of rows to prefetch for; with many more, the first would be evicted before they are used


@kernel
def build_trees(trees: Trees, X: Array, weights: Array, max_samples: int) -> None:
    """Build every (empty) tree on its own sample of the rows of X."""
    rows = new_placed_rows(trees, min(X.shape[0], max_samples))
    for t in range(trees.heads.size):
        build(trees, t, placed_rows(trees, t, draw_sample(trees, t, X, max_samples), rows), weights)


@allocating_helper
def draw_sample(trees: Trees, t: int, X: Array, max_samples: int) -> Array:
    """Show the rows of X to the empty tree t; return those it accepts.

    If X has fewer than max_samples rows, X itself is returned. Otherwise the result is a copy. Its values are checked
    again, because another thread may have written to X since X was checked: values not within MAX_VALUE become 0.
    """
    start_sample(trees, t, X.shape[0], max_samples)
    if X.shape[0] < max_samples:
        return X
    rows = sample_without_replacement(trees.heads, t, X.shape[0], max_samples)
    points = np.empty((max_samples, X.shape[1]))
    for i in range(max_samples):
        for j in range(X.shape[1]):
            value = X[rows[i], j]
            points[i, j] = value if abs(value) <= MAX_VALUE else 0.0
    return points


@kernel
def build_on_samples(trees: Trees, samples: Array, n_points: int, weights: Array, max_samples: int) -> None:
    """Build every (empty) tree t on samples[t], a sample of n_points points that was drawn elsewhere."""
    rows = new_placed_rows(trees, samples.shape[1])
    for t in range(trees.heads.size):
        start_sample(trees, t, n_points, max_samples)
        build(trees, t, placed_rows(trees, t, samples[t], rows), weights)


@helper
def start_sample(trees: Trees, t: int, n_points: int, max_samples: int) -> None:
    """Record that the empty tree t is shown n_points points, from which its sample is drawn."""
    trees.heads[t]["n_points"] = n_points
    if n_points >= max_samples:
        start_reservoir(trees, t, max_samples)


@helper
def start_reservoir(trees: Trees, t: int, max_samples: int) -> None:
    """Draw the state of a full reservoir that has been shown n_points points.

    Imagine that each point has a uniform key, and that the sample consists of the points with the smallest keys. Then
    the largest key in the sample is the max_samples-th order statistic of n_points keys; the sum below is Renyi's
    representation of it.
    """
    n = trees.heads[t]["n_points"]
    total = 0.0
    for i in range(max_samples):
        total += exponential(trees.heads, t) / (n - i)
    trees.heads[t]["log_key"] = math.log(max(-math.expm1(-total), _SMALLEST_KEY))
    trees.heads[t]["next_kept"] = n
    draw_next_accepted(trees, t)


@helper
def draw_next_accepted(trees: Trees, t: int) -> None:
    """Draw the number of the next point whose key is below the largest key in the sample."""
    rate = -math.log1p(-min(math.exp(trees.heads[t]["log_key"]), _LARGEST_KEY))
    n_skipped = exponential(trees.heads, t) / rate if rate > 0.0 else float(NO_LIMIT)
    furthest = max(float(NO_LIMIT) - trees.heads[t]["next_kept"], 0.0)
    trees.heads[t]["next_kept"] += 1 + int(min(n_skipped, furthest))


@helper
def draw_smaller_key(trees: Trees, t: int, max_samples: int) -> None:
    """Draw the new largest key in the sample, after a point with a smaller key has replaced another."""
    trees.heads[t]["log_key"] -= exponential(trees.heads, t) / max_samples


@kernel
def extend_trees(trees: Trees, X: Array, weights: Array, max_samples: int) -> None:
    """Show the rows of X to every tree, one after the other; row i has the feature weights weights[i]."""
    paths, ahead, row = new_paths(_ROWS_AHEAD), new_placed_rows(trees, _ROWS_AHEAD), new_placed_row(trees)
    for t in range(trees.heads.size):
        i, prefetched = 0, 0
        while i < X.shape[0]:
            if i >= prefetched and max_samples == NO_LIMIT and trees.heads[t]["n_leaves"] > _LARGE_TREE:
                prefetched = prefetch_rows(trees, t, X, i, paths, ahead)
            n_skipped = min(n_rows_to_skip(trees, t, max_samples), X.shape[0] - i)
            trees.heads[t]["n_points"] += n_skipped
            i += n_skipped
            if i < X.shape[0]:
                if accepts_next(trees, t, max_samples):
                    extend_by_row(trees, t, X[i], weights[i], row)
                i += 1


@helper
def extend_by_row(trees: Trees, t: int, x: Array, weights: Array, row: Array) -> None:
    """Extend tree t by a coded row; `row` is scratch space."""
    extend(trees, t, placed_row(trees, t, x, row), weights)


@allocating_helper
def prefetch_rows(trees: Trees, t: int, X: Array, first: int, paths: Paths, ahead: Array) -> int:
    """Prefetch the paths of the next rows in a tree that does not fit into the cache; return the row after the last.

    Without it, `extend_trees` takes 1.03 to 1.17 times as long (trees of 8,000 points, 3 and 10 features).
    """
    n_rows = min(paths.rows.size, X.shape[0] - first)
    for i in range(n_rows):
        paths.trees[i], paths.rows[i] = t, i
    prefetch_paths(trees, placed_rows(trees, t, X[first : first + n_rows], ahead), paths, n_rows)
    return first + n_rows


@helper
def n_rows_to_skip(trees: Trees, t: int, max_samples: int) -> int:
    """Return the number of points before the next one that tree t may accept."""
    head = trees.heads[t]
    if head["n_owed"] > 0 or head["n_points"] < max_samples:
        return 0
    return max(head["next_kept"] - head["n_points"] - 1, 0)


@helper
def accepts_next(trees: Trees, t: int, max_samples: int) -> bool:
    """Count the next point; return True if tree t accepts it. To accept it, a full sample first forgets another."""
    head = trees.heads[t]
    if head["n_owed"] > 0:
        head["n_points"] += 1
        return fills_vacancy(trees, t, max_samples)
    head["n_points"] += 1
    if head["n_points"] == max_samples:
        start_reservoir(trees, t, max_samples)
    elif head["n_points"] > max_samples:
        if head["n_points"] < head["next_kept"]:
            return False
        forget(trees, t, random_leaf(trees, t))
        draw_smaller_key(trees, t, max_samples)
        draw_next_accepted(trees, t)
    return True


@helper
def fills_vacancy(trees: Trees, t: int, max_samples: int) -> bool:
    """Compensate for one forgotten point; return True if, by a random draw, the new point replaces it in the sample."""
    head = trees.heads[t]
    n_vacancies = min(max_samples, head["n_points"] - 1 + head["n_owed"]) - tree_population(trees, t)
    is_accepted = uniform(trees.heads, t) * head["n_owed"] < n_vacancies
    head["n_owed"] -= 1
    return is_accepted


@helper
def random_leaf(trees: Trees, t: int) -> int:
    """Draw a leaf with probability proportional to its number of copies: a uniform point of the tree."""
    rank = int(uniform(trees.heads, t) * tree_population(trees, t))
    node = trees.heads[t]["root"]
    while not is_leaf(node):
        cut = trees.cuts[t, slot_of(node)]
        n_left = int(population(trees, t, cut["left"]))
        if rank < n_left:
            node = cut["left"]
        else:
            rank -= n_left
            node = cut["right"]
    return node


@kernel
def forget_points(trees: Trees, X: Array) -> None:
    """Forget the rows of X in every tree. A row that is not in a tree's sample only changes the tree's counters."""
    row, stack = new_placed_row(trees), np.empty(trees.cuts.shape[1] + 1, np.uint32)
    for t in range(trees.heads.size):
        for i in range(X.shape[0]):
            forget_row(trees, t, X[i], row, stack)


@helper
def forget_row(trees: Trees, t: int, x: Array, row: Array, stack: Array) -> None:
    """Forget a coded row in tree t; `row` and `stack` are scratch space."""
    leaf, _ = find_held_leaf(trees, t, placed_row(trees, t, x, row), start_search(trees, t, stack), stack)
    if leaf != NO_NODE:
        forget(trees, t, leaf)
    trees.heads[t]["n_points"] -= 1
    trees.heads[t]["n_owed"] += 1


@helper
def start_search(trees: Trees, t: int, stack: Array) -> int:
    """Put the root on the stack of nodes to search; return the number of nodes on the stack."""
    stack[0] = trees.heads[t]["root"]
    return 1 if trees.heads[t]["n_leaves"] > 0 else 0


@helper
def find_held_leaf(trees: Trees, t: int, x: Array, n_stacked: int, stack: Array) -> tuple[Any, int]:
    """Return the next leaf whose point equals x in all but its rarities, and the number of nodes left on the stack.

    The rarities of a point are those of the time when it was shown, which the caller does not know. Both sides of a cut
    along a rarity are therefore searched. Without categories, this is one walk to the leaf of x.
    """
    n_codes, end = n_categorical(trees), trees.boxes.shape[3] - n_categorical(trees)
    first = end - n_codes
    while n_stacked > 0:
        n_stacked -= 1
        node = stack[n_stacked]
        while not is_leaf(node):
            cut = trees.cuts[t, slot_of(node)]
            below = child_towards(trees, t, node, x)
            if first <= cut["split_feature"] < end:
                below = cut["left"]
                stack[n_stacked] = cut["right"]
                n_stacked += 1
            node = below
        if equals_point_except(trees, t, node, x, first, end):
            return node, n_stacked
    return NO_NODE, 0


@helper
def equals_point_except(trees: Trees, t: int, leaf: int, x: Array, first: int, end: int) -> bool:
    """Return True if x equals the leaf's point in all coordinates except those from `first` to `end` - 1."""
    point = trees.points[point_index(trees, t, slot_of(leaf))]
    for j in range(trees.boxes.shape[3]):
        if point[j] != x[j] and not first <= j < end:
            return False
    return True


@kernel
def write_copies_held(trees: Trees, X: Array, held: Array) -> None:
    """Write to held[t, i] how many copies of row i tree t holds, whatever their rarities."""
    row, stack = new_placed_row(trees), np.empty(trees.cuts.shape[1] + 1, np.uint32)
    for t in range(trees.heads.size):
        for i in range(X.shape[0]):
            held[t, i] = n_copies(trees, t, X[i], row, stack)


@helper
def n_copies(trees: Trees, t: int, x: Array, row: Array, stack: Array) -> int:
    """Return the number of copies of a coded row that tree t holds; `row` and `stack` are scratch space."""
    placed, n = placed_row(trees, t, x, row), 0
    leaf, n_stacked = find_held_leaf(trees, t, placed, start_search(trees, t, stack), stack)
    while leaf != NO_NODE:
        n += int(trees.copies[t, slot_of(leaf)])
        leaf, n_stacked = find_held_leaf(trees, t, placed, n_stacked, stack)
    return n

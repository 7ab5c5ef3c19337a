"""Box-aware isolation in trees at rest: the results of `isolation`, from the leaf upwards, with half of the work.

Boxes lie in the boxes above them. Hence, once outside of a box, x is outside of all that follow, and it is enough to
go up from its leaf until a box holds it. Above, nothing is cut off: what those nodes add hangs on them alone, and is
summed once for all rows.
"""

from typing import NamedTuple

import numpy as np

from imondrian.engine.average_path_length import average_path_length
from imondrian.engine.box_scores_live import cut_off_by, held_log_size, mean_log_size
from imondrian.engine.boxes import extent, leaf_overhang, overhang, overhang_and_extent
from imondrian.engine.jit import Array, helper, kernel, making_helper
from imondrian.engine.logarithms import decay, floored_log, log_of_count
from imondrian.engine.nodes import NO_NODE, Trees, is_leaf, is_point_of, population, slot_of, tree_population


class Way(NamedTuple):
    """Scratch paper: the nodes that x hangs over, from its leaf upwards, and what is known of them."""

    nodes: Array
    rates: Array  # by which x hangs over the box
    extents: Array  # of the box


@making_helper
def new_way(length: int) -> Way:
    """Make room for a way of that many nodes."""
    return Way(np.empty(length, np.uint32), np.empty(length), np.empty(length))


@helper
def time_above(trees: Trees, t: int, node: int) -> float:
    """Give the time of the cut above a node, 0 at the root."""
    above = trees.parents[t, node]
    return 0.0 if above == NO_NODE else trees.cuts[t, slot_of(above)]["split_time"]


@helper
def expected_depth_above(trees: Trees, t: int, leaf: int, depth: int, x: Array, weights: Array, way: Way) -> float:
    """Do as `expected_depth` for x that falls into a leaf of that depth."""
    n_over, node = 0, trees.parents[t, leaf]
    while node != NO_NODE:
        rate = overhang(trees, t, node, x, weights)
        if rate == 0.0:
            break
        way.nodes[n_over], way.rates[n_over] = node, rate
        n_over += 1
        node = trees.parents[t, node]
    spent, total = 0.0, float(depth - n_over)
    time = time_above(trees, t, way.nodes[n_over - 1]) if n_over > 0 else 0.0
    for k in range(n_over - 1, -1, -1):
        split_time = trees.cuts[t, slot_of(way.nodes[k])]["split_time"]
        spent = cut_off_by(spent, way.rates[k], split_time - time)
        total += decay(spent)
        time = split_time
    if is_point_of(trees, t, leaf, x):
        return total + average_path_length(trees.copies[t, slot_of(leaf)])
    return total + 1.0


@helper
def excess_above(
    trees: Trees, t: int, leaf: int, x: Array, weights: Array, way: Way, insides: Array, level: float
) -> float:
    """Do as `excess` for x that falls into a leaf; insides[t] says what the nodes above each node add."""
    rate = leaf_overhang(trees, t, leaf, x, weights)
    if rate == 0.0 and is_point_of(trees, t, leaf, x):
        held = leaf != trees.heads[t]["root"]
        return held_log_size(trees, t, leaf, weights) - level if held else 0.0
    n_over = n_hanging_over(trees, t, leaf, x, weights, way)
    top = way.nodes[n_over - 1] if n_over > 0 else leaf
    before, time, spent, total = log_of_crowd(trees, t, top), time_above(trees, t, top), 0.0, insides[t, top]
    for k in range(n_over - 1, -1, -1):
        split_time = trees.cuts[t, slot_of(way.nodes[k])]["split_time"]
        spent = cut_off_by(spent, way.rates[k], split_time - time)
        after = decay(spent) * log_of_crowd(trees, t, way.nodes[k - 1] if k > 0 else leaf)
        total += (before - after) * floored_log(way.extents[k] + way.rates[k])
        before, time = after, split_time
    return (total + before * floored_log(rate)) / log_of_crowd(trees, t, trees.heads[t]["root"]) - level


@helper
def n_hanging_over(trees: Trees, t: int, leaf: int, x: Array, weights: Array, way: Way) -> int:
    """Note the nodes that x hangs over, from its leaf upwards, and count them."""
    n_over, node = 0, trees.parents[t, leaf]
    while node != NO_NODE:
        rate, size = overhang_and_extent(trees, t, node, x, weights)
        if rate == 0.0:
            break
        way.nodes[n_over], way.rates[n_over], way.extents[n_over] = node, rate, size
        n_over += 1
        node = trees.parents[t, node]
    return n_over


@helper
def log_of_crowd(trees: Trees, t: int, node: int) -> float:
    """Give the log of the number of points below a node, were x among them."""
    return log_of_count(population(trees, t, node) + 1)


@kernel
def write_insides_and_means(trees: Trees, weights: Array, insides: Array, means: Array) -> None:
    """Write what the nodes above each node add to the log size of a point inside, and every tree's mean log size.

    A tree with fewer than two points has no scale and gets the mean 0.
    """
    waiting = np.empty(trees.cuts.shape[1] + 1, np.uint32)
    for t in range(trees.heads.size):
        means[t] = mean_log_size(trees, t, weights) if tree_population(trees, t) > 1 else 0.0
        if trees.heads[t]["n_leaves"] > 0:
            write_insides(trees, t, weights, insides, waiting)


@helper
def write_insides(trees: Trees, t: int, weights: Array, insides: Array, waiting: Array) -> None:
    """Write what the nodes above each node add, from the root downwards."""
    waiting[0], n_waiting = trees.heads[t]["root"], 1
    insides[t, waiting[0]] = 0.0
    while n_waiting > 0:
        n_waiting -= 1
        node = waiting[n_waiting]
        if not is_leaf(node):
            cut, size = trees.cuts[t, slot_of(node)], floored_log(extent(trees, t, node, weights))
            for below in (cut["left"], cut["right"]):
                fall = log_of_crowd(trees, t, node) - log_of_crowd(trees, t, below)
                insides[t, below] = insides[t, node] + fall * size
                waiting[n_waiting] = below
                n_waiting += 1

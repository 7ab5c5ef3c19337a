"""The box-aware walk: how early, and by how much room, a point would be isolated if it were inserted now.

At a node that x hangs over by g (weighted), Algorithm 5 would cut x off with probability 1 - exp(-g * dt), dt the
time since the cut above. The walk carries the probability `alive` that this has not happened yet, so that its
results are expectations over Algorithm 5 given the tree, exact but for what happens with a chance below 1e-6; nothing
is sampled. The scores are ours, not the paper's. This is the walk in trees that may change with the next point; where
they rest while many rows are scored, `upwards` finds the same with less work.
"""

from imondrian.engine.average_path_length import average_path_length
from imondrian.engine.boxes import extent, leaf_overhang, lesser, overhang, overhang_and_extent
from imondrian.engine.jit import Array, helper
from imondrian.engine.logarithms import LOG_ZERO, MAX_DECAY, decay, floored_log, log_of_count
from imondrian.engine.nodes import (
    NO_NODE,
    Trees,
    child_towards,
    inner_node,
    is_leaf,
    is_point_of,
    population,
    slot_of,
    tree_population,
)


@helper
def cut_off_by(spent: float, rate: float, duration: float) -> float:
    """Add up the rate of being cut off over time; x is alive with probability `decay(spent)`, never quite 0."""
    return lesser(spent + rate * duration, MAX_DECAY)


@helper
def expected_depth(trees: Trees, t: int, x: Array, weights: Array) -> float:
    """Give the expected depth at which x would be isolated, were it inserted by Algorithm 5.

    It is one edge, and one more for every node that x passes alive. A point that is held is isolated where it is: its
    depth, and c(k) for k copies.
    """
    node, time, spent, alive, total = trees.heads[t]["root"], 0.0, 0.0, 1.0, 0.0
    while not is_leaf(node):
        rate, split_time = overhang(trees, t, node, x, weights), trees.cuts[t, slot_of(node)]["split_time"]
        if rate > 0.0:
            spent = cut_off_by(spent, rate, split_time - time)
            alive = decay(spent)
        total += alive
        time = split_time
        node = child_towards(trees, t, node, x)
    if is_point_of(trees, t, node, x):
        return total + average_path_length(trees.copies[t, slot_of(node)])
    return total + 1.0


@helper
def excess(trees: Trees, t: int, x: Array, weights: Array, level: float) -> float:
    """Give by how much the log size of x exceeds the level; not at all where all points, x too, are copies."""
    root = trees.heads[t]["root"]
    if is_leaf(root) and is_point_of(trees, t, root, x):
        return 0.0
    return log_size(trees, t, x, weights) - level


@helper
def log_size(trees: Trees, t: int, x: Array, weights: Array) -> float:
    """Give the log size of the cell of x, averaged over all scales of mass.

    A node counts by how much alive * log(n + 1) falls there, n the points around x: because x is cut off, or because
    others are parted from it. Over the whole way it falls from the log of the whole crowd to nothing, so that every
    halving of the crowd around x counts alike.
    """
    node, time, spent, alive, total = trees.heads[t]["root"], 0.0, 0.0, 1.0, 0.0
    whole = log_of_count(tree_population(trees, t) + 1)
    before = whole
    while not is_leaf(node):
        split_time = trees.cuts[t, slot_of(node)]["split_time"]
        rate, extent_of_box = overhang_and_extent(trees, t, node, x, weights)
        if rate > 0.0:
            spent = cut_off_by(spent, rate, split_time - time)
            alive = decay(spent)
        time = split_time
        node = child_towards(trees, t, node, x)
        after = alive * log_of_count(population(trees, t, node) + 1)
        total += (before - after) * floored_log(extent_of_box + rate)
        before = after
    rate = leaf_overhang(trees, t, node, x, weights)
    if rate == 0.0 and is_point_of(trees, t, node, x):
        return held_log_size(trees, t, node, weights)
    return (total + before * floored_log(rate)) / whole


@helper
def held_log_size(trees: Trees, t: int, leaf: int, weights: Array) -> float:
    """Give the log size of the cell of a point held, up from its leaf: here it is itself one of the crowd."""
    node, crowd = trees.parents[t, leaf], log_of_count(trees.copies[t, slot_of(leaf)])
    size = LOG_ZERO if node == NO_NODE else floored_log(extent(trees, t, node, weights))
    total = crowd * (size - 0.5 * crowd)
    while node != NO_NODE:
        wider = log_of_count(population(trees, t, node))
        total += (wider - crowd) * floored_log(extent(trees, t, node, weights))
        node, crowd = trees.parents[t, node], wider
    return total / crowd


@helper
def mean_log_size(trees: Trees, t: int, weights: Array) -> float:
    """Give the mean of `log_size` over the points that tree t holds.

    Summed by nodes: a cut of log size s that parts n points into k and l adds s * (n log n - k log k - l log l).
    """
    whole = entropy(tree_population(trees, t))
    total = 0.0
    for slot in range(trees.heads[t]["n_leaves"] - 1):
        cut = trees.cuts[t, slot]
        parted = entropy(cut["population"])
        for node in (cut["left"], cut["right"]):
            if not is_leaf(node):
                parted -= entropy(population(trees, t, node))
        total += parted * floored_log(extent(trees, t, inner_node(slot), weights))
    for slot in range(trees.heads[t]["n_leaves"]):
        total -= 0.5 * entropy(trees.copies[t, slot]) * log_of_count(trees.copies[t, slot])
    if trees.heads[t]["n_leaves"] == 1:
        total += whole * LOG_ZERO
    return total / whole


@helper
def entropy(n: int) -> float:
    """Give n log n."""
    return n * log_of_count(n)

"""The box-aware walk: how early, and by how much room, a point would be isolated if it were inserted now.

At a node that x hangs over by g (weighted), Algorithm 5 would cut x off with probability 1 - exp(-g * dt), dt the
time since the cut above. The walk carries the probability `alive` that this has not happened yet, so that its
results are expectations over Algorithm 5 given the tree, exact but for what happens with a chance below 1e-6; nothing
is sampled. The scores are ours, not the paper's.
"""

from imondrian.engine.boxes import bound, extent, leaf_overhang, lesser, overhang, overhang_and_extent
from imondrian.engine.harmonic import average_path_length, relative_depth, score_of_depth, score_of_log_size
from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.logarithms import LOG_ZERO, MAX_DECAY, decay, floored_log, log_of_count
from imondrian.engine.nodes import (
    LOWER,
    NO_NODE,
    UPPER,
    Trees,
    child_towards,
    inner_node,
    is_leaf,
    is_point_of,
    leaf_towards,
    population,
    slot_of,
    tree_population,
)

HIGH, LOW = 0, 1  # the side of the others on which x lies


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


@kernel
def add_expected_depths(trees: Trees, X: Array, weights: Array, sums: Array) -> None:
    """Add to each row's sum its expected depth relative to c(n) in every tree, n the points that the tree holds."""
    for t in range(trees.heads.size):
        n = tree_population(trees, t)
        average = average_path_length(n)
        for i in range(X.shape[0]):
            sums[i] += relative_depth(expected_depth(trees, t, X[i], weights) if n > 1 else 0.0, average)


@kernel
def write_mean_log_sizes(trees: Trees, weights: Array, means: Array) -> None:
    """Write every tree's mean log size; one with fewer than two points has no scale and gets 0."""
    for t in range(trees.heads.size):
        means[t] = mean_log_size(trees, t, weights) if tree_population(trees, t) > 1 else 0.0


@kernel
def add_log_sizes(trees: Trees, X: Array, weights: Array, means: Array, sums: Array) -> None:
    """Add to each row's sum by how much its log size exceeds the mean one in every tree."""
    for t in range(trees.heads.size):
        if tree_population(trees, t) > 1:
            for i in range(X.shape[0]):
                sums[i] += excess(trees, t, X[i], weights, means[t])


@kernel
def expected_score_of_row(trees: Trees, x: Array, weights: Array) -> float:
    """Give the score of one row by expected depth, as that of many is, to the last bit."""
    total = 0.0
    for t in range(trees.heads.size):
        n = tree_population(trees, t)
        total += relative_depth(expected_depth(trees, t, x, weights) if n > 1 else 0.0, average_path_length(n))
    return score_of_depth(total / trees.heads.size)


@kernel
def size_score_of_row(trees: Trees, x: Array, weights: Array, means: Array) -> float:
    """Give the score of one row by log size, as that of many is, to the last bit."""
    total = 0.0
    for t in range(trees.heads.size):
        if tree_population(trees, t) > 1:
            total += excess(trees, t, x, weights, means[t])
    return score_of_log_size(total / trees.heads.size)


@kernel
def add_shares(trees: Trees, X: Array, weights: Array, shares: Array) -> None:
    """Add to shares[i, side, j] the share of feature j in the isolation of row i on that side, for every tree."""
    for t in range(trees.heads.size):
        if tree_population(trees, t) > 1:
            for i in range(X.shape[0]):
                leaf = leaf_towards(trees, t, X[i])
                if is_point_of(trees, t, leaf, X[i]):
                    share_as_held(trees, t, X[i], leaf, shares[i])
                else:
                    share_as_new(trees, t, X[i], weights, shares[i])


@helper
def share_as_new(trees: Trees, t: int, x: Array, weights: Array, shares: Array) -> None:
    """Credit each cut on the way of x to its feature, and being cut off to the features by their overhang.

    The credits are the weights that `log_size` gives to the same cuts, and sum to 1.
    """
    node, time = trees.heads[t]["root"], 0.0
    n = log_of_count(tree_population(trees, t) + 1)
    unit, alive, spent = 1.0 / n, 1.0, 0.0
    while not is_leaf(node):
        cut = trees.cuts[t, slot_of(node)]
        rate = overhang(trees, t, node, x, weights)
        spent = cut_off_by(spent, rate, cut["split_time"] - time)
        survives = decay(spent)
        credit_overhang(trees, t, node, x, weights, rate, (alive - survives) * n * unit, shares)
        alive, time = survives, cut["split_time"]
        below = child_towards(trees, t, node, x)
        n_below = log_of_count(population(trees, t, below) + 1)
        side = HIGH if below == cut["right"] else LOW
        shares[side, cut["split_feature"]] += alive * (n - n_below) * unit
        node, n = below, n_below
    rate = leaf_overhang(trees, t, node, x, weights)
    credit_overhang(trees, t, node, x, weights, rate, alive * n * unit, shares)


@helper
def credit_overhang(
    trees: Trees, t: int, node: int, x: Array, weights: Array, rate: float, credit: float, shares: Array
) -> None:
    """Divide the credit among the features by the weighted overhang of x over the node's box, `rate` in all."""
    if rate == 0.0:
        return  # x is inside, or its overhang so small that it vanishes
    for j in range(x.size):
        below = bound(trees, t, node, LOWER, j) - x[j]
        above = x[j] - bound(trees, t, node, UPPER, j)
        if above > 0.0:
            shares[HIGH, j] += credit * min(weights[j] * above / rate, 1.0)
        elif below > 0.0:
            shares[LOW, j] += credit * min(weights[j] * below / rate, 1.0)


@helper
def share_as_held(trees: Trees, t: int, x: Array, leaf: int, shares: Array) -> None:
    """Credit each cut on the way of x, a point of the tree, to its feature; the credits sum to 1."""
    whole = log_of_count(tree_population(trees, t)) - log_of_count(trees.copies[t, slot_of(leaf)])
    node = trees.heads[t]["root"]
    while not is_leaf(node):
        cut = trees.cuts[t, slot_of(node)]
        below = child_towards(trees, t, node, x)
        side = HIGH if below == cut["right"] else LOW
        parted = log_of_count(cut["population"]) - log_of_count(population(trees, t, below))
        shares[side, cut["split_feature"]] += parted / whole
        node = below

"""The box-aware walk: how early, and by how much room, a point would be isolated if it were inserted now.

At a node that x hangs over by g (weighted), Algorithm 5 would cut x off with probability 1 - exp(-g * dt), dt the
time since the cut above. The walk carries the probability `alive` that this has not happened yet, so that its
results are exact expectations over Algorithm 5 given the tree; nothing is sampled. The scores are ours, not the
paper's.
"""

import math

from imondrian.engine.boxes import bound, extent, overhang
from imondrian.engine.harmonic import average_path_length, relative_depth
from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.nodes import (
    LOWER,
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
_NEGLIGIBLE = 1e-6
_LOG_ZERO = math.log(5e-324)


@helper
def survival(alive: float, rate: float, duration: float) -> float:
    """Give the probability not to be cut off at this rate; 0 where hardly anything of x is alive any more."""
    chance = math.exp(-rate * duration)
    return chance if alive * chance >= _NEGLIGIBLE else 0.0


@helper
def expected_depth(trees: Trees, t: int, x: Array, weights: Array) -> float:
    """Give the expected depth at which x would be isolated, were it inserted by Algorithm 5."""
    node, time, depth = trees.heads[t]["root"], 0.0, 0
    alive, total = 1.0, 0.0
    while not is_leaf(node):
        cut = trees.cuts[t, slot_of(node)]
        survives = survival(alive, overhang(trees, t, node, x, weights), cut["split_time"] - time)
        total += alive * (1.0 - survives) * (depth + 1)
        alive *= survives
        if alive == 0.0:
            return total
        time = cut["split_time"]
        node = child_towards(trees, t, node, x)
        depth += 1
    if is_point_of(trees, t, node, x):
        return total + alive * (depth + average_path_length(trees.copies[t, slot_of(node)]))
    return total + alive * (depth + 1)


@helper
def log_size(trees: Trees, t: int, x: Array, weights: Array) -> float:
    """Give the log size of the cell of x, averaged over all scales of mass.

    The weights log(M / M') of the cuts on its way, M points before and M' after, telescope to the log of the whole
    crowd, so that every halving of the crowd around x counts alike.
    """
    node, time = trees.heads[t]["root"], 0.0
    crowd = float(tree_population(trees, t))
    n, size = crowd, _LOG_ZERO
    alive, new, held = 1.0, 0.0, 0.0  # `new` counts x as one point more, `held` as one of those in the tree
    while not is_leaf(node):
        cut = trees.cuts[t, slot_of(node)]
        rate = overhang(trees, t, node, x, weights)
        size = floored_log(extent(trees, t, node, weights) + rate)
        survives = survival(alive, rate, cut["split_time"] - time)
        new += alive * (1.0 - survives) * math.log(n + 1.0) * size
        alive *= survives
        if alive == 0.0:
            return new / math.log(crowd + 1.0)
        time = cut["split_time"]
        node = child_towards(trees, t, node, x)
        n_below = float(population(trees, t, node))
        new += alive * math.log((n + 1.0) / (n_below + 1.0)) * size
        held += math.log(n / n_below) * size
        n = n_below
    if is_point_of(trees, t, node, x):
        return (held + math.log(n) * (size - 0.5 * math.log(n))) / math.log(crowd)
    size = floored_log(overhang(trees, t, node, x, weights))
    return (new + alive * math.log(n + 1.0) * size) / math.log(crowd + 1.0)


@helper
def floored_log(size: float) -> float:
    """Give log(size), for no size at all that of the smallest number."""
    return math.log(size) if size > 0.0 else _LOG_ZERO


@helper
def mean_log_size(trees: Trees, t: int, weights: Array) -> float:
    """Give the mean of `log_size` over the points that tree t holds.

    Summed by nodes: a cut of log size s that parts n points into k and l adds s * (n log n - k log k - l log l).
    """
    crowd = float(tree_population(trees, t))
    total = 0.0
    for slot in range(trees.heads[t]["n_leaves"] - 1):
        cut = trees.cuts[t, slot]
        size = floored_log(extent(trees, t, inner_node(slot), weights))
        parted = entropy(cut["population"])
        for node in (cut["left"], cut["right"]):
            if not is_leaf(node):
                parted -= entropy(population(trees, t, node))
        total += size * parted
    for slot in range(trees.heads[t]["n_leaves"]):
        copies = float(trees.copies[t, slot])
        total -= 0.5 * entropy(copies) * math.log(copies)
    if trees.heads[t]["n_leaves"] == 1:
        total += entropy(crowd) * _LOG_ZERO
    return total / entropy(crowd)


@helper
def entropy(n: float) -> float:
    """Give n log n."""
    return n * math.log(n)


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
                sums[i] += log_size(trees, t, X[i], weights) - means[t]


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
    node, time, alive = trees.heads[t]["root"], 0.0, 1.0
    n = float(tree_population(trees, t))
    unit = 1.0 / math.log(n + 1.0)
    while not is_leaf(node):
        cut = trees.cuts[t, slot_of(node)]
        rate = overhang(trees, t, node, x, weights)
        if rate > 0.0:
            survives = survival(alive, rate, cut["split_time"] - time)
            credit_overhang(trees, t, node, x, weights, alive * (1.0 - survives) * math.log(n + 1.0) * unit, shares)
            alive *= survives
            if alive == 0.0:
                return
        time = cut["split_time"]
        below = child_towards(trees, t, node, x)
        n_below = float(population(trees, t, below))
        side = HIGH if below == cut["right"] else LOW
        shares[side, cut["split_feature"]] += alive * math.log((n + 1.0) / (n_below + 1.0)) * unit
        node, n = below, n_below
    credit_overhang(trees, t, node, x, weights, alive * math.log(n + 1.0) * unit, shares)


@helper
def credit_overhang(trees: Trees, t: int, node: int, x: Array, weights: Array, credit: float, shares: Array) -> None:
    """Divide the credit among the features by the weighted overhang of x over the node's box."""
    rate = overhang(trees, t, node, x, weights)
    if rate == 0.0:
        return  # so small that it vanishes
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
    whole = math.log(tree_population(trees, t) / trees.copies[t, slot_of(leaf)])
    node = trees.heads[t]["root"]
    while not is_leaf(node):
        cut = trees.cuts[t, slot_of(node)]
        below = child_towards(trees, t, node, x)
        side = HIGH if below == cut["right"] else LOW
        parted = math.log(cut["population"] / population(trees, t, below))
        shares[side, cut["split_feature"]] += parted / whole
        node = below

"""The share of each feature in the isolation of a point: on which cuts, and on which side, it is parted from others."""

from imondrian.engine.box_scores_live import cut_off_by
from imondrian.engine.boxes import bound, leaf_overhang, overhang
from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.logarithms import decay, log_of_count
from imondrian.engine.nodes import (
    LOWER,
    UPPER,
    Trees,
    child_towards,
    is_leaf,
    is_point_of,
    leaf_towards,
    population,
    slot_of,
    tree_population,
)

HIGH, LOW = 0, 1  # the side of the others on which x lies


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

    The credits are the weights that the log size gives to the same cuts, and sum to 1.
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

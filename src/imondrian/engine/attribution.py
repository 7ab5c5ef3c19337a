"""Attribution: the share of each feature in the isolation of a point, separately for high and low values."""

from imondrian.engine.box_scores_live import accumulate_hazard
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
from imondrian.engine.places import new_placed_row, placed_row

HIGH, LOW = 0, 1  # the side: x lies above or below the other points


@kernel
def add_attributions(trees: Trees, X: Array, weights: Array, attributions: Array) -> None:
    """For every tree, add the share of coordinate j in the isolation of row i to attributions[i, side, j]."""
    row = new_placed_row(trees)
    for t in range(trees.heads.size):
        if tree_population(trees, t) > 1:
            for i in range(X.shape[0]):
                attribute_row(trees, t, X[i], weights, row, attributions[i])


@helper
def attribute_row(trees: Trees, t: int, x: Array, weights: Array, row: Array, attributions: Array) -> None:
    """Add the share of each coordinate in the isolation of a coded row; `row` is scratch space."""
    placed = placed_row(trees, t, x, row)
    leaf = leaf_towards(trees, t, placed)
    if is_point_of(trees, t, leaf, placed):
        attribute_held_point(trees, t, placed, leaf, attributions)
    else:
        attribute_new_point(trees, t, placed, weights, attributions)


@helper
def attribute_new_point(trees: Trees, t: int, x: Array, weights: Array, attributions: Array) -> None:
    """Credit each cut on the path of x to its feature, and the isolation of x to the features with an overhang.

    x is treated as if it were inserted now. The two credits of a node sum to the node's weight in
    `box_scores_live.log_size`, divided by the sum of the weights of all nodes on the path.
    """
    node, time = trees.heads[t]["root"], 0.0
    log_n = log_of_count(tree_population(trees, t) + 1)
    unit, survival, hazard = 1.0 / log_n, 1.0, 0.0
    while not is_leaf(node):
        cut = trees.cuts[t, slot_of(node)]
        rate = overhang(trees, t, node, x, weights)
        hazard = accumulate_hazard(hazard, rate, cut["split_time"] - time)
        survival_after = decay(hazard)
        credit_overhang(trees, t, node, x, weights, rate, (survival - survival_after) * log_n * unit, attributions)
        survival, time = survival_after, cut["split_time"]
        below = child_towards(trees, t, node, x)
        log_n_below = log_of_count(population(trees, t, below) + 1)
        side = HIGH if below == cut["right"] else LOW
        attributions[side, cut["split_feature"]] += survival * (log_n - log_n_below) * unit
        node, log_n = below, log_n_below
    rate = leaf_overhang(trees, t, node, x, weights)
    credit_overhang(trees, t, node, x, weights, rate, survival * log_n * unit, attributions)


@helper
def credit_overhang(
    trees: Trees, t: int, node: int, x: Array, weights: Array, rate: float, credit: float, attributions: Array
) -> None:
    """Divide the credit among the features in proportion to the weighted overhang of x over the node's box.

    `rate` is the sum of the weighted overhangs.
    """
    if rate == 0.0:
        return  # x is inside, or its overhang underflows to 0
    for j in range(weights.size):
        below = bound(trees, t, node, LOWER, j) - x[j]
        above = x[j] - bound(trees, t, node, UPPER, j)
        if above > 0.0:
            attributions[HIGH, j] += credit * min(weights[j] * above / rate, 1.0)
        elif below > 0.0:
            attributions[LOW, j] += credit * min(weights[j] * below / rate, 1.0)


@helper
def attribute_held_point(trees: Trees, t: int, x: Array, leaf: int, attributions: Array) -> None:
    """Credit each cut on the path of x, a point that the tree holds, to its feature; the credits sum to 1."""
    total = log_of_count(tree_population(trees, t)) - log_of_count(trees.copies[t, slot_of(leaf)])
    node = trees.heads[t]["root"]
    while not is_leaf(node):
        cut = trees.cuts[t, slot_of(node)]
        below = child_towards(trees, t, node, x)
        side = HIGH if below == cut["right"] else LOW
        credit = log_of_count(cut["population"]) - log_of_count(population(trees, t, below))
        attributions[side, cut["split_feature"]] += credit / total
        node = below

"""Detectors of many keys in shared tables: score, learn and label a block of rows, grouped by key.

A shard contains the detectors of some keys. Detector k has the trees k * n_trees, ..., (k + 1) * n_trees - 1 of the
shard, and item k of every other array. Each detector does what a `StreamDetector` with a window does, bit for bit.

A group contains the rows of one key in a block, in the order of arrival, and the counts that the key's detector had
before the block. If the detector's counts have changed since, an earlier, interrupted call has processed the group, and
kernels skip the group. So an interrupted block is completed by processing it again.
"""

from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.average_path_length import average_path_length, relative_depth
from imondrian.engine.box_scores_live import excess_of_row, expected_depth_of_row
from imondrian.engine.histogram import N_BINS, quantile_threshold, two_means_threshold
from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.moments import COUNT, MEAN, SQUARES, add_point, weight
from imondrian.engine.nodes import Trees, tree_population
from imondrian.engine.places import new_placed_row
from imondrian.engine.randomness import start_streams
from imondrian.engine.score_formula import score_of_depth, score_of_log_size
from imondrian.engine.surprise import Tail, count_with_surprise, new_clock, surprise_in, tail_of, threshold_in
from imondrian.engine.window import (
    Selection,
    slide,
    step_length,
    store_next_number,
    write_relative_depths,
    write_typical_log_size,
)

COUNTS = np.dtype(
    [
        ("number", np.int64),  # number of the next point of the window
        ("next_step", np.int64),  # number of points after which weights and typical log sizes are updated next
        ("n_seen", np.int64),  # rows so far
        ("n_skipped", np.int64),  # unusable rows so far
        ("n_scored", np.int64),  # usable rows so far
    ]
)
GROUP = np.dtype(
    [
        ("detector", np.int64),  # index in the shard
        ("first", np.int64),  # the rows of the group are order[first:end]
        ("end", np.int64),
        ("number", np.int64),  # `number` of the detector before the block
        ("n_seen", np.int64),  # `n_seen` of the detector before the block
    ]
)
_CLOCK_SIZE = new_clock().size


class Shard(NamedTuple):
    """The detectors of some keys: the first axis of every array but the trees is the detector."""

    trees: Trees
    rings: Array  # points of the windows: detector, row, feature
    moments: Array  # of the points of each window at its last step: detector, 3, feature
    weights: Array  # of the features: detector, feature
    histograms: Array  # of the scores: detector, 2, N_BINS
    clocks: Array  # of the histograms: detector, item of the clock
    counts: Array  # of type COUNTS


class Block(NamedTuple):
    """Rows of keys in one shard. `order` and the arrays after it have the rows of all shards."""

    groups: Array  # of type GROUP, one per key of this shard
    order: Array  # positions in X, group by group
    X: Array  # points; an unusable row is NaN
    scores: Array  # output; NaN for an unusable row
    deviations: Array  # output: signed distances from the mean of the key's window, in standard deviations


class LabelRule(NamedTuple):
    """How rows are labelled by their scores."""

    value: float  # parameter of the rule: a probability, a share or a score
    growth: float  # factor between the weights of successive scores in the histogram
    run_weight: float  # weight of a surprising score that continues a run of them, see `surprise.py`
    warm_up: int  # number of scored rows before any row is labelled as an anomaly


class Labels(NamedTuple):
    """Output: the labels of each row of a block."""

    thresholds: Array
    surprises: Array
    are_anomalies: Array


def shard_arrays(n_keys: int, window: int, n_features: int) -> dict[str, Any]:
    """Return the shapes and types of the arrays of a shard besides its trees, by name."""
    number = np.dtype(np.float64)
    return {
        "rings": ((n_keys, window, n_features), number),
        "moments": ((n_keys, 3, n_features), number),
        "weights": ((n_keys, n_features), number),
        "histograms": ((n_keys, 2, N_BINS), number),
        "clocks": ((n_keys, _CLOCK_SIZE), number),
        "counts": ((n_keys,), COUNTS),
    }


@kernel
def start_detector(shard: Shard, k: int, seed: np.uint64, weights: Array, clock: Array) -> None:
    """Start a detector in item k of a shard; the item must be as it was allocated."""
    n_trees = shard.trees.heads.size // shard.counts.size
    heads = shard.trees.heads[k * n_trees : (k + 1) * n_trees]
    start_streams(heads, seed)
    shard.rings[k] = np.nan
    shard.weights[k] = weights
    shard.clocks[k] = clock
    shard.counts[k]["next_step"] = 1


# -- scores -----------------------------------------------------------------------------------------------------------


@kernel
def score_sizes_and_learn(shard: Shard, selection: Selection, n_scaled: int, block: Block) -> None:
    """Score each row by the log size of its cell, then learn it. The weights of the first n_scaled features adapt."""
    n_trees, scratch = shard.trees.heads.size // shard.counts.size, new_placed_row(shard.trees)
    for g in range(block.groups.size):
        k = block.groups[g]["detector"]
        for p in rows_to_learn(shard, block, g):
            i = block.order[p]
            if write_deviations(shard, k, block, i):
                block.scores[i] = size_score(shard, k, n_trees, block.X[i], scratch)
                if learn_row(shard, k, n_trees, selection, n_scaled, block.X[i], scratch):
                    for t in range(k * n_trees, (k + 1) * n_trees):
                        write_typical_log_size(shard.trees, t, shard.weights[k])


@kernel
def score_expected_depths_and_learn(shard: Shard, selection: Selection, n_scaled: int, block: Block) -> None:
    """Like `score_sizes_and_learn`, by expected depth."""
    n_trees, scratch = shard.trees.heads.size // shard.counts.size, new_placed_row(shard.trees)
    for g in range(block.groups.size):
        k = block.groups[g]["detector"]
        for p in rows_to_learn(shard, block, g):
            i = block.order[p]
            if write_deviations(shard, k, block, i):
                block.scores[i] = expected_depth_score(shard, k, n_trees, block.X[i], scratch)
                learn_row(shard, k, n_trees, selection, n_scaled, block.X[i], scratch)


@kernel
def score_depths_and_learn(shard: Shard, selection: Selection, n_scaled: int, block: Block) -> None:
    """Like `score_sizes_and_learn`, by path length."""
    n_trees, scratch = shard.trees.heads.size // shard.counts.size, new_placed_row(shard.trees)
    depths = np.empty(block.X.shape[0])
    for g in range(block.groups.size):
        k = block.groups[g]["detector"]
        for p in rows_to_learn(shard, block, g):
            i = block.order[p]
            if write_deviations(shard, k, block, i):
                block.scores[i] = depth_score(shard, k, n_trees, block.X, i, depths)
                learn_row(shard, k, n_trees, selection, n_scaled, block.X[i], scratch)


@helper
def rows_to_learn(shard: Shard, block: Block, g: int) -> range:
    """Return the positions in `order` of the rows of group g; none if its detector has learned them."""
    group = block.groups[g]
    is_learned = shard.counts[group["detector"]]["number"] != group["number"]
    return range(group["end"] if is_learned else group["first"], group["end"])


@helper
def write_deviations(shard: Shard, k: int, block: Block, i: int) -> bool:
    """Write how far row i is from the mean of the window; return False if the row is unusable (its score is NaN)."""
    if np.isnan(block.X[i, 0]):
        block.scores[i] = np.nan
        return False
    for j in range(block.X.shape[1]):
        factor = weight(shard.moments[k, COUNT, j], shard.moments[k, MEAN, j], shard.moments[k, SQUARES, j])
        block.deviations[i, j] = (block.X[i, j] - shard.moments[k, MEAN, j]) * factor
    return True


@helper
def size_score(shard: Shard, k: int, n_trees: int, x: Array, scratch: Array) -> float:
    """Return the score of x by the log size of its cells in the trees of detector k."""
    total = 0.0
    for t in range(k * n_trees, (k + 1) * n_trees):
        typical_log_size = shard.trees.heads[t]["typical_log_size"]
        if tree_population(shard.trees, t) > 1 and not np.isnan(typical_log_size):
            total += excess_of_row(shard.trees, t, x, shard.weights[k], typical_log_size, scratch)
    return score_of_log_size(total / n_trees)


@helper
def expected_depth_score(shard: Shard, k: int, n_trees: int, x: Array, scratch: Array) -> float:
    """Return the score of x by its expected depth in the trees of detector k."""
    total, n, average = 0.0, 0, 0.0
    for t in range(k * n_trees, (k + 1) * n_trees):
        if tree_population(shard.trees, t) != n:
            n = tree_population(shard.trees, t)
            average = average_path_length(n)
        length = 0.0
        if n > 1:
            length = expected_depth_of_row(shard.trees, t, x, shard.weights[k], scratch)
        total += relative_depth(length, average)
    return score_of_depth(total / n_trees)


@helper
def depth_score(shard: Shard, k: int, n_trees: int, X: Array, i: int, depths: Array) -> float:
    """Return the score of row i by its path lengths in the trees of detector k; `depths` is scratch space."""
    total = 0.0
    for t in range(k * n_trees, (k + 1) * n_trees):
        write_relative_depths(shard.trees, t, X, i, i + 1, depths)
        total += depths[i]
    return score_of_depth(total / n_trees)


@helper
def learn_row(
    shard: Shard, k: int, n_trees: int, selection: Selection, n_scaled: int, x: Array, scratch: Array
) -> bool:
    """Show x to the trees of detector k, and store it in the ring; return True if that completes a step."""
    ring, number = shard.rings[k], shard.counts[k]["number"]
    for t in range(k * n_trees, (k + 1) * n_trees):
        slide(shard.trees, t, ring, selection, number, x, shard.weights[k], scratch)
        store_next_number(shard.trees, t, number + 1, selection)
    for j in range(x.size):
        ring[number % ring.shape[0], j] = x[j]
    shard.counts[k]["number"] = number + 1
    if number + 1 < shard.counts[k]["next_step"]:
        return False
    take_step(shard, k, n_scaled)
    return True


@helper
def take_step(shard: Shard, k: int, n_scaled: int) -> None:
    """Compute the moments and the weights of the current window."""
    moments, ring, number = shard.moments[k], shard.rings[k], shard.counts[k]["number"]
    for j in range(moments.shape[1]):
        moments[COUNT, j] = moments[MEAN, j] = moments[SQUARES, j] = 0.0
    for i in range(max(number - ring.shape[0], 0), number):
        add_point(moments, ring[i % ring.shape[0]])
    for j in range(n_scaled):
        shard.weights[k, j] = weight(moments[COUNT, j], moments[MEAN, j], moments[SQUARES, j])
    shard.counts[k]["next_step"] += step_length(number, ring.shape[0])


# -- labels -----------------------------------------------------------------------------------------------------------


@kernel
def label_by_surprise(shard: Shard, rule: LabelRule, block: Block, labels: Labels) -> None:
    """Label the scored rows of a block; an ordinary row is labelled as an anomaly with the probability `rule.value`."""
    for g in range(block.groups.size):
        k = block.groups[g]["detector"]
        for p in rows_to_label(shard, block, g):
            tail = tail_of(shard.histograms[k], shard.clocks[k])
            threshold = threshold_in(shard.histograms[k], tail, rule.value)
            label_row(shard, k, rule, block, labels, block.order[p], tail, threshold)


@kernel
def label_by_score(shard: Shard, rule: LabelRule, block: Block, labels: Labels) -> None:
    """Label the scored rows of a block: scores above `rule.value` are anomalies."""
    for g in range(block.groups.size):
        k = block.groups[g]["detector"]
        for p in rows_to_label(shard, block, g):
            tail = tail_of(shard.histograms[k], shard.clocks[k])
            label_row(shard, k, rule, block, labels, block.order[p], tail, rule.value)


@kernel
def label_by_share(shard: Shard, rule: LabelRule, block: Block, labels: Labels) -> None:
    """Label the scored rows of a block: about the share `rule.value` of the latest scores are anomalies."""
    for g in range(block.groups.size):
        k = block.groups[g]["detector"]
        for p in rows_to_label(shard, block, g):
            tail = tail_of(shard.histograms[k], shard.clocks[k])
            threshold = quantile_threshold(shard.histograms[k], rule.value)
            label_row(shard, k, rule, block, labels, block.order[p], tail, threshold)


@kernel
def label_by_two_means(shard: Shard, rule: LabelRule, block: Block, labels: Labels) -> None:
    """Label the scored rows of a block: scores in the upper of two clusters are anomalies."""
    for g in range(block.groups.size):
        k = block.groups[g]["detector"]
        for p in rows_to_label(shard, block, g):
            tail = tail_of(shard.histograms[k], shard.clocks[k])
            threshold = two_means_threshold(shard.histograms[k])
            label_row(shard, k, rule, block, labels, block.order[p], tail, threshold)


@helper
def rows_to_label(shard: Shard, block: Block, g: int) -> range:
    """Return the positions in `order` of the rows of group g; none if its detector has counted them."""
    group = block.groups[g]
    is_labelled = shard.counts[group["detector"]]["n_seen"] != group["n_seen"]
    return range(group["end"] if is_labelled else group["first"], group["end"])


@helper
def label_row(
    shard: Shard, k: int, rule: LabelRule, block: Block, labels: Labels, i: int, tail: Tail, threshold: float
) -> None:
    """Label row i and count it; after the first half of the warm-up, its score counts for later thresholds."""
    counts, score = shard.counts[k], block.scores[i]
    surprise = surprise_in(shard.histograms[k], tail, score)
    if counts["n_scored"] >= rule.warm_up // 2:
        count_with_surprise(shard.histograms[k], shard.clocks[k], score, surprise, rule.growth, rule.run_weight)
    labels.thresholds[i] = threshold
    labels.surprises[i] = surprise
    labels.are_anomalies[i] = score > threshold and counts["n_scored"] >= rule.warm_up
    counts["n_seen"] += 1
    if np.isnan(score):
        counts["n_skipped"] += 1
    else:
        counts["n_scored"] += 1

"""Box-aware scores, compared with plain Python written from their definition, and with real insertions."""

import math

import numpy as np
import pytest
from hypothesis import given
from numba import config

from imondrian.engine.attribution import HIGH, LOW, add_attributions
from imondrian.engine.box_scores_static import write_sums_above_and_means
from imondrian.engine.frozen import add_frozen_expected_depths, add_frozen_log_sizes, freeze
from imondrian.engine.nodes import Trees, slice_trees
from imondrian.engine.one_row import (
    expected_score_of_row,
    size_score_of_row,
    window_size_score_of_row,
)
from imondrian.engine.plain_tree import plain_tree
from imondrian.engine.score_formula import depths_to_scores, log_sizes_to_scores
from tests.plain_walks import add_expected_depths, add_log_sizes
from tests.reference_tree import c
from tests.strategies import POINT_SETS, SEEDS, built, extended, grown, point_sets

WEIGHTS = np.array([1.0, 0.5, 3.0])


def path(tree, x):
    """Return the nodes on the path of x from the root to the leaf."""
    nodes = [0]
    while tree.left[nodes[-1]] >= 0:
        node = nodes[-1]
        goes_left = x[tree.split_feature[node]] < tree.split_value[node]
        nodes.append(tree.left[node] if goes_left else tree.right[node])
    return nodes


def over(tree, node, x, weights):
    return float(np.sum(weights * (np.maximum(tree.lower[node] - x, 0) + np.maximum(x - tree.upper[node], 0))))


def extent(tree, node, weights):
    return float(np.sum(weights * (tree.upper[node] - tree.lower[node])))


def isolation(tree, x, weights):
    """Return, for each node on the path, its overhang and the probabilities of isolation there and of survival."""
    alive, earlier, result = 1.0, 0.0, []
    for node in path(tree, x):
        g = over(tree, node, x, weights)
        leaf = tree.left[node] < 0
        p = float(g > 0) if leaf else 1 - math.exp(-g * (tree.split_time[node] - earlier))
        result.append((node, g, alive * p, alive * (1 - p)))
        alive, earlier = alive * (1 - p), tree.split_time[node]
    return result


def plain_expected(tree, x, weights):
    steps = isolation(tree, x, weights)
    inside = steps[-1][3] * (len(steps) - 1 + c(int(tree.population[steps[-1][0]])))
    return sum(cut_off * (depth + 1) for depth, (_, _, cut_off, _) in enumerate(steps)) + inside


def plain_size(tree, x, weights):
    steps = isolation(tree, x, weights)
    n, m = tree.population[0], tree.population[steps[-1][0]]
    logs = [math.log(extent(tree, node, weights) + g) for node, g, _, _ in steps if extent(tree, node, weights) + g > 0]
    below = [tree.population[node] for node, *_ in steps[1:]]
    if steps[-1][1] == 0:
        cuts = sum(math.log(tree.population[s[0]] / k) * size for s, k, size in zip(steps, below, logs, strict=False))
        return (cuts + math.log(m) * (logs[-1] - math.log(m) / 2)) / math.log(n)
    total = sum(
        cut_off * math.log(tree.population[node] + 1) * size
        for (node, _, cut_off, _), size in zip(steps, logs, strict=True)
    )
    total += sum(
        alive * math.log((tree.population[node] + 1) / (k + 1)) * size
        for (node, _, _, alive), k, size in zip(steps, below, logs, strict=False)
    )
    return total / math.log(n + 1)


def plain_shares(tree, x, weights):
    steps = isolation(tree, x, weights)
    shares = np.zeros((2, x.size))
    held = steps[-1][1] == 0
    more = 0 if held else 1
    for (node, g, cut_off, alive), after in zip(steps, [*steps[1:], None], strict=True):
        n = tree.population[node] + more
        if g > 0:
            sizes = weights * np.maximum(x - tree.upper[node], 0), weights * np.maximum(tree.lower[node] - x, 0)
            shares += np.array(sizes) / g * cut_off * math.log(n)
        if after is not None:
            side = HIGH if after[0] == tree.right[node] else LOW
            shares[side, tree.split_feature[node]] += alive * math.log(n / (tree.population[after[0]] + more))
    return shares / shares.sum()


def ordinary(seed, n=20, d=3):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, d))
    points[1] = points[0]
    return points, np.vstack([points, rng.normal(size=(20, d)) * 3])


def per_tree(trees, add):
    return np.array([add(slice_trees(trees, slice(t, t + 1))) for t in range(trees.heads.size)])


def sums(add, rows, *arguments):
    def of_tree(tree):
        result = np.zeros(len(rows))
        add(tree, rows, WEIGHTS, *arguments, result)
        return result

    return of_tree


def log_sizes(rows):
    """Return a function for `per_tree` that returns the log size of each row in a tree."""
    return sums(add_log_sizes, rows, np.zeros(1))


def mean_log_sizes(trees, weights):
    return sums_above_and_means(trees, weights)[1]


def sums_above_and_means(trees, weights):
    sums_above, means = np.empty(trees.parents.shape), np.empty(trees.heads.size)
    write_sums_above_and_means(trees, weights, sums_above, means)
    return sums_above, means


@pytest.mark.parametrize("seed", range(5))
def test_expected_depth_agrees_with_its_definition(seed):
    points, rows = ordinary(seed)
    trees = built(points, seed)
    found = per_tree(trees, sums(add_expected_depths, rows))
    plain = [[plain_expected(plain_tree(trees, t), x, WEIGHTS) / c(20) for x in rows] for t in range(3)]
    np.testing.assert_allclose(found, plain, rtol=2e-5)  # the survival probability is limited to at least 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_log_size_agrees_with_its_definition(seed):
    points, rows = ordinary(seed)
    trees = built(points, seed)
    found = per_tree(trees, log_sizes(rows))
    plain = [[plain_size(plain_tree(trees, t), x, WEIGHTS) for x in rows] for t in range(3)]
    np.testing.assert_allclose(found, plain, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_the_mean_log_size_is_that_of_the_points_held(seed):
    points, _ = ordinary(seed)
    trees = built(points, seed)
    means = mean_log_sizes(trees, WEIGHTS)
    np.testing.assert_allclose(means, per_tree(trees, log_sizes(points)).mean(axis=1), rtol=1e-12)


@given(points=point_sets(min_rows=2), seed=SEEDS)
def test_the_mean_excess_of_the_points_held_is_zero_on_hostile_points(points, seed):
    trees, weights = built(points, seed), np.ones(points.shape[1])
    excess = np.zeros(len(points))
    add_log_sizes(trees, points, weights, mean_log_sizes(trees, weights), excess)
    assert abs(excess.mean()) < 1e-9


def plain_scores(trees, rows, weights):
    """Return the sums for both scores from the plain walk."""
    depths, excesses = np.zeros(len(rows)), np.zeros(len(rows))
    add_expected_depths(trees, rows, weights, depths)
    add_log_sizes(trees, rows, weights, mean_log_sizes(trees, weights), excesses)
    return depths, excesses


def fast_scores(trees, rows, weights):
    """Return the sums for both scores from the kernels for many rows."""
    depths, excesses, frozen = np.zeros(len(rows)), np.zeros(len(rows)), freeze(trees)
    add_frozen_expected_depths(trees, frozen, rows, weights, depths)
    add_frozen_log_sizes(trees, frozen, rows, weights, *sums_above_and_means(trees, weights), excesses)
    return depths, excesses


@given(points=POINT_SETS, others=POINT_SETS, seed=SEEDS)
def test_walking_upwards_gives_the_same_scores_bit_for_bit(points, others, seed):
    trees, weights = grown(points, seed), np.ones(points.shape[1])
    rows = np.vstack([points, np.resize(others, (20, points.shape[1])), points + 0.5])
    for plain, fast in zip(plain_scores(trees, rows, weights), fast_scores(trees, rows, weights), strict=True):
        assert plain.tobytes() == fast.tobytes()


def test_walking_upwards_gives_the_same_scores_with_many_features():
    """Sums over many features may be computed in another order."""
    rng = np.random.default_rng(0)
    trees, weights = built(rng.normal(size=(200, 50))), rng.uniform(0.5, 2.0, 50)
    rows = rng.normal(size=(70, 50)) * 1.3
    for plain, fast in zip(plain_scores(trees, rows, weights), fast_scores(trees, rows, weights), strict=True):
        np.testing.assert_allclose(plain, fast, rtol=1e-12)


@given(points=point_sets(min_rows=2), others=POINT_SETS, seed=SEEDS)
def test_one_row_and_many_rows_have_the_same_scores_bit_for_bit(points, others, seed):
    trees, weights = grown(points, seed), np.ones(points.shape[1])
    rows = np.vstack([points, np.resize(others, (20, points.shape[1]))])
    sums_above, means = sums_above_and_means(trees, weights)
    trees.heads["typical_log_size"] = means
    depths, excesses = (found / trees.heads.size for found in fast_scores(trees, rows, weights))
    depths_to_scores(depths)
    log_sizes_to_scores(excesses)
    assert depths.tolist() == [expected_score_of_row(trees, x, weights) for x in rows]
    walked = plain_scores(trees, rows, weights)[0] / trees.heads.size
    depths_to_scores(walked)
    assert depths.tolist() == walked.tolist()
    assert excesses.tolist() == [size_score_of_row(trees, x, weights, sums_above, means) for x in rows]
    assert excesses.tolist() == [window_size_score_of_row(trees, x, weights) for x in rows]


@pytest.mark.parametrize("seed", range(5))
def test_shares_agree_with_their_definition(seed):
    points, rows = ordinary(seed)
    trees = built(points, seed, n_trees=2)
    for t in range(2):
        found = np.zeros((len(rows), 2, 3))
        add_attributions(slice_trees(trees, slice(t, t + 1)), rows, WEIGHTS, found)
        plain = [plain_shares(plain_tree(trees, t), x, WEIGHTS) for x in rows]
        np.testing.assert_allclose(found, plain, atol=1e-5)


@given(points=point_sets(min_rows=2), others=POINT_SETS, seed=SEEDS)
def test_shares_sum_to_one_in_every_tree_with_different_points(points, others, seed):
    trees = built(points, seed)
    rows = np.vstack([points, np.resize(others, (3, points.shape[1]))])
    shares = np.zeros((len(rows), 2, points.shape[1]))
    add_attributions(trees, rows, np.ones(points.shape[1]), shares)
    assert np.isfinite(shares).all()
    expected = [3 if len(np.unique(np.vstack([points, x]) + 0.0, axis=0)) > 1 else 0 for x in rows]
    np.testing.assert_allclose(shares.sum(axis=(1, 2)), expected, rtol=1e-9)


@pytest.mark.compiled
@pytest.mark.law
@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="thousands of trees need compiled kernels")
def test_expected_depth_is_the_mean_depth_of_real_insertions():
    """Copies of one tree with different random streams are extended by x; the mean is within 5 standard errors."""
    points, rows = ordinary(1, d=2)
    one = built(points, 1, n_trees=1, room=1)
    n = 20_000
    for x in rows[[0, 5, 25, 30, 39]]:
        many = Trees(*(np.repeat(array, n, axis=0) for array in one))
        many.heads["stream"] = np.random.default_rng(2).integers(0, 2**63, n)
        extended(many, x[None])
        depths = np.array([path_depth(many, t, x) for t in range(0, n, 10)])
        tree = plain_tree(one, 0)
        held = over(tree, path(tree, x)[-1], x, np.ones(2)) == 0
        expected = plain_expected(tree, x, np.ones(2)) - (c(int(tree.population[path(tree, x)[-1]])) if held else 0)
        assert abs(depths.mean() - expected) < 5 * depths.std() / math.sqrt(depths.size) + 1e-9


def path_depth(trees, t, x):
    node, depth = trees.heads[t]["root"], 0
    while node & 1 == 0:
        cut = trees.cuts[t, node >> 1]
        node = cut["left"] if x[cut["split_feature"]] < cut["split_value"] else cut["right"]
        depth += 1
    return depth

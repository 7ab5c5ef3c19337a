"""Trees have the same distribution however they were built, extended and reduced: two-sample tests of many trees.

Each comparison is a Kolmogorov-Smirnov test that fails below LEVEL. A test makes at most 33 comparisons (the depth and
the time of isolation of each of 16 points, and the time of the first cut), so that a correct engine fails it for fewer
than 1 in 300 choices of the seeds. The seeds are fixed, so that a test that passes always passes. With 4,000 trees on
each side, distributions whose distribution functions differ by 0.08 anywhere are distinguished almost certainly.
"""

import numpy as np
import pytest
from numba import config
from scipy.stats import ks_2samp

from imondrian.engine.nodes import NO_LIMIT
from imondrian.engine.reservoir import forget_points
from tests import reference_tree
from tests.strategies import built, empty, extended

pytestmark = [
    pytest.mark.law,
    pytest.mark.compiled,
    pytest.mark.skipif(bool(config.DISABLE_JIT), reason="thousands of trees need compiled kernels"),
]

LEVEL = 1e-4
N_TREES = 4000
RNG = np.random.default_rng(5)
POINTS = np.round(RNG.normal(size=(16, 2)), 1)  # rounded, so that some coordinates coincide
POINTS[3] = POINTS[2]  # a copy
POINTS[7, 0] = 6.0  # an outlier
OTHERS = RNG.normal(size=(9, 2)) * 2.0


def statistics(trees, points):
    """Return, for each tree, the depth and the time of isolation of each point, and the time of the first cut."""
    rows = np.arange(trees.heads.size)
    result = []
    for x in points:
        node, depth = trees.heads["root"].copy(), np.zeros(rows.size)
        while (inner := node & 1 == 0).any():
            cuts = trees.cuts[rows[inner], node[inner] >> 1]
            goes_left = x[cuts["split_feature"]] < cuts["split_value"]
            node[inner] = np.where(goes_left, cuts["left"], cuts["right"])
            depth[inner] += 1
        result += [depth, trees.cuts[rows, trees.parents[rows, node] >> 1]["split_time"]]
    return [*result, trees.cuts[rows, trees.heads["root"] >> 1]["split_time"]]


def assert_same_law(ours, theirs):
    for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert ks_2samp(one, other).pvalue > LEVEL, f"statistic {i}"


@pytest.fixture(scope="module")
def batch():
    return statistics(built(POINTS, seed=1, n_trees=N_TREES), POINTS)


def test_built_equals_built_and_extended(batch):
    trees = built(POINTS[:6], seed=2, n_trees=N_TREES, room=10)
    assert_same_law(statistics(extended(trees, POINTS[6:]), POINTS), batch)


def test_built_equals_grown_from_nothing(batch):
    trees = empty(N_TREES, len(POINTS), 2, seed=3)
    assert_same_law(statistics(extended(trees, POINTS), POINTS), batch)


def test_the_order_of_arrival_does_not_matter(batch):
    trees = empty(N_TREES, len(POINTS), 2, seed=4)
    assert_same_law(statistics(extended(trees, POINTS[::-1]), POINTS), batch)


def test_one_clock_equals_the_literal_algorithm_5():
    some = POINTS[4:12]
    trees = built(some[:1], seed=5, n_trees=N_TREES, room=7)
    ours = statistics(extended(trees, some[1:]), some)
    assert_same_law(ours, np.array([literal_statistics(some, seed) for seed in range(N_TREES)]).T)


def literal_statistics(points, seed):
    draws = reference_tree.IndependentDraws(seed)
    root = reference_tree.Node(points[0], points[0], 1)
    for x in points[1:]:
        root = reference_tree.extended(root, x, draws)
    result = []
    for x in points:
        node, depth, time = root, 0, 0.0
        while node.children:
            node, depth, time = node.child_of(x), depth + 1, node.time
        result += [depth, time]
    return [*result, root.time]


def test_extended_and_forgotten_equals_never_seen(batch):
    trees = built(POINTS, seed=6, n_trees=N_TREES, room=len(OTHERS))
    extended(trees, OTHERS)
    forget_points(trees, OTHERS)
    assert_same_law(statistics(trees, POINTS), batch)


def test_forgotten_equals_never_built_on(batch):
    trees = built(np.vstack([OTHERS, POINTS]), seed=7, n_trees=N_TREES)
    forget_points(trees, OTHERS)
    assert_same_law(statistics(trees, POINTS), batch)


def test_forgotten_and_replaced_equals_built_on_the_rest(batch):
    trees = built(np.vstack([OTHERS, POINTS[:4]]), seed=8, n_trees=N_TREES, room=12)
    forget_points(trees, OTHERS[:5])
    extended(trees, POINTS[4:])
    forget_points(trees, OTHERS[5:])
    assert_same_law(statistics(trees, POINTS), batch)


def test_a_different_law_is_detected(batch):
    """The comparison can fail: it detects that one point has been moved by 1."""
    stretched = POINTS.copy()
    stretched[7, 0] += 1.0
    trees = built(stretched, seed=9, n_trees=N_TREES)
    with pytest.raises(AssertionError):
        assert_same_law(statistics(trees, stretched), batch)


# -- samples ----------------------------------------------------------------------------------------------------

ROWS = np.arange(40.0)[:, None]


def held_rows(trees):
    """Return, for each tree and row, whether the tree holds the row."""
    values = np.where(trees.copies > 0, trees.points[..., 0], -1.0)
    return (values[:, :, None] == ROWS[:, 0]).any(axis=1)


def assert_uniform(held, candidates, size):
    """Check that all candidates, and all pairs of them, are held equally often, within 5 standard deviations.

    20 rows and 190 pairs exceed 5 standard deviations with probability below 2e-4.
    """
    n_trees, n = len(held), len(candidates)
    assert (held.sum(axis=1) == size).all()
    assert not np.delete(held, candidates, axis=1).any()
    share = size / n
    single = held[:, candidates].mean(axis=0)
    assert np.abs(single - share).max() < 5.0 * np.sqrt(share * (1 - share) / n_trees)
    both = share * (size - 1) / (n - 1)
    pairs = (held[:, candidates].T.astype(float) @ held[:, candidates]) / n_trees
    apart = ~np.eye(n, dtype=bool)
    assert np.abs(pairs[apart] - both).max() < 5.0 * np.sqrt(both * (1 - both) / n_trees)


@pytest.mark.parametrize("n_built", [0, 1, 7, 8, 9, 20])
def test_the_sample_is_uniform_for_any_number_of_points_built_before_extending(n_built):
    trees = built(ROWS[:n_built], 10, N_TREES, 8, 8) if n_built else empty(N_TREES, 8, 1, 11)
    extended(trees, ROWS[n_built:20], max_samples=8)
    assert_uniform(held_rows(trees), np.arange(20), 8)


def test_the_sample_stays_uniform_when_points_are_forgotten_and_new_ones_are_added():
    trees = built(ROWS[:20], 12, N_TREES, max_samples=8)
    forget_points(trees, ROWS[:6])
    assert (trees.heads["n_owed"] == 6).all()
    extended(trees, ROWS[20:26], max_samples=8)
    assert (trees.heads["n_owed"] == 0).all()
    assert_uniform(held_rows(trees), np.arange(6, 26), 8)
    extended(trees, ROWS[26:], max_samples=8)
    assert_uniform(held_rows(trees), np.arange(6, 40), 8)


def test_copies_are_removed_from_a_sample_as_often_as_other_rows():
    """Ten of 20 rows are copies: a sample of 8 holds 8 * 10 / 20 of them on average (within 5 standard errors)."""
    rows = np.where(ROWS[:20] < 10, 0.0, ROWS[:20])
    trees = extended(built(rows[:12], 17, N_TREES, max_samples=8), rows[12:], max_samples=8)
    of_copies = np.where((trees.points[..., 0] == 0.0) & (trees.copies > 0), trees.copies, 0).sum(axis=1)
    expected, variance = 4.0, 8 * 0.5 * 0.5 * 12 / 19  # hypergeometric
    assert abs(of_copies.mean() - expected) < 5 * np.sqrt(variance / N_TREES)
    assert of_copies.var() == pytest.approx(variance, rel=0.15)


def test_an_unlimited_sample_accepts_every_point_after_forgetting():
    trees = built(ROWS[:20], 13, 50, room=20)
    forget_points(trees, ROWS[:6])
    extended(trees, ROWS[20:])
    assert held_rows(trees)[:, 6:].all()
    assert NO_LIMIT > trees.heads["n_points"].max() == 34


def test_trees_of_a_changing_sample_are_mondrian_trees():
    """A tree whose sample has changed over time has the law of a tree that was built on its current sample."""
    wide = np.random.default_rng(14).normal(size=(64, 2))
    running = built(wide[:16], 15, N_TREES, max_samples=16)
    extended(running, wide[16:], max_samples=16)
    fresh = built(wide, 16, N_TREES, max_samples=16)
    assert_same_law(summary(running), summary(fresh))


def summary(trees):
    """Return, for each tree, the time of the first cut, its smaller side, and the sum of the depths of the points."""
    rows = np.arange(trees.heads.size)
    root = trees.cuts[rows, trees.heads["root"] >> 1]
    populations = [
        np.where(node & 1, trees.copies[rows, node >> 1], trees.cuts[rows, node >> 1]["population"])
        for node in (root["left"], root["right"])
    ]
    inner = np.arange(trees.cuts.shape[1]) < trees.heads["n_leaves"][:, None] - 1
    return [root["split_time"], np.minimum(*populations), np.where(inner, trees.cuts["population"], 0).sum(axis=1)]

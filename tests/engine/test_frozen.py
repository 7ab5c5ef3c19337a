"""Frozen trees give the same path lengths, bit for bit."""

import numpy as np
from hypothesis import given

from imondrian.engine.frozen import add_frozen_depths, freeze, frozen_score_of_row
from imondrian.engine.nodes import joined
from imondrian.engine.one_row import depth_score_of_row
from imondrian.engine.reservoir import forget_points
from imondrian.engine.score_formula import depths_to_scores
from tests.plain_walks import add_depths
from tests.strategies import POINT_SETS, SEEDS, built, empty, grown


def assert_same_depths(trees, rows):
    live, frozen = np.zeros(len(rows)), np.zeros(len(rows))
    add_depths(trees, rows, live)
    add_frozen_depths(freeze(trees), rows, frozen)
    assert live.tobytes() == frozen.tobytes()
    live /= trees.heads.size
    depths_to_scores(live)
    assert live.tolist() == [frozen_score_of_row(freeze(trees), x) for x in rows]
    assert live.tolist() == [depth_score_of_row(trees, x) for x in rows]


@given(points=POINT_SETS, others=POINT_SETS, seed=SEEDS)
def test_frozen_trees_give_the_same_depths_bit_for_bit(points, others, seed):
    assert_same_depths(grown(points, seed), np.vstack([points, np.resize(others, (20, points.shape[1]))]))


def test_the_number_of_rows_need_not_be_a_multiple_of_blocks_or_lanes():
    rng = np.random.default_rng(0)
    assert_same_depths(built(rng.normal(size=(64, 3)), n_trees=4), rng.normal(size=(1027, 3)))


def test_trees_with_one_point_or_none_have_the_average_depth():
    one, none = built([[1.0, 2.0]], n_trees=2), empty(2, 1, 2)
    rows = np.array([[1.0, 2.0], [5.0, 5.0]])
    for trees in (one, joined([one, none])):
        assert_same_depths(trees, rows)
    depths = np.zeros(2)
    add_depths(joined([one, none]), rows, depths)
    assert (depths == 4.0).all()


def test_a_new_frozen_copy_reflects_forgotten_points():
    points = np.random.default_rng(1).normal(size=(30, 2))
    trees = built(points)
    forget_points(trees, points[:10])
    assert_same_depths(trees, points)


def test_walks_of_any_bits_end_at_a_leaf_of_the_same_tree():
    """Another thread may write anything to the rows; the largest NaN would be equal to the key of a leaf."""
    trees = built(np.random.default_rng(2).normal(size=(64, 2)), n_trees=3)
    rows = np.full((9, 2), np.uint64(2**63 - 1).view(np.float64))
    depths, expected = np.zeros(9), np.zeros(9)
    add_frozen_depths(freeze(trees), rows, depths)
    add_frozen_depths(freeze(trees), np.full((9, 2), np.inf), expected)
    assert (depths == expected).all()
    assert frozen_score_of_row(freeze(trees), rows[0]) == frozen_score_of_row(freeze(trees), np.full(2, np.inf))

"""The compact copy gives the same path lengths, bit for bit."""

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
def test_frozen_trees_give_the_same_bits(points, others, seed):
    assert_same_depths(grown(points, seed), np.vstack([points, np.resize(others, (20, points.shape[1]))]))


def test_more_rows_than_a_block_and_not_a_multiple_of_the_lanes():
    rng = np.random.default_rng(0)
    assert_same_depths(built(rng.normal(size=(64, 3)), n_trees=4), rng.normal(size=(1027, 3)))


def test_trees_of_one_point_and_of_none_count_as_average():
    one, none = built([[1.0, 2.0]], n_trees=2), empty(2, 1, 2)
    rows = np.array([[1.0, 2.0], [5.0, 5.0]])
    for trees in (one, joined([one, none])):
        assert_same_depths(trees, rows)
    depths = np.zeros(2)
    add_depths(joined([one, none]), rows, depths)
    assert (depths == 4.0).all()


def test_forgetting_shows_in_a_new_copy():
    points = np.random.default_rng(1).normal(size=(30, 2))
    trees = built(points)
    forget_points(trees, points[:10])
    assert_same_depths(trees, points)

"""A small tree from scripted random draws, compared with a tree worked out by hand."""

import math

import numpy as np
import pytest
from numba import config

from imondrian.engine import randomness, reservoir
from imondrian.engine.plain_tree import plain_tree
from imondrian.engine.reservoir import forget_points
from tests.strategies import built, extended

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="draws can be scripted only without JIT compilation")
LN_2 = math.log(2)  # the exponential draw for a uniform draw of 0.5


@pytest.fixture
def script(monkeypatch):
    """Return a list from which the draws are taken; numbers left over at the end are an error."""
    draws = []
    for module in (randomness, reservoir):
        monkeypatch.setattr(module, "uniform", lambda _heads, _t: draws.pop(0))
    yield draws
    assert draws == []


def test_build_extend_and_forget_follow_the_script(script):
    #   t = ln2 / 6      y < 1.5 ?                     rate 6 = 4 + 2; mass 5.4 falls into y
    #                   /         \
    #   + ln2 / 1   x < 0.5 ?   at (4, 2)              rate 1
    #               /      \
    #      at (0, 0)    at (1, 0)
    script += [0.5, 0.9, 0.25, 0.5, 0.0, 0.5]
    trees = built([[0.0, 0.0], [1.0, 0.0], [4.0, 2.0]], n_trees=1, room=1)
    tree = plain_tree(trees, 0)
    assert tree.split_feature.tolist() == [1, 0, -1, -1, -1]
    assert tree.split_value[:2].tolist() == [1.5, 0.5]
    assert tree.split_time[:2].tolist() == [LN_2 / 6, LN_2 / 6 + LN_2]
    assert tree.lower.tolist() == [[0, 0], [0, 0], [4, 2], [0, 0], [1, 0]]
    assert tree.upper.tolist() == [[4, 2], [1, 0], [4, 2], [0, 0], [1, 0]]

    # (0.5, -3) lies 3 outside the root box: the clock ln2 would expire at ln2 / 3, but the root's cut is at ln2 / 6;
    # half the clock is left at the left child, with overhang 3: it expires after ln2 / 6, before the child's cut.
    # Only y is outside the box; the cut lies between -3 and 0, at 0 - 0.5 * 3.
    script += [0.5, 0.7, 0.5]
    tree = plain_tree(extended(trees, [[0.5, -3.0]]), 0)
    assert tree.split_feature.tolist() == [1, 1, -1, -1, 0, -1, -1]
    assert tree.split_value[1] == -1.5
    assert tree.split_time[1] == pytest.approx(LN_2 / 6 + LN_2 / 6)
    assert tree.lower[:4].tolist() == [[0, -3], [0, -3], [4, 2], [0.5, -3]]
    assert tree.population.tolist() == [4, 3, 1, 1, 2, 1, 1]

    # without (4, 2) its sibling becomes the root, times unchanged
    forget_points(trees, np.array([[4.0, 2.0]]))
    tree = plain_tree(trees, 0)
    assert tree.split_feature.tolist() == [1, -1, 0, -1, -1]
    assert tree.upper[0].tolist() == [1, 0]


def test_a_reservoir_accepts_and_removes_points_according_to_the_script(script):
    # a sample of one: its key is 1 - exp(-ln2) = 0.5; the second point is skipped (ln 2.5 / ln2 = 1.3), not the third
    script += [0.5, 0.6, 0.0]
    trees = built([[10.0]], n_trees=1, max_samples=1)
    assert math.exp(trees.heads["log_key"][0]) == pytest.approx(0.5)
    assert trees.heads["next_kept"][0] == 3
    extended(trees, [[20.0]], max_samples=1)
    assert trees.points[0, 0, 0] == 10.0

    # the third replaces the only point; the key becomes 0.5 * 0.5, and ln 2 / -ln 0.75 = 2.4 points are skipped
    script += [0.9, 0.5, 0.5]
    extended(trees, [[30.0]], max_samples=1)
    assert trees.points[0, 0, 0] == 30.0
    assert math.exp(trees.heads["log_key"][0]) == pytest.approx(0.25)
    assert trees.heads["next_kept"][0] == 6


def test_draws_at_the_ends_of_their_range_are_handled(script):
    script += [0.0, 0.0, 0.0]
    assert built([[1.0]], n_trees=1, max_samples=1).heads["next_kept"][0] > 1
    script += [1.0 - 2.0**-53, 1.0 - 2.0**-53, 1.0 - 2.0**-53]
    assert built([[1.0]], n_trees=1, max_samples=1).heads["next_kept"][0] in (2, 3)

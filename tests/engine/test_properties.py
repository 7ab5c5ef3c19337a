"""Properties of all trees, for hostile points and any seed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.engine.nodes import FIELDS, NO_LIMIT, Trees, joined, resized, slice_trees
from imondrian.engine.reservoir import extend_trees, forget_points
from tests.strategies import POINT_SETS, SEEDS, assert_sound, built, empty, extended, grown, point_sets


def assert_equal(one, other):
    n_slots = max(one.points.shape[1], other.points.shape[1])
    for name, ours, theirs in zip(FIELDS, resized(one, n_slots), resized(other, n_slots), strict=True):
        assert ours.tobytes() == theirs.tobytes(), name


def copied(trees):
    return Trees(*(array.copy() for array in trees))


@given(points=POINT_SETS, seed=SEEDS)
def test_built_trees_are_sound(points, seed):
    assert_sound(built(points, seed))


@given(points=POINT_SETS, seed=SEEDS)
def test_trees_are_sound_after_every_point(points, seed):
    trees = empty(3, len(points), points.shape[1], seed)
    for x in points:
        assert_sound(extended(trees, x[None]))


@given(points=POINT_SETS, seed=SEEDS, order=st.randoms(use_true_random=False))
def test_trees_are_sound_after_every_forgotten_point_until_nothing_is_left(points, seed, order):
    trees = built(points, seed)
    rows = list(range(len(points)))
    order.shuffle(rows)
    for row in rows:
        forget_points(trees, points[row : row + 1])
        assert_sound(trees)
    assert (trees.heads["n_leaves"] == 0).all()
    assert not any(array.any() for array in (trees.points, trees.boxes, trees.copies, trees.parents))


@given(points=point_sets(min_rows=2), seed=SEEDS, max_samples=st.integers(1, 6), steps=st.lists(st.booleans()))
def test_samples_are_sound_after_every_step(points, seed, max_samples, steps):
    trees = empty(3, max_samples, points.shape[1], seed)
    known = []
    for i, forgets in enumerate(steps):
        if forgets and known:
            forget_points(trees, known.pop(i % len(known))[None])
        else:
            known.append(points[i % len(points)])
            extended(trees, known[-1][None], max_samples)
        assert_sound(trees, max_samples)
        assert (trees.heads["n_points"] == len(known)).all()


@pytest.mark.parametrize("start", [1.0, 0.0, 1e-300, -1e150])
def test_200_seeds_stay_sound_on_adjacent_floats(start):
    values = [start]
    for _ in range(3):
        values.append(np.nextafter(values[-1], np.inf))
    points = np.array(values)[:, None]
    for seed in range(200):
        assert_sound(built(points, seed, n_trees=1))
        assert_sound(grown(points[::-1], seed, n_trees=1))
        assert built(points, seed, n_trees=1).heads["n_leaves"][0] == 4


@given(points=POINT_SETS, seed=SEEDS)
def test_copies_are_counted_and_not_split(points, seed):
    trees = grown(np.vstack([points, points]), seed)
    n_distinct = len(np.unique(points + 0.0, axis=0))
    assert (trees.heads["n_leaves"] == n_distinct).all()
    assert (trees.copies.sum(axis=1) == 2 * len(points)).all()


@given(points=POINT_SETS, x=st.lists(st.floats(-5, 5), min_size=3, max_size=3), seed=SEEDS)
def test_forgetting_undoes_extending(points, x, seed):
    x = np.array(x)[None, : points.shape[1]] + 0.0  # a box does not distinguish -0.0 from 0.0
    trees = built(points + 0.0, seed, room=1)
    before = copied(trees)
    forget_points(extended(trees, x), x)
    for name in ("stream", "n_owed"):  # a random draw was made, and n_owed counts the forgotten point
        before.heads[name] = trees.heads[name]
    assert_equal(trees, before)


@given(points=point_sets(min_rows=2), seed=SEEDS, max_samples=st.sampled_from([NO_LIMIT, 1, 4]))
def test_one_by_one_equals_all_at_once(points, seed, max_samples):
    at_once = extended(empty(3, min(len(points), max_samples), points.shape[1], seed), points, max_samples)
    one_by_one = empty(3, min(len(points), max_samples), points.shape[1], seed)
    for x in points:
        extended(one_by_one, x[None], max_samples)
    assert_equal(one_by_one, at_once)


@given(points=POINT_SETS, seed=SEEDS)
def test_a_tree_does_not_depend_on_the_others(points, seed):
    many, few = built(points, seed, n_trees=7, room=4), built(points, seed, n_trees=3, room=4)
    assert_equal(slice_trees(many, slice(3)), few)
    assert_equal(slice_trees(extended(many, points[:4]), slice(3)), extended(few, points[:4]))


@given(points=POINT_SETS, seed=SEEDS)
def test_joined_trees_equal_the_original_trees(points, seed):
    ours, theirs = built(points, seed, n_trees=2), grown(points[:3], seed, n_trees=3)
    both = joined([ours, theirs])
    assert_sound(both)
    assert_equal(slice_trees(both, slice(2)), ours)
    assert_equal(slice_trees(both, slice(2, 5)), theirs)


@given(points=POINT_SETS, seed=SEEDS, powers=st.lists(st.integers(-3, 3), min_size=3, max_size=3))
def test_weighting_a_feature_equals_scaling_it(points, seed, powers):
    """Exactly equal, since multiplication by powers of two is exact (except for the smallest floats)."""
    points = np.where(np.abs(points) < 1e-290, 0.0, points)
    weights = 2.0 ** np.array(powers[: points.shape[1]])
    scaled = grown(points * weights, seed)
    weighted = empty(3, len(points), points.shape[1], seed)
    extend_trees(weighted, points, np.tile(weights, (len(points), 1)), NO_LIMIT)
    for column in ("split_time", "split_feature", "left", "right", "population"):
        assert (scaled.cuts[column] == weighted.cuts[column]).all()
    assert (scaled.boxes == weighted.boxes * weights).all()


def test_points_are_separated_even_if_rates_underflow_to_zero():
    points = np.array([[5e-324], [0.0], [1e-323]])
    trees = empty(3, 3, 1)
    extend_trees(trees, points, np.full((3, 1), 1e-150), NO_LIMIT)
    assert_sound(trees)
    assert (trees.heads["n_leaves"] == 3).all()


def test_times_that_overflow_become_the_largest_float():
    trees = built(np.array([[0.0], [5e-324]]))
    assert (trees.cuts["split_time"][:, 0] == np.finfo(float).max).all()

"""Trees of a window that share their points do the same, bit for bit, as trees with points of their own."""

import copy
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian import MondrianForest, StreamDetector
from imondrian.engine.nodes import with_own_points
from imondrian.forest.samplers import Window
from imondrian.model_files import from_bytes, to_bytes
from tests.strategies import POINT_SETS, SEEDS

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(400, 3)), 1) + 0.0  # with copies, without -0.0
SETTINGS = {"n_trees": 20, "window": 64, "max_samples": 16}


def sharing(shares):
    """Return a context in which new forests share their points always, or never."""
    return patch.object(Window, "n_shared_rows", lambda window, *_: 2 * window.length if shares else 0)


def live_trees(forest):
    return forest._state.trees


def shares_points(forest):
    return live_trees(forest).rows.shape[1] > 0


def contents(forest):
    """Return the bytes of everything that the forest consists of."""
    found = forest.snapshot()
    return [array.tobytes() for array in (*found.trees, *found.arrays.values())]


def assert_rows_are_sound(forest):
    """Check that every leaf refers to a row, and that unused slots are zero."""
    trees = live_trees(forest)
    is_used = np.arange(trees.rows.shape[1]) < trees.heads["n_leaves"][:, None]
    assert trees.rows.max(initial=0) < trees.points.shape[1]
    assert not trees.rows[~is_used].any()
    assert ((trees.copies > 0) == is_used).all()


@given(
    points=POINT_SETS,
    seed=SEEDS,
    window=st.integers(1, 12),
    max_samples=st.sampled_from([None, 1, 4]),
    n_built=st.integers(0, 12),
    n_forgotten=st.integers(0, 3),
)
def test_shared_and_own_points_give_the_same_forest(points, seed, window, max_samples, n_built, n_forgotten):
    points, found = points + 0.0, []
    for shares in (True, False):
        with sharing(shares):
            forest = MondrianForest(n_trees=3, max_samples=max_samples, window=window, seed=seed)
            if n_built:
                forest.build(points[:n_built])
            forest.extend(np.vstack([points[n_built:], points]))  # with copies of points that are still there
            assert shares_points(forest) == shares
            states = [contents(forest)]
            if n_forgotten:
                forest.forget(forest.points()[:n_forgotten])
            states.append(contents(forest))
            for x in points:
                forest.extend_one(x)
                states.append(contents(forest))
                if shares:
                    assert_rows_are_sound(forest)
            found.append(states)
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["size", "expected", "depth"])
def test_shared_and_own_points_give_the_same_results(kind):
    found = []
    for shares in (True, False):
        with sharing(shares):
            detector = StreamDetector(3, kind=kind, seed=1, **SETTINGS)
            results = [detector.process_many(X[:200]).score]
            results += [np.array([detector.process(x).score for x in X[200:300]])]
            results += [detector.process_many(X[300:]).score, detector.forest.score(X, kind)]
            results += [np.array(detector.forest.explain(X[:9])), detector.forest.points()]
            results += [detector.forest.rescore(kind)[1], detector.forest.n_trees_holding(X)]
            results += [np.array(detector.forest.expected_values(X[:9]))]
            assert shares_points(detector.forest) == shares
            found.append([result.tobytes() for result in results])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "restored", [copy.deepcopy, lambda forest: from_bytes(to_bytes(forest))], ids=["copied", "stored"]
)
def test_a_restored_forest_shares_its_points_when_the_next_one_arrives(restored):
    forest = MondrianForest(seed=1, **SETTINGS).extend(X[:300])
    other = restored(forest)
    assert shares_points(forest)
    assert not shares_points(other)
    assert other.n_bytes == forest.n_bytes
    assert to_bytes(other) == to_bytes(forest)
    assert contents(other.extend(X[300:])) == contents(forest.extend(X[300:]))
    assert shares_points(other)
    assert other.n_bytes == forest.n_bytes
    assert_rows_are_sound(other)


def test_joined_forests_share_their_points():
    found = []
    for shares in (True, False):
        with sharing(shares):
            forest = MondrianForest(seed=1, **SETTINGS).extend(X[:300])
            forest.join(MondrianForest(seed=2, **SETTINGS).extend(X[:300]))
            forest.extend(X[300:])
            assert shares_points(forest) == shares
            assert forest.n_trees == 2 * SETTINGS["n_trees"]
            found.append(contents(forest))
    assert found[0] == found[1]


def test_points_that_are_not_in_the_window_are_not_shared():
    forest = MondrianForest(seed=1, **SETTINGS).extend(X[:300])
    found = forest.snapshot()
    t = int(found.trees.heads["n_leaves"].argmax())
    slot = int(found.trees.copies[t].argmax())
    found.trees.copies[t, slot] += 1  # more copies than the tree selects in the window
    other = MondrianForest.from_state(*found)
    with sharing(shares=False):
        expected = contents(MondrianForest.from_state(*forest.snapshot()._replace(trees=found.trees)).extend(X[300:]))
    assert contents(other.extend(X[300:])) == expected
    assert not shares_points(other)


def test_the_points_of_very_deep_trees_are_not_searched():
    """Powers of two are cut near the largest one, so that the trees are chains."""
    rows = 2.0 ** np.arange(-1000.0, 500.0)[:, None]
    settings = {"n_trees": 5, "window": 1500, "scale": None, "seed": 1}
    forest = from_bytes(to_bytes(MondrianForest(**settings).build(rows)))
    mean_depth = np.mean([tree.depth[tree.left < 0].mean() for tree in forest.trees()])
    with sharing(shares=True):
        other = from_bytes(to_bytes(forest))
    assert mean_depth > 256
    assert contents(other.extend(rows[:9])) == contents(forest.extend(rows[:9]))
    assert not shares_points(other)


def test_forgotten_points_are_erased_from_the_table():
    far = np.array([[123.0, 456.0, 789.0]])
    forest = MondrianForest(seed=1, **SETTINGS).extend(X[:300]).extend(far)
    assert 456.0 in live_trees(forest).points
    forest.forget(far)
    assert 456.0 not in live_trees(forest).points


def test_zeros_of_both_signs_give_equal_points():
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [2.0, -0.0], [2.0, 0.0]] * 20)
    found = []
    for shares in (True, False):
        with sharing(shares):
            forest = MondrianForest(seed=1, **SETTINGS).extend(rows)
            trees = with_own_points(live_trees(forest))
            found.append([trees.points + 0.0, trees.boxes + 0.0, trees.copies, forest.score(rows, "size")])
            assert_same_after_storing(forest, rows)
    assert all(one.tobytes() == other.tobytes() for one, other in zip(*found, strict=True))


def assert_same_after_storing(forest, rows):
    other = from_bytes(to_bytes(forest))
    assert contents(other.extend(rows[::-1])) == contents(forest.extend(rows[::-1]))


def test_sharing_saves_memory():
    assert StreamDetector(10).n_bytes < 6_000_000


@pytest.mark.parametrize(
    "settings",
    [
        {"n_trees": 1, "window": 100},
        {"n_trees": 10, "window": 10_000, "max_samples": 16},
        {"n_trees": 100, "window": 64, "categorical": [0]},
        {"n_trees": 6_000, "window": 12_000, "max_samples": 1},  # searching them after loading would take long
    ],
)
def test_points_are_not_shared_if_it_saves_nothing_or_there_are_categories(settings):
    forest = MondrianForest(**settings).extend(np.round(X[:100], 0))
    assert not shares_points(forest)

"""Trees with categorical features: the properties and the laws of all trees, with places instead of codes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from imondrian.engine.nodes import NO_NODE, Trees
from imondrian.engine.places import coded_points
from imondrian.engine.rescore import points_and_copies
from imondrian.engine.reservoir import forget_points, write_copies_held
from tests.strategies import SEEDS, assert_sound, built, coded_sets, empty, extended

CODED_SETS = coded_sets()
compiled = [pytest.mark.law, pytest.mark.compiled]


def grown(rows, seed, n_categorical, n_trees=3):
    return extended(empty(n_trees, len(rows), rows.shape[1], seed, n_categorical), rows)


def without_rarities(rows, n_categorical):
    """Return rows whose rarities are 0, as a caller gives them that does not know the rarities."""
    unknown = rows.copy()
    unknown[:, rows.shape[1] - 2 * n_categorical : rows.shape[1] - n_categorical] = 0.0
    return unknown


def sorted_rows(rows):
    return sorted(map(tuple, rows + 0.0))


@given(coded=CODED_SETS, seed=SEEDS)
def test_built_and_grown_trees_are_sound_and_hold_the_coded_rows(coded, seed):
    rows, n_categorical = coded
    for trees in (built(rows, seed, n_categorical=n_categorical), grown(rows, seed, n_categorical)):
        assert_sound(trees)
        points, copies = points_and_copies(Trees(*(array[:1] for array in trees)))
        assert sorted_rows(np.repeat(points, copies, axis=0)) == sorted_rows(rows)


@given(coded=CODED_SETS, seed=SEEDS, order=st.randoms(use_true_random=False))
def test_rows_are_forgotten_whatever_their_rarities(coded, seed, order):
    rows, n_categorical = coded
    trees, unknown = grown(rows, seed, n_categorical), without_rarities(rows, n_categorical)
    numbers = list(range(len(rows)))
    order.shuffle(numbers)
    for n_forgotten, i in enumerate(numbers):
        held = np.empty((3, 1), np.int64)
        write_copies_held(trees, unknown[i : i + 1], held)
        n_copies = sum((unknown[i] == unknown[j]).all() for j in numbers[n_forgotten:])
        assert (held == n_copies).all()
        forget_points(trees, unknown[i : i + 1])
        assert_sound(trees)
    assert (trees.heads["n_leaves"] == 0).all()
    assert not any(array.any() for array in (trees.points, trees.boxes, trees.copies, trees.parents))


@given(coded=coded_sets(min_rows=2), seed=SEEDS)
def test_one_by_one_equals_all_at_once(coded, seed):
    rows, n_categorical = coded
    at_once, one_by_one = grown(rows, seed, n_categorical), empty(3, len(rows), rows.shape[1], seed, n_categorical)
    for row in rows:
        extended(one_by_one, row[None])
    for ours, theirs in zip(at_once, one_by_one, strict=True):
        assert ours.tobytes() == theirs.tobytes()


def test_trees_see_a_category_at_different_places():
    rows = np.array([[1.0, 5.0], [1.0, 6.0]])
    trees = built(rows, n_trees=50, n_categorical=1)
    places = trees.points[:, :2, 1]
    assert len(np.unique(places)) == 100
    assert (coded_points(trees, trees.points[:, :2]) == rows).all()


# -- laws, as in test_law.py ------------------------------------------------------------------------------------------

LEVEL, N_TREES = 1e-4, 4000
RNG = np.random.default_rng(6)
POINTS = np.column_stack([RNG.normal(size=12), RNG.choice([1.0, 0.25], 12), RNG.integers(0, 4, 12)])
OTHERS = np.column_stack([RNG.normal(size=7), RNG.choice([1.0, 0.25], 7), RNG.integers(2, 6, 7)])


def statistics(trees, rows):
    """Return, for each tree, the depth and the time of isolation of each row, and the time of the first cut."""
    t, codes = np.arange(trees.heads.size), coded_points(trees, trees.points)
    result = []
    for row in rows:
        node = 2 * ((codes == row).all(axis=2) & (trees.copies > 0)).argmax(axis=1) + 1
        above, depth = trees.parents[t, node], np.zeros(t.size)
        time = trees.cuts[t, above >> 1]["split_time"]
        while (inner := above != NO_NODE).any():
            depth[inner] += 1
            above = np.where(inner, trees.parents[t, np.where(inner, above, 0)], NO_NODE)
        result += [depth, time]
    return [*result, trees.cuts[t, trees.heads["root"] >> 1]["split_time"]]


def assert_same_law(ours, theirs):
    for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert ks_2samp(one, other).pvalue > LEVEL, f"statistic {i}"


@pytest.fixture(scope="module")
def batch():
    return statistics(built(POINTS, seed=1, n_trees=N_TREES, n_categorical=1), POINTS)


class TestLaws:
    """Each test makes 25 comparisons at a level of 1e-4; the seeds are fixed."""

    pytestmark = compiled

    def test_built_equals_grown_in_any_order(self, batch):
        for seed, rows in ((2, POINTS), (3, POINTS[::-1])):
            trees = extended(empty(N_TREES, len(POINTS), 3, seed, 1), rows)
            assert_same_law(statistics(trees, POINTS), batch)

    def test_extended_and_forgotten_equals_never_seen(self, batch):
        trees = built(POINTS, seed=4, n_trees=N_TREES, room=len(OTHERS), n_categorical=1)
        extended(trees, OTHERS)
        forget_points(trees, without_rarities(OTHERS, 1))
        assert_same_law(statistics(trees, POINTS), batch)

    def test_another_law_is_detected(self, batch):
        """The comparison can fail: it detects that one row has another category."""
        moved = POINTS.copy()
        moved[0, 2] = moved[1, 2] + 10.0
        trees = built(moved, seed=5, n_trees=N_TREES, n_categorical=1)
        with pytest.raises(AssertionError):
            assert_same_law(statistics(trees, moved), batch)

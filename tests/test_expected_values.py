"""Expected values of a forest: ranges, gaps, categories, what is left unchanged, and wrong input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian import EmptyForestError, ExpectedValues, InvalidInputError, MondrianForest
from imondrian.forest.expected_values import rank_of_quantile
from tests.strategies import POINT_SETS, SEEDS

FORESTS = [{}, {"max_samples": 5}, {"window": 12}, {"window": 12, "max_samples": 6}, {"scale": "std"}]
SETTINGS = st.sampled_from(FORESTS)


def state_bytes(forest):
    trees, arrays = forest.state()
    return [array.tobytes() for array in (*trees, *arrays.values())]


def hidden(points, j):
    rows = points.copy()
    rows[:, j] = np.nan
    return rows


def assert_equal(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


@given(points=POINT_SETS, seed=SEEDS, settings=SETTINGS)
def test_expected_values_are_ordered_values_that_the_forest_holds(points, seed, settings):
    forest = MondrianForest(7, seed=seed, **settings).extend(points)
    before = state_bytes(forest)
    expected = forest.expected_values(points)
    assert isinstance(expected, ExpectedValues)
    assert (expected.low <= expected.median).all()
    assert (expected.median <= expected.high).all()
    assert np.isnan(expected.share).all()
    held = forest.points()
    for j in range(points.shape[1]):
        assert set((expected.low[:, j] + 0.0).tolist()) <= set((held[:, j] + 0.0).tolist())
        assert set((expected.high[:, j] + 0.0).tolist()) <= set((held[:, j] + 0.0).tolist())
    assert state_bytes(forest) == before


@given(points=POINT_SETS, seed=SEEDS, settings=SETTINGS, data=st.data())
def test_one_feature_or_row_at_a_time_and_several_threads_give_the_same(points, seed, settings, data):
    forest = MondrianForest(5, seed=seed, **settings).extend(points)
    all_at_once = forest.expected_values(points)
    i, j = data.draw(st.integers(0, len(points) - 1)), data.draw(st.integers(0, points.shape[1] - 1))
    alone = forest.expected_values(points[i : i + 1], [j])
    assert_equal(alone, [array[i : i + 1, j : j + 1] for array in all_at_once])
    by_row = forest.expected_values(points, np.full((len(points), 2), j))
    assert_equal(by_row, [array[:, [j, j]] for array in all_at_once])
    forest.n_jobs = 3
    assert_equal(forest.expected_values(points), all_at_once)


def test_blocks_of_rows_give_the_same(monkeypatch):
    points = np.random.default_rng(0).normal(size=(300, 4))
    forest = MondrianForest(10, max_samples=64).build(points)
    whole = forest.expected_values(points)
    monkeypatch.setattr("imondrian.forest.expected_values._VALUES_PER_TASK", 100)
    assert_equal(forest.expected_values(points), whole)


@given(points=POINT_SETS, seed=SEEDS, settings=SETTINGS)
def test_the_value_itself_does_not_count_unless_the_forest_holds_the_row(points, seed, settings):
    forest = MondrianForest(5, seed=seed, **settings).extend(points)
    rows = points + 1.0  # huge and tiny values may stay the same
    is_new = forest.n_trees_holding(rows) == 0
    for j in range(points.shape[1]) if points.shape[1] > 1 else ():
        found = forest.expected_values(rows[is_new], [j]) if is_new.any() else None
        if found is not None:
            assert_equal(found, forest.expected_values(hidden(rows[is_new], j), [j]))


@pytest.mark.parametrize("settings", [{}, {"max_samples": 20}, {"window": 30}, {"window": 30, "max_samples": 20}])
@pytest.mark.parametrize("seed", range(3))
def test_a_held_row_is_expected_as_if_it_had_been_forgotten(settings, seed):
    """A tree that holds a part of the window may hold only the other one of two copies; there is no copy then."""
    points = np.random.default_rng(seed).normal(size=(40, 3)).round(1)
    if len(settings) < 2:
        points[-2] = points[-1]
    forest = MondrianForest(8, seed=seed, scale=[1.0, 2.0, 0.5], **settings).extend(points)
    row = points[-1:]
    expected = [forest.expected_values(row, [j]) for j in range(3)]
    forest.forget(row)
    for j in range(3):
        assert_equal(expected[j], forest.expected_values(hidden(row, j), [j]))


def test_a_forest_of_one_point_expects_it():
    forest = MondrianForest(3).build([[1.0, 2.0]])
    assert forest.expected_values([[1.0, 2.0]]).median.tolist() == [[1.0, 2.0]]
    assert forest.expected_values([[5.0, 7.0]]).high.tolist() == [[1.0, 2.0]]


def test_trees_without_points_expect_nothing():
    """A tree holds one point of a full window, here of 50 points; of the first 25, half of the trees hold none."""
    points = np.random.default_rng(0).normal(size=(25, 2))
    forest = MondrianForest(60, window=50, max_samples=1).extend(points)
    assert 0 < (forest.state()[0].heads["n_leaves"] == 0).sum() < 60
    expected = forest.expected_values(points)
    assert np.isfinite(expected.median).all()
    assert (expected.high - expected.low > 1.0).all()


def test_nothing_is_expected_if_no_tree_holds_a_point():
    forest = MondrianForest(2, window=1_000, max_samples=1, categorical=[1]).extend([[1.0, 2.0]])
    assert (forest.state()[0].heads["n_leaves"] == 0).all()
    assert np.isnan(forest.expected_values([[1.0, 2.0]])).all()
    assert np.isnan(forest.impute([[np.nan, 2.0]])[0, 0])


@given(points=POINT_SETS, seed=SEEDS)
def test_a_constant_column_is_expected_to_be_constant(points, seed):
    table = np.column_stack([points, np.full(len(points), 7.25)])
    forest = MondrianForest(5, seed=seed).build(table)
    expected = forest.expected_values(table, [points.shape[1]])
    assert_equal([expected.low, expected.median, expected.high], [np.full((len(points), 1), 7.25)] * 3)


def test_the_expected_value_follows_the_other_features():
    """A value is expected within 0.3 standard deviations, and 9 of 10 values lie within 5 % and 95 %."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3_000, 1))
    points = x @ np.ones((1, 4)) + 0.1 * rng.normal(size=(3_000, 4))
    forest = MondrianForest(max_samples=256, scale="std", seed=0).build(points[500:])
    expected = forest.expected_values(points[:500])
    assert np.abs(expected.median - points[:500]).mean() < 0.3
    is_inside = (expected.low <= points[:500]) & (points[:500] <= expected.high)
    assert is_inside.mean() > 0.9
    assert (expected.high - expected.low).mean() < 2.0  # all values together range over 3.3


def test_rare_clusters_are_expected_rarely():
    """Given nothing that tells them apart, a cluster of 1 % of the points is not among the middle 90 %."""
    rng = np.random.default_rng(0)
    level = rng.choice([0.0, 50.0], size=2_000, p=[0.99, 0.01])
    points = np.column_stack([rng.normal(size=(2_000, 2)), level + rng.normal(size=2_000)])
    forest = MondrianForest(scale="std", seed=0).build(points)
    expected = forest.expected_values([[0.0, 0.0, 50.0]], [2])
    assert -5.0 < expected.low[0, 0] < expected.high[0, 0] < 5.0


class TestCategories:
    rng = np.random.default_rng(0)
    codes = rng.choice([7.0, -3.5, 6257867736028357.0], size=600, p=[0.6, 0.3, 0.1])
    points = np.column_stack([codes, np.where(codes == 7.0, 0.0, 40.0) + rng.normal(size=600)])
    forest = MondrianForest(50, max_samples=128, scale="std", categorical=[0], seed=0).build(points)

    def test_the_category_of_most_trees_is_expected(self):
        median, low, high, share = self.forest.expected_values([[np.nan, 0.0], [np.nan, 40.0]], [0])
        assert median.tolist() == low.tolist() == high.tolist() == [[7.0], [-3.5]]
        assert share[0, 0] > 0.95
        assert 0.5 < share[1, 0] <= 1.0

    def test_a_number_is_expected_given_the_category(self):
        expected = self.forest.expected_values([[7.0, 40.0], [-3.5, 0.0]], [1])
        assert np.abs(expected.median[:, 0] - [0.0, 40.0]).max() < 3.0
        assert np.isnan(expected.share).all()

    def test_missing_categories_and_numbers_are_filled_in(self):
        rows = np.array([[np.nan, 0.0], [7.0, np.nan], [-3.5, 39.0]])
        filled = self.forest.impute(rows)
        assert filled[0].tolist() == [7.0, 0.0]
        assert filled[1, 0] == 7.0
        assert abs(filled[1, 1]) < 3.0
        assert filled[2].tolist() == [-3.5, 39.0]

    def test_a_category_never_seen_is_far_from_all_others(self):
        assert np.isfinite(self.forest.expected_values([[99.0, 0.0]]).median).all()


@given(points=POINT_SETS, seed=SEEDS, settings=SETTINGS, data=st.data())
def test_gaps_are_filled_with_the_median_of_the_expected_values(points, seed, settings, data):
    forest = MondrianForest(5, seed=seed, **settings).extend(points)
    rows = points.copy()
    is_gap = np.array([data.draw(st.lists(st.booleans(), min_size=row.size, max_size=row.size)) for row in points])
    is_gap[is_gap.all(axis=1), 0] = False  # a row must have a value
    rows[is_gap] = np.nan
    before = rows.copy()
    filled = forest.impute(rows)
    np.testing.assert_array_equal(rows, before)
    np.testing.assert_array_equal(filled[~is_gap], points[~is_gap])
    np.testing.assert_array_equal(filled[is_gap], forest.expected_values(rows).median[is_gap])


@pytest.mark.parametrize("n", range(1, 200))
@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_ranks_are_those_of_the_inverted_distribution_function(n, share):
    assert rank_of_quantile(share, n) == np.quantile(np.arange(n), share, method="inverted_cdf")


def test_wrong_input_gives_clear_errors():
    forest = MondrianForest(2).build([[1.0, 2.0], [3.0, 4.0]])
    for method in (forest.expected_values, forest.impute):
        with pytest.raises(InvalidInputError, match="X has 3 features, but this forest was built on 2"):
            method([[1.0, 2.0, 3.0]])
        with pytest.raises(InvalidInputError, match="Row 1 of X has no value: everything is missing"):
            method([[1.0, np.nan], [np.nan, np.nan]])
        with pytest.raises(InvalidInputError, match="is inf: values must be finite"):
            method([[1.0, np.inf]])
        with pytest.raises(InvalidInputError, match="X is empty"):
            method(np.empty((0, 2)))
        with pytest.raises(InvalidInputError, match="dimension"):
            method([1.0, 2.0])
    for features in ([2], [-1], [[0, 5]]):
        with pytest.raises(InvalidInputError, match="indices from 0 to 1, but has"):
            forest.expected_values([[1.0, 2.0]], features)
    for features in ([], 1, ["a"], [0.5], [True], [[[0]]]):
        with pytest.raises(InvalidInputError, match="features must be indices of features, but is"):
            forest.expected_values([[1.0, 2.0]], features)
    with pytest.raises(InvalidInputError, match="one row for each of 2 rows, but has 1"):
        forest.expected_values([[1.0, 2.0], [3.0, 4.0]], [[0]])
    for empty in (MondrianForest(2), MondrianForest(2).build([[1.0, 2.0]]).forget([[1.0, 2.0]])):
        with pytest.raises(EmptyForestError):
            empty.expected_values([[1.0, 2.0]])
        with pytest.raises(EmptyForestError):
            empty.impute([[1.0, 2.0]])

"""Forests built from samples that are drawn from partitions of the data."""

import numpy as np
import pytest
from scipy import stats

from imondrian import InvalidInputError, MondrianForest
from imondrian.forest.samplers.category_counts import MAX_CATEGORIES
from imondrian.model_files import from_bytes, to_bytes
from imondrian.models.distributed import (
    Samples,
    distinct_rows,
    forest_on_samples,
    new_sampled_forest,
    smallest,
    summed_categories,
)


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    return np.vstack([rng.normal(size=(400, 3)), np.repeat(rng.normal(size=(5, 3)), 20, axis=0)])


def fitted(forest, X, n_parts=1):
    """Fit a forest to X as if its distinct rows were in several partitions."""
    rows, counts = distinct_rows(X)
    parts = [Samples(forest, X.shape[1]) for _ in range(n_parts)]
    for i, part in enumerate(parts):
        if len(rows[i::n_parts]):
            part.offer(rows[i::n_parts], counts[i::n_parts])
    samples = np.stack([merged([part.of(t) for part in parts], forest.max_samples) for t in range(forest.n_trees)])
    categories = [summed_categories(each) for each in zip(*(part.categories() for part in parts), strict=True)]
    return forest_on_samples(forest, sum(part.n_points for part in parts), samples, categories)


def merged(parts, size):
    keys, points = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return smallest(keys, points, size)[1]


@pytest.mark.parametrize("scale", [None, "std", [1.0, 2.0, 3.0]])
@pytest.mark.parametrize("n_parts", [2, 7])
def test_the_forest_does_not_depend_on_the_partitions(data, n_parts, scale):
    forest = new_sampled_forest(10, 32, scale, seed=4)
    whole, spread = fitted(forest, data), fitted(forest, data, n_parts)
    assert to_bytes(spread) == to_bytes(whole)


@pytest.fixture
def coded(data):
    """Points in which two features are categories: few, and many."""
    rng = np.random.default_rng(4)
    return np.column_stack([data[:, 0], rng.integers(3, size=len(data)) * 7.0, rng.geometric(0.02, size=len(data))])


@pytest.mark.parametrize("n_parts", [1, 2, 7])
def test_categories_are_counted_exactly(coded, n_parts):
    forest = fitted(new_sampled_forest(10, 32, "std", seed=4, categorical=[1, 2]), coded, n_parts)
    assert to_bytes(forest) == to_bytes(fitted(new_sampled_forest(10, 32, "std", 4, [1, 2]), coded))
    local = MondrianForest(2, max_samples=32, categorical=[1, 2]).build(coded)
    for k in range(2):
        for ours, theirs in zip(forest.sampler.counts.entries(k), local.sampler.counts.entries(k), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    again = from_bytes(to_bytes(forest))
    np.testing.assert_array_equal(again.extend(coded).score(coded), forest.extend(coded).score(coded))


def test_of_too_many_categories_the_most_frequent_are_kept():
    n = MAX_CATEGORIES + 10
    codes = np.arange(n, dtype=np.float64)[:, None]
    samples = Samples(new_sampled_forest(1, 4, categorical=[0]), 1)
    counts = np.full(n, 2)
    counts[5:15] = 1
    samples.offer(codes, counts)
    drawn = samples.drawn()
    plan = new_sampled_forest(1, 4, categorical=[0])
    forest = forest_on_samples(plan, drawn.n_points, drawn.points, drawn.categories)
    assert forest.has_dropped_categories
    np.testing.assert_array_equal(forest.category_counts(0, codes[:, 0])[0], np.where(counts == 2, 2, 0))


def test_many_categories_are_added_up(coded):
    """More distinct categories than are collected at once."""
    plan = new_sampled_forest(1, 4, categorical=[0])
    samples = Samples(plan, 1)
    for first in range(0, 200_000, 50_000):
        samples.offer(np.arange(first, first + 50_000, dtype=np.float64)[:, None], np.full(50_000, 3))
    ((codes, counts),) = samples.categories()
    np.testing.assert_array_equal(codes, np.arange(200_000))
    assert set(counts.tolist()) == {3}


def test_rows_with_gaps_are_sampled_and_counted(data):
    data[::7, 1] = np.nan
    samples = Samples(new_sampled_forest(3, 32), 3)
    samples.offer(*distinct_rows(data))
    assert samples.n_gaps.tolist() == [0, int(np.isnan(data[:, 1]).sum()), 0]
    assert np.isnan(samples.drawn().points[:, :, 1]).any()


def test_counts_are_needed_for_every_categorical_feature(coded):
    with pytest.raises(InvalidInputError, match="There must be counts for 1 categorical features, but there are 0"):
        forest_on_samples(new_sampled_forest(1, 4, categorical=[0]), 4, coded[None, :4])


def test_the_result_is_an_ordinary_forest(data):
    forest = fitted(new_sampled_forest(10, 32, "std", seed=4), data, 3)
    assert (forest.n_trees, forest.n_points, forest.max_samples, forest.seed) == (10, 500, 32, 4)
    again = from_bytes(to_bytes(forest))  # reading checks every invariant
    np.testing.assert_array_equal(again.extend(data).score(data), forest.extend(data).score(data))
    assert forest.n_points == 1000


def test_fewer_rows_than_a_sample_are_all_held(data):
    forest = fitted(new_sampled_forest(4, 64), data[:20], 3)
    assert (forest.n_trees_holding(data[:20]) == 4).all()
    assert forest.n_points == 20


@pytest.mark.law
def test_scores_are_distributed_as_those_of_a_forest_built_at_once(data):
    """Kolmogorov-Smirnov test with 400 seeds on each side at the level 1e-4, for a central and a distant point."""
    rows = np.array([[0.0, 0.0, 0.0], [4.0, -4.0, 4.0]])
    ours = np.array([fitted(new_sampled_forest(2, 32, seed=seed), data).score(rows) for seed in range(400)])
    theirs = np.array(
        [MondrianForest(2, max_samples=32, seed=seed + 1000).build(data).score(rows) for seed in range(400)]
    )
    for j in range(2):
        assert stats.ks_2samp(ours[:, j], theirs[:, j]).pvalue > 1e-4


def test_a_sample_must_have_a_size():
    with pytest.raises(InvalidInputError, match="max_samples must be an integer, but is None"):
        new_sampled_forest(10, None)


def test_very_many_large_points_give_a_forest_that_can_be_saved():
    plan = new_sampled_forest(2, 8, scale="std")
    samples = Samples(plan, n_features=1)
    samples.offer(np.array([[1e153], [-1e153]]), np.array([10**6, 10**6]))
    forest = forest_on_samples(plan, samples.n_points, np.stack([samples.of(t)[1] for t in range(2)]))
    assert from_bytes(to_bytes(forest)).n_points == 2 * 10**6

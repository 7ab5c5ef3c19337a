"""Bottom-k samples: uniform, including copies, and independent of how the rows are distributed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from imondrian.engine.bottom_k import offer_rows

STEP, MASK = 0x9E3779B97F4A7C15, 2**64 - 1


def drawn(tree_keys, X, counts, size):
    """Return the keys and points of every tree's sample, in order of the keys."""
    keys, points = np.full((len(tree_keys), size), np.inf), np.zeros((len(tree_keys), size, X.shape[1]))
    offer_rows(np.array(tree_keys, np.uint64), X, np.array(counts, np.int64), keys, points)
    return in_order(keys, points)


def in_order(keys, points):
    orders = [
        np.lexsort((*some_points.T[::-1], some_keys)) for some_keys, some_points in zip(keys, points, strict=True)
    ]
    return (
        np.array([some_keys[order] for some_keys, order in zip(keys, orders, strict=True)]),
        np.array([some_points[order] for some_points, order in zip(points, orders, strict=True)]),
    )


def mixed_bits(word):
    """Mix 64 bits like SplitMix64, with Python integers."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def plain_sample(tree_key, X, counts, size):
    """Compute the keys of all copies of all rows, and return the smallest."""
    entries = []
    for x, count in zip(X, counts, strict=True):
        word = STEP
        for value in x:
            word = (mixed_bits(word ^ int(np.float64(value + 0.0).view(np.uint64))) + STEP) & MASK
        key, state = 0.0, (tree_key + word) & MASK
        for left in range(count, 0, -1):
            key -= math.log1p(-(mixed_bits(state) >> 11) * 2.0**-53) / left
            entries.append((key, *x))
            state = (state + STEP) & MASK
    return np.array(sorted(entries)[:size])


def test_the_sample_equals_that_of_a_plain_implementation():
    rng = np.random.default_rng(0)
    X, counts = rng.normal(size=(40, 3)), rng.integers(1, 6, 40)
    tree_keys = [int(word) for word in rng.integers(0, 2**63, 5)]
    keys, points = drawn(tree_keys, X, counts, 20)
    for t, tree_key in enumerate(tree_keys):
        expected = plain_sample(tree_key, X, counts, 20)
        np.testing.assert_allclose(keys[t], expected[:, 0], rtol=1e-14)
        np.testing.assert_array_equal(points[t], expected[:, 1:])


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 4)), min_size=1, max_size=12, unique_by=lambda row: row[0]),
    st.randoms(use_true_random=False),
    st.integers(1, 10),
)
def test_the_sample_does_not_depend_on_the_order_of_rows(rows, random, size):
    shuffled = random.sample(rows, len(rows))
    results = [
        drawn([7, 8], np.array([[float(value)] for value, _ in some]), [count for _, count in some], size)
        for some in (rows, shuffled)
    ]
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_minus_zero_is_zero():
    keys = [drawn([3], np.array([[zero]]), [1], 1)[0] for zero in (0.0, -0.0)]
    assert keys[0] == keys[1]


@pytest.mark.law
@pytest.mark.compiled
def test_every_row_is_drawn_equally_often():
    """Chi-square test over 20,000 trees at the level 1e-4: a correct sampler fails for 1 in 10,000 seeds."""
    tree_keys = np.random.default_rng(1).integers(0, 2**63, 20_000)
    _, points = drawn(tree_keys, np.arange(50.0)[:, None], np.ones(50), 10)
    counts = np.bincount(points.ravel().astype(int), minlength=50)
    expected = 20_000 * 10 / 50
    variance = 20_000 * 0.2 * 0.8 * 50 / 49  # without replacement, the sum is fixed
    assert stats.chi2.sf(((counts - expected) ** 2).sum() / variance, 49) > 1e-4


@pytest.mark.law
@pytest.mark.compiled
@pytest.mark.parametrize("n_copies", [1, 2, 30, 1000])
def test_copies_are_drawn_like_different_rows(n_copies):
    """The number of copies of a row in a sample is hypergeometric; chi-square test over 20,000 trees at 1e-4."""
    tree_keys, n_others, size = np.random.default_rng(n_copies).integers(0, 2**63, 20_000), 40, 12
    counts = np.append(np.ones(n_others), n_copies)
    _, points = drawn(tree_keys, np.arange(n_others + 1.0)[:, None], counts, size)
    found = np.bincount((points[:, :, 0] == n_others).sum(axis=1), minlength=size + 1)
    law = stats.hypergeom(n_others + n_copies, n_copies, size).pmf(np.arange(size + 1)) * 20_000
    often = law >= 5
    observed, expected = [*found[often], found[~often].sum()], [*law[often], law[~often].sum()]
    if expected[-1] < 5:
        observed, expected = observed[:-1], expected[:-1]
        expected = np.array(expected) * sum(observed) / sum(expected)
    assert stats.chisquare(observed, expected).pvalue > 1e-4


@pytest.mark.law
@pytest.mark.compiled
def test_trees_draw_independently():
    """The number of rows that two samples share is hypergeometric; chi-square test over 20,000 pairs at 1e-4."""
    tree_keys = np.random.default_rng(5).integers(0, 2**63, 40_000)
    _, points = drawn(tree_keys, np.arange(30.0)[:, None], np.ones(30), 6)
    shared = np.array([np.isin(a, b).sum() for a, b in zip(points[::2, :, 0], points[1::2, :, 0], strict=True)])
    law = stats.hypergeom(30, 6, 6).pmf(np.arange(7)) * 20_000
    found = np.bincount(shared, minlength=7)
    observed, expected = [*found[:4], found[4:].sum()], [*law[:4], law[4:].sum()]
    assert stats.chisquare(observed, expected).pvalue > 1e-4

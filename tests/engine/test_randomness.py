"""Random draws: their distributions, their streams, and split values inside the gap."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from scipy.stats import chisquare, kstest

from imondrian.engine import randomness
from imondrian.engine.nodes import HEAD
from tests.reference_tree import ScriptedDraws
from tests.strategies import SEEDS


@njit
def uniforms(heads, n):
    return np.array([randomness.uniform(heads, 0) for _ in range(n)])


@njit
def exponentials(heads, n):
    return np.array([randomness.exponential(heads, 0) for _ in range(n)])


@njit
def gap_values(heads, low, high, n):
    return np.array([randomness.value_in_gap(heads, 0, low, high) for _ in range(n)])


@njit
def features(heads, sizes, weights, n):
    total = randomness.total_rate(sizes, weights)
    return np.array([randomness.draw_feature(heads, 0, sizes, weights, total) for _ in range(n)])


@njit
def numbers(heads, n, k):
    return randomness.sample_without_replacement(heads, 0, n, k)


def heads_of(seed, n_trees=1):
    heads = np.zeros(n_trees, HEAD)
    randomness.start_streams(heads, np.uint64(seed))
    return heads


@given(seed=SEEDS)
def test_the_stream_is_splitmix64(seed):
    heads = heads_of(seed)
    script = ScriptedDraws(heads["stream"][0])
    assert uniforms(heads, 5).tolist() == [script.uniform() for _ in range(5)]


def test_streams_differ_and_do_not_depend_on_their_number():
    assert len(set(heads_of(0, 1000)["stream"])) == 1000
    assert (heads_of(7, 10)["stream"] == heads_of(7, 1000)["stream"][:10]).all()
    assert not set(heads_of(0, 1000)["stream"]) & set(heads_of(1, 1000)["stream"])


def test_draws_have_the_right_distributions():
    """Each fails for fewer than 1 in 10,000 seeds; the seed is fixed."""
    assert kstest(uniforms(heads_of(1), 5000), "uniform").pvalue > 1e-4
    assert kstest(exponentials(heads_of(2), 5000), "expon").pvalue > 1e-4
    assert kstest(gap_values(heads_of(3), -1.0, 3.0, 5000), "uniform", (-1.0, 4.0)).pvalue > 1e-4
    drawn = features(heads_of(4), np.array([1.0, 0.0, 2.0, 4.0]), np.array([2.0, 9.0, 1.0, 1.0]), 5000)
    assert chisquare(np.bincount(drawn)[[0, 2, 3]], [1250, 1250, 2500]).pvalue > 1e-4
    assert not (drawn == 1).any()


def test_streams_of_neighbouring_trees_are_independent():
    """The first draws of 5,000 trees are uniform; fails for fewer than 1 in 10,000 seeds."""
    heads = heads_of(5, 5000)
    first = [uniforms(heads[t : t + 1], 1)[0] for t in range(5000)]
    assert kstest(first, "uniform").pvalue > 1e-4


@given(low=st.floats(-1e153, 1e153), seed=SEEDS, steps=st.integers(1, 3))
def test_a_value_in_a_gap_lies_above_low_and_not_above_high(low, seed, steps):
    high = low
    for _ in range(steps):
        high = np.nextafter(high, np.inf)
    drawn = gap_values(heads_of(seed), low, high, 8)
    assert (low < drawn).all()
    assert (drawn <= high).all()


def test_a_feature_whose_rate_underflows_can_be_drawn():
    assert features(heads_of(6), np.array([5e-324, 0.0]), np.array([1e-150, 1.0]), 3).tolist() == [0, 0, 0]


def test_rates_that_overflow_become_the_largest_float():
    assert set(features(heads_of(7), np.array([1e200, 1e200]), np.array([1e200, 1e200]), 20)) <= {0, 1}


@given(seed=SEEDS, n=st.integers(1, 50), data=st.data())
def test_a_sample_without_replacement_is_distinct_and_in_range(seed, n, data):
    k = data.draw(st.integers(1, n))
    drawn = numbers(heads_of(seed), n, k)
    assert len(set(drawn.tolist())) == k
    assert drawn.min() >= 0
    assert drawn.max() < n


@pytest.mark.compiled
def test_a_sample_without_replacement_is_uniform():
    """Fails for fewer than 1 in 10,000 seeds; the seed is fixed."""
    heads = heads_of(8)
    counts = np.bincount(np.concatenate([numbers(heads, 11, 4) for _ in range(4000)]), minlength=11)
    assert chisquare(counts).pvalue > 1e-4

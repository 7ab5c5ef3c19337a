"""Logarithms and exponentials from tables, compared with those of the math library."""

import math

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.engine.logarithms import LOG_ZERO, MAX_DECAY, decay, floored_log, log_of_count

logarithm, decayed, log_of = (
    numba.njit(lambda x, function=function: function(x)) for function in (floored_log, decay, log_of_count)
)


@given(st.floats(min_value=0.0, exclude_min=True, allow_infinity=False))
def test_the_logarithm_is_accurate_to_fifteen_digits(size):
    assert logarithm(size) == pytest.approx(math.log(size), rel=1e-15, abs=1e-15)


@pytest.mark.parametrize("size", [5e-324, 2.0**-1022, 1.0, math.nextafter(1.0, 0.0), 2.0, math.nextafter(2.0, 0.0)])
def test_the_logarithm_is_accurate_at_the_ends_of_table_ranges(size):
    assert logarithm(size) == pytest.approx(math.log(size), rel=1e-15, abs=1e-15)


def test_the_logarithm_of_zero_is_that_of_the_smallest_float():
    assert logarithm(0.0) == LOG_ZERO == math.log(5e-324)


@given(st.floats(0.0, MAX_DECAY))
def test_the_decay_is_accurate_to_twelve_digits(z):
    assert decayed(z) == pytest.approx(math.exp(-z), rel=1e-12)


def test_logarithms_of_counts_equal_those_of_numpy():
    for n in (1, 2, 1023, 1024, 10**9):
        assert log_of(n) == np.log(n)

"""The average path length c(n), with exact harmonic numbers."""

import math

import numpy as np
import pytest
from numba import njit

from imondrian.engine import average_path_length
from tests.reference_tree import c


@njit
def averages(numbers):
    return np.array([average_path_length.average_path_length(n) for n in numbers])


def test_average_path_lengths_are_exact():
    numbers = np.array([1, 2, 3, 10, 31, 32, 33, 34, 64, 256, 1000, 100_000])
    np.testing.assert_allclose(averages(numbers), [c(int(n)) for n in numbers], rtol=1e-15, atol=0)


def test_c_of_two_is_exactly_one():
    assert averages(np.array([0, 1, 2])).tolist() == [0.0, 0.0, 1.0]


def test_the_formula_of_the_paper_is_the_limit_for_large_n():
    n = 10**9
    paper = 2 * (math.log(n - 1) + 0.5772156649) - 2 * (n - 1) / n
    assert averages(np.array([n]))[0] == pytest.approx(paper, rel=1e-9)

"""Weights that adapt to the data: exact, in any number of steps."""

import numpy as np
import pytest
from hypothesis import given

from imondrian.forest.feature_layout import FeatureLayout
from imondrian.forest.scales import StandardScale, are_valid_moments, new_scale
from tests.strategies import POINT_SETS

X = np.random.default_rng(0).normal(loc=[5.0, -100.0], scale=[2.0, 0.01], size=(200, 2))


def test_weights_are_one_over_the_standard_deviation():
    scale = StandardScale(2)
    scale.restart(X, 200)
    np.testing.assert_allclose(scale.weights(), 1.0 / X.std(axis=0), rtol=1e-10)


def test_each_row_of_weights_is_computed_from_the_points_so_far():
    weights = StandardScale(2).update(X)
    np.testing.assert_allclose(weights[50], 1.0 / X[:51].std(axis=0), rtol=1e-10)
    assert weights[0].tolist() == [1.0, 1.0]


@given(points=POINT_SETS)
def test_moments_do_not_depend_on_the_division_into_calls(points):
    at_once, one_by_one, restarted = (StandardScale(points.shape[1]) for _ in range(3))
    at_once.update(points)
    for x in points:
        one_by_one.update(x[None])
    restarted.restart(points, len(points))
    assert at_once.moments.tolist() == one_by_one.moments.tolist() == restarted.moments.tolist()


@given(points=POINT_SETS)
def test_weights_are_positive_and_finite_on_hostile_points(points):
    weights = StandardScale(points.shape[1]).update(points)
    assert (weights > 0).all()
    assert np.isfinite(weights).all()


def test_a_sample_can_represent_more_points():
    scale = StandardScale(2)
    scale.restart(X, 1000)
    assert scale.moments[0].tolist() == [1000.0, 1000.0]
    np.testing.assert_allclose(scale.weights(), 1.0 / X.std(axis=0), rtol=1e-10)
    scale.restart(X[:0], 0)
    assert (scale.moments == 0).all()


def test_a_feature_far_from_zero_is_not_treated_as_constant():
    """Nanoseconds since 1970 with a standard deviation of one second, for ten million points."""
    scale = StandardScale(1)
    scale.restart(1.7e18 + 1e9 * np.random.default_rng(0).normal(size=(1000, 1)), 10**7)
    assert scale.weights()[0] == pytest.approx(1e-9, rel=0.1)


@pytest.mark.parametrize("spread", [1e-150, 3e-162, 1e-170, 5e-324])
def test_the_smallest_spreads_give_finite_weights(spread):
    weights = StandardScale(1).update(np.array([[0.0], [spread], [0.0]]))
    assert np.isfinite(weights).all()
    assert (weights > 0).all()


@pytest.mark.parametrize(("scale", "weights"), [(None, [1.0, 1.0]), ([3.0, 0.5], [3.0, 0.5])])
def test_fixed_weights_do_not_change(scale, weights):
    fixed = new_scale(scale, FeatureLayout(2, ()))
    fixed.restart(X, 200)
    assert fixed.update(X[:3]).tolist() == [weights] * 3
    fixed.join(np.ones((3, 2)))
    assert fixed.weights().tolist() == weights


def test_joined_moments_are_those_of_all_points():
    one, other, whole = StandardScale(2), StandardScale(2), StandardScale(2)
    one.update(X[:30])
    other.update(X[30:])
    whole.update(X)
    one.join(other.moments)
    np.testing.assert_allclose(one.moments, whole.moments, rtol=1e-9)
    empty = StandardScale(2)
    empty.join(np.zeros((3, 2)))
    assert (empty.moments == 0).all()


def test_a_sample_that_represents_very_many_large_points_does_not_overflow():
    scale = StandardScale(1)
    scale.restart(np.array([[1e153], [-1e153]] * 8), 10**6)
    assert are_valid_moments(scale.moments, 10**6)
    assert 0.0 < scale.weights()[0] < 1.0


def test_values_at_the_limit_of_size_do_not_overflow():
    points = np.where(np.arange(200) % 2, 1e153, -1e153)[:, None]
    scale, other = StandardScale(1), StandardScale(1)
    assert np.isfinite(scale.update(points)).all()
    other.update(points)
    scale.join(other.moments)
    assert are_valid_moments(scale.moments, 400)
    assert not are_valid_moments(scale.moments, 401)
    assert scale.weights()[0] > 0


@pytest.mark.parametrize(
    ("row", "value"), [(0, -1.0), (0, 1e160), (0, 2.0), (1, np.nan), (1, 1e160), (2, -1.0), (2, np.inf)]
)
def test_impossible_moments_are_detected(row, value):
    scale = StandardScale(2)
    scale.update(X)
    assert are_valid_moments(scale.moments, 200)
    scale.moments[row, 1] = value
    assert not are_valid_moments(scale.moments, 200)


def test_weights_are_positive_and_finite_even_if_the_points_were_not():
    """Another thread may write to the points while they are added."""
    for value in (np.nan, np.inf, -np.inf, 1e300):
        scale = StandardScale(2)
        scale.restart(np.array([[1.0, 2.0], [value, 3.0], [value, 4.0]]), 3)
        assert ((scale.weights() > 0.0) & np.isfinite(scale.weights())).all()

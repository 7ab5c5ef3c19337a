"""The synthetic sets match the paper's figures, for any seed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_moons

from imondrian.base.errors import InvalidInputError
from imondrian.datasets import make_synthetic, names

SETS = pytest.mark.parametrize("name", names("synthetic"))
SEEDS = st.integers(0, 2**64)


@SETS
@given(seed=SEEDS)
def test_sizes_are_those_of_the_paper(name, seed):
    data = make_synthetic(name, seed)
    assert data.y.sum() == 45
    assert (data.y == 0).sum() == (255 if name == "moons" else 100)
    assert data.X.shape == (data.y.size, 2)
    assert np.abs(data.X[data.y == 1]).max() <= 6.0
    assert (data.name, data.entry, data.y.dtype) == (name, None, np.uint8)


@SETS
@given(seed=SEEDS)
def test_the_same_seed_gives_the_same_points_and_another_seed_other_points(name, seed):
    first, again, other = make_synthetic(name, seed), make_synthetic(name, seed), make_synthetic(name, seed + 1)
    assert (first.X == again.X).all()
    assert (first.y == again.y).all()
    assert not (first.X == other.X).any()


@SETS
def test_the_order_does_not_reveal_the_labels(name):
    positions = np.concatenate([np.flatnonzero(make_synthetic(name, seed).y) for seed in range(20)])
    n = make_synthetic(name).y.size
    # the mean of 900 positions is off by 0.04 n or more with a probability below 1e-4
    assert abs(positions.mean() - (n - 1) / 2) < 0.04 * n


def inliers(name, n_seeds=100):
    data = [make_synthetic(name, seed) for seed in range(n_seeds)]
    return np.concatenate([one.X[one.y == 0] for one in data])


def test_moons_have_the_shape_of_those_of_scikit_learn():
    arcs = 4.0 * (make_moons(2000, noise=None)[0] - [0.5, 0.25])
    points = inliers("moons", 4)
    distances = np.sqrt(((points[:, None] - arcs[None]) ** 2).sum(axis=2)).min(axis=1)
    # perpendicular to the arc, the noise is normal with a standard deviation of 4 * 0.05;
    # the mean square of 1020 points is off by 25 % or more with a probability below 1e-7
    assert abs(np.mean(distances**2) - 0.2**2) < 0.25 * 0.2**2
    assert np.ptp(points[:, 0]) > 11.0


@pytest.mark.parametrize(
    ("name", "centres", "deviations"),
    [
        ("blob", [(0.0, 0.0)], [0.5]),
        ("two-blobs", [(2.0, 2.0), (-2.0, -2.0)], [0.5, 0.5]),
    ],
)
def test_blobs_have_the_right_centres_and_deviations(name, centres, deviations):
    points = inliers(name)
    nearest = ((points[:, None] - np.array(centres)[None]) ** 2).sum(axis=2).argmin(axis=1)
    for i, (centre, deviation) in enumerate(zip(centres, deviations, strict=True)):
        part = points[nearest == i]
        # two centres are 8 / sqrt(2) apart, over 11 deviations: no point is nearer to the other centre
        assert len(part) == len(points) / len(centres)
        # 5000 points at least: an error above 5 sd / sqrt(n) has a probability below 1e-6
        assert np.abs(part.mean(axis=0) - centre).max() < 5 * deviation / np.sqrt(len(part))
        assert np.abs(part.std(axis=0) - deviation).max() < 5 * deviation / np.sqrt(2 * len(part))


def test_unequal_blobs_are_half_wide_and_half_narrow():
    points = inliers("unequal-blobs")
    n_near = (np.abs(points + 2.0) < 1.5).all(axis=1).sum()  # five deviations of the narrow one
    # in each coordinate, 4.8 % of the wide blob, whose centre is 4 away, lie in this range: 0.048**2 of it in both
    assert 5000 <= n_near < 5000 + 40
    rest = points[np.abs(points + 2.0).max(axis=1) >= 1.5]
    assert np.abs(rest.mean(axis=0) - 2.0).max() < 0.15
    assert np.abs(rest.std(axis=0) - 1.5).max() < 0.1


@pytest.mark.parametrize(
    ("name", "hint"), [("moon", "Did you mean 'moons'"), ("wbc", "must be one of"), (3, "but is 3")]
)
def test_unknown_names_are_refused(name, hint):
    with pytest.raises(InvalidInputError, match=hint):
        make_synthetic(name)


@pytest.mark.parametrize("seed", [-1, 1.5, "7", None, True])
def test_a_seed_must_be_a_non_negative_integer(seed):
    with pytest.raises(InvalidInputError, match="seed must be an int of at least 0"):
        make_synthetic("blob", seed)

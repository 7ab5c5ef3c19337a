"""The region plot: the grid covers the points, and the line separates normal from anomalous regions."""

import numpy as np
import pytest
from hypothesis import given, settings

from imondrian.base.errors import InvalidInputError
from imondrian.plots import Surface, grid_over, plot_regions
from tests.plots.figure_checks import HOSTILE_PAIRS, anomalies, clashes, legend, names, normals
from tests.strategies import point_sets

POINTS = np.random.default_rng(0).normal(size=(40, 2))
IS_ANOMALY = np.abs(POINTS).max(axis=1) > 1.5


def bowl(points=POINTS, n=40):
    """A surface that rises with the distance from the origin."""
    x, y, nodes = grid_over(points, n)
    return Surface(x, y, (1.0 - np.exp(-np.square(nodes).sum(axis=1))).reshape(n, n))


@settings(max_examples=60)
@given(points=point_sets(max_features=2).filter(lambda points: points.shape[1] == 2))
def test_the_grid_covers_the_points_in_increasing_steps(points):
    x, y, nodes = grid_over(points, n=7, margin=0.25)
    for nodes_along_axis, values in zip((x, y), points.T, strict=True):
        assert nodes_along_axis[0] <= values.min()
        assert nodes_along_axis[-1] >= values.max()
        assert (np.diff(nodes_along_axis) > 0).all()
    assert np.array_equal(nodes.reshape(7, 7, 2)[:, :, 0], np.tile(x, (7, 1)))
    assert np.array_equal(nodes.reshape(7, 7, 2)[:, :, 1], np.tile(y, (7, 1)).T)


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.9])
def test_the_boundary_is_where_the_score_equals_the_threshold(threshold):
    figure = plot_regions(POINTS, IS_ANOMALY, bowl(n=200), threshold)
    (line,) = [part for part in figure.axes[0].collections if part.get_zorder() == 2.5]
    ends = np.concatenate([path.vertices for path in line.get_paths()])
    assert np.allclose(1.0 - np.exp(-np.square(ends).sum(axis=1)), threshold, atol=0.01)


def test_nodes_whose_score_equals_the_threshold_are_normal():
    scores = np.full((5, 5), 0.7)
    scores[1:4, 1:4] = 0.5
    figure = plot_regions([[2.0, 2.0]], [False], Surface(range(5), range(5), scores), 0.5)
    (line,) = [part for part in figure.axes[0].collections if part.get_zorder() == 2.5]
    ends = np.concatenate([path.vertices for path in line.get_paths()])
    assert np.array_equal(ends.min(axis=0), [1.0, 1.0])
    assert np.array_equal(ends.max(axis=0), [3.0, 3.0])


def test_the_legend_and_the_axis_labels_describe_the_plot():
    figure = plot_regions(POINTS, IS_ANOMALY, bowl(), 0.6, ("length", "width"))
    n_anomalies = np.count_nonzero(IS_ANOMALY)
    assert legend(figure) == [
        f"normal: {40 - n_anomalies} rows",
        f"anomalies: {n_anomalies} rows",
        "boundary of the normal region (score 0.6)",
    ]
    assert names(figure) == ("length", "width")
    assert figure.axes[1].get_ylabel() == "anomaly score"
    assert np.array_equal(figure.axes[0].collections[0].get_array(), bowl().scores)
    assert np.array_equal(anomalies(figure), POINTS[IS_ANOMALY])
    assert np.array_equal(normals(figure), POINTS[~IS_ANOMALY])


@pytest.mark.parametrize(
    ("threshold", "expected"), [(1.0, "everything"), (2.0, "everything"), (np.inf, "everything"), (-1.0, "nothing")]
)
def test_a_threshold_beyond_the_scores_is_stated_in_the_legend(threshold, expected):
    assert legend(plot_regions(POINTS, IS_ANOMALY, bowl(), threshold))[2] == f"{expected} shown is normal"


@pytest.mark.parametrize("pair", HOSTILE_PAIRS)
def test_labels_never_overlap(pair):
    assert not clashes(plot_regions(POINTS, IS_ANOMALY, bowl(), 0.6, pair))


def test_a_constant_surface_around_one_point_can_be_plotted():
    x, y, _ = grid_over([[1.0, 2.0]], n=5)
    assert not clashes(plot_regions([[1.0, 2.0]], [False], Surface(x, y, np.full((5, 5), 0.4)), 0.4))


@pytest.mark.parametrize(
    ("surface", "threshold", "message"),
    [
        (bowl(), np.nan, "threshold must be a number, but is nan"),
        (Surface([0, 1, 2], [0, 1], np.zeros((3, 2))), 0.5, r"must be 2 x 3, .* but its shape is \(3, 2\)"),
        (Surface([0, 0], [0, 1], np.zeros((2, 2))), 0.5, "surface.x must be at least 2 increasing numbers"),
        (Surface([0, 1], [0], np.zeros((1, 2))), 0.5, "surface.y must be at least 2 increasing numbers"),
        (Surface([0, 1], [0, 1], [[0, 1], [np.nan, 1]]), 0.5, r"surface.scores\[1, 0\] is nan"),
    ],
)
def test_invalid_arguments_raise_with_the_reason(surface, threshold, message):
    with pytest.raises(InvalidInputError, match=message):
        plot_regions(POINTS, IS_ANOMALY, surface, threshold)


@pytest.mark.parametrize(
    ("n", "margin", "message"),
    [
        (1, 0.1, "n must be between 2"),
        (2.5, 0.1, "but is 2.5"),
        (9, -1, "but is -1"),
        (9, np.inf, "inf"),
    ],
)
def test_invalid_grid_arguments_raise_with_the_reason(n, margin, message):
    with pytest.raises(InvalidInputError, match=message):
        grid_over(POINTS, n, margin)

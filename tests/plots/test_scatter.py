"""The scatter plot: a marker for every row, with the anomalies on top."""

import numpy as np
import pytest

from imondrian.base.errors import InvalidInputError
from imondrian.plots import plot_scatter
from tests.plots.figure_checks import HOSTILE_PAIRS, anomalies, clashes, legend, names, normals

POINTS = np.random.default_rng(0).normal(size=(50, 2))
IS_ANOMALY = np.arange(50) < 4


def test_every_row_has_a_marker_of_its_kind():
    figure = plot_scatter(POINTS, IS_ANOMALY, ("length", "width"))
    assert np.array_equal(anomalies(figure), POINTS[:4])
    assert np.array_equal(normals(figure), POINTS[4:])
    assert legend(figure) == ["normal: 46 rows", "anomalies: 4 rows"]
    assert names(figure) == ("length", "width")


def test_anomalies_have_larger_and_different_markers_in_front():
    normal, flags = plot_scatter(POINTS, IS_ANOMALY).axes[0].collections
    assert flags.get_zorder() > normal.get_zorder()
    assert flags.get_sizes()[0] > normal.get_sizes()[0]
    assert len(flags.get_paths()[0].vertices) != len(normal.get_paths()[0].vertices)


def test_all_anomalies_of_many_rows_are_drawn():
    points = np.random.default_rng(0).normal(size=(100_000, 2))
    figure = plot_scatter(points, np.arange(100_000) < 7)
    assert np.array_equal(anomalies(figure), points[:7])
    assert legend(figure)[0] == "normal: 99,993 rows, 20,000 of them drawn"


@pytest.mark.parametrize("pair", HOSTILE_PAIRS)
def test_labels_never_overlap(pair):
    assert not clashes(plot_scatter(POINTS, IS_ANOMALY, pair))


@pytest.mark.parametrize("size", [1e-9, 1e150])
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_labels_never_overlap_for_numbers_of_any_size(size, offset):
    assert not clashes(plot_scatter(POINTS * size + offset, IS_ANOMALY, ["W" * 99] * 2))


@pytest.mark.parametrize("points", [[[1.0, 2.0]], np.full((9, 2), 7.0), np.zeros((3, 2)), [[0.0, 5e-324]]])
def test_identical_points_can_be_plotted(points):
    assert not clashes(plot_scatter(points, np.zeros(len(points), bool)))


@pytest.mark.parametrize(
    ("points", "is_anomaly", "given_names", "message"),
    [
        (np.empty((0, 2)), [], "xy", r"points is empty: its shape is \(0, 2\)"),
        (POINTS[:, :1], IS_ANOMALY, ("x", "y"), "points must have 2 features, but have 1"),
        (POINTS[0], IS_ANOMALY, ("x", "y"), r"points must have 2 dimension\(s\), but its shape is \(2,\)"),
        ([[1.0, np.nan]], [0], ("x", "y"), r"points\[0, 1\] is nan"),
        ([[1.0, 1e200]], [0], ("x", "y"), r"points\[0, 1\] is 1e\+200"),
        (POINTS, IS_ANOMALY[:9], ("x", "y"), r"is_anomaly must have 50 value\(s\), one for each row, but has 9"),
        (
            POINTS,
            np.where(IS_ANOMALY, -1, 1),
            ("x", "y"),
            r"is_anomaly must be true or false, but is_anomaly\[0\] is -1",
        ),
        (POINTS, IS_ANOMALY, ("x",), r"names must contain 2 name\(s\), one for each feature, but is \('x',\)"),
        (POINTS, IS_ANOMALY, "xy", r"names must contain 2 name\(s\), one for each feature, but is 'xy'"),
    ],
)
def test_invalid_arguments_raise_with_the_reason(points, is_anomaly, given_names, message):
    with pytest.raises(InvalidInputError, match=message):
        plot_scatter(points, is_anomaly, given_names)

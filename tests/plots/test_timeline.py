"""The timeline: every score at its coordinates, with those above the threshold on top."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.dates import date2num

from imondrian.base.errors import InvalidInputError
from imondrian.plots import plot_timeline
from tests.plots.figure_checks import anomalies, boxes, clashes, legend, names, normals

ROWS = st.lists(st.tuples(st.floats(0, 1) | st.just(np.nan), st.floats(-1, 2)), min_size=1, max_size=40)
DAY = np.datetime64("2024-02-27T12:30")


@settings(max_examples=20)
@given(rows=ROWS.filter(lambda rows: not np.isnan([score for score, _ in rows]).all()))
def test_every_scored_row_has_a_marker_of_its_kind_at_its_row_number(rows):
    scores, thresholds = np.array(rows).T
    figure = plot_timeline(scores, thresholds)
    numbers = np.arange(1, scores.size + 1)
    is_anomaly, is_normal = scores > thresholds, scores <= thresholds
    assert np.array_equal(anomalies(figure), np.column_stack([numbers, scores])[is_anomaly])
    assert np.array_equal(normals(figure), np.column_stack([numbers, scores])[is_normal])


def test_the_legend_and_the_axis_labels_describe_the_plot():
    figure = plot_timeline([0.4, np.nan, 0.8, 0.3], 0.5, name="measurement")
    assert legend(figure) == ["normal: 2 rows", "anomalies: 1 row", "threshold 0.5"]
    assert names(figure) == ("measurement", "anomaly score")
    assert legend(plot_timeline([0.4, 0.8], [0.5, 0.9]))[2] == "threshold, 0.5 to 0.9"


def test_ticks_are_integers_between_1_and_the_number_of_rows():
    for n_rows in (1, 2, 7, 569, 100_000):
        axes = plot_timeline(np.full(n_rows, 0.4), 0.5).axes[0]
        ticks = axes.get_xticks()
        assert ticks.size > 0
        assert ((ticks >= 1) & (ticks <= n_rows) & (ticks == ticks.round())).all()


@pytest.mark.parametrize("unit", ["h", "us", "ns"])
def test_times_of_any_unit_are_converted(unit):
    when = (DAY + np.array([5, 0, 3, 40]) * np.timedelta64(1, "D")).astype(f"datetime64[{unit}]")
    figure = plot_timeline([0.4, 0.9, 0.3, 0.8], 0.5, when, "time")
    assert np.array_equal(anomalies(figure)[:, 0], date2num(when[[1, 3]]))
    assert "2024-Apr" in [text for text, _ in boxes(figure)]


def test_the_threshold_is_drawn_in_the_order_of_time():
    line = plot_timeline([0.4, 0.9, 0.3], [0.7, 0.5, 0.6], [3.0, 1.0, 2.0]).axes[0].lines[0]
    assert np.array_equal(line.get_xydata(), [[1.0, 0.5], [2.0, 0.6], [3.0, 0.7]])


def test_all_anomalies_and_the_same_sample_of_many_other_rows_are_drawn():
    scores = np.full(300_000, 0.4)
    scores[::3_000] = 0.9
    figure = plot_timeline(scores, 0.5)
    assert len(anomalies(figure)) == 100
    assert legend(figure)[:2] == ["normal: 299,900 rows, 20,000 of them drawn", "anomalies: 100 rows"]
    drawn = normals(figure)
    assert len(np.unique(drawn[:, 0])) == 20_000
    assert np.array_equal(drawn, normals(plot_timeline(scores, 0.5)))
    assert all(marks.get_rasterized() for marks in figure.axes[0].collections)


def test_the_legend_says_how_many_of_too_many_anomalies_are_drawn():
    figure = plot_timeline(np.full(60_000, 0.9), 0.5)
    assert legend(figure)[1] == "anomalies: 60,000 rows, 50,000 of them drawn"
    assert len(anomalies(figure)) == 50_000


@pytest.mark.parametrize(
    ("when", "name"),
    [
        (None, "a$b$"),
        (DAY + np.arange(60) * np.timedelta64(70, "s"), "W" * 300),
        (1e9 + np.arange(60) / 1e4, "_" * 300),
    ],
)
def test_labels_never_overlap(when, name):
    assert not clashes(plot_timeline(np.linspace(0.3, 0.9, 60), np.linspace(0.5, 0.6, 60), when, name))


@pytest.mark.parametrize("when", [None, [DAY]])
@pytest.mark.parametrize("threshold", [0.4, -np.inf])
def test_one_row_can_be_plotted(when, threshold):
    assert not clashes(plot_timeline([0.4], threshold, when))


@pytest.mark.parametrize(
    ("threshold", "when", "message"),
    [
        (np.nan, None, "threshold must be a number, but is nan"),
        ([0.5], None, r"threshold must have 3 value\(s\), one for each row, but has 1"),
        ([0.5, 0.5, np.nan], None, r"threshold\[2\] is nan"),
        (0.5, [1.0, 2.0], r"when must have 3 value\(s\), one for each row, but has 2"),
        (0.5, [1.0, np.inf, 2.0], r"when\[1\] is inf"),
        (0.5, ["a", "b", "c"], "when must contain only numbers"),
        (0.5, np.array([DAY, DAY, "NaT"], "datetime64[s]"), r"when\[2\] is NaT"),
        (0.5, np.array(["20000-01-01", DAY, DAY], "datetime64[s]"), r"when\[0\] is 20000-01-01"),
        (0.5, np.array([[DAY] * 3]), "when"),
    ],
)
def test_invalid_arguments_raise_with_the_reason(threshold, when, message):
    with pytest.raises(InvalidInputError, match=message):
        plot_timeline([0.4, np.nan, 0.6], threshold, when)


def test_a_row_that_was_not_scored_needs_no_threshold():
    assert len(anomalies(plot_timeline([0.4, np.nan, 0.6], [0.5, np.nan, 0.5]))) == 1

"""The plot of a series: one panel for each value, the expected range, incidents, and the surprise below."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.collections import FillBetweenPolyCollection, PathCollection
from matplotlib.dates import date2num

from imondrian.base.errors import InvalidInputError
from imondrian.plots import Band, Surprises, plot_series
from imondrian.plots.series import MAX_PANELS
from tests.plots.figure_checks import HOSTILE_NAMES, boxes, clashes, written

DAY = np.datetime64("2024-02-27T12:30")
NUMBERS = st.floats(-1e9, 1e9) | st.just(np.nan)
ROWS = st.lists(st.tuples(NUMBERS, st.floats(0, 9) | st.just(np.nan), st.integers(0, 10**6)), min_size=1, max_size=40)


def line_of(axes):
    """The coordinates of the line through the rows, without gaps."""
    (line,) = [line for line in axes.lines if line.get_label() == "value"]
    points = np.asarray(line.get_xydata())
    return points[np.isfinite(points).all(axis=1)]


def shades(axes):
    return [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in axes.patches]


@settings(max_examples=25, deadline=None)
@given(rows=ROWS)
def test_every_row_is_on_the_line_in_the_order_of_time(rows):
    values, surprise, minutes = (np.array(column, float) for column in zip(*rows, strict=True))
    when = DAY + minutes.astype("timedelta64[m]")
    figure = plot_series(values, Surprises(surprise, 3.0), when)
    upper, lower = figure.axes
    order = np.argsort(minutes, kind="stable")
    expected = np.column_stack([date2num(when), values])[order]
    np.testing.assert_allclose(line_of(upper), expected[np.isfinite(values[order])])
    (marks,) = [marks for marks in lower.collections if isinstance(marks, PathCollection)]
    assert len(marks.get_offsets()) == (surprise > 3.0).sum()
    written(figure)


def test_the_extremes_of_many_rows_are_drawn():
    values = np.random.default_rng(0).normal(size=100_000)
    values[[5, 77_777]] = -99.0, 99.0
    points = line_of(plot_series(values, Surprises(np.zeros(100_000), 3.0)).axes[0])
    assert len(points) < 10_000
    assert (points[:, 1].min(), points[:, 1].max()) == (-99.0, 99.0)
    assert np.isin(points[:, 1], values).all()


def test_each_value_has_a_panel_up_to_a_limit():
    values = np.random.default_rng(0).normal(size=(50, MAX_PANELS + 3))
    names = [f"v{j}" for j in range(MAX_PANELS + 3)]
    figure = plot_series(values, Surprises(np.zeros(50), 3.0), names=names)
    assert [axes.get_ylabel() for axes in figure.axes] == [*names[:MAX_PANELS], "surprise"]
    assert clashes(figure) == []


def test_incidents_are_shaded_in_all_panels_and_broken_at_gaps():
    minutes = np.r_[0:20, 1000:1020]
    figure = plot_series(np.zeros(40), Surprises(np.zeros(40), 3.0), minutes, incidents=[(2, 4), (18, 22)])
    for axes in figure.axes:
        np.testing.assert_allclose(shades(axes), [(1, 5), (16.5, 20.5), (999, 1003)], atol=0.1)
    (line,) = [line for line in figure.axes[0].lines if line.get_label() == "value"]
    assert np.isnan(line.get_xdata()).sum() == 1
    assert "incidents: 2" in [text for text, _ in boxes(figure)]


def test_the_expected_range_is_an_area_that_does_not_cross_gaps():
    minutes, rows = np.r_[0:20, 1000:1020], np.arange(0, 40, 2)
    band = Band(rows, np.full(20, -1.0), np.full(20, 1.0))
    (area,) = [
        area
        for area in plot_series(np.zeros(40), Surprises(np.zeros(40), 3.0), minutes, expected=band).axes[0].collections
        if isinstance(area, FillBetweenPolyCollection)
    ]
    parts = [(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in area.get_paths()]
    assert parts == [(0, 18), (1000, 1018)]


def test_the_first_ranges_do_not_decide_the_scale():
    low, high = np.full(1_000, -1.0), np.full(1_000, 1.0)
    low[:5], high[:5] = -1e6, 1e6
    figure = plot_series(
        np.sin(np.arange(1_000)), Surprises(np.zeros(1_000), 3.0), expected=Band(range(1_000), low, high)
    )
    assert max(map(abs, figure.axes[0].get_ylim())) < 2.0


def test_the_warm_up_has_no_surprise_and_labels_are_named():
    surprise = np.array([9.0, 9.0, 0.5, 4.0, 0.2])
    figure = plot_series(np.zeros(5), Surprises(surprise, 3.0), labelled=[0, 0, 0, 1, 1], n_warm_up=2)
    (marks,) = [marks for marks in figure.axes[1].collections if isinstance(marks, PathCollection)]
    assert np.asarray(marks.get_offsets()).tolist() == [[4.0, 4.0]]
    assert {"warm-up", "labelled"} <= {text for text, _ in boxes(figure)}
    assert surprise[0] == 9.0  # the input is unchanged


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_texts_do_not_overlap_whatever_the_names_are(name):
    when = DAY + np.arange(300) * np.timedelta64(7, "h")
    for width in (4.5, 10.0):
        figure = plot_series(
            np.arange(300) * 1e6,
            Surprises(np.zeros(300), 3.0),
            when,
            [name],
            x_name=name,
            width=width,
            n_warm_up=9,
            labelled=np.arange(300) > 250,
        )
        assert clashes(figure) == []


def test_wrong_arguments_are_refused():
    surprises = Surprises([0.1, 0.2], 3.0)
    for arguments, message in [
        ({"incidents": [(1, 2)]}, "between rows 0 and 1, but is 1 to 2"),
        ({"when": [1.0]}, "when must have 2"),
        ({"names": ["a", "b"]}, "names must contain 1"),
        ({"labelled": [0.5, 1]}, "true or false"),
        ({"expected": Band([0, 0], [1.0, 1.0], [2.0, 2.0])}, "expected.rows must be increasing"),
        ({"expected": Band([0], [1.0, 1.0], [2.0])}, "expected.low must have 1"),
        ({"labelled": [0, 2]}, r"labelled must be true or false, but labelled\[1\] is 2"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            plot_series([1.0, 2.0], surprises, **arguments)
    with pytest.raises(InvalidInputError, match="has none for value 2"):
        plot_series(np.eye(2), surprises, expected=Band([0], [1.0], [2.0]))
    with pytest.raises(InvalidInputError, match="surprise of rows must have 3"):
        plot_series([1.0, 2.0, 3.0], surprises)

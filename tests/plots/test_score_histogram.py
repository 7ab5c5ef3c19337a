"""The histogram: every score is in one bar, coloured by the chosen threshold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from imondrian.base.errors import InvalidInputError
from imondrian.plots import plot_scores
from imondrian.plots.style import ANOMALY, NORMAL
from tests.plots.figure_checks import HOSTILE_NAMES, bars, clashes, legend, names

SCORES = st.lists(st.floats(0, 1) | st.sampled_from([0.5, np.nextafter(0.5, 1), np.nan]), min_size=1, max_size=60)
THRESHOLDS = st.floats(0, 1) | st.sampled_from([0.5, -3.0, 2.0, np.inf, 1e300])
BELL = np.random.default_rng(0).beta(20, 30, 100_000)


@settings(max_examples=30)
@given(scores=SCORES.filter(lambda scores: not np.isnan(scores).all()), threshold=THRESHOLDS)
def test_every_score_is_in_one_bar_with_the_colour_of_its_kind(scores, threshold):
    figure = plot_scores(scores, {"rule": threshold}, "rule")
    above, below = bars(figure, ANOMALY.colour), bars(figure, NORMAL.colour)
    assert sum(bar.get_height() for bar in above) == np.count_nonzero(np.array(scores) > threshold)
    assert sum(bar.get_height() for bar in below) == np.count_nonzero(np.array(scores) <= threshold)
    assert all(bar.get_x() >= threshold for bar in above)
    assert all(bar.get_x() + bar.get_width() <= threshold + 1e-9 for bar in below) or threshold > 1 or threshold < 0
    low, high = figure.axes[0].get_xlim()
    assert all(low <= bar.get_x() and bar.get_x() + bar.get_width() <= high for bar in above + below)


def test_the_legend_says_how_many_rows_are_above_each_threshold():
    figure = plot_scores([0.1, 0.4, 0.6, 0.9], {"kmeans": 0.5, "0.5": 0.5, "share": 0.61, "never": 1.5}, "share")
    assert legend(figure) == [
        "normal: 3 rows",
        "anomalies: 1 row",
        "chosen threshold share at 0.61: 1 row above",
        "threshold kmeans at 0.5: 2 rows above",
        "threshold 0.5: 2 rows above",
        "threshold never at 1.5: 0 rows above",
    ]
    assert names(figure) == ("anomaly score", "rows per bar")


def test_the_chosen_threshold_is_solid_and_thick_and_the_others_are_dashed():
    lines = plot_scores([0.4, 0.6], {"a": 0.5, "b": 0.45, "c": 0.7}, "b").axes[0].lines
    solid = [line for line in lines if line.get_linestyle() == "-"]
    assert [line.get_xdata()[0] for line in solid] == [0.45]
    assert len(lines) == 3
    assert all(line.get_linewidth() < solid[0].get_linewidth() for line in lines if line not in solid)


def test_without_a_chosen_threshold_nothing_is_coloured_as_an_anomaly():
    figure = plot_scores([0.4, 0.6], {"a": 0.5})
    assert not bars(figure, ANOMALY.colour)
    assert legend(figure) == ["scored: 2 rows", "threshold a at 0.5: 1 row above"]
    assert legend(plot_scores([0.4, 0.6], {})) == ["scored: 2 rows"]


def test_a_single_anomaly_among_many_rows_is_visible():
    figure = plot_scores(np.append(BELL, 0.97), {"rule": 0.95}, "rule")
    figure.draw_without_rendering()
    (bar,) = bars(figure, ANOMALY.colour)
    assert bar.get_height() == 1
    box = bar.get_window_extent()
    assert min(box.width, box.height) * 72 / figure.dpi > 4  # points
    assert figure.axes[0].get_ylabel() == "rows per bar (log scale)"


@pytest.mark.parametrize("score", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("n_rows", [1, 50])
def test_equal_scores_give_a_visible_bar(score, n_rows):
    figure = plot_scores(np.full(n_rows, score), {"rule": 0.5, "never": 1.0}, "rule")
    figure.draw_without_rendering()
    (bar,) = [*bars(figure, ANOMALY.colour), *bars(figure, NORMAL.colour)]
    seen = Bbox.intersection(bar.get_window_extent(), figure.axes[0].bbox)
    assert seen.width * 72 / figure.dpi > 2


@pytest.mark.parametrize("scores", [[0.4, 0.5, 0.9], BELL])
def test_labels_never_overlap(scores):
    thresholds = {name: 0.57 + 1e-9 * i for i, name in enumerate(HOSTILE_NAMES)}
    assert not clashes(plot_scores(scores, thresholds | {"far": 1.0}, "_x"))


def test_the_given_axes_are_used():
    figure = Figure(layout="constrained")
    axes = figure.subplots(1, 2)
    assert plot_scores([0.4, 0.6], {"a": 0.5}, axes=axes[1]) is figure
    assert not axes[0].patches
    assert axes[1].patches


def test_the_top_figure_of_a_subfigure_is_returned():
    figure = Figure(layout="constrained")
    axes = figure.subfigures(1, 2)[0].subplots()
    assert plot_scores([0.4, 0.6], {"a": 0.5}, axes=axes) is figure


@pytest.mark.parametrize(
    ("scores", "thresholds", "chosen", "message"),
    [
        ([], {}, None, r"scores is empty: its shape is \(0,\)"),
        ([np.nan, np.nan], {}, None, "all 2 are NaN"),
        ([[0.1]], {}, None, r"must have 1 dimension\(s\), but its shape is \(1, 1\)"),
        ([0.4, 1.5], {}, None, r"scores\[1\] is 1.5"),
        ([0.4, -np.inf], {}, None, r"scores\[1\] is -inf"),
        (["high"], {}, None, "scores must contain only numbers"),
        ([0.4], {"a": np.nan}, None, r"thresholds\['a'\] must be a number, but is nan"),
        ([0.4], {"a": "half"}, None, r"thresholds\['a'\] must contain only numbers"),
        ([0.4], {"a": 0.5}, "b", r"one of \['a'\], but is 'b'"),
    ],
)
def test_invalid_arguments_raise_with_the_reason(scores, thresholds, chosen, message):
    with pytest.raises(InvalidInputError, match=message):
        plot_scores(scores, thresholds, chosen)

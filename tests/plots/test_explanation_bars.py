"""The bar chart of explanations: mean shares that sum to 100 %, split into too high and too low."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from imondrian.base.errors import InvalidInputError
from imondrian.plots import plot_explanations
from imondrian.plots.style import TOO_HIGH, TOO_LOW
from tests.plots.figure_checks import HOSTILE_NAMES, clashes, legend, names

PARTS = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(st.floats(-1, 1), min_size=n, max_size=n), min_size=1, max_size=6)
)


def widths(figure):
    """Lengths of the bars for too high and too low, from top to bottom."""
    high, low = figure.axes[0].containers
    return np.array([[bar.get_width() for bar in bars] for bars in (high, low)])


def labels(figure):
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


@settings(max_examples=20)
@given(parts=PARTS.filter(lambda parts: np.abs(parts).sum() > 1e-300), n_shown=st.integers(1, 8))
def test_the_shares_of_all_features_sum_to_100_percent(parts, n_shown):
    figure = plot_explanations(parts, [f"f{j}" for j in range(len(parts[0]))], n_shown=n_shown)
    shares = widths(figure)
    assert np.isclose(shares.sum(), 100.0)
    leading = shares.sum(axis=0)[: min(n_shown, len(parts[0]))]
    assert (np.diff(leading) <= 1e-9).all()
    assert len(labels(figure)) == min(n_shown + 1, len(parts[0]))


def test_the_shares_of_the_rows_are_averaged():
    figure = plot_explanations(
        [[0.3, -0.1, 0.0], [-0.4, 0.0, 0.4], [np.nan] * 3, [0.0] * 3], ["a", "b", "c"], n_shown=2
    )
    assert labels(figure) == ["a", "c", "1 other"]
    assert np.allclose(widths(figure), [[37.5, 25.0, 0.0], [25.0, 0.0, 12.5]])
    assert legend(figure) == ["too high", "too low"]
    assert names(figure) == ("mean share of the score (%)", "feature")
    assert [text.get_text() for text in figure.axes[0].texts] == ["62.5", "25.0", "12.5"]
    high, low = figure.axes[0].containers
    assert (to_hex(high[0].get_facecolor()), to_hex(low[0].get_facecolor())) == (TOO_HIGH.lower(), TOO_LOW.lower())


def test_the_last_label_counts_the_other_features():
    parts = np.eye(30)
    assert labels(plot_explanations(parts, [str(j) for j in range(30)]))[-1] == "18 others"


def test_short_axes_show_fewer_features():
    axes = Figure(figsize=(5, 2), layout="constrained").subplots()
    figure = plot_explanations(np.eye(30), HOSTILE_NAMES * 3 + ["a", "b", "c"], axes=axes)
    assert 1 < len(labels(figure)) < 13
    assert not clashes(figure)


@pytest.mark.parametrize("n_shown", [1, 4, 12])
def test_labels_never_overlap(n_shown):
    parts = np.random.default_rng(0).normal(size=(20, len(HOSTILE_NAMES)))
    assert not clashes(plot_explanations(parts, HOSTILE_NAMES, n_shown=n_shown))


@pytest.mark.parametrize(
    ("parts", "given_names", "n_shown", "message"),
    [
        (np.empty((0, 2)), ["a", "b"], 12, r"parts is empty: its shape is \(0, 2\)"),
        ([0.1, 0.2], ["a", "b"], 12, r"parts must have 2 dimension\(s\), but its shape is \(2,\)"),
        ([[0.1, 0.2]], ["a"], 12, r"names must contain 2 name\(s\), one for each feature, but is \['a'\]"),
        ([[0.0, 0.0]], ["a", "b"], 12, r"each of its 1 row\(s\) has a NaN or only zeros"),
        ([[np.nan, 0.1]], ["a", "b"], 12, "explains no score"),
        ([[0.1, 0.2]], ["a", "b"], 0, "n_shown must be between 1 and 200, but is 0"),
    ],
)
def test_invalid_arguments_raise_with_the_reason(parts, given_names, n_shown, message):
    with pytest.raises(InvalidInputError, match=message):
        plot_explanations(parts, given_names, n_shown=n_shown)

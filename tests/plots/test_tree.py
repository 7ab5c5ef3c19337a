"""The dendrogram: every node at its split time, every point counted once, no label over another label or a line."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from imondrian import MondrianForest
from imondrian.base.errors import InvalidInputError
from imondrian.engine.plain_tree import plain_tree
from imondrian.plots import plot_tree
from tests.plots.figure_checks import HOSTILE_NAMES, boxes, clashes, legend, names
from tests.strategies import POINT_SETS, SEEDS, built, empty

N_FEATURES = len(HOSTILE_NAMES)
NORMAL_POINTS = np.random.default_rng(0).normal(size=(256, N_FEATURES))
TREES = {
    "256 leaves": NORMAL_POINTS,
    "skewed": np.exp(12.0 * NORMAL_POINTS[:60]),
    "copies": np.round(NORMAL_POINTS[:, [0] * N_FEATURES]),
    "2 leaves": NORMAL_POINTS[:2],
    "1 leaf": NORMAL_POINTS[:1],
}


def tree_of(points, seed=0):
    return next(MondrianForest(1, seed=seed).build(points).trees())


def segments(figure):
    return np.array(figure.axes[0].collections[0].get_segments())


@settings(max_examples=15)
@given(points=POINT_SETS, seed=SEEDS, levels=st.integers(0, 30))
def test_every_cut_of_the_upper_levels_is_a_bar_at_its_split_time(points, seed, levels):
    tree = plain_tree(built(points, seed, n_trees=1), 0)
    drawn = segments(plot_tree(tree, levels=levels))
    bars = drawn[drawn[:, 0, 0] < drawn[:, 1, 0]]
    times = tree.split_time[(tree.left >= 0) & (tree.depth < levels)]
    assert np.array_equal(bars[:, 0, 1], np.clip(times, 1e-200, 1e200))
    assert np.array_equal(bars[:, 0, 1], bars[:, 1, 1])


@settings(max_examples=10)
@given(points=POINT_SETS, seed=SEEDS, levels=st.integers(0, 3))
def test_every_point_is_counted_once(points, seed, levels):
    figure = plot_tree(plain_tree(built(points, seed, n_trees=1), 0), levels=levels)
    assert sum(int(label.get_text()) for label in figure.axes[0].get_xticklabels()) == len(points)


def test_subtrees_that_are_not_shown_have_their_own_marker():
    tree = tree_of(NORMAL_POINTS)
    is_end = (tree.left < 0) & (tree.depth <= 4) | (tree.depth == 4)
    n_hidden = np.count_nonzero(is_end & (tree.left >= 0))
    n_leaves = np.count_nonzero(is_end & (tree.left < 0))
    assert legend(plot_tree(tree, levels=4)) == [f"leaves: {n_leaves}", f"subtrees not shown: {n_hidden}"]
    assert legend(plot_tree(tree, levels=100)) == ["leaves: 256"]
    assert legend(plot_tree(tree, levels=0)) == ["subtrees not shown: 1"]


def test_early_splits_are_at_the_top_and_the_axes_have_labels():
    figure = plot_tree(tree_of(NORMAL_POINTS))
    bottom, top = figure.axes[0].get_ylim()
    assert top < segments(figure)[:, :, 1].max() <= bottom
    assert names(figure) == ("points in each leaf or subtree", "split time")


def test_skewed_times_have_a_log_axis():
    assert plot_tree(tree_of(TREES["skewed"])).axes[0].get_yscale() == "log"
    assert plot_tree(tree_of(TREES["2 leaves"])).axes[0].get_yscale() == "linear"


def test_the_first_cut_is_labelled():
    tree = tree_of(NORMAL_POINTS[:, :2])
    texts = [text.get_text() for text in plot_tree(tree, ["length", "width"]).axes[0].texts]
    assert texts[0] == f"{['length', 'width'][tree.split_feature[0]]} < {tree.split_value[0]:.4g}"
    default = [text.get_text() for text in plot_tree(tree).axes[0].texts]
    assert default[0] == f"x{tree.split_feature[0]} < {tree.split_value[0]:.4g}"


@pytest.mark.parametrize(("name", "levels"), [*((name, 5) for name in TREES), ("256 leaves", 60), ("skewed", 8)])
def test_no_label_overlaps_another_label_or_a_line(name, levels):
    figure = plot_tree(tree_of(TREES[name]), HOSTILE_NAMES, levels=levels)
    assert not clashes(figure)
    assert not _crossings(figure)


@pytest.mark.parametrize("size", [(4, 3), (12, 7)])
def test_no_label_overlaps_a_line_on_given_axes_of_any_size(size):
    figure = Figure(figsize=size, layout="constrained")
    plot_tree(tree_of(NORMAL_POINTS), HOSTILE_NAMES, axes=figure.subplots())
    assert len(boxes(figure)) > 10
    assert not _crossings(figure)


def _crossings(figure):
    """Labels that a line crosses, in a figure that has been drawn."""
    (axes,) = figure.axes
    ends = axes.transData.transform(segments(figure).reshape(-1, 2)).reshape(-1, 2, 2)
    low, high = ends.min(axis=1), ends.max(axis=1)
    extents = [text.get_window_extent(figure.canvas.get_renderer()) for text in axes.texts]
    return [box for box in extents if ((low < box.max) & (high > box.min)).all(axis=1).any()]


def test_invalid_arguments_raise_with_the_reason():
    tree = tree_of(NORMAL_POINTS[:, :3])
    with pytest.raises(InvalidInputError, match="The tree is empty"):
        plot_tree(plain_tree(empty(1, 4, 2), 0))
    with pytest.raises(InvalidInputError, match=r"names must contain 3 name\(s\), .* but is \['a'\]"):
        plot_tree(tree, ["a"])
    for levels in (-1, 2.5, True, None):
        with pytest.raises(InvalidInputError, match=f"levels must be .* but is {levels}"):
            plot_tree(tree, levels=levels)

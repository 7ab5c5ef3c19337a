"""The partition plot: each cut is within the box of its node, and early cuts are thicker."""

import numpy as np
import pytest
from hypothesis import given, settings

from imondrian import MondrianForest
from imondrian.base.errors import InvalidInputError
from imondrian.engine.plain_tree import plain_tree
from imondrian.plots import plot_partition
from tests.plots.figure_checks import HOSTILE_PAIRS, clashes, legend, names, normals
from tests.strategies import SEEDS, built, empty, point_sets

POINTS = np.random.default_rng(0).normal(size=(60, 2))
PAIRS = point_sets(max_features=2).filter(lambda points: points.shape[1] == 2)


def tree_of(points, seed=0):
    return next(MondrianForest(1, seed=seed).build(points).trees())


def cuts(figure):
    return figure.axes[0].collections[0]


@settings(max_examples=20)
@given(points=PAIRS, seed=SEEDS)
def test_every_cut_crosses_the_box_of_its_node_at_the_split_value(points, seed):
    tree = plain_tree(built(points, seed, n_trees=1), 0)
    drawn = np.array(cuts(plot_partition(tree)).get_segments()).reshape(-1, 2, 2)
    inner = np.flatnonzero(tree.left >= 0)
    assert len(drawn) == inner.size
    for node, ends in zip(inner[np.argsort(-tree.split_time[inner], kind="stable")], drawn, strict=True):
        feature = tree.split_feature[node]
        assert (ends[:, feature] == tree.split_value[node]).all()
        assert ends[0, 1 - feature] == tree.lower[node, 1 - feature]
        assert ends[1, 1 - feature] == tree.upper[node, 1 - feature]
        assert (tree.lower[node] <= ends).all()
        assert (ends <= tree.upper[node]).all()


def test_earlier_cuts_are_thicker_and_darker():
    lines = cuts(plot_partition(tree_of(POINTS)))  # latest first
    assert (np.diff(lines.get_linewidths()) > 0).all()
    assert (np.diff(lines.get_colors()[:, :3].sum(axis=1)) < 0).all()


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_cuts_after_max_time_are_left_out(share):
    tree = tree_of(POINTS)
    times = np.sort(tree.split_time[tree.left >= 0])
    time = float(np.quantile(times, share, method="nearest"))
    n_cuts = np.count_nonzero(times <= time)
    assert len(cuts(plot_partition(tree, max_time=time)).get_segments()) == n_cuts
    assert not cuts(plot_partition(tree, max_time=times[0] / 2)).get_segments()
    assert legend(plot_partition(tree, max_time=0.0))[0] == "no cuts"


def test_the_legend_and_the_axis_labels_describe_the_plot():
    tree = tree_of(POINTS)
    figure = plot_partition(tree, POINTS, ("length", "width"))
    times = tree.split_time[tree.left >= 0]
    assert legend(figure) == [
        f"first of 59 cuts, at time {times.min():.3g}",
        f"last cut, at time {times.max():.3g}",
        "box of all points",
        "points: 60 rows",
    ]
    assert names(figure) == ("length", "width")
    assert np.array_equal(normals(figure), POINTS)
    (box,) = figure.axes[0].patches
    assert np.allclose(box.get_bbox().min, POINTS.min(axis=0))
    assert np.allclose(box.get_bbox().max, POINTS.max(axis=0))


@pytest.mark.parametrize("flat", [0, 1])
def test_the_cuts_of_a_constant_feature_are_marked(flat):
    points = POINTS.copy()
    points[:, flat] = 3.0
    marked = [line.get_xydata() for line in plot_partition(tree_of(points)).axes[0].lines]
    assert sum(map(len, marked)) == 59


@pytest.mark.parametrize("pair", HOSTILE_PAIRS)
def test_labels_never_overlap(pair):
    assert not clashes(plot_partition(tree_of(POINTS), POINTS, pair))


@pytest.mark.parametrize("points", [[[1.0, 2.0]], [[1.0, 2.0]] * 5, [[0.0, 0.0], [1e150, 1.0]]])
def test_small_trees_can_be_plotted(points):
    assert not clashes(plot_partition(tree_of(points), points))


@pytest.mark.parametrize("n_features", [1, 3])
def test_a_tree_that_does_not_have_two_features_is_refused(n_features):
    with pytest.raises(InvalidInputError, match=f"over 2 features, but this tree has {n_features}"):
        plot_partition(tree_of(np.zeros((3, n_features))))


def test_invalid_arguments_raise_with_the_reason():
    with pytest.raises(InvalidInputError, match="The tree is empty"):
        plot_partition(plain_tree(empty(1, 4, 2), 0))
    with pytest.raises(InvalidInputError, match="max_time must be a number, but is nan"):
        plot_partition(tree_of(POINTS), max_time=np.nan)
    with pytest.raises(InvalidInputError, match="points must have 2 features, but have 3"):
        plot_partition(tree_of(POINTS), np.zeros((4, 3)))

"""The engine and the slow reference tree make exactly the same tree from the same random draws."""

import numpy as np
from hypothesis import given

from imondrian.engine.nodes import empty_trees
from imondrian.engine.plain_tree import plain_tree
from tests import reference_tree
from tests.plain_walks import add_depths
from tests.strategies import POINT_SETS, SEEDS, built, empty, extended


def assert_same(tree, i, node):
    """Compare the tree below node i of the engine with that below a node of the reference tree."""
    assert tree.population[i] == node.population
    assert (tree.lower[i] == node.lower).all()
    assert (tree.upper[i] == node.upper).all()
    assert tree.split_time[i] == node.time
    assert (tree.left[i] == -1) == (not node.children)
    if node.children:
        assert tree.split_feature[i] == node.split_dim
        assert tree.split_value[i] == node.split_val
        assert_same(tree, tree.left[i], node.children[0])
        assert_same(tree, tree.right[i], node.children[1])


def stream_of(seed):
    return empty(1, 1, 1, seed).heads["stream"][0]


@given(points=POINT_SETS, seed=SEEDS)
def test_build_agrees_with_the_reference_tree(points, seed):
    expected = reference_tree.build(points, 0.0, reference_tree.ScriptedDraws(stream_of(seed)))
    assert_same(plain_tree(built(points, seed, n_trees=1), 0), 0, expected)


@given(points=POINT_SETS, seed=SEEDS)
def test_extend_agrees_with_the_reference_tree(points, seed):
    draws = reference_tree.ScriptedDraws(stream_of(seed))
    expected = reference_tree.Node(points[0], points[0], 1)
    trees = extended(empty(1, len(points), points.shape[1], seed), points[:1])
    for x in points[1:]:
        expected = reference_tree.extended(expected, x, draws)
        extended(trees, x[None])
        assert_same(plain_tree(trees, 0), 0, expected)


@given(points=POINT_SETS, others=POINT_SETS, seed=SEEDS)
def test_path_lengths_agree_with_the_reference_tree(points, others, seed):
    expected = reference_tree.build(points, 0.0, reference_tree.ScriptedDraws(stream_of(seed)))
    trees = built(points, seed, n_trees=1)
    rows = np.vstack([points, np.resize(others, (4, points.shape[1]))])
    depths = np.zeros(len(rows))
    add_depths(trees, rows, depths)
    average = reference_tree.c(len(points))
    lengths = [reference_tree.path_length(expected, x) for x in rows]
    np.testing.assert_allclose(depths, [length / average if average else 1.0 for length in lengths], rtol=1e-14)


def test_an_empty_tree_has_no_nodes():
    assert plain_tree(empty_trees(1, 4, 2), 0).left.size == 0

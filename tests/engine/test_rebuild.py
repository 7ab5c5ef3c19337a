"""Trees are rebuilt from cuts, copies and numbered points, bit for bit; nothing in the input is trusted."""

import numpy as np
import pytest
from hypothesis import given

from imondrian.engine.nodes import NO_NODE, Trees, empty_trees
from imondrian.engine.places import coded_points
from imondrian.engine.point_numbers import number_points
from imondrian.engine.rebuild import PROBLEMS, SOUND, rebuild_trees
from tests.strategies import POINT_SETS, SEEDS, built, coded_sets, empty, grown

KEY = np.uint64(12345)
POINTS = np.random.default_rng(0).normal(size=(12, 3))


def numbered(trees, ring=None):
    """Return the number of the point in each leaf, and all numbered points."""
    coded = np.ascontiguousarray(coded_points(trees, trees.points))
    ring = np.empty((0, coded.shape[2])) if ring is None else ring
    leaves, first_leaf = np.zeros(coded.shape[:2], np.int64), np.empty(coded.shape[0] * coded.shape[1], np.int64)
    n_leaves = np.ascontiguousarray(trees.heads["n_leaves"])
    n = number_points(coded.view(np.uint64), n_leaves, ring.view(np.uint64), KEY, leaves, first_leaf)
    return leaves, np.concatenate([ring, coded.reshape(-1, coded.shape[2])[first_leaf[:n]]])


def stripped(trees):
    """Return the trees with only what `rebuild_trees` reads."""
    n_coordinates = trees.boxes.shape[3]
    sizes = trees.heads.size, trees.points.shape[1], n_coordinates, trees.points.shape[2] - n_coordinates
    bare = empty_trees(*sizes)
    bare.heads[:], bare.cuts[:], bare.copies[:] = trees.heads, trees.cuts, trees.copies
    bare.cuts["population"] = 0
    return bare


def rebuilt(bare, leaves, rows):
    """Rebuild the trees in place; return the problem, its position, and to which rows a leaf refers."""
    is_referenced, position = np.zeros(rows.shape[0], np.bool_), np.zeros(2, np.int64)
    problem = rebuild_trees(bare, rows, leaves, is_referenced, position)
    return problem, position.tolist(), is_referenced


def check_rebuilt(trees):
    leaves, rows = numbered(trees)
    assert len({row.tobytes() for row in rows}) == len(rows)
    bare = stripped(trees)
    problem, _, is_referenced = rebuilt(bare, leaves, rows)
    assert problem == SOUND
    assert is_referenced.all()
    for name, ours, theirs in zip(Trees._fields, bare, trees, strict=True):
        if name == "boxes":
            np.testing.assert_array_equal(ours, theirs)  # 0.0 instead of -0.0
        else:
            assert ours.tobytes() == theirs.tobytes(), name


@given(points=POINT_SETS, seed=SEEDS)
def test_rebuilt_trees_are_the_same(points, seed):
    check_rebuilt(built(points, seed, room=2))
    check_rebuilt(grown(points, seed))


@given(rows=coded_sets(), seed=SEEDS)
def test_rebuilt_trees_with_categories_are_the_same(rows, seed):
    points, n_categorical = rows
    check_rebuilt(built(points, seed, n_categorical=n_categorical))


def test_empty_trees_are_rebuilt():
    check_rebuilt(empty(3, 2, 2))
    check_rebuilt(empty(3, 0, 2))


@given(points=POINT_SETS, seed=SEEDS)
def test_points_of_a_ring_have_the_numbers_of_their_rows(points, seed):
    trees = built(points, seed)
    leaves, rows = numbered(trees, points)
    assert rows.shape == points.shape  # no point is missing from the ring
    for t in range(trees.heads.size):
        for slot in range(trees.heads[t]["n_leaves"]):
            assert rows[leaves[t, slot]].tobytes() == trees.points[t, slot].tobytes()


def test_more_points_than_the_first_table_holds_are_numbered():
    points = np.random.default_rng(0).normal(size=(300, 2))
    leaves, rows = numbered(built(points, n_trees=2))
    assert rows.shape == (300, 2)
    assert leaves[0].tolist() == leaves[1].tolist() == list(range(300))  # aligned trees
    sampled, rows = numbered(built(points, n_trees=20, max_samples=40))
    assert len(rows) == sampled.max() + 1 > 250


def cut(name, value, slot=0):
    return lambda trees, _leaves, _rows: trees.cuts[0, slot].__setitem__(name, value)


def head(name, value):
    return lambda trees, _leaves, _rows: trees.heads[0].__setitem__(name, value)


def leaf(value, slot=0):
    return lambda _trees, leaves, _rows: leaves[0].__setitem__(slot, value)


def copy(value, slot=0):
    return lambda trees, _leaves, _rows: trees.copies[0].__setitem__(slot, value)


def make_a_cycle(trees, _leaves, _rows):
    """Replace two inner nodes by one of their leaves, and make each of them a child of the other."""
    cuts = trees.cuts[0]
    pair = [slot for slot in range(11) if cuts[slot]["left"] & 1 and cuts[slot]["right"] & 1][:2]
    for slot in pair:
        above = next(cuts[i] for i in range(11) if 2 * slot in (cuts[i]["left"], cuts[i]["right"]))
        above["left" if above["left"] == 2 * slot else "right"] = cuts[slot]["left"]
    for slot, other in (pair, pair[::-1]):
        cuts[slot]["left"] = 2 * other


def use_a_leaf_twice(trees, _leaves, _rows):
    cuts = trees.cuts[0]
    one, two = [slot for slot in range(11) if cuts[slot]["left"] & 1][:2]
    cuts[one]["left"] = cuts[two]["left"]


def make_the_root_a_child(trees, _leaves, _rows):
    slot = next(slot for slot in range(11) if trees.cuts[0, slot]["right"] & 1)
    trees.cuts[0, slot]["right"] = trees.heads[0]["root"]


def swap_children(trees, _leaves, _rows):
    first = trees.cuts[0, trees.heads[0]["root"] >> 1]
    first["left"], first["right"] = first["right"], first["left"]


def swap_points(_trees, leaves, _rows):
    leaves[0, :12] = leaves[0, 11::-1].copy()


DAMAGES = [
    ("a counter is impossible", head("n_leaves", 99)),
    ("a counter is impossible", head("n_leaves", -1)),
    ("a counter is impossible", head("n_owed", -1)),
    ("a counter is impossible", head("log_key", np.nan)),
    ("an unused slot is not zero", head("n_leaves", 11)),
    ("an unused slot is not zero", leaf(1, 12)),
    ("an unused slot is not zero", copy(1, 12)),
    ("an unused slot is not zero", cut("split_time", -0.0, 11)),
    ("an unused slot is not zero", cut("split_value", np.nan, 11)),
    ("an unused slot is not zero", cut("left", 1, 11)),
    ("the root is not a node of the tree", head("root", 22)),
    ("the root is not a node of the tree", head("root", 25)),
    ("the root is not a node of the tree", head("root", NO_NODE)),
    ("a child is not a node of the tree", cut("left", 22)),
    ("a child is not a node of the tree", cut("right", 25)),
    ("a child is not a node of the tree", cut("right", 2**32 - 1)),
    ("a cut names a feature", cut("split_feature", 3)),
    ("a cut names a feature", cut("split_feature", 2**32 - 1)),
    ("a leaf names a point that does not exist", leaf(-1)),
    ("a leaf names a point that does not exist", leaf(12)),
    ("a leaf names a point that does not exist", leaf(2**62)),
    ("a leaf names a point that does not exist", lambda _trees, _leaves, rows: rows[3].fill(np.nan)),
    ("a leaf holds no point", copy(0)),
    ("has another parent", use_a_leaf_twice),
    ("has another parent", make_the_root_a_child),
    ("a node is not below the root", make_a_cycle),
    ("has another parent", head("root", 1)),
    ("a population is too large", lambda trees, _leaves, _rows: trees.copies[0, :12].fill(2**32 - 1)),
    ("a cut happens before the one above", cut("split_time", np.nan)),
    ("a cut happens before the one above", cut("split_time", np.inf)),
    ("a cut happens before the one above", cut("split_time", -1.0)),
    ("a cut does not separate its children", cut("split_value", np.nan)),
    ("a cut does not separate its children", swap_children),
    ("a cut does not separate its children", swap_points),
    ("a cut does not separate its children", leaf(1)),
]


@pytest.mark.parametrize(("message", "damage"), DAMAGES)
def test_damaged_input_is_found(message, damage):
    trees = built(POINTS, seed=3, n_trees=1, room=2)
    (leaves, rows), bare = numbered(trees), stripped(trees)
    damage(bare, leaves, rows)
    problem, position, _ = rebuilt(bare, leaves, rows)
    assert problem != SOUND
    assert message in PROBLEMS[problem]
    assert position[0] == 0
    assert -1 <= position[1] < 14


def test_every_problem_is_tested():
    assert all(any(message in text for message, _ in DAMAGES) for text in PROBLEMS.values())

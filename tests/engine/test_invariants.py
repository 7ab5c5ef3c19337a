"""The checks find each invariant that is broken on purpose."""

import inspect
import re

import numpy as np
import pytest

from imondrian.engine.compiled_invariants import NONE, first_broken_tree
from imondrian.engine.invariants import INVARIANTS, broken_invariants
from imondrian.engine.nodes import NO_NODE, Trees
from tests.strategies import built, empty, sample_of

POINTS = np.random.default_rng(0).normal(size=(12, 3))
ROOM = 2


def sound_tree():
    trees = built(np.vstack([POINTS, POINTS[:2]]), seed=3, n_trees=1, room=ROOM)
    assert broken_invariants(trees, 0) == []
    assert first_broken_tree(trees) == NONE
    return trees


def head(name, value):
    def damage(trees):
        trees.heads[0][name] = value

    return damage


def cut(name, value, slot=0):
    def damage(trees):
        trees.cuts[0, slot][name] = value

    return damage


def entry(name, index, value):
    def damage(trees):
        getattr(trees, name)[(0, *index)] = value

    return damage


def swap_children(trees):
    root = trees.cuts[0, trees.heads[0]["root"] >> 1]
    root["left"], root["right"] = root["right"], root["left"]


def make_a_cycle(trees):
    """Replace two inner nodes by one of their leaves, and make each of them a child of the other."""
    cuts, parents = trees.cuts[0], trees.parents[0]
    pair = [slot for slot in range(11) if cuts[slot]["left"] & 1 and cuts[slot]["right"] & 1][:2]
    for slot in pair:
        leaf, above = cuts[slot]["left"], parents[2 * slot]
        side = "left" if cuts[above >> 1]["left"] == 2 * slot else "right"
        cuts[above >> 1][side], parents[leaf] = leaf, above
    for slot, other in (pair, pair[::-1]):
        cuts[slot]["left"], parents[2 * other] = 2 * other, 2 * slot


def widen_a_box(trees):
    trees.boxes[0, 0, 1, 0] += 1e-9


def move_a_cut(trees):
    """Move a cut onto the upper bound of its left child."""
    first = trees.cuts[0, trees.heads[0]["root"] >> 1]
    left, j = first["left"], first["split_feature"]
    first["split_value"] = trees.points[0, left >> 1, j] if left & 1 else trees.boxes[0, left >> 1, 1, j]


def lower_a_time(trees):
    inner = next(slot for slot in range(11) if trees.parents[0, 2 * slot] != NO_NODE)
    trees.cuts[0, inner]["split_time"] = 0.0


DAMAGES = {
    "the number of leaves does not fit": head("n_leaves", 99),
    "the number of leaves does not fit the": head("n_leaves", -1),
    "a counter is negative": head("n_owed", -1),
    "a counter is too large": head("n_points", 2**62 + 1),
    "the key of the sample is not in": head("log_key", 0.5),
    "the key of the sample is not in (0, 1]": head("log_key", np.nan),
    "an unused leaf slot is not zero": entry("points", (14, 0), 1.0),
    "an unused inner slot is not zero": entry("boxes", (12, 1, 0), 1.0),
    "the root is not a node": head("root", NO_NODE),
    "the root is not a node of": head("root", 2 * 11),
    "a child is not a node": cut("left", 2 * 12 + 1),
    "a child is not a node of": cut("right", 2 * 11),
    "a cut names a feature": cut("split_feature", 3),
    "a child names another parent": entry("parents", (1,), 2 * 5),
    "a child names another": entry("parents", (2 * 3,), 2 * 3),
    "both children are the same node": lambda trees: trees.cuts[0, 0].__setitem__("left", trees.cuts[0, 0]["right"]),
    "the root has a parent": lambda trees: trees.parents[0].__setitem__(trees.heads[0]["root"], 0),
    "a leaf holds no point": entry("copies", (3,), 0),
    "a population is not the sum": cut("population", 9, slot=4),
    "a population is not the sum of": make_a_cycle,
    "a point is not finite": entry("points", (2, 1), np.nan),
    "a point is not finite or too large": entry("points", (2, 1), 1e160),
    "a split time is not finite": cut("split_time", np.inf),
    "a cut happens before": lower_a_time,
    "a cut happens before the one above": cut("split_time", -1.0),
    "a box is not the smallest": widen_a_box,
    "a box is not the smallest that": entry("boxes", (0, 0, 0), np.nan),
    "a cut does not separate": swap_children,
    "a cut does not separate its": move_a_cut,
    "a cut does not separate its children": cut("split_value", np.nan),
    "the tree holds more points": head("n_points", 3),
    "the tree holds more points than its": lambda trees: (head("n_points", 3)(trees), head("n_owed", 20)(trees)),
    "the tree holds too few points": head("n_points", 99),
}


@pytest.mark.parametrize("problem", DAMAGES)
def test_a_broken_invariant_is_reported(problem):
    trees = sound_tree()
    DAMAGES[problem](trees)
    assert any(found.startswith(problem) for found in broken_invariants(trees, 0)), broken_invariants(trees, 0)
    assert first_broken_tree(trees) == (
        NONE if problem.startswith("the tree holds") else 0
    )  # these are checks of the sampler


@pytest.mark.parametrize("seed", range(40))
def test_compiled_and_plain_checks_agree(seed):
    """With a random value anywhere, both accept the tree or both reject it."""
    rng, trees = np.random.default_rng(seed), sound_tree()
    for _ in range(40):
        damaged = Trees(*(array.copy() for array in trees))
        arrays = [array for array in damaged if array.size]
        array = arrays[rng.integers(len(arrays))]
        if array.dtype.names:
            array = array[array.dtype.names[rng.integers(len(array.dtype.names))]]
        integers, floats = [0, 1, 2, 3, 2**31, 2**32 - 1], [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, 1e200]
        index = np.unravel_index(rng.integers(array.size), array.shape)
        array[index] = rng.choice(floats) if array.dtype.kind == "f" else rng.choice(integers)
        plain = broken_invariants(damaged, 0, lambda _: iter(()))
        assert (first_broken_tree(damaged) == NONE) == (not plain), plain


def test_a_cycle_passes_the_check_of_parents_and_children():
    """Parents and children agree in a cycle; only the check of populations finds it."""
    trees = sound_tree()
    make_a_cycle(trees)
    assert not any("parent" in problem for problem in broken_invariants(trees, 0))


def test_a_sample_that_has_passed_its_next_point_is_reported():
    trees = built(POINTS, n_trees=1, max_samples=4)
    assert broken_invariants(trees, 0, sample_of(4)) == []
    trees.heads["next_kept"] = 12
    assert broken_invariants(trees, 0, sample_of(4)) == [
        "the next point to accept has already passed: the tree as a whole"
    ]


def test_a_sample_that_is_too_large_is_reported():
    assert "more points than its sample" in broken_invariants(sound_tree(), 0, sample_of(4))[0]


def test_an_empty_tree_is_sound_and_its_root_is_checked():
    trees = empty(1, 4, 2)
    assert broken_invariants(trees, 0) == []
    trees.heads["root"] = 0
    assert broken_invariants(trees, 0) == ["an empty tree has a root: the tree as a whole"]


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        (1, 0.0, "a rarity is not in (0, 1]: slot 2"),
        (1, 1.5, "a rarity is not in (0, 1]: slot 2"),
        (2, 0.5, "a category is not at its place: slot 2"),
        (3, 9.0, "a category is not at its place: slot 2"),
    ],
)
def test_damaged_categories_are_reported(column, value, problem):
    rows = np.column_stack([np.arange(4.0), np.ones(4), [5.0, 6.0, 5.0, 7.0]])
    trees = built(rows, n_trees=1, n_categorical=1)
    assert first_broken_tree(trees) == NONE
    assert broken_invariants(trees, 0) == []
    trees.points[0, 2, column] = value
    assert broken_invariants(trees, 0)[0] == problem
    assert first_broken_tree(trees) == 0


def test_the_damaged_slots_are_reported():
    trees = sound_tree()
    trees.copies[0, [3, 5]] = 0
    assert "a leaf holds no point: slot 3 and 1 more" in broken_invariants(trees, 0)


def test_every_problem_of_every_check_is_tested():
    """Every problem that a check can report is caused by one of the tests above."""
    others = ["an empty tree has a root", "a rarity is not in (0, 1]", "a category is not at its place"]  # tested alone
    tested = " ".join([*DAMAGES, *others])
    for check in (check for group in INVARIANTS for check in group):
        problems = re.findall(r'yield \(?\s*f?"([^"]+)"', inspect.getsource(check))
        assert problems
        for problem in problems:
            assert problem[:20] in tested or "{" in problem, problem

"""The invariants of a tree, checked without trusting any number in it.

These checks report what is wrong with one tree, and where. `compiled_invariants.first_broken_tree` makes the same
checks in compiled code, for all trees of a forest, but does not report the reason.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from imondrian.engine.jit import Array
from imondrian.engine.nodes import (
    LOWER,
    MAX_COUNT,
    MAX_VALUE,
    NO_LIMIT,
    NO_NODE,
    UPPER,
    Trees,
    slice_trees,
    with_own_points,
)
from imondrian.engine.places import write_places

Problem = tuple[str, Array]  # a possible problem, and a mask of the slots or trees that have it
Check = Callable[[Trees], Iterator[Problem]]


def broken_invariants(trees: Trees, t: int, sampler_check: Check | None = None) -> list[str]:
    """Return a list of the problems of tree t; it is empty if the tree is sound.

    The checks are run in groups, each of which relies on those before it; only the problems of the first group that has
    any are returned. `sampler_check` is the check of the sampler; the default is for a tree that holds all points.
    """
    tree = with_own_points(slice_trees(trees, slice(t, t + 1)))
    for group in INVARIANTS:
        problems = [f"{text}: {_where(wrong)}" for check in group for text, wrong in check(tree) if np.any(wrong)]
        if problems:
            return problems
    check_sample: Check = sampler_check or partial(samples_are_possible, max_samples=NO_LIMIT)
    return [f"{text}: {_where(wrong[0])}" for text, wrong in check_sample(tree) if wrong.any()]


def _where(wrong: Array) -> str:
    if wrong.ndim == 0:
        return "the tree as a whole"
    slots = np.flatnonzero(wrong)
    return f"slot {slots[0]}" + (f" and {slots.size - 1} more" if slots.size > 1 else "")


def counts_are_possible(tree: Trees) -> Iterator[Problem]:
    """All counters lie in their ranges."""
    head = tree.heads[0]
    n_slots = tree.points.shape[1]
    yield "the number of leaves does not fit the table", np.asarray(not 0 <= head["n_leaves"] <= n_slots)
    yield "a counter is negative", np.asarray(min(head["n_points"], head["n_owed"], head["next_kept"]) < 0)
    yield "a counter is too large", np.asarray(int(head["n_points"]) + int(head["n_owed"]) > MAX_COUNT)
    yield "the key of the sample is not in (0, 1]", np.asarray(not -np.inf < head["log_key"] <= 0.0)


def unused_slots_are_zero(tree: Trees) -> Iterator[Problem]:
    """All unused slots are zero."""
    n_leaves = int(tree.heads[0]["n_leaves"])
    n_inner = max(n_leaves - 1, 0)
    leaves = (tree.points[0, n_leaves:], tree.copies[0, n_leaves:], tree.parents[0, 2 * n_leaves + 1 :: 2])
    inner = (tree.cuts[0, n_inner:], tree.boxes[0, n_inner:], tree.parents[0, 2 * n_inner :: 2])
    for kind, arrays in (("leaf", leaves), ("inner", inner)):
        has_nonzero_bytes = [np.frombuffer(array.tobytes(), np.uint8).any() for array in arrays]
        yield f"an unused {kind} slot is not zero", np.asarray(any(has_nonzero_bytes))


def nodes_exist(tree: Trees) -> Iterator[Problem]:
    """Root and children are nodes in use; cuts name existing features."""
    n_leaves = int(tree.heads[0]["n_leaves"])
    root = int(tree.heads[0]["root"])
    cuts = tree.cuts[0, : max(n_leaves - 1, 0)]
    yield "an empty tree has a root", np.asarray(n_leaves == 0 and root != NO_NODE)
    yield "the root is not a node of the tree", np.asarray(n_leaves > 0 and not _exists(np.asarray(root), n_leaves))
    yield "a child is not a node of the tree", ~(_exists(cuts["left"], n_leaves) & _exists(cuts["right"], n_leaves))
    yield "a cut names a feature that does not exist", cuts["split_feature"] >= tree.boxes.shape[3]


def _exists(node: Array, n_leaves: int) -> Array:
    slot = node >> 1
    return np.where(node & 1, slot < n_leaves, slot < n_leaves - 1)


def parents_and_children_agree(tree: Trees) -> Iterator[Problem]:
    """Each child names its parent, the root names none, and no node is a child twice."""
    n_leaves = int(tree.heads[0]["n_leaves"])
    cuts, parents = tree.cuts[0, : max(n_leaves - 1, 0)], tree.parents[0]
    node = 2 * np.arange(len(cuts))
    yield (
        "a child names another parent",
        (parents[cuts["left"]] != node) | (parents[cuts["right"]] != node),
    )
    yield "both children are the same node", cuts["left"] == cuts["right"]
    if n_leaves > 0:
        yield "the root has a parent", np.asarray(parents[tree.heads[0]["root"]] != NO_NODE)


def populations_add_up(tree: Trees) -> Iterator[Problem]:
    """Each leaf holds a point, each inner node the sum of its children; this rules out cycles."""
    n_leaves = int(tree.heads[0]["n_leaves"])
    cuts, copies = tree.cuts[0, : max(n_leaves - 1, 0)], tree.copies[0, :n_leaves]
    below = _population(tree, cuts["left"]) + _population(tree, cuts["right"])
    yield "a leaf holds no point", np.asarray(copies == 0)
    yield "a population is not the sum of those below", np.asarray(cuts["population"] != below)


def _population(tree: Trees, node: Array) -> Array:
    slot = node >> 1
    return np.where(node & 1, tree.copies[0, slot], tree.cuts[0, slot]["population"]).astype(np.int64)


def points_are_finite(tree: Trees) -> Iterator[Problem]:
    """Every value is finite and within MAX_VALUE."""
    points = tree.points[0, : tree.heads[0]["n_leaves"]]
    yield "a point is not finite or too large", np.asarray(~(np.abs(points) <= MAX_VALUE).all(axis=1))


def categories_are_in_their_places(tree: Trees) -> Iterator[Problem]:
    """Every rarity lies in (0, 1], and every category is at its place."""
    n_coordinates, points = tree.boxes.shape[3], tree.points[0, : tree.heads[0]["n_leaves"]]
    n_codes = points.shape[1] - n_coordinates
    rarities, places, codes = np.split(points[:, n_coordinates - 2 * n_codes :], [n_codes, 2 * n_codes], axis=1)
    expected = np.empty_like(codes)
    write_places(tree, codes, expected)
    yield "a rarity is not in (0, 1]", np.asarray(~((rarities > 0.0) & (rarities <= 1.0)).all(axis=1))
    yield "a category is not at its place", np.asarray((places != expected).any(axis=1))


def times_increase(tree: Trees) -> Iterator[Problem]:
    """Split times are finite and do not decrease downwards."""
    n_inner = max(int(tree.heads[0]["n_leaves"]) - 1, 0)
    times = tree.cuts[0, :n_inner]["split_time"]
    above = tree.parents[0, 0 : 2 * n_inner : 2]
    earlier = np.where(above == NO_NODE, 0.0, tree.cuts[0, np.where(above == NO_NODE, 0, above >> 1)]["split_time"])
    yield "a split time is not finite", ~np.isfinite(times)
    yield "a cut happens before the one above", ~(times >= earlier)


def boxes_are_tight(tree: Trees) -> Iterator[Problem]:
    """Each box is the smallest one that contains its children's boxes."""
    cuts = tree.cuts[0, : max(int(tree.heads[0]["n_leaves"]) - 1, 0)]
    boxes = tree.boxes[0, : len(cuts)]
    lower = np.minimum(_bounds(tree, cuts["left"], LOWER), _bounds(tree, cuts["right"], LOWER))
    upper = np.maximum(_bounds(tree, cuts["left"], UPPER), _bounds(tree, cuts["right"], UPPER))
    yield (
        "a box is not the smallest that contains those below",
        (boxes[:, LOWER] != lower).any(axis=1) | (boxes[:, UPPER] != upper).any(axis=1),
    )


def cuts_separate_the_children(tree: Trees) -> Iterator[Problem]:
    """All points left of a cut are in its left child, all others in its right child."""
    cuts = tree.cuts[0, : max(int(tree.heads[0]["n_leaves"]) - 1, 0)]
    feature = (np.arange(len(cuts)), cuts["split_feature"])
    left = _bounds(tree, cuts["left"], UPPER)[feature]
    right = _bounds(tree, cuts["right"], LOWER)[feature]
    yield "a cut does not separate its children", ~((left < cuts["split_value"]) & (cuts["split_value"] <= right))


def _bounds(tree: Trees, node: Array, side: int) -> Array:
    slot = node >> 1
    n_coordinates = tree.boxes.shape[3]
    return np.where((node & 1)[:, None], tree.points[0, slot, :n_coordinates], tree.boxes[0, slot, side])


def samples_are_possible(trees: Trees, max_samples: int) -> Iterator[Problem]:
    """Check that the number of points held is possible for a sample of the points shown."""
    heads, held = trees.heads, trees.copies.sum(axis=1, dtype=np.int64)
    shown = heads["n_points"] + heads["n_owed"]
    n_vacancies = np.minimum(max_samples, shown) - held
    yield (
        "the tree holds more points than its sample size or than it was shown",
        (n_vacancies < 0) | (held > heads["n_points"]),
    )
    yield "the tree holds too few points for the number forgotten", n_vacancies > heads["n_owed"]
    yield (
        "the next point to accept has already passed",
        (shown >= max_samples) & (heads["next_kept"] <= shown),
    )


INVARIANTS: tuple[tuple[Check, ...], ...] = (
    (counts_are_possible,),
    (unused_slots_are_zero, nodes_exist),
    (parents_and_children_agree,),
    (populations_add_up, points_are_finite),
    (categories_are_in_their_places,),
    (times_increase, boxes_are_tight, cuts_separate_the_children),
)

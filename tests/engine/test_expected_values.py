"""Expected values in each tree, compared with plain Python in which the row itself is really removed from the tree."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config
from scipy.stats import ks_2samp, kstest

from imondrian.engine.expected_values import N_WALKS, write_expected_values, write_most_frequent
from imondrian.engine.reservoir import forget_points
from tests.strategies import CODES, POINT_SETS, RARITIES, SEEDS, built, coded_sets, empty, extended, grown

WEIGHTS = np.array([1.0, 0.5, 3.0, 2.0, 1e-3, 1e100])
LEVEL = 1e-4  # of the tests of laws; their seeds are fixed, so that a test that passes always passes


@dataclass
class Node:
    """A node of a plain tree: a cut with two children, or a leaf with a point."""

    population: int
    point: list[float] | None = None
    feature: int = -1
    value: float = math.nan
    children: tuple[Any, ...] = ()


def plain_tree(trees, t, node=None):
    """Return a tree as nested objects; the points of its leaves have coordinates, then codes."""
    node = int(trees.heads[t]["root"]) if node is None else int(node)
    slot = node >> 1
    if node & 1:
        return Node(int(trees.copies[t, slot]), trees.points[t, slot].tolist())
    cut = trees.cuts[t, slot]
    children = tuple(plain_tree(trees, t, cut[side]) for side in ("left", "right"))
    return Node(int(cut["population"]), None, int(cut["split_feature"]), float(cut["split_value"]), children)


def leaves(node):
    return [node] if not node.children else [leaf for child in node.children for leaf in leaves(child)]


def without_copy(root, row, rarities):
    """Return the tree without one point that equals the row in all but its rarities; the tree itself if it has none.

    A tree of nothing but that point is not changed.
    """

    def is_copy(leaf):
        return all(a == b for j, (a, b) in enumerate(zip(leaf.point, row, strict=True)) if j not in rarities)

    removed = next(filter(is_copy, leaves(root)), None)
    if removed is None or not root.children:
        return root

    def pruned(node):
        if node is removed:
            return Node(node.population - 1, node.point) if node.population > 1 else None
        if removed not in leaves(node):
            return node
        children = [pruned(child) for child in node.children]
        if None in children:
            return next(child for child in children if child is not None)
        return Node(node.population - 1, None, node.feature, node.value, tuple(children))

    return pruned(root)


class Draws:
    """Hashes of a tree's key and the number of the draw."""

    def __init__(self, key):
        self.key, self.number = int(key), 0

    def uniform(self):
        self.number += 1
        word = (self.key + self.number * 0xA0761D6478BD642F) % 2**64
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
        return ((word ^ (word >> 31)) >> 11) * 2.0**-53


def known_distance(row, point, weights):
    total = 0.0
    for a, b, weight in zip(row, point, weights, strict=False):
        total += 0.0 if math.isnan(a) else weight * abs(a - b)
    return min(total, np.finfo(float).max)


def reached(node, row, draws, n_walks):
    """Yield the leaves that the walks reach, with the number of walks; coordinates that are NaN are not known."""
    if not node.children:
        yield node, n_walks
    elif not math.isnan(row[node.feature]):
        yield from reached(node.children[0 if row[node.feature] < node.value else 1], row, draws, n_walks)
    else:
        n_left = math.floor(n_walks * (node.children[0].population / node.population) + draws.uniform())
        for child, n in zip(node.children, (n_left, n_walks - n_left), strict=True):
            if n > 0:
                yield from reached(child, row, draws, n)


def plain_nearest(root, row, weights, draws):
    """Return the nearest leaf that is reached; of equally near ones, one in proportion to the walks that end there."""
    least, n_nearest, nearest = math.inf, 0, None
    n_started = 1 if all(map(math.isnan, row[: len(weights)])) else N_WALKS
    for leaf, n_walks in reached(root, row, draws, n_started):
        distance = known_distance(row, leaf.point, weights)
        if distance < least:
            least, n_nearest, nearest = distance, n_walks, leaf
        elif distance == least:
            n_nearest += n_walks
            nearest = leaf if draws.uniform() * n_nearest < n_walks else nearest
    return nearest


def plain_values(trees, t, placed, weights, n_categorical):
    """Return what tree t expects in each number or place of a placed row (coordinates, then codes)."""
    n = len(weights)
    rarities = range(n - 2 * n_categorical, n - n_categorical)
    root = plain_tree(trees, t)
    if not any(map(math.isnan, placed)):
        root = without_copy(root, placed, rarities)
    result = []
    for j in [j for j in range(n) if j not in rarities]:
        hidden = [j, j - n_categorical] if j >= n - n_categorical else [j]
        row = [math.nan if k in hidden else value for k, value in enumerate(placed)]
        leaf = plain_nearest(root, row, weights, Draws(trees.heads[t]["hash_key"]))
        result.append(leaf.point[j + n_categorical if j >= n - n_categorical else j])
    return result


def found_values(trees, rows, coordinates, weights):
    """Return the values that the kernel writes: one row, coordinate and tree after the other."""
    features = np.tile(np.array(coordinates, np.intp), (len(rows), 1))
    values = np.full((*features.shape, trees.heads.size), np.nan)
    n_trees = write_expected_values(trees, np.ascontiguousarray(rows), features, weights, values)
    return values[..., :n_trees]


@st.composite
def asked_rows(draw, points):
    """Draw rows: points of the table, mixtures of them, and both with gaps; each has at least one value."""
    n_features = points.shape[1]
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        numbers = st.integers(0, len(points) - 1)
        same = draw(st.booleans())
        i = draw(numbers)
        row = np.array([points[i if same else draw(numbers), j] for j in range(n_features)])
        if draw(st.booleans()):
            gaps = draw(st.sets(st.integers(0, n_features - 1), max_size=n_features - 1))
            row[list(gaps)] = np.nan
        rows.append(row)
    return np.array(rows)


@given(data=st.data(), points=POINT_SETS, seed=SEEDS, is_built=st.booleans())
def test_expected_values_agree_with_their_definition(data, points, seed, is_built):
    trees = built(points, seed) if is_built else grown(points, seed)
    rows, weights = data.draw(asked_rows(points)), WEIGHTS[: points.shape[1]]
    found = found_values(trees, rows, range(points.shape[1]), weights)
    for i, row in enumerate(rows):
        for t in range(3):
            assert found[i, :, t].tolist() == plain_values(trees, t, row.tolist(), weights, 0)


@given(data=st.data(), coded=coded_sets(min_rows=2), seed=SEEDS)
def test_expected_categories_agree_with_their_definition(data, coded, seed):
    points, n_categorical = coded
    n = points.shape[1]
    trees = extended(empty(3, len(points), n, seed, n_categorical), points)
    rows = points[data.draw(st.lists(st.integers(0, len(points) - 1), min_size=1, max_size=3))]
    first = n - 2 * n_categorical
    rarity, code = data.draw(st.sampled_from(RARITIES)), data.draw(st.sampled_from([*CODES, 77.0, np.nan]))
    rows[0, first], rows[0, first + n_categorical] = np.nan if np.isnan(code) else rarity, code
    coordinates = [j for j in range(n) if not first <= j < first + n_categorical]
    found = found_values(trees, rows, coordinates, WEIGHTS[:n])
    for i, row in enumerate(rows):
        for t in range(3):
            placed = placed_row(trees, t, row, n_categorical)
            assert found[i, :, t].tolist() == plain_values(trees, t, placed, WEIGHTS[:n], n_categorical)


def placed_row(trees, t, row, n_categorical):
    """Return a coded row as tree t sees it; the place of a missing category is NaN."""
    key, codes = int(trees.heads[t]["hash_key"]), row[row.size - n_categorical :]
    places = []
    for k, code in enumerate(codes):
        word = np.float64(code + 0.0).view(np.uint64).item() * 0x9E3779B97F4A7C15
        draws = Draws(key + (k + 1) * 0xD1342543DE82EF95 + word - 0xA0761D6478BD642F)
        places.append(math.nan if math.isnan(code) else draws.uniform())
    return [*row[: row.size - n_categorical].tolist(), *places, *codes.tolist()]


@given(points=POINT_SETS, seed=SEEDS, data=st.data())
def test_a_row_that_the_trees_hold_is_expected_as_if_it_had_been_forgotten(points, seed, data):
    trees, weights = grown(points, seed), WEIGHTS[: points.shape[1]]
    row = points[data.draw(st.integers(0, len(points) - 1))][None].copy()
    if len(np.unique(points + 0.0, axis=0)) == 1:
        return  # a tree of a single leaf keeps its point
    found = [found_values(trees, row, [j], weights) for j in range(points.shape[1])]
    forget_points(trees, row)
    for j in range(points.shape[1]):
        hidden = row.copy()
        hidden[0, j] = np.nan
        np.testing.assert_array_equal(found[j], found_values(trees, hidden, [j], weights))


@given(points=POINT_SETS, seed=SEEDS)
def test_reading_changes_no_bit_of_the_trees(points, seed):
    trees = grown(points, seed)
    before = [array.tobytes() for array in trees]
    found_values(trees, points, range(points.shape[1]), WEIGHTS[: points.shape[1]])
    assert [array.tobytes() for array in trees] == before


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0]), min_size=4, max_size=4), min_size=1, max_size=5))
def test_the_most_frequent_value_is_the_smallest_of_those_with_the_most_copies(table):
    values, found, shares = np.sort(np.array(table)), np.empty(len(table)), np.empty(len(table))
    write_most_frequent(values, found, shares)
    for row, value, share in zip(values.tolist(), found, shares, strict=True):
        counts = Counter(row)
        assert value == min(v for v, n in counts.items() if n == max(counts.values()))
        assert share == counts[value] / len(row)


@pytest.mark.law
@pytest.mark.compiled
@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="thousands of trees need compiled kernels")
class TestLaws:
    """Kolmogorov-Smirnov tests of 4,000 trees that fail below LEVEL: a correct engine fails 1 in 10,000 of them."""

    points = np.random.default_rng(3).normal(size=(200, 3)) * [1.0, 2.0, 0.5]
    row = np.array([[0.3, -1.0, np.nan]])

    def test_without_other_values_a_tree_expects_one_of_its_points_at_random(self):
        column = self.points[:, :1]
        values = found_values(built(column, 1, n_trees=4000), np.array([[np.nan]]), [0], np.ones(1))
        assert kstest(values.ravel(), lambda x: np.searchsorted(np.sort(column[:, 0]), x, "right") / 200).pvalue > LEVEL

    def test_the_order_of_the_features_does_not_matter(self):
        order = [2, 0, 1]
        values = found_values(built(self.points, 1, n_trees=4000), self.row, [2], np.ones(3))
        others = found_values(built(self.points[:, order], 2, n_trees=4000), self.row[:, order], [0], np.ones(3))
        assert ks_2samp(values.ravel(), others.ravel()).pvalue > LEVEL

    def test_built_and_grown_trees_expect_the_same(self):
        values = found_values(built(self.points, 1, n_trees=4000), self.row, [2], np.ones(3))
        others = found_values(grown(self.points, 2, n_trees=4000), self.row, [2], np.ones(3))
        assert ks_2samp(values.ravel(), others.ravel()).pvalue > LEVEL

"""Hypothesis strategies for hostile points, and functions that make small trees."""

from functools import partial

import numpy as np
from hypothesis import strategies as st

from imondrian.engine.compiled_invariants import NONE, first_broken_tree
from imondrian.engine.invariants import broken_invariants, samples_are_possible
from imondrian.engine.nodes import NO_LIMIT, empty_trees
from imondrian.engine.randomness import start_streams
from imondrian.engine.reservoir import build_trees, extend_trees

SEEDS = st.integers(0, 2**64 - 1)


def _neighbours(value, n):
    values = [value]
    for _ in range(n):
        values.append(float(np.nextafter(values[-1], np.inf)))
    return values


POOLS = {
    "copies": [0.0, 1.0, 2.0],
    "constant": [7.25],
    "neighbours of 1": _neighbours(1.0, 3),
    "neighbours of 0": _neighbours(0.0, 3),
    "neighbours of 1e-300": _neighbours(1e-300, 3),
    "both zeros": [0.0, -0.0, 1.0],
    "tiny": [-1e-300, 1e-300, 3e-300, 5e-324],
    "huge": [-1e150, 1e150, 5e149],
    "all ranges": [-1e150, -1.0, 1e-300, 0.0, 1e-10, 3.0, 1e150],
}


@st.composite
def point_sets(draw, min_rows=1, max_rows=24, max_features=3):
    """Draw a table; each column comes from a pool of difficult values or from ordinary ones."""
    n_rows = draw(st.integers(min_rows, max_rows))
    columns = []
    for _ in range(draw(st.integers(1, max_features))):
        pool = draw(st.sampled_from([None, *POOLS]))
        number = st.floats(-10, 10) if pool is None else st.sampled_from(POOLS[pool])
        columns.append(draw(st.lists(number, min_size=n_rows, max_size=n_rows)))
    return np.array(columns).T.copy()


POINT_SETS = point_sets()
RARITIES = [1.0, 0.25, 2.0**-14]
CODES = [0.0, 1.0, -3.5, 6257867736028357.0]


@st.composite
def coded_sets(draw, min_rows=1, max_rows=24):
    """Draw coded rows (numbers, rarities, codes), and the number of categorical features, at least 1."""
    n_rows, n_numbers, n_categorical = (
        draw(st.integers(min_rows, max_rows)),
        draw(st.integers(0, 2)),
        draw(st.integers(1, 2)),
    )
    pools = [[0.0, 1.0, 2.5]] * n_numbers + [RARITIES] * n_categorical + [CODES] * n_categorical
    columns = [draw(st.lists(st.sampled_from(pool), min_size=n_rows, max_size=n_rows)) for pool in pools]
    return np.array(columns).T.copy(), n_categorical


def empty(n_trees, n_slots, n_coordinates, seed=0, n_categorical=0):
    trees = empty_trees(n_trees, n_slots, n_coordinates, n_categorical)
    start_streams(trees.heads, np.uint64(seed))
    return trees


def built(points, seed=0, n_trees=3, room=0, max_samples=NO_LIMIT, n_categorical=0):
    """Return trees built on the points (coded rows), with `room` more slots than needed."""
    points = np.ascontiguousarray(points, dtype=float)
    trees = empty(n_trees, min(len(points), max_samples) + room, points.shape[1], seed, n_categorical)
    build_trees(trees, points, np.ones(points.shape[1]), max_samples)
    return trees


def extended(trees, points, max_samples=NO_LIMIT):
    points = np.ascontiguousarray(points, dtype=float)
    extend_trees(trees, points, np.ones_like(points), max_samples)
    return trees


def grown(points, seed=0, n_trees=3):
    """Return trees that were shown the points one by one."""
    return extended(empty(n_trees, len(points), points.shape[1], seed), points)


def sample_of(max_samples):
    return partial(samples_are_possible, max_samples=max_samples)


def assert_sound(trees, max_samples=NO_LIMIT):
    assert first_broken_tree(trees) == NONE
    for t in range(trees.heads.size):
        assert broken_invariants(trees, t, sample_of(max_samples)) == []

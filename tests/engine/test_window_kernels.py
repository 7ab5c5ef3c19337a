"""The window kernels, compared with plain ones: walking rows together and prefetching do not change results."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from imondrian.engine.window import Selection, StepPlan, score_depths_and_slide, slide_trees, slide_trees_by_one
from tests.plain_walks import add_depths
from tests.strategies import POINT_SETS, SEEDS, empty

WINDOW, SELECTION = 8, Selection(0.4, 2)


def stream(points, n=40):
    return np.resize(points, (n, points.shape[1])).astype(float)


def fresh(points, seed):
    return empty(3, WINDOW, points.shape[1], seed), np.full((WINDOW, points.shape[1]), np.nan)


def same(ours, theirs):
    return all(a.tobytes() == b.tobytes() for a, b in zip(ours, theirs, strict=True))


@given(points=POINT_SETS, seed=SEEDS)
def test_one_row_at_a_time_with_prefetching_gives_the_same_trees(points, seed):
    rows, weights = stream(points), np.ones(points.shape[1])
    trees, ring = fresh(points, seed)
    others, _ = fresh(points, seed)
    for i in range(len(rows)):
        slide_trees(trees, ring, SELECTION, i, rows[i : i + 1], weights)
        slide_trees_by_one(others, ring, SELECTION, i, rows[i : i + 1], weights)
        ring[i % WINDOW] = rows[i]
        assert same(trees, others)


@given(points=POINT_SETS, seed=SEEDS, length=st.integers(1, WINDOW))
def test_rows_walked_together_have_the_same_depths_as_alone(points, seed, length):
    rows, weights = stream(points), np.ones(points.shape[1])
    trees, ring = fresh(points, seed)
    others, _ = fresh(points, seed)
    for first in range(0, len(rows), length):
        block = rows[first : first + length]
        steps = StepPlan(np.empty(0, np.int64), weights[None], np.empty((3, 0, 2), np.int64))
        parts = np.empty((3, len(block)))
        score_depths_and_slide(trees, ring, SELECTION, first, block, steps, parts)
        for i, x in enumerate(block[:, None]):
            alone = np.zeros(1)
            add_depths(others, x, alone)
            np.testing.assert_allclose(parts[:, i].sum(), alone[0], rtol=1e-12)
            slide_trees(others, ring, SELECTION, first + i, x, weights)
        for i, x in enumerate(block):
            ring[(first + i) % WINDOW] = x
        assert same(trees, others)

"""After every row, the factors equal a computation from scratch, and only rows affected by the new row are updated."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import LocalOutlierFactor

from imondrian.base.errors import InvalidInputError
from imondrian.engine.baselines.incremental_lof import FIELDS, Tables
from imondrian.experiments.baselines.incremental_lof import IncrementalLOF, UpdateCounts
from tests.strategies import POINT_SETS, point_sets

N_NEIGHBORS = st.one_of(st.integers(1, 5), st.integers(6, 30))
DENSITY, FACTOR = 0, 1
_rng = np.random.default_rng(0)
HOSTILE = {
    "copies of three rows": _rng.integers(0, 3, (60, 1)) * np.ones(2),
    "copies of one row": np.full((50, 2), 0.1),
    "constant columns": np.column_stack([np.full(50, 7.25), _rng.normal(size=50), np.zeros(50)]),
    "a grid": _rng.permutation(np.argwhere(np.ones((7, 7)))),
    "a grid, each row three times": _rng.permutation(np.repeat(np.argwhere(np.ones((4, 5))), 3, axis=0)),
    "all equally distant": np.eye(30),
    "clusters larger than k": np.repeat(_rng.normal(size=(4, 3)), 15, axis=0)[_rng.permutation(60)],
    "the same values in any column": _rng.permuted(np.tile(_rng.normal(size=3), (50, 1)), axis=1),
    "a line from far to near": 2.0 ** -np.arange(40)[:, None],
    "a line from near to far": 2.0 ** np.arange(40)[:, None],
}


class Oracle(NamedTuple):
    """Neighbours, densities and factors of the rows, computed from scratch."""

    neighbours: np.ndarray
    squares: np.ndarray
    k_squares: np.ndarray
    densities: np.ndarray
    factors: np.ndarray


def squares_between(X, Y):
    squares = np.zeros((len(X), len(Y)))
    for j in range(X.shape[1]):  # feature by feature, because the last bit decides ties
        squares += (X[:, None, j] - Y[None, :, j]) ** 2
    return squares


def nearest(squares, n_neighbours):
    rows = np.argsort(squares, axis=1, kind="stable")[:, :n_neighbours]  # for ties, the earlier row first
    return rows, np.take_along_axis(squares, rows, axis=1)


def density_of(squares, k_squares_there):
    return 1.0 / (np.sqrt(np.maximum(squares, k_squares_there)).mean(axis=1) + 1e-10)


def oracle(X, k):
    squares = squares_between(X, X)
    np.fill_diagonal(squares, np.inf)
    neighbours, squares = nearest(squares, min(k, len(X) - 1))
    if len(X) == 1:
        return Oracle(neighbours, squares, np.zeros(1), np.array([1e10]), np.ones(1))
    k_squares = squares[:, -1]
    densities = density_of(squares, k_squares[neighbours])
    return Oracle(neighbours, squares, k_squares, densities, densities[neighbours].mean(axis=1) / densities)


def oracle_scores(X, k, Y):
    known, m = oracle(X, k), min(k, len(X) - 1)
    if m == 0:
        return np.ones(len(Y))
    neighbours, squares = nearest(squares_between(Y, X), m)
    densities = density_of(squares, known.k_squares[neighbours])
    return known.densities[neighbours].mean(axis=1) / densities


def scikit(X, k, *, novelty=False):
    n_neighbors = min(k, len(X))  # avoids a warning that k is too large
    return LocalOutlierFactor(n_neighbors=n_neighbors, novelty=novelty).fit(X)


def one_by_one(X, k):
    """Yield the same detector after each row."""
    lof = IncrementalLOF(k)
    for i in range(len(X)):
        yield X[: i + 1], lof.extend(X[i : i + 1])


def sets_of(neighbours):
    return [set(map(int, row)) for row in neighbours]


def updated_rows(lof, queue):
    return set(map(int, lof._tables.queue[queue, : lof._tables.n_queued[queue]]))


def assert_like_oracle(lof, X, k):
    expected, tables, n = oracle(X, k), lof._tables, len(X)
    m = min(k, n - 1)
    assert sets_of(tables.neighbours[:n, :m]) == sets_of(expected.neighbours)
    np.testing.assert_array_equal(tables.k_squares[:n], expected.k_squares)
    np.testing.assert_allclose(tables.densities[:n], expected.densities, rtol=1e-9)
    np.testing.assert_allclose(lof.learned_scores(), expected.factors, rtol=1e-9)


def reverse_neighbours(tables, row):
    """Walk the list of the rows that have this row as a neighbour, and check that it is the same backwards."""
    entry, before, rows = tables.first[row], -1, []
    while entry != -1:
        assert tables.preceding[entry] == before
        assert tables.neighbours.ravel()[entry] == row
        rows.append(int(entry // tables.neighbours.shape[1]))
        entry, before = tables.following[entry], entry
    return rows


@given(points=POINT_SETS, k=N_NEIGHBORS)
def test_after_every_row_the_tables_equal_a_computation_from_scratch(points, k):
    for X, lof in one_by_one(points, k):
        assert_like_oracle(lof, X, k)


@pytest.mark.parametrize("k", [1, 2, 5, 10, 70])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sets_also_equal_a_computation_from_scratch(name, k):
    points = HOSTILE[name].astype(float)
    for X, lof in one_by_one(points, k):
        if len(X) % 5 == 1:
            assert_like_oracle(lof, X, k)
    assert_like_oracle(lof, X, k)


@pytest.mark.parametrize(("k", "n_features"), [(1, 1), (3, 2), (10, 3), (10, 20), (40, 4), (90, 2)])
def test_after_every_row_the_scores_equal_those_of_scikit_learn(k, n_features):
    points = np.random.default_rng(k + n_features).normal(size=(80, n_features))
    for X, lof in one_by_one(points, k):
        if len(X) > 1:
            np.testing.assert_allclose(lof.learned_scores(), -scikit(X, k).negative_outlier_factor_, rtol=0, atol=1e-9)


@pytest.mark.parametrize("n_rows", [2, 3, 10, 11, 12, 100])
@pytest.mark.parametrize("n_features", [1, 3, 20])
def test_scores_of_new_rows_equal_those_of_scikit_learn(n_rows, n_features):
    rng = np.random.default_rng(n_rows)
    X, new = rng.normal(size=(n_rows, n_features)), 2.0 * rng.normal(size=(50, n_features))
    expected = -scikit(X, 10, novelty=True).score_samples(new)
    np.testing.assert_allclose(IncrementalLOF(10).fit(X).score(new), expected, rtol=0, atol=1e-9)


@given(points=point_sets(min_rows=2), k=N_NEIGHBORS, n_learned=st.integers(1, 23))
def test_scores_of_new_rows_equal_a_computation_from_scratch(points, k, n_learned):
    X, new = points[:n_learned], points
    np.testing.assert_allclose(IncrementalLOF(k).fit(X).score(new), oracle_scores(X, k, new), rtol=1e-9)


@given(points=POINT_SETS, k=N_NEIGHBORS)
def test_scoring_does_not_change_the_state(points, k):
    one, other = IncrementalLOF(k), IncrementalLOF(k)
    for x in points:
        one.extend([x])
        other.extend([x]).score(points)
        assert one.learned_scores().tobytes() == other.learned_scores().tobytes()


@given(points=POINT_SETS, k=N_NEIGHBORS, data=st.data())
def test_one_by_one_equals_all_at_once_bit_for_bit(points, k, data):
    cuts = sorted({0, len(points), *data.draw(st.lists(st.integers(0, len(points))))})
    parts, whole = IncrementalLOF(k), IncrementalLOF(k).fit(points)
    total = np.zeros(2, dtype=int)
    for start, stop in pairwise(cuts):
        total += parts.extend(points[start:stop]).n_updates
    assert parts.learned_scores().tobytes() == whole.learned_scores().tobytes()
    assert tuple(total) == whole.n_updates


@given(points=POINT_SETS, others=POINT_SETS, k=N_NEIGHBORS)
def test_fit_forgets_all_earlier_rows(points, others, k):
    again, fresh = IncrementalLOF(k).fit(others).fit(points), IncrementalLOF(k).fit(points)
    assert again.learned_scores().tobytes() == fresh.learned_scores().tobytes()
    assert again.n_updates == fresh.n_updates


@given(points=POINT_SETS, k=N_NEIGHBORS)
def test_the_reverse_neighbour_lists_match_the_neighbours(points, k):
    for X, lof in one_by_one(points, k):
        neighbours = sets_of(lof._tables.neighbours[: len(X), : min(k, len(X) - 1)])
        for row in range(len(X)):
            rows = reverse_neighbours(lof._tables, row)
            assert len(rows) == len(set(rows))
            assert set(rows) == {i for i, held in enumerate(neighbours) if row in held}


def reaches(known):
    """Per row: its neighbours, each with the squared reachability distance."""
    reached = np.maximum(known.squares, known.k_squares[known.neighbours])
    return [set(zip(*pair, strict=True)) for pair in zip(known.neighbours.tolist(), reached.tolist(), strict=True)]


def changed(before, after):
    """Rows whose entry has changed, including the new row."""
    return {i for i in range(len(after)) if i >= len(before) or before[i] != after[i]}


def with_reverse_neighbours(some, neighbours):
    return some | {i for i, held in enumerate(neighbours) if held & some}


def assert_only_affected_rows_updated(points, k):
    """Check which rows each insertion updates.

    Densities: exactly the rows whose reachability distances or neighbours have changed. Factors: the rows whose
    neighbours have changed, and those for which their own density or that of a neighbour has changed.
    """
    lof = IncrementalLOF(k).fit(points[:1])
    for n in range(2, len(points) + 1):
        before, after = oracle(points[: n - 1], k), oracle(points[:n], k)
        densities = lof._tables.densities[: n - 1].copy()
        factors = lof.learned_scores()
        lof.extend(points[n - 1 : n])
        neighbours = sets_of(after.neighbours)
        affected = changed(reaches(before), reaches(after))
        assert updated_rows(lof, DENSITY) == affected
        others = changed(densities, lof._tables.densities[:n])
        changed_neighbours = changed(sets_of(before.neighbours), neighbours)
        assert updated_rows(lof, FACTOR) == changed_neighbours | with_reverse_neighbours(others, neighbours)
        assert updated_rows(lof, FACTOR) <= with_reverse_neighbours(affected, neighbours)
        assert changed(factors, lof.learned_scores()) <= updated_rows(lof, FACTOR)
        assert lof.n_updates == (len(updated_rows(lof, DENSITY)), len(updated_rows(lof, FACTOR)))


@given(points=point_sets(min_rows=2), k=N_NEIGHBORS)
def test_an_insertion_updates_only_the_affected_rows(points, k):
    assert_only_affected_rows_updated(points, k)


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("name", HOSTILE)
def test_an_insertion_into_a_hostile_set_updates_only_the_affected_rows(name, k):
    assert_only_affected_rows_updated(HOSTILE[name].astype(float), k)


def test_a_row_far_from_all_others_updates_only_itself():
    cluster = np.random.default_rng(1).normal(size=(100, 2))
    lof = IncrementalLOF(5).fit(cluster)
    assert lof.extend([[1e3, 1e3]]).n_updates == UpdateCounts(n_densities=1, n_factors=1)


def test_a_row_in_one_of_two_clusters_does_not_update_the_other():
    cluster = np.random.default_rng(2).normal(size=(60, 2))
    lof = IncrementalLOF(5).fit(np.vstack([cluster, cluster + 1e3]))
    lof.extend([[0.0, 0.0]])
    assert 5 < len(updated_rows(lof, DENSITY)) < 60
    assert updated_rows(lof, FACTOR) <= {*range(60), 120}


def test_another_copy_among_many_copies_updates_only_itself():
    lof = IncrementalLOF(5).fit(np.vstack([np.zeros((6, 2)), np.random.default_rng(3).normal(size=(50, 2))]))
    for _ in range(40):
        assert lof.extend([[0.0, 0.0]]).n_updates == UpdateCounts(n_densities=1, n_factors=1)


@pytest.mark.compiled
@pytest.mark.parametrize("n_rows", [1023, 1024, 1025, 2100])
def test_more_rows_than_one_block_of_the_scan_are_handled(n_rows):
    X = np.random.default_rng(n_rows).normal(size=(n_rows, 2)).round(1)
    assert_like_oracle(IncrementalLOF(10).fit(X), X, 10)


def test_a_single_row_has_the_factor_1():
    lof = IncrementalLOF(3).fit([[4.0, 2.0]])
    assert lof.learned_scores().tolist() == [1.0]
    assert lof.score([[4.0, 2.0], [9.0, 9.0]]).tolist() == [1.0, 1.0]


def test_overflowing_distances_give_finite_scores():
    X = 1e153 * np.sign(np.random.default_rng(4).normal(size=(12, 100)))
    lof = IncrementalLOF(3).fit(X)
    assert np.isfinite(lof.learned_scores()).all()
    assert np.isfinite(lof.score(-X)).all()


def test_the_returned_scores_are_a_copy():
    lof = IncrementalLOF(2).fit([[0.0], [1.0], [3.0]])
    lof.learned_scores()[:] = 0.0
    assert (lof.learned_scores() > 0.0).all()


def test_the_tables_have_the_declared_fields():
    assert Tables._fields == tuple(FIELDS)


@pytest.mark.parametrize("query", [IncrementalLOF.learned_scores, lambda lof: lof.score([[1.0]])])
def test_scoring_before_the_first_row_raises(query):
    with pytest.raises(InvalidInputError, match="not learned any rows"):
        query(IncrementalLOF())


@pytest.mark.parametrize("k", [0, -1, 2.0, True, "10", None])
def test_the_number_of_neighbours_is_checked(k):
    with pytest.raises(InvalidInputError, match="n_neighbors must be"):
        IncrementalLOF(k)


@pytest.mark.parametrize("call", [IncrementalLOF.fit, IncrementalLOF.extend, IncrementalLOF.score])
@pytest.mark.parametrize("wrong", [[[np.nan, 0.0]], [[np.inf, 0.0]], [1.0, 2.0], [], [["a", "b"]]])
def test_refused_rows_do_not_change_the_state(call, wrong):
    lof = IncrementalLOF(2).fit(np.random.default_rng(5).normal(size=(9, 2)))
    scores, updates = lof.learned_scores(), lof.n_updates
    with pytest.raises(InvalidInputError):
        call(lof, wrong)
    assert lof.learned_scores().tobytes() == scores.tobytes()
    assert lof.n_updates == updates


@pytest.mark.parametrize("call", [IncrementalLOF.extend, IncrementalLOF.score])
def test_rows_with_another_number_of_features_are_refused(call):
    with pytest.raises(InvalidInputError, match="3 features"):
        call(IncrementalLOF().fit([[1.0, 2.0]]), [[1.0, 2.0, 3.0]])

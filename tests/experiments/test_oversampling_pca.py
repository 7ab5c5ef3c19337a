"""Over-sampling detectors: the shortcuts give the same results as actually removing and copying rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.base.errors import InvalidInputError
from imondrian.experiments.baselines.online_oversampling_pca import OnlineOversamplingPCA
from imondrian.experiments.baselines.oversampling_pca import OversamplingPCA
from imondrian.experiments.baselines.principal_direction import _FACTOR, LearnedRows, outlierness, principal_directions
from tests.strategies import POINT_SETS

DETECTORS = [OversamplingPCA, OnlineOversamplingPCA]
RATIO = 0.1
SMALLEST = 5e-324  # the smallest positive float
both = pytest.mark.parametrize("detector", DETECTORS)


def long_cloud(seed, n=40, d=4, shift=0.0):
    """Rows with one long, oblique axis, so that there is a gap between the first two principal axes."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(d, d)))
    return (rng.normal(size=(n, d)) * np.geomspace(3.0, 0.5, d)) @ turn + shift


def first_direction(rows):
    return np.linalg.eigh(np.cov(rows.T, bias=True))[1][:, -1]


def angle_score(u, v):
    return 1.0 - abs(u @ v) / (np.linalg.norm(u) * np.linalg.norm(v))


def with_copies(rows, target):
    return np.vstack([rows, np.tile(target, (round(RATIO * len(rows)), 1))])


def copied_score(rows, target):
    """The literal definition of osPCA1; the ratio must give an integer number of copies."""
    return angle_score(first_direction(rows), first_direction(with_copies(rows, target)))


def least_squares_score(rows, target):
    """The literal definition of osPCA2: regress the deviations, copies included, on the fixed projections."""
    u, deviations = first_direction(rows), with_copies(rows, target) - rows.mean(axis=0)
    v = np.linalg.lstsq((deviations @ u)[:, None], deviations, rcond=None)[0][0]
    return angle_score(u, v)


DEFINITIONS = [(OversamplingPCA, copied_score), (OnlineOversamplingPCA, least_squares_score)]
defined = pytest.mark.parametrize(("detector", "score_of"), DEFINITIONS)


@defined
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [20, 60])
def test_the_score_of_a_new_row_equals_that_of_actual_copies(detector, score_of, seed, n):
    rows, targets = long_cloud(seed, n), 3.0 * np.random.default_rng(seed).normal(size=(15, 4))
    scores = detector(RATIO).fit(rows).score(targets)
    np.testing.assert_allclose(scores, [score_of(rows, target) for target in targets], rtol=1e-8, atol=1e-12)


@defined
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [21, 61])  # 20 or 60 others, for integer numbers of copies
def test_the_score_of_a_learned_row_equals_that_of_actual_removal_and_copies(detector, score_of, seed, n):
    rows = long_cloud(seed, n)
    rows[0] *= 8.0
    expected = [score_of(np.delete(rows, i, axis=0), rows[i]) for i in range(n)]
    np.testing.assert_allclose(detector(RATIO).fit(rows).learned_scores(), expected, rtol=1e-8, atol=1e-12)


@both
@pytest.mark.parametrize("n", [2, 3, 5, 30])
def test_a_learned_row_has_the_score_it_had_as_a_new_row(detector, n):
    """For any number of rows, even if the copies amount to less than one row."""
    rows = long_cloud(3, n, d=3)
    alone = [detector(RATIO).fit(np.delete(rows, i, axis=0)).score(rows[i : i + 1])[0] for i in range(n)]
    np.testing.assert_allclose(detector(RATIO).fit(rows).learned_scores(), alone, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("copies", [-1, 0, 1, 4, 60])
def test_removing_or_copying_a_row_changes_the_scatter_by_one_outer_product(copies):
    """The central identity, compared with a full computation and with the formula of the source."""
    rows = long_cloud(1, 40, 5, shift=7.0)
    target = rows[0]
    changed = np.vstack([rows, np.tile(target, (copies, 1))]) if copies >= 0 else rows[1:]
    deviation, n, ratio = target - rows.mean(axis=0), len(rows), copies / len(rows)
    scatter = np.cov(rows.T, bias=True) * n + n * ratio / (1 + ratio) * np.outer(deviation, deviation)
    np.testing.assert_allclose(scatter / len(changed), np.cov(changed.T, bias=True), atol=1e-10)
    mean = (rows.mean(axis=0) + ratio * target) / (1 + ratio)
    covariance = (rows.T @ rows / n + ratio * np.outer(target, target)) / (1 + ratio) - np.outer(mean, mean)
    np.testing.assert_allclose(mean, changed.mean(axis=0), atol=1e-10)
    np.testing.assert_allclose(covariance, np.cov(changed.T, bias=True), atol=1e-10)


def test_orthogonal_directions_have_the_maximum_score_of_1():
    rng = np.random.default_rng(0)
    pairs = np.array([np.linalg.qr(rng.normal(size=(3, 2)))[0].T for _ in range(500)])
    scores = outlierness(pairs[:, 0], pairs[:, 1])
    assert scores.max() <= 1.0
    np.testing.assert_allclose(scores, 1.0, rtol=1e-12)


@given(rows=POINT_SETS, weight=st.floats(-1.0, 100.0))
def test_the_power_method_finds_the_largest_scatter(rows, weight):
    """The scatter equals that of eigh, and so does the direction if there is a gap to the next eigenvalue."""
    targets = LearnedRows(rows).learned_targets()
    weight = max(weight, targets.removal_weight)
    directions, scatter = principal_directions(targets, weight)
    for i, row in enumerate(targets.coordinates):
        values, vectors = np.linalg.eigh(np.diag(targets.scatter) + weight * np.outer(row, row))
        gap = values[-1] - max(values[-2] if values.size > 1 else 0.0, 0.0)
        assert abs(scatter[i] - values[-1]) <= 1e-3 * abs(values[-1]) + 1e-12
        if gap > 0.05 * values[-1] > 1e-9:
            assert outlierness(directions[i : i + 1], vectors[None, :, -1])[0] <= 1e-9


@both
def test_an_outlying_row_scores_above_those_along_the_principal_direction(detector):
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(0.0, 5.0, 200), rng.normal(0.0, 0.3, 200)])
    along, aside = np.array([[12.0, 0.0], [-15.0, 0.1]]), np.array([[6.0, 6.0], [-6.0, 8.0]])
    fitted = detector().fit(rows)
    assert fitted.score(aside).min() > 10.0 * fitted.score(along).max()
    assert set(detector().fit(np.vstack([rows, aside])).learned_scores().argsort()[-2:]) == {200, 201}


def test_a_row_orthogonal_to_the_direction_can_become_the_direction():
    """The power method would never leave the old direction if it started exactly there."""
    rows = [[-1.0, 0.0], [1.0, 0.0], [0.0, 0.5], [0.0, -0.5]]
    assert OversamplingPCA().fit(rows).score([[0.0, 20.0]]) == pytest.approx(1.0)
    assert OversamplingPCA().fit(rows).score([[0.0, 1.0]]) == pytest.approx(0.0, abs=1e-11)
    left_out = OversamplingPCA().fit([*rows, [30.0, 0.0], [-1.0, 5.0], [1.0, 5.0], [-1.0, -5.0], [1.0, -5.0]])
    assert left_out.learned_scores()[4] > 0.5


def test_least_squares_does_not_detect_a_row_orthogonal_to_the_direction():
    rows = [[-1.0, 0.0], [1.0, 0.0], [0.0, 0.5], [0.0, -0.5]]
    assert OnlineOversamplingPCA().fit(rows).score([[0.0, 20.0]]) == pytest.approx(0.0)


@both
@given(rows=POINT_SETS, data=st.data())
def test_one_by_one_equals_all_at_once(detector, rows, data):
    """Mean and scatter up to rounding, relative to the largest value."""
    n = data.draw(st.integers(1, len(rows)))
    at_once, parted, one_by_one = detector().fit(rows), detector().fit(rows[:n]), detector()
    if n < len(rows):
        parted.extend(rows[n:])
    for row in rows:
        one_by_one.extend(row[None])
    size = np.abs(rows).max()
    for other in (parted, one_by_one):
        assert other._rows.n_rows == len(rows)
        np.testing.assert_allclose(other._rows.mean, at_once._rows.mean, rtol=0, atol=max(1e-13 * size, SMALLEST))
        atol = max(1e-12 * len(rows) * (size * _FACTOR) ** 2, 1e-300)
        np.testing.assert_allclose(other._rows.scatter, at_once._rows.scatter, rtol=0, atol=atol)
        assert (other._rows._all() == rows).all()


def test_mean_and_scatter_equal_those_of_all_rows():
    rows = long_cloud(5, 90, 4, shift=100.0)
    learned = LearnedRows(rows[:50])
    learned.learn(rows[50:])
    np.testing.assert_allclose(learned.mean, rows.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(learned.scatter / _FACTOR**2, 90 * np.cov(rows.T, bias=True), rtol=0, atol=1e-9)


@both
def test_extended_rows_have_the_scores_of_fitted_rows(detector):
    rows, new = long_cloud(6, 80), long_cloud(7, 10)
    fitted, extended = detector().fit(rows), detector().fit(rows[:30]).extend(rows[30:31]).extend(rows[31:])
    np.testing.assert_allclose(extended.learned_scores(), fitted.learned_scores(), rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(extended.score(new), fitted.score(new), rtol=1e-7, atol=1e-12)


@both
def test_fit_forgets_and_scoring_learns_nothing(detector):
    rows, other = long_cloud(8), long_cloud(9)
    used = detector().fit(other).extend(other)
    used.score(rows)
    np.testing.assert_array_equal(used.fit(rows).learned_scores(), detector().fit(rows).learned_scores())


@both
def test_learned_rows_are_copied(detector):
    rows = long_cloud(10)
    fitted, other = detector().fit(rows), detector().fit(rows.copy())
    rows[:] = 0.0
    np.testing.assert_array_equal(fitted.learned_scores(), other.learned_scores())


@both
@pytest.mark.parametrize("factor", [1e-100, 1e-3, 1e6, 1e100, 1e150])
def test_scaling_does_not_change_the_scores(detector, factor):
    rows, new = long_cloud(11), long_cloud(12)
    plain, scaled = detector().fit(rows), detector().fit(factor * rows)
    np.testing.assert_allclose(scaled.score(factor * new), plain.score(new), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(scaled.learned_scores(), plain.learned_scores(), rtol=1e-6, atol=1e-12)


@both
def test_many_rows_of_the_largest_values_do_not_overflow(detector):
    rows = np.tile([[1e153, 0.0], [-1e153, 1e152], [0.0, 5e152]], (300, 1))
    plain, scaled = detector().fit(rows / 1e153), detector().fit(rows)
    np.testing.assert_allclose(scaled.learned_scores(), plain.learned_scores(), rtol=1e-6)


@both
def test_shift_and_rotation_do_not_change_the_scores(detector):
    rows, new = long_cloud(13), long_cloud(14)
    turn, _ = np.linalg.qr(np.random.default_rng(15).normal(size=(4, 4)))
    plain, moved = detector().fit(rows), detector().fit(rows @ turn + 1e3)
    np.testing.assert_allclose(moved.score(new @ turn + 1e3), plain.score(new), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(moved.learned_scores(), plain.learned_scores(), rtol=1e-6, atol=1e-12)


@both
def test_the_order_of_rows_does_not_change_the_scores(detector):
    rows, order = long_cloud(16), np.random.default_rng(0).permutation(40)
    scores = detector().fit(rows).learned_scores()
    np.testing.assert_allclose(detector().fit(rows[order]).learned_scores(), scores[order], rtol=1e-7, atol=1e-12)


@both
def test_more_copies_give_a_higher_score(detector):
    rows, new = long_cloud(17), long_cloud(18, 1)
    scores = [detector(ratio).fit(rows).score(new)[0] for ratio in (1e-300, 0.01, 0.1, 1.0)]
    assert scores == sorted(scores)
    assert scores[0] < 1e-12 < scores[-1]


@both
@given(rows=POINT_SETS, new=POINT_SETS)
def test_scores_of_any_rows_are_between_0_and_1(detector, rows, new):
    new = np.resize(new, (len(new), rows.shape[1]))
    fitted = detector().fit(rows)
    for scores, n in ((fitted.score(new), len(new)), (fitted.learned_scores(), len(rows))):
        assert scores.shape == (n,)
        assert scores.dtype == np.float64
        assert ((scores >= 0.0) & (scores <= 1.0)).all()


@both
@given(value=st.floats(-1e100, 1e100), n=st.integers(1, 9), d=st.integers(1, 4))
def test_equal_rows_score_0_and_a_different_row_scores_1(detector, value, n, d):
    fitted = detector().fit(np.full((n, d), value)).extend([[value] * d])
    assert (fitted.learned_scores() == 0.0).all()
    assert fitted.score([[value] * d]) == 0.0
    assert fitted.score([[value + max(abs(value), 1.0)] + [value] * (d - 1)]) == (1.0 if d > 1 else 0.0)


@both
def test_the_only_row_that_differs_scores_1(detector):
    """Without this row the others are all equal; with it they vary, and their copies change nothing."""
    for far in (1.0, 1e-3, 1e6, 1e100):
        scores = detector().fit([[0.1, 0.7]] * 9 + [[0.1 + far, 0.7 - 2.0 * far]]).learned_scores()
        np.testing.assert_allclose(scores, [0.0] * 9 + [1.0], atol=1e-9)


@both
def test_an_extremely_distant_row_scores_1(detector):
    rows = long_cloud(19)
    far = np.vstack([rows, rows[:1] + 1e12 * np.linalg.eigh(np.cov(rows.T))[1][:, 0]])
    assert detector().fit(far).learned_scores()[-1] == 1.0


@both
@given(rows=POINT_SETS)
def test_in_one_dimension_all_scores_are_0(detector, rows):
    column = rows.reshape(-1, 1)
    fitted = detector().fit(column)
    assert (fitted.learned_scores() == 0.0).all()
    assert (fitted.score(column[::-1] + 1.0) == 0.0).all()


@both
@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.1, np.nan, np.inf, True, "0.1", None])
def test_an_invalid_ratio_raises(detector, ratio):
    with pytest.raises(InvalidInputError, match=r"ratio must be a number in \(0, 1\], but is"):
        detector(ratio)


@both
def test_scoring_before_learning_raises(detector):
    for call in (lambda: detector().score([[1.0]]), lambda: detector().learned_scores()):
        with pytest.raises(InvalidInputError, match=rf"This {detector.__name__} has not learned any rows"):
            call()


@both
@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[1.0, 2.0, 3.0]], "3 features"),
        ([1.0, 2.0], "1 dimension"),
        ([[1.0, np.nan]], "must be finite"),
        ([["a", "b"]], "must be numbers"),
        (np.empty((0, 2)), "empty"),
    ],
)
def test_refused_rows_do_not_change_the_state(detector, X, message):
    rows = long_cloud(20, d=2)
    fitted = detector().fit(rows)
    before = fitted.learned_scores()
    for call in (fitted.score, fitted.extend):
        with pytest.raises(InvalidInputError, match=message):
            call(X)
    np.testing.assert_array_equal(fitted.learned_scores(), before)

"""Forests with a window: which points they hold, their invariants, and the law of their trees."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config

from imondrian import EmptyForestError, InvalidInputError, MondrianForest
from imondrian.engine.invariants import broken_invariants
from imondrian.engine.window import Selection, slide_trees, write_selected
from imondrian.forest.samplers import Window, new_sampler
from imondrian.forest.samplers.window import selection_of
from imondrian.forest.scores import SCORES
from imondrian.model_files import from_bytes, to_bytes
from tests.engine.test_law import assert_same_law
from tests.strategies import POINT_SETS, SEEDS, assert_sound, empty

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3))


def sampler_of(forest):
    """Return the sampler of a forest, restored from its state."""
    sampler = new_sampler(forest.max_samples, forest.window)
    sampler.restore(forest.state()[1])
    return sampler


def assert_window_is_sound(forest):
    trees, _ = forest.state()
    sampler = sampler_of(forest)
    assert list(sampler.problems()) == []
    for t in range(forest.n_trees):
        assert broken_invariants(trees, t, sampler.tree_check()) == []


def held(trees, t):
    n_leaves = trees.heads["n_leaves"][t]
    return np.repeat(trees.points[t, :n_leaves], trees.copies[t, :n_leaves], axis=0)


def ordered(rows):
    return rows[np.lexsort(rows.T)] if len(rows) else rows


@given(
    points=POINT_SETS,
    seed=SEEDS,
    window=st.integers(1, 12),
    max_samples=st.sampled_from([None, 1, 4]),
    scale=st.sampled_from([None, "std"]),
    n_built=st.integers(0, 12),
)
def test_trees_hold_their_share_of_the_window_after_every_point(points, seed, window, max_samples, scale, n_built):
    forest = MondrianForest(n_trees=3, max_samples=max_samples, window=window, scale=scale, seed=seed)
    if n_built:
        forest.build(points[:n_built])
    for i in range(min(n_built, len(points)), len(points)):
        forest.extend_one(points[i])
        assert_window_is_sound(forest)
        latest = points[max(0, i + 1 - window) : i + 1]
        np.testing.assert_array_equal(sampler_of(forest).points(forest.state()[0]), latest)
        assert forest.n_points == len(latest)
        for t in range(3):
            chosen = chosen_of(forest, t, range(max(0, i + 1 - window), i + 1))
            np.testing.assert_array_equal(ordered(held(forest.state()[0], t)), ordered(latest[chosen]))


def chosen_of(forest, t, numbers):
    trees, _ = forest.state()
    chosen = np.empty(len(numbers), np.bool_)
    write_selected(trees.heads[t : t + 1], np.array(numbers), sampler_of(forest).selection, chosen)
    return chosen


@given(points=POINT_SETS, seed=SEEDS, max_samples=st.sampled_from([None, 3]), data=st.data())
def test_forgetting_leaves_sound_trees(points, seed, max_samples, data):
    forest = MondrianForest(n_trees=3, max_samples=max_samples, window=8, scale="std", seed=seed).extend(points)
    rest = sampler_of(forest).points(forest.state()[0])
    for i in data.draw(st.permutations(range(len(rest))))[: len(rest) - 1]:
        row = rest[i]
        forest.forget(row[None])
        assert_window_is_sound(forest)
    assert forest.n_points == 1
    forest.extend(points)
    assert_window_is_sound(forest)


def test_forgetting_is_exact():
    forest = MondrianForest(n_trees=5, window=50, max_samples=20, scale="std").extend(X[:120])
    with pytest.raises(InvalidInputError, match=r"X\[1\] = \[.*\] is not in the forest, or X contains it more"):
        forest.forget([X[100], X[0]])  # X[0] has left the window
    forest.forget(X[100:110])
    assert (forest.n_trees_holding(X[100:110]) == 0).all()
    assert forest.n_points == 40
    trees, arrays = forest.state()
    for array in (trees.points, trees.boxes, arrays["ring"]):
        assert not np.isin(X[100:110], array).any()
    np.testing.assert_allclose(
        arrays["moments"][1:],
        MondrianForest(scale="std").build(np.vstack([X[70:100], X[110:120]])).state()[1]["moments"][1:],
    )
    forest.forget(np.vstack([X[70:100], X[110:120]]))
    with pytest.raises(EmptyForestError):
        forest.score(X)


def test_the_oldest_of_several_copies_is_forgotten():
    forest = MondrianForest(n_trees=3, window=4).extend([[1.0], [2.0], [1.0], [3.0]]).forget([[1.0]])
    assert forest.rescore()[0].ravel().tolist() == [2.0, 1.0, 3.0]


def test_a_tree_without_free_slots_does_not_insert_points():
    """The probability is below exp(-60), but the kernel must handle this case."""
    trees, ring = empty(4, 5, 3, seed=1), np.full((50, 3), np.nan)
    for i in range(len(X)):
        slide_trees(trees, ring, Selection(0.5, 1), i, X[i : i + 1], np.ones(3))
        ring[i % 50] = X[i]
        assert trees.heads["n_leaves"].max() <= 5
    trees.heads["n_points"] = 5
    assert_sound(trees)


@pytest.mark.parametrize(("window", "share"), [(2048, 0.125), (2048, 1.0), (100, 0.01), (10, 0.5), (1, 1.0)])
def test_a_tree_that_selects_independently_almost_never_needs_more_slots_than_it_has(window, share):
    """The exact tail of the binomial distribution beyond the number of slots is below exp(-60), too."""
    limit = Window(window, Selection(share, 1)).limit
    n = np.arange(limit + 1, window + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, window + 1)))])
    logs = log_factorial[window] - log_factorial[n] - log_factorial[window - n] + n * math.log(share)
    logs += (window - n) * (math.log1p(-share) if share < 1.0 else 0.0)
    assert np.exp(logs).sum() < math.exp(-60)
    assert limit <= window


@pytest.mark.parametrize("stratum", [1, 2, 4, 5])
def test_selected_points_are_a_uniform_share(stratum):
    """400 trees, 1,000 numbers: each count is within 5 standard deviations of its mean (1 in 300 seeds fails).

    Two numbers of different strata, and all numbers if the stratum is 1, are selected independently.
    """
    chosen = selected(Selection(0.2, stratum), 400, np.arange(1000) + 10**12)
    variance = 200 * (1.0 - 0.2 * stratum)  # of the number that a tree selects
    assert (np.abs(chosen.sum(axis=0) - 80) < 5 * math.sqrt(64)).all()
    assert (np.abs(chosen.sum(axis=1) - 200) <= 5 * math.sqrt(variance)).all()
    together = (chosen[:, stratum:] & chosen[:, :-stratum]).mean()
    assert abs(together - 0.04) < 5 * math.sqrt(0.04 * 0.96 / 399_600)


def selected(selection, n_trees, numbers):
    """Return for every tree which numbers it selects."""
    heads, chosen = empty(n_trees, 1, 1, seed=11).heads, np.empty((n_trees, len(numbers)), np.bool_)
    for t in range(n_trees):
        write_selected(heads[t : t + 1], numbers, selection, chosen[t])
    return chosen


@given(window=st.integers(1, 300), n_samples=st.integers(1, 300), first=st.integers(0, 10**15))
def test_a_tree_holds_at_most_one_point_of_a_stratum_and_never_needs_more_slots(window, n_samples, first):
    selection = selection_of(window, n_samples)
    assert selection.share * selection.stratum <= 1.0
    if selection.stratum == 1:
        return  # points are selected independently
    numbers = np.arange(first, first + 2 * window)
    chosen = selected(selection, 20, numbers)
    in_windows = np.lib.stride_tricks.sliding_window_view(chosen, window, axis=1).sum(axis=2)
    assert in_windows.max() <= new_sampler(n_samples, window).limit <= window
    strata = numbers // selection.stratum
    for t in range(20):
        assert np.unique(strata[chosen[t]]).size == chosen[t].sum()


def test_every_stratum_is_used_if_the_window_is_a_multiple_of_the_sample():
    """Then a tree holds exactly its share of every window that begins with a stratum."""
    chosen = selected(selection_of(2048, 256), 50, np.arange(8 * 300))
    assert (chosen.reshape(50, 300, 8).sum(axis=2) == 1).all()


@pytest.mark.parametrize("max_samples", [None, 4, 16])
@pytest.mark.parametrize("n_before", [1, 10, 60])
def test_a_restored_window_that_grows_equals_one_that_was_never_saved(max_samples, n_before):
    """Trees read from a file have only the slots in use; they get more as points arrive."""
    reference = MondrianForest(n_trees=5, max_samples=max_samples, window=64, scale="std").extend(X[:n_before])
    by_ones, by_blocks = (from_bytes(to_bytes(reference)) for _ in range(2))
    assert by_ones.state()[0].cuts.shape[1] < reference.state()[0].cuts.shape[1]
    expected = reference.score_and_extend(X[100:], "size")
    assert [by_ones.score_and_extend(x[None], "size")[0] for x in X[100:]] == expected.tolist()
    blocks = [by_blocks.score_and_extend(rows, "size") for rows in np.split(X[100:], [3, 50, 60])]
    assert np.concatenate(blocks).tolist() == expected.tolist()
    assert to_bytes(by_ones) == to_bytes(by_blocks) == to_bytes(reference)


def test_memory_is_fixed_from_the_start():
    forest = MondrianForest(n_trees=5, max_samples=16, window=64).reserve(3)
    n_bytes = forest.n_bytes
    assert n_bytes > 64 * 3 * 8
    for rows in np.split(X, 10):
        assert forest.extend(rows).n_bytes == n_bytes
    assert forest.build(X).n_bytes == n_bytes
    for n_rows in (1, 20, 300):
        restored = from_bytes(to_bytes(MondrianForest(n_trees=5, max_samples=16, window=64).extend(X[:n_rows])))
        assert restored.n_bytes == n_bytes
        assert restored.extend(X[:100]).n_bytes == n_bytes
    with pytest.raises(InvalidInputError, match="n_features must be 3, as in this forest, but is 4"):
        forest.reserve(4)


@pytest.mark.parametrize("scale", [None, "std"])
def test_a_built_window_holds_the_same_points_as_an_extended_one(scale):
    built = MondrianForest(n_trees=20, max_samples=16, window=64, scale=scale).build(X)
    passed = MondrianForest(n_trees=20, max_samples=16, window=64, scale=scale).extend(X)
    for t in range(20):
        np.testing.assert_array_equal(ordered(held(built.state()[0], t)), ordered(held(passed.state()[0], t)))
    assert_window_is_sound(built)
    assert_window_is_sound(built.extend(X))


def test_weights_are_those_of_the_window():
    forest = MondrianForest(n_trees=2, window=64, scale="std").extend(X[:256] * [1.0, 100.0, 1.0])
    forest.extend(X[:64] * [1.0, 1.0, 7.0])
    mean_squares = forest.state()[1]["moments"][2] / 64
    np.testing.assert_allclose(np.sqrt(mean_squares), (X[:64] * [1.0, 1.0, 7.0]).std(axis=0))
    huge = X[:64].copy()
    huge[3] = 1e150  # subtracting it from the moments would lose the others by rounding
    forest.extend(huge).extend(X[64:128])
    np.testing.assert_allclose(np.sqrt(forest.state()[1]["moments"][2] / 64), X[64:128].std(axis=0))


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("window", [None, 40])
def test_score_and_extend_equals_scoring_and_extending_row_by_row(kind, window):
    one, many = (MondrianForest(n_trees=6, max_samples=16, window=window, scale="std") for _ in range(2))
    scores = many.score_and_extend(X[:100], kind)
    for i, x in enumerate(X[:100]):
        ahead = one.score_next([x], kind)[0]
        assert scores[i] == one.score_and_extend([x], kind)[0] == pytest.approx(ahead, abs=1e-12 if i > 2 else 1.0)
    assert [a.tobytes() for a in one.state()[0]] == [a.tobytes() for a in many.state()[0]]


def test_score_and_extend_equals_score_one_for_scores_without_a_level():
    forest = MondrianForest(n_trees=6, max_samples=16, window=40)
    for kind in ("depth", "expected"):
        for x in X[:100]:
            expected = forest.score_one(x, kind) if forest.n_points else 0.5
            assert forest.score_and_extend([x], kind)[0] == pytest.approx(expected, rel=1e-13)


def test_windows_can_be_widened():
    forest = MondrianForest(n_trees=3, max_samples=8, window=30).extend(X[:50, :2]).widen(3)
    assert_window_is_sound(forest)
    assert_window_is_sound(forest.extend(X[50:120]))
    np.testing.assert_array_equal(forest.rescore()[0], X[90:120])


def test_forests_with_the_same_window_can_be_joined():
    one, two = (MondrianForest(n_trees=3, max_samples=8, window=30, seed=seed).extend(X) for seed in range(2))
    joined = one.join(two)
    assert joined.n_trees == 6
    assert_window_is_sound(joined.extend(X[:40]))
    with pytest.raises(InvalidInputError, match="differ in the points that their windows have seen"):
        joined.join(two)
    with pytest.raises(InvalidInputError, match="differ in window: 30 and 31"):
        joined.join(MondrianForest(n_trees=3, max_samples=8, window=31).extend(X))


@pytest.mark.parametrize("kind", SCORES)
def test_rescoring_a_window_in_one_pass_gives_the_same_scores(kind):
    points = np.round(X, 0)
    forest = MondrianForest(n_trees=4, window=50, scale="std").extend(points)
    rows, scores = forest.rescore(kind)
    np.testing.assert_array_equal(rows, points[-50:])
    np.testing.assert_allclose(scores, forest.score(rows, kind), rtol=1e-10)


@pytest.mark.parametrize(("window", "message"), [(0, "window must be between 1"), (2.5, "window must be an integer")])
def test_a_bad_window_is_named(window, message):
    with pytest.raises(InvalidInputError, match=message):
        MondrianForest(window=window)


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("n_trees", [1, 2])
def test_rescoring_includes_points_that_no_tree_holds(kind, n_trees):
    forest = MondrianForest(n_trees, max_samples=2, window=5).extend(X[:40])
    points, scores = forest.rescore(kind)
    np.testing.assert_allclose(scores, forest.score(points, kind), rtol=1e-10)


def test_weights_passed_by_the_user_are_copied():
    weights = np.ones(3)
    forest = MondrianForest(5, scale=weights, window=64).extend(X)
    before = forest.score(X, "size")
    weights[0] = -5.0
    forest.scale[0] = -5.0
    np.testing.assert_array_equal(forest.extend(X[:1]).scale, np.ones(3))
    assert before.shape == (300,)


# -- the law ----------------------------------------------------------------------------------------------------------


def depths_and_times(forest, points):
    """Return, for each tree, its population, the time of its first cut, and the depth and isolation time of points."""
    statistics = []
    for tree in forest.trees():
        row = [float(tree.population[0]) if tree.population.size else 0.0, tree.split_time[0]]
        for x in points:
            node = 0
            while tree.left[node] >= 0:
                goes_left = x[tree.split_feature[node]] < tree.split_value[node]
                node = tree.left[node] if goes_left else tree.right[node]
            row += [float(tree.depth[node]), tree.split_time[tree.parent[node]]]
        statistics.append(row)
    return np.array(statistics).T


@pytest.mark.law
@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="thousands of trees need compiled kernels")
@pytest.mark.parametrize("max_samples", [None, 12])
def test_trees_have_the_law_of_new_trees_after_ten_windows(max_samples):
    """22 comparisons of 4,000 trees each at the level 1e-4: a correct engine fails for 1 in 450 choices of seeds."""
    points = np.round(np.random.default_rng(3).normal(size=(400, 2)), 1)
    points[:360] += 5.0  # earlier points lie elsewhere
    points[365] = points[364]
    latest = points[-40:]
    settings = {"n_trees": 4000, "max_samples": max_samples, "window": 40}
    slid = MondrianForest(seed=1, **settings).extend(points)
    fresh = MondrianForest(seed=2, **settings).build(latest)
    assert_same_law(depths_and_times(slid, latest[::4]), depths_and_times(fresh, latest[::4]))


@given(points=POINT_SETS, seed=SEEDS)
def test_hostile_points_pass_through_a_window(points, seed):
    forest = MondrianForest(n_trees=2, max_samples=4, window=6, scale="std", seed=seed).extend(points)
    for kind in SCORES:
        scores = forest.score_and_extend(points, kind)
        assert ((scores > 0.0) & (scores < 1.0)).all()
    assert_window_is_sound(forest)


def test_a_new_kind_of_score_with_levels_is_treated_like_size(monkeypatch):
    monkeypatch.setitem(SCORES, "new", SCORES["size"])
    settings = {"n_trees": 5, "max_samples": 16, "window": 64, "scale": "std"}
    results = []
    for kind in ("size", "new"):
        forest = MondrianForest(**settings)
        scores = [forest.score_and_extend(X[:150], kind)]
        scores += [forest.score_and_extend(row[None], kind) for row in X[150:200]]
        results.append((np.concatenate(scores), to_bytes(forest)))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]


@pytest.mark.parametrize(("window", "max_samples"), [(64, 8), (256, 32)])
def test_a_window_of_an_older_version_continues_with_independent_selection(monkeypatch, window, max_samples):
    """Its trees may hold more points than those of a new window have slots."""
    rows = np.random.default_rng(5).normal(size=(6 * window, 2))
    with monkeypatch.context() as patched:
        patched.setattr("imondrian.forest.samplers.selection_of", lambda w, n: Selection(min(n / w, 1.0), 1))
        old = MondrianForest(n_trees=40, max_samples=max_samples, window=window, scale="std")
        old.score_and_extend(rows[: 2 * window], "size")
    limit = new_sampler(max_samples, window).limit
    assert old.state()[0].heads["n_leaves"].max() > limit
    resumed = from_bytes(to_bytes(old))
    expected = old.score_and_extend(rows[2 * window : 4 * window], "size")
    np.testing.assert_array_equal(resumed.score_and_extend(rows[2 * window : 4 * window], "size"), expected)
    again = from_bytes(to_bytes(resumed))
    np.testing.assert_array_equal(
        again.score_and_extend(rows[4 * window :], "size"), old.score_and_extend(rows[4 * window :], "size")
    )

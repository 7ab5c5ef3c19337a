"""The forest: results do not depend on how it is called, and errors leave it unchanged."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian import EmptyForestError, ImondrianError, InvalidInputError, MondrianForest
from imondrian.engine.rescore import is_aligned
from imondrian.engine.reservoir import build_trees
from imondrian.forest.scores import SCORES
from imondrian.model_files import from_bytes, to_bytes
from tests.strategies import POINT_SETS, SEEDS, assert_sound, point_sets

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
NEW = RNG.normal(size=(200, 4)) * 2.0
MODES = [
    {"max_samples": max_samples, "window": window, "scale": scale}
    for max_samples in (None, 32)
    for window in (None, 100)
    for scale in (None, "std", [1.0, 2.0, 0.5, 4.0])
]


def moments(forest):
    return forest.state()[1]["moments"]


def bits(forest):
    """Return the state of a forest as bytes, without unused slots."""
    trees, arrays = forest.state()
    used = int(trees.heads["n_leaves"].max())
    slots = [trees.cuts[:, :used], trees.boxes[:, :used], trees.points[:, :used], trees.copies[:, :used]]
    return b"".join(a.tobytes() for a in (*slots, trees.parents[:, : 2 * used], trees.heads, *arrays.values()))


@pytest.mark.parametrize("mode", MODES)
def test_one_thread_equals_many(mode):
    def state_and_scores(n_jobs):
        forest = MondrianForest(n_trees=11, n_jobs=n_jobs, **mode).build(X).extend(NEW).forget(NEW[-50:])
        return bits(forest), *(forest.score(np.tile(NEW, (30, 1)), kind).tobytes() for kind in SCORES)

    assert state_and_scores(1) == state_and_scores(2) == state_and_scores(-1)


@pytest.mark.parametrize("mode", MODES)
def test_one_by_one_equals_all_at_once(mode):
    at_once = MondrianForest(n_trees=5, **mode).extend(X).extend(NEW)
    one_by_one = MondrianForest(n_trees=5, **mode)
    for x in np.vstack([X, NEW]):
        one_by_one.extend_one(x)
    assert bits(at_once) == bits(one_by_one)
    for kind in SCORES:
        assert at_once.score(NEW, kind).tolist() == [one_by_one.score_one(x, kind) for x in NEW]


def test_results_do_not_depend_on_blocks():
    rows = RNG.normal(size=(5000, 2))
    halves = MondrianForest(n_trees=2).extend(rows[:2500]).extend(rows[2500:])
    assert bits(MondrianForest(n_trees=2).extend(rows)) == bits(halves)


@pytest.mark.parametrize("mode", MODES)
def test_a_tree_does_not_depend_on_the_number_of_trees(mode):
    few, many = (MondrianForest(n_trees=n, **mode).build(X).extend(NEW) for n in (3, 9))
    for ours, theirs in zip(few.trees(), many.trees(), strict=False):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(ours, theirs, strict=True))


def test_equal_seeds_give_equal_forests_and_different_seeds_different_ones():
    assert bits(MondrianForest(seed=1).build(X)) == bits(MondrianForest(seed=1).build(X))
    assert bits(MondrianForest(seed=1).build(X)) != bits(MondrianForest(seed=2).build(X))


def test_building_again_discards_all_points():
    assert bits(MondrianForest().build(NEW).build(X)) == bits(MondrianForest().build(X))


@given(points=POINT_SETS, seed=SEEDS, max_samples=st.sampled_from([None, 1, 5]), scale=st.sampled_from([None, "std"]))
def test_scores_lie_strictly_between_0_and_1_on_hostile_points(points, seed, max_samples, scale):
    forest = MondrianForest(n_trees=5, max_samples=max_samples, scale=scale, seed=seed)
    forest.extend(points)
    trees, _ = forest.state()
    assert_sound(trees, 2**62 if max_samples is None else max_samples)
    for kind in SCORES:
        for rows in (points, np.full_like(points, 3.0), np.full_like(points, -1e153)):
            scores, parts = forest.score(rows, kind), forest.explain(rows, kind)
            assert (scores > 0).all()
            assert (scores < 1).all()
            np.testing.assert_allclose(np.abs(parts).sum(axis=1), scores, rtol=1e-9)


@given(points=point_sets(min_rows=2), seed=SEEDS, max_samples=st.sampled_from([None, 3]))
def test_forgetting_all_points_leaves_an_empty_forest_that_can_be_extended(points, seed, max_samples):
    forest = MondrianForest(n_trees=3, max_samples=max_samples, scale="std", seed=seed).build(points)
    forest.forget(points)
    assert forest.n_points == 0
    with pytest.raises(EmptyForestError, match="forgotten all its points"):
        forest.score(points)
    assert (forest.state()[1]["moments"] == 0).all()
    assert forest.extend(points).n_points == len(points)


def test_holds_counts_trees():
    forest = MondrianForest(n_trees=7).build(X)
    assert (forest.n_trees_holding(X) == 7).all()
    assert (forest.forget(X[:1]).n_trees_holding(X[:2]) == [0, 7]).all()
    sampled = MondrianForest(n_trees=7, max_samples=30).build(X)
    assert sampled.n_trees_holding(X).sum() == 7 * 30


def test_a_point_that_no_sample_accepted_can_be_forgotten():
    forest = MondrianForest(n_trees=4, max_samples=16).build(X)
    outside = X[forest.n_trees_holding(X) == 0][:1]
    before = list(forest.score(NEW))
    assert forest.forget(outside).n_points == 299
    assert list(forest.score(NEW)) == before


def test_no_value_of_a_forgotten_point_remains():
    for max_samples in (None, 16):
        secret = np.array([[1234.5, -77.25, 3.125, 0.0625]])
        forest = MondrianForest(n_trees=10, max_samples=max_samples).build(np.vstack([secret, X[:30]])).forget(secret)
        for value in secret[0]:
            assert all(value not in array for array in forest.state()[0] if array.dtype == float)


def test_join_adds_the_trees_of_the_other_forest():
    one, other = MondrianForest(n_trees=3, seed=1).build(X), MondrianForest(n_trees=5, seed=2).build(X[:200])
    mean = (3 * np.log2(one.score(NEW)) + 5 * np.log2(other.score(NEW))) / 8
    before = bits(other)
    assert one.join(other) is one
    assert (one.n_trees, one.n_points) == (8, 300)
    np.testing.assert_allclose(np.log2(one.score(NEW)), mean, rtol=1e-12)
    assert bits(other) == before
    one.extend(NEW).forget(NEW)
    assert_sound(one.state()[0])


def test_a_joined_scale_has_the_moments_of_all_points():
    one, other = (MondrianForest(n_trees=2, scale="std", seed=i).build(half) for i, half in enumerate((X[:90], X[90:])))
    whole = MondrianForest(scale="std").build(X)
    np.testing.assert_allclose(moments(one.join(other)), moments(whole), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_samples": 8}, "differ in max_samples: None and 8"),
        ({"scale": "std"}, "differ in scale: None and 'std'"),
        ({"scale": [1.0, 1.0, 1.0, 2.0]}, "differ in scale"),
    ],
)
def test_incompatible_forests_are_not_joined(changes, message):
    forest = MondrianForest(n_trees=2).build(X)
    before = bits(forest)
    with pytest.raises(InvalidInputError, match=message):
        forest.join(MondrianForest(n_trees=2, **changes).build(X))
    with pytest.raises(InvalidInputError, match="differ in features: 4 and 3"):
        forest.join(MondrianForest(n_trees=2).build(X[:, :3]))
    assert bits(forest) == before
    assert forest.n_trees == 2


NAN, HUGE = X[:3].copy(), X[:3].copy()
NAN[1, 2] = np.nan
HUGE[2, 0] = -1e308
BAD_TABLES = {
    "wrong width": (X[:, :3], "X has 3 features, but this forest was built on 4"),
    "NaN": (NAN, r"X\[1, 2\] is nan: values must be finite"),
    "inf": (np.full((2, 4), np.inf), r"X\[0, 0\] is inf: values must be finite"),
    "no rows": (X[:0], r"X is empty: its shape is \(0, 4\)"),
    "no columns": (X[:, :0], "X is empty"),
    "one dimension": (X[0], "X must be a table of rows and features, but has 1 dimension"),
    "three dimensions": (X[None], "has 3 dimension"),
    "a span that overflows": (HUGE, r"X\[2, 0\] is -1e\+308: values must be at most 1e\+153 in absolute value"),
    "text": (np.array([["a", "b", "c", "d"]]), "X must be numbers"),
    "text among numbers": ([[1.0, "two", 3.0, 4.0]], "X must be numbers"),
    "None": ([[1.0, None, 3.0, 4.0]], "X"),
    "complex": (X[:2] + 1j, "X must be numbers, but its type is complex128"),
    "ragged": ([[1.0, 2.0], [3.0]], "X must be numbers"),
    "dates": (np.array([["2020-01-01"] * 4], "datetime64[D]"), "X must be numbers"),
}


@pytest.mark.parametrize("method", ["extend", "forget", "score", "explain", "n_trees_holding"])
@pytest.mark.parametrize("bad", BAD_TABLES)
def test_a_bad_table_raises_a_clear_error_and_changes_nothing(method, bad):
    table, message = BAD_TABLES[bad]
    forest = MondrianForest(n_trees=3, scale="std").build(X)
    before = bits(forest)
    with pytest.raises(InvalidInputError, match=message):
        getattr(forest, method)(table)
    assert bits(forest) == before


@pytest.mark.parametrize("bad", [bad for bad in BAD_TABLES if bad != "wrong width"])
def test_a_bad_table_builds_nothing(bad):
    table, message = BAD_TABLES[bad]
    forest = MondrianForest(n_trees=3)
    with pytest.raises(InvalidInputError, match=message):
        forest.build(table)
    assert forest.n_features is None


@pytest.mark.parametrize("method", ["extend_one", "score_one"])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([1.0, 2.0], "x has 2 features, but this forest was built on 4"),
        ([1.0, np.nan, 3.0, 4.0], r"x\[1\] is nan"),
        ([1.0, 2.0, 1e200, 4.0], r"x\[2\] is 1e\+200"),
        ([], "x is empty"),
        (X[:1], "x must be one row of features, but has 2 dimension"),
        (3.0, "x must be one row of features, but has 0 dimension"),
        ("abcd", "x must be numbers"),
    ],
)
def test_a_bad_point_raises_a_clear_error_and_changes_nothing(method, x, message):
    forest = MondrianForest(n_trees=3).build(X)
    before = bits(forest)
    with pytest.raises(InvalidInputError, match=message):
        getattr(forest, method)(x)
    assert bits(forest) == before


@pytest.mark.parametrize("mode", MODES)
def test_forgetting_an_unknown_point_is_an_error_and_changes_nothing(mode):
    forest = MondrianForest(n_trees=3, **mode).build(X[:30])
    before = bits(forest)
    with pytest.raises(InvalidInputError, match=r"X\[1\] = \[.*\] is not in the forest"):
        forest.forget([X[0], X[0] + 1e-9])
    with pytest.raises(InvalidInputError, match=r"X\[0\] = \[.*\] is not in the forest, or X contains it more"):
        forest.forget([X[0], X[1], X[0]])
    with pytest.raises(InvalidInputError, match="is not in the forest"):
        forest.forget(np.vstack([X[:30], X[:1]]))
    assert bits(forest) == before


def test_more_points_than_were_shown_cannot_be_forgotten_from_a_sample():
    forest = MondrianForest(n_trees=3, max_samples=8).build(X[:20])
    with pytest.raises(InvalidInputError, match="is not in the forest"):
        forest.forget(NEW[:21])
    assert forest.n_points == 20


def test_minus_zero_is_zero():
    forest = MondrianForest(n_trees=2).build([[0.0], [1.0]])
    assert forest.forget([[-0.0]]).n_points == 1


@pytest.mark.parametrize("method", ["score", "explain", "forget", "n_trees_holding", "join"])
def test_an_empty_forest_raises_an_error(method):
    forest = MondrianForest()
    with pytest.raises(EmptyForestError, match="has not been shown any points"):
        getattr(forest, method)(forest if method == "join" else X)


@pytest.mark.parametrize("method", ["score", "score_one", "explain"])
def test_an_unknown_kind_of_score_is_named(method):
    forest = MondrianForest(n_trees=2).build(X)
    with pytest.raises(InvalidInputError, match="kind must be one of depth, expected, size, but is 'deep'"):
        getattr(forest, method)(X[0] if method == "score_one" else X, kind="deep")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_trees": 0}, "n_trees must be between 1 and .*, but is 0"),
        ({"n_trees": 2.5}, "n_trees must be an integer, but is 2.5"),
        ({"n_trees": True}, "n_trees must be an integer, but is True"),
        ({"max_samples": 0}, "max_samples must be between 1"),
        ({"max_samples": "auto"}, "max_samples must be an integer, but is 'auto'"),
        ({"seed": -1}, "seed must be between 0"),
        ({"seed": 2**64}, "seed must be between 0"),
        ({"n_jobs": 0}, "n_jobs must not be 0"),
        ({"scale": "mad"}, "scale must be None, 'std' or one weight per feature, but is 'mad'"),
        ({"scale": [1.0, 0.0]}, r"scale must be between 1e-153 and 1e\+153, but scale\[1\] is 0.0"),
        ({"scale": [1.0, np.nan]}, r"but scale\[1\] is nan"),
        ({"scale": [[1.0, 2.0]]}, "scale must have one weight for each"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(InvalidInputError, match=message):
        MondrianForest(**parameters)


def test_weights_for_another_number_of_features_are_named():
    with pytest.raises(InvalidInputError, match="scale must have one weight for each of 4 features"):
        MondrianForest(scale=[1.0, 2.0]).build(X)


def test_every_error_has_the_same_base_class():
    with pytest.raises(ImondrianError):
        MondrianForest(n_trees=-3)
    with pytest.raises(ValueError):
        MondrianForest().score(X)


@pytest.mark.parametrize(
    "table",
    [X.astype(np.float32), np.asfortranarray(X), X[::2], X.tolist(), (X * 10).astype(int), X > 0],
    ids=["float32", "fortran", "strided", "lists", "integers", "booleans"],
)
def test_any_layout_of_numbers_gives_the_same_forest(table):
    plain = np.array(table, dtype=float, order="C")
    assert bits(MondrianForest(n_trees=3).build(table)) == bits(MondrianForest(n_trees=3).build(plain))


def test_input_arrays_are_not_changed():
    table = X.copy()
    table.flags.writeable = False
    forest = MondrianForest(n_trees=2, max_samples=16, scale="std").build(table).extend(table)
    forest.forget(table[:3]).score(table, "size")
    assert (table == X).all()


def test_memory_is_reported_and_bounded_by_the_sample():
    forest = MondrianForest(n_trees=10, max_samples=32)
    assert forest.n_bytes == 0
    built = forest.build(X).n_bytes
    assert 10 * 32 * (32 + 16 * 4 + 8 * 4) < built < 10 * 32 * (64 + 24 * 4 + 8)
    for _ in range(5):
        forest.extend(NEW)
    assert forest.n_bytes == built


def test_tables_grow_by_doubling():
    forest = MondrianForest(n_trees=1)
    sizes = {forest.extend_one(x).n_bytes for x in RNG.normal(size=(1000, 2))}
    assert len(sizes) == 11


def test_trees_can_be_inspected():
    forest = MondrianForest(n_trees=4).build(np.vstack([X, X[:7]]))
    for tree in forest.trees():
        leaf = tree.left < 0
        assert tree.population[0] == 307 == tree.population[leaf].sum()
        assert leaf.sum() == 300 == (~leaf).sum() + 1
        assert (tree.parent[tree.left[~leaf]] == np.flatnonzero(~leaf)).all()
        assert (tree.depth[1:] == tree.depth[tree.parent[1:]] + 1).all()
        assert np.isinf(tree.split_time[leaf]).all()
        assert (tree.split_time[1:] >= tree.split_time[tree.parent[1:]]).all()
        assert (tree.lower[leaf] == tree.upper[leaf]).all()
    assert list(MondrianForest().trees()) == []


def test_a_forest_has_a_pickle_and_a_repr():
    forest = MondrianForest(n_trees=3, max_samples=16).build(X)
    assert bits(pickle.loads(pickle.dumps(forest)).extend(NEW)) == bits(forest.extend(NEW))  # noqa: S301
    assert (
        repr(forest)
        == "MondrianForest(n_trees=3, max_samples=16, window=None, scale=None, seed=0, n_jobs=1, categorical=())"
    )


def test_a_tree_with_too_many_points_is_an_error(monkeypatch):
    monkeypatch.setattr("imondrian.forest.forest_state.MAX_POINTS", 310)
    forest = MondrianForest(n_trees=1).build(X)
    with pytest.raises(InvalidInputError, match="A tree can hold at most 310 points, not 500"):
        forest.extend(NEW)
    assert forest.extend(NEW[:10]).n_points == 310


def test_a_long_batch_allocates_only_the_slots_it_can_need():
    forest = MondrianForest(n_trees=1).build(X)
    forest.extend(RNG.normal(size=(200, 4)))
    assert forest.state()[0].cuts.shape[1] == 500


def test_a_forest_stays_sound_when_memory_runs_out(monkeypatch):
    forest, same = (MondrianForest(n_trees=2).build(X) for _ in range(2))
    zeros, n_allocations_left = np.zeros, [3]

    def limited_zeros(*arguments, **options):
        n_allocations_left[0] -= 1
        if n_allocations_left[0] < 0:
            raise MemoryError
        return zeros(*arguments, **options)

    monkeypatch.setattr("imondrian.engine.nodes.np.zeros", limited_zeros)
    with pytest.raises(MemoryError):
        forest.extend(NEW)
    monkeypatch.undo()
    assert_sound(forest.state()[0])
    assert bits(forest.extend(NEW)) == bits(same.extend(NEW))


@pytest.mark.parametrize("kind", SCORES)
@given(points=POINT_SETS, seed=SEEDS)
def test_rescoring_equals_walking(kind, points, seed):
    forest = MondrianForest(n_trees=3, scale="std", seed=seed).build(points).extend(points[:5])
    held, scores = forest.forget(points[:2]).rescore(kind) if len(points) > 1 else forest.rescore(kind)
    assert len(held) == forest.n_points
    assert (
        np.sort(held, axis=0) == np.sort(np.vstack([points[2 if len(points) > 1 else 0 :], points[:5]]), axis=0)
    ).all()
    np.testing.assert_allclose(scores, forest.score(held, kind), rtol=1e-9)


@pytest.mark.parametrize("kind", SCORES)
def test_the_points_of_samples_and_of_joined_forests_are_rescored_too(kind):
    sampled = MondrianForest(n_trees=4, max_samples=16).build(np.vstack([X, X[:50]]))
    joined = MondrianForest(n_trees=2).build(X[:9]).join(MondrianForest(n_trees=2, seed=1).build(X[5:20]))
    for forest, n_held in ((sampled, 64), (joined, 2 * (9 + 15))):
        held, scores = forest.rescore(kind)
        assert held.shape == (n_held, 4)
        assert scores.tolist() == forest.score(held, kind).tolist()


@given(points=POINT_SETS, seed=SEEDS, order=st.randoms(use_true_random=False))
def test_trees_that_hold_all_points_stay_aligned(points, seed, order):
    forest = MondrianForest(n_trees=3, seed=seed).build(points).extend(points[::-1])
    rows = list(range(len(points)))
    order.shuffle(rows)
    for row in rows:
        forest.forget(points[row : row + 1])
        assert is_aligned(forest.state()[0])


@pytest.mark.parametrize("scale", [None, "std"])
def test_a_widened_forest_equals_one_that_always_had_the_features(scale):
    wide = np.hstack([X, np.zeros((300, 2))])
    forest, always = (MondrianForest(n_trees=3, scale=scale) for _ in range(2))
    forest.build(X).widen(6)
    always.build(wide)
    assert bits(forest) == bits(always)
    more = RNG.normal(size=(50, 6))
    assert bits(forest.extend(more)) == bits(always.extend(more))


def test_a_forest_cannot_be_widened_to_fewer_features_or_beyond_its_weights():
    with pytest.raises(InvalidInputError, match="n_features must be between 4 and"):
        MondrianForest(n_trees=1).build(X).widen(3)
    with pytest.raises(InvalidInputError, match="scale has 4 weights"):
        MondrianForest(n_trees=1, scale=[1.0] * 4).build(X).widen(5)


def test_a_read_only_table_does_not_compile_a_kernel_again():
    table = X.copy()
    table.flags.writeable = False
    MondrianForest(n_trees=1).build(table)
    assert len(build_trees.signatures) == 1


def test_forgetting_one_of_many_large_points_keeps_the_weights_positive():
    forest = MondrianForest(3, max_samples=64, scale="std").extend(RNG.choice([-5e151, 5e151], (200_000, 1)))
    forest.forget(forest.points()[:1])
    assert np.isfinite(moments(forest)).all()
    assert from_bytes(to_bytes(forest)).n_points == 199_999


def test_forgetting_an_outlier_restores_the_weights_of_the_other_points():
    """The variance of the other points must not be lost in the rounding errors of the outlier's."""
    points = np.column_stack([RNG.normal(size=500), np.full(500, 5.0)])
    points[0, 1] = 1e6
    forest = MondrianForest(n_trees=20, scale="std").build(points).forget(points[:1])
    reference = MondrianForest(n_trees=20, scale="std").build(points[1:])
    np.testing.assert_allclose(moments(forest), moments(reference), rtol=1e-9)
    assert forest.score_one([0.0, 5.001], "size") < 0.6


def test_parameters_are_read_only():
    forest = MondrianForest(n_trees=2).build(X)
    for name in ("n_trees", "max_samples", "scale", "seed"):
        with pytest.raises(AttributeError):
            setattr(forest, name, 1)


@pytest.mark.parametrize("kind", SCORES)
def test_a_point_extremely_far_away_is_handled(kind):
    """The weighted overhang of the point overflows."""
    forest = MondrianForest(n_trees=5, scale="std").build([[0.0, 1.0], [1e-150, 2.0], [0.0, 3.0]])
    far = [[1e153, 2.0], [-1e153, 1e153]]
    assert (forest.score(far, kind) < 1.0).all()
    assert (forest.score(far, kind) > (0.0 if kind == "depth" else 0.6)).all()
    np.testing.assert_allclose(np.abs(forest.explain(far, kind)).sum(axis=1), forest.score(far, kind))
    assert_sound(forest.extend(far).state()[0])


def test_an_overhang_that_underflows_to_zero_is_handled():
    forest = MondrianForest(n_trees=5, scale=[0.3]).build([[0.0], [1.0]])
    for kind in SCORES:
        assert np.isfinite(forest.explain([[5e-324]], kind)).all()


@pytest.mark.parametrize("wrong", [[[10**400]], [[1.0, 2.0], [10**400, 1.0]]])
def test_numbers_too_large_for_a_float_are_named(wrong):
    with pytest.raises(InvalidInputError, match="X must be numbers"):
        MondrianForest().build(wrong)


@pytest.mark.parametrize("wrong", [[10**400], [[1], [1, 2]], 3.0, []])
def test_invalid_weights_are_named(wrong):
    with pytest.raises(InvalidInputError, match="scale must"):
        MondrianForest(scale=wrong)


def test_a_kind_that_is_not_a_string_is_named():
    with pytest.raises(InvalidInputError, match=r"kind must be one of .* but is \['depth'\]"):
        MondrianForest().build(X).score(X, kind=["depth"])


@pytest.mark.parametrize("mode", MODES)
def test_refusing_to_forget_is_not_a_change(mode):
    forest = MondrianForest(n_trees=3, **mode).build(X[:30])
    n_changes = forest.n_changes
    with pytest.raises(InvalidInputError, match="is not in the forest"):
        forest.forget(np.vstack([X[:30], X[:1]]))
    assert forest.n_changes == n_changes
    assert forest.forget(X[:1]).n_changes == n_changes + 1


@pytest.mark.parametrize("mode", [{}, {"max_samples": 2}, {"window": 8}, {"window": 8, "max_samples": 2}])
@pytest.mark.parametrize("call", ["extend", "score_and_extend"])
def test_a_refused_first_call_does_not_fix_the_number_of_features(monkeypatch, call, mode):
    forest = MondrianForest(n_trees=3, **mode)
    with monkeypatch.context() as patched:
        patched.setattr("imondrian.forest.forest_state.MAX_POINTS", 10)
        patched.setattr("imondrian.forest.forest_state.MAX_COUNT", 10)
        with pytest.raises(InvalidInputError, match="at most 10"):
            getattr(forest, call)(X[:11])
    assert (forest.n_features, forest.n_changes) == (None, 0)
    assert bits(forest.extend(X[:20, :2])) == bits(MondrianForest(n_trees=3, **mode).extend(X[:20, :2]))

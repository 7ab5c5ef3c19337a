"""Categorical features: a forest with them equals, bit for bit, one without them on columns of places and rarities."""

import copy
import pickle
from collections import Counter, deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import imondrian
from imondrian import DamagedFileError, InvalidInputError, MondrianForest
from imondrian.engine.compiled_invariants import NONE, first_broken_tree
from imondrian.engine.invariants import broken_invariants
from imondrian.engine.nodes import FIELDS
from imondrian.forest.forest_state import Snapshot
from imondrian.forest.samplers import category_counts
from imondrian.forest.samplers.category_counts import MAX_CATEGORIES
from imondrian.forest.scales import PLACE_WEIGHT, RARITY_WEIGHT
from imondrian.forest.scores import SCORES
from imondrian.models import packed_trees, storage
from tests.strategies import SEEDS

MASK = 2**64 - 1
STEP, FEATURE_STEP = 0x9E3779B97F4A7C15, 0xD1342543DE82EF95
CODES = [0.0, 1.0, 2.0, 5.0, 6257867736028357.0]
SETTINGS = [{}, {"max_samples": 8}, {"window": 16}, {"window": 16, "max_samples": 8}]


# -- the oracle: places and rarities in plain Python, independent of the kernels ---------------------------------------


def mixed(word):
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
    return word ^ (word >> 31)


def hash_key(seed, t):
    stream = mixed((mixed((seed + STEP) & MASK) + t * STEP + STEP) & MASK)
    return mixed(stream)


def place(seed, t, k, code):
    """Return the place of a category of the k-th categorical feature in tree t."""
    bits = int(np.float64(code + 0.0).view(np.uint64))
    return (mixed((hash_key(seed, t) + (k + 1) * FEATURE_STEP + bits * STEP) & MASK) >> 11) * 2.0**-53


def magnitude(count):
    return max(count, 1).bit_length() - 1


def rarity(count, counts, n, sample_size):
    """Return the rarity of a category with this count, given the counts of all categories."""
    n_as_rare = n - sum(each for each in counts if magnitude(each) > magnitude(count))
    expected = min(sample_size, n) * (n_as_rare / n) if n else 0.0
    return 1.0 if expected < 1.0 else 4.0 ** -int(np.floor(np.log2(expected)))


class Counts:
    """The categories of the points shown; with a window, of the latest points only."""

    def __init__(self, n_categorical, sample_size, window=None):
        self.rows = deque(maxlen=window)
        self.n_categorical, self.sample_size = n_categorical, sample_size

    def rarities(self, codes):
        counters = [Counter(row[k] for row in self.rows) for k in range(self.n_categorical)]
        return [
            rarity(counters[k][code], counters[k].values(), len(self.rows), self.sample_size)
            for k, code in enumerate(codes)
        ]

    def rarities_in_turn(self, rows):
        found = []
        for codes in rows:
            found.append(self.rarities(codes))
            self.rows.append(tuple(codes))
        return found


def placed(X, categorical, rarities, seed):
    """Return the columns that the first tree of a forest with this seed sees."""
    numbers = [j for j in range(X.shape[1]) if j not in categorical]
    places = [[place(seed, 0, k, row[j]) for k, j in enumerate(categorical)] for row in X]
    return np.hstack([X[:, numbers], np.array(rarities).reshape(len(X), -1), np.array(places).reshape(len(X), -1)])


def folded(parts, n_features, categorical):
    """Add up the absolute parts of the coordinates of each feature; categories have no side."""
    numbers = [j for j in range(n_features) if j not in categorical]
    result, c = np.zeros((len(parts), n_features)), len(categorical)
    result[:, numbers] = parts[:, : len(numbers)]
    result[:, categorical] = np.abs(parts[:, len(numbers) : len(numbers) + c]) + np.abs(parts[:, len(numbers) + c :])
    return result


def assert_same_cuts(forest, plain):
    ours, theirs = forest.state()[0], plain.state()[0]
    n_leaves = ours.heads["n_leaves"][0]
    assert n_leaves == theirs.heads["n_leaves"][0]
    assert ours.cuts[0, :n_leaves].tobytes() == theirs.cuts[0, :n_leaves].tobytes()
    assert ours.boxes[0, :n_leaves].tobytes() == theirs.boxes[0, :n_leaves].tobytes()


def assert_sound(forest):
    trees, _ = forest.state()
    check = forest.sampler.tree_check()
    assert first_broken_tree(trees) == NONE
    for t in range(forest.n_trees):
        assert broken_invariants(trees, t, lambda _tree: iter(())) == []
    assert not any(wrong.any() for _, wrong in check(trees))


@st.composite
def mixed_tables(draw, min_rows=2, max_rows=24):
    """Draw a table of one to three columns, and which of them are categorical (at least one)."""
    n_rows = draw(st.integers(min_rows, max_rows))
    categorical = draw(st.lists(st.booleans(), min_size=1, max_size=3).filter(any))
    columns = [
        draw(st.lists(st.sampled_from(CODES) if is_category else st.floats(-9, 9), min_size=n_rows, max_size=n_rows))
        for is_category in categorical
    ]
    return np.array(columns).T.copy(), [j for j, is_category in enumerate(categorical) if is_category]


TABLES = mixed_tables()


# -- equal to a forest without categories ------------------------------------------------------------------------------


def test_places_never_change():
    """Model files depend on them: a file written today must mean the same in every later version."""
    X = np.array([[0.0, 1.0], [7.0, 6257867736028357.0], [7.0, 1.0]])
    trees, _ = MondrianForest(2, seed=2026, categorical=[0, 1]).build(X).state()
    places = trees.points[:, :, 2:4]
    assert places.tolist() == [
        [
            [0.7886497775087973, 0.5018094048317838],
            [0.3516254769407724, 0.9326946305329512],
            [0.3516254769407724, 0.5018094048317838],
        ],
        [
            [0.27856722836738457, 0.6606425117176491],
            [0.640154970263804, 0.6562637973516525],
            [0.640154970263804, 0.6606425117176491],
        ],
    ]
    assert places.tolist() == [[[place(2026, t, k, row[k]) for k in range(2)] for row in X] for t in range(2)]


@given(table=TABLES, seed=SEEDS, scale=st.sampled_from([None, "std"]), max_samples=st.sampled_from([None, 6]))
def test_a_built_tree_equals_one_on_placed_and_counted_columns(table, seed, scale, max_samples):
    X, categorical = table
    forest = MondrianForest(1, seed=seed, scale=scale, max_samples=max_samples, categorical=categorical).build(X)
    counts = Counts(len(categorical), max_samples or 256)
    counts.rows.extend(map(tuple, X[:, categorical]))
    Y = placed(X, categorical, [counts.rarities(codes) for codes in X[:, categorical]], seed)
    m, c = X.shape[1] - len(categorical), len(categorical)
    weights = forest._known_state().scale.weights()
    if scale == "std":
        assert weights[m:].tolist() == [RARITY_WEIGHT] * c + [PLACE_WEIGHT] * c
    plain = MondrianForest(1, seed=seed, scale=weights, max_samples=max_samples).build(Y)
    assert_same_cuts(forest, plain)
    assert_sound(forest)
    for kind in SCORES:
        assert forest.score(X, kind).tobytes() == plain.score(Y, kind).tobytes()
        assert [forest.score_one(x, kind) for x in X] == [plain.score_one(y, kind) for y in Y]
    np.testing.assert_allclose(forest.explain(X), folded(plain.explain(Y), X.shape[1], categorical), rtol=1e-12)


@given(table=TABLES, seed=SEEDS, settings=st.sampled_from(SETTINGS), kind=st.sampled_from([*SCORES]))
def test_a_grown_tree_equals_one_on_placed_and_counted_columns(table, seed, settings, kind):
    X, categorical = table
    counts = Counts(len(categorical), settings.get("max_samples", 256), settings.get("window"))
    Y = placed(X, categorical, counts.rarities_in_turn(X[:, categorical]), seed)
    forest, plain = (
        MondrianForest(1, seed=seed, categorical=categorical, **settings),
        MondrianForest(1, seed=seed, **settings),
    )
    assert forest.score_and_extend(X, kind).tobytes() == plain.score_and_extend(Y, kind).tobytes()
    assert_same_cuts(forest, plain)
    assert_sound(forest)
    new = placed(X, categorical, [counts.rarities(codes) for codes in X[:, categorical]], seed)
    assert forest.score(X, kind).tobytes() == plain.score(new, kind).tobytes()
    assert forest.score_next(X, kind).tobytes() == plain.score_next(new, kind).tobytes()


@given(table=TABLES, settings=st.sampled_from(SETTINGS), kind=st.sampled_from([*SCORES]), data=st.data())
def test_results_do_not_depend_on_blocks_threads_or_files(table, settings, kind, data, tmp_path_factory):
    X, categorical = table
    forests = [MondrianForest(6, categorical=categorical, n_jobs=n_jobs, **settings) for n_jobs in (1, 1, 2)]
    at_once = forests[0].score_and_extend(X, kind)
    one_by_one = np.concatenate([forests[1].score_and_extend(x[None], kind) for x in X])
    middle = data.draw(st.integers(1, len(X) - 1))
    before = forests[2].score_and_extend(X[:middle], kind)
    path = tmp_path_factory.mktemp("file") / "forest.imf"
    imondrian.save(forests[2], path)
    pickled = pickle.loads(pickle.dumps(forests[2]))  # noqa: S301
    copies = [imondrian.load(path), pickled, copy.deepcopy(forests[2])]
    assert one_by_one.tobytes() == at_once.tobytes()
    for resumed in [forests[2], *copies]:
        after = resumed.score_and_extend(X[middle:], kind)
        assert np.concatenate([before, after]).tobytes() == at_once.tobytes()
        assert resumed.score(X, kind).tobytes() == forests[0].score(X, kind).tobytes()
        assert sorted(map(tuple, resumed.points())) == sorted(map(tuple, forests[0].points()))


@given(table=TABLES, settings=st.sampled_from(SETTINGS), order=st.randoms(use_true_random=False))
def test_everything_can_be_forgotten(table, settings, order):
    X, categorical = table
    forest = MondrianForest(3, categorical=categorical, **settings).extend(X)
    rows = list(X[-settings.get("window", len(X)) :])
    order.shuffle(rows)
    for n_left, row in zip(range(len(rows) - 1, -1, -1), rows, strict=True):
        forest.forget(row[None])
        assert_sound(forest)
        assert forest.n_points == n_left
        assert forest.category_counts(categorical[0], [row[categorical[0]]])[1] == n_left
    trees, _ = forest.state()
    assert not any(array.any() for array in (trees.points, trees.boxes, trees.copies, trees.parents))
    counts = forest.sampler.counts
    assert all(counts.entries(k)[0].size == 0 for k in range(len(categorical)))


@given(table=TABLES, seed=SEEDS)
def test_points_are_returned_as_they_were_given(table, seed):
    X, categorical = table
    forest = MondrianForest(3, seed=seed, categorical=categorical).build(X)
    assert sorted(map(tuple, forest.points() + 0.0)) == sorted(map(tuple, X + 0.0))
    points, scores = forest.rescore("size")
    assert scores.tobytes() == forest.score(points, "size").tobytes() or np.allclose(
        scores, forest.score(points, "size")
    )
    assert (forest.n_trees_holding(X) == 3).all()


@given(table=TABLES, settings=st.sampled_from(SETTINGS))
def test_categories_are_counted(table, settings):
    X, categorical = table
    forest = MondrianForest(2, categorical=categorical, **settings).extend(X)
    held = X[-settings.get("window", len(X)) :]
    for j in categorical:
        counts, n_points = forest.category_counts(j, [*CODES, 77.0])
        assert counts.tolist() == [int((held[:, j] == code).sum()) for code in [*CODES, 77.0]]
        assert n_points == len(held)


@given(table=TABLES)
def test_an_explanation_sums_to_the_score_and_a_category_has_no_side(table):
    X, categorical = table
    forest = MondrianForest(5, categorical=categorical).build(X)
    parts = forest.explain(X, "size")
    np.testing.assert_allclose(np.abs(parts).sum(axis=1), forest.score(X, "size"), rtol=1e-12)
    assert (parts[:, categorical] >= 0.0).all()


# -- joining and widening ----------------------------------------------------------------------------------------------


def test_joined_forests_add_up_their_counts():
    X = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 2.0]])
    one, other = (MondrianForest(2, seed=seed, categorical=[1]).build(X) for seed in (1, 2))
    both = copy.deepcopy(one).join(other)
    assert both.category_counts(1, [1.0, 2.0, 3.0])[0].tolist() == [4, 2, 0]
    assert_sound(both)
    with pytest.raises(InvalidInputError, match=r"differ in categorical features: \(1,\) and \(0,\)"):
        one.join(MondrianForest(2, categorical=[0]).build(X))


@pytest.mark.parametrize("settings", [*SETTINGS, {"scale": "std"}])
def test_a_widened_forest_equals_one_that_always_had_the_features(settings):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=30), rng.integers(0, 3, 30), rng.normal(size=30)])
    new = np.column_stack([X, rng.normal(size=30), rng.integers(0, 3, 30)])
    old = np.column_stack([X, np.zeros(30), np.full(30, 7.0)])
    forest = MondrianForest(3, categorical=[1], **settings).build(X).widen(5, {4: 7.0})
    always = MondrianForest(3, categorical=[1, 4], **settings).build(old)
    assert forest.categorical == (1, 4)
    assert_sound(forest)
    for kind in SCORES:
        assert np.allclose(forest.score(new, kind), always.score(new, kind), rtol=1e-9)
    assert np.allclose(forest.extend(new).score(new, "size"), always.extend(new).score(new, "size"), rtol=1e-9)
    assert_sound(forest)
    assert forest.category_counts(4, [7.0])[0] == always.category_counts(4, [7.0])[0]


# -- many categories ---------------------------------------------------------------------------------------------------


def test_100_000_categories():
    codes = np.arange(100_000.0)
    X = np.column_stack([codes, codes % 3])
    forest = MondrianForest(5, max_samples=64, categorical=[0, 1]).extend(X)
    assert forest.has_dropped_categories
    assert forest.category_counts(1, [0.0, 1.0, 2.0])[0].tolist() == [33_334, 33_333, 33_333]
    assert forest.sampler.counts.entries(0)[0].size <= MAX_CATEGORIES
    in_blocks = MondrianForest(5, max_samples=64, categorical=[0, 1]).extend(X[:60_000])
    for first in range(60_000, 100_000, 7_777):
        in_blocks.extend(X[first : first + 7_777][:40_000])
    assert forest.score(X[:9]).tobytes() == in_blocks.score(X[:9]).tobytes()
    assert_sound(forest)


def test_a_forest_that_holds_every_point_counts_every_category():
    X = np.arange(70_000.0)[:, None]
    forest = MondrianForest(1, categorical=[0]).extend(X)
    assert not forest.has_dropped_categories
    assert forest.category_counts(0, [69_999.0, 70_000.0])[0].tolist() == [1, 0]


def test_memory_of_a_window_with_categories_is_fixed():
    forest = MondrianForest(3, window=64, max_samples=16, categorical=[0]).reserve(2)
    n_bytes = forest.n_bytes
    for first in range(0, 1_000, 100):
        forest.extend(np.column_stack([np.arange(first, first + 100.0), np.zeros(100)]))
        assert forest.n_bytes == n_bytes
    assert forest.forget(forest.points()[:50]).n_bytes == n_bytes
    assert copy.deepcopy(forest).n_bytes == n_bytes


# -- regressions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", SETTINGS)
def test_counts_do_not_change_before_the_trees_are_shown_a_block(settings, monkeypatch):
    """An interruption after the rarities are written leaves nothing behind."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, size=(60, 2)).astype(float)
    forest = MondrianForest(2, categorical=[0, 1], **settings).extend(X[:30])
    before = forest.sampler.counts.state()

    def interrupt(_function):
        raise KeyboardInterrupt

    monkeypatch.setattr(forest, "_on_trees", interrupt)
    monkeypatch.setattr("imondrian.forest.samplers.window._on_all", interrupt)
    with pytest.raises(KeyboardInterrupt):
        forest.extend(X[30:])
    after = forest.sampler.counts.state()
    assert all((before[name] == after[name]).all() for name in before)


@pytest.mark.parametrize("settings", SETTINGS)
def test_counts_do_not_change_if_a_signal_arrives_while_rarities_are_written(settings, monkeypatch):
    """Python raises the KeyboardInterrupt of a signal that arrives during a kernel when the kernel has returned."""
    X = np.random.default_rng(0).integers(0, 5, size=(60, 2)).astype(float)
    forest = MondrianForest(2, categorical=[0, 1], **settings).extend(X[:30])
    before, call = forest.sampler.counts.state(), category_counts.call_without_dispatch

    def interrupted_call(*arguments):
        call(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(category_counts, "call_without_dispatch", interrupted_call)
    with pytest.raises(KeyboardInterrupt):
        forest.extend(X[30:])
    after = forest.sampler.counts.state()
    assert all((before[name] == after[name]).all() for name in before)


@pytest.mark.parametrize("categorical", [[0], [0, 1], [1]])
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_widened_forest_has_the_layout_of_kernels_and_can_be_saved(tmp_path, categorical, settings):
    X = np.random.default_rng(0).integers(0, 4, size=(12, 2)).astype(float)
    forest = MondrianForest(3, categorical=categorical, **settings).extend(X)
    forest.score_one(X[0], "size")
    forest.widen(3).widen(4, {3: 7.0})
    trees, arrays = forest.state()
    assert all(array.flags.carray for array in (*trees, *arrays.values()))
    assert_sound(forest)
    rows = np.column_stack([X, np.zeros(12), np.full(12, 7.0)])
    for kind in SCORES:
        assert [forest.score_one(row, kind) for row in rows] == forest.score(rows, kind).tolist()
    imondrian.save(forest, tmp_path / "wide.imf")
    resumed = imondrian.load(tmp_path / "wide.imf")
    assert resumed.extend(rows).score(rows, "size").tobytes() == forest.extend(rows).score(rows, "size").tobytes()


def test_joined_and_widened_forests_can_be_saved(tmp_path):
    X = np.column_stack([np.arange(10.0), np.arange(10) % 2])
    forest = MondrianForest(2, categorical=[1], seed=1).extend(X)
    forest.join(MondrianForest(2, categorical=[1], seed=2).extend(X + 10)).widen(3)
    imondrian.save(forest, tmp_path / "joined.imf")
    assert imondrian.load(tmp_path / "joined.imf").category_counts(1, [0.0])[1] == 20


def test_a_row_whose_category_was_never_shown_cannot_be_forgotten():
    forest = MondrianForest(2, max_samples=2, categorical=[1]).extend([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    with pytest.raises(InvalidInputError, match=r"X\[1\] = \[77\.  9\.\] is not in the forest"):
        forest.forget([[1.0, 5.0], [77.0, 9.0]])
    assert forest.category_counts(1, [5.0]) == (4, 4)


def test_a_common_value_among_many_rare_ones_is_not_an_anomaly():
    """A customer with 61 of 5,000 rows, among 1,000 customers with about five rows each."""
    rng = np.random.default_rng(0)
    customer = rng.integers(0, 1_000, 5_000).astype(float)
    customer[::83] = 5_000.0
    X = np.column_stack([customer, rng.normal(size=5_000), rng.integers(0, 3, 5_000)])
    scores = MondrianForest(100, max_samples=256, scale="std", categorical=[0, 2]).build(X).score(X, "size")
    flagged = scores > np.quantile(scores, 0.95)
    assert flagged[::83].mean() < 0.2


# -- files and input ---------------------------------------------------------------------------------------------------


def damaged_state(forest, name, change):
    parameters, trees, arrays = forest.snapshot()
    if name in arrays:
        change(arrays[name])
    else:
        change(getattr(trees, name))
    return parameters, trees, arrays


DAMAGES = {
    "a rarity is not in": ("points", lambda points: points[..., 1].fill(-1.0)),
    "do not match": ("category_counts", lambda counts: counts.__setitem__(2, 99)),
    "in ascending order": ("category_codes", lambda codes: codes.sort() or codes.__setitem__(0, codes[1])),
    "is impossible": ("category_counts", lambda counts: counts.__setitem__(-1, 0)),
    "more points than there are": ("category_counts", lambda counts: counts.__setitem__(0, 5)),
    "of categories is impossible": ("category_counts", lambda counts: counts.__setitem__(-1, 2**63 - 1)),
}


@pytest.mark.parametrize("problem", DAMAGES)
def test_damaged_categories_are_rejected(tmp_path, problem):
    X = np.column_stack([np.arange(12.0), np.arange(12.0) % 4])
    forest = MondrianForest(2, categorical=[1]).build(X)
    storage.save(Snapshot(*damaged_state(forest, *DAMAGES[problem])), tmp_path / "damaged.imf")
    with pytest.raises(DamagedFileError, match=problem):
        imondrian.load(tmp_path / "damaged.imf")


def test_in_a_file_of_version_2_every_category_is_at_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(packed_trees, "MAX_EXPANSION", 0)  # version 3 does not contain places
    forest = MondrianForest(2, categorical=[1]).build(np.column_stack([np.arange(12.0), np.arange(12.0) % 4]))
    damage = "points", lambda points: points[1, 2].__setitem__(-1, 3.5)
    storage.save(Snapshot(*damaged_state(forest, *damage)), tmp_path / "damaged.imf")
    with pytest.raises(DamagedFileError, match="a category is not at its place"):
        imondrian.load(tmp_path / "damaged.imf")


@pytest.mark.parametrize(
    ("categorical", "message"),
    [
        ([-1], "counted from 0, or be a mask, but has -1"),
        ([0, 0], "must not contain an index twice"),
        (["a"], "but has 'a'"),
        ([0.0], "but has 0.0"),
        (3, "must be indices or a mask, but is 3"),
        ([True, 1], "but has True"),
    ],
)
def test_invalid_indices_are_named(categorical, message):
    with pytest.raises(InvalidInputError, match=message):
        MondrianForest(categorical=categorical)


@pytest.mark.parametrize(
    ("categorical", "message"),
    [
        ([2], "indices below the number of features, 2, but has 2"),
        ([True], "one entry for each of 2 features, but has 1"),
    ],
)
def test_features_that_do_not_exist_are_named(categorical, message):
    with pytest.raises(InvalidInputError, match=message):
        MondrianForest(categorical=categorical).build([[1.0, 2.0]])


def test_a_mask_equals_indices():
    X = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 2.0]])
    mask, indices = (MondrianForest(3, categorical=c).build(X) for c in (np.array([False, True]), [1]))
    assert mask.categorical == indices.categorical == (1,)
    assert mask.score(X).tobytes() == indices.score(X).tobytes()


def test_counts_of_a_number_are_refused():
    with pytest.raises(InvalidInputError, match="The feature 0 is not categorical"):
        MondrianForest(categorical=[1]).build([[1.0, 2.0]]).category_counts(0, [1.0])


def test_the_arrays_of_trees_are_declared():
    assert set(FIELDS) == {"cuts", "boxes", "points", "copies", "parents", "heads", "rows"}


# -- the law -----------------------------------------------------------------------------------------------------------


@pytest.mark.law
def test_places_are_uniform_and_independent_between_trees_features_and_categories():
    """Kolmogorov-Smirnov and correlation tests on 4,000 places each; each fails by chance once in 10,000 runs."""
    codes = np.arange(20.0)
    X = np.column_stack([codes, codes])
    trees, _ = MondrianForest(200, seed=11, categorical=[0, 1]).build(X).state()
    places = trees.points[:, :20, 2:4]  # by tree, category and feature
    assert stats.kstest(places[..., 0].ravel(), "uniform").pvalue > 1e-4
    assert stats.kstest(places[..., 1].ravel(), "uniform").pvalue > 1e-4
    pairs = [
        (places[..., 0], places[..., 1]),
        (places[:-1], places[1:]),
        (places[:, :-1], places[:, 1:]),
    ]
    for one, other in pairs:
        assert stats.pearsonr(one.ravel(), other.ravel()).pvalue > 1e-4

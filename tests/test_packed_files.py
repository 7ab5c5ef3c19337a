"""Model files of version 3: small, each point once, and bit for bit the forest that was saved."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian import DamagedFileError, IsolationMondrianForest, MondrianForest, StreamDetector
from imondrian.engine.nodes import Trees
from imondrian.model_files import from_bytes, to_bytes
from imondrian.models import packed_trees
from imondrian.models.member_arrays import narrowest
from tests.strategies import POINT_SETS, SEEDS
from tests.test_storage import as_array, as_npy, former_bytes, members, version_of, zipped

X = np.random.default_rng(0).normal(size=(300, 4))
MODES = [{}, {"max_samples": 1}, {"max_samples": 4}, {"window": 5}, {"window": 8, "max_samples": 3}]


def forest_of(model):
    return model if isinstance(model, MondrianForest) else model.forest


def assert_same_state(ours, theirs):
    """Compare all arrays of two forests bit by bit."""
    for name, one, other in zip(Trees._fields, ours.snapshot().trees, theirs.snapshot().trees, strict=True):
        assert one.tobytes() == other.tobytes(), name
    one, other = ours.snapshot().arrays, theirs.snapshot().arrays
    assert one.keys() == other.keys()
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def without(forest, n):
    """Forget up to n points that the trees hold."""
    points = forest.points()[:n]
    return forest.forget(points) if len(points) else forest


def check_round_trip(forest, more):
    """Load what was saved in either version; both continue like the forest itself."""
    content, former = to_bytes(forest), former_bytes(forest)
    assert (version_of(content), version_of(former)) == (3, 2)
    loaded = [from_bytes(content), from_bytes(former)]
    for each in loaded:
        assert_same_state(each, forest)
        assert to_bytes(each) == content
    for each in [forest, *loaded]:
        each.extend(more)
        without(each, 1).extend(more[:1])
    for each in loaded:
        assert_same_state(each, forest)
        assert each.score(more, "size").tobytes() == forest.score(more, "size").tobytes()


@given(points=POINT_SETS, seed=SEEDS, settings=st.sampled_from(MODES), n_forgotten=st.integers(0, 3))
def test_a_loaded_forest_is_the_saved_one_bit_for_bit(points, seed, settings, n_forgotten):
    """The points include copies, both zeros, neighbours, one point; some are forgotten, perhaps all of them."""
    forest = MondrianForest(3, seed=seed, scale="std", **settings)
    forest.extend(points[: len(points) // 2 + 1]).extend(points)
    check_round_trip(without(forest, n_forgotten), points)


@given(points=POINT_SETS, seed=SEEDS, settings=st.sampled_from(MODES))
def test_a_forest_with_categories_is_the_saved_one_bit_for_bit(points, seed, settings):
    table = np.column_stack([points, np.arange(len(points)) % 3])
    forest = MondrianForest(3, seed=seed, categorical=[table.shape[1] - 1], **settings).build(table)
    check_round_trip(forest.forget(forest.points()[:1]).extend(table[:2]), table)


def test_a_joined_forest_with_trees_of_different_sizes_is_the_saved_one():
    check_round_trip(MondrianForest(2).build(X[:5]).join(MondrianForest(2, seed=1).build(X[:40])), X[40:50])


def test_an_empty_forest_is_the_saved_one():
    for settings in MODES:
        check_round_trip(MondrianForest(2, **settings).extend(X[:1]).forget(X[:1]), X[:9])


def test_a_wider_forest_is_the_saved_one():
    wide = np.column_stack([X[:30], np.zeros(30)])
    check_round_trip(MondrianForest(2, window=20).extend(X[:30]).widen(5), wide)


@pytest.mark.parametrize("missing", ["median", "indicator"])
def test_a_detector_continues_bit_for_bit(missing):
    detector = StreamDetector(4, n_trees=5, window=64, max_samples=16, missing=missing)
    detector.process_many(X[:150])
    loaded = from_bytes(to_bytes(detector))
    assert_same_state(forest_of(loaded), forest_of(detector))
    assert loaded.process_many(X[150:]).score.tobytes() == detector.process_many(X[150:]).score.tobytes()
    assert to_bytes(loaded) == to_bytes(detector)


# -- size -------------------------------------------------------------------------------------------------------


def test_a_file_contains_each_point_once():
    parts = members(to_bytes(MondrianForest(50, max_samples=100).build(X)))
    assert as_array(parts["points.npy"]).shape == (300, 4)
    window = members(to_bytes(MondrianForest(50, window=100, max_samples=50).extend(X)))
    assert as_array(window["points.npy"]).shape == (0, 4)  # all points are in the ring


def test_files_are_small():
    rng = np.random.default_rng(0)
    assert len(to_bytes(MondrianForest(100, max_samples=256).build(rng.normal(size=(10_000, 10))))) < 1_500_000
    wide = IsolationMondrianForest(n_estimators=20).fit(rng.normal(size=(300, 100)))
    assert len(to_bytes(wide)) < 300 * 100 * 8 + 20 * 256 * 24 + 30_000


def test_integers_have_the_smallest_type_that_fits():
    for largest, dtype in ((255, "u1"), (256, "u2"), (65_535, "u2"), (65_536, "u4"), (2**32, "u8")):
        assert narrowest(np.array([[0, largest]])).dtype == dtype
    assert narrowest(np.zeros((2, 0), np.int64)).dtype == np.uint8


# -- hostile files ----------------------------------------------------------------------------------------------


def message_of(content):
    with pytest.raises(DamagedFileError) as error:
        from_bytes(content)
    return str(error.value)


def changed(content, **arrays):
    return zipped({**members(content), **{f"{name}.npy": as_npy(array) for name, array in arrays.items()}})


def test_trees_out_of_proportion_to_the_file_take_no_memory():
    """A point of 20,000 numbers in 20,000 trees would take 3.2 GB, and their boxes 6.4 GB."""
    n_features, n_trees = 20_000, 20_000
    parts = members(to_bytes(MondrianForest(2).build(np.ones((1, n_features)))))
    header = json.loads(parts["header.json"])
    header["parameters"]["n_trees"] = n_trees
    for name, content in parts.items():
        if name.startswith(("heads.", "cuts.")) or name in ("leaves.npy", "copies.npy"):
            parts[name] = as_npy(np.repeat(as_array(content)[:1], n_trees, axis=0))
    content = zipped({**parts, "header.json": json.dumps(header)})
    tracemalloc.start()
    assert "bytes, more than 512 times its length" in message_of(content)
    assert tracemalloc.get_traced_memory()[1] < 5 * len(content)
    tracemalloc.stop()


def test_a_forest_that_could_not_be_read_in_version_3_is_written_in_version_2(monkeypatch):
    monkeypatch.setattr(packed_trees, "MAX_EXPANSION", 10)
    forest = MondrianForest(100).build(np.random.default_rng(0).normal(size=(20, 50)))
    content = to_bytes(forest)
    assert version_of(content) == 2
    assert_same_state(from_bytes(content), forest)


def test_a_missing_header_is_named():
    parts = members(to_bytes(MondrianForest(2).build(X[:20])))
    del parts["header.json"]
    assert "the member header.json is missing" in message_of(zipped(parts))


def test_a_point_that_no_leaf_names_is_rejected():
    content = to_bytes(MondrianForest(2).build(X))
    points = as_array(members(content)["points.npy"])
    assert "one of its points is in no leaf" in message_of(changed(content, points=np.vstack([points, [points[0]]])))


def test_a_leaf_cannot_name_an_empty_row_of_the_window():
    forest = MondrianForest(2, window=10).extend(X[:6])
    content = to_bytes(forest.forget(X[2:3]))
    leaves = as_array(members(content)["leaves.npy"])
    for number in (2, 8, 10, 255):
        wrong = np.where(leaves == leaves[0, 1], np.uint8(number), leaves)
        assert "a leaf names a point that does not exist" in message_of(changed(content, leaves=wrong))


def test_a_leaf_of_a_window_can_name_a_point_outside_the_ring_only_if_the_ring_has_it():
    content = to_bytes(MondrianForest(1, window=10).extend(X[:6]))
    leaves = as_array(members(content)["leaves.npy"]).copy()
    points = np.array([X[leaves[0, 0]]])
    leaves[0, 0] = 10
    assert from_bytes(changed(content, leaves=leaves, points=points)).n_points == 6
    points[0, 0] += 1e-9
    assert "tree 0 is damaged" in message_of(changed(content, leaves=leaves, points=points))


@pytest.mark.parametrize("name", ["cuts.left", "cuts.right", "cuts.split_feature", "leaves", "copies"])
def test_wide_integers_are_accepted_if_their_values_fit(name):
    content = to_bytes(MondrianForest(2).build(X[:20]))
    array = as_array(members(content)[f"{name}.npy"]).astype(np.uint64)
    assert from_bytes(changed(content, **{name: array})).n_points == 20
    for value in (2**32, 2**32 + 1, 2**63, 2**64 - 1):
        wrong = array.copy()
        wrong[0, 0] += np.uint64(value) if value < 2**63 else np.uint64(value) - array[0, 0]
        assert "damaged" in message_of(changed(content, **{name: wrong})), value


def test_positions_of_negative_zeros_are_checked():
    forest = MondrianForest(2).build(np.array([[-0.0, 1.0], [0.0, 2.0], [3.0, -0.0], [3.0, -0.0]]))
    content = to_bytes(forest)
    positions = as_array(members(content)["negative_zeros.npy"])
    assert positions.size > 0
    assert from_bytes(changed(content, negative_zeros=positions[:0])).score(X[:, :2]).shape == (300,)
    bounds = forest.snapshot().trees.boxes.reshape(-1)
    nonzero = int(np.flatnonzero(bounds)[0])
    unused = bounds.size - 1
    for wrong in ([-1], [bounds.size], [2**62], [positions[0]] * 2, [nonzero], [unused], [unused, positions[0]]):
        message = message_of(changed(content, negative_zeros=np.array(wrong, np.int64)))
        assert "negative_zeros.npy is damaged" in message, wrong


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e154])
def test_points_are_finite(value):
    content = to_bytes(MondrianForest(2).build(X[:20]))
    points = as_array(members(content)["points.npy"]).copy()
    points[3, 2] = value
    assert "a point is not finite or too large" in message_of(changed(content, points=points))


@pytest.mark.parametrize("rarity", [0.0, -1.0, 1.5])
def test_rarities_are_possible(rarity):
    content = to_bytes(MondrianForest(2, categorical=[3]).build(np.round(X[:20])))
    points = as_array(members(content)["points.npy"]).copy()
    points[3, 3] = rarity
    assert "a rarity is not in" in message_of(changed(content, points=points))

"""Hostile files: the memory and time needed to read a file are at most proportional to its length."""

import io
import json
import pickle
import struct
import time
import tracemalloc
import zipfile

import numpy as np
import pandas as pd
import pytest

from imondrian import DamagedFileError, InvalidInputError, IsolationMondrianForest, MondrianForest, StreamDetector
from imondrian.engine.nodes import MAX_COUNT, NO_NODE, empty_trees
from imondrian.engine.randomness import start_streams
from imondrian.forest.forest_state import Snapshot
from imondrian.model_files import from_bytes, load, save, to_bytes
from imondrian.models import storage
from imondrian.models.fitted_model import medians_of_held_points
from imondrian.models.storage import read_header
from tests.test_storage import as_array, as_npy, members, sealed, zipped

X = np.random.default_rng(0).normal(size=(300, 2))


def detector_of(**settings):
    detector = StreamDetector(2, **{"n_trees": 3, "window": 64, "max_samples": 16, **settings})
    detector.process_many(X[:100])
    return detector


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    """Compile the kernels that reading uses, so that compilation is not measured."""
    from_bytes(to_bytes(detector_of()))
    from_bytes(to_bytes(MondrianForest(1, scale="std").build(X)))


def with_notes(detector, change):
    """Return the file of a detector with changed notes and a matching digest."""
    parts = members(to_bytes(detector))
    header = json.loads(parts["header.json"])
    change(header["notes"]["StreamDetector"])
    return zipped({**parts, "header.json": json.dumps(header)})


def with_arrays(content, **arrays):
    """Return a file with replaced members and a matching digest; in the names of members, __ stands for a dot."""
    changed = {f"{name.replace('__', '.')}.npy": as_npy(array) for name, array in arrays.items()}
    return zipped({**members(content), **changed})


def cost_of_rejecting(content, read=from_bytes):
    """Check that a file is rejected within ten seconds; return the peak memory and the error message."""
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(DamagedFileError) as error:
            read(content)
        assert time.process_time() - began < 10.0
        return tracemalloc.get_traced_memory()[1], str(error.value)
    finally:
        tracemalloc.stop()


def set_parameter(**parameters):
    return lambda notes: notes["parameters"].update(parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_features": "A", "shingle": 4_000_000_000},
        {"n_features": [1], "shingle": 2**30},
        {"n_features": 2**31, "shingle": 2**31},
        {"window": "64" * 1000},
        {"n_trees": 2**40},
        {"shingle": 1e300},
        {"warm_up": 2**80},
        {"seed": -1},
        {"threshold": "A" * 10**6},
        {"preset": "A" * 10**6},
        {"scale": [1.0] * 10**5},
        {"on_error": {"a": ["b"] * 10**5}},
        {"another": 1},
    ],
)
def test_parameters_are_checked_before_they_are_used(parameters):
    content = with_notes(detector_of(), set_parameter(**parameters))
    peak, message = cost_of_rejecting(content)
    assert peak < 30 * len(content)
    assert len(message) < 600
    assert "\n" not in message


@pytest.mark.parametrize("window", [None, 64])
def test_many_copies_are_counted_without_listing_them(window):
    forest = MondrianForest(2, window=window).extend(np.ones((3, 1)))
    content = to_bytes(forest)
    copies = as_array(members(content)["copies.npy"]).astype(np.uint32)
    copies[:, 0] = 2**31 - 2
    arrays = {"copies": copies}
    if window is None:
        arrays["heads__n_points"] = np.full(2, 2**31 - 2)
        tracemalloc.start()
        assert from_bytes(with_arrays(content, **arrays)).n_points == 2**31 - 2
        assert tracemalloc.get_traced_memory()[1] < 10**6
        tracemalloc.stop()
    else:
        peak, message = cost_of_rejecting(with_arrays(content, **arrays))
        assert peak < 10**6
        assert "would not select" in message


@pytest.mark.parametrize(("max_samples", "n_copies"), [(None, 2**32 - 1), (None, 1_001), (100, 900)])
def test_copies_in_a_window_are_bounded_after_the_last_lookup(max_samples, n_copies):
    """All rows are equal, so the last of many trees is not compared with the window point by point."""
    content = to_bytes(MondrianForest(5_000, max_samples=max_samples, window=1_000).extend(np.ones((1_000, 1))))
    copies = as_array(members(content)["copies.npy"]).astype(np.uint32)
    assert from_bytes(content).n_points == 1_000
    copies[-1] = n_copies
    assert "tree 4999 is damaged" in cost_of_rejecting(with_arrays(content, copies=copies))[1]


@pytest.mark.parametrize("contamination", [0.1, "kmeans"])
def test_a_threshold_is_computed_without_listing_copies(contamination):
    """An estimator without a stored threshold whose forest holds 2**28 copies of a point."""
    model = IsolationMondrianForest(n_estimators=2, max_samples=None, contamination=contamination)
    content = to_bytes(model.partial_fit([[1.0, 1.0]] * 3 + [[2.0, 2.0]]))
    copies, n_held = as_array(members(content)["copies.npy"]).astype(np.uint32), 2**28 + 1
    copies[copies == 3] = 2**28
    moments = as_array(members(content)["moments.npy"]).copy()
    moments[0] = n_held
    changed = {"copies": copies, "moments": moments, "heads__n_points": np.full(2, n_held)}
    hostile = from_bytes(with_arrays(content, **changed))
    tracemalloc.start()
    assert 0.0 < hostile.threshold < 1.0
    assert medians_of_held_points(hostile.forest).tolist() == [1.0, 1.0]
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()


@pytest.mark.parametrize("n_features", [5_000_000, 2**31 - 2])
def test_features_that_the_file_cannot_contain_take_no_memory(n_features):
    parts = members(to_bytes(MondrianForest(1, categorical=[1]).build(X)))
    header = {**json.loads(parts["header.json"]), "n_features": n_features}
    memory, message = cost_of_rejecting(zipped({**parts, "header.json": json.dumps(header)}))
    assert "describes more data than the file contains" in message
    assert memory < 10**6


def test_many_small_trees_are_checked_in_compiled_code():
    """A file of 2 MB with 20,000 trees; checks in Python took half a minute."""
    forest = MondrianForest(20_000, max_samples=1).build(X[:5])
    content = to_bytes(forest)
    began = time.process_time()
    assert from_bytes(content).n_trees == 20_000
    assert time.process_time() - began < 10.0


def test_a_long_window_with_many_trees_is_checked_in_bounded_time():
    forest = MondrianForest(5_000, max_samples=1, window=20_000).extend(np.ones((20_000, 1)))
    content = to_bytes(forest)
    began = time.process_time()
    assert from_bytes(content).n_points == 20_000
    assert time.process_time() - began < 10.0


def test_a_long_window_with_many_small_trees_takes_a_small_multiple_of_the_file_in_memory():
    """Each tree has one slot in the file and could need 5,000; all of them would take 700 MB."""
    n_trees, window = 2_000, 5_000
    trees = empty_trees(n_trees, 1, 1)
    start_streams(trees.heads, np.uint64(0))
    trees.points[:], trees.copies[:], trees.parents[:, 1] = 1.0, window, NO_NODE
    trees.heads["n_leaves"], trees.heads["root"], trees.heads["next_number"] = 1, 1, window
    arrays = {"moments": np.zeros((3, 1)), "ring": np.ones((window, 1)), "clock": np.array([window, window + 1, 0])}
    file = io.BytesIO()
    storage.write(Snapshot(MondrianForest(n_trees, window=window).parameters(), trees, arrays), file)
    tracemalloc.start()
    forest = from_bytes(file.getvalue())
    forest.extend(np.full((3, 1), 2.0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(file.getvalue())
    assert forest.n_bytes > 100 * peak
    assert from_bytes(to_bytes(forest)).n_shown == window + 3


def long_directory(n_members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = b"-" * 64
        for i in range(n_members):
            archive.writestr(f"{i:06}", b"")
    return buffer.getvalue()


def test_a_long_directory_is_not_read():
    content = sealed(long_directory(70_000))  # more than 65,535 members: with a 64-bit end record
    peak, message = cost_of_rejecting(content)
    assert peak < len(content)
    assert "may have at most 64" in message
    short = sealed(long_directory(100))
    assert "may have at most 64" in cost_of_rejecting(short)[1]


def test_a_file_with_two_end_records_is_rejected():
    """`zipfile` would use another end record than our check."""
    content = to_bytes(MondrianForest(1).build(X))
    end = len(content) - 64 - 22
    long_record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 10**6, 10**6, 2**30, 0)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1)
    assert "may have at most 64" in cost_of_rejecting(sealed(content[:end] + long_record + locator + content[end:]))[1]
    hidden = content[: end + 12] + b"PK\x05\x06" + content[end + 16 :]
    assert "does not end as a model file" in cost_of_rejecting(sealed(hidden))[1]


def with_stated_length(content, name, n_bytes):
    """Return a file whose directory states another length of a member, with a matching digest."""
    changed, record = bytearray(content), content.rindex(name.encode()) - 46  # in the directory
    assert changed[record : record + 4] == b"PK\x01\x02"
    struct.pack_into("<2I", changed, record + 20, n_bytes, n_bytes)
    return sealed(bytes(changed))


def header_of(path):
    with path.open("rb") as file:
        return read_header(file, path)


@pytest.mark.parametrize("n_bytes", [2**16, 2**24, 2**30, 2**32 - 2])
@pytest.mark.parametrize("name", ["header.json", "cuts.split_time.npy", "points.npy", "moments.npy"])
def test_a_stated_length_beyond_the_end_of_the_file_takes_no_memory(tmp_path, name, n_bytes):
    """From a file on disk, Python would allocate the stated length before it reads."""
    path, content = tmp_path / "model.imf", to_bytes(MondrianForest(1).build(X[:100]))
    content = with_stated_length(content, name, n_bytes)
    assert len(content) < 2**14
    path.write_bytes(content)
    for read in (load, header_of):
        peak, message = cost_of_rejecting(path, read)
        assert peak < 20 * len(content)
        assert f"but the file has only {len(content)}" in message
    assert f"but the file has only {len(content)}" in cost_of_rejecting(content)[1]


@pytest.mark.parametrize("filling", [b"[],", b"{},", b"0.0,", b'"ab",', b"1,"])
def test_a_long_header_needs_a_small_multiple_of_its_length_in_memory(filling):
    n = 2**22 // len(filling)
    parts = members(to_bytes(MondrianForest(1).build(X)))
    header = parts["header.json"].replace(b'"notes": {}', b'"notes": {"a": [' + filling * n + b"0]}")
    content = zipped({**parts, "header.json": header})
    peak, _ = cost_of_rejecting(content)
    assert peak < 20 * len(content)


def test_a_header_that_is_too_long_to_read_is_not_written():
    forest, notes = detector_of().snapshot()
    for filling in ([[]] * 2**17, "A" * 2**24):
        with pytest.raises(InvalidInputError, match="The header of a model file can have"):
            storage.write(forest, io.BytesIO(), {"StreamDetector": notes, "beside": {"a": filling}})


def test_a_long_shingle_can_be_read_again():
    detector = StreamDetector(1, shingle=200_000, window=2, n_trees=1)
    detector.process_many(X.ravel()[:300])
    assert from_bytes(to_bytes(detector)).n_seen == 300


def test_error_messages_are_one_short_line():
    parts = members(to_bytes(MondrianForest(1).build(X)))
    header = json.loads(parts["header.json"])
    for change in (
        {"format": "A" * 10**6},
        {"version": "A\n" * 10**6},
        {"A\n" * 10**6: 1},
        {"parameters": {"A" * 10**6: 1}},
    ):
        _, message = cost_of_rejecting(zipped({**parts, "header.json": json.dumps({**header, **change})}))
        assert len(message) < 600
        assert "\n" not in message


def test_the_header_can_be_read_alone():
    content = to_bytes(detector_of())
    assert read_header(io.BytesIO(content), "file")["parameters"]["n_trees"] == 3
    with pytest.raises(DamagedFileError, match="file: this is not a model file"):
        read_header(io.BytesIO(b"x" * 1000), "file")


# -- counters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("count", [2**61, 2**61 - 5, MAX_COUNT + 1, -1, 1.5, True, "1", None])
def test_impossible_counts_of_a_detector_are_rejected(position, count):
    def change(notes):
        notes["counts"][position] = count

    cost_of_rejecting(with_notes(detector_of(), change))


@pytest.mark.parametrize(
    "change",
    [
        lambda notes: notes["counts"].__setitem__(1, 50),  # more skipped and scored than seen
        lambda notes: notes["monitor"]["began"].__setitem__(1, 2**61),
        lambda notes: notes["monitor"].update(began=[-1, 90], was_odd=True),  # an unusual block that never began
        lambda notes: notes["monitor"].update(began=[91, 90]),
        lambda notes: (notes["drifts"].append([80, 81, "scores", 0.5, 0.5]), notes["counts"].__setitem__(3, 1)),
        lambda notes: notes["drifts"].append([2**61, 0, "scores", 0.5, 0.5]),
        lambda notes: notes["counts"].append(0),
    ],
)
def test_contradictory_counts_are_rejected(change):
    cost_of_rejecting(with_notes(detector_of(), change))


@pytest.mark.parametrize(
    "change",
    [
        lambda monitor: monitor["before"].__setitem__(0, 1.7e308),
        lambda monitor: monitor["present"].__setitem__(0, 1e307),
        lambda monitor: monitor["moments"][0].__setitem__(1, 1e200),
        lambda monitor: monitor["moments"][1].__setitem__(2, 1e308),
        lambda monitor: monitor["counts"].__setitem__(0, 2**101),
    ],
)
def test_sums_of_a_drift_monitor_that_would_overflow_are_rejected(change):
    cost_of_rejecting(with_notes(detector_of(), lambda notes: change(notes["monitor"])))


def test_a_detector_with_the_largest_sums_of_a_drift_monitor_stays_readable():
    def change(notes):
        notes["monitor"]["before"] = notes["monitor"]["present"] = [float(MAX_COUNT)] * 64
        notes["monitor"]["moments"] = [[float(MAX_COUNT), 1.0, float(MAX_COUNT)]] * 2
        notes["counts"][3] = MAX_COUNT

    detector = from_bytes(with_notes(detector_of(), change))
    for _ in range(20):
        detector.process_many(X * 9.0)
        detector = from_bytes(to_bytes(detector))


def test_insertion_counts_whose_sum_would_overflow_are_rejected():
    content = to_bytes(MondrianForest(600, max_samples=4, window=8).extend(X[:8]))
    number = MAX_COUNT - 8
    arrays = {"clock": np.array([number, number + 1, 0]), "heads__next_number": np.full(600, number)}
    cost_of_rejecting(with_arrays(content, **arrays, heads__n_taken=np.full(600, number)))


def test_a_detector_whose_forest_was_built_again_can_be_saved():
    detector = detector_of()
    for _ in range(4):
        detector.process_many(X)
    detector.forest.build(X[:50])
    resumed = from_bytes(to_bytes(detector))
    for _ in range(20):
        assert resumed.process_many(X).score.tolist() == detector.process_many(X).score.tolist()
    assert to_bytes(resumed) == to_bytes(detector)
    for _ in range(20):
        detector.process_many(X)
    assert from_bytes(to_bytes(detector)).n_seen == detector.n_seen


def test_a_detector_whose_forest_has_other_features_does_not_replace_a_good_file(tmp_path):
    detector, path = detector_of(), tmp_path / "model.imf"
    save(detector, path)
    detector.forest.widen(3)
    with pytest.raises(InvalidInputError, match="cannot be saved: the forest does not match"):
        save(detector, path)
    with pytest.raises(InvalidInputError, match="cannot be saved"):
        pickle.dumps(detector)
    for call in (lambda: detector.process(X[0]), lambda: detector.process_many(X), lambda: detector.forget(X[:1])):
        with pytest.raises(InvalidInputError, match="has 3 features"):
            call()
    assert load(path).n_seen == 100


def test_an_estimator_whose_forest_has_other_features_does_not_replace_a_good_file(tmp_path):
    model, path = IsolationMondrianForest(n_estimators=2).fit(pd.DataFrame(X, columns=["a", "b"])), tmp_path / "m.imf"
    save(model, path)
    model.forest_.widen(3)
    with pytest.raises(InvalidInputError, match="cannot be saved: there are 3 features"):
        save(model, path)
    assert load(path).n_features_in_ == 2


@pytest.mark.parametrize("scale", [[None, None], ["a", "b"], [1.0, -1.0], [], [[1.0]], {"a": 1}])
def test_weights_of_an_estimator_are_checked(scale):
    parts = members(to_bytes(IsolationMondrianForest(n_estimators=2).fit(X)))
    header = json.loads(parts["header.json"])
    header["notes"]["IsolationMondrianForest"]["parameters"]["scale"] = scale
    cost_of_rejecting(zipped({**parts, "header.json": json.dumps(header)}))


def test_a_joined_forest_with_the_largest_counts_stays_readable():
    content = to_bytes(MondrianForest(2, max_samples=4, scale="std").extend(X[:50]))
    moments = as_array(members(content)["moments.npy"]).copy()
    moments[0] = MAX_COUNT
    forest = from_bytes(with_arrays(content, moments=moments))
    assert from_bytes(to_bytes(forest.join(forest))).n_trees == 4


@pytest.mark.parametrize("name", ["n_points", "n_owed"])
@pytest.mark.parametrize("value", [2**61, MAX_COUNT + 1, 2**62])
def test_impossible_counts_of_a_sample_are_rejected(name, value):
    content = to_bytes(MondrianForest(2, max_samples=4).extend(X[:50]))
    changed = {f"heads__{name}": np.full(2, value), "heads__next_kept": np.full(2, 2**62)}
    cost_of_rejecting(with_arrays(content, **changed))


def test_a_detector_whose_trees_have_inserted_the_most_points_stays_readable():
    """The sum over the trees exceeds 64 bits; it once had a limit that later insertions exceeded."""
    detector = StreamDetector(2, window=64, max_samples=16, n_trees=2100, scale=None, warm_up=0)
    detector.forest.reserve(2)
    trees, arrays = detector.forest.state()
    number, notes = MAX_COUNT - 1000, detector.notes()
    trees.heads["next_number"] = trees.heads["n_taken"] = trees.heads["n_outside"] = number
    arrays["clock"][:3] = number, number + 1, 0
    notes["counts"] = [number, 0, number, 0]
    forest = MondrianForest.from_state(detector.forest.parameters(), trees, arrays)
    restored = from_bytes(to_bytes(StreamDetector.from_notes(forest, notes)))
    restored.process_many(X[:200])
    assert restored.forest.insertion_counts[0] > 2**63
    assert from_bytes(to_bytes(restored)).n_seen == restored.n_seen
    assert from_bytes(to_bytes(restored.forest.join(restored.forest))).n_trees == 4200


def test_a_forest_with_the_largest_counts_stays_readable():
    """A loaded forest can be extended and saved; an extension that could not be saved is rejected."""
    content = to_bytes(MondrianForest(2, max_samples=4).extend(X[:50]))
    almost = np.full(2, MAX_COUNT - 10)
    forest = from_bytes(with_arrays(content, heads__n_points=almost, heads__next_kept=np.full(2, 2**62)))
    forest.extend(X[:9]).forget(forest.points()[:1]).extend(X[:1]).extend(X[:1])
    assert from_bytes(to_bytes(forest)).n_points == MAX_COUNT
    with pytest.raises(InvalidInputError, match="can count"):
        forest.extend(X[:1])
    assert from_bytes(to_bytes(forest)).n_points == MAX_COUNT

    window = to_bytes(MondrianForest(2, window=8).extend(X[:8]))
    for number, is_read in ((MAX_COUNT, True), (MAX_COUNT + 8, False)):  # multiples of 8: points keep their positions
        clock, next_number = np.array([number, number + 1, 0]), np.full(2, number)
        content = with_arrays(window, clock=clock, heads__next_number=next_number)
        if is_read:
            with pytest.raises(InvalidInputError, match="can count"):
                from_bytes(content).extend(X[:1])
        else:
            assert "more than" in cost_of_rejecting(content)[1]


def test_a_detector_that_cannot_count_more_rows_raises_an_error_and_stays_readable():
    def change(notes):
        notes["counts"][:] = [MAX_COUNT - 5, MAX_COUNT - 105, 100, 0]

    detector = from_bytes(with_notes(detector_of(), change))
    detector.skip(3)
    detector.process(X[0])
    for call in (lambda: detector.process_many(X[:2]), lambda: detector.skip(2)):
        with pytest.raises(InvalidInputError, match="can count"):
            call()
    detector.process(X[1])
    assert from_bytes(to_bytes(detector)).n_seen == MAX_COUNT
    with pytest.raises(InvalidInputError, match="can count"):
        detector.process(X[2])


def test_a_detector_checks_that_its_forest_can_count_all_rows_of_a_call():
    detector = detector_of(window=8, max_samples=None)
    n_shown = MAX_COUNT - 12  # 8 * k + 4, like 100: points keep their positions
    clock, next_number = np.array([n_shown, n_shown + 1, 0]), np.full(3, n_shown)
    content = with_arrays(to_bytes(detector), clock=clock, heads__next_number=next_number)
    restored = from_bytes(content)
    with pytest.raises(InvalidInputError, match="can count"):
        restored.process_many(X[:13])
    assert restored.n_seen == 100
    assert to_bytes(restored) == to_bytes(from_bytes(content))
    restored.process_many(X[:12])
    with pytest.raises(InvalidInputError, match="can count"):
        restored.process(X[0])
    assert from_bytes(to_bytes(restored)).n_seen == 112


def test_a_forest_with_the_largest_counts_of_categories_stays_readable():
    """The counts of a file may exceed those of its trees, as after joining; they limit how much can be added."""
    rows = np.column_stack([np.arange(40) % 4, X[:40, 0]])
    content = to_bytes(MondrianForest(2, max_samples=8, categorical=[0]).extend(rows))
    counts = as_array(members(content)["category_counts.npy"]).copy()
    counts[0] = MAX_COUNT - 5
    forest = from_bytes(with_arrays(content, category_counts=counts))
    with pytest.raises(InvalidInputError, match="can count"):
        forest.extend(rows[:6])
    forest.extend(rows[:5])
    assert from_bytes(to_bytes(forest)).n_trees == 2

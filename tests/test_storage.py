"""Model files: a loaded model continues as if it had never been saved, and no damaged file is accepted."""

import hashlib
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import imondrian
from imondrian import DamagedFileError, EmptyForestError, MondrianForest, StreamDetector
from imondrian.base.json_limits import outside_strings
from imondrian.forest.scores import SCORES
from imondrian.model_files import from_bytes, to_bytes
from imondrian.models import packed_trees
from tests.strategies import POINT_SETS, SEEDS

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(120, 3)), RNG.normal(size=(80, 3))
MODES = [(None, None), (None, "std"), (16, "std"), (16, [1.0, 2.0, 3.0])]


def saved(tmp_path, forest):
    path = tmp_path / "model.imf"
    imondrian.save(forest, path)
    return path


@pytest.mark.parametrize(("max_samples", "scale"), MODES)
def test_saved_and_resumed_equals_never_saved(tmp_path, max_samples, scale):
    forest = MondrianForest(n_trees=4, max_samples=max_samples, scale=scale, seed=9, n_jobs=2).build(X).forget(X[:9])
    resumed = imondrian.load(saved(tmp_path, forest))
    for step in (lambda f: f.extend(NEW), lambda f: f.forget(X[20:30]), lambda f: f.extend(X)):
        step(forest)
        step(resumed)
        for kind in SCORES:
            assert forest.score(NEW, kind).tobytes() == resumed.score(NEW, kind).tobytes()
    assert repr(forest) == repr(resumed)


@given(points=POINT_SETS, seed=SEEDS, max_samples=st.sampled_from([None, 1, 4]))
def test_hostile_points_can_be_saved(tmp_path_factory, points, seed, max_samples):
    folder = tmp_path_factory.mktemp("file")
    forest = MondrianForest(n_trees=2, max_samples=max_samples, seed=seed).extend(points)
    resumed = imondrian.load(saved(folder, forest))
    assert forest.extend(points).score(points).tobytes() == resumed.extend(points).score(points).tobytes()


def test_the_same_forest_gives_the_same_file(tmp_path):
    grown = MondrianForest(n_trees=3).extend(X)
    one = saved(tmp_path, grown).read_bytes()
    assert saved(tmp_path, imondrian.load(tmp_path / "model.imf")).read_bytes() == one


def test_a_file_is_a_zip_of_plain_arrays(tmp_path):
    with zipfile.ZipFile(saved(tmp_path, MondrianForest(n_trees=3).build(X))) as archive:
        header = json.loads(archive.read("header.json"))
        assert (header["format"], header["version"]) == ("imondrian forest", 3)
        times = np.load(io.BytesIO(archive.read("cuts.split_time.npy")), allow_pickle=False)
        assert times.shape == (3, 120)
        points = np.load(io.BytesIO(archive.read("points.npy")), allow_pickle=False)
        assert sorted(points.tolist()) == sorted(X.tolist())


def test_no_value_of_a_forgotten_point_is_written(tmp_path):
    forest = MondrianForest(n_trees=5, max_samples=8).build(np.vstack([X[:20], [[1234.5, 77.25, 3.125]]]))
    path = saved(tmp_path, forest.forget([[1234.5, 77.25, 3.125]]))
    assert np.float64(1234.5).tobytes() not in path.read_bytes()


def test_a_forest_that_has_forgotten_all_points_can_be_saved(tmp_path):
    resumed = imondrian.load(saved(tmp_path, MondrianForest(n_trees=2).build(X).forget(X)))
    assert resumed.extend(X).n_points == 120


def test_a_forest_with_empty_samples_can_be_saved(tmp_path):
    forest = MondrianForest(n_trees=1, max_samples=2, scale="std").extend(X[:6])
    forest.forget(X[:6][forest.n_trees_holding(X[:6]) > 0])
    assert imondrian.load(saved(tmp_path, forest)).n_points == 4
    assert imondrian.load(saved(tmp_path, forest.extend(X))).n_points == 124


def test_a_forest_without_points_cannot_be_saved(tmp_path):
    with pytest.raises(EmptyForestError):
        saved(tmp_path, MondrianForest())
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_raises_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        imondrian.load(tmp_path / "none.imf")


def test_saving_keeps_the_mode_and_the_links_of_an_existing_file(tmp_path):
    path = saved(tmp_path, MondrianForest(n_trees=1).build(X))
    path.chmod(0o600)
    link = tmp_path / "link.imf"
    link.symlink_to(path)
    imondrian.save(MondrianForest(n_trees=2).build(X), link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600
    assert imondrian.load(path).n_trees == 2


def test_a_new_file_has_the_usual_mode(tmp_path):
    path, plain = saved(tmp_path, MondrianForest(n_trees=1).build(X)), tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


def test_saving_never_changes_the_umask(tmp_path, monkeypatch):
    """It holds for all threads, and an interruption must not leave it changed."""
    monkeypatch.delattr("os.umask")
    path = saved(tmp_path, MondrianForest(n_trees=1).build(X))
    path.chmod(0o640)
    assert saved(tmp_path, MondrianForest(n_trees=2).build(X)).stat().st_mode & 0o777 == 0o640


# -- interrupted saves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["numpy.lib.format.write_array", "os.fsync", "imondrian.base.sealed_zip._digest"])
@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, where, error):
    path = saved(tmp_path, MondrianForest(n_trees=2).build(X))
    before = path.read_bytes()

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(where, fail)
    with pytest.raises(type(error)):
        imondrian.save(MondrianForest(n_trees=3).build(NEW), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_interruption_while_a_member_is_opened_is_not_replaced_by_an_error_of_the_zip(tmp_path, monkeypatch):
    path = saved(tmp_path, MondrianForest(n_trees=2).build(X))
    before, open_member = path.read_bytes(), zipfile.ZipFile.open

    def opened_and_interrupted(*arguments, **options):
        open_member(*arguments, **options).write(b"a")
        raise KeyboardInterrupt

    def interrupted(self, *arguments, **options):
        self._writing = True  # as `ZipFile.open` does before it writes the header of the member
        raise KeyboardInterrupt

    for fail in (opened_and_interrupted, interrupted):
        with monkeypatch.context() as patch:
            patch.setattr(zipfile.ZipFile, "open", fail)
            with pytest.raises(KeyboardInterrupt):
                imondrian.save(MondrianForest(n_trees=3).build(NEW), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


KILLED_WHILE_SAVING = """
import os, signal, sys
import imondrian.models.storage as storage
from imondrian import MondrianForest
import numpy as np
write, left = np.lib.format.write_array, [int(sys.argv[2])]
def write_some(*arguments, **options):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    write(*arguments, **options)
np.lib.format.write_array = write_some
storage.save(MondrianForest(n_trees=3).build([[1.0], [2.0]]).snapshot(), sys.argv[1])
"""


@pytest.mark.parametrize("n_arrays", [0, 5])
def test_a_killed_save_leaves_the_old_file_intact(tmp_path, n_arrays):
    path = saved(tmp_path, MondrianForest(n_trees=2).build(X))
    before = path.read_bytes()
    command = [sys.executable, "-c", KILLED_WHILE_SAVING, str(path), str(n_arrays)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    assert imondrian.load(path).n_points == 120


# -- damaged files: 2,000 and more ------------------------------------------------------------------------------


def former_bytes(model):
    """Return a model file of version 2."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(packed_trees, "MAX_EXPANSION", 0)  # as if the file could not be read in version 3
        return to_bytes(model)


SOUND_FILES = {"sample": (to_bytes, None), "window": (to_bytes, 12)}
FORMER_FILES = {"sample 2": (former_bytes, None), "window 2": (former_bytes, 12)}


def sound_file(name):
    """Return the bytes of a sound file that is small enough to be damaged thousands of times."""
    as_bytes, window = (SOUND_FILES | FORMER_FILES)[name]
    return as_bytes(MondrianForest(n_trees=2, max_samples=6, window=window, scale="std").build(np.round(X[:12], 3)))


@pytest.fixture(scope="module", params=[*SOUND_FILES, *FORMER_FILES])
def whole(request):
    return sound_file(request.param)


def version_of(content):
    return json.loads(members(content)["header.json"])["version"]


def is_rejected(path, content):
    """Return True if loading these bytes raises DamagedFileError with the name of the file."""
    path.write_bytes(content)
    try:
        imondrian.load(path)
    except DamagedFileError as error:
        return str(error).startswith(str(path))
    return False


def sealed(content):
    """Replace the digest of a zip by the matching one, as someone who alters a file on purpose would."""
    body = content[:-64]
    return body + hashlib.sha256(body).hexdigest().encode()


def members(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(parts, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.comment = b"-" * 64
        for name, content in parts.items():
            archive.writestr(name, content)
    return sealed(buffer.getvalue())


def as_npy(array, **options):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


def as_array(content):
    return np.load(io.BytesIO(content), allow_pickle=False)


def test_a_sound_file_is_accepted_however_it_was_zipped(tmp_path, whole):
    for content in (whole, zipped(members(whole))):
        (tmp_path / "model.imf").write_bytes(content)
        assert imondrian.load(tmp_path / "model.imf").n_points == 12


def test_400_truncated_files_are_rejected(tmp_path, whole):
    lengths = np.unique(np.linspace(0, len(whole) - 1, 400).astype(int))
    assert len(lengths) == 400
    assert all(is_rejected(tmp_path / "cut.imf", whole[:length]) for length in lengths)
    assert is_rejected(tmp_path / "long.imf", whole + b"\0")


@pytest.mark.parametrize("whole", SOUND_FILES, indirect=True)
def test_1000_files_with_a_flipped_bit_are_rejected(tmp_path, whole):
    rng = np.random.default_rng(1)
    for place, bit in zip(rng.choice(len(whole), 1000, replace=False), rng.integers(8, size=1000), strict=True):
        content = bytearray(whole)
        content[place] ^= 1 << bit
        assert is_rejected(tmp_path / "flipped.imf", bytes(content)), (place, bit)


def test_600_sealed_files_with_a_random_byte_never_crash_and_are_sound_if_accepted(tmp_path, whole):
    """With a matching digest, a changed byte may give another sound forest, but never an unsound one."""
    rng = np.random.default_rng(2)
    n_rejected = 0
    for place, byte in zip(rng.choice(len(whole) - 64, 600), rng.integers(256, size=600), strict=True):
        content = bytearray(whole)
        content[place] = byte
        if is_rejected(tmp_path / "altered.imf", sealed(bytes(content))):
            n_rejected += 1
        else:
            forest = imondrian.load(tmp_path / "altered.imf")
            forest.extend(NEW).forget(NEW[-5:])
            assert np.isfinite(forest.score(NEW, "size")).all()
    assert n_rejected > 300


def test_sealed_files_with_wrong_indices_are_rejected(tmp_path, whole):
    """Every entry of every array of node numbers and counts is replaced by other, cyclic or invalid numbers."""
    parts, n_files = members(whole), 0
    names = ["cuts.left.npy", "cuts.right.npy", "heads.root.npy", "heads.n_leaves.npy", "cuts.split_feature.npy"]
    names += ["copies.npy", *(["leaves.npy"] if version_of(whole) == 3 else ["parents.npy", "cuts.population.npy"])]
    for name in names:
        array = as_array(parts[name])
        for place in range(array.size):
            for value in (0, 2, 2**31, 2**32 - 1):
                damaged = array.astype(array.dtype if name.startswith("heads") else np.uint32)
                damaged.flat[place] = value
                if (damaged != array).any() and not (name == "cuts.split_feature.npy" and value < 3):
                    n_files += 1
                    assert is_rejected(tmp_path / "altered.imf", zipped({**parts, name: as_npy(damaged)})), (
                        name,
                        place,
                        value,
                    )
    assert n_files > 200


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e160, -100.0])
def test_sealed_files_with_wrong_numbers_are_rejected(tmp_path, whole, value):
    parts = members(whole)
    names = {"points.npy", "boxes.npy", "ring.npy", "cuts.split_time.npy", "cuts.split_value.npy", "moments.npy"}
    for name in names & set(parts):
        array = as_array(parts[name]).copy()
        if array.size == 0 or (value == -100.0 and name in ("points.npy", "ring.npy")):
            continue  # another point may be sound
        array.flat[0] = value
        assert is_rejected(tmp_path / "altered.imf", zipped({**parts, name: as_npy(array)})), name


def test_sealed_files_with_wrong_shapes_and_types_are_rejected(tmp_path, whole):
    parts = members(whole)
    for name in [name for name in parts if name.endswith(".npy")]:
        array = as_array(parts[name])
        damaged = [array[..., None], array.astype(np.float32), array.astype(">f8")]
        damaged += [array.astype(">u4"), array.astype(np.int32)] if array.dtype.kind == "u" else []
        damaged += [array[:1], array.ravel()[:0]] if array.size else []
        if array.ndim > 1:
            damaged += [np.asfortranarray(array)] if array.shape[-1] > 1 and array.size else []
            damaged += [array[:, :-1], np.concatenate([array, array], axis=1)]
        for i, wrong in enumerate(damaged):
            assert is_rejected(tmp_path / "wrong.imf", zipped({**parts, name: as_npy(wrong)})), (name, i)
        assert is_rejected(tmp_path / "wrong.imf", zipped({**parts, name: parts[name][:-1]}))
        assert is_rejected(tmp_path / "wrong.imf", zipped({**parts, name: parts[name] + b"\0"}))
        assert is_rejected(tmp_path / "wrong.imf", zipped({**parts, name: b""}))
        assert is_rejected(tmp_path / "wrong.imf", zipped({k: v for k, v in parts.items() if k != name}))


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': ('<f8',), 'fortran_order': False, 'shape': (2, 6, 3)}",
        b"{'descr': (",
        b"-" * 9000 + b"1",
        b"2L",
        b"",
    ],
    ids=["odd type", "open", "deep", "old integer", "empty"],
)
def test_a_sealed_file_with_a_broken_array_header_is_rejected(tmp_path, whole, header):
    parts = members(whole)
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    assert is_rejected(tmp_path / "wrong.imf", zipped({**parts, "points.npy": start + bytes(288)}))


def test_a_sealed_file_with_impossible_counters_is_rejected(tmp_path, whole):
    parts = members(whole)
    wrong_number = 0 if "ring.npy" not in parts else 13  # a window has no sample with a next point to accept
    for name, value in (("n_points", 2**62 - 1), ("n_owed", 2**62), ("next_kept", wrong_number), ("n_points", -1)):
        array = as_array(parts[f"heads.{name}.npy"]).copy()
        array[0] = value
        assert is_rejected(tmp_path / "wrong.imf", zipped({**parts, f"heads.{name}.npy": as_npy(array)})), name


def test_a_sealed_file_with_moments_of_fewer_points_is_rejected(tmp_path, whole):
    parts = members(whole)
    if "ring.npy" in parts:
        pytest.skip("the moments of a window are those of its last step, when it may have been empty")
    assert is_rejected(tmp_path / "wrong.imf", zipped({**parts, "moments.npy": as_npy(np.zeros((3, 3)))}))


@pytest.mark.parametrize("whole", ["window", "window 2"], indirect=True)
def test_sealed_files_with_an_impossible_window_are_rejected(tmp_path, whole):
    parts = members(whole)
    ring, clock = as_array(parts["ring.npy"]), as_array(parts["clock.npy"])
    for place, value in ((0, -1), (0, 5), (0, 2**62), (1, 0), (1, 12), (1, 14), (1, 2**62)):
        wrong = clock.copy()
        wrong[place] = value
        assert is_rejected(tmp_path / "wrong.imf", zipped({**parts, "clock.npy": as_npy(wrong)})), (place, value)
    for value in (np.nan, np.inf, 1e200, 5.5):
        wrong = ring.copy()
        wrong[3, 1] = value  # 5.5: a tree holds a point that the window does not
        assert is_rejected(tmp_path / "wrong.imf", zipped({**parts, "ring.npy": as_npy(wrong)})), value
    for name, value in (("next_number", 11), ("lot", 1), ("n_taken", -1), ("n_outside", 99), ("level", np.inf)):
        wrong = as_array(parts[f"heads.{name}.npy"]).copy()
        wrong[0] = value
        assert is_rejected(tmp_path / "wrong.imf", zipped({**parts, f"heads.{name}.npy": as_npy(wrong)})), name


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_in_a_file_is_rejected_and_not_loaded(tmp_path, whole):
    trace, parts = tmp_path / "trace", members(whole)
    bomb = np.array([[Bomb(trace)]], dtype=object)
    for name in ("points.npy", "moments.npy", "heads.root.npy"):
        assert is_rejected(tmp_path / "bomb.imf", zipped({**parts, name: as_npy(bomb, allow_pickle=True)}))
        assert is_rejected(tmp_path / "bomb.imf", zipped({**parts, name: pickle.dumps(Bomb(trace))}))
    assert is_rejected(tmp_path / "bomb.imf", zipped({**parts, "more.pkl": pickle.dumps(Bomb(trace))}))
    assert is_rejected(tmp_path / "bomb.imf", pickle.dumps(Bomb(trace)))
    assert not trace.exists()


def with_header(parts, **changes):
    header = json.loads(parts["header.json"])
    for name, value in changes.items():
        (header if name in header else header["parameters"])[name] = value
    return zipped({**parts, "header.json": json.dumps(header)})


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 4},
        {"version": 0},
        {"version": "1"},
        {"format": "another"},
        {"n_features": 2},
        {"n_features": 0},
        {"n_features": -3},
        {"n_features": 3.0},
        {"n_features": 2**40},
        {"n_slots": 10**9},
        {"n_slots": 10**30},
        {"n_slots": None},
        {"parameters": []},
        {"parameters": {}},
        {"n_trees": 1},
        {"n_trees": 10**9},
        {"n_trees": True},
        {"n_trees": "2"},
        {"max_samples": 5},
        {"max_samples": -1},
        {"max_samples": [6]},
        {"scale": "mad"},
        {"scale": [1.0, 2.0]},
        {"scale": [1.0, 2.0, -3.0]},
        {"scale": {"a": 1}},
        {"seed": -1},
        {"seed": 0.5},
        {"n_jobs": 0},
        {"surprise": 1},
    ],
)
def test_a_sealed_file_with_a_wrong_header_is_rejected(tmp_path, whole, changes):
    assert is_rejected(tmp_path / "wrong.imf", with_header(members(whole), **changes))


@pytest.mark.parametrize(
    "header",
    [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b'{"format": "imondrian forest"}', b"NaN", b" " * 2**25],
    ids=["empty", "list", "null", "cut", "not text", "deep", "short", "NaN", "long"],
)
def test_a_sealed_file_with_a_broken_header_is_rejected(tmp_path, whole, header):
    assert is_rejected(tmp_path / "wrong.imf", zipped({**members(whole), "header.json": header}))


def test_files_that_are_not_model_files_are_rejected(tmp_path, whole):
    for content in (
        b"",
        b"x",
        b"-" * 64,
        b"a,b\n1,2\n" * 50,
        os.urandom(1000),
        sealed(b"PK" + bytes(500)),
        bytes(5000),
    ):
        assert is_rejected(tmp_path / "other.imf", content)
    assert is_rejected(tmp_path / "other.imf", zipped(members(whole), zipfile.ZIP_DEFLATED))
    assert is_rejected(tmp_path / "other.imf", zipped({"header.json": members(whole)["header.json"]}))
    assert is_rejected(tmp_path / "other.imf", with_a_member_twice(members(whole)))


def with_a_member_twice(parts):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = b"-" * 64
        for name, content in parts.items():
            archive.writestr(name, content)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("points.npy", b"")
    return sealed(buffer.getvalue())


def test_the_error_says_what_is_wrong(tmp_path, whole):
    parts = members(whole)
    left = as_array(parts["cuts.left.npy"]).copy()
    left[1, 0] = left[1, 1]
    path = tmp_path / "model.imf"
    path.write_bytes(zipped({**parts, "cuts.left.npy": as_npy(left)}))
    problem = "a child is the root or has another parent" if version_of(whole) == 3 else "a child names another parent"
    with pytest.raises(DamagedFileError, match=rf"model.imf: tree 1 is damaged: {problem}: slot [01]"):
        imondrian.load(path)
    path.write_bytes(with_header(parts, version=7))
    with pytest.raises(DamagedFileError, match=r"its version is 7; this library reads versions 1 to 3"):
        imondrian.load(path)


def test_an_estimator_with_a_random_state_of_numpy_can_be_saved(tmp_path):
    for seed in (np.random.RandomState(3), None, np.int64(3)):
        model = imondrian.IsolationMondrianForest(n_estimators=3, random_state=seed)
        imondrian.save(model.fit(X), tmp_path / "model.imf")
        np.testing.assert_array_equal(imondrian.load(tmp_path / "model.imf").predict(X), model.predict(X))


JSON_VALUES = st.recursive(
    st.none() | st.integers() | st.text('[]{}:"\\\\/nu \u00e9\u2230', max_size=8),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text('[{:"\\\\', max_size=4), values, max_size=4),
)


def counts_in(value):
    """Return the numbers of lists and objects, and of keys, in a JSON value."""
    if not isinstance(value, (list, dict)):
        return np.zeros(2, int)
    parts = value if isinstance(value, list) else value.values()
    return np.array([1, 0 if isinstance(value, list) else len(value)]) + sum(map(counts_in, parts), np.zeros(2, int))


@given(value=JSON_VALUES, separator=st.sampled_from([":", " :", " \n: "]), is_ascii=st.booleans())
def test_lists_objects_and_keys_are_counted_outside_strings_only(value, separator, is_ascii):
    text = json.dumps(value, ensure_ascii=is_ascii, separators=(",", separator)).encode()
    syntax = outside_strings(text)
    assert [syntax.count(b"[") + syntax.count(b"{"), syntax.count(b":")] == counts_in(value).tolist()


def test_names_of_features_may_contain_many_brackets():
    detector = StreamDetector(600, n_trees=1, window=2, max_samples=2)
    detector.process({f"{i} " + '[{":' * 200: float(i) for i in range(600)})
    assert from_bytes(to_bytes(detector)).feature_names == detector.feature_names


LISTS = [("[", "[],", "0]"), ("[", "{},", "0]")]


@pytest.mark.parametrize("start", ['{"x": "\\\\", "a": ', '{"x": "\\"[{:", "a": ', '{"x": "[\\\\\\"", "a": '])
@pytest.mark.parametrize(
    ("opening", "filling", "end"), [*LISTS, ("{", '"a" :0,', '"b" :0}'), ("{", '"a"\t:0,', '"b":0}')]
)
def test_too_many_lists_objects_or_keys_are_rejected(tmp_path, whole, start, opening, filling, end):
    parts = members(whole)
    notes = f'"notes": {start}{opening}{filling * 2**17}{end}}}'.encode()
    header = parts["header.json"].replace(b'"notes": {}', notes)
    assert header != parts["header.json"]
    path = tmp_path / "wrong.imf"
    path.write_bytes(zipped({**parts, "header.json": header}))
    with pytest.raises(DamagedFileError, match="lists, objects or keys"):
        imondrian.load(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
def test_a_header_in_another_encoding_is_rejected(tmp_path, whole, encoding):
    parts = members(whole)
    header = parts["header.json"].decode().encode(encoding)
    assert is_rejected(tmp_path / "wrong.imf", zipped({**parts, "header.json": header}))

"""The stream detector: results do not depend on how a stream is divided into calls or saved to files."""

import collections
import json
import signal
import tracemalloc
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import imondrian
from imondrian import EmptyForestError, InvalidInputError, MondrianForest, StreamDetector
from imondrian.base.categories import category_code
from imondrian.base.defaults import PRESETS
from imondrian.models import storage
from imondrian.stream.shingles import Shingle
from tests.interruptions import ignore_alarms

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
X[::37] *= 6.0
SMALL = {"n_features": 3, "window": 64, "max_samples": 16, "n_trees": 7, "threshold": "kmeans", "seed": 3}
VARIANTS = [
    {},
    {"preset": "paper"},
    {"threshold": "preset"},
    {"max_samples": None},
    {"threshold": 0.05, "warm_up": 0},
    {"threshold": 0.5, "learn_anomalies": False},
    {"threshold": 0.1, "learn_anomalies": False, "warm_up": 0},
    {"threshold": "top 5%"},
    {"threshold": "surprise 1.5", "rules": {"gap": 3, "min_points": 2, "cooldown": 10}},
    {"threshold": 0.1, "rules": {"gap": 7, "side": {0: "high", 2: "low"}, "ignore_within": {1: "50%"}}},
    {"shingle": 3},
    {"window": 5, "max_samples": 2},
    {"window": 1},
    {"kind": "expected", "scale": None},
    {"preset": "paper", "kind": "size", "scale": [1.0, 0.5, 2.0]},
    {"kind": "depth", "scale": "std", "shingle": 2},
]


def detector_of(**settings):
    return StreamDetector(**(SMALL | settings))


def state_of(detector):
    """Return the complete state of a detector."""
    (_, trees, arrays), notes = detector.snapshot()
    return [a.tobytes() for a in (*trees, *arrays.values())], json.dumps(notes)


def one_by_one(detector, rows):
    """Return the results of `process`, as `process_many` returns them: -1 stands for no incident."""
    results = [result._replace(incident=number_of(result)) for result in map(detector.process, rows)]
    return [np.array(column) for column in zip(*results, strict=True)]


def number_of(result):
    return -1 if result.incident is None else result.incident


@pytest.mark.parametrize("variant", VARIANTS)
def test_process_many_equals_process_bit_for_bit(variant):
    many, one = detector_of(**variant), detector_of(**variant)
    results, expected = many.process_many(X), one_by_one(one, X)
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert state_of(many) == state_of(one)


@given(ends=st.lists(st.integers(0, 200), max_size=5), n_jobs=st.sampled_from([1, 2]))
def test_results_do_not_depend_on_the_division_into_calls(ends, n_jobs):
    whole, pieces = detector_of(), detector_of(n_jobs=n_jobs)
    expected = whole.process_many(X[:200])
    parts = [pieces.process_many(rows) for rows in np.split(X[:200], sorted(ends))]
    for ours, theirs in zip(zip(*parts, strict=True), expected, strict=True):
        np.testing.assert_array_equal(np.concatenate(ours), theirs)
    assert state_of(whole)[0] == state_of(pieces)[0]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n_before", [0, 1, 150])
def test_saved_and_resumed_equals_never_saved(tmp_path, variant, n_before):
    reference = detector_of(**variant)
    reference.process_many(X[:n_before])
    imondrian.save(reference, tmp_path / "detector.imf")
    resumed = imondrian.load(tmp_path / "detector.imf")
    assert repr(resumed) == repr(reference)
    assert state_of(resumed) == state_of(reference)
    for ours, theirs in zip(resumed.process_many(X[n_before:]), reference.process_many(X[n_before:]), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert state_of(resumed) == state_of(reference)


def test_a_point_is_scored_before_it_is_learned():
    detector = detector_of(max_samples=None)
    detector.process_many(X[:100])
    ahead = detector.score([[50.0, 0.0, 0.0]])
    assert detector.score([[50.0, 0.0, 0.0]]) == ahead  # scoring changes nothing
    assert detector.process([50.0, 0.0, 0.0]).score == ahead
    detector.process_many(np.tile([[50.0, 0.0, 0.0]], (30, 1)))
    assert detector.process([50.0, 0.0, 0.0]).score < 0.5  # by now, there are many such points


def test_scores_are_those_of_the_forest():
    """For kinds without typical log sizes, scores are those of calling `score_one` and `extend_one` for each row."""
    detector, forest = detector_of(preset="paper"), MondrianForest(7, max_samples=16, scale=None, seed=3, window=64)
    for i, x in enumerate(X[:150]):
        expected = 0.5 if i == 0 else forest.score_one(x)
        assert detector.process(x).score == pytest.approx(expected, rel=1e-14)
        forest.extend_one(x)


def test_scores_of_size_are_close_to_those_of_the_current_forest():
    detector = StreamDetector(3, window=512, max_samples=128, n_trees=50, threshold="kmeans", seed=1)
    detector.process_many(RNG.normal(size=(2000, 3)))
    rows = RNG.normal(size=(100, 3))
    np.testing.assert_allclose(detector.score(rows), detector.forest.score(rows, "size"), atol=0.02)


def test_memory_is_known_before_the_first_point_and_does_not_change():
    detector = detector_of(shingle=2)
    n_bytes = detector.n_bytes
    assert n_bytes > 0
    for rows in np.split(X, 10):
        detector.process_many(rows)
        assert detector.n_bytes == n_bytes
    assert StreamDetector(10).n_bytes < 14e6  # 100 trees, 256 of 2,048


def test_no_point_is_flagged_during_the_warm_up():
    rows = np.vstack([X[:30], [[1e6, 1e6, 1e6]], X[30:60], [[1e9, 1e9, 1e9]]])
    results = detector_of(threshold=0.5, warm_up=40).process_many(rows)
    assert not results.is_anomaly[:40].any()
    assert results.is_anomaly[-1]
    assert results.score[30] > 0.5 == results.threshold[30]


def test_flagged_points_are_not_learned_if_learn_anomalies_is_false():
    detector = detector_of(threshold=0.5, learn_anomalies=False)
    detector.process_many(RNG.normal(size=(100, 3)))
    results = detector.process_many(np.tile([[9.0, 9.0, 9.0]], (200, 1)))
    assert results.is_anomaly.all()
    assert (detector.forest.n_trees_holding([[9.0, 9.0, 9.0]]) == 0).all()


@pytest.mark.parametrize("variant", VARIANTS[:4])
def test_a_stream_that_never_changes_has_no_anomalies(variant):
    results = detector_of(**variant).process_many(np.tile([[9.0, 9.0, 9.0]], (200, 1)))
    assert (results.score == 0.5).all()
    assert not results.is_anomaly.any()


def test_the_detector_adapts_to_a_change_within_one_and_a_half_windows():
    rng = np.random.default_rng(5)
    for preset in PRESETS:
        detector = StreamDetector(4, window=512, max_samples=128, n_trees=50, preset=preset, threshold=0.05)
        old, new = rng.normal(0.0, 1.0, (2000, 4)), rng.normal(30.0, 1.0, (768, 4))
        detector.process_many(old)
        first = detector.process_many(new).score[:8]
        assert (first > 0.6).all()  # anomalous at first
        then_old, then_new = detector.score(old[:200]), detector.score(rng.normal(30.0, 1.0, (200, 4)))
        assert (then_old > detector.threshold_score).all()
        assert (then_new > detector.threshold_score).mean() < 0.2


# -- rows of any type -------------------------------------------------------------------------------------------------


def test_rows_of_any_type_give_the_same_scores():
    names = ["a", "b", "c"]
    expected = detector_of().process_many(X[:50]).score
    frame = pd.DataFrame(X[:50], columns=names)
    dictionaries = frame.to_dict("records")
    backwards = [dictionaries[0], *({name: x[name] for name in reversed(names)} for x in dictionaries[1:])]
    for rows in (frame, pl.DataFrame(frame), dictionaries, backwards, iter(dictionaries), X[:50].tolist()):
        detector = detector_of()
        np.testing.assert_array_equal(detector.process_many(rows).score, expected)
    detector = detector_of()
    assert [detector.process(x).score for x in backwards] == expected.tolist()
    assert detector.feature_names == names


def test_rows_with_one_feature_can_be_numbers():
    one, many = (StreamDetector(1, window=16, n_trees=3) for _ in range(2))
    values = RNG.normal(size=30)
    assert [one.process(value).score for value in values.tolist()] == many.process_many(values).score.tolist()


BAD_ROWS = {
    "NaN": [1.0, float("nan"), 2.0],
    "infinite": [1.0, float("inf"), 2.0],
    "too wide": [1.0, 2.0, 3.0, 4.0],
    "too narrow": [1.0],
    "a number": 3.0,
    "text": ["a", "b", "c"],
    "nothing": None,
    "a missing key": {"a": 1.0, "b": 2.0},
    "another key": {"a": 1.0, "b": 2.0, "z": 3.0},
    "a string in a dictionary": {"a": 1.0, "b": "2", "c": 3.0},
    "a value of None": {"a": 1.0, "b": None, "c": 3.0},
    "NaN in a dictionary": {"a": 1.0, "b": float("nan"), "c": 3.0},
}


def named():
    return [dict(zip("abc", row, strict=True)) for row in X[:80]]


@pytest.mark.parametrize("bad", BAD_ROWS.values(), ids=BAD_ROWS)
@pytest.mark.parametrize("shingle", [1, 3])
def test_a_bad_row_raises_an_error_and_does_not_change_the_state(bad, shingle):
    detector = detector_of(shingle=shingle, missing="raise")
    detector.process_many(named())
    before = state_of(detector)
    with pytest.raises(InvalidInputError):
        detector.process(bad)
    with pytest.raises(InvalidInputError, match="Row 2"):
        detector.process_many([X[0], X[1], bad, X[2]])
    assert state_of(detector) == before


@pytest.mark.parametrize("bad", BAD_ROWS.values(), ids=BAD_ROWS)
@pytest.mark.parametrize("shingle", [1, 3])
def test_a_bad_row_can_be_skipped(bad, shingle):
    reference, one, many = (detector_of(shingle=shingle, on_error="skip", missing="raise") for _ in range(3))
    good, rest = named(), X[80:120]
    expected = np.concatenate([reference.process_many(good).score, reference.process_many(rest).score])
    for x in [*good, bad, *rest]:
        result = one.process(x)
        assert (result.score != result.score) == (x is bad)
    results = many.process_many([*good, bad, *rest])
    assert np.flatnonzero(np.isnan(results.score)).tolist() == [len(good)]
    np.testing.assert_array_equal(np.delete(results.score, len(good)), expected)
    assert results.index.tolist() == list(range(121))
    assert one.n_skipped == many.n_skipped == 1
    assert state_of(one) == state_of(many)
    assert state_of(one)[0] == state_of(reference)[0]


def test_bad_rows_of_frames_and_arrays_can_be_skipped():
    rows = X[:20].copy()
    rows[7, 1] = np.nan
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    for table in (rows, frame, pl.DataFrame(frame)):
        results = detector_of(on_error="skip", missing="raise").process_many(table)
        assert np.flatnonzero(np.isnan(results.score)).tolist() == [7]
    wrong = detector_of(on_error="skip")
    assert np.isnan(wrong.process_many(X[:5, :2]).score).all()
    assert wrong.n_skipped == 5


def test_the_first_row_must_name_every_feature():
    with pytest.raises(InvalidInputError, match="x has 2 features, but there should be 3"):
        detector_of().process({"a": 1.0, "b": 2.0})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_features": 0}, "n_features must be between 1"),
        ({"window": 0}, "window must be between 1"),
        ({"max_samples": 0}, "max_samples must be between 1"),
        ({"n_trees": 2.5}, "n_trees must be an integer"),
        ({"threshold": "median"}, "threshold must be 'auto', a probability below 0.5, .* but is 'median'"),
        ({"threshold": 0.7}, "must be 'auto', a probability below 0.5, .* but is 0.7"),
        ({"threshold": "top 60%"}, "but is 'top 60%'"),
        ({"rules": {"gap": 0}}, "gap must be between 1"),
        ({"rules": {"length": 3}}, "but 'length' is given"),
        ({"rules": {"side": {"a": "up"}}}, "side must be one of high, low, both, but is 'up'"),
        ({"rules": {"ignore_within": {0: "5"}}}, "or a share such as '10%', but is '5'"),
        ({"rules": {"ignore_within": {0: -1.0}}}, "at least 0, .* but is -1.0"),
        ({"rules": 3}, "rules must be IncidentRules or a dictionary, but is 3"),
        ({"preset": "best"}, "preset must be one of practice, paper, series, but is 'best'"),
        ({"kind": "width"}, "width"),
        ({"kind": None}, "None"),
        ({"scale": "mean"}, "mean"),
        ({"scale": [1.0, 2.0]}, "scale"),
        ({"warm_up": -1}, "warm_up must be between 0"),
        ({"shingle": 0}, "shingle must be between 1"),
        ({"on_error": "ignore"}, "on_error must be one of"),
        ({"learn_anomalies": 1}, "learn_anomalies must be one of"),
        ({"seed": -1}, "seed must be between 0"),
        ({"n_jobs": 0}, "n_jobs must not be 0"),
    ],
)
def test_bad_parameters_are_named(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        detector_of(**settings)


def test_an_empty_batch_changes_nothing():
    detector = detector_of()
    before = state_of(detector)
    assert [len(column) for column in detector.process_many([])] == [0] * 6
    assert [len(column) for column in detector.process_many(np.empty((0, 3)))] == [0] * 6
    assert state_of(detector) == before


# -- shingles, explanations, scores of the window ---------------------------------------------------------------------


@given(size=st.integers(1, 5), ends=st.lists(st.integers(0, 12), max_size=4))
def test_a_shingle_concatenates_the_last_rows(size, ends):
    rows = np.arange(24.0).reshape(12, 2)
    shingle = Shingle(size, 2)
    found = np.vstack([shingle.points(part) for part in np.split(rows, sorted(ends))])
    expected = [rows[i - size + 1 : i + 1].ravel() for i in range(size - 1, 12)]
    np.testing.assert_array_equal(found, expected)


def test_a_detector_with_a_shingle_finds_an_unusual_shape():
    """The values are ordinary, but occur at the wrong time."""
    wave = np.sin(np.arange(2000) / 5.0)
    wave[1500:1503] = 0.0
    results = StreamDetector(1, window=1024, n_trees=50, shingle=8, threshold=0.02).process_many(wave)
    assert 1500 <= np.argmax(results.score[500:]) + 500 <= 1510
    assert results.score[:7].tolist() == [0.5] * 7


def test_explanations_sum_to_the_score_and_name_the_feature():
    detector = detector_of(max_samples=None)
    detector.process_many(named())
    parts = detector.explain({"a": 0.0, "b": -9.0, "c": 0.0})
    assert min(parts, key=parts.get) == "b"
    assert sum(map(abs, parts.values())) == pytest.approx(detector.score([{"a": 0.0, "b": -9.0, "c": 0.0}])[0])
    shingled = detector_of(shingle=2)
    assert list(shingled.explain(X[0])) == [(j, ago) for ago in (1, 0) for j in range(3)]
    shingled.process_many(X[:100])
    assert max(shingled.explain([99.0, 0.0, 0.0]).items(), key=lambda item: item[1])[0] == (0, 0)


@pytest.mark.parametrize("max_samples", [16, None])
def test_rescore_returns_the_window_oldest_first(max_samples):
    detector = detector_of(max_samples=max_samples, preset="paper")
    detector.process_many(X[:200])
    points, scores = detector.rescore()
    np.testing.assert_array_equal(points, X[136:200])
    np.testing.assert_allclose(scores, detector.forest.score(points), rtol=1e-12)


# -- files ------------------------------------------------------------------------------------------------------------


def damaged_notes():
    yield "parameters", {"n_features": 3, "window": 65}
    yield "names", ["a"]
    yield "shingle", [[1.0, 2.0, 3.0]]
    yield "counts", [1, 2, 3]
    yield "counts", [-1, 0, 0, 0]
    yield "threshold", {"histogram": [[0.0]], "weight": 1.0}
    monitor = detector_of().notes()["monitor"]
    yield "monitor", monitor | {"was_odd": 1}
    yield "monitor", monitor | {"present": [0.0]}
    yield "monitor", monitor | {"moments": [[float("nan")] * 3] * 2}
    yield "monitor", monitor | {"began": [-2, 0]}
    yield "monitor", monitor | {"counts": [1]}
    yield "drifts", [[1, 2]]


@pytest.mark.parametrize(("name", "value"), list(damaged_notes()))
def test_damaged_notes_are_rejected(tmp_path, name, value):
    detector = detector_of()
    detector.process_many(X[:100])
    notes = detector.notes() | {name: value}
    storage.save(detector.forest.snapshot(), tmp_path / "detector.imf", {"StreamDetector": notes})
    with pytest.raises(imondrian.DamagedFileError, match=r"detector\.imf"):
        imondrian.load(tmp_path / "detector.imf")


@pytest.mark.parametrize("window", [2**28, 65])
def test_notes_of_another_forest_are_rejected_before_memory_is_allocated(tmp_path, window):
    detector = detector_of()
    detector.process_many(X[:100])
    notes = detector.notes()
    notes["parameters"] |= {"window": window}
    storage.save(detector.forest.snapshot(), tmp_path / "detector.imf", {"StreamDetector": notes})
    with pytest.raises(imondrian.DamagedFileError, match="the forest does not match the parameters of the detector"):
        imondrian.load(tmp_path / "detector.imf")


def test_a_detector_with_a_changed_number_of_threads_can_be_restored(tmp_path):
    detector = detector_of()
    detector.process_many(X[:100])
    detector.forest.n_jobs = 2
    imondrian.save(detector, tmp_path / "detector.imf")
    assert imondrian.load(tmp_path / "detector.imf").process(X[0]) == detector.process(X[0])


# -- further cases ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that interrupts")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupted_batch_leaves_a_sound_detector(tmp_path, n_jobs):
    def interrupt(*_):
        raise KeyboardInterrupt

    rows = np.random.default_rng(3).normal(size=(60_000, 3))
    signal.signal(signal.SIGALRM, interrupt)
    n_interrupted = 0
    try:
        for i in range(12):
            detector = StreamDetector(3, n_trees=20, n_jobs=n_jobs)
            detector.process_many(rows[:300])
            signal.setitimer(signal.ITIMER_REAL, 0.01 + 0.004 * i)
            try:
                detector.process_many(rows)
            except KeyboardInterrupt:
                n_interrupted += 1
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            imondrian.save(detector, tmp_path / "detector.imf")
            resumed = imondrian.load(tmp_path / "detector.imf")
            np.testing.assert_array_equal(resumed.process_many(X).score, detector.process_many(X).score)
    finally:
        ignore_alarms()
    assert n_interrupted > 0


def test_forgetting_an_outlier_restores_weights_and_typical_log_sizes():
    detector = StreamDetector(2, window=512, n_trees=50, threshold=0.5)
    rows = np.random.default_rng(0).normal(size=(1160, 2))
    detector.process_many(rows[:1000])
    detector.process([1e6, 1e6])
    detector.process_many(rows[1000:1100])
    detector.forget([[1e6, 1e6]])
    assert abs(detector.process_many(rows[1100:]).score.mean() - 0.5) < 0.1


def test_forget_accepts_rows_of_any_type_and_forgets_all_or_none():
    detector, plain = detector_of(), detector_of()
    detector.process_many(named())
    plain.process_many(named())
    before = state_of(detector)
    with pytest.raises(InvalidInputError):
        detector.forget([*named()[-2:], {"a": 7.0, "b": 7.0, "c": 7.0}])
    assert state_of(detector) == before
    assert detector.forget(named()[-2:]) is detector
    plain.forest.forget([list(row.values()) for row in named()[-2:]])
    assert state_of(detector) == state_of(plain)


def test_single_rows_of_a_shingle_cannot_be_forgotten():
    detector = detector_of(shingle=2)
    detector.process_many(X[:50])
    with pytest.raises(InvalidInputError, match="a point consists of 2 rows"):
        detector.forget(X[49:50])


@pytest.mark.parametrize(
    "scale", [[1, 2, np.float32(3)], (1, 2, 3), pd.Series([1, 2, 3]), np.array([1, 2, 3], ">f4"), [1, Decimal(2), 3.0]]
)
def test_weights_of_any_type_can_be_saved(tmp_path, scale):
    detector = detector_of(scale=scale)
    assert detector.parameters["scale"] == [1.0, 2.0, 3.0]
    imondrian.save(detector, tmp_path / "model.imf")
    assert imondrian.load(tmp_path / "model.imf").parameters == detector.parameters


def test_kind_and_scale_override_the_preset():
    ours = detector_of(preset="practice", kind="depth", scale=None)
    np.testing.assert_array_equal(ours.process_many(X).score, detector_of(preset="paper").process_many(X).score)
    assert (ours.kind, detector_of().kind) == ("depth", "size")


def test_the_preset_determines_settings_that_are_not_given():
    for preset, threshold in (("practice", 0.001), ("paper", "kmeans")):
        detector = StreamDetector(2, preset=preset)
        parameters = detector.parameters
        assert (detector.kind, parameters["kind"]) == (PRESETS[preset].kind,) * 2
        assert parameters["scale"] == detector.forest.scale == PRESETS[preset].scale
        assert parameters["threshold"] == PRESETS[preset].threshold == threshold
        assert repr(StreamDetector(**parameters)) == repr(detector)
    assert StreamDetector(2).parameters["preset"] == "practice"


def test_a_file_with_the_names_of_version_0_1_is_read(tmp_path):
    for settings in ({}, {"preset": "paper", "threshold": 0.02}, {"kind": "expected", "scale": [1.0, 2.0, 3.0]}):
        detector = detector_of(**settings)
        detector.process_many(X[:100])
        forest, notes = detector.snapshot()
        parameters = notes["parameters"] | {"kind": settings.get("kind", "preset")}
        parameters |= {"scale": settings.get("scale", "preset")}
        former = {"n_trees": "n_estimators", "kind": "score"}
        notes["parameters"] = {former.get(name, name): value for name, value in parameters.items()}
        assert {"n_estimators", "score"} <= notes["parameters"].keys()
        storage.save(forest, tmp_path / "detector.imf", {"StreamDetector": notes, "beside": {}})
        resumed = imondrian.load(tmp_path / "detector.imf")
        assert resumed.parameters == detector.parameters
        for ours, theirs in zip(resumed.process_many(X[100:]), detector.process_many(X[100:]), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        imondrian.save(resumed, tmp_path / "detector.imf")
        _, written = storage.load(tmp_path / "detector.imf")
        assert not {"n_estimators", "score"} & written["StreamDetector"]["parameters"].keys()


def test_a_file_without_kind_and_scale_is_read(tmp_path):
    detector = detector_of()
    detector.process_many(X[:100])
    notes = detector.notes()
    notes["parameters"] = {k: v for k, v in notes["parameters"].items() if k not in ("kind", "scale")}
    storage.save(detector.forest.snapshot(), tmp_path / "detector.imf", {"StreamDetector": notes})
    np.testing.assert_array_equal(imondrian.load(tmp_path / "detector.imf").score(X), detector.score(X))


def test_a_shift_is_reported_even_if_its_points_are_not_learned():
    rng = np.random.default_rng(1)
    detector = StreamDetector(3, window=512, max_samples=64, n_trees=20, threshold=0.5, learn_anomalies=False, seed=1)
    detector.process_many(rng.normal(size=(4000, 3)))
    assert detector.n_drifts == 0
    assert detector.process_many(rng.normal(size=(600, 3)) + 40.0).is_anomaly.all()
    assert detector.n_drifts >= 1


@pytest.mark.parametrize("names", [["a", 1, 2.5], [np.str_("a"), np.int64(1), np.float64(2.5)]])
def test_feature_names_are_restored_from_a_file(tmp_path, names):
    detector = detector_of(seed=np.int64(3), window=np.int64(64), max_samples=np.int32(16), shingle=np.int8(1))
    rows = [dict(zip(names, row, strict=True)) for row in X[:30]]
    detector.process_many(rows)
    imondrian.save(detector, tmp_path / "detector.imf")
    assert imondrian.load(tmp_path / "detector.imf").process(rows[3]) == detector.process(rows[3])


def test_feature_names_that_cannot_be_stored_are_rejected():
    with pytest.raises(InvalidInputError, match=r"must be text or a number, but one is \('a', 1\)"):
        detector_of().process({("a", 1): 1.0, "b": 2.0, "c": 3.0})
    with pytest.raises(InvalidInputError, match="The features 1 and '1' have the same name"):
        detector_of().process({1: 1.0, "1": 2.0, "c": 3.0})
    for name in (np.nan, 10**5000):
        with pytest.raises(InvalidInputError, match="must not be NaN or an integer of more than 64 bits"):
            detector_of().process({name: 1.0, "b": 2.0, "c": 3.0})


def test_a_detector_without_points_says_why_it_cannot_rescore():
    detector = StreamDetector(1, n_trees=3, window=4)
    with pytest.raises(EmptyForestError, match="has not been shown any points"):
        detector.rescore()
    detector.process_many([[1.0], [2.0]])
    detector.forget([[1.0], [2.0]])
    with pytest.raises(EmptyForestError, match="has forgotten all its points"):
        detector.rescore()


def test_a_detector_with_empty_trees_can_explain_and_rescore():
    for seed in range(20):
        detector = StreamDetector(2, n_trees=3, seed=seed)
        detector.process([1.0, 2.0])
        assert sum(map(abs, detector.explain([1.0, 2.0]).values())) == pytest.approx(0.5)
        assert detector.rescore()[1].tolist() == [0.5]


@pytest.mark.parametrize("text", [["1", "2"], ["1", "2", "?"], [b"1", 2.0], [None, 1.0]])
def test_text_is_not_accepted_as_a_number(text):
    for table in (
        pd.DataFrame({"a": text}),
        np.array(text, dtype=object)[:, None],
        text,
        [{"a": value} for value in text],
    ):
        results = StreamDetector(1, n_trees=3, on_error="skip").process_many(table)
        assert np.isnan(results.score).tolist() == [not isinstance(value, float) for value in text]


def test_masked_values_are_rejected():
    detector = StreamDetector(2, n_trees=3, missing="raise")
    with pytest.raises(InvalidInputError, match=r"x\[1\] is nan"):
        detector.process(np.ma.masked_array([1.0, 999.0], mask=[False, True]))


def test_a_row_of_a_data_frame_is_converted_by_its_names():
    detector = StreamDetector(2, n_trees=3, window=8)
    detector.process({"a": 1.0, "b": 2.0})
    detector.process(pd.Series({"b": 4.0, "a": 3.0}))
    detector.process(pd.Series([5.0, 6.0]))
    assert detector.rescore()[0].tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def test_score_and_explain_do_not_store_feature_names():
    detector = StreamDetector(2, n_trees=3)
    detector.explain({"b": 1.0, "a": 2.0})
    detector.score([{"b": 1.0, "a": 2.0}])
    assert detector.feature_names is None


@pytest.mark.parametrize(
    "bad", [[[1.0], [2.0, 3.0]], {"a": Decimal("sNaN")}, "1", b"1", {1.0}, np.timedelta64(1, "s"), [np.timedelta64(1)]]
)
def test_rows_of_unsupported_types_are_skipped(bad):
    detector = StreamDetector(1, n_trees=3, on_error="skip")
    assert np.isnan(detector.process(bad).score)
    assert np.isnan(detector.process_many([1.0, bad, 2.0]).score).tolist() == [False, True, False]


@pytest.mark.parametrize("bad", [5.0, None, np.array(5.0), {0: 1.0}])
def test_an_argument_that_is_not_a_table_is_named(bad):
    with pytest.raises(InvalidInputError, match="X must be a table or an iterable of rows"):
        StreamDetector(1).process_many(bad)


def test_a_long_batch_needs_little_memory_beyond_the_state():
    detector = StreamDetector(1, window=50_000, max_samples=16, n_trees=20)
    rows = RNG.normal(size=(50_000, 1))
    detector.process_many(rows[:10])
    tracemalloc.start()
    detector.process_many(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6


def test_a_shingle_stores_only_the_rows_it_needs():
    shingle = Shingle(3, 2)
    shingle.points(RNG.normal(size=(1000, 2)))
    assert shingle.last.base is None


class WithArray:
    """A row of another library, which only converts itself to an array."""

    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self._values, dtype)


@pytest.mark.parametrize("row_type", [list, tuple, lambda row: range(len(row)), np.array, collections.deque, WithArray])
def test_a_category_has_the_same_code_whatever_the_type_of_the_row(row_type):
    detector = StreamDetector(3, categorical=[2], n_trees=2, window=8, max_samples=4)
    detector.process(row_type([0, 1, 2]))
    detector.process_many([row_type([0, 1, 2])])
    assert detector.forest.points().tolist() == [[0.0, 1.0, category_code(2)]] * 2

"""Arrays that another thread writes to while they are read: an error or arbitrary scores, never a broken model."""

import itertools
import threading
from contextlib import suppress

import numpy as np
import pytest

from imondrian import InvalidInputError, IsolationMondrianForest, MondrianForest, StreamDetector
from imondrian.engine.finite import all_within_limit
from imondrian.forest import inputs
from imondrian.model_files import from_bytes, to_bytes
from imondrian.pyod import IMForest

X = np.random.default_rng(0).normal(size=(300, 3))
LARGEST_NAN = np.uint64(2**63 - 1).view(np.float64)
VALUES = [np.nan, LARGEST_NAN, np.inf, -1e300]
SETTINGS = [
    {},
    {"max_samples": 16},
    {"max_samples": 16, "scale": "std", "n_jobs": 2},
    {"window": 32},
    {"max_samples": 16, "categorical": [2]},
]


@pytest.fixture
def change_after_check(monkeypatch):
    """Return a function that gives an array other values after the n-th check, as if in another thread."""

    def change(array, values, n=1):
        checks = itertools.count(1)

        def check(rows):
            is_valid = all_within_limit(rows)
            if next(checks) >= n:
                array[...] = values
            return is_valid

        monkeypatch.setattr(inputs, "all_within_limit", check)
        monkeypatch.setattr(inputs, "call_without_dispatch", lambda function, *arguments: function(*arguments))

    yield change
    monkeypatch.undo()


def with_value(rows, value):
    changed = rows.copy()
    changed[0, 1] = value
    return changed


def assert_sound(model):
    """Check every tree and every counter."""
    from_bytes(to_bytes(model))


LEARNING = {
    "extend": lambda forest, rows: forest.extend(rows),
    "extend_one": lambda forest, rows: forest.extend_one(rows[0]),
    "score_and_extend": lambda forest, rows: forest.score_and_extend(rows[:9], "size"),
    "forget": lambda forest, rows: forest.forget(rows),
}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("call", LEARNING)
def test_rows_that_become_unusable_after_the_check_are_not_learned(change_after_check, call, settings, value):
    forest = MondrianForest(5, **settings).build(np.round(X))
    rows, before, n_changes = np.round(X[-30:]), to_bytes(forest), forest.n_changes
    change_after_check(rows, with_value(rows, value))
    with pytest.raises(InvalidInputError, match="X was changed while it was being read"):
        LEARNING[call](forest, rows)
    assert to_bytes(forest) == before
    assert forest.n_changes == n_changes


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("call", ["extend", "extend_one", "score_and_extend"])
def test_first_rows_that_become_unusable_do_not_fix_the_number_of_features(change_after_check, call, settings):
    forest, rows = MondrianForest(5, **settings), np.round(X[-30:])
    change_after_check(rows, with_value(rows, np.nan))
    with pytest.raises(InvalidInputError, match="X was changed while it was being read"):
        LEARNING[call](forest, rows)
    assert (forest.n_features, forest.n_changes) == (None, 0)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_forest_built_on_rows_that_become_unusable_is_refused_or_sound(change_after_check, settings, value):
    forest, rows = MondrianForest(5, **settings).build(X[:20]), X.copy()
    before = to_bytes(forest)
    change_after_check(rows, value)
    if settings == {"max_samples": 16}:  # the trees copy their samples themselves
        assert forest.build(rows).n_points == 300
    else:
        with pytest.raises(InvalidInputError, match="X was changed while it was being read"):
            forest.build(rows)
        assert to_bytes(forest) == before
    assert_sound(forest)


@pytest.mark.parametrize("value", [*VALUES, 7.0])
@pytest.mark.parametrize("settings", SETTINGS)
def test_trees_are_sound_if_rows_change_while_they_are_built(monkeypatch, settings, value):
    rows, apply = X.copy(), MondrianForest._on_trees

    def change_and_apply(forest, function):
        rows[::2] = value
        apply(forest, function)

    expected = to_bytes(MondrianForest(5, **settings).build(X))
    monkeypatch.setattr(MondrianForest, "_on_trees", change_and_apply)
    forest = MondrianForest(5, **settings).build(rows)
    assert_sound(forest)
    if "max_samples" not in settings or "categorical" in settings:
        assert to_bytes(forest) == expected


def test_scoring_and_looking_up_rows_that_change_is_harmless(change_after_check):
    forest = MondrianForest(5, max_samples=64, scale="std").build(X)
    before = to_bytes(forest)
    for value in VALUES:
        for kind in ("depth", "expected", "size"):
            rows, row = X.copy(), X[0].copy()
            change_after_check(rows, value)
            forest.score(rows, kind)
            rows[:] = X
            forest.score_next(rows, kind)
            rows[:] = X
            forest.explain(rows, kind)
            rows[:] = X
            with suppress(InvalidInputError):
                forest.expected_values(rows)
            change_after_check(row, value)
            forest.score_one(row, kind)
        change_after_check(rows, value)
        rows[:] = X
        with pytest.raises(InvalidInputError, match="X was changed"):
            forest.n_trees_holding(rows)
    assert to_bytes(forest) == before


DETECTORS = [
    {},
    {"missing": "raise"},
    {"missing": "previous"},
    {"shingle": 4},
    {"shingle": 400, "window": 4},
    {"learn_anomalies": False, "warm_up": 10},
    {"missing": "indicator"},
    {"preset": "series", "threshold": "top 40%", "warm_up": 10, "rules": {"gap": 1}},
]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("settings", DETECTORS)
def test_a_detector_stays_sound_if_rows_change_after_a_check(change_after_check, settings, value, n):
    """The rows are refused, or NaN counts as missing."""
    detector = StreamDetector(3, n_trees=3, **{"window": 64, "max_samples": 16, **settings})
    detector.process_many(X[:100])
    for process, rows in ((detector.process_many, X[100:150].copy()), (detector.process, X[150].copy())):
        change_after_check(rows, np.where(np.arange(3) == 1, value, rows), n)
        with suppress(InvalidInputError):
            process(rows)
        assert_sound(detector)
    assert np.isfinite(detector.process_many(X[150:]).score).all()
    assert_sound(detector)


@pytest.mark.parametrize("value", VALUES)
def test_a_row_that_becomes_unusable_after_the_check_is_not_processed(change_after_check, value):
    detector = StreamDetector(3, n_trees=3, window=64, max_samples=16, missing="raise")
    detector.process_many(X[:100])
    before = to_bytes(detector)
    for process, rows in ((detector.process_many, X[100:150].copy()), (detector.process, X[150].copy())):
        change_after_check(rows, value)
        with pytest.raises(InvalidInputError, match="X was changed while it was being read"):
            process(rows)
        assert to_bytes(detector) == before


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("settings", [{}, {"max_samples": None}, {"window": 64, "max_samples": 16}])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_an_estimator_stays_sound_if_rows_change_after_the_check(monkeypatch, method, settings, value):
    rows, build, extend = X.copy(), MondrianForest.build, MondrianForest.extend

    def changed(learn):
        def learn_changed(forest, points):
            rows[5:] = value
            learn(forest, points)
            rows[:] = X
            return forest

        return learn_changed

    monkeypatch.setattr(MondrianForest, "build", changed(build))
    monkeypatch.setattr(MondrianForest, "extend", changed(extend))
    expected = IsolationMondrianForest(n_estimators=5, random_state=0, **settings)
    getattr(expected, method)(X.copy())
    model = IsolationMondrianForest(n_estimators=5, random_state=0, **settings)
    getattr(model, method)(rows)
    assert to_bytes(model) == to_bytes(expected)


def test_pyod_reads_the_rows_once(monkeypatch):
    rows, build = X.copy(), MondrianForest.build

    def build_and_change(forest, points):
        build(forest, points)
        rows[:] = np.nan
        return forest

    expected = IMForest(5, random_state=0).fit(X).decision_scores_
    monkeypatch.setattr(MondrianForest, "build", build_and_change)
    assert (IMForest(5, random_state=0).fit(rows).decision_scores_ == expected).all()


@pytest.mark.parametrize("settings", [{}, {"n_jobs": 2}, {"max_samples": 5_000}])
def test_a_forest_is_sound_if_a_thread_refills_the_array_all_the_time(settings):
    rng = np.random.default_rng(1)
    others, rows, is_done = rng.normal(size=(4, 10_000, 4)), rng.normal(size=(10_000, 4)), threading.Event()

    def refill():
        while not is_done.is_set():
            for other in others:
                rows[:] = other

    thread = threading.Thread(target=refill)
    thread.start()
    try:
        for _ in range(3):
            assert_sound(MondrianForest(8, **settings).build(rows))
    finally:
        is_done.set()
        thread.join()


def test_an_array_that_is_repaired_while_it_is_checked_is_refused(monkeypatch):
    """Another thread makes the value finite again before the message about it is written."""
    X = np.array([[1.0], [np.nan]])
    check = inputs.all_within_limit

    def check_and_repair(values):
        result = check(values)
        X[1] = 1.0
        return result

    monkeypatch.setattr(inputs, "all_within_limit", check_and_repair)
    with pytest.raises(InvalidInputError, match="X was changed while it was being read"):
        MondrianForest(2).extend(X)

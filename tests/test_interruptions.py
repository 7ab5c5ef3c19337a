"""Interruptions (Ctrl+C) at any moment: the object knows up to which row the interrupted call was carried out."""

import copy
import signal
import threading
import time
from _thread import _count as n_running_threads
from functools import partial

import numpy as np
import pandas as pd
import pytest

import imondrian
from imondrian import IsolationMondrianForest, MondrianForest, StreamDetector
from imondrian.base.errors import BusyError
from imondrian.engine.nodes import FIELDS, with_capacity
from imondrian.engine.threads import Threads
from imondrian.forest.samplers import Window
from imondrian.forest.samplers.sampler import Updates
from imondrian.model_files import from_bytes, to_bytes
from imondrian.models.fitted_model import threshold_of_held_points
from imondrian.pyod import IMForest
from tests import interruptions
from tests.interruptions import InterruptAt, InterruptError, ignore_alarms
from tests.optional_models import new_river_forest

X = np.random.default_rng(3).normal(size=(12_000, 3))
GAPS = np.where(np.random.default_rng(4).random(X.shape) < 0.3, np.nan, X)
GAPS[:, 2] = np.round(X[:, 2])
FILES = (
    "stream/detector.py",
    "stream_gaps.py",
    "stream_state.py",
    "stream_parameters.py",
    "stream_rows.py",
    "series_views.py",
    "series_explanations.py",
    "row_times.py",
    "mondrian_forest.py",
    "forest_state.py",
    "estimator.py",
    "river.py",
    "scales.py",
    "reservoir.py",
    "window.py",
    "sampler.py",
    "thresholds.py",
    "drift.py",
    "incidents.py",
    "alarm_reasons.py",
)


interrupted = partial(interruptions.interrupted, files=FILES)
SETTINGS = [
    {},
    {"preset": "paper", "threshold": "auto"},
    {"learn_anomalies": False, "threshold": 0.1, "warm_up": 4},
    {"shingle": 3},
    {"n_jobs": 2},
    {"window": 5, "max_samples": 2},
    {"categorical": [2], "missing": "median"},
    {"categorical": [2], "missing": "indicator", "shingle": 2},
    {"missing": "previous"},
    {"missing": "median", "learn_anomalies": False, "threshold": 0.1, "warm_up": 4},
    {"preset": "series", "missing": "median"},
]


class Stream:
    """Detectors that have seen the first rows, and the results of a detector that is never interrupted."""

    def __init__(self, settings):
        self.rows = GAPS if "missing" in settings else X
        self._first = StreamDetector(
            3, **{"n_trees": 5, "window": 64, "max_samples": 16, "threshold": "kmeans", **settings}
        )
        self._after, self._expected = {0: self._first}, {}

    def detector(self, n_seen):
        if n_seen not in self._after:
            self._after[n_seen] = copy.deepcopy(self._first)
            self._after[n_seen].process_many(self.rows[:n_seen])
        return copy.deepcopy(self._after[n_seen])

    def assert_uninterrupted(self, detector):
        """Process the rows after `n_seen`; the results must be those of a detector that was never interrupted."""
        n_seen = detector.n_seen
        if n_seen not in self._expected:
            reference = self.detector(n_seen)
            self._expected[n_seen] = reference.process_many(self.rows[n_seen : n_seen + 30]), to_bytes(reference)
        results, content = self._expected[n_seen]
        for ours, theirs in zip(detector.process_many(self.rows[n_seen : n_seen + 30]), results, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert to_bytes(detector) == content


@pytest.mark.parametrize("settings", SETTINGS)
def test_an_interrupted_detector_knows_how_many_rows_it_has_processed(settings):
    stream, reached = Stream(settings), []
    for detector in interrupted(
        lambda: stream.detector(100), lambda detector: detector.process_many(stream.rows[100:140].tolist())
    ):
        reached.append(detector.n_seen)
        stream.assert_uninterrupted(detector)
    assert len(reached) == 40
    assert len(set(reached)) > 1
    assert set(reached) <= set(range(100, 141))


@pytest.mark.parametrize("settings", [{}, {"learn_anomalies": False}, {"rules": {"gap": 2, "side": {0: "high"}}}])
@pytest.mark.parametrize("n_rows", [1, 40])
def test_an_interrupted_series_has_the_views_of_the_rows_it_has_processed(settings, n_rows):
    """The times have holes, late rows and unknown times."""
    rng = np.random.default_rng(0)
    times = np.where(rng.random(140) < 0.1, np.nan, np.cumsum(rng.choice([60.0, 60.0, 0.0, 1e6, -60.0], 140)))
    first = StreamDetector(3, **{"preset": "series", "window": 64, "n_trees": 3, "threshold": 0.1, **settings})
    first.process_many(GAPS[:100], times[:100])

    def process(detector, end=140):
        n_seen = detector.n_seen
        for i in range(n_seen, end, n_rows):
            detector.process_many(GAPS[i : min(i + n_rows, end)], times[i : min(i + n_rows, end)])
        return to_bytes(detector)

    expected = {n_seen: process(copy.deepcopy(first), n_seen) for n_seen in range(100, 141)}
    reached = set()
    for detector in interrupted(lambda: copy.deepcopy(first), process):
        reached.add(detector.n_seen)
        assert to_bytes(detector) == expected[detector.n_seen]
        assert process(detector) == expected[140]
    assert len(reached) > 1


@pytest.mark.parametrize(
    "settings",
    [{}, {"shingle": 3}, {"learn_anomalies": False, "warm_up": 4}, {"rules": {"gap": 1, "side": {0: "high"}}}],
)
def test_the_events_after_an_interruption_are_those_of_the_processed_rows(settings):
    stream, n_events = Stream({"threshold": "top 40%", "rules": {"gap": 1}, **settings}), 0
    for detector in interrupted(
        lambda: stream.detector(100), lambda detector: detector.process_many(stream.rows[100:140])
    ):
        events, reference = detector.events, stream.detector(100)  # before `n_seen` is read
        reference.process_many(stream.rows[100 : detector.n_seen])
        assert events == reference.events
        n_events += len(events)
    assert n_events > 0


class InterruptInside(InterruptAt):
    """Raises InterruptError at the n-th line after the first line of a method of the detector."""

    def __init__(self, n, method):
        super().__init__(n, FILES)
        self._method, self._has_begun = method, False

    def _trace(self, frame, event, _):
        if frame.f_code.co_name == self._method and event == "line" and not self._has_begun:
            self._has_begun = frame.f_code.co_filename.endswith("stream/detector.py")
            return self._trace
        return super()._trace(frame, event, _) if self._has_begun else self._trace


@pytest.mark.parametrize("method", ["process", "process_many"])
def test_events_are_never_those_of_a_call_before_the_interrupted_one(method):
    stream = Stream({"threshold": "top 40%", "rules": {"gap": 1}})
    rows = stream.rows[140] if method == "process" else stream.rows[140:142]
    for n in range(60):
        detector = stream.detector(100)
        detector.process_many(stream.rows[100:140])
        assert detector.events != ()
        with pytest.raises(InterruptError), InterruptInside(n, method):
            getattr(detector, method)(rows)
        assert all(event.index >= 140 for event in detector.events)


def test_a_call_that_fails_has_no_events():
    for call in ("process", "process_many"):
        detector = Stream({"threshold": "top 40%", "rules": {"gap": 1}}).detector(100)
        detector.process_many(X[100:140])
        assert detector.events != ()
        with pytest.raises(imondrian.InvalidInputError):
            getattr(detector, call)(np.float64(3.0))
        assert detector.events == ()


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("n_before", [100, 103, 128, 1])  # a step of the window ends after 104 and after 128 rows
def test_an_interrupted_single_row_is_processed_or_not_at_all(settings, n_before):
    stream = Stream(settings)
    for detector in interrupted(
        lambda: stream.detector(n_before), lambda detector: detector.process(stream.rows[n_before])
    ):
        assert detector.n_seen in (n_before, n_before + 1)
        stream.assert_uninterrupted(detector)


def test_feature_names_of_an_interrupted_call_are_learned_with_its_first_row():
    stream = Stream({})
    rows = [dict(zip("abc", row, strict=True)) for row in X[100:140]]
    for detector in interrupted(lambda: stream.detector(100), lambda detector: detector.process_many(rows)):
        assert detector.feature_names == (None if detector.n_seen == 100 else ["a", "b", "c"])


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"max_samples": 20}, {"scale": "std"}, {"window": 50, "max_samples": 20}])
@pytest.mark.parametrize("verb", ["extend", "forget", "score_and_extend", "widen"])
def test_all_trees_of_an_interrupted_forest_have_been_shown_the_same_points(settings, n_jobs, verb):
    def new():
        return MondrianForest(9, n_jobs=n_jobs, **settings).extend(X[:60])

    calls = {
        "extend": lambda forest: forest.extend(X[60:200]),
        "score_and_extend": lambda forest: forest.score_and_extend(X[60:80], "size"),
        "forget": lambda forest: forest.forget(forest.points()[:1]),
        "widen": lambda forest: forest.widen(5),
    }
    for forest in interrupted(new, calls[verb]):
        content = to_bytes(forest)  # checks every tree when it is read
        resumed, width = from_bytes(content), forest.n_features
        assert len(set(forest.state()[0].heads["n_points"].tolist())) == 1
        assert len(set(forest.state()[0].heads["next_number"].tolist())) == 1
        rows = np.hstack([X[500:540], np.zeros((40, width - 3))])
        np.testing.assert_array_equal(forest.extend(rows).score(rows), resumed.extend(rows).score(rows))


@pytest.mark.parametrize("n_grown", range(len(FIELDS)))
def test_a_forest_whose_growth_was_interrupted_can_be_read(monkeypatch, n_grown):
    forest = MondrianForest(3).build(X[:60])
    results = iter([with_capacity] * n_grown)

    def grow(*args):
        grow_one = next(results, None)
        if grow_one is None:
            raise InterruptError
        return grow_one(*args)

    monkeypatch.setattr("imondrian.forest.forest_state.with_capacity", grow)
    with pytest.raises(InterruptError):
        forest.extend(X[60:100])
    monkeypatch.undo()
    np.testing.assert_array_equal(forest.points(), X[:60])
    np.testing.assert_array_equal(forest.rescore()[1], MondrianForest(3).build(X[:60]).rescore()[1])
    forest.extend(X[60:100])
    assert to_bytes(forest) == to_bytes(MondrianForest(3).build(X[:60]).extend(X[60:100]))


# -- arrays of the caller -------------------------------------------------------------------------------------------

BLOCK = slice(100, 140)
REUSED = {
    "process_many": (lambda model, rows: model.process_many(rows), StreamDetector, BLOCK),
    "process": (lambda model, rows: model.process(rows), StreamDetector, 100),
    "extend": (lambda model, rows: model.extend(rows), MondrianForest, BLOCK),
    "extend_one": (lambda model, rows: model.extend_one(rows), MondrianForest, 100),
    "score_and_extend": (lambda model, rows: model.score_and_extend(rows, "size"), MondrianForest, BLOCK),
    "partial_fit": (lambda model, rows: model.partial_fit(rows), IsolationMondrianForest, BLOCK),
    "forget": (lambda model, rows: model.forget(rows), MondrianForest, slice(90, 95)),
}
NEW_MODELS = {
    StreamDetector: lambda settings: StreamDetector(3, n_trees=5, **{"window": 64, "max_samples": 16, **settings}),
    MondrianForest: lambda settings: MondrianForest(5, **settings),
    IsolationMondrianForest: lambda settings: IsolationMondrianForest(n_estimators=5, random_state=0, **settings),
}


class InterruptAtFinish(InterruptAt):
    """Raises InterruptError between the change of the trees and the rest of the first update."""

    def _trace(self, frame, event, _):
        is_called_by_update = event == "call" and frame.f_back.f_code is Updates.apply.__code__
        if is_called_by_update and frame.f_code.co_name not in ("_on_all", "_on_trees") and not self.is_raised:
            self.is_raised = True
            raise InterruptError
        return self._trace


@pytest.mark.parametrize("settings", [{}, {"n_jobs": 2}, {"window": 64, "max_samples": 16}, {"learn_anomalies": False}])
@pytest.mark.parametrize("call", REUSED)
def test_the_array_of_an_interrupted_call_may_be_reused(call, settings):
    """The rest of the call is done later, with the rows that the array had at the time of the call."""
    learn, model_class, rows = REUSED[call]
    if "learn_anomalies" in settings and model_class is not StreamDetector:
        pytest.skip("a parameter of detectors only")

    def after_interruption(*, is_reused):
        model = NEW_MODELS[model_class](settings)
        warm_up = (
            "partial_fit" if call == "partial_fit" else "extend" if model_class is MondrianForest else "process_many"
        )
        getattr(model, warm_up)(X[:100])
        buffer = X[rows].copy()
        with pytest.raises(InterruptError), InterruptAtFinish(0, FILES):
            learn(model, buffer)
        if is_reused:
            buffer[...] = 1e6
        getattr(model, warm_up)(X[200:210])
        return to_bytes(model)

    content = after_interruption(is_reused=True)
    assert content == after_interruption(is_reused=False)
    from_bytes(content)  # checks every tree


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that interrupts")
@pytest.mark.parametrize("settings", [{}, {"max_samples": 20}, {"window": 256, "max_samples": 64}])
def test_tasks_that_outlive_an_interrupted_call_are_not_disturbed_by_changes_of_its_array(settings):
    """Several signals in a row end even the wait for the tasks; then the array is filled with other rows."""

    is_inside = False

    def interrupt(_number, frame):
        if is_inside and "/src/imondrian/" in frame.f_code.co_filename:
            raise KeyboardInterrupt

    blocks, buffer = X.reshape(-1, 1_000, 3), np.empty((1_000, 3))
    MondrianForest(16, n_jobs=2, **settings).build(X[:500]).extend(X[:500])
    n_interrupted = 0
    signal.signal(signal.SIGALRM, interrupt)
    try:
        for i, verb in enumerate(["extend", "build"] * 8):
            forest = MondrianForest(16, n_jobs=2, **settings).build(X[:500])
            signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.0003 * i, 0.0002)
            for block in blocks:
                buffer[:] = block
                try:
                    is_inside = True
                    getattr(forest, verb)(buffer)
                except KeyboardInterrupt:
                    n_interrupted += 1
                is_inside = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            from_bytes(to_bytes(forest))  # checks every tree
            if not settings:
                np.testing.assert_array_equal(forest.n_trees_holding(forest.points()), 16)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        ignore_alarms()
    assert n_interrupted > 0


# -- signals ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that interrupts")
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(
    "make",
    [
        lambda n_jobs: StreamDetector(3, n_trees=20, threshold="kmeans", n_jobs=n_jobs),
        lambda n_jobs: MondrianForest(20, n_jobs=n_jobs),
        lambda n_jobs: MondrianForest(20, max_samples=4_000, n_jobs=n_jobs),
    ],
)
def test_signals_at_random_moments_lose_no_rows(make, n_jobs):
    """Several signals in a row, like Ctrl+C, so that the clean-up is interrupted as well."""

    def interrupt(_number, frame):
        if "/src/imondrian/" in frame.f_code.co_filename:  # not in this test
            raise KeyboardInterrupt

    reference, n_interrupted = make(n_jobs), 0
    learn = "process_many" if isinstance(reference, StreamDetector) else "extend"
    n_known = (lambda each: each.n_seen) if learn == "process_many" else (lambda each: each.n_points)
    getattr(reference, learn)(X)
    getattr(reference, learn)(X[:1_000])
    signal.signal(signal.SIGALRM, interrupt)
    try:
        for i in range(10):
            model = make(n_jobs)
            getattr(model, learn)(X[:10])
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.0017 * i, 0.0003)
                getattr(model, learn)(X[10:])
            except KeyboardInterrupt:
                n_interrupted += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            getattr(model, learn)(X[n_known(model) :]) if n_known(model) < len(X) else None
            assert n_known(model) == len(X)
            getattr(model, learn)(X[:1_000])
            assert to_bytes(model) == to_bytes(reference)
    finally:
        ignore_alarms()
    assert n_interrupted > 0


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that interrupts")
def test_an_interrupted_forget_raises_the_exception_of_the_signal_handler():
    """Comparing the rows must not replace it by another exception."""

    def interrupt(_number, _frame):
        nonlocal is_inside
        if is_inside:
            is_inside = False
            raise KeyboardInterrupt

    is_inside = False
    wide = np.random.default_rng(0).normal(size=(200, 1_000))
    forest, delays = MondrianForest(2, max_samples=64).build(wide), np.random.default_rng(1).uniform(size=150)
    forest.sampler._check_presence(forest.state()[0], wide)
    began = time.perf_counter()
    forest.sampler._check_presence(forest.state()[0], wide)
    duration, n_interrupted = time.perf_counter() - began, 0
    signal.signal(signal.SIGALRM, interrupt)
    try:
        for delay in delays:
            try:
                is_inside = True
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + duration * delay)
                forest.sampler._check_presence(forest.state()[0], wide)
                is_inside = False
            except KeyboardInterrupt:
                n_interrupted += 1
    finally:
        is_inside = False
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        ignore_alarms()
    assert n_interrupted > 0


def test_an_interrupted_wait_for_threads_changes_no_tree_twice():
    """Blocks are so long that the second interruption comes while tasks of the first call still run."""

    def interrupt(_number, frame):
        if "/src/imondrian/" in frame.f_code.co_filename:
            raise KeyboardInterrupt

    X = np.random.default_rng(0).normal(size=(12_000, 4))
    MondrianForest(16, n_jobs=2).extend(X)
    signal.signal(signal.SIGALRM, interrupt)
    n_interrupted = 0
    try:
        for i in range(6):
            forest = MondrianForest(16, seed=1, n_jobs=2).build(X[:500])
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.01 + 0.004 * i, 0.001)
                forest.extend(X)
            except KeyboardInterrupt:
                n_interrupted += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            n_known = forest.n_points - 500
            reference = MondrianForest(16, seed=1).build(X[:500]).extend(X[: max(n_known, 1)])
            if n_known:
                assert set(forest.state()[0].heads["n_points"].tolist()) == {forest.n_points}
                np.testing.assert_array_equal(forest.score(X[:200]), reference.score(X[:200]))
    finally:
        ignore_alarms()
    assert n_interrupted > 0


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_signal_handler_can_read_counts_and_gets_an_error_otherwise(n_jobs):
    X = np.random.default_rng(0).normal(size=(20_000, 3))
    detector, reference = (StreamDetector(3, n_trees=20, threshold="kmeans", n_jobs=n_jobs) for _ in range(2))
    detector.process_many(X[:500])
    seen, errors = [], []

    def handle(*_):
        seen.append((detector.n_seen, detector.threshold_score, detector.is_warm))
        for change in (detector.process, detector.process_many, detector.forget):
            try:
                change(X[0])
            except BusyError as error:
                errors.append(error)

    signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        results = detector.process_many(X[500:])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        ignore_alarms()
    assert seen
    assert len(errors) == 3 * len(seen)
    assert detector.n_seen == 20_000
    np.testing.assert_array_equal(results.score, reference.process_many(X).score[500:])


def test_an_interrupted_estimator_has_the_offset_of_its_points():
    X = np.random.default_rng(0).normal(size=(600, 3))

    def new():
        return IsolationMondrianForest(n_estimators=10, contamination="kmeans", random_state=0).fit(X[:300])

    for verb, rows in (("partial_fit", X[300:]), ("forget", X[:20])):
        for model in interrupted(new, lambda model, verb=verb, rows=rows: getattr(model, verb)(rows)):
            fitted = model.forest_.n_changes == 1
            held = threshold_of_held_points(model.forest_, model.get_params())
            assert model.offset_ == (new().offset_ if fitted else -held)


def test_tasks_that_outlive_an_interrupted_wait_are_waited_for():
    threads, may_end, done = Threads(2), threading.Event(), []

    def long():
        may_end.wait(10)
        done.append(1)

    def interrupt(*_):
        raise InterruptError

    signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)  # during the wait, and again during the wait that follows
        with pytest.raises(InterruptError):
            threads.run([long, long])
        with pytest.raises(InterruptError):
            threads.wait_for_running_tasks()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        ignore_alarms()
    assert done == []
    threading.Thread(target=lambda: (time.sleep(0.05), may_end.set())).start()
    threads.wait_for_running_tasks()
    assert done in ([1], [1, 1])
    assert threads.running == []


def test_an_interrupted_save_leaves_the_old_file(tmp_path):
    path, detector = tmp_path / "detector.imf", Stream({}).detector(100)
    imondrian.save(detector, path)
    content = path.read_bytes()
    detector.process_many(X[100:200])

    def with_old_file():
        path.write_bytes(content)
        return detector

    for _ in interrupted(with_old_file, lambda each: imondrian.save(each, path)):
        assert path.read_bytes() == content
        assert list(tmp_path.iterdir()) == [path]


# -- joined forests, scales, windows --------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"scale": "std"}, {"scale": "std", "window": 64}])
def test_an_interrupted_join_is_done_completely_or_not_at_all(settings):
    def new(seed=1):
        forest = MondrianForest(4, seed=seed, **settings)
        forest.score_and_extend(X[:100], "size")  # from now on, a window maintains the typical log sizes
        return forest

    other, before = new(2), to_bytes(new())
    after = to_bytes(new().join(other))
    states = {to_bytes(forest) for forest in interrupted(new, lambda forest: forest.join(other))}
    assert states <= {before, after}
    assert before in states


def test_the_first_score_by_size_may_be_interrupted():
    reference = MondrianForest(5, scale="std", window=64).extend(X[:100])
    expected = reference.score_and_extend(X[100:120], "size")
    for forest in interrupted(
        lambda: MondrianForest(5, scale="std", window=64).extend(X[:100]),
        lambda forest: forest.score_and_extend(X[100:120], "size"),
    ):
        n_known = forest.n_shown - 100
        if n_known < 20:
            scores = forest.score_and_extend(X[100 + n_known : 120], "size")
            np.testing.assert_array_equal(scores, expected[n_known:])


# -- estimators --------------------------------------------------------------------------------


def test_an_interrupted_fit_does_not_change_an_estimator(monkeypatch, tmp_path):
    frame = pd.DataFrame(X[:200], columns=list("abc"))
    model = IsolationMondrianForest(n_estimators=5, contamination=0.1, random_state=0).fit(frame)
    expected = model.predict(frame)

    def interrupt(*_):
        raise InterruptError

    monkeypatch.setattr("imondrian.estimator.fit", interrupt)
    with pytest.raises(InterruptError):
        model.fit(pd.DataFrame(X[:200, :2], columns=["v", "w"]))
    imondrian.save(model, tmp_path / "model.imf")
    for same in (model, imondrian.load(tmp_path / "model.imf")):
        assert list(same.feature_names_in_) == ["a", "b", "c"]
        np.testing.assert_array_equal(same.predict(frame), expected)


def test_an_interrupted_fit_does_not_change_a_pyod_detector(monkeypatch):
    detector = IMForest(n_estimators=5, random_state=0).fit(X[:200])
    expected = detector.predict(X[:300])

    def interrupt(*_):
        raise InterruptError

    monkeypatch.setattr(IMForest, "_process_decision_scores", interrupt)
    with pytest.raises(InterruptError):
        detector.fit(X[:100] * 5)
    np.testing.assert_array_equal(detector.predict(X[:300]), expected)


def test_a_river_model_knows_the_feature_names_of_an_interrupted_call_if_the_forest_has_got_them():
    def new():
        model = new_river_forest(n_trees=4, seed=0)
        model.learn_one({"b": 1.0})
        return model

    were_known = []
    for value in (3.0, "text"):
        for model in interrupted(new, lambda model, value=value: model.learn_one({"b": 0.5, "zzz": value})):
            is_known = model._forest.n_features == 2
            model.learn_one({"b": 0.0, "c": 1.0})
            assert list(model.explain_one({"b": 0.0, "c": 1.0})) == (["b", "zzz", "c"] if is_known else ["b", "c"])
            assert model._forest.categorical == ((1,) if is_known and value == "text" else ())
            were_known.append(is_known)
    assert 0 < sum(were_known) < len(were_known)


FIRST_ROWS = {
    "numbers": {"b": 1.0, "c": 2.0},
    "a category and a number": {"a": "text", "b": 1.0},
    "categories": {"a": "text", "b": True},
}
LATER_ROWS = [{"a": float(x), "d": "x" if y > 0 else "y", "b": float(z)} for x, y, z in X[:30]]


def results_of(model):
    """Return the explanations of rows in which `a` and `b` are numbers, after learning these rows."""
    for row in LATER_ROWS:
        model.learn_one(row)
    return [model.explain_one(row) for row in LATER_ROWS]


@pytest.mark.parametrize("row", FIRST_ROWS)
def test_a_river_model_whose_first_call_was_interrupted_has_learned_the_row_or_is_new(row):
    def new():
        return new_river_forest(n_trees=4, seed=0)

    def learn(model):
        model.learn_one(FIRST_ROWS[row])

    expected, reference, n_new = results_of(new()), new(), 0
    learn(reference)
    for model in interrupted(new, learn, n_lines=400):
        if model._forest.n_shown:
            model.score_one({})  # completes the interrupted call
            assert (model._columns, to_bytes(model._forest)) == (reference._columns, to_bytes(reference._forest))
        else:
            assert results_of(model) == expected
            n_new += 1
    assert n_new > 0


def test_a_river_model_whose_first_call_failed_is_new():
    """A call fails if the number of features is not that of the weights."""
    settings = {"n_trees": 4, "seed": 0, "scale": [1.0, 2.0, 3.0]}
    expected, model = results_of(new_river_forest(**settings)), new_river_forest(**settings)
    for row in FIRST_ROWS.values():
        with pytest.raises(imondrian.InvalidInputError, match="scale"):
            model.learn_one(row)
    assert results_of(model) == expected


# -- threads --------------------------------------------------------------------------------


def test_interrupted_calls_leave_no_thread_behind():
    forest = MondrianForest(12, n_jobs=2).build(X[:3000])
    forest.score(X[:3000])
    n_threads, n_interrupted, is_inside = n_running_threads(), 0, False

    def interrupt(*_):
        if is_inside:
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    try:
        for i in range(600):
            try:
                is_inside = True
                signal.setitimer(signal.ITIMER_REAL, 0.0001 + 0.00002 * (i % 60))
                forest.score(X[:3000])
            except KeyboardInterrupt:
                n_interrupted += 1
            finally:
                is_inside = False
                signal.setitimer(signal.ITIMER_REAL, 0.0)
    finally:
        ignore_alarms()
    assert n_interrupted > 0
    for _ in range(100):
        if n_running_threads() <= n_threads:
            break
        time.sleep(0.05)
    assert n_running_threads() <= n_threads


@pytest.mark.parametrize("kind", ["depth", "expected", "size"])
def test_a_signal_handler_cannot_change_a_forest_that_is_being_read(kind):
    forest = MondrianForest(30, max_samples=200, seed=0).extend(X[:300])
    expected, errors = forest.score(X, kind), []

    def change(*_):
        try:
            forest.extend(X[300:900] * 50)
        except BusyError as error:
            errors.append(error)

    signal.signal(signal.SIGALRM, change)
    try:
        for _ in range(100):
            signal.setitimer(signal.ITIMER_REAL, 0.003)
            scores = forest.score(X, kind)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            if forest.n_points == 300:
                np.testing.assert_array_equal(scores, expected)
            if errors:
                break
            forest = MondrianForest(30, max_samples=200, seed=0).extend(X[:300])  # the signal came between two calls
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        ignore_alarms()
    assert errors


def test_an_interrupted_block_that_no_tree_was_shown_changes_no_later_score(monkeypatch):
    forest, other = (MondrianForest(5, window=50).extend(X[:37]) for _ in range(2))

    def interrupt(*_args):
        raise InterruptError

    monkeypatch.setattr(Window, "_plan_steps", interrupt)
    with pytest.raises(InterruptError):
        other.score_and_extend(X[37:60], "size")
    monkeypatch.undo()
    scores = [each.extend(X[37:40]).score_and_extend(X[40:60], "size") for each in (forest, other)]
    np.testing.assert_array_equal(*scores)

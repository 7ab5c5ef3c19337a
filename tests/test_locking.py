"""Threads that share an object: no combination of calls corrupts it, and nothing is lost or done twice."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest

from imondrian import InvalidInputError, IsolationMondrianForest, MondrianForest, StreamDetector
from imondrian.alarms.incidents import IncidentTracker
from imondrian.base.errors import BusyError
from imondrian.base.locking import is_inside, new_locks, read_locked, write_locked
from imondrian.engine.nodes import NO_LIMIT
from imondrian.forest.scales import StandardScale
from imondrian.model_files import from_bytes, to_bytes
from imondrian.models.fitted_model import threshold_of_held_points
from imondrian.pyod import IMForest
from tests.optional_models import new_river_forest
from tests.strategies import assert_sound

X = np.random.default_rng(0).normal(size=(4_000, 3))


def in_threads(*functions):
    """Run the functions at the same time, each in a thread; raise the first error of any of them."""
    errors, start = [], threading.Barrier(len(functions))

    def run(function):
        try:
            start.wait(10)
            function()
        except BaseException as error:  # noqa: BLE001 (raised below)
            errors.append(error)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def repeated(call, rows, n=1):
    return lambda: [call(rows[i : i + n]) for i in range(0, len(rows), n)]


# -- the lock ---------------------------------------------------------------------------------------------------------


class Counter:
    """An object that records which readers and writers are running."""

    def __init__(self):
        self._locks, self.running, self.history = new_locks(), [], []

    def _is_settled(self):
        return True

    def _settle(self):
        pass

    @read_locked
    def read(self, meanwhile):
        self._record("reader", meanwhile)

    @write_locked
    def write(self, meanwhile):
        self._record("writer", meanwhile)

    def _record(self, role, meanwhile):
        self.running.append(role)
        self.history.append(tuple(self.running))
        meanwhile()
        self.running.remove(role)


def test_readers_run_at_the_same_time():
    counter, two_are_running = Counter(), threading.Event()

    def wait_for_another():
        if len(counter.running) > 1:
            two_are_running.set()
        two_are_running.wait(5)

    in_threads(*[lambda: counter.read(wait_for_another)] * 8)  # more threads than stripes: not all share one
    assert two_are_running.is_set()


def test_a_writer_runs_alone():
    counter = Counter()
    in_threads(
        *[lambda: [counter.read(lambda: None) for _ in range(500)]] * 3,
        *[lambda: [counter.write(lambda: None) for _ in range(500)]] * 2,
    )
    assert all(running == ("writer",) for running in counter.history if "writer" in running)
    assert len(counter.history) == 2_500


def test_other_code_may_read_but_not_write_inside_a_call():
    counter = Counter()
    counter.write(lambda: counter.read(lambda: None))
    assert counter.history[-1] == ("writer", "reader")
    with pytest.raises(BusyError, match="already inside another call on the same Counter"):
        counter.write(lambda: counter.write(lambda: None))


# -- forests and detectors --------------------------------------------------------------------------------------------


def test_two_threads_on_one_detector_lose_no_row_and_corrupt_nothing():
    detector = StreamDetector(3, n_trees=8, window=300, max_samples=64, threshold="kmeans")
    detector.process_many(X[:10])
    in_threads(
        repeated(detector.process_many, X, 50),
        lambda: [detector.process(row) for row in X[:1_500]],
        lambda: [detector.score(X[:20]) for _ in range(150)],
        lambda: [detector.explain(row) for row in X[:100]],
        lambda: [(detector.n_seen, detector.threshold_score, detector.rescore()) for _ in range(60)],
    )
    assert detector.n_seen == detector.n_scored == 5_510
    assert detector.forest.n_points == 300
    content = to_bytes(detector)
    resumed = from_bytes(content)
    np.testing.assert_array_equal(resumed.process_many(X).score, detector.process_many(X).score)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"max_samples": 64}, {"window": 300, "max_samples": 64}])
def test_any_mix_of_calls_leaves_a_sound_forest(settings, n_jobs):
    forest = MondrianForest(8, scale="std", n_jobs=n_jobs, **settings).extend(X[:500])
    in_threads(
        repeated(forest.extend, X[500:1_500], 100),
        lambda: [forest.extend_one(row) for row in X[1_500:2_000]],
        lambda: [forget_one(forest) for _ in range(40)],
        lambda: [forest.score(X[:200], kind) for _ in range(20) for kind in ("depth", "expected", "size")],
        lambda: [(forest.score_one(X[0], "size"), forest.explain(X[:9]), forest.rescore()) for _ in range(20)],
        lambda: [forest.expected_values(X[:50]) for _ in range(20)],
        lambda: [(pickle.dumps(forest), copy.deepcopy(forest), list(forest.trees())) for _ in range(5)],
    )
    if "window" not in settings:
        assert forest.n_points == 2_000 - 40
        assert_sound(forest.state()[0], max_samples=settings.get("max_samples", NO_LIMIT))
    assert from_bytes(to_bytes(forest)).n_points == forest.n_points


def forget_one(forest):
    with suppress(InvalidInputError):  # the point may have left the window meanwhile
        forest.forget(forest.points()[-1:])


def test_two_forests_may_join_each_other_at_the_same_time():
    one, other = (MondrianForest(2, seed=seed).build(X[:100]) for seed in (1, 2))
    in_threads(lambda: one.join(other), lambda: other.join(one))
    assert {one.n_trees, other.n_trees} <= {4, 6}


def test_an_estimator_can_predict_while_it_learns():
    model = IsolationMondrianForest(n_estimators=8, max_samples=64, contamination="kmeans", random_state=0).fit(X[:500])
    in_threads(repeated(model.partial_fit, X[500:], 50), lambda: [model.predict(X[:50]) for _ in range(100)])
    assert model.forest_.n_points == 4_000


def test_a_river_model_can_be_used_from_threads():
    model = new_river_forest(n_trees=8, max_samples=32, seed=1)
    rows = [{"a": row[0], "b": row[1], **({"c": row[2]} if i > 300 else {})} for i, row in enumerate(X[:900])]
    in_threads(
        lambda: [model.learn_one(row) for row in rows],
        lambda: [model.learn_one(row) for row in rows],
        lambda: [model.score_one(row) for row in rows],
        lambda: [model.explain_one(row) for row in rows],
    )
    assert model._forest.n_points == 1_800


def test_first_calls_of_partial_fit_in_two_threads_are_both_learned():
    for _ in range(10):
        model = IsolationMondrianForest(n_estimators=2, random_state=0)
        in_threads(lambda m=model: m.partial_fit(X[:500]), lambda m=model: m.partial_fit(X[500:1_000]))
        assert model.forest_.n_points == 1_000


def test_two_simultaneous_fits_leave_the_result_of_one_of_them():
    pyod = pytest.importorskip("imondrian.pyod")
    for _ in range(5):
        model = pyod.IMForest(n_estimators=5, random_state=0)
        in_threads(lambda m=model: m.fit(X[:300]), lambda m=model: m.fit(X[300:900] * 5.0))
        assert len(model.decision_scores_) == model.forest_.n_points


@pytest.mark.parametrize(
    ("new", "verb", "learn"),
    [
        (IsolationMondrianForest, "fit", "build"),
        (IsolationMondrianForest, "partial_fit", "extend"),
        (IMForest, "fit", "build"),
    ],
)
def test_attributes_set_during_a_fit_are_kept(monkeypatch, new, verb, learn):
    model, original = new(n_estimators=3, contamination=0.1, random_state=0), getattr(MondrianForest, learn)

    def change_meanwhile(forest, rows):
        model.set_params(contamination=0.2, n_jobs=2)
        model.remark = "kept"
        return original(forest, rows)

    monkeypatch.setattr(MondrianForest, learn, change_meanwhile)
    getattr(model, verb)(X[:100])
    assert (model.contamination, model.n_jobs, model.remark) == (0.2, 2, "kept")
    assert model.forest_.n_jobs == 1
    assert len(model.predict(X[:10])) == 10
    if new is IsolationMondrianForest:
        assert -model.offset_ == threshold_of_held_points(model.forest_, model.get_params())


def test_a_fit_without_feature_names_removes_those_of_an_earlier_fit():
    model = IsolationMondrianForest(n_estimators=3, random_state=0).fit(pd.DataFrame(X[:100], columns=list("abc")))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert not hasattr(model.fit(X[:100, :2]), "feature_names_in_")
    assert model.n_features_in_ == 2


def test_other_readers_see_weights_only_when_they_are_complete(monkeypatch):
    scale, seen = StandardScale(3), []
    scale.update(X[:10])
    monkeypatch.setattr("imondrian.forest.scales.write_weights", lambda *_: seen.append(scale._weights))
    scale.weights()
    assert seen == [None]


@pytest.mark.parametrize("new", [IsolationMondrianForest, IMForest])
def test_all_labels_of_a_prediction_come_from_the_same_fit(new):
    near, far = X[:300], X[:300] * [1.0, 9.0, 1.0] + 5.0
    model, is_over = new(n_estimators=5, contamination=0.1, random_state=0).fit(near), threading.Event()
    of_near = model.predict(X[:500])
    of_far = model.fit(far).predict(X[:500])
    assert not np.array_equal(of_near, of_far)

    def fit():
        for i in range(150):
            model.fit((near, far)[i % 2])
        is_over.set()

    def predict():
        while not is_over.is_set():
            labels = model.predict(X[:500])
            assert np.array_equal(labels, of_near) or np.array_equal(labels, of_far)

    in_threads(fit, predict)


def test_all_surprises_come_from_the_same_fit():
    near, far = X[:300], X[:300] * [1.0, 9.0, 1.0] + 5.0
    model, is_over = IsolationMondrianForest(n_estimators=5, random_state=0).fit(near), threading.Event()
    of_near = model.surprise_samples(X[:500])
    of_far = model.fit(far).surprise_samples(X[:500])
    assert not np.array_equal(of_near, of_far)

    def fit():
        for i in range(150):
            model.fit((near, far)[i % 2])
        is_over.set()

    def compute_surprises():
        while not is_over.is_set():
            surprises = model.surprise_samples(X[:500])
            assert np.array_equal(surprises, of_near) or np.array_equal(surprises, of_far)

    in_threads(fit, compute_surprises)


def test_a_copy_of_a_river_model_is_consistent():
    model, is_over = new_river_forest(n_trees=3, seed=0), threading.Event()
    model.learn_one({"a0": 0.0})

    def learn():
        for i in range(300):
            model.learn_one({f"a{i}": float(i)})
        is_over.set()

    def copies():
        while not is_over.is_set():
            for made in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):  # noqa: S301
                assert 0.0 <= made.score_one({"a0": 1.0}) <= 1.0

    in_threads(learn, copies)


def test_points_that_extend_the_forest_directly_are_not_counted_by_the_detector():
    for process in ("process_many", "process"):
        detector = StreamDetector(3, window=64, n_trees=10, threshold="kmeans")
        detector.process_many(X[:500])
        if process == "process":
            for row in X[500:550]:
                detector.process(row)
        n_seen, threshold = detector.n_seen, detector.threshold_score
        detector.forest.score_and_extend(X[500:501])
        assert (detector.n_seen, detector.n_scored, detector.threshold_score) == (n_seen, n_seen, threshold)


def test_readers_do_not_wait_for_an_iterator_of_rows():
    detector, was_read = StreamDetector(3, n_trees=5), threading.Event()

    def rows():
        yield X[0]
        assert was_read.wait(10)
        yield X[1]

    def read():
        detector.n_seen  # noqa: B018 (it must not wait for the rows)
        detector.score(X[:2])
        was_read.set()

    in_threads(lambda: detector.process_many(rows()), read)
    assert detector.n_seen == 2


class LazyRows:
    """Rows that have a length, but are made only when they are iterated."""

    def __init__(self, rows):
        self._rows = rows

    def __len__(self):
        return 2

    def __iter__(self):
        return self._rows


@pytest.mark.parametrize("as_argument", [iter, LazyRows])
@pytest.mark.parametrize("call", ["score", "forget", "process_many"])
def test_the_thread_that_produces_rows_may_use_the_detector(call, as_argument):
    detector = StreamDetector(3, n_trees=5, window=64)
    detector.process_many(X[:10])
    is_listing, is_processed = threading.Event(), threading.Event()

    def rows():
        is_listing.set()
        assert is_processed.wait(10)
        yield from X[:2]

    def produce():
        assert is_listing.wait(10)
        detector.process(X[20])
        is_processed.set()

    in_threads(lambda: getattr(detector, call)(as_argument(rows())), produce)
    assert detector.n_seen == (13 if call == "process_many" else 11)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_process_may_fork_while_another_thread_changes_a_detector():
    code = """
        import os, signal, threading, time
        import numpy as np
        from imondrian import StreamDetector

        X = np.random.default_rng(0).normal(size=(3_000, 3))
        detector, is_over = StreamDetector(3, n_trees=20), threading.Event()
        detector.process_many(X)

        def work():
            while not is_over.is_set():
                detector.process_many(X)

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(5):
            time.sleep(0.02)
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                detector.score(X[:2])
                detector.process(X[0])
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        is_over.set()
        thread.join()
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]


FORKS = {
    "an estimator is fitted": """
        model = IsolationMondrianForest(n_estimators=20, contamination=0.1, random_state=0).fit(X)
        with working(lambda: model.fit(X)):
            for _ in range(5):
                time.sleep(0.03)
                assert end_of(lambda: model.fit(X)) == 0
    """,
    "forests are made": """
        forests = [MondrianForest(2) for _ in range(2_000)]
        with working(lambda: MondrianForest(2)):
            for _ in range(20):
                assert end_of(lambda: None) == 0
    """,
    "writers wait for the thread that forks": """
        forest = MondrianForest(4).extend(X)

        def fork():
            writers = [threading.Thread(target=forest.extend, args=(X[:10],)) for _ in range(3)]
            for writer in writers:
                writer.start()
            time.sleep(0.2)
            return os.fork(), writers

        child, writers = forest.while_unchanged(fork)
        if child == 0:
            signal.alarm(20)
            os._exit(0 if forest.extend(X[:5]).n_points == 3_005 else 1)
        assert os.waitpid(child, 0)[1] == 0
        for writer in writers:
            writer.join()
        assert forest.n_points == 3_030
    """,
    "two objects are used": """
        first, second = (MondrianForest(4).extend(X) for _ in range(2))
        may_end = threading.Event()

        def read():
            may_end.wait(10)
            return first.score(X[:2])

        reader = threading.Thread(target=lambda: second.while_unchanged(read))
        reader.start()
        threading.Timer(0.3, may_end.set).start()
        assert end_of(lambda: (first.extend(X), second.extend(X))) == 0
        may_end.set()
        reader.join()
    """,
    "tasks of a reader run": """
        forest = MondrianForest(50, n_jobs=2).extend(X)
        forest.score(X, "expected")
        with working(lambda: forest.score(X, "expected")):
            for _ in range(20):
                time.sleep(0.01)
                assert end_of(lambda: forest.extend(X[:100]).score(X[:100])) == 0
    """,
    "kernels are compiled": """
        forest = MondrianForest(4).extend(X)
        with working(lambda: compile_kernel()):
            for _ in range(10):
                time.sleep(0.05)
                assert end_of(compile_kernel) == 0
    """,
    "the wait for a call is interrupted": """
        class Slow(dict):
            def __getitem__(self, name):
                time.sleep(0.4)
                return 1.0

        def interrupt(*_):
            raise KeyboardInterrupt

        forest = MondrianForest(4).extend(X)
        detector = StreamDetector(3, n_trees=4)
        with working(lambda: detector.process(Slow(a=1.0, b=1.0, c=1.0))):
            time.sleep(0.3)
            signal.signal(signal.SIGINT, interrupt)
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            try:
                end_of(lambda: (time.sleep(0.5), forest.extend(X)))
                time.sleep(5.0)
            except KeyboardInterrupt:
                assert os.wait()[1] == 0
            else:
                raise AssertionError("the interruption is lost")
    """,
}
FORKING = """
    import contextlib, os, signal, threading, time
    import numba
    import numpy as np
    from imondrian import IsolationMondrianForest, MondrianForest, StreamDetector

    X = np.random.default_rng(0).normal(size=(3_000, 3))

    def compile_kernel():
        numba.njit(lambda x: x + 1)(1)

    @contextlib.contextmanager
    def working(work):
        is_over = threading.Event()

        def repeat():
            while not is_over.is_set():
                work()

        thread = threading.Thread(target=repeat)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def end_of(work):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.alarm(20)
            work()
            os._exit(0)
        return os.waitpid(child, 0)[1]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.parametrize("what", FORKS)
def test_a_process_may_fork_while_another_thread_works(what):
    code = textwrap.dedent(FORKING) + textwrap.dedent(FORKS[what])
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr[-500:]) == (0, "")


CRASH = """
    import threading
    import numpy as np
    from imondrian import StreamDetector

    detector = StreamDetector(4, n_trees=8, window=300, max_samples=64, threshold="kmeans")
    X = np.random.default_rng(0).normal(size=(20_000, 4))

    def work():
        for first in range(0, len(X), 500):
            detector.forest.score_and_extend(X[first : first + 500], "size")

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(detector.forest.n_points, detector.n_seen)
"""


def test_two_threads_that_extend_the_forest_of_a_detector_do_not_crash_the_interpreter():
    command = [sys.executable, "-c", textwrap.dedent(CRASH)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, ["300", "0"]), done.stderr[-500:]


@pytest.mark.parametrize(("name", "figure"), [("incidents", "latest"), ("alarm_rows", "alarm_rows")])
def test_the_incidents_of_a_detector_are_read_while_no_thread_changes_them(monkeypatch, name, figure):
    """A row that continues an incident changes the tracker in place, entry by entry."""
    detector, are_inside = StreamDetector(1, n_trees=2, window=16, max_samples=4), []
    monkeypatch.setattr(IncidentTracker, figure, property(lambda _: are_inside.append(is_inside(detector))))
    getattr(detector, name)
    assert are_inside == [True]

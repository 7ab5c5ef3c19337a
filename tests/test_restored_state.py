"""Restored arrays that are read-only, unaligned or in foreign memory are copied before any kernel uses them."""

import copy
import pickle
import tracemalloc

import joblib
import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor

from imondrian import IsolationMondrianForest, MondrianForest, StreamDetector, StreamingThreshold
from imondrian.base.errors import InvalidInputError
from imondrian.engine.nodes import CUT
from imondrian.forest.inputs import as_owned_array
from imondrian.model_files import to_bytes
from tests.optional_models import new_river_forest

X = np.random.default_rng(0).normal(size=(1_500, 10))


def river_model():
    model = new_river_forest(n_trees=20, max_samples=64, seed=1)
    for row in X[:100]:
        model.learn_one(dict(enumerate(row)))
    return model


def pyod_model():
    from imondrian.pyod import IMForest  # noqa: PLC0415

    return IMForest(n_estimators=20, random_state=0).fit(X[:500])


def detector():
    model = StreamDetector(10, window=512, max_samples=128, n_trees=50, shingle=2)
    model.process_many(X[:700])
    return model


def threshold():
    model = StreamingThreshold(0.01)
    model.observe(np.abs(X[:, 0]) / 10.0)
    return model


MODELS = {
    "sample": lambda: MondrianForest(20, max_samples=64, scale="std").build(X[:500]),
    "all": lambda: MondrianForest(20).build(X[:500]),
    "window": lambda: MondrianForest(20, max_samples=64, window=256, scale="std").extend(X[:500]),
    "weights": lambda: MondrianForest(5, scale=np.arange(1.0, 11.0)).build(X[:100]),
    "empty": lambda: MondrianForest(20),
    "estimator": lambda: IsolationMondrianForest(n_estimators=20, random_state=0).fit(X[:500]),
    "detector": detector,
    "river": river_model,
    "pyod": pyod_model,
    "threshold": threshold,
}


def used(model):
    """Change the model; return its scores afterwards."""
    if isinstance(model, StreamDetector):
        return model.process_many(X[700:900]).score, model.process(X[0]).score
    if isinstance(model, StreamingThreshold):
        model.update(0.25)
        return (*model.observe(np.abs(X[:, 1]) / 10.0), model.threshold)
    if isinstance(model, MondrianForest):
        return model.extend(X[500:]).score(X, "size"), model.score_one(X[0]), model.forget(X[-1:]).rescore()[1]
    if hasattr(model, "partial_fit"):
        return model.partial_fit(X[500:]).score_samples(X), model.predict(X[:9])
    if hasattr(model, "learn_one"):
        model.learn_one(dict(enumerate(X[100])))
        return (model.score_one(dict(enumerate(X[0]))),)
    return (model.decision_function(X),)


def assert_same_use(one, other):
    for ours, theirs in zip(used(one), used(other), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mode", [None, "r", "c", "r+"])
def test_a_model_that_joblib_has_memory_mapped_can_be_used(tmp_path, name, mode):
    joblib.dump(MODELS[name](), tmp_path / "model.joblib")
    content = (tmp_path / "model.joblib").read_bytes()
    assert_same_use(joblib.load(tmp_path / "model.joblib", mmap_mode=mode), MODELS[name]())
    assert (tmp_path / "model.joblib").read_bytes() == content  # the file is not changed through the memory map


@pytest.mark.parametrize("name", MODELS)
def test_pickle_buffers_may_be_read_only_or_unaligned(name):
    buffers = []
    content = pickle.dumps(MODELS[name](), protocol=5, buffer_callback=buffers.append)
    read_only = [bytes(buffer.raw()) for buffer in buffers]
    unaligned = [memoryview(bytearray(b"." + each))[1:] for each in read_only]
    for restored in (read_only, unaligned):
        assert_same_use(pickle.loads(content, buffers=restored), MODELS[name]())  # noqa: S301
    assert all(bytes(ours) == theirs for ours, theirs in zip(unaligned, read_only, strict=True))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_copies_and_pickles_equal_the_model_and_share_no_state_with_it(name, protocol):
    model = MODELS[name]()
    unpickled = pickle.loads(pickle.dumps(model, protocol))  # noqa: S301
    for other in (unpickled, copy.deepcopy(model), copy.copy(model)):
        if isinstance(model, StreamDetector) or (isinstance(model, MondrianForest) and name != "empty"):
            assert to_bytes(other) == to_bytes(model)
            used(other)
    assert_same_use(copy.deepcopy(model), model)


def one_more(detector):
    return detector.process_many(X[700:]).score


def test_joblib_can_send_a_large_detector_to_other_processes():
    expected = one_more(detector())
    sent = joblib.Parallel(n_jobs=2, max_nbytes="10K")(joblib.delayed(one_more)(detector()) for _ in range(2))
    get_reusable_executor().shutdown(wait=True)  # otherwise its processes keep running
    for scores in sent:
        np.testing.assert_array_equal(scores, expected)


def test_arrays_are_copied_only_if_necessary():
    plain = np.arange(6.0)
    assert as_owned_array(plain, np.dtype(float)) is plain
    for other in (plain[::2], plain[1:], plain.view(np.recarray), plain.astype(">f8")):
        own = as_owned_array(other, np.dtype(float))
        assert type(own) is np.ndarray
        assert own.flags.owndata
        assert own.flags.carray
        assert own.dtype == np.dtype(float)
        np.testing.assert_array_equal(own, other)
    with pytest.raises(InvalidInputError, match="must have the dtype"):
        as_owned_array(plain, CUT)


def test_a_pickle_of_another_version_raises_a_clear_error():
    for kind in (MondrianForest, StreamDetector):
        with pytest.raises(ValueError, match="another version of imondrian"):
            kind.__new__(kind).__setstate__({"_trees": None})


@pytest.mark.parametrize("n_features", [10**7, 2**31 - 2])
def test_notes_that_describe_more_features_than_the_forest_has_cost_nothing(n_features):
    model = detector()
    notes = model.notes()
    notes["parameters"] = {**notes["parameters"], "n_features": n_features, "missing": "indicator"}
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="but the forest has 20 features"):
            StreamDetector.from_notes(model.forest, notes)
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()

"""ONNX Runtime gives the scores and labels of the exported model."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imondrian import InvalidInputError, IsolationMondrianForest, MondrianForest, StreamDetector, load, save
from imondrian.datasets import load as load_data
from imondrian.datasets import names
from tests.strategies import SEEDS, point_sets

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from imondrian.engine.score_formula import depths_to_scores  # noqa: E402
from imondrian.model_files import as_fitted_model  # noqa: E402
from imondrian.onnx import _depth_limit, _rounded_up, export, to_onnx  # noqa: E402
from imondrian.pyod import IMForest  # noqa: E402

BLOCK = 20_000
DTYPES = ["float32", "float64"]


def run(proto, X, dtype="float32", n_threads=1):
    """Return scores and labels of rows in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = n_threads
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    rows = np.asarray(X).astype(dtype)
    blocks = [session.run(None, {"X": rows[i : i + BLOCK]}) for i in range(0, len(rows), BLOCK)]
    return tuple(np.concatenate(each) for each in zip(*blocks, strict=True))


def normal_rows(n_rows=600, n_features=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n_rows, n_features))


def depth_model(X, **parameters):
    return IsolationMondrianForest(**{"kind": "depth", "random_state": 0, "n_estimators": 20, **parameters}).fit(X)


def assert_same(model, proto, X, dtype):
    scores, labels = run(proto, X, dtype)
    assert scores.dtype == dtype
    np.testing.assert_allclose(scores, -model.score_samples(X), atol=1e-7 if dtype == "float32" else 1e-15, rtol=0)
    assert labels.tolist() == (model.predict(X) == -1).tolist()


# -- equal to the library ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("contamination", ["kmeans", "auto", 0.05, 0.1, "surprise 2", "score 0.55"])
@pytest.mark.parametrize("scale", [None, "std", [1.0, 5.0, 0.1]])
def test_scores_and_labels_are_those_of_the_model(dtype, contamination, scale):
    X = normal_rows()
    model = depth_model(X, contamination=contamination, scale=scale)
    assert_same(model, to_onnx(model, dtype=dtype, rows=X), X, dtype)


@settings(max_examples=60)
@given(points=point_sets(min_rows=2), seed=SEEDS)
def test_double_precision_is_exact_for_all_points(points, seed):
    forest = MondrianForest(5, seed=seed).build(points)
    scores, labels = run(to_onnx(forest, dtype="float64"), points, "float64")
    np.testing.assert_allclose(scores, forest.score(points), atol=0, rtol=1e-15)
    assert labels.tolist() == (forest.score(points) > 0.5).tolist()


@settings(max_examples=60)
@given(points=point_sets(min_rows=2), seed=SEEDS)
def test_points_keep_their_side_in_float32_or_there_is_a_warning(points, seed):
    forest = MondrianForest(5, seed=seed).build(points)
    if np.abs(points).max() > np.finfo(np.float32).max:
        with pytest.raises(InvalidInputError, match="float32 cannot represent: use dtype='float64'"):
            to_onnx(forest)
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        proto = to_onnx(forest)
    if caught:
        assert any(np.unique(column.astype(np.float32)).size < np.unique(column).size for column in points.T)
    else:
        np.testing.assert_allclose(run(proto, points)[0], forest.score(points), atol=1e-7, rtol=0)


@settings(max_examples=60)
@given(
    start=st.floats(-1e6, 1e6),
    steps=st.lists(st.integers(1, 3), min_size=2, max_size=12),
    seed=SEEDS,
)
def test_neighbours_in_float32_keep_their_side(start, steps, seed):
    """The values are one to three floats of 32 bits apart, moved by less than half of that distance."""
    values = [np.float32(start)]
    for step in steps:
        value = values[-1]
        for _ in range(step):
            value = np.nextafter(value, np.float32(np.inf))
        values.append(value)
    exact = np.array(values, np.float64)
    gaps = np.diff(exact, append=exact[-1] + (exact[-1] - exact[-2]))
    points = (exact + np.random.default_rng(seed % 2**32).uniform(-0.2, 0.2, exact.size) * gaps.min())[:, None]
    forest = MondrianForest(5, seed=seed).build(points)
    np.testing.assert_allclose(run(to_onnx(forest), points)[0], forest.score(points), atol=1e-7, rtol=0)


def test_rows_that_no_tree_holds_keep_their_side_if_they_are_given():
    rng = np.random.default_rng(0)
    X = np.float64(np.float32(1.0)) + rng.integers(0, 400, size=(4_000, 1)) * 2.0**-24 * 1.3  # rounding often matters
    X = np.unique(X, axis=0)[::2]
    X = X[np.unique(X.astype(np.float32), return_index=True)[1]]  # different in float32 as well
    model = depth_model(X, max_samples=8)
    assert_same(model, to_onnx(model, rows=X), X, "float32")


@given(cuts=st.lists(st.floats(-(2.0**99), 2.0**99), min_size=1), other=st.floats(-(2.0**99), 2.0**99, width=32))
def test_a_float32_number_is_on_the_same_side_of_a_rounded_cut(cuts, other):
    exact = np.array(cuts)
    assert ((np.float32(other) < _rounded_up(exact)) == (float(other) < exact)).all()


def test_values_that_float32_cannot_tell_apart_are_reported():
    X = 1.7e9 + np.arange(400.0)[:, None]  # seconds; neighbours in float32 are 128 apart
    model = depth_model(X)
    with pytest.warns(UserWarning, match=r"cuts separate values .* example 17000.* of feature 0, .* use dtype='floa"):
        to_onnx(model)
    assert_same(model, to_onnx(model, dtype="float64"), X, "float64")


@pytest.mark.parametrize("n_threads", [1, 4])
@pytest.mark.parametrize("n_rows", [1, 7, 300])
def test_the_number_of_threads_and_rows_changes_nothing(n_threads, n_rows):
    X = normal_rows()
    model = depth_model(X, n_estimators=100)
    proto = to_onnx(model, dtype="float64")
    expected = run(proto, X, "float64")
    scores, labels = run(proto, X[:n_rows], "float64", n_threads)
    assert (scores == expected[0][:n_rows]).all()
    assert (labels == expected[1][:n_rows]).all()


def test_many_equal_scores_at_the_threshold_have_the_same_labels():
    X = np.random.default_rng(0).integers(0, 4, size=(3_000, 4)).astype(float)
    for share in (0.01, 0.05, 0.2):
        model = depth_model(X, contamination=share, n_estimators=100)
        for dtype in DTYPES:
            assert_same(model, to_onnx(model, dtype=dtype), X, dtype)


@pytest.mark.parametrize("name", names("open"))
def test_labels_are_the_same_on_every_open_data_set(name, data_folder):
    """`benchmarks/onnx_export.py` does the same with all rows."""
    X = load_data(name, folder=data_folder).X
    X = X[np.random.default_rng(0).permutation(len(X))[:BLOCK]]
    model = depth_model(X, n_estimators=100, contamination=0.05)
    assert_same(model, to_onnx(model, dtype="float64"), X, "float64")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        proto = to_onnx(model, rows=X)
    scores, labels = run(proto, X)
    assert labels.tolist() == (model.predict(X) == -1).tolist()
    if not caught:
        assert np.abs(scores + model.score_samples(X)).max() < 1e-5


# -- missing and refused values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_missing_numbers_are_replaced_by_the_medians(dtype):
    X = normal_rows()
    X[::7, 1] = np.nan
    model = depth_model(X)
    assert_same(model, to_onnx(model, dtype=dtype, rows=X), X, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_refused_rows_have_no_score_and_no_label(dtype):
    X = normal_rows()
    proto = to_onnx(depth_model(X, missing="raise", contamination="score 0.01"), dtype=dtype)
    scores, labels = run(proto, [[0.0, np.nan, 0.0], [0.0, np.inf, 0.0], [0.0, 0.0, 0.0]], dtype)
    assert np.isnan(scores).tolist() == [True, True, False]
    assert labels.tolist() == [False, False, True]
    scores, labels = run(to_onnx(depth_model(X), dtype=dtype), [[np.nan] * 3, [np.nan, -np.inf, 0.0]], dtype)
    assert np.isnan(scores).all()
    assert not labels.any()


# -- every type of model ----------------------------------------------------------------------------------------------


def test_a_pyod_detector_can_be_exported():
    X = normal_rows()
    detector = IMForest(kind="depth", contamination=0.07, random_state=0).fit(X)
    scores, labels = run(to_onnx(detector, rows=X), X)
    np.testing.assert_allclose(scores, detector.decision_function(X), atol=1e-7)
    assert labels.tolist() == detector.predict(X).astype(bool).tolist()


def test_a_saved_pyod_detector_is_an_estimator_with_the_same_labels(tmp_path):
    X = normal_rows()
    detector = IMForest(contamination=0.07, random_state=0).fit(X)
    save(detector, tmp_path / "model.imf")
    assert (load(tmp_path / "model.imf").predict(X) == np.where(detector.predict(X) == 1, -1, 1)).all()


def test_a_loaded_model_can_be_exported(tmp_path):
    X = normal_rows()
    save(depth_model(X), tmp_path / "model.imf")
    loaded = load(tmp_path / "model.imf")
    export(loaded, tmp_path / "model.onnx", rows=X)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [each.name for each in session.get_outputs()] == ["anomaly_score", "is_anomaly"]
    assert [each.shape for each in session.get_inputs()] == [["n_rows", 3]]
    assert (session.run(["is_anomaly"], {"X": X.astype(np.float32)})[0] == (loaded.predict(X) == -1)).all()


def test_the_current_state_of_a_stream_can_be_exported():
    X = normal_rows(3_000)
    detector = StreamDetector(3, n_trees=20, kind="depth", window=512, max_samples=64)
    detector.process_many(X)
    scores, labels = run(to_onnx(detector, dtype="float64"), X, "float64")
    np.testing.assert_allclose(scores, detector.forest.score(X), atol=1e-15)
    assert labels.tolist() == (detector.forest.score(X) > detector.threshold_score).tolist()


@pytest.mark.parametrize("missing", ["median", "indicator"])
def test_gaps_of_a_stream_are_filled_as_by_the_detector(missing):
    """The medians were those of the points in the forest, of which some are replacements."""
    X = normal_rows(1000, 2)
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    X = X[~np.isnan(X).all(axis=1)]
    sizes = {"window": 256, "max_samples": 64, "n_trees": 20}
    detector = StreamDetector(2, kind="depth", threshold="score 0.5", missing=missing, **sizes)
    detector.process_many(X)
    assert as_fitted_model(detector, "it").score(X).tolist() == detector.score(X).tolist()
    if missing == "median":
        scores, labels = run(to_onnx(detector, dtype="float64"), X, "float64")
        assert np.abs(scores - detector.score(X)).max() < 1e-15
        assert labels.tolist() == (detector.score(X) > 0.5).tolist()


@pytest.mark.parametrize(
    "threshold", [0.5, 0.25, 0.9999999, 1e-20, 0.99, 1 / 3, np.nextafter(0.5, 0), 1.0, 1e-300, 0.0]
)
def test_the_limit_of_the_depth_is_exact(threshold):
    limit = _depth_limit(threshold)
    depths = np.array([limit, np.nextafter(limit, 0.0)])
    depths_to_scores(depths)
    assert limit == 0.0 or depths[1] > threshold
    assert depths[0] <= threshold or limit == np.inf


def test_labels_of_scores_of_one_half_are_exact():
    """Mean depths are 1 or a little less, where the distance between floats is half of that above 1."""
    rows = normal_rows(100)
    for seed in range(30):
        forest = MondrianForest(6, seed=seed).build(normal_rows(3, seed=seed))
        _, labels = run(to_onnx(forest, dtype="float64"), rows, "float64")
        assert labels.tolist() == (forest.score(rows) > 0.5).tolist()


def test_trees_without_points_and_with_one_point_can_be_exported():
    forest = MondrianForest(50, window=4, max_samples=1).extend(normal_rows(30))
    assert {tree.left.size for tree in forest.trees()} >= {0, 1, 3}
    X = normal_rows(100, seed=1)
    for dtype in DTYPES:
        scores, _ = run(to_onnx(forest, dtype=dtype), X, dtype)
        np.testing.assert_allclose(scores, forest.score(X.astype(dtype).astype(float)), atol=1e-7)


def test_a_forest_of_a_single_point_can_be_exported():
    scores, labels = run(to_onnx(MondrianForest(3).build([[1.0, 2.0]])), [[1.0, 2.0], [5.0, 5.0]])
    assert scores.tolist() == [0.5, 0.5]
    assert not labels.any()


def test_the_file_names_features_and_threshold(tmp_path):
    pl = pytest.importorskip("polars")
    X = pl.DataFrame({"size": [1.0, 2.0, 3.0, 9.0], "weight": [0.0, 1.0, 0.5, 4.0]})
    model = depth_model(X)
    export(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    properties = session.get_modelmeta().custom_metadata_map
    assert json.loads(properties["feature_names"]) == ["size", "weight"]
    assert float(properties["threshold"]) == -model.offset_
    assert (properties["kind"], properties["n_trees"]) == ("depth", "20")


# -- models that cannot be exported -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["expected", "size"])
def test_other_kinds_of_scores_are_refused(kind):
    with pytest.raises(InvalidInputError, match=f"Only models with kind='depth' can be exported, but kind is '{kind}'"):
        to_onnx(depth_model(normal_rows(), kind=kind))


def test_categories_are_refused():
    model = IsolationMondrianForest(kind="depth", categorical=[1]).fit([[0.0, 1.0], [1.0, 2.0], [2.0, 2.0]])
    with pytest.raises(InvalidInputError, match=r"without categorical features can be exported, but \[1\] are"):
        to_onnx(model)


def test_indicators_are_refused():
    model = depth_model([[0.0, 1.0], [1.0, np.nan], [2.0, 2.0]], missing="indicator")
    with pytest.raises(InvalidInputError, match="missing='indicator' cannot be exported"):
        to_onnx(model)


def test_shingles_and_series_are_refused():
    detector = StreamDetector(1, kind="depth", shingle=3, n_trees=5, window=64)
    detector.process_many(normal_rows(200, 1))
    with pytest.raises(InvalidInputError, match="a point of this detector is 3 rows"):
        to_onnx(detector)


def test_other_arguments_are_refused():
    with pytest.raises(InvalidInputError, match=r"can be exported, but not 'model\.imf'"):
        to_onnx("model.imf")
    with pytest.raises(InvalidInputError, match="dtype must be one of float32, float64, but is 'float16'"):
        to_onnx(depth_model(normal_rows()), dtype="float16")
    with pytest.raises(InvalidInputError, match="holds no points"):
        to_onnx(MondrianForest())
    with pytest.raises(InvalidInputError, match="X has 2 features"):
        to_onnx(depth_model(normal_rows()), rows=[[1.0, 2.0]])


def test_a_forest_of_too_many_nodes_is_refused(monkeypatch):
    monkeypatch.setattr("imondrian.onnx._MAX_NODES", 1_000)
    with pytest.raises(InvalidInputError, match=r"has 10,240 nodes, .* at most 1,000: set max_samples"):
        to_onnx(depth_model(normal_rows()))


def test_a_failed_export_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    with pytest.raises(InvalidInputError):
        export(depth_model(normal_rows(), kind="size"), path)
    assert path.read_bytes() == b"old"

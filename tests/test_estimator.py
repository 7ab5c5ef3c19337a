"""The scikit-learn estimator, including scikit-learn's own checks."""

import copy
import pickle

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.estimator_checks import parametrize_with_checks

import imondrian
from imondrian import EmptyForestError, InvalidInputError, IsolationMondrianForest, MondrianForest
from imondrian.alarms.score_distribution import ScoreDistribution
from imondrian.alarms.thresholds import two_means
from imondrian.forest.scores import SCORES
from imondrian.models import storage
from imondrian.models.fitted_model import threshold_of_held_points


@parametrize_with_checks(
    [
        IsolationMondrianForest(n_estimators=10),
        IsolationMondrianForest(n_estimators=10, max_samples=None, contamination="kmeans"),
        IsolationMondrianForest(n_estimators=10, kind="size", scale="std", contamination=0.2),
        IsolationMondrianForest(n_estimators=10, window=50, max_samples=20, contamination=0.1),
        IsolationMondrianForest(n_estimators=10, missing="indicator"),
        IsolationMondrianForest(n_estimators=10, categorical=[0]),
        IsolationMondrianForest(n_estimators=10, categorical=[], missing="raise"),
    ]
)
def test_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(600, 3)), rng.normal(size=(100, 3)) * 2.0


def test_scores_are_those_of_the_forest_with_the_sign_reversed(data):
    X, new = data
    for kind in SCORES:
        model = IsolationMondrianForest(kind=kind, random_state=0).fit(X)
        assert (model.score_samples(new) == -model.forest_.score(new, kind)).all()
        assert (model.decision_function(new) == model.score_samples(new) - model.offset_).all()
        assert (model.predict(new) == np.where(model.decision_function(new) < 0, -1, 1)).all()


def test_the_rules_for_the_threshold(data):
    X, _ = data
    rules = ("auto", "kmeans", 0.1, "top 10%", "surprise 2", "surprise 3", "score 0.6")
    thresholds = {c: -IsolationMondrianForest(contamination=c, random_state=0).fit(X).offset_ for c in rules}
    model = IsolationMondrianForest(random_state=0).fit(X)
    scores = -model.score_samples(X)
    assert thresholds["kmeans"] == two_means(scores)
    assert thresholds["score 0.6"] == 0.6
    assert thresholds["auto"] == thresholds["surprise 3"] == ScoreDistribution.of(scores).threshold(0.001)
    assert thresholds["surprise 2"] == ScoreDistribution.of(scores).threshold(0.01)
    assert thresholds["top 10%"] == thresholds[0.1] == np.quantile(scores, 0.9)
    labels = IsolationMondrianForest(contamination=0.1, random_state=0).fit_predict(X)
    assert (labels == -1).sum() == 60
    paper = IsolationMondrianForest(preset="paper", contamination="auto", random_state=0).fit(X)
    assert -paper.offset_ == 0.5


@pytest.mark.parametrize("wrong", ["mean", "top 60%", "top 5", "surprise 0", "score 2", "", 0.6, 0, -0.1, None])
def test_a_wrong_contamination_is_named(data, wrong):
    texts = ".*'auto'.* or a string such as 'top 5%', 'surprise 3' or 'score 0.6' or a float in the range"
    message = rf"^The 'contamination' parameter of IsolationMondrianForest must be {texts}.* Got {wrong!r} instead"
    for call in ("fit", "partial_fit"):
        with pytest.raises(InvalidParameterError, match=message):
            getattr(IsolationMondrianForest(contamination=wrong), call)(data[0])


@pytest.mark.parametrize("kind", SCORES)
def test_rows_with_a_high_surprise_are_the_anomalies(data, kind):
    """After fitting, after a change of the parameters, and after learning and forgetting."""
    X, new = data
    new = np.vstack([new, [[99.0, 0.0, 0.0]]])
    model = IsolationMondrianForest(kind=kind, contamination="surprise 2", max_samples=64, random_state=0).fit(X)

    def assert_labels(level):
        surprises = model.surprise_samples(new)
        assert (model.predict(new) == np.where(surprises > level, -1, 1)).all()
        assert (np.diff(surprises[np.argsort(model.score_samples(new))]) <= 1e-9).all()

    assert_labels(2.0)
    expected = ScoreDistribution.of(-model.score_samples(X)).surprise(-model.score_samples(new))
    assert (model.surprise_samples(new) == expected).all()
    model.set_params(contamination="surprise 1.5")
    assert_labels(1.5)
    model.partial_fit(new)
    assert_labels(1.5)
    held = ScoreDistribution.of(*model.forest_.rescore_without_copies(kind))
    assert (model.surprise_samples(new) == held.surprise(-model.score_samples(new))).all()
    model.forget(new[-1:])
    assert_labels(1.5)
    assert (model.surprise_samples(new) != held.surprise(-model.score_samples(new))).any()


def test_the_distribution_of_scores_is_saved_with_the_estimator(data, tmp_path):
    """The forest holds a sample of the rows, from which another distribution would be computed."""
    X, new = data
    model = IsolationMondrianForest(n_estimators=5, max_samples=64, random_state=0).fit(X)
    surprises = model.surprise_samples(new)
    imondrian.save(model, tmp_path / "model.imf")
    copies = [imondrian.load(tmp_path / "model.imf"), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]  # noqa: S301
    for resumed in copies:
        assert (resumed.surprise_samples(new) == surprises).all()
    assert (model.set_params(kind="depth").surprise_samples(new) != surprises).any()
    assert (model.set_params(kind="preset").surprise_samples(new) == surprises).all()
    model.partial_fit(new)
    for resumed in copies:
        resumed.partial_fit(new)
        assert (resumed.surprise_samples(new) == model.surprise_samples(new)).all()
        assert resumed.offset_ == model.offset_


def test_a_file_of_an_earlier_version_keeps_its_threshold(data, tmp_path):
    """Earlier versions stored no distribution, and "auto" meant scores above 0.5 with every preset."""
    X, new = data
    for contamination, meaning in {"auto": "score 0.5", 0.05: 0.05, "kmeans": "kmeans"}.items():
        model = IsolationMondrianForest(n_estimators=5, contamination=contamination, random_state=0).fit(X)
        notes = model.fitted_model().notes()
        del notes["distribution"]
        notes["offset"] = -0.5 if contamination == "auto" else notes["offset"]
        storage.save(model.forest_.snapshot(), tmp_path / "model.imf", {"IsolationMondrianForest": notes})
        resumed = imondrian.load(tmp_path / "model.imf")
        assert resumed.contamination == meaning
        assert resumed.offset_ == notes["offset"]
        assert (resumed.score_samples(new) == model.score_samples(new)).all()
        held = ScoreDistribution.of(*model.forest_.rescore_without_copies("size"))
        assert (resumed.surprise_samples(new) == held.surprise(-model.score_samples(new))).all()
        assert (resumed.partial_fit(new).offset_ == -0.5) == (contamination == "auto")
        imondrian.save(resumed, tmp_path / "again.imf")
        assert imondrian.load(tmp_path / "again.imf").contamination == meaning


@pytest.mark.parametrize("max_samples", ["auto", 64, 0.5, None])
@pytest.mark.parametrize("contamination", ["auto", "kmeans", 0.1, "score 0.6"])
def test_partial_fit_does_not_depend_on_the_division_into_calls(data, max_samples, contamination):
    X, new = data
    if max_samples == 0.5:
        max_samples = 300  # a float is a share of the rows in the first call
    parameters = {"n_estimators": 8, "max_samples": max_samples, "contamination": contamination, "random_state": 0}
    at_once = IsolationMondrianForest(**parameters).partial_fit(X)
    one_by_one = IsolationMondrianForest(**parameters)
    for x in X:
        one_by_one.partial_fit(x[None])
    assert (at_once.score_samples(new) == one_by_one.score_samples(new)).all()
    assert at_once.offset_ == one_by_one.offset_
    more = IsolationMondrianForest(**parameters).fit(X[:300]).partial_fit(X[300:])
    assert more.forest_.n_points == 600


def test_max_samples_can_be_a_share_of_the_rows():
    assert IsolationMondrianForest(max_samples=0.25).fit(np.eye(40)).forest_.max_samples == 10


def test_forget_and_rescore(data):
    X, _ = data
    model = IsolationMondrianForest(max_samples=None, n_estimators=20, contamination="kmeans", random_state=0).fit(X)
    held, scores = model.forget(X[:100]).rescore()
    assert held.shape == (500, 3)
    np.testing.assert_allclose(scores, model.score_samples(held))
    assert model.offset_ == pytest.approx(-two_means(-scores))


def test_explanations_sum_to_the_score(data):
    X, new = data
    model = IsolationMondrianForest(kind="size", scale="std", random_state=0).fit(X)
    np.testing.assert_allclose(np.abs(model.explain(new)).sum(axis=1), -model.score_samples(new))


def test_planted_features_lead_the_explanation():
    """With one or two shifted features, these have the largest parts in at least 95 of 100 cases."""
    rng = np.random.default_rng(1)
    model = IsolationMondrianForest(kind="size", scale="std", random_state=0).fit(rng.normal(size=(2000, 10)))
    for n_shifted in (1, 2):
        anomalies = rng.normal(size=(100, 10))
        shifted = np.array([rng.choice(10, n_shifted, replace=False) for _ in range(100)])
        np.put_along_axis(anomalies, shifted, 9.0, axis=1)
        leading = np.argsort(-np.abs(model.explain(anomalies)), axis=1)[:, :n_shifted]
        assert sum(set(a) == set(b) for a, b in zip(leading.tolist(), shifted.tolist(), strict=True)) >= 95


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_data_frames_and_their_column_names(data, frame):
    X, _ = data
    table = frame(dict(zip("abc", X.T, strict=True)))
    model = IsolationMondrianForest(n_estimators=5, random_state=0).fit(table)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    plain = IsolationMondrianForest(n_estimators=5, random_state=0).fit(X)
    assert (model.score_samples(table) == plain.score_samples(X)).all()
    parts = model.explain(table)
    assert isinstance(parts, frame)
    assert list(parts.columns) == ["a", "b", "c"]
    assert (parts.to_numpy() == plain.explain(X)).all()
    for wrong in (["c", "b", "a"], ["a", "b", "d"]):
        with pytest.raises(ValueError, match="feature names"):
            model.predict(frame(dict(zip(wrong, X.T, strict=True))))


def test_pickle_clone_pipeline_and_grid_search_work(data):
    X, new = data
    model = IsolationMondrianForest(n_estimators=5, random_state=0).fit(X)
    pickled, cloned = pickle.loads(pickle.dumps(model)), clone(model).fit(X)  # noqa: S301
    assert (pickled.partial_fit(new).score_samples(X) == cloned.partial_fit(new).score_samples(X)).all()
    pipeline = make_pipeline(StandardScaler(), IsolationMondrianForest(random_state=0)).fit(X)
    assert set(pipeline.predict(new)) <= {-1, 1}
    y = np.where(np.abs(X).max(axis=1) > 2.5, -1, 1)

    def auc(estimator, rows, labels):
        return roc_auc_score(labels, estimator.score_samples(rows))

    grid = {"kind": ["depth", "size"], "scale": [None, "std"]}
    search = GridSearchCV(IsolationMondrianForest(n_estimators=10, random_state=0), grid, scoring=auc, cv=3).fit(X, y)
    assert search.best_params_["kind"] in SCORES
    assert search.best_score_ > 0.8


def test_joblib_can_dump_and_run_estimators(data, tmp_path):
    X, _ = data
    model = IsolationMondrianForest(n_estimators=5, random_state=0).fit(X)
    joblib.dump(model, tmp_path / "model.joblib")
    assert (joblib.load(tmp_path / "model.joblib").score_samples(X) == model.score_samples(X)).all()
    several = joblib.Parallel(n_jobs=2, prefer="threads")(joblib.delayed(model.score_samples)(X) for _ in range(4))
    assert all((one == several[0]).all() for one in several)


def test_the_kind_is_a_parameter_like_any_other():
    model = IsolationMondrianForest(kind="size")
    assert model.get_params()["kind"] == model.kind == "size"
    assert model.set_params(kind="depth").get_params()["kind"] == "depth"
    assert "kind='size'" in repr(IsolationMondrianForest(kind="size"))
    assert not hasattr(model, "score")  # scikit-learn would call a method of this name


@pytest.mark.parametrize("contamination", ["auto", "kmeans", 0.2, "surprise 2", "top 3%", "score 0.6"])
@pytest.mark.parametrize("named", [True, False])
def test_an_estimator_is_restored_from_a_model_file(data, tmp_path, contamination, named):
    X, new = data
    table = pd.DataFrame(X, columns=list("abc")) if named else X
    model = IsolationMondrianForest(
        n_estimators=6,
        kind="size",
        scale=[1.0, 2.0, 3.0],
        contamination=contamination,
        categorical=[],
        random_state=3,
    ).fit(table)
    imondrian.save(model, tmp_path / "model.imf")
    resumed = imondrian.load(tmp_path / "model.imf")
    assert repr(resumed) == repr(model)
    assert resumed.offset_ == model.offset_
    new = pd.DataFrame(new, columns=list("abc")) if named else new
    assert (resumed.partial_fit(new).score_samples(new) == model.partial_fit(new).score_samples(new)).all()
    assert resumed.offset_ == model.offset_


def test_the_preset_determines_settings_that_are_not_given(data):
    X, _ = data
    settings = {
        "practice": {"kind": "size", "scale": "std", "contamination": 0.05},
        "paper": {"kind": "depth", "scale": None, "contamination": "kmeans"},
    }
    for preset, given in settings.items():
        ours = IsolationMondrianForest(n_estimators=5, preset=preset, random_state=0).fit(X)
        theirs = IsolationMondrianForest(n_estimators=5, random_state=0, **given).fit(X)
        assert (ours.score_samples(X) == theirs.score_samples(X)).all()
        assert ours.offset_ == theirs.offset_
        assert ours.forest_.scale == given["scale"]
        assert ours.get_params() | given == {**theirs.get_params(), "preset": preset}
    default = IsolationMondrianForest(n_estimators=5, random_state=0).fit(X)
    assert default.get_params()["preset"] == "practice"
    assert (default.fit_predict(X) == -1).sum() == 30


def test_a_model_file_stores_the_values_of_the_preset_and_the_categorical_columns(data, tmp_path):
    model = IsolationMondrianForest(n_estimators=3, random_state=0).fit(data[0])
    imondrian.save(model, tmp_path / "model.imf")
    resumed = imondrian.load(tmp_path / "model.imf")
    stored = {"kind": "size", "scale": "std", "contamination": 0.05, "categorical": []}
    assert resumed.get_params() == model.get_params() | stored


@pytest.mark.parametrize("scale", [None, "std", [1.0, 2.0, 3.0]])
def test_a_file_with_the_names_of_version_0_1_is_read(data, tmp_path, scale):
    X, new = data
    given = {"kind": "expected", "scale": scale, "contamination": "kmeans", "categorical": []}
    model = IsolationMondrianForest(n_estimators=3, random_state=0, **given).fit(X)
    notes = model.fitted_model().notes()
    del notes["parameters"]["preset"]
    notes["parameters"]["score"] = notes["parameters"].pop("kind")
    storage.save(model.forest_.snapshot(), tmp_path / "model.imf", {"IsolationMondrianForest": notes})
    resumed = imondrian.load(tmp_path / "model.imf")
    assert resumed.get_params() == model.get_params()
    assert resumed.offset_ == model.offset_
    assert (resumed.score_samples(new) == model.score_samples(new)).all()
    assert (resumed.partial_fit(new).score_samples(new) == model.partial_fit(new).score_samples(new)).all()
    imondrian.save(resumed, tmp_path / "model.imf")
    _, written = storage.load(tmp_path / "model.imf")
    assert "score" not in written["IsolationMondrianForest"]["parameters"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda notes: notes.clear(),
        lambda notes: notes["parameters"].update(n_estimators=0),
        lambda notes: notes["parameters"].update(surprise=1),
        lambda notes: notes["parameters"].update(kind="x"),
        lambda notes: notes["parameters"].update(kind=[1]),
        lambda notes: notes["parameters"].update(score="size", surprise=1),
        lambda notes: notes["parameters"].update(preset="best"),
        lambda notes: notes["parameters"].update(preset=[]),
        lambda notes: notes.update(parameters="score"),
        lambda notes: notes["parameters"].update(contamination=7),
        lambda notes: notes.update(parameters=[]),
        lambda notes: notes.update(feature_names=["a"]),
        lambda notes: notes.update(feature_names=[1, 2, 3]),
        lambda notes: notes.update(offset=5.0),
        lambda notes: notes.update(offset="x"),
        lambda notes: notes["parameters"].update(contamination="surprise"),
        lambda notes: notes.update(distribution={}),
        lambda notes: notes.update(distribution=[1]),
        lambda notes: notes["distribution"]["counts"].append(1.0),
        lambda notes: notes["distribution"].update(counts=[float("nan")] * len(notes["distribution"]["bins"])),
    ],
)
def test_damaged_notes_are_rejected(data, tmp_path, damage):
    model = IsolationMondrianForest(n_estimators=2).fit(data[0])
    notes = model.fitted_model().notes()
    damage(notes)
    storage.save(model.forest_.snapshot(), tmp_path / "model.imf", {"IsolationMondrianForest": notes})
    with pytest.raises(imondrian.DamagedFileError):
        imondrian.load(tmp_path / "model.imf")


def test_notes_of_another_kind_of_model_are_rejected(data, tmp_path):
    storage.save(imondrian.MondrianForest(2).build(data[0]).snapshot(), tmp_path / "model.imf", {"Another": {}})
    with pytest.raises(imondrian.DamagedFileError):
        imondrian.load(tmp_path / "model.imf")


def test_a_failed_call_does_not_change_the_estimator(data):
    X, new = data
    model = IsolationMondrianForest(n_estimators=3, random_state=0)
    with pytest.raises(ValueError, match=r"1e\+308"):
        model.partial_fit([[1e308, 1.0], [1.0, 2.0]])
    with pytest.raises(NotFittedError):
        model.predict(X)
    before = model.partial_fit(X).score_samples(new)
    with pytest.raises(ValueError, match=r"1e\+308"):
        model.partial_fit([[1e308, 1.0, 1.0]])
    assert (model.score_samples(new) == before).all()


def test_a_model_that_has_forgotten_all_rows_can_be_saved_and_learns_rows_with_gaps(data, tmp_path):
    X, _ = data
    model = IsolationMondrianForest(n_estimators=5, max_samples=None, missing="median", random_state=0).fit(X)
    model.forget(X)
    with pytest.raises(EmptyForestError):
        model.predict([[np.nan, 0.0, 0.0]])
    imondrian.save(model, tmp_path / "empty.imf")
    restored = imondrian.load(tmp_path / "empty.imf").partial_fit([[np.nan, 1.0, 2.0], [3.0, 4.0, 5.0]])
    points, _ = restored.rescore()
    assert sorted(points.tolist()) == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


@pytest.mark.parametrize("method", ["forget", "explain", "score_samples", "decision_function", "predict"])
def test_an_unfitted_estimator_raises_an_error(data, method, tmp_path):
    with pytest.raises(NotFittedError):
        getattr(IsolationMondrianForest(), method)(data[0])
    with pytest.raises(NotFittedError):
        imondrian.save(IsolationMondrianForest(), tmp_path / "model.imf")
    with pytest.raises(imondrian.InvalidInputError, match="not 3"):
        imondrian.save(3, tmp_path / "model.imf")


def test_the_offset_depends_on_the_parameters(data):
    X, _ = data
    for is_cached in (True, False):
        model = IsolationMondrianForest(contamination=0.1, max_samples=None, random_state=0).partial_fit(X)
        _ = model.offset_ if is_cached else None
        assert (model.set_params(contamination=0.4).predict(X) == -1).sum() == 240
        assert (model.set_params(kind="size").predict(X) == -1).sum() == 240


OTHER_PARAMETERS = [{"contamination": 0.4}, {"contamination": "kmeans"}, {"contamination": "auto"}, {"kind": "depth"}]


@pytest.mark.parametrize("other", [*OTHER_PARAMETERS, {"preset": "paper"}])
def test_reading_a_shallow_copy_does_not_change_the_fitted_offset(data, other):
    """The forest holds a sample of the rows, from which another offset would be computed."""
    X, _ = data
    model = IsolationMondrianForest(n_estimators=5, max_samples=64, random_state=0).fit(X)
    fitted, labels = model.offset_, model.predict(X)
    copied = copy.copy(model).set_params(**other)
    of_copy = copied.offset_
    assert of_copy != fitted
    assert model.offset_ == fitted
    assert (model.predict(X) == labels).all()
    assert (copied.offset_, copied.set_params(**model.get_params()).offset_) == (of_copy, fitted)


@pytest.mark.parametrize("other", OTHER_PARAMETERS)
@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_parameter_that_is_set_back_restores_the_fitted_offset(data, tmp_path, other, is_loaded):
    X, _ = data
    model = IsolationMondrianForest(n_estimators=5, max_samples=64, random_state=0).fit(X)
    fitted = model.offset_
    if is_loaded:
        imondrian.save(model, tmp_path / "model.imf")
        model = imondrian.load(tmp_path / "model.imf")
    before = model.get_params()
    for _ in range(2):
        assert model.set_params(**other).offset_ != fitted
        assert model.set_params(**before).offset_ == fitted
    model.set_params(**other).predict(X)
    model.set_params(**before)
    assert pickle.loads(pickle.dumps(model)).offset_ == copy.deepcopy(model).offset_ == fitted  # noqa: S301
    imondrian.save(model, tmp_path / "model.imf")
    assert imondrian.load(tmp_path / "model.imf").offset_ == fitted


def test_learning_replaces_the_fitted_offset(data):
    X, new = data
    model = IsolationMondrianForest(n_estimators=5, max_samples=64, random_state=0).fit(X)
    fitted = model.offset_
    learned = model.partial_fit(new).offset_
    assert learned != fitted
    model.set_params(contamination=0.4).predict(X)
    assert model.set_params(contamination="preset").offset_ == learned


def test_an_estimator_with_invalid_parameters_is_not_saved(data, tmp_path):
    model = IsolationMondrianForest(n_estimators=3).fit(data[0]).set_params(n_estimators=0)
    with pytest.raises(ValueError, match="n_estimators"):
        imondrian.save(model, tmp_path / "model.imf")
    assert not (tmp_path / "model.imf").exists()


def test_contamination_can_have_other_float_types(data):
    labels = [
        IsolationMondrianForest(contamination=share, random_state=0).fit_predict(data[0]).tolist()
        for share in (np.float32(0.25), np.float64(0.25), 0.25)
    ]
    assert labels[0] == labels[1] == labels[2]


def test_a_window_holds_the_latest_rows():
    rows = np.random.default_rng(0).normal(size=(300, 2))
    fitted = IsolationMondrianForest(n_estimators=5, window=100, max_samples=None, random_state=0).fit(rows)
    np.testing.assert_array_equal(fitted.rescore()[0], rows[-100:])
    fitted.partial_fit(rows[:30])
    np.testing.assert_array_equal(fitted.rescore()[0], np.vstack([rows[230:], rows[:30]]))


@pytest.mark.parametrize("window", [None, 100])
def test_refusing_to_forget_does_not_change_the_offset(data, window):
    X, _ = data
    model = IsolationMondrianForest(n_estimators=10, window=window, max_samples=64, random_state=0).fit(X)
    offset = model.offset_
    with pytest.raises(InvalidInputError, match="is not in the forest"):
        model.forget(np.full((700, 3), 99.0))
    assert model.offset_ == offset


def copied_beside(monkeypatch, model, learn, duplicate):
    """Return a copy of a model; `learn`, as if in another thread, runs when the forest has just been copied."""

    def and_learn(copy_forest):
        def copy_and_learn(forest, *arguments):
            copied = copy_forest(forest, *arguments)
            learn()
            return copied

        return copy_and_learn

    for name in ("__getstate__", "__deepcopy__"):
        monkeypatch.setattr(MondrianForest, name, and_learn(getattr(MondrianForest, name)))
    copied = duplicate(model)
    monkeypatch.undo()
    return copied


DUPLICATES = [lambda model: pickle.loads(pickle.dumps(model)), copy.deepcopy]  # noqa: S301


@pytest.mark.parametrize("duplicate", DUPLICATES)
def test_a_copy_never_has_the_threshold_of_a_later_forest(monkeypatch, data, duplicate):
    X, new = data
    model = IsolationMondrianForest(n_estimators=10, random_state=0).partial_fit(X)
    other = copied_beside(monkeypatch, model, lambda: model.partial_fit(new).offset_, duplicate)
    other.partial_fit(np.full((50, 3), 50.0))  # has as many changes as the later forest
    assert other.forest_.n_changes == model.forest_.n_changes
    assert -other.offset_ == threshold_of_held_points(other.forest_, other.get_params())


@pytest.mark.parametrize("duplicate", DUPLICATES)
def test_a_copy_never_has_the_distribution_of_a_later_forest(monkeypatch, data, duplicate):
    X, new = data
    model = IsolationMondrianForest(n_estimators=10, contamination="auto", random_state=0).partial_fit(X)
    other = copied_beside(monkeypatch, model, lambda: model.partial_fit(new).surprise_samples(new), duplicate)
    other.partial_fit(np.full((50, 3), 50.0))  # has as many changes as the later forest
    assert other.forest_.n_changes == model.forest_.n_changes
    held = ScoreDistribution.of(*other.forest_.rescore_without_copies("size"))
    assert (other.surprise_samples(new) == held.surprise(-other.score_samples(new))).all()
    assert -other.offset_ == held.threshold(0.001)


@pytest.mark.parametrize("duplicate", DUPLICATES)
def test_a_copy_never_has_the_medians_of_a_later_forest(monkeypatch, data, duplicate):
    X, new = data
    gap = [[np.nan, 0.0, 0.0]]
    model = IsolationMondrianForest(n_estimators=10, max_samples=None, random_state=0).partial_fit(X)
    other = copied_beside(monkeypatch, model, lambda: model.partial_fit(new + 9.0).score_samples(gap), duplicate)
    other.partial_fit(np.full((900, 3), 50.0))
    assert other.forest_.n_changes == model.forest_.n_changes
    assert other.score_samples(gap) == other.score_samples([[50.0, 0.0, 0.0]])

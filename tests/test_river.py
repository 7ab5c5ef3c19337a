"""The River detector, including River's own checks on generated instead of downloaded data."""

import inspect
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from river import anomaly, checks, compose, datasets, evaluate, metrics, preprocessing

from imondrian import InvalidInputError
from imondrian.alarms.score_distribution import ScoreDistribution
from imondrian.forest.scores import SCORES
from imondrian.river import IsolationMondrianForest

RNG = np.random.default_rng(0)
NAMES = [f"V{i}" for i in range(8)]


class Stream:
    """Replaces the data set that River would download: the same protocol, with clear anomalies."""

    def __iter__(self):
        rng = np.random.default_rng(1)
        for i in range(self.n):
            is_anomaly = i % 50 == 49
            values = rng.normal(size=8) * (6.0 if is_anomaly else 1.0)
            yield dict(zip(NAMES, values.tolist(), strict=True)), int(is_anomaly)

    n = 1000

    def take(self, n):
        stream = Stream()
        stream.n = min(n, 2000)
        return stream


CONFIGURATIONS = [
    {"n_trees": 10, "seed": 1},
    {"n_trees": 10, "max_samples": 64, "kind": "size", "scale": "std", "seed": 1},
    {"n_trees": 5, "max_samples": None, "kind": "expected"},
    {"n_trees": 5, "max_samples": 16, "window": 64, "kind": "size", "scale": "std", "seed": 1},
]


def all_checks():
    for parameters in CONFIGURATIONS:
        model = IsolationMondrianForest(**parameters)
        assert not model._unit_test_skips()
        for check in checks.yield_checks(model):
            yield pytest.param(parameters, check, id=f"{check.__name__}-{parameters}")


@pytest.fixture(autouse=True)
def no_download(monkeypatch):
    monkeypatch.setattr(datasets, "CreditCard", Stream)


def pytest_generate_tests(metafunc):
    if "river_check" in metafunc.fixturenames:
        original, datasets.CreditCard = datasets.CreditCard, Stream
        metafunc.parametrize(("parameters", "river_check"), list(all_checks()))
        datasets.CreditCard = original


def test_checks_of_river_pass(parameters, river_check):
    river_check(IsolationMondrianForest(**parameters).clone())


def test_check_estimator_of_river_passes():
    checks.check_estimator(IsolationMondrianForest(n_trees=3, seed=1))


def row(values):
    return dict(zip("abc", values, strict=True))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
@pytest.mark.parametrize("kind", SCORES)
def test_many_equals_one_by_one(frame, kind):
    table, new = RNG.normal(size=(60, 3)), RNG.normal(size=(20, 3))
    one, many = (IsolationMondrianForest(n_trees=5, max_samples=16, kind=kind, seed=2) for _ in range(2))
    for values in table:
        one.learn_one(row(values))
    many.learn_many(frame(dict(zip("abc", table.T, strict=True))))
    scores = many.score_many(frame(dict(zip("cab", new.T[[2, 0, 1]], strict=True))))
    assert list(scores) == [one.score_one(row(values)) for values in new]
    assert isinstance(scores, pd.Series if frame is pd.DataFrame else pl.Series)


def test_a_pandas_index_is_kept():
    model = IsolationMondrianForest(n_trees=2, seed=0)
    table = pd.DataFrame({"a": [1.0, 2.0]}, index=["x", "y"])
    assert model.score_many(table).to_dict() == {"x": 0.0, "y": 0.0}
    model.learn_many(table)
    assert model.score_many(table).index.tolist() == ["x", "y"]


@pytest.mark.parametrize("missing", [{}, {"a": None}, {"a": float("nan")}, {"a": pd.NA}])
def test_missing_numbers_are_replaced_by_the_median_of_the_forest(missing):
    """In the points before a feature appears, it is 0."""
    model, plain = (IsolationMondrianForest(n_trees=5, max_samples=None, seed=3) for _ in range(2))
    model.learn_one({"a": 1.0, "b": None})
    model.learn_one({"b": 2.0, "a": 3.0})
    model.learn_one({"b": 5.0} | missing)
    for values in ({"a": 1.0, "b": 0.0}, {"a": 3.0, "b": 2.0}, {"a": 2.0, "b": 5.0}):
        plain.learn_one(values)
    assert model.score_one({"b": 2.0} | missing) == plain.score_one({"a": 2.0, "b": 2.0})
    assert model.score_one({"a": 2.0, "unknown": 9.0}) == model.score_one({"a": 2.0})
    assert model.score_one(missing) == model.score_one({"unknown": 9.0}) == 0.0
    assert set(model.explain_one(missing).values()) == {0.0}


def test_a_point_without_any_value_is_not_learned():
    model = IsolationMondrianForest(n_trees=3, seed=0)
    for x in ({}, {"a": None}, {"a": float("nan"), "b": pd.NaT}):
        model.learn_one(x)
    model.learn_many(pd.DataFrame({"a": [None, 1.0], "b": [None, "x"]}))
    model.learn_one({"a": None})
    assert model._forest.n_points == 1


def rows_with_categories(n, seed):
    rng = np.random.default_rng(seed)
    return [
        {
            "amount": None if rng.random() < 0.2 else rng.normal(),
            "country": None if rng.random() < 0.1 else str(rng.choice(["FR", "DE", "IT"])),
            "paid": None if rng.random() < 0.1 else bool(rng.random() < 0.7),
        }
        for _ in range(n)
    ]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
@pytest.mark.parametrize("settings", [{}, {"window": 64, "max_samples": 16}, {"max_samples": None, "kind": "depth"}])
def test_many_equals_one_by_one_with_categories_and_gaps(frame, settings):
    rows, new = rows_with_categories(150, 0), rows_with_categories(30, 1)
    one, many = (IsolationMondrianForest(n_trees=5, seed=2, **settings) for _ in range(2))
    for x in rows:
        one.learn_one(x)
    many.learn_many(frame(rows[:40]))
    many.learn_many(frame(rows[40:]))
    scores = [one.score_one(x) for x in new]
    np.testing.assert_allclose(many.score_many(frame(new)), scores, rtol=1e-14)
    copied = pickle.loads(pickle.dumps(one))  # noqa: S301
    assert [copied.score_one(x) for x in new] == scores
    copied.learn_one(new[0])
    one.learn_one(new[0])
    assert copied.score_one(new[1]) == one.score_one(new[1])


N_LATE = 100
LATE = np.where(np.arange(N_LATE) < 30, np.nan, RNG.normal(size=N_LATE))
COLUMNS = {
    "categorical integers": pd.Categorical(RNG.integers(0, 3, N_LATE)),
    "large integers": pd.array([None, *(2**53 + RNG.integers(0, 3, N_LATE - 1))], dtype="Int64"),
    "late numbers": LATE,
    "late text": [None if np.isnan(value) else "xy"[int(value > 0)] for value in LATE],
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("has_others", [True, False])
def test_many_equals_one_by_one_for_unusual_columns(name, has_others):
    frame = pd.DataFrame({"c": COLUMNS[name]}, index=np.arange(N_LATE) / 2)
    if has_others:
        frame["a"], frame["v"] = LATE[::-1], RNG.normal(size=N_LATE)
    rows = frame.to_dict("records")
    one, many = (IsolationMondrianForest(n_trees=5, seed=2) for _ in range(2))
    for x in rows:
        one.learn_one(x)
    many.learn_many(frame)
    assert many._columns == one._columns
    assert [many.score_one(x) for x in rows] == [one.score_one(x) for x in rows]
    np.testing.assert_allclose(many.score_many(frame), [one.score_one(x) for x in rows], rtol=1e-14)


def test_a_bad_row_after_a_new_feature_changes_nothing():
    model = IsolationMondrianForest(n_trees=3, seed=0)
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [None, None, 1.0, np.inf]})
    with pytest.raises(InvalidInputError, match="inf"):
        model.learn_many(frame)
    assert (model._forest.n_points, model._columns) == (0, {})


def test_a_category_may_appear_later():
    """In the points learned before, it counts as missing."""
    model = IsolationMondrianForest(n_trees=50, seed=0)
    rows = rows_with_categories(300, 0)
    for x in rows[:150]:
        model.learn_one({"amount": x["amount"]})
    for x in rows[150:]:
        model.learn_one(x)
    parts = model.explain_one({"amount": 0.0, "country": "KP", "paid": True})
    assert max(parts, key=parts.get) == "country"
    assert min(parts["country"], parts["paid"]) >= 0.0
    usual = model.score_one({"amount": 0.0, "country": "FR", "paid": True})
    assert model.score_one({"amount": 0.0, "country": "KP", "paid": True}) > usual


def test_text_in_a_numeric_feature_is_an_error():
    model = IsolationMondrianForest(n_trees=3, seed=0)
    model.learn_one({"a": 1.0, "c": "x"})
    with pytest.raises(InvalidInputError, match="The feature 'a' must be a number, but is 'x'"):
        model.learn_one({"a": "x", "c": "x"})
    model.learn_one({"a": 2.0, "c": 3})  # a category may look like a number
    assert model._forest.n_points == 2


def test_feature_names_can_have_any_type():
    model = IsolationMondrianForest(n_trees=3, seed=0)
    model.learn_one({1: 1.0, "a": 2.0, ("t", 3): 3.0})
    model.learn_one({("t", 3): 1.0, "b": 2.0})
    assert set(model.explain_one({"a": 9.0})) == {1, "a", "b", ("t", 3)}


def test_explanations_sum_to_the_score():
    model = IsolationMondrianForest(n_trees=20, kind="size", seed=0)
    assert sum(model.explain_one({"a": 1.0, "b": 2.0}).values()) == 0.0
    for values in RNG.normal(size=(200, 3)):
        model.learn_one(row(values))
    anomaly_row = row([0.0, -9.0, 0.0])
    parts = model.explain_one(anomaly_row)
    assert sum(map(abs, parts.values())) == pytest.approx(model.score_one(anomaly_row))
    assert min(parts, key=parts.get) == "b"


def model_of_normal_points(n=2_000, d=2, **settings):
    model = IsolationMondrianForest(**{"n_trees": 30, "max_samples": 128, "seed": 3, **settings})
    model.learn_many(pd.DataFrame(np.random.default_rng(7).normal(size=(n, d)), columns=list("abcdef"[:d])))
    return model


@pytest.mark.parametrize("settings", [{}, {"window": 512}, {"preset": "paper"}, {"max_samples": None, "n_trees": 5}])
def test_the_surprise_is_that_of_the_score_among_the_points_of_the_forest(settings):
    model = model_of_normal_points(**settings)
    expected = ScoreDistribution.of(*model._forest.rescore_without_copies(model._kind))
    for a in (0.0, 1.0, 3.0, 9.0):
        point = {"a": a, "b": -a}
        assert model.surprise_one(point) == expected.surprise([model.score_one(point)])[0]
    assert model.surprise_one({"a": 0.0, "b": 0.0}) < 1.0 < model.surprise_one({"a": 9.0, "b": 9.0})


def test_a_surprise_is_exceeded_about_as_often_as_it_says():
    """With 2,000 new points, 200 are expected to exceed 1; 130 to 300 are allowed (5 and 7 standard deviations)."""
    model = model_of_normal_points(5_000)
    surprises = [model.surprise_one({"a": a, "b": b}) for a, b in np.random.default_rng(5).normal(size=(2_000, 2))]
    assert 130 <= sum(surprise > 1.0 for surprise in surprises) <= 300


def test_a_surprise_changes_nothing_that_is_learned():
    asked, other = (model_of_normal_points(300) for _ in range(2))
    for i, (a, b) in enumerate(RNG.normal(size=(200, 2))):
        point = {"a": a, "b": b}
        assert asked.surprise_one(point) >= 0.0
        assert asked.score_one(point) == other.score_one(point)
        asked.learn_one(point)
        other.learn_one(point)
        if i == 100:
            asked = pickle.loads(pickle.dumps(asked))  # noqa: S301
    assert asked._forest.n_shown == 500


def test_the_scores_behind_a_surprise_follow_the_stream():
    model = model_of_normal_points(1_000, window=256)
    far = {"a": 40.0, "b": 40.0}
    before = model.surprise_one(far)
    model.learn_many(pd.DataFrame(np.random.default_rng(8).normal(40.0, size=(600, 2)), columns=["a", "b"]))
    assert model.surprise_one(far) < 1.0 < before
    stored = model._distribution
    model.learn_one({"a": 40.0, "b": 41.0})
    model.surprise_one(far)
    assert model._distribution is stored
    model.learn_one({"a": 40.0, "b": 41.0, "new": 1.0})
    model.surprise_one(far)
    assert model._distribution is not stored


def test_the_surprise_is_zero_until_there_is_a_score():
    model = IsolationMondrianForest(n_trees=5, seed=1)
    assert model.surprise_one({"a": 1.0}) == 0.0
    model.learn_one({"a": 1.0})
    assert model.surprise_one({"a": 5.0}) == 0.0
    model.learn_one({"a": 2.0})
    assert model.surprise_one({}) == 0.0
    assert model.surprise_one({"a": 5.0}) >= 0.0


def test_a_pipeline_works_in_progressive_validation():
    model = compose.Pipeline(preprocessing.StandardScaler(), IsolationMondrianForest(n_trees=20, seed=0))
    assert evaluate.progressive_val_score(Stream(), model, metrics.ROCAUC()).get() > 0.9


def test_equal_seeds_give_equal_scores():
    def scores(seed):
        model = IsolationMondrianForest(
            n_trees=3, kind="size", seed=seed
        )  # the mean depths of few trees are often equal
        for x, _ in Stream().take(100):
            model.learn_one(x)
        return model.score_one(x)

    assert scores(1) == scores(1) != scores(2)
    assert scores(None) != scores(None)
    assert "seed" in inspect.signature(IsolationMondrianForest).parameters


@pytest.mark.parametrize(
    "columns", [{0: [1.0, 2.0], 1: [3.0, 4.0]}, {0: [1.0, 2.0], "b": [3.0, 4.0]}], ids=["integers", "mixed"]
)
def test_column_names_can_have_any_type(columns):
    one, many = (IsolationMondrianForest(n_trees=3, seed=1) for _ in range(2))
    many.learn_many(pd.DataFrame(columns))
    for i in range(2):
        one.learn_one({name: values[i] for name, values in columns.items()})
    assert many.score_one({0: 9.0}) == one.score_one({0: 9.0})


@pytest.mark.parametrize(
    "frame",
    [pd.DataFrame({"a": pd.to_datetime(["2020-01-01", "2020-01-02"])}), pd.DataFrame({"a": [1 + 2j, 3.0]})],
    ids=["dates", "complex"],
)
def test_a_bad_data_frame_does_not_change_the_model(frame):
    model = IsolationMondrianForest(n_trees=2, seed=0)
    with pytest.raises(InvalidInputError):
        model.learn_many(frame)
    assert model.score_one({"a": 2.0}) == 0.0
    assert len(model.score_many(frame[:0])) == 0


@pytest.mark.parametrize(
    "bad",
    [{"a": "text"}, {"a": 1e308}, {"new": float("inf")}, {"a": 10**400}, {"a": 1j}, {"a": np.timedelta64(1, "s")}],
)
def test_a_bad_point_does_not_change_the_model(bad):
    model = IsolationMondrianForest(n_trees=2, seed=0)
    model.learn_one({"a": 1.0})
    with pytest.raises(InvalidInputError):
        model.learn_one(bad)
    assert model.score_one({"a": 2.0}) == 0.0
    assert list(model.explain_one({"a": 2.0})) == ["a"]


# -- in River's filters and pipelines ---------------------------------------------------------------------------------


def noisy_stream(n_rows=2_000, seed=0):
    rng = np.random.default_rng(seed)
    for i in range(n_rows):
        is_odd = i >= 500 and i % 100 == 0
        yield {"x": rng.normal() + 8.0 * is_odd, "y": rng.normal()}, is_odd


@pytest.mark.parametrize("settings", [{}, {"kind": "size", "scale": "std"}, {"kind": "expected", "window": 256}])
@pytest.mark.parametrize("protect", [True, False])
def test_a_quantile_filter_flags_about_its_share_and_finds_the_anomalies(settings, protect):
    model = IsolationMondrianForest(n_trees=20, max_samples=64, seed=1, **settings)
    filtered = anomaly.QuantileFilter(model, q=0.95, protect_anomaly_detector=protect)
    n_flagged = n_found = n_odd = 0
    for x, is_odd in noisy_stream():
        is_flagged = filtered.classify(filtered.score_one(x))
        filtered.learn_one(x)
        n_flagged += is_flagged
        n_odd += is_odd
        n_found += is_flagged and is_odd
    assert 0.01 * 2_000 < n_flagged < 0.15 * 2_000
    assert n_found >= 0.8 * n_odd


def test_a_threshold_filter_in_a_pipeline_learns_normal_points():
    model = IsolationMondrianForest(n_trees=20, max_samples=64, kind="size", seed=1)
    pipeline = preprocessing.StandardScaler() | anomaly.ThresholdFilter(model, threshold=0.9)
    for x, _ in noisy_stream(600):
        pipeline.score_one(x)
        pipeline.learn_one(x)
    assert 500 < model._forest.n_points <= 600
    assert pipeline.score_one({"x": 50.0, "y": 0.0}) > 0.5


def test_the_score_is_zero_until_two_different_points_were_learned():
    model = IsolationMondrianForest(n_trees=5, seed=1)
    for _ in range(3):
        assert model.score_one({"x": 1.0}) == 0.0
        assert model.score_many(pd.DataFrame({"x": [1.0, 2.0]})).tolist() == [0.0, 0.0]
        assert model.explain_one({"x": 1.0}) == {"x": 0.0}
        model.learn_one({"x": 1.0})
    model.learn_one({"x": 2.0})
    assert model.score_one({"x": 1.0}) > 0.0


def test_learning_a_row_does_not_copy_the_trees():
    model = IsolationMondrianForest(n_trees=5, max_samples=32, seed=1)
    for x, _ in noisy_stream(100):
        model.learn_one(x)
    tables = [array.ctypes.data for array in model._forest.state()[0]]
    for x, _ in noisy_stream(50):
        model.learn_one(x)
    assert [array.ctypes.data for array in model._forest.state()[0]] == tables

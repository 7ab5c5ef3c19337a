"""Bad and unusual input in every adapter: a clear error or a correct result."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

from imondrian import Fleet, IsolationMondrianForest, MondrianForest, StreamDetector
from imondrian.base.errors import InvalidInputError
from imondrian.forest.inputs import number_of_text
from imondrian.pyod import IMForest
from tests.optional_models import new_river_forest

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
ESTIMATOR = {"n_estimators": 5, "categorical": [], "missing": "raise", "random_state": 0}


class Forest:
    """`MondrianForest` itself."""

    fitted = staticmethod(lambda table: MondrianForest(n_trees=5).build(table))
    scores = staticmethod(lambda model, table: model.score(table))


class ScikitLearn:
    fitted = staticmethod(lambda table: IsolationMondrianForest(**ESTIMATOR).fit(table))
    scores = staticmethod(lambda model, table: -model.score_samples(table))


class ScikitLearnPartial:
    fitted = staticmethod(lambda table: IsolationMondrianForest(**ESTIMATOR).partial_fit(table))
    scores = staticmethod(lambda model, table: -model.score_samples(table))


class PyOD:
    fitted = staticmethod(lambda table: IMForest(**ESTIMATOR).fit(table))
    scores = staticmethod(lambda model, table: model.decision_function(table))


class River:
    @staticmethod
    def fitted(table):
        model = new_river_forest(n_trees=5, seed=0)
        for values in table:
            model.learn_one(dict(enumerate(values)))
        return model

    @staticmethod
    def scores(model, table):
        return np.array([model.score_one(dict(enumerate(values))) for values in table])


ADAPTERS = [Forest, ScikitLearn, ScikitLearnPartial, PyOD, River]


def with_value(value):
    """Return the table with one value replaced."""
    table = X.astype(object if isinstance(value, str) else float)
    table[3, 1] = value
    return table


ERRORS = {
    "NaN": (with_value(np.nan), "(?i)nan"),
    "inf": (with_value(np.inf), "(?i)inf"),
    "minus inf": (with_value(-np.inf), "(?i)inf"),
    "text": (with_value("odd"), "odd|number"),
    "1e308": (with_value(1e308), r"1e\+308"),
    "no rows": (X[:0], "(?i)empty|0 sample"),
}


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.__name__)
@pytest.mark.parametrize("case", ERRORS)
def test_bad_values_cannot_be_learned_and_are_named(adapter, case):
    table, message = ERRORS[case]
    if adapter is River and case in ("no rows", "NaN"):
        is_empty = case == "no rows"
        assert (River.fitted(table).score_one({0: 1.0}) == 0.0) == is_empty  # a stream that has not begun
        return
    with pytest.raises(ValueError, match=message):
        adapter.fitted(table)


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.__name__)
@pytest.mark.parametrize("case", ERRORS)
def test_bad_values_cannot_be_scored_and_are_named(adapter, case):
    table, message = ERRORS[case]
    model = adapter.fitted(X)
    before = adapter.scores(model, X)
    if adapter is River and case in ("no rows", "NaN"):  # NaN is missing
        assert River.scores(model, table).size == len(table)
        return
    with pytest.raises(ValueError, match=message):
        adapter.scores(model, table)
    assert (adapter.scores(model, X) == before).all()


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.__name__)
def test_a_wrong_number_of_features_is_an_error(adapter):
    model = adapter.fitted(X)
    if adapter is River:  # features appear and disappear
        gaps = np.column_stack([X[:, :2], np.full(len(X), np.nan)])
        assert (River.scores(model, X[:, :2]) == River.scores(model, gaps)).all()
        return
    with pytest.raises(ValueError, match="2 features"):
        adapter.scores(model, X[:, :2])


GOOD = {
    "one row": X[:1],
    "two copies": np.vstack([X[:1], X[:1]]),
    "a constant column": np.column_stack([X, np.full(80, 7.0)]),
    "all constant": np.full((20, 3), 5.0),
    "tiny": X * 1e-300,
    "huge": X * 1e150,
    "integers": (X * 100).astype(int),
    "one column": X[:, :1],
    "neighbouring floats": np.nextafter(np.ones((30, 2)), X[:30, :2]),
}


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.__name__)
@pytest.mark.parametrize("case", GOOD)
def test_unusual_but_valid_tables_are_learned_and_scored(adapter, case):
    table = GOOD[case]
    model = adapter.fitted(table)
    for rows in (table, table * 2.0):
        scores = adapter.scores(model, rows)
        assert scores.shape == (len(rows),)
        lowest = 0.0 if adapter is River and len(np.unique(table, axis=0)) == 1 else np.nextafter(0.0, 1.0)
        assert ((scores >= lowest) & (scores < 1)).all()


@pytest.mark.parametrize("model", [IsolationMondrianForest(), IMForest()], ids=["scikit-learn", "PyOD"])
def test_predicting_before_fitting_raises_an_error(model):
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_estimators": 0}, "n_estimators"),
        ({"max_samples": 0}, "max_samples"),
        ({"max_samples": 1.5}, "max_samples"),
        ({"max_samples": "all"}, "max_samples"),
        ({"window": 0}, "window"),
        ({"kind": "deep"}, "kind"),
        ({"scale": "mad"}, "scale"),
        ({"scale": [1.0, 2.0]}, "scale must have one weight for each of 3 features"),
        ({"contamination": 0.0}, "contamination"),
        ({"contamination": 0.7}, "contamination"),
        ({"contamination": "many"}, "contamination"),
        ({"n_jobs": "all"}, "n_jobs"),
        ({"random_state": "seed"}, "random_state"),
    ],
)
def test_bad_parameters_are_named_when_fitting(parameters, message):
    with pytest.raises(ValueError, match=message):
        IsolationMondrianForest(**parameters).fit(X)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_trees": 0}, "n_trees"),
        ({"max_samples": 0}, "max_samples"),
        ({"kind": "deep"}, "kind must be one of depth, expected, size, but is 'deep'"),
        ({"scale": "mad"}, "scale"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_parameters_are_named_by_river(parameters, message):
    with pytest.raises(ValueError, match=message):
        new_river_forest(**parameters)


@given(st.floats(0.0, allow_infinity=False))
def test_every_number_as_text_is_that_number(number):
    assert number_of_text(repr(number)) == number_of_text(f" {number!r} ") == number


@given(st.one_of(st.text("0123456789._e+-٣\uff10 ", max_size=12), st.text(max_size=6), st.floats().map(repr)))
def test_other_text_is_no_number(text):
    number = number_of_text(text)
    core = text.strip(" \t\n\r\f\v")
    is_plain = set(core) <= set("0123456789.eE+-") and not core.startswith(("+", "-"))
    try:
        expected = float(text)
    except ValueError:
        expected = np.inf
    assert number == (expected if is_plain and np.isfinite(expected) else None)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "g", ">f8", "i4", "?"])
def test_a_memoryview_is_read_like_the_array(dtype):
    rows = (4 * X).astype(dtype)
    views, keys = memoryview(rows), ["a"] * len(rows)
    expected = StreamDetector(3, seed=0).process_many(rows).score
    np.testing.assert_array_equal(StreamDetector(3, seed=0).process_many(views).score, expected)
    in_fleet = Fleet(3, seed=0).process_many(keys, rows).score
    np.testing.assert_array_equal(Fleet(3, seed=0).process_many(keys, views).score, in_fleet)
    one_by_one, from_views = StreamDetector(3, seed=0), StreamDetector(3, seed=0)
    for row in rows:
        assert repr(from_views.process(memoryview(row))) == repr(one_by_one.process(row))


def released_view():
    view = memoryview(X.copy())
    view.release()
    return view


@pytest.mark.parametrize(
    "view",
    [
        memoryview(b"abc" * 80).cast("c", (80, 3)),
        memoryview(X.astype(complex)),
        memoryview(np.zeros(80, [("a", "f8"), ("b", "f8"), ("c", "f8")])),
        memoryview(np.array(1.0)),
        released_view(),
    ],
)
def test_a_memoryview_without_rows_of_numbers_is_refused(view):
    for process in (
        StreamDetector(3).process_many,
        StreamDetector(3).process,
        StreamDetector(3).score,
        lambda rows: Fleet(3).process_many(["a"] * 80, rows),
        lambda row: Fleet(3).process("a", row),
    ):
        with pytest.raises(InvalidInputError):
            process(view)


@pytest.mark.parametrize(("sign", "shown"), [(1, "about 10^5000"), (-1, "about -10^5000")])
def test_very_long_integers_are_shown_as_powers_of_ten(sign, shown):
    value = sign * 10**5_000
    with pytest.raises(InvalidInputError, match=re.escape(f"but is {shown}.")):
        MondrianForest(value)
    for process in (StreamDetector(1).process, lambda row: StreamDetector(1).process_many([row])):
        with pytest.raises(InvalidInputError, match=re.escape(f"but is {shown}.")):
            process([value])

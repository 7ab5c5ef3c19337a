"""Masked values are missing values: their hidden content is never learned, whichever way they come in."""

import numpy as np
import pytest

from imondrian import Fleet, IsolationMondrianForest, MondrianForest, StreamDetector
from imondrian.base.errors import InvalidInputError
from imondrian.pyod import IMForest

HIDDEN = 1e6
PLACES = [(3, 1), (40, 0), (41, 1)]


@pytest.fixture(params=["float", "integer", "nothing hidden"])
def tables(request):
    """Return a masked array, and the same array with NaN."""
    X = np.random.default_rng(0).normal(size=(200, 2))
    if request.param == "integer":
        X = np.round(100 * X)
    plain = X.copy()
    places = [] if request.param == "nothing hidden" else PLACES
    for place in places:
        X[place], plain[place] = HIDDEN, np.nan
    mask = np.isnan(plain)
    return np.ma.array(X.astype(np.int64) if request.param == "integer" else X, mask=mask), plain


def settings(missing):
    return {"n_trees": 5, "window": 64, "missing": missing}


@pytest.mark.parametrize("missing", ["median", "indicator", "previous"])
def test_streams_treat_masked_values_as_missing(tables, missing):
    masked, plain = tables
    results = []
    for X, by_row in ((plain, False), (masked, False), (masked, True)):
        detector = StreamDetector(2, **settings(missing))
        rows = [detector.process(row).score for row in X] if by_row else detector.process_many(X).score.tolist()
        results.append((rows, detector.n_missing, detector.score(X[:50]).tolist()))
        assert detector.forest.points().max() < HIDDEN
    assert results[0] == results[1] == results[2]


def test_streams_skip_masked_values(tables):
    masked, plain = tables
    found = []
    for X in (plain, masked):
        detector = StreamDetector(2, n_trees=5, window=64, missing="raise", on_error="skip")
        found.append(detector.process_many(X).score)
    assert np.array_equal(*found, equal_nan=True)


def test_fleets_refuse_masked_values(tables):
    masked, plain = tables
    fleets = [Fleet(2, seed=0) for _ in range(2)]
    keys = ["a", "b"] * 100
    if not np.isnan(plain).any():
        assert fleets[0].process_many(keys, plain).score.tolist() == fleets[1].process_many(keys, masked).score.tolist()
        assert fleets[0].process("a", plain[0]) == fleets[1].process("a", masked[0])
        return
    for X in tables:
        with pytest.raises(InvalidInputError):
            fleets[0].process_many(keys, X)
        with pytest.raises(InvalidInputError):
            fleets[0].process("a", X[3])


@pytest.mark.parametrize("categorical", ["auto", [1]])
@pytest.mark.parametrize("model", [IsolationMondrianForest, IMForest])
def test_estimators_treat_masked_values_as_missing(tables, model, categorical):
    masked, plain = tables
    found = []
    for X in (plain, masked):
        estimator = model(n_estimators=10, missing="indicator", categorical=categorical, random_state=0).fit(X)
        found.append(np.asarray(estimator.decision_function(X)))
        assert estimator.decision_function(X[3:4])[0] == found[-1][3]
    assert np.array_equal(*found)


def test_estimators_learn_more_rows_with_masked_values(tables):
    masked, plain = tables
    found = []
    for X in (plain, masked):
        estimator = IsolationMondrianForest(n_estimators=10, missing="indicator", random_state=0).fit(X[:100])
        found.append(estimator.partial_fit(X[30:60]).score_samples(X).tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("shape", [(2, 2), (4,), (1, 2, 2)])
def test_masked_arrays_of_text_are_refused(shape):
    X = np.ma.array(np.array(["a", 1.0, 2.0, 3.0], dtype=object).reshape(shape), mask=False)
    X[(0,) * (len(shape) - 1) + (1,)] = np.ma.masked
    for call in (
        StreamDetector(2).process_many,
        StreamDetector(2).score,
        MondrianForest(5).build,
        lambda X: Fleet(2).process("a", X),
    ):
        with pytest.raises(InvalidInputError):
            call(X)


@pytest.mark.parametrize("listed", [list, tuple])
@pytest.mark.parametrize("model", [IsolationMondrianForest, IMForest])
def test_lists_of_masked_rows_are_like_the_array(tables, model, listed):
    masked, plain = tables
    estimator = model(n_estimators=10, missing="indicator", random_state=0).fit(plain)
    same = model(n_estimators=10, missing="indicator", random_state=0).fit(listed(masked))
    expected = estimator.decision_function(plain)
    assert np.array_equal(estimator.decision_function(listed(masked)), expected)
    assert np.array_equal(same.decision_function(plain), expected)


def test_forests_refuse_lists_of_masked_rows(tables):
    masked, plain = tables
    if np.isnan(plain).any():
        with pytest.raises(InvalidInputError):
            MondrianForest(5).build(list(masked))


@pytest.mark.parametrize("values", [[1j, 2j], ["1", "2"], np.array(["2020-01-01", "2020-01-02"], "M8[D]")])
def test_masked_values_of_other_types_are_refused_like_those_without_a_mask(values):
    X = np.ma.array(np.array([values] * 5), mask=False)
    X[1, 1] = np.ma.masked
    with pytest.raises(InvalidInputError):
        MondrianForest(5).build(X)
    with pytest.raises(ValueError, match=r"."):
        IsolationMondrianForest(n_estimators=5, categorical=[]).fit(X)


def test_forests_refuse_masked_values(tables):
    masked, plain = tables
    forests = [MondrianForest(5, seed=0) for _ in range(2)]
    if np.isnan(plain).any():
        for X in tables:
            with pytest.raises(InvalidInputError):
                forests[0].extend(X)
    else:
        assert forests[0].extend(masked).score(plain).tolist() == forests[1].extend(plain).score(plain).tolist()

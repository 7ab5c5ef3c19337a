"""A fitted model: missing numbers, and notes that are refused with the rule that they break."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from imondrian import InvalidInputError, IsolationMondrianForest
from imondrian.models.fitted_model import FittedModel, fit


@pytest.fixture(scope="module")
def model():
    parameters = IsolationMondrianForest(n_estimators=2, random_state=0).get_params()
    return fit(np.array([[0.0], [1.0], [5.0]]), parameters, seed=0).model


def test_a_model_is_restored_from_its_notes(model):
    restored = FittedModel.from_notes(model.forest, model.notes())
    assert (restored.contamination, restored.threshold) == (model.contamination, model.threshold)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offset": 5}, "the offset must be between -1 and 0, but is 5"),
        ({"parameters": {}}, r"the parameters must be \['categorical', .*\], but are \['categorical', 'missing'\]"),
        ({"missing": "mean"}, "missing must be one of raise, median, indicator, but is 'mean'"),
        ({"categorical": [0]}, r"categorical must be \[\], but is \[0\]"),
        ({"fill": [1.0, 2.0]}, "the medians must be 1 finite numbers"),
        ({"fill": [float("nan")]}, "the medians must be 1 finite numbers"),
        ({"indicators": [0]}, "an indicator must be between 0 and -1"),
        ({"indicators": "0"}, "the indicators must be a list"),
        ({"kind": "best"}, r"the kind of the score must be one of \['depth', 'expected', 'size'\], but is 'best'"),
        ({"window": float("inf")}, "window must be finite, but is inf"),
    ],
)
def test_invalid_notes_are_refused_with_the_rule(model, change, message):
    notes = model.notes()
    damaged = notes | change if change.keys() <= notes.keys() else notes | {"parameters": notes["parameters"] | change}
    with pytest.raises(ValueError, match=message):
        FittedModel.from_notes(model.forest, damaged)


# -- missing numbers --------------------------------------------------------------------------------------------------

TABLES = arrays(
    np.float64,
    st.tuples(st.integers(1, 12), st.integers(1, 3)),
    elements=st.one_of(st.just(np.nan), st.sampled_from([-3.0, 0.0, 0.5, 7.0])),
)


def fitted(points, **parameters):
    return fit(points, IsolationMondrianForest(n_estimators=3, **parameters).get_params(), seed=0)


@given(points=TABLES)
def test_a_gap_has_the_score_of_the_median(points):
    usable = ~np.isnan(points).all(axis=1)
    if not usable.any():
        with pytest.raises(InvalidInputError, match="No row has a value"):
            fitted(points)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without values
        medians = np.nan_to_num(np.nanmedian(points, axis=0))
    model, scores = fitted(points, missing="median", contamination=0.2)
    complete = fitted(np.where(np.isnan(points), medians, points)[usable], contamination=0.2)
    np.testing.assert_array_equal(model.fill, medians)
    np.testing.assert_array_equal(scores[usable], complete.scores)
    assert np.isnan(scores[~usable]).all()
    assert model.threshold == complete.model.threshold
    np.testing.assert_array_equal(model.explain(points)[usable], complete.model.explain(complete_rows(points, medians)))


def complete_rows(points, medians):
    return np.where(np.isnan(points), medians, points)[~np.isnan(points).all(axis=1)]


def test_a_missing_number_can_be_refused():
    points = np.array([[1.0], [2.0], [np.nan]])
    with pytest.raises(InvalidInputError, match=r"X\[2, 0\] is nan"):
        fitted(points, missing="raise")
    model = fitted(points[:2], missing="raise").model
    assert np.isnan(model.score(points)).tolist() == [False, False, True]


def test_notes_of_version_1_mean_that_missing_numbers_are_refused():
    points = np.random.default_rng(0).normal(size=(50, 2))
    model = fitted(points).model
    notes = {name: value for name, value in model.notes().items() if name not in ("fill", "indicators")}
    notes["parameters"] = {k: v for k, v in notes["parameters"].items() if k not in ("categorical", "missing")}
    former = FittedModel.from_notes(model.forest, notes)
    assert (former.missing, former.parameters["categorical"]) == ("raise", [])
    np.testing.assert_array_equal(former.score(points), model.score(points))
    assert np.isnan(former.score(np.array([[np.nan, 1.0]]))).all()


def test_medians_that_are_not_stored_are_those_of_the_forest():
    points = np.random.default_rng(0).normal(size=(50, 2))
    model = fitted(points, max_samples=None).model
    np.testing.assert_array_equal(replace(model, stored_fill=None).fill, model.fill)

"""Columns that hold numbers are features; the others are left out with a reason, and a wrong cell is named."""

from datetime import date

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.errors import InvalidInputError
from imondrian.tables.columns import NOT_THERE, choose, points_of, times_of, typed
from imondrian.tables.missing import MISSING, medians_of

FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e150, max_value=1e150)


@given(values=st.lists(st.one_of(FINITE, st.none()), min_size=1, max_size=20))
def test_numbers_written_as_text_are_read_back_exactly(values):
    texts = pl.DataFrame({"a": ["" if value is None else f" {value!r} " for value in values]})
    expected = np.array([np.nan if value is None else value for value in values])
    assert np.array_equal(points_of(texts, ["a"])[:, 0], expected, equal_nan=True)
    numbers = pl.DataFrame({"a": values}, schema={"a": pl.Float64})
    assert np.array_equal(points_of(numbers, ["a"])[:, 0], expected, equal_nan=True)


@pytest.mark.parametrize("missing", NOT_THERE)
def test_what_stands_for_nothing_is_missing(missing):
    assert np.isnan(points_of(pl.DataFrame({"a": [missing, "1"]}), ["a"])[0, 0])


def test_only_numbers_are_features_and_the_rest_has_a_reason():
    frame = pl.DataFrame(
        {
            "id": [1, 2, 3, 4],
            "name": ["x", "y", "z", "1"],
            "a": ["1", "2.5", "NA", "-1e3"],
            "on": [True, False, True, True],
            "day": [date(2024, 1, i) for i in (1, 2, 3, 4)],
            "list": [[1], [2], [3], [4]],
            "empty": ["", "", None, "NA"],
            "constant": [7, 7, 7, 7],
        }
    )
    columns = choose(frame)
    assert columns.features == ["a", "on", "constant"]
    assert columns.left_out["id"] == "counts the rows"
    assert columns.left_out["name"] == "text, such as 'x'"
    assert columns.left_out["day"] == "a date or time"
    assert columns.left_out["list"].startswith("not numbers")
    assert columns.left_out["empty"] == "without values"


def test_results_of_an_earlier_run_are_no_features():
    frame = pl.DataFrame({"a": [1.0, 5.0], "row": [1, 2], "anomaly_score": [0.4, 0.6], "threshold": [0.5, 0.5]})
    assert choose(frame).features == ["a"]
    assert choose(frame.drop("anomaly_score")).features == ["a", "row", "threshold"]


def test_columns_can_be_chosen():
    frame = pl.DataFrame({"a": [1.0, 5.0, 2.0], "b": [3.0, 1.0, 2.0], "id": [1, 2, 3], "t": [1.0, 2.5, 3.0]})
    assert choose(frame, features=["id", "a"]).features == ["id", "a"]
    assert choose(frame, ignore=["a"], time="t").features == ["b"]
    assert choose(frame, ignore=["a"], time="t").left_out["t"] == "the time"
    for wrong in ({"features": ["c"]}, {"ignore": ["c"]}, {"time": "c"}):
        with pytest.raises(InvalidInputError, match="no column 'c'; there are 'a', 'b'"):
            choose(frame, **wrong)
    with pytest.raises(InvalidInputError, match=r"No column can be used.*a: to be ignored"):
        choose(frame[["a"]], ignore=["a"])


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        ("q", "'q' is not a number"),
        ("inf", "inf is not finite"),
        ("1e200", "1e\\+200 is beyond"),
        ("1,5", "'1,5' is not"),
    ],
)
def test_a_cell_that_cannot_be_used_is_named_by_row_and_column(cell, complaint):
    frame = pl.DataFrame({"a": ["1", "2", "3"], "b": ["1", cell, "3"]})
    assert choose(frame).features == ["a", "b"] or choose(frame).left_out  # a single wrong cell does not make it text
    with pytest.raises(InvalidInputError, match=f"Row 102, column 'b': {complaint}"):
        points_of(frame, ["a", "b"], first=100)


def test_missing_values_are_an_error_or_passed_by_or_filled():
    points = np.array([[1.0, 2.0], [np.nan, 4.0], [3.0, 6.0]])
    treat = {
        name: lambda rule=rule: rule(points, ["a", "b"], 10, lambda: medians_of(points))
        for name, rule in MISSING.items()
    }
    with pytest.raises(InvalidInputError, match="Row 12, column 'a': the value is missing"):
        treat["fail"]()
    assert np.array_equal(treat["drop"](), points, equal_nan=True)
    assert treat["median"]().tolist() == [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]


def test_text_becomes_numbers_where_a_format_knows_them():
    frame = pl.DataFrame({"a": ["1", "NA"], "b": ["x", "y"]})
    assert typed(frame, ["a"]).rows() == [(1.0, "x"), (None, "y")]


def test_times_are_numbers_or_dates_or_nothing():
    frame = pl.DataFrame(
        {
            "n": ["1", "2"],
            "iso": ["2024-01-01T00:00:00", "2024-01-01T00:00:05"],
            "zone": ["2024-01-01T00:00:00Z", "2024-01-01T00:00:05+01:00"],
            "day": [date(2024, 1, 1), date(2024, 1, 2)],
            "text": ["x", "y"],
            "gap": ["1", None],
        }
    )
    assert times_of(frame, None) is None
    assert times_of(frame, "n").tolist() == [1.0, 2.0]
    assert times_of(frame, "iso").dtype.kind == times_of(frame, "day").dtype.kind == "M"
    assert times_of(frame, "zone").dtype.kind == "M"
    assert times_of(frame, "text") is None
    assert times_of(frame, "gap") is None

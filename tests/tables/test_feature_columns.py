"""Numeric columns are features; the others are left out with a reason, and errors name the cell."""

from datetime import date

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.errors import InvalidInputError
from imondrian.tables import feature_columns
from imondrian.tables.feature_columns import MISSING_TEXTS, TableColumns, time_values, with_numeric_features
from imondrian.tables.missing import MISSING, column_medians

FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e150, max_value=1e150)


@given(values=st.lists(st.one_of(FINITE, st.none()), min_size=1, max_size=20))
def test_numbers_written_as_text_are_read_back_exactly(values):
    texts = pl.DataFrame({"a": ["" if value is None else f" {value!r} " for value in values]})
    expected = np.array([np.nan if value is None else value for value in values])
    assert np.array_equal(TableColumns(texts).points(["a"])[:, 0], expected, equal_nan=True)
    numbers = pl.DataFrame({"a": values}, schema={"a": pl.Float64})
    assert np.array_equal(TableColumns(numbers).points(["a"])[:, 0], expected, equal_nan=True)


@pytest.mark.parametrize("missing", MISSING_TEXTS)
def test_texts_that_stand_for_missing_values_become_nan(missing):
    assert np.isnan(TableColumns(pl.DataFrame({"a": [missing, "1"]})).points(["a"])[0, 0])


def test_numeric_columns_are_features_and_the_others_are_left_out_with_a_reason():
    frame = pl.DataFrame(
        {
            "id": range(1, 9),
            "name": ["x", "y", "z", "1", "2", "3", "", "w"],
            "a": ["1", "2.5", "NA", "-1e3", "1", "2", "3", "4"],
            "on": [True, False] * 4,
            "day": [date(2024, 1, i) for i in range(1, 9)],
            "list": [[i] for i in range(8)],
            "empty": ["", "", None, "NA", "", "", "", ""],
            "nothing": [float("nan")] * 8,
            "constant": [7] * 8,
            "europe": ["1,5", "2,5", "3", "4,25", "1.203,1", "6,1", "7,2", "8,3"],
            "truth": ["True", "false", "", "TRUE", "False", "true", "NA", "true"],
        }
    )
    columns = TableColumns(frame).choose()
    assert columns.features == ["a", "on", "constant", "truth"]
    assert columns.left_out["id"] == "consecutive or evenly spaced integers, such as row numbers"
    assert columns.left_out["name"] == "text, such as 'x'"
    assert columns.left_out["day"] == "a date or time"
    assert columns.left_out["list"].startswith("not numeric (List")
    assert columns.left_out["empty"] == columns.left_out["nothing"] == "no values"
    assert columns.left_out["europe"] == "text, such as '1,5'; a decimal comma is not supported"
    assert TableColumns(frame).points(["truth"])[:4, 0].tolist()[:2] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("values", "are_row_numbers"),
    [
        (range(100, 170, 7), True),  # even steps
        ([3, 1, 2, 0, 4, 7, 6, 5], True),  # an index that was shuffled
        ([3, 1, 2, 0, 4, 7, 6, 6], False),
        ([3, 1, 2, 0, 4, 7, 6, 9], False),
        (range(7), False),  # too few rows
        ([0.5 + i for i in range(10)], False),
        ([5] * 10, False),
    ],
)
def test_row_numbers_are_left_out(values, are_row_numbers):
    assert (
        "a" in TableColumns(pl.DataFrame({"a": list(values), "b": [0.5] * len(values)})).choose().left_out
    ) == are_row_numbers


def test_the_reason_for_a_text_column_shows_a_value_that_is_not_a_number():
    left_out = TableColumns(pl.DataFrame({"a": ["2", "x"], "b": [0.5, 1.5]})).choose().left_out
    assert left_out == {"a": "text, such as 'x'"}


def test_results_of_an_earlier_run_are_not_features():
    frame = pl.DataFrame({"a": [1.0, 5.0], "row": [1, 2], "anomaly_score": [0.4, 0.6], "threshold": [0.5, 0.5]})
    assert TableColumns(frame).choose().features == ["a"]
    assert TableColumns(frame.drop("anomaly_score")).choose().features == ["a", "row", "threshold"]


def test_columns_can_be_chosen():
    frame = pl.DataFrame({"a": [1.0, 5.0, 2.0], "b": [3.0, 1.0, 2.0], "id": [1, 2, 3], "t": [1.0, 2.5, 3.0]})
    assert TableColumns(frame).choose(features=["id", "a"]).features == ["id", "a"]
    assert TableColumns(frame).choose(ignore=["a"], time="t").features == ["b", "id"]
    assert TableColumns(frame).choose(ignore=["a"], time="t").left_out["t"] == "the timestamp column"
    for wrong in ({"features": ["c"]}, {"ignore": ["c"]}, {"time": "c"}):
        with pytest.raises(InvalidInputError, match="no column 'c'; the columns are 'a', 'b'"):
            TableColumns(frame).choose(**wrong)
    with pytest.raises(InvalidInputError, match=r"No column can be used.*a: ignored"):
        TableColumns(frame[["a"]]).choose(ignore=["a"])


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("q", "'q' is not a number"),
        ("inf", "inf is not finite"),
        ("1e200", "1e\\+200 exceeds"),
        ("1,5", "'1,5' is not"),
    ],
)
def test_an_unusable_cell_is_named_by_row_and_column(cell, message):
    frame = pl.DataFrame({"a": ["1", "2", "3"], "b": ["1", cell, "3"]})
    assert TableColumns(frame).choose().features == ["a", "b"]  # a single wrong cell does not make it text
    with pytest.raises(InvalidInputError, match=f"Row 102, column 'b': {message}"):
        TableColumns(frame, first=100).points(["a", "b"])


def test_missing_values_fail_are_dropped_or_are_replaced_by_the_median():
    points = np.array([[1.0, 2.0], [np.nan, 4.0], [3.0, 6.0]])
    apply = {
        name: lambda rule=rule: rule(points, ["a", "b"], 10, lambda: column_medians(points))
        for name, rule in MISSING.items()
    }
    with pytest.raises(InvalidInputError, match="Row 12, column 'a': the value is missing"):
        apply["fail"]()
    assert np.array_equal(apply["drop"](), points, equal_nan=True)
    assert apply["median"]().tolist() == [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]


def test_text_features_become_numbers_for_typed_formats():
    frame = pl.DataFrame({"a": ["1", "NA"], "b": ["x", "y"], "c": ["9007199254740993", "2"], "d": ["1.5", "2"]})
    typed = with_numeric_features(frame, ["a", "c", "d"])
    assert typed.rows() == [(1, "x", 9007199254740993, 1.5), (None, "y", 2, 2.0)]
    assert [typed[name].dtype for name in "abcd"] == [pl.Int64, pl.String, pl.Int64, pl.Float64]


def test_times_are_numbers_or_dates_or_none():
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
    assert time_values(frame, None) is None
    assert time_values(frame, "n").tolist() == [1.0, 2.0]
    assert time_values(frame, "iso").dtype.kind == time_values(frame, "day").dtype.kind == "M"
    assert time_values(frame, "zone").dtype.kind == "M"
    assert time_values(frame, "text") is None
    assert time_values(frame, "gap") is None


def test_every_cell_is_parsed_once(monkeypatch):
    parsed = []
    parse = feature_columns.parse_column
    monkeypatch.setattr(feature_columns, "parse_column", lambda column: parsed.append(column.name) or parse(column))
    columns = TableColumns(pl.DataFrame({"a": ["1", "NA", "2"], "b": [3.0, 1.0, 2.0], "text": ["x", "y", "z"]}))
    features = columns.choose().features
    assert columns.points(features).shape == (3, 2)
    assert sorted(parsed) == ["a", "b", "text"]

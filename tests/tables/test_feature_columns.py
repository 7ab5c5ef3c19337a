"""Numbers and categories are features; other columns are left out with a reason, and errors name the cell."""

from datetime import date, datetime, time

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.base.categories import MISSING_CODE, category_code
from imondrian.base.errors import InvalidInputError
from imondrian.tables import column_contents, feature_columns
from imondrian.tables.cells import MISSING_TEXTS
from imondrian.tables.dates import DateFormat
from imondrian.tables.feature_columns import (
    ColumnRules,
    FeatureColumn,
    TableColumns,
    time_values,
    with_numeric_features,
)
from imondrian.tables.missing import MISSING
from imondrian.tables.number_formats import FormatRules, NumberFormat

FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e150, max_value=1e150)
GERMAN = NumberFormat(",", ".")


def number(name, number_format=None):
    return FeatureColumn(name, "number", name, number_format)


def category(name):
    return FeatureColumn(name, "category", name)


def chosen(frame, **rules):
    return TableColumns(frame).choose(ColumnRules(**rules))


def names(choice):
    return [feature.name for feature in choice.columns]


@given(values=st.lists(st.one_of(FINITE, st.none()), min_size=1, max_size=20))
def test_numbers_written_as_text_are_read_back_exactly(values):
    texts = pl.DataFrame({"a": ["" if value is None else f" {value!r} " for value in values]})
    expected = np.array([np.nan if value is None else value for value in values])
    assert np.array_equal(TableColumns(texts).points([number("a")])[:, 0], expected, equal_nan=True)
    numbers = pl.DataFrame({"a": values}, schema={"a": pl.Float64})
    assert np.array_equal(TableColumns(numbers).points([number("a")])[:, 0], expected, equal_nan=True)


def test_a_column_of_the_text_nan_has_no_values():
    frame = pl.DataFrame({"a": ["NaN", "nan"], "b": [1.0, 2.0]})
    assert chosen(frame).left_out == {"a": "no values"}


@pytest.mark.parametrize("missing", MISSING_TEXTS)
def test_texts_that_stand_for_missing_values_become_nan(missing):
    assert np.isnan(TableColumns(pl.DataFrame({"a": [missing, "1"]})).points([number("a")])[0, 0])


def test_numbers_and_categories_are_features_and_the_others_are_left_out_with_a_reason():
    frame = pl.DataFrame(
        {
            "id": range(1, 9),
            "code": ["x", "y", "z", "1", "2", "3", "", "w"],
            "a": ["1", "2.5", "NA", "-1e3", "1", "2", "3", "4"],
            "on": [True, False] * 4,
            "day": [date(2024, 1, i) for i in range(1, 9)],
            "when": [f"{i}.01.2024 10:00" for i in range(1, 9)],
            "list": [[i] for i in range(8)],
            "empty": ["", "", None, "NA", "", "", "", ""],
            "nothing": [float("nan")] * 8,
            "constant": [7] * 8,
            "same": ["x"] * 8,
            "mark": ["x", "", "", "x", "", "", "", ""],
            "flag": ["1", "", "", "1", "", "", "", ""],
            "europe": ["1,5", "2,5", "3", "4,25", "1.203,1", "6,1", "7,2", "8,3"],
            "truth": ["True", "false", "", "TRUE", "False", "true", "NA", "true"],
            "country": ["FR", "DE", "FR", "DE", "FR", "FR", "KP", "FR"],
            "remark": [f"the customer called us {i} times" for i in range(8)],
        }
    )
    choice = chosen(frame)
    assert {feature.name: feature.kind for feature in choice.columns} == {
        "a": "number",
        "on": "category",
        "mark": "category",
        "flag": "category",
        "europe": "number",
        "truth": "category",
        "country": "category",
    }
    left_out = choice.left_out
    assert left_out["id"] == "consecutive or evenly spaced integers, such as row numbers"
    assert left_out["code"] == "an id, such as 'x': 7 different values in 7 rows"
    assert left_out["day"] == left_out["when"] == "a date or time; --calendar uses its weekday and hour"
    assert left_out["list"].startswith("neither numbers nor text (List")
    assert left_out["empty"] == left_out["nothing"] == "no values"
    assert left_out["constant"] == "constant: 7 in every row"
    assert left_out["same"] == "constant: 'x' in every row"
    assert left_out["remark"].startswith("free text, such as 'the customer called")
    assert choice.notes == ["europe: decimal comma, thousands point"]


def test_categories_become_codes():
    frame = pl.DataFrame(
        {
            "text": [" FR", "FR", "", None, "NA"],
            "truth": ["TRUE", "true", "False", None, "false"],
            "bool": [True, True, False, None, False],
            "number": [3.0, 3.0, 2.5, None, float("nan")],
        }
    )
    points = TableColumns(frame).points([category(name) for name in frame.columns])
    codes = {value: category_code(value) for value in ("FR", "NA", True, False, 3, 2.5)}
    truth = [codes[True], codes[True], codes[False], MISSING_CODE, codes[False]]
    assert points[:, 0].tolist() == [codes["FR"], codes["FR"], MISSING_CODE, MISSING_CODE, codes["NA"]]
    assert points[:, 1].tolist() == points[:, 2].tolist() == truth
    assert points[:, 3].tolist() == [codes[3], codes[3], codes[2.5], MISSING_CODE, MISSING_CODE]


def test_integers_with_gaps_have_the_same_codes_as_numbers_and_as_exported_text():
    numbers = pl.DataFrame({"code": [3.0, None, 0.0, -12.0, 3.0]})
    exported = pl.read_csv(numbers.write_csv().encode(), infer_schema=False)
    assert exported["code"].to_list() == ["3.0", None, "0.0", "-12.0", "3.0"]
    codes = [TableColumns(frame).points([category("code")]).tolist() for frame in (numbers, exported)]
    assert codes[0] == codes[1] == [[category_code(value)] for value in (3, None, 0, -12, 3)]


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["FR", "DE"]), pl.String])
def test_every_type_of_text_has_the_same_codes(dtype):
    frame = pl.DataFrame({"a": pl.Series(["FR", "DE", None, "FR"], dtype=dtype)})
    expected = [category_code("FR"), category_code("DE"), MISSING_CODE, category_code("FR")]
    assert TableColumns(frame).points([category("a")])[:, 0].tolist() == expected
    assert chosen(frame).columns == [category("a")]


def test_numbers_can_be_declared_categories():
    frame = pl.DataFrame({"code": ["17", "4", "17", "4"], "a": ["1.5", "2.5", "9", "3"]})
    assert chosen(frame).columns == [number("code"), number("a")]
    assert chosen(frame, categorical=["code"]).columns == [category("code"), number("a")]
    with pytest.raises(InvalidInputError, match="no column 'c'"):
        chosen(frame, categorical=["c"])


def test_numbers_mixed_with_few_texts_are_categories_if_there_are_few_values():
    grades = pl.DataFrame({"grade": ["1", "2", "3", "2", "unknown"] * 20})
    assert chosen(grades).columns == [category("grade")]


@pytest.mark.parametrize(
    ("values", "are_row_numbers"),
    [
        (range(100, 170, 7), True),  # even steps
        ([3, 1, 2, 0, 4, 7, 6, 5], True),  # an index that was shuffled
        ([3, 1, 2, 0, 4, 7, 6, 6], False),
        ([3, 1, 2, 0, 4, 7, 6, 9], False),
        (range(7), False),  # too few rows
        ([0.5 + i for i in range(10)], False),
    ],
)
def test_row_numbers_are_left_out(values, are_row_numbers):
    frame = pl.DataFrame({"a": list(values), "b": [0.5 * i**2 for i in range(len(values))]})
    assert ("a" in chosen(frame).left_out) == are_row_numbers


def test_results_of_an_earlier_run_are_not_features():
    results = {"anomaly_score": [0.4, 0.6], "surprise": [0.1, 3.4], "threshold": [0.5, 0.6], "incident": [None, 4]}
    frame = pl.DataFrame({"a": [1.0, 5.0], "row": [1, 2], **results, "b": [2.0, 0.5]})
    assert names(chosen(frame)) == ["a", "b"]
    assert names(chosen(frame.drop("anomaly_score", "incident"))) == ["a", "row", "surprise", "threshold", "b"]


def test_columns_can_be_chosen():
    frame = pl.DataFrame(
        {"a": [1.0, 5.0, 2.0], "b": [3.0, 1.0, 2.0], "id": [1, 2, 3], "t": [1.0, 2.5, 3.0], "n": ["x", "y", "z"]}
    )
    assert names(chosen(frame, features=["id", "a"])) == ["id", "a"]
    assert chosen(frame, features=["n"]).columns == [category("n")]  # also an id, if it is chosen
    choice = chosen(frame, ignore=["a"], time="t", id="id")
    assert names(choice) == ["b"]
    assert choice.left_out["t"] == "the timestamp column"
    assert choice.left_out["id"] == "the id of a row"
    for wrong in ({"features": ["c"]}, {"ignore": ["c"]}, {"time": "c"}, {"id": "c"}):
        with pytest.raises(InvalidInputError, match="no column 'c'; the columns are 'a', 'b'"):
            chosen(frame, **wrong)
    with pytest.raises(InvalidInputError, match=r"No column can be used.*a: ignored"):
        chosen(frame[["a"]], ignore=["a"])


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("q", "'q' is not a number"),
        ("inf", "inf is not finite"),
        ("1e200", "1e\\+200 exceeds"),
        ("1,5,5", "'1,5,5' is not"),
    ],
)
def test_an_unusable_cell_is_named_by_row_and_column(cell, message):
    frame = pl.DataFrame({"a": ["1", "2", "3"], "b": ["1", cell, "3"]})
    columns = TableColumns(frame, first=100)
    choice = columns.choose()
    assert names(choice) == ["a", "b"]  # a single wrong cell does not make it text
    with pytest.raises(InvalidInputError, match=f"Row 102, column 'b': {message}"):
        columns.points(choice.columns)


# -- formats of numbers -----------------------------------------------------------------------------------------------


def test_columns_in_doubt_are_read_like_the_others():
    frame = pl.DataFrame(
        {
            "sure": ["1.234,50", "2,25", "7,5"],
            "comma": ["1,234", "5,678", "2,345"],
            "point": ["1.234", "5", "2.345"],
            "plain": ["1.5", "2.5", "3.75"],
        }
    )
    columns = TableColumns(frame)
    choice = columns.choose()
    assert columns.points(choice.columns).tolist() == [
        [1234.5, 1.234, 1234.0, 1.5],
        [2.25, 5.678, 5.0, 2.5],
        [7.5, 2.345, 2345.0, 3.75],
    ]
    alone = TableColumns(frame[["comma", "plain"]])
    choice = alone.choose()
    assert alone.points(choice.columns)[:, 0].tolist() == [1234.0, 5678.0, 2345.0]
    assert choice.notes == ["comma: thousands comma, '1,234' is read as 1234; --decimal ',' reads it as 1.234"]
    assert chosen(frame[["comma", "plain"]], decimal_hint=",").columns[0].number_format == NumberFormat(",")


def test_the_user_can_choose_the_separators():
    frame = pl.DataFrame({"a": ["1,234", "5,678"], "b": ["1.234", "5.678"]})
    columns = TableColumns(frame)
    features = columns.choose(ColumnRules(formats=FormatRules(decimal=","))).columns
    assert columns.points(features).tolist() == [[1.234, 1234.0], [5.678, 5678.0]]
    with pytest.raises(InvalidInputError, match="both are ','"):
        FormatRules(",", ",").checked()


def test_plain_numbers_of_a_model_stay_plain_whatever_separates_the_fields():
    frame = pl.DataFrame({"a": ["7.755", "7.064"], "b": ["1.234,5", "2,25"]})
    hint = ColumnRules(decimal_hint=",")
    plain = TableColumns(frame[["a"]]).features_of_model(["a"], set(), {}, hint)
    assert plain.columns == [number("a")]
    assert TableColumns(frame[["a"]]).choose(hint).columns == [number("a", GERMAN)]
    for columns in (frame, frame[["a"]]):  # another column, or the model, shows that the comma is decimal
        known = {} if "b" in columns.columns else {"c": number("c", GERMAN)}
        names = [*columns.columns, *known]
        found = TableColumns(columns).features_of_model(names, set(), known, hint).columns
        assert found[0] == number("a", GERMAN)


def test_a_model_decides_how_its_features_are_read():
    frame = pl.DataFrame(
        {"a": ["1,234", "5,678"], "c": ["1", "2"], "t": ["2024-01-01", "2024-01-06"], "b": ["$1", "$2"]}
    )
    known = {"a": number("a", GERMAN), "t (weekday)": FeatureColumn("t (weekday)", "weekday", "t")}
    columns = TableColumns(frame)
    choice = columns.features_of_model(["b", "a", "c", "t (weekday)"], {"c", "t (weekday)"}, known, ColumnRules())
    weekday = known["t (weekday)"]._replace(date_format=DateFormat("%Y-%m-%d"))
    assert choice.columns == [number("b", NumberFormat()), known["a"], category("c"), weekday]
    assert columns.points(choice.columns)[:, :3].tolist() == [
        [1.0, 1.234, category_code("1")],
        [2.0, 5.678, category_code("2")],
    ]
    rules = ColumnRules(formats=FormatRules(decimal="."))
    assert columns.features_of_model(["a"], set(), known, rules).columns == [number("a", NumberFormat(".", ","))]


def test_booleans_are_numbers_for_older_models():
    frame = pl.DataFrame({"text": ["True", "false", ""], "typed": [True, False, None]})
    points = TableColumns(frame).points([number("text"), number("typed")])
    assert np.array_equal(points, [[1.0, 1.0], [0.0, 0.0], [np.nan, np.nan]], equal_nan=True)


# -- dates ------------------------------------------------------------------------------------------------------------


def test_weekday_and_hour_of_dates_can_be_features():
    frame = pl.DataFrame(
        {
            "day": ["2024-01-01", "2024-01-06", ""],
            "at": ["01.02.2024 09:30", "31.01.2024 23:00", ""],
            "typed": [datetime(2024, 1, 1, 5), datetime(2024, 1, 2, 6), None],  # noqa: DTZ001
            "day (weekday)": [1.5, 2.5, 9.0],
        }
    )
    columns = TableColumns(frame)
    features = columns.choose(ColumnRules(calendar=True)).columns
    assert [feature.name for feature in features] == [
        "day (weekday)_",
        "at (weekday)",
        "at (hour)",
        "typed (weekday)",
        "typed (hour)",
        "day (weekday)",
    ]
    shown = [columns.categories(feature).to_list() for feature in features[:5]]
    assert shown[0] == ["Monday", "Saturday", None]
    assert shown[1:3] == [["Thursday", "Wednesday", None], ["9", "23", None]]
    assert shown[4] == ["5", "6", None]
    assert columns.points(features)[0, 2] == category_code("9")


def calendar_points(frame, features):
    columns, names = TableColumns(frame), [feature.name for feature in features]
    known = dict(zip(names, features, strict=True))
    return columns.points(columns.features_of_model(names, names, known, ColumnRules()).columns).tolist()


def test_dates_that_may_have_day_and_month_swapped_are_refused_unless_the_model_knows_them():
    iso = chosen(pl.DataFrame({"when": ["2024-05-13", "2024-05-19"]}), calendar=True).columns
    doubtful, clear = pl.DataFrame({"when": ["03/05/2024", "04/05/2024"]}), pl.DataFrame({"when": ["13/05/2024"] * 2})
    with pytest.raises(InvalidInputError, match=r"dates such as '03/05/2024': day and month could also be swapped"):
        calendar_points(doubtful, iso)
    assert calendar_points(clear, iso) == [[category_code("Monday")]] * 2
    day_first = chosen(clear, calendar=True).columns
    assert calendar_points(doubtful, day_first) == [[category_code("Friday")], [category_code("Saturday")]]
    month_first = chosen(pl.DataFrame({"when": ["05/13/2024"] * 2}), calendar=True).columns
    mostly_late = pl.DataFrame({"when": ["12/05/2024", *["13/05/2024"] * 4]})
    assert calendar_points(mostly_late, month_first)[0] == [category_code("Sunday")]


def test_all_batches_have_the_dates_of_the_first_one():
    iso = chosen(pl.DataFrame({"when": ["2024-05-13", "2024-05-19"]}), calendar=True).columns
    known = {feature.name: feature for feature in iso}
    first = TableColumns(pl.DataFrame({"when": ["13/05/2024", "14/05/2024"]}))
    features = first.features_of_model(list(known), list(known), known, ColumnRules()).columns
    later = TableColumns(pl.DataFrame({"when": ["03/05/2024"]}))
    assert later.points(features).tolist() == [[category_code("Friday")]]


def test_the_calendar_of_a_model_is_the_same_in_every_notation_of_dates():
    texts = ("2024-05-13 14:05", "2024-05-19 03:30", None, "2024-12-31 23:59")
    times = [None if text is None else datetime.fromisoformat(text) for text in texts]
    frame = pl.DataFrame({"when": pl.Series(times, dtype=pl.Datetime("us"))})
    texts = [
        pl.DataFrame({"when": [None if time is None else time.strftime(text) for time in times]})
        for text in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%m/%d/%Y %H:%M", "%d.%m.%Y %H:%M", "%d %b %Y %I:%M %p")
    ]
    for fitted in (frame, *texts):
        features = chosen(fitted, calendar=True).columns
        assert [feature.kind for feature in features] == ["weekday", "hour"]
        expected = calendar_points(fitted, features)
        assert expected[0] == [category_code("Monday"), category_code("14")]
        assert all(calendar_points(other, features) == expected for other in (frame, *texts))


@pytest.mark.parametrize("values", [["soon", "later"], [1715608800, 1716089400], [True, False]])
def test_a_column_without_dates_cannot_be_read_as_a_calendar(values):
    features = chosen(pl.DataFrame({"when": [datetime.fromisoformat("2024-05-13 14:05")] * 2}), calendar=True).columns
    with pytest.raises(InvalidInputError, match="'when' must contain dates or times, but contains values such as"):
        calendar_points(pl.DataFrame({"when": values}), features)
    assert calendar_points(pl.DataFrame({"when": [None, None]}), features) == [[MISSING_CODE] * 2] * 2


def test_days_and_times_of_day_are_parts_of_a_calendar():
    days = pl.DataFrame({"when": [date(2024, 5, 13), date(2024, 5, 19)]})
    clock = pl.DataFrame({"when": [time(14, 5), time(3, 30)]})
    by_day, by_hour = (chosen(frame, calendar=True).columns for frame in (days, clock))
    assert [feature.name for feature in (*by_day, *by_hour)] == ["when (weekday)", "when (hour)"]
    assert calendar_points(days, by_day) == [[category_code("Monday")], [category_code("Sunday")]]
    assert calendar_points(clock, by_hour) == [[category_code("14")], [category_code("3")]]
    assert calendar_points(days, by_hour) == [[category_code("0")]] * 2
    with pytest.raises(InvalidInputError, match="'when' must contain dates, but contains times of day"):
        calendar_points(clock, by_day)


def test_a_date_cannot_be_a_feature_without_the_calendar():
    frame = pl.DataFrame({"day": ["2024-01-01", "2024-01-06"], "a": [1.0, 2.0]})
    with pytest.raises(InvalidInputError, match="'day' contains dates: --calendar uses"):
        chosen(frame, features=["day"])


def test_the_order_of_day_and_month_is_noted_if_in_doubt():
    frame = pl.DataFrame({"day": ["01/02/2024", "03/04/2024"]})
    assert chosen(frame, calendar=True).notes == ["day: dates are read with the month before the day"]
    assert chosen(frame.with_columns(day=pl.Series(["01/02/2024", "31/01/2024"])), calendar=True).notes == []


def test_times_are_numbers_or_dates_or_none():
    frame = pl.DataFrame(
        {
            "n": ["1", "2"],
            "iso": ["2024-01-01T00:00:00", "2024-01-01T00:00:05"],
            "zone": ["2024-01-01T00:00:00Z", "2024-01-01T00:00:05+01:00"],
            "german": ["31.01.2024", "1.2.2024"],
            "day": [date(2024, 1, 1), date(2024, 1, 2)],
            "text": ["x", "y"],
            "gap": ["1", None],
        }
    )
    assert time_values(frame, None) is None
    assert time_values(frame, "n").tolist() == [1.0, 2.0]
    for name in ("iso", "zone", "german", "day"):
        assert time_values(frame, name).dtype.kind == "M"
    assert time_values(frame, "text") is None
    assert time_values(frame, "gap") is None


# -- missing values ---------------------------------------------------------------------------------------------------


def test_missing_values_are_kept_dropped_or_an_error():
    code = category_code("FR")
    points = np.array([[1.0, code], [np.nan, code], [3.0, MISSING_CODE], [4.0, code]])
    features = [number("a"), category("b")]
    with pytest.raises(InvalidInputError, match="Row 12, column 'a': the value is missing"):
        MISSING["fail"].prepare(points, features, 10)
    with pytest.raises(InvalidInputError, match="Row 1, column 'b': the value is missing"):
        MISSING["fail"].prepare(points[2:], features, 0)
    dropped = MISSING["drop"].prepare(points, features, 10)
    assert np.isnan(dropped).tolist() == [[False] * 2, [True] * 2, [True] * 2, [False] * 2]
    for rule in ("median", "indicator"):
        assert MISSING[rule].prepare(points, features, 10) is points


def test_text_features_become_numbers_for_typed_formats():
    frame = pl.DataFrame({"a": ["1", "NA"], "b": ["x", "y"], "c": ["9007199254740993", "2"], "d": ["$1.5", "2"]})
    typed = with_numeric_features(frame, [number("a"), category("b"), number("c"), number("d", NumberFormat())])
    assert typed.rows() == [(1, "x", 9007199254740993, 1.5), (None, "y", 2, 2.0)]
    assert [typed[name].dtype for name in "abcd"] == [pl.Int64, pl.String, pl.Int64, pl.Float64]


def test_every_cell_is_parsed_once(monkeypatch):
    parsed = []
    parse = column_contents.parse_column

    def counted(column):
        parsed.append(column.name)
        return parse(column)

    for module in (column_contents, feature_columns):
        monkeypatch.setattr(module, "parse_column", counted)
    columns = TableColumns(
        pl.DataFrame({"a": ["1", "NA", "2"], "b": [3.0, 1.0, 2.0], "text": ["x", "y", "x"], "$": ["$1", "$2", "$9"]})
    )
    choice = columns.choose()
    assert columns.points(choice.columns).shape == (3, 4)
    assert sorted(parsed) == ["$", "a", "b", "text"]

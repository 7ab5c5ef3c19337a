"""Times of rows: every common notation gives the same seconds since 1970, and anything else is an unknown time."""

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.engine.series_views import MAX_SECONDS
from imondrian.tables.row_seconds import TimeFormat, is_time_format, seconds_of_column, time_format_of

MINUTES = st.datetimes(datetime(1971, 1, 1), datetime(2400, 1, 1)).map(lambda t: t.replace(second=0, microsecond=0))  # noqa: DTZ001
NOTATIONS = ["%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S+02:00", "%Y/%m/%d %H:%M"]
UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda values: st.lists(values, max_size=2)
)


def seconds_of(time):
    return time.replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize("notation", NOTATIONS)
@given(times=st.lists(MINUTES, min_size=1, max_size=5))
def test_the_hour_is_read_as_written_in_every_notation(notation, times):
    texts = [time.strftime(notation) for time in times]
    found = time_format_of(texts[0])
    assert found.seconds(texts).tolist() == [seconds_of(time) for time in times]
    assert found.has_date
    assert not found.describe()
    assert is_time_format(found.text)


@pytest.mark.parametrize("unit", UNITS)
@given(time=st.datetimes(datetime(2001, 9, 10), datetime(2400, 1, 1)))  # noqa: DTZ001
def test_the_unit_of_a_number_is_recognised_by_its_size(unit, time):
    number = int(seconds_of(time)) * UNITS[unit]
    for value in (number, float(number), str(number)):
        found = time_format_of(value)
        assert found == TimeFormat(unit)
        assert found.seconds([value])[0] == pytest.approx(int(seconds_of(time)), abs=1e-3)


@given(value=JSON_VALUES, text=st.sampled_from(["seconds", "nanoseconds", "%Y-%m-%d %H:%M", "%m/%d/%Y", "%H:%M"]))
def test_anything_else_is_an_unknown_time_and_never_an_error(value, text):
    found = time_format_of(value)
    assert found is None or np.isfinite(found.seconds([value])).all()
    (seconds,) = TimeFormat(text).seconds([value])
    assert math.isnan(seconds) or abs(seconds) <= 1e12
    assert is_time_format(json.loads(json.dumps(text)))


def test_a_date_without_a_time_of_day_is_midnight():
    found = time_format_of("2024-01-31 00:05")
    assert np.diff(found.seconds(["2024-02-01", "2024-02-01 00:05:30", "2024-02-01 1:00 AM"])).tolist() == [330, 3270]


def test_month_and_day_are_never_exchanged_within_a_stream():
    found = time_format_of("01/02/2024")
    assert found.describe() == "dates are read with the month before the day"
    assert np.isnan(found.seconds(["13/01/2024", "32/01/2024", "", None, "soon"])).all()


def test_times_without_a_date_are_recognised_as_such():
    assert not time_format_of("14:05").has_date
    assert time_format_of(1.5e9).describe() == "numbers are seconds since 1970"


def test_columns_of_every_type_give_the_same_seconds():
    times = [datetime(2024, 1, 31, 10), None, datetime(2024, 2, 1, 11, 30)]  # noqa: DTZ001
    zone = timezone(timedelta(hours=2))
    expected = [seconds_of(times[0]), math.nan, seconds_of(times[2])]
    columns = [
        pl.Series(times),
        pl.Series(times).dt.cast_time_unit("ns"),
        pl.Series(times).dt.replace_time_zone("Europe/Berlin"),
        pl.Series([None if time is None else time.replace(tzinfo=zone).isoformat() for time in times]),
        pl.Series(expected, dtype=pl.Float64),
        pl.Series([None if math.isnan(second) else str(int(second * 1000)) for second in expected]),
    ]
    for column in columns:
        np.testing.assert_array_equal(seconds_of_column(column)[0], expected)
    assert seconds_of_column(pl.Series([date(1970, 1, 2)]))[0].tolist() == [86400.0]
    for column in (pl.Series(["a", "b"]), pl.Series([None]), pl.Series([True]), pl.Series([[1]])):
        seconds, found = seconds_of_column(column)
        assert found is None
        assert np.isnan(seconds).all()


def test_a_number_in_another_unit_is_an_unknown_time():
    seconds = [1714572300, 1714572300000, 900000000000, "1714572300000000", -1e12]
    np.testing.assert_array_equal(TimeFormat("seconds").seconds(seconds), [1714572300, *[math.nan] * 4])
    np.testing.assert_array_equal(seconds_of_column(pl.Series([1714572300, 1714572300000]))[0], [1714572300, math.nan])


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_date_beyond_all_calendars_is_an_unknown_time(unit):
    column = pl.Series([0, 2**63 - 1, -(2**63) + 1]).cast(pl.Datetime(unit))
    seconds, _ = seconds_of_column(column)
    assert seconds[0] == 0.0
    assert np.isnan(seconds[1:]).all() == (unit != "ns")  # 2**63 nanoseconds are 292 years
    assert not (np.abs(seconds) > MAX_SECONDS).any()


def test_the_first_time_with_a_date_decides_about_a_column():
    seconds, found = seconds_of_column(pl.Series([None, "soon", "12:30", "1970-01-02 00:00", "1970-01-03 00:00"]))
    assert found.has_date
    np.testing.assert_array_equal(seconds, [math.nan, math.nan, math.nan, 86400, 172800])

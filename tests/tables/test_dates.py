"""Columns of dates and times are recognised in the usual notations."""

import polars as pl
import pytest

from imondrian.tables.dates import hours, recognise_dates, weekdays


@pytest.mark.parametrize(
    ("cells", "days", "times"),
    [
        (["2024-01-31", "2024-02-01"], ["Wednesday", "Thursday"], None),
        (["2024-01-31T10:00:00Z", "2024-02-01T11:00:00+02:00"], ["Wednesday", "Thursday"], ["10", "11"]),
        (["2024-01-31 10:00:00.25", "2024-02-01 11:00:00"], ["Wednesday", "Thursday"], ["10", "11"]),
        (["31.01.2024", "1.2.2024"], ["Wednesday", "Thursday"], None),
        (["31.01.24", "01.02.24"], ["Wednesday", "Thursday"], None),
        (["1/31/2024 1:45 PM", "2/1/2024 2:00 AM"], ["Wednesday", "Thursday"], ["13", "2"]),
        (["31/1/2024 13:45", "1/2/2024 02:00"], ["Wednesday", "Thursday"], ["13", "2"]),
        (["31 Jan 2024", "1 Feb 2024"], ["Wednesday", "Thursday"], None),
        (["January 31, 2024", "February 1, 2024"], ["Wednesday", "Thursday"], None),
        (["12:30", "9:45"], None, ["12", "9"]),
    ],
)
def test_dates_and_times_are_recognised(cells, days, times):
    column = pl.Series(cells)
    found = recognise_dates(column)
    assert not found.is_doubtful
    assert found.has_date == (days is not None)
    assert found.has_time == (times is not None)
    if days:
        assert weekdays(column, found).to_list() == days
    if times:
        assert hours(column, found).to_list() == times


@pytest.mark.parametrize(
    "cells",
    [["x", "y"], ["12-34", "55-66"], ["1.2", "3.4"], ["ORD-1", "ORD-2"], ["1.2.3"], ["99:99"], [None], ["2024"]],
)
def test_other_text_is_not_a_date(cells):
    assert recognise_dates(pl.Series(cells, dtype=pl.String)) is None


def test_a_few_wrong_dates_are_missing():
    column = pl.Series(["2024-01-31"] * 20 + ["soon", None])
    assert weekdays(column, recognise_dates(column)).to_list()[-2:] == [None, None]

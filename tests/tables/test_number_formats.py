"""Numbers are recognised by the whole column: separators, currency and percent signs, parentheses."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.base.errors import InvalidInputError
from imondrian.tables.number_formats import (
    DECIMALS,
    THOUSANDS,
    FormatRules,
    NumberFormat,
    parse_formatted,
    recognise_format,
)

CENTS = st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=20)
MARKS = st.sampled_from(["{} €", "€{}", "$ {}", "{} EUR", "USD {}", "{}", "{} %", "{}%"])


def written(cents, number_format, mark):
    sign, text = "-" if cents < 0 else "", f"{abs(cents) / 100:,.2f}"
    table = str.maketrans({",": number_format.thousands, ".": number_format.decimal})
    return sign + mark.format(text.translate(table))


@given(cents=CENTS, decimal=st.sampled_from(DECIMALS), thousands=st.sampled_from(["", *THOUSANDS]), mark=MARKS)
def test_amounts_in_any_format_are_read_back(cents, decimal, thousands, mark):
    number_format = NumberFormat(decimal, "" if thousands == decimal else thousands)
    cells = pl.Series([written(value, number_format, mark) for value in cents])
    found = recognise_format(cells)
    assert found.example is None  # two decimals are never in doubt
    assert parse_formatted(cells, found.number_format).to_list() == [value / 100 for value in cents]


@pytest.mark.parametrize(
    ("cells", "numbers", "description"),
    [
        (["1,5", "2", "1.203,1"], [1.5, 2, 1203.1], "decimal comma, thousands point"),
        (["1,234", "1234"], [1.234, 1234], "decimal comma"),  # thousands would be written 1,234 as well
        (["0,123", "1,234"], [0.123, 1.234], "decimal comma"),
        (["1,234", "5,678,901"], [1234, 5678901], "thousands comma"),
        (["$1,234.50", "($3.00)", "-$5", "$-6"], [1234.5, -3, -5, -6], "thousands comma, $ sign removed, numbers in"),
        (["12.5%", "3 %", "\u22124%"], [12.5, 3, -4], "% sign removed"),
        (["€ 5", "6 USD"], [5, 6], "USD and € signs removed"),
        (["1'234.5", "2\u2019000"], [1234.5, 2000], "thousands apostrophe"),
        (
            ["1 234,5", "1\u202f234 567,25", "2\u00a0345\u2009678"],
            [1234.5, 1234567.25, 2345678],
            "decimal comma, thousands space",
        ),
        (
            ["1.234 €", "5.678 €"],
            [1234, 5678],
            "decimal comma, thousands point, € sign removed, '1.234' is read as 1234; --decimal '.'",
        ),
        (["1.234%", "5.678%"], [1.234, 5.678], "% sign removed, '1.234' is read as 1.234; --decimal ','"),
        (["1,234", "5,678"], [1234, 5678], "thousands comma, '1,234' is read as 1234; --decimal ',' reads it as 1.234"),
        (["$1", "x", *(f"${i}" for i in range(20))], [1, None, *range(20)], "$ sign removed"),
    ],
)
def test_formats_are_recognised_and_described(cells, numbers, description):
    found = recognise_format(pl.Series(cells))
    assert parse_formatted(pl.Series(cells), found.number_format).to_list() == numbers
    assert found.describe().startswith(description)


@pytest.mark.parametrize(
    "cells",
    [
        ["x", "1"],
        ["12:30", "12:31"],
        ["2024-01-31", "2024-02-01"],
        ["31.01.2024", "01.02.2024"],
        ["10.0.0.1", "10.0.0.2"],
        ["030 123 456", "040 987 654"],
        ["5-", "6-"],
        ["(5", "6)"],
        ["$5 %", "$6 %"],
        ["--5", "-(5)"],
        [".", ","],
        [None, None],
    ],
)
def test_other_text_is_not_a_number(cells):
    assert recognise_format(pl.Series(cells, dtype=pl.String)) is None


def test_rules_of_the_user_and_hints_decide():
    doubtful = pl.Series(["1,234"])
    assert recognise_format(doubtful, hint=",").number_format == NumberFormat(",")
    assert recognise_format(doubtful, FormatRules(decimal=",")).number_format == NumberFormat(",")
    assert recognise_format(doubtful, FormatRules(thousands=",")).number_format == NumberFormat(".", ",")
    assert recognise_format(pl.Series(["1.234"]), FormatRules(thousands=".")).number_format == NumberFormat(",", ".")


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (FormatRules("x"), "--decimal must be"),
        (FormatRules(None, "x"), "--thousands must be"),
        (FormatRules(".", "."), "must differ"),
    ],
)
def test_impossible_rules_are_refused(rules, message):
    with pytest.raises(InvalidInputError, match=message):
        rules.checked()
    assert FormatRules(None, "space").checked() == FormatRules(None, " ")

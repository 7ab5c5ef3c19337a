"""Categories become numbers that mean the same on every machine and in every version."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from imondrian.base.categories import (
    MISSING_CODE,
    category_code,
    category_codes,
    category_text,
    distinct_key,
    is_missing,
)
from imondrian.base.errors import InvalidInputError

MISSING = [
    None,
    float("nan"),
    np.float64("nan"),
    np.datetime64("NaT"),
    np.timedelta64("NaT"),
    Decimal("NaN"),
    Decimal("sNaN"),
    np.ma.masked,
    pd.NA,
    pd.NaT,
]


def test_codes_never_change():
    """Model files contain these numbers: a file written today must mean the same in every later version."""
    texts = ["", "FR", "KP", "true", "3", "Zürich", "🙂", "a" * 1000]
    assert [category_code(text) for text in texts] == [
        6071232022070908.0,
        6257867736028357.0,
        2939728202546015.0,
        5882985768008170.0,
        6593673249913782.0,
        4445667482013958.0,
        3527884746977060.0,
        1664041209429664.0,
    ]
    assert MISSING_CODE == 8242457748063137.0


@pytest.mark.parametrize(
    "same",
    [
        (3, 3.0, "3", "3.0", "3.00", np.int8(3), np.float32(3), Decimal(3), Decimal("3.0")),
        (-12, -12.0, "-12", "-12.0"),
        (10**400, "1" + "0" * 400, "1" + "0" * 400 + ".0"),
        (True, np.True_, "true"),
        (0, -0.0, "0", "0.0", "-0.0"),
        (0.1, np.longdouble("0.1"), "0.1"),
        (np.float32(0.1), float(np.float32(0.1)), "0.10000000149011612"),
        (np.float16(0.1), float(np.float16(0.1))),
    ],
)
def test_equal_values_are_the_same_category(same):
    assert len({category_code(value) for value in same}) == 1
    assert len(set(category_codes(same))) == 1


def test_text_that_only_resembles_an_integer_stays_as_it_is():
    texts = ["3", "3.", "03", "03.0", "+3.0", "3.0.0", "3.1", "3.10", "v3.0", "3.0 ", "3,0", "3e0", "٣.0", "-0", ".0"]
    assert len(set(category_codes(texts))) == len(texts)


def test_different_values_are_different_categories():
    values = [True, 1, "True", "1.10", 1.1, 1.5, "", " ", "a", "A", None]
    assert len({category_code(value) for value in values}) == len(values)


@pytest.mark.parametrize("value", MISSING)
def test_missing_values_are_one_category_of_their_own(value):
    assert is_missing(value)
    assert category_code(value) == MISSING_CODE
    assert category_codes([value, "x"])[0] == MISSING_CODE


@given(text=st.text())
def test_every_text_has_an_exact_code(text):
    code = category_code(text)
    assert code == int(code)
    assert 0 <= code < 2**53
    assert code != MISSING_CODE


@given(values=st.lists(st.one_of(st.text(max_size=2), st.booleans(), st.integers(-3, 3), st.none())))
def test_a_column_has_the_codes_of_its_values(values):
    codes = category_codes(values)
    assert codes.dtype == np.float64
    assert codes.tolist() == [category_code(value) for value in values]


@pytest.mark.parametrize("value", [float("inf"), [1], {}, object, b"a", 1j, np.timedelta64(1, "s")])
def test_other_values_are_refused_by_name(value):
    with pytest.raises(InvalidInputError, match="A category must be text, a boolean or a finite number"):
        category_codes(["a", value])


@pytest.mark.parametrize("exponent", [30, 400, 4000])
def test_a_long_number_has_all_its_digits(exponent):
    text = "1" + "0" * exponent
    assert category_text(10**exponent) == category_text(Decimal(text)) == text


TOO_LONG = [10**5000, Decimal("1e5000"), Decimal("1e999999999"), Decimal("inf"), Fraction(10**5000)]


@pytest.mark.parametrize("number", TOO_LONG, ids=map(str, range(5)))
def test_a_number_with_too_many_digits_is_refused(number):
    with pytest.raises(InvalidInputError, match="A category must be text, a boolean or a finite number, but one is"):
        category_text(number)


def test_numbers_of_other_types_have_a_text():
    assert category_text(Fraction(1, 2)) == category_text(Decimal("0.5")) == "0.5"


@given(values=arrays(np.float64, st.integers(0, 20), elements=st.floats(allow_infinity=False)))
def test_an_array_has_the_codes_of_its_values(values):
    assert category_codes(values).tolist() == [category_code(value) for value in values]
    assert category_codes(values > 0.0).tolist() == [category_code(value) for value in values > 0.0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_a_float_has_the_code_of_its_float64_value(dtype):
    values = np.array([0.1, 0.25, np.nan, 3.0], dtype)
    expected = [category_code(float(value)) for value in values]
    for same in (values, list(values), values.tolist()):
        assert category_codes(same).tolist() == expected


def test_integers_that_were_chosen_to_collide_have_different_hashes():
    values = [k * (2**61 - 1) for k in range(1, 1_001)]
    assert len(set(map(hash, values))) == 1
    assert len({hash(distinct_key(value)) for value in values}) > 990
    assert len(set(category_codes(values))) == 1_000


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, 1.0), (2**64, f"{2**64:x}"), (2**64, -(2**64))])
def test_keys_of_different_values_differ(one, other):
    assert distinct_key(one) != distinct_key(other)

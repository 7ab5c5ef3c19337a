"""Explanations in words: what they say about numbers, categories and missing values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian import MondrianForest
from imondrian.base.categories import MISSING_CODE, category_code
from imondrian.models.explanations import (
    Expectations,
    Frequency,
    Part,
    Reason,
    largest_parts,
    merged_parts,
    reasons_of,
    reasons_of_rows,
)


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (
            Reason("amount", 99_999.0, 0.38, True, expected=(4.0, 210.0)),
            "amount = 99,999 (high; expected 4 to 210), 38%",
        ),
        (Reason("amount", -1.5, 0.38, False, expected=(4.0, 210.0)), "amount = -1.5 (low; expected 4 to 210), 38%"),
        (Reason("amount", 50.0, 0.38, True, expected=(4.0, 210.0)), "amount = 50 (expected 4 to 210), 38%"),
        (Reason("amount", 50.0, 0.38, True, expected=(4.0, 4.0)), "amount = 50 (high; expected 4), 38%"),
        (
            Reason("x", 1e6, 0.38, True, expected=(12_345.6, 98_765.4)),
            "x = 1,000,000 (high; expected 12,300 to 98,800), 38%",
        ),
        (Reason("x", 1001.1, 0.38, True, expected=(994.21, 1004.31)), "x = 1,001.1 (expected 994 to 1,004), 38%"),
        (
            Reason("x", 20367.0, 0.38, True, expected=(7081.0, 20358.0)),
            "x = 20,367 (high; expected 7,081 to 20,360), 38%",
        ),
        (Reason("x", 9.0, 0.38, True, expected=(1013.25, 1013.31)), "x = 9 (high; expected 1,013.25 to 1,013.31), 38%"),
        (Reason("x", 9.0, 0.38, True, expected=(1013.25, 1013.25)), "x = 9 (high; expected 1,013.25), 38%"),
        (Reason("x", 9.0, 0.38, True, expected=(0.0, 1e-9)), "x = 9 (high; expected 0 to 1e-09), 38%"),
        (Reason("x", 9.0, 0.38, True, expected=(-1e150, 1e150)), "x = 9 (expected -1e+150 to 1e+150), 38%"),
        (Reason("amount", 1234.5678, 0.38, True), "amount = 1,234.57 (high), 38%"),
        (Reason("", 1.0, 1.0, False), "(no name) = 1 (low), 100%"),
        (Reason("amount", np.nan, 0.2, True), "amount = missing, 20%"),
        (Reason("country", 7.0, 0.41, False, "KP", Frequency(0, 2000)), "country = KP (never seen), 41%"),
        (Reason("country", 7.0, 0.12, False, "FR", Frequency(10, 2400)), "country = FR (1 in 240), 12%"),
        (Reason("country", 7.0, 0.12, False, "FR", Frequency(1, 2_400_000)), "country = FR (1 in 2,400,000), 12%"),
        (Reason("country", 7.0, 0.12, False, "DE", Frequency(700, 1000)), "country = DE (70% of rows), 12%"),
        (Reason("country", 7.0, 0.12, False, "DE"), "country = DE, 12%"),
    ],
)
def test_a_reason_as_text(reason, text):
    assert str(reason) == text


def test_a_value_in_json_has_no_thousands_separators():
    assert Reason("amount", 99_999.0, 0.38, True).value_text == "99999"
    assert Reason("country", 7.0, 0.38, False, "KP").value_text == "KP"


@pytest.mark.parametrize(
    ("rows_ago", "values", "text"),
    [
        ((1, 1), None, "load 1 row ago = 12 (high; expected 3 to 4), 31%"),
        ((3, 3), None, "load 3 rows ago = 12 (high; expected 3 to 4), 31%"),
        ((3, 5), (9.0, 12.0), "load 3 to 5 rows ago = 9 to 12 (high; expected 3 to 4), 31%"),
        ((3, 5), (12.0, 12.0), "load 3 to 5 rows ago = 12 (high; expected 3 to 4), 31%"),
        ((0, 4), (9.0, 12.0), "load in the last 5 rows = 9 to 12 (high; expected 3 to 4), 31%"),
    ],
)
def test_a_reason_names_the_rows_of_a_shingle(rows_ago, values, text):
    assert str(Reason("load", 12.0, 0.31, True, expected=(3.0, 4.0), rows_ago=rows_ago, values=values)) == text


def test_long_names_and_categories_are_shortened_in_words():
    reason = Reason("n" * 200, 1.0, 0.5, is_high=False, text="c" * 10**6)
    assert str(reason) == f"{'n' * 100}... = {'c' * 100}..., 50%"
    assert reason.value_text == f"{'c' * 100}..."


def test_a_category_that_is_not_known_is_left_out():
    assert str(Reason("state", 7.0, 0.31, False, "", Frequency(1, 240), rows_ago=(2, 2))) == (
        "state 2 rows ago (1 in 240), 31%"
    )


def test_ranges_are_what_the_forest_expects_given_the_other_features():
    x = np.random.default_rng(0).normal(size=600)
    points = np.column_stack([x, 100.0 + 10.0 * x])
    forest = MondrianForest(max_samples=256, scale="std", seed=0).build(points)
    row, parts = np.array([-1.0, 110.0]), np.array([0.1, 0.6])
    reasons = reasons_of(parts, row, ["a", "b"], expectations=Expectations(forest))
    assert [reason.feature for reason in reasons] == ["b", "a"]
    _, low, high, _ = forest.expected_values([row])
    assert reasons[0].expected == (low[0, 1], high[0, 1])
    assert reasons[1].expected == (low[0, 0], high[0, 0])
    assert 80.0 < low[0, 1] < 90.0 < high[0, 1] < 100.0  # and not 84 to 116, the range of all rows


@given(data=st.data(), n_rows=st.integers(1, 4), n_features=st.integers(1, 5))
def test_many_rows_are_described_like_each_alone(data, n_rows, n_features):
    rng = np.random.default_rng(data.draw(st.integers(0, 100)))
    points = rng.normal(size=(30, n_rows * n_features))
    expectations = Expectations(MondrianForest(5).build(points), n_rows)
    shape = (3, n_rows, n_features) if n_rows > 1 else (3, n_features)
    rows, parts, names = points[:3].reshape(shape), rng.normal(size=shape), [f"x{j}" for j in range(n_features)]
    together = reasons_of_rows(parts, rows, names, 9, expectations=expectations, texts=[{}] * 3, min_share=0.0)
    alone = [
        reasons_of(own, row, names, 9, expectations=expectations, min_share=0.0)
        for own, row in zip(parts, rows, strict=True)
    ]
    assert together == alone


PARTS = st.integers(1, 6).flatmap(
    lambda n_features: st.lists(
        st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.4, -0.1, -0.3]), min_size=n_features, max_size=n_features),
        min_size=1,
        max_size=8,
    )
)


@given(parts=PARTS, data=st.data())
def test_merged_parts_cover_every_value_once_and_have_the_same_sum(parts, data):
    parts = np.array(parts)
    is_category = data.draw(st.lists(st.booleans(), min_size=parts.shape[1], max_size=parts.shape[1]))
    rows = np.random.default_rng(0).choice([0.0, 1.0, np.nan], parts.shape)
    categorical = [j for j, is_one in enumerate(is_category) if is_one]
    merged = merged_parts(parts, rows, categorical)
    assert largest_parts(parts, rows, categorical, 3) == merged[:3]
    n_covered = np.zeros(parts.shape, int)
    for part in merged:
        own = parts[part.first : part.last + 1, part.feature]
        n_covered[part.first : part.last + 1, part.feature] += 1
        assert part.size == own.sum()
        assert abs(parts[part.leading, part.feature]) == np.abs(own).max()
        assert (np.abs(own) >= np.abs(own).max() / 3).all()
        assert len(set(np.sign(own))) == 1
        values = rows[part.first : part.last + 1, part.feature]
        assert len(set(np.isnan(values))) == 1
        if is_category[part.feature]:
            assert len(set(rows[part.first : part.last + 1, part.feature])) == 1
    assert (n_covered == 1).all()
    sizes = [abs(part.size) for part in merged]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == pytest.approx(np.abs(parts).sum())


def test_odd_neighbours_are_not_expected_because_of_each_other():
    """Given the other odd value, an odd value would be expected; both are hidden, so that neither is."""
    rng = np.random.default_rng(0)
    level = np.repeat(rng.choice([0.0, 50.0], size=2_000, p=[0.99, 0.01]), 2).reshape(2_000, 2)
    points = np.column_stack([rng.normal(size=(2_000, 2)), level + rng.normal(size=(2_000, 2))])
    forest = MondrianForest(max_samples=None, scale="std", seed=0).build(points)
    point = np.array([0.0, 0.0, 50.0, 50.0])
    expectations = Expectations(forest, n_rows=4)
    (low, high), (_, alone) = expectations.ranges(
        np.array([point, point]), [Part(0, 2, 3, 2, 1.0), Part(0, 2, 2, 2, 1.0)]
    )
    assert -5.0 < low < high < 5.0
    assert alone > 45.0


class CountedForest:
    """A forest with one categorical feature, in which "FR" is one point of four."""

    categorical = (0,)
    n_features = 1

    def category_counts(self, j, codes):
        assert j == 0
        return np.array([int(code == category_code("FR")) for code in codes]), 4


def test_categories_are_described_by_their_frequency():
    expectations, parts = Expectations(CountedForest()), np.array([1.0])
    known, new, missing, unnamed = (
        reasons_of(parts, np.array([code]), ["country"], expectations=expectations, texts=texts)[0]
        for code, texts in [
            (category_code("FR"), {0: "FR"}),
            (category_code("KP"), {0: "KP"}),
            (MISSING_CODE, {}),
            (category_code("KP"), {}),
        ]
    )
    assert str(known) == "country = FR (25% of rows), 100%"
    assert str(new) == "country = KP (never seen), 100%"
    assert str(missing) == "country = missing (never seen), 100%"
    assert str(unnamed) == f"country = {category_code('KP'):.0f} (never seen), 100%"
    assert (known.side, known.value_text) == ("", "FR")


BOUNDS = [0.0, -0.0, 5e-324, 1.0, 1.0 + 2.0**-52, -3.0, 1e308, -1e308, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("low", BOUNDS)
@pytest.mark.parametrize("high", BOUNDS)
def test_a_reason_has_a_text_whatever_its_numbers(low, high):
    for value in BOUNDS:
        assert "expected" in str(Reason("x", value, 0.5, is_high=True, expected=(low, high)))


def test_bounds_in_the_wrong_order_are_exchanged():
    assert Reason("x", 9.0, 0.5, is_high=True, expected=(2.0, 1.0)).remark == "high; expected 1 to 2"

"""Explanations in words: what they say about numbers, categories and missing values."""

import numpy as np
import pytest

from imondrian import MondrianForest
from imondrian.categories import MISSING_CODE, category_code
from imondrian.explanations import Frequency, Reason, UsualValues, reasons_of


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (Reason("amount", 99_999.0, 0.38, True, usual=(4.0, 210.0)), "amount = 99,999 (high; usual 4 to 210), 38%"),
        (Reason("amount", -1.5, 0.38, False, usual=(4.0, 210.0)), "amount = -1.5 (low; usual 4 to 210), 38%"),
        (Reason("amount", 50.0, 0.38, True, usual=(4.0, 210.0)), "amount = 50 (usual 4 to 210), 38%"),
        (Reason("amount", 50.0, 0.38, True, usual=(4.0, 4.0)), "amount = 50 (high; usual 4), 38%"),
        (Reason("x", 1e6, 0.38, True, usual=(12_345.6, 98_765.4)), "x = 1,000,000 (high; usual 12,300 to 98,800), 38%"),
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


def test_usual_ranges_are_quantiles_of_the_points_that_the_forest_holds():
    points = np.random.default_rng(0).normal(size=(300, 2))
    usual = UsualValues(MondrianForest(2).build(points))
    reasons = reasons_of(np.array([0.1, -0.6]), np.array([0.0, -9.0]), ["a", "b"], usual=usual)
    assert [reason.feature for reason in reasons] == ["b", "a"]
    assert reasons[0].usual == tuple(np.quantile(points[:, 1], [0.05, 0.95]))


class CountedForest:
    """A forest with one categorical feature, in which "FR" is one point of four."""

    categorical = (0,)

    def category_counts(self, j, codes):
        assert j == 0
        return np.array([int(code == category_code("FR")) for code in codes]), 4


def test_categories_are_described_by_their_frequency():
    usual, parts = UsualValues(CountedForest()), np.array([1.0])
    known, new, missing, unnamed = (
        reasons_of(parts, np.array([code]), ["country"], usual=usual, texts=texts)[0]
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

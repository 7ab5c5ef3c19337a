"""Points of a stream in words: the row of a shingle that was odd, gaps, categories, and parts that sum to the score."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian import StreamDetector
from imondrian.stream.row_layout import RowLayout
from imondrian.stream.stream_explanations import reasons_of_point

NAMES = ["load", "state", "heat"]
RNG = np.random.default_rng(0)
WAVE = np.sin(np.arange(600) / 8.0) + 0.05 * RNG.normal(size=600)
ROWS = np.column_stack([WAVE, RNG.choice([1.0, 2.0], 600), 10.0 * WAVE])


def reasons_of_next(detector, row, n=100, **options):
    point = detector.next_point(row)
    rows = RowLayout.of(detector.parameters).rows_of_point(point)
    rows[-1] = row
    return reasons_of_point(detector, point, rows, NAMES, n, **options)


def detector_of(shingle, **settings):
    return StreamDetector(3, shingle=shingle, window=512, n_trees=40, categorical=[1], seed=0, **settings)


@pytest.mark.parametrize("missing", ["median", "indicator", "previous"])
@pytest.mark.parametrize("shingle", [1, 2, 5])
def test_parts_sum_to_the_score_that_the_row_would_have(shingle, missing):
    detector = detector_of(shingle, missing=missing)
    gaps = ROWS.copy()
    gaps[::7, 0] = np.nan
    detector.process_many(gaps)
    for row in ([0.0, 1.0, 0.0], [9.0, 2.0, 3.0], [np.nan, 1.0, -90.0]):
        reasons = reasons_of_next(detector, row, min_share=0.0)
        assert sum(abs(reason.part) for reason in reasons) == pytest.approx(detector.score([row])[0])
        assert sum(reason.share for reason in reasons) == pytest.approx(1.0)
        covered = sum(reason.rows_ago[1] - reason.rows_ago[0] + 1 for reason in reasons)
        assert covered == 3 * shingle
        given = reasons_of_next(detector, row, min_share=0.0, score=0.25)
        assert sum(abs(reason.part) for reason in given) == pytest.approx(0.25)


@given(ago=st.integers(0, 5), side=st.sampled_from([-1.0, 1.0]), start=st.integers(300, 590))
def test_the_odd_row_of_a_shingle_is_named_with_its_value(ago, side, start):
    detector = StreamDetector(1, shingle=6, window=512, n_trees=40, seed=0)
    rows = WAVE[: start + 1, None].copy()
    rows[start - ago] = odd = 8.0 * side
    detector.process_many(rows[:-1])
    point = detector.next_point(rows[-1])
    np.testing.assert_array_equal(point, rows[start - 5 :, 0])
    first = reasons_of_point(detector, point, point[:, None], ["load"])[0]
    assert (first.feature, first.rows_ago, first.value) == ("load", (ago, ago), odd)
    assert first.side == ("high" if side > 0.0 else "low")
    low, high = first.expected
    assert -1.5 < low <= high < 1.5


def test_a_level_shift_is_one_reason_and_not_expected_because_of_itself():
    detector = StreamDetector(1, shingle=6, window=512, n_trees=40, seed=0)
    detector.process_many(np.concatenate([WAVE, np.full(5, 8.0)])[:, None])
    point = detector.next_point([8.0])
    reason = reasons_of_point(detector, point, point[:, None], ["load"])[0]
    assert reason.rows_ago == (0, 5)
    assert reason.values == (8.0, 8.0)
    assert str(reason).startswith("load in the last 6 rows = 8 (high; expected ")
    assert reason.expected[1] < 1.5


def test_a_missing_number_says_what_was_expected():
    for missing in ("median", "indicator", "previous"):
        detector = detector_of(1, missing=missing)
        gaps = ROWS.copy()
        gaps[::5, 0] = np.nan
        detector.process_many(gaps)
        reasons = {reason.feature: reason for reason in reasons_of_next(detector, [np.nan, 1.0, 9.0], min_share=0.0)}
        low, high = reasons["load"].expected
        assert str(reasons["load"]).startswith("load = missing (expected ")
        assert high > 0.6  # a tenth of the heat, not the median of all rows
        assert low > -0.6


def test_categories_of_earlier_rows_have_their_own_texts_and_frequencies():
    detector = detector_of(2)
    rows = ROWS.copy()
    rows[-1, 1] = 77.0
    detector.process_many(rows)
    point = detector.next_point([rows[-1, 0], 1.0, rows[-1, 2]])
    own = RowLayout.of(detector.parameters).rows_of_point(point)
    reasons = reasons_of_point(detector, point, own, NAMES, 6, texts={1: "NEW", 4: "on"}, min_share=0.0)
    texts = {(reason.feature, reason.rows_ago): str(reason) for reason in reasons}
    assert texts["state", (1, 1)].startswith("state 1 row ago = NEW (never seen), ")
    assert texts["state", (0, 0)].startswith("state = on (")


def test_before_the_first_point_nothing_is_expected():
    detector = detector_of(1)
    reasons = reasons_of_next(detector, [1.0, 1.0, 1.0], min_share=0.0)
    assert [reason.part for reason in reasons] == pytest.approx([0.5 / 3] * 3)
    assert all(reason.expected is None and reason.frequency is None for reason in reasons)
    assert detector_of(3).next_point([1.0, 1.0, 1.0]).size == 0


def test_reading_does_not_change_the_detector():
    detector, reference = detector_of(3), detector_of(3)
    for start in range(0, 500, 50):
        for each in (detector, reference):
            each.process_many(ROWS[start : start + 50])
        reasons_of_next(detector, [5.0, 1.0, np.nan] if start % 100 else ROWS[start])
    ours, theirs = detector.process_many(ROWS[500:]), reference.process_many(ROWS[500:])
    np.testing.assert_array_equal(ours.score, theirs.score)
    np.testing.assert_array_equal(ours.threshold, theirs.threshold)

"""What is usual for the rows of a time series, and the range in which ordinary values lie around it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imondrian import StreamDetector
from imondrian.base.errors import InvalidInputError
from imondrian.stream.series_views import SeriesViews, Spread, deviations
from tests.test_series import daily, timed_rows

SMALL = {"preset": "series", "window": 64, "n_trees": 2}


@given(timed_rows())
def test_the_point_of_a_row_follows_from_what_is_usual_bit_for_bit(series):
    rows, times = series
    views = SeriesViews(2)
    points = views.points(rows, times)
    for row, usual, point in zip(rows, views.viewed.usual, points, strict=True):
        assert deviations(row, usual).tobytes() == point.tobytes()


@settings(deadline=None, max_examples=30)
@given(timed_rows(), st.integers(0, 60))
def test_usual_values_are_those_of_the_rows_when_they_come_and_nothing_changes(series, n_before):
    rows, times = series
    rows = np.nan_to_num(rows) / 2.0  # a row needs a value; and the forest must be able to hold all deviations
    detector = StreamDetector(2, **SMALL)
    detector.process_many(rows[:n_before], times[:n_before])
    before = repr(detector.notes())
    usual = detector.usual_values(rows[n_before:], times[n_before:])
    assert usual.shape == (len(rows[n_before:]), 2, 2)
    assert repr(detector.notes()) == before
    for i in range(len(usual)):
        row, time = rows[n_before + i], times[n_before + i]
        assert deviations(row, usual[i]).tobytes() == detector.next_point(row, time).tobytes()
        detector.process(row, time)


def test_the_expected_range_is_the_spread_around_what_is_usual():
    rows, times = daily(10, n_features=3)
    detector = StreamDetector(3, **SMALL | {"window": 256})
    detector.process_many(rows, times)
    for hour in range(24):
        time = times[-1] + 3600.0 * hour
        usual = detector.usual_values(rows[:1], [time])[0]
        low, high = detector.spread.range_around(usual)
        expected_low, expected_high = detector.expected_range(time)
        assert (low.tolist(), high.tolist()) == (expected_low.tolist(), expected_high.tolist())


@given(st.integers(1, 40), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_a_range_has_its_ends_in_order_and_moves_with_what_is_usual(n_points, n_features, seed):
    rng = np.random.default_rng(seed)
    spread = Spread.of_points(rng.normal(size=(n_points, 2 * n_features)))
    usual = rng.normal(size=(5, 2, n_features)) * 100.0
    low, high = spread.range_around(usual)
    assert (low <= high).all()
    moved_low, moved_high = spread.range_around(usual + 50.0)
    assert np.allclose(moved_low, low + 50.0)
    assert np.allclose(moved_high, high + 50.0)
    each = [spread.range_around(row) for row in usual]
    assert np.array_equal(low, [row[0] for row in each])
    assert np.array_equal(high, [row[1] for row in each])


def test_usual_values_and_the_spread_need_the_preset_and_a_point():
    for preset in ("practice", "paper"):
        detector = StreamDetector(1, preset=preset)
        with pytest.raises(InvalidInputError, match="preset 'series', but the preset is"):
            detector.usual_values([[1.0]])
        with pytest.raises(InvalidInputError, match="preset 'series', but the preset is"):
            _ = detector.spread
    with pytest.raises(InvalidInputError, match="the window is empty"):
        _ = StreamDetector(1, **SMALL).spread

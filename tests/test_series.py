"""Time series: the views against a plain oracle, bit-for-bit results, times, gaps, and explanations in values."""

import math
import pickle
from datetime import datetime, timedelta, timezone

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import imondrian
from imondrian import InvalidInputError, StreamDetector
from imondrian.engine.nodes import MAX_VALUE
from imondrian.engine.series_views import MAX_SECONDS
from imondrian.model_files import as_fitted_model, from_bytes, to_bytes
from imondrian.stream.incident_records import reasons_in_words
from imondrian.stream.row_times import as_seconds, as_times
from imondrian.stream.series_views import SeriesViews
from imondrian.stream.stream_explanations import reasons_of_point

DAY, HOUR = 86_400.0, 3_600.0
SMALL = {"preset": "series", "window": 64, "n_trees": 4}


class PlainViews:
    """The same as `SeriesViews`, one row and one value at a time, in plain Python."""

    def __init__(self, n_features):
        self.hours = [[(0, 0.0)] * n_features for _ in range(24)]
        self.level = [(0, 0.0)] * n_features
        self.spread = [[0.0] * n_features for _ in range(2)]
        self.last = self.step = None
        self.n_steps = self.n_late = self.n_late_now = self.n_repeated = self.n_holes = 0

    def point(self, row, time):
        clock = self._clock(time)
        hour = 0 if clock is None else int((clock - math.floor(clock / DAY) * DAY) / HOUR) % 24
        self._advance(time)
        deviations = [[], []]
        for j, value in enumerate(row):
            means = [mean if n else None for n, mean in (self.hours[hour][j], self.level[j])]
            means = [mean if mean is not None else means[1 - i] for i, mean in enumerate(means)]
            for view in range(2):
                is_known = means[view] is not None and not math.isnan(value)
                deviations[view].append(min(max(value - means[view], -MAX_VALUE), MAX_VALUE) if is_known else 0.0)
            if not math.isnan(value):
                self.hours[hour][j] = self._learned(self.hours[hour][j], value, 1.0 / 50.0, 0, j)
                self.level[j] = self._learned(self.level[j], value, 1.0 - 0.5 ** (1.0 / 200.0), 1, j)
        return deviations[0] + deviations[1]

    def _clock(self, time):
        """The time of the next row; None if it is not known."""
        if not math.isnan(time):
            return time
        return self.last if self.last is None or self.step is None else min(self.last + self.step, 1e12)

    def _advance(self, time):
        if self.last is None or math.isnan(time):
            self.last = self._clock(time)
            return
        passed = time - self.last
        self.n_late_now = self.n_late_now + 1 if passed < 0.0 else 0
        self.n_late += passed < 0.0
        self.n_repeated += passed == 0.0
        if passed > 0.0 or self.n_late_now == 100:
            self.last, self.n_late_now = time, 0
        if passed > 0.0:
            self._count_step(passed)

    def _count_step(self, passed):
        if self.step is not None and passed > 100.0 * self.step:
            self.n_holes += 1
            self.level = [(0, mean) for _, mean in self.level]
        self.n_steps = min(self.n_steps + 1, 100)
        step = passed if self.step is None else self.step
        self.step = step + (min(passed, 4.0 * step) - step) / self.n_steps

    def _learned(self, mean, value, weight, view, j):
        deviation, spread = value - mean[1], self.spread[view][j]
        if mean[0]:
            if spread:
                deviation = min(max(deviation, -100.0 * spread), 100.0 * spread)
            self.spread[view][j] = spread + (abs(deviation) - spread) / 16.0
        n = min(mean[0] + 1.0, 1.0 / weight)
        return n, min(max(mean[1] + deviation * max(weight, 1.0 / n), -MAX_VALUE), MAX_VALUE)


values = st.floats(-1e6, 1e6) | st.just(math.nan) | st.sampled_from([MAX_VALUE, -MAX_VALUE])
steps = st.sampled_from(
    [0.0, 5e-324, 1.0, 300.0, HOUR, -HOUR, 50 * HOUR, 4 * DAY, 30 * DAY, 2 * MAX_SECONDS, -2 * MAX_SECONDS, math.nan]
)


@st.composite
def timed_rows(draw, n_features=2, max_rows=60):
    n = draw(st.integers(1, max_rows))
    rows = draw(st.lists(st.lists(values, min_size=n_features, max_size=n_features), min_size=n, max_size=n))
    times, now = [], draw(st.floats(-1e9, 4e9) | st.sampled_from([0.0, MAX_SECONDS, -MAX_SECONDS]))
    for step in draw(st.lists(steps, min_size=n, max_size=n)):
        now = min(max(now + (0.0 if math.isnan(step) else step), -MAX_SECONDS), MAX_SECONDS)
        times.append(math.nan if math.isnan(step) else now)
    return np.array(rows), np.array(times)


@given(timed_rows(), st.lists(st.integers(1, 20), max_size=5))
def test_views_equal_the_oracle_bit_for_bit_however_the_rows_are_divided(series, lengths):
    rows, times = series
    oracle, views, found, first = PlainViews(2), SeriesViews(2), [], 0
    for length in [*lengths, len(rows)]:
        found.append(views.points(rows[first : first + length], times[first : first + length]))
        views = _restored(views)
        first += length
    expected = [oracle.point(row, time) for row, time in zip(rows.tolist(), times.tolist(), strict=True)]
    assert np.array_equal(np.vstack(found), expected)
    n_late, n_repeated, n_holes, step = views.time_counts
    assert (n_late, n_repeated, n_holes) == (oracle.n_late, oracle.n_repeated, oracle.n_holes)
    assert (None if math.isnan(step) else step) == oracle.step


def _restored(views):
    other = SeriesViews(views.n_features)
    other.restore(views.notes())
    return other


@given(timed_rows())
def test_a_preview_equals_the_next_point_and_changes_nothing(series):
    rows, times = series
    views = SeriesViews(2)
    for i in range(len(rows)):
        before = views.notes()
        preview = views.preview(rows[i : i + 2], times[i : i + 2])
        assert repr(views.notes()) == repr(before)
        assert np.array_equal(preview[0], views.points(rows[i : i + 1], times[i : i + 1])[0])


def daily(n_days, seed=0, per_hour=4, n_features=1):
    """Return rows with a daily pattern and noise, and their times."""
    times = np.arange(n_days * 24 * per_hour) * HOUR / per_hour
    wave = 10.0 * np.sin(2.0 * np.pi * times / DAY)
    return wave[:, None] + np.random.default_rng(seed).normal(size=(len(times), n_features)), times


@given(st.lists(st.integers(1, 90), max_size=6), st.integers(0, 3))
def test_results_do_not_depend_on_how_rows_are_divided_or_on_restarts(lengths, seed):
    rows, times = daily(4, seed, n_features=2)
    rows[np.random.default_rng(seed).random(rows.shape) < 0.02] = np.nan
    rows[np.isnan(rows).all(axis=1)] = 0.0
    whole = StreamDetector(2, **SMALL, threshold=0.05)
    expected = whole.process_many(rows, times)
    detector, found, first = StreamDetector(2, **SMALL, threshold=0.05), [], 0
    for i, length in enumerate([*lengths, 1, 1, len(rows)]):
        part, when = rows[first : first + length], times[first : first + length]
        if len(part) == 1:
            found.append(np.array([detector.process(part[0], when[0])[:5]]).T)
        else:
            results = detector.process_many(part, times=when)
            found.append(
                np.array([results.score, results.is_anomaly, results.threshold, results.index, results.surprise])
            )
        detector = pickle.loads(pickle.dumps(detector)) if i % 2 else detector  # noqa: S301
        first += length
    assert np.array_equal(np.hstack(found), np.array(expected[:5]))
    assert detector.incidents == whole.incidents
    assert detector.time_counts == whole.time_counts
    assert detector.notes() == whole.notes()


def test_a_model_file_resumes_bit_for_bit(tmp_path):
    rows, times = daily(3)
    detector, other = StreamDetector(1, **SMALL), StreamDetector(1, **SMALL)
    detector.process_many(rows[:100], times[:100])
    other.process_many(rows[:100], times[:100])
    imondrian.save(detector, tmp_path / "series.imf")
    loaded = imondrian.load(tmp_path / "series.imf")
    assert loaded.parameters == detector.parameters
    expected, found = (each.process_many(rows[100:], times[100:]) for each in (other, loaded))
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(expected, found, strict=True))


@given(timed_rows(), st.booleans())
def test_a_detector_writes_only_files_that_it_reads(series, learn_anomalies):
    rows, times = series
    rows[np.isnan(rows).all(axis=1)] = 0.0
    settings = {"window": 8, "n_trees": 2, "threshold": "top 40%", "warm_up": 4, "rules": {"gap": 1}}
    detector = StreamDetector(2, **SMALL | settings, learn_anomalies=learn_anomalies)
    for half in (slice(None, len(rows) // 2), slice(len(rows) // 2, None)):
        loaded = from_bytes(to_bytes(detector))
        expected, found = (each.process_many(rows[half], times[half]) for each in (detector, loaded))
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(expected, found, strict=True))
    assert to_bytes(loaded) == to_bytes(detector)
    assert np.isfinite(detector.score(rows, times)).all()


def test_the_forest_holds_exactly_the_deviations_of_the_window():
    rows, times = daily(3)
    detector = StreamDetector(1, **SMALL)
    n_bytes = detector.n_bytes
    detector.process_many(rows, times)
    expected = SeriesViews(1).points(rows, times)[-64:]
    assert np.array_equal(detector.forest.points(), expected)
    assert detector.forest.n_points == 64
    assert detector.n_bytes == n_bytes
    fresh = imondrian.MondrianForest(4, seed=1).build(expected)
    assert detector.forest.score(expected[:5], "expected").shape == fresh.score(expected[:5], "expected").shape


@pytest.mark.parametrize("wrong", [1e6, -1e150])
def test_a_single_wrong_value_does_not_change_what_is_usual(wrong):
    rows, times = daily(10)
    views, other = SeriesViews(1), SeriesViews(1)
    views.points(rows, times)
    rows[900] = wrong
    other.points(rows, times)
    assert np.abs(views.usual_at(math.nan) - other.usual_at(math.nan)).max() < 10.0


def test_a_new_level_far_away_is_learned():
    views = SeriesViews(1)
    views.points(np.append(np.random.default_rng(0).normal(size=(500, 1)), np.full((2_000, 1), 1e6), axis=0), None)
    assert views.usual_at(math.nan) == pytest.approx(1e6, rel=0.01)


def test_the_level_begins_again_after_a_hole():
    views = SeriesViews(1)
    views.points(np.full((50, 1), 3.0), np.arange(50) * 60.0)
    after = views.points(np.array([[90.0], [91.0]]), np.array([4 * DAY + 3 * HOUR, 4 * DAY + 3 * HOUR + 60.0]))
    assert after.tolist() == [[0.0, 0.0], [1.0, 1.0]]  # nothing is known about this hour, nor about the level
    assert views.time_counts.n_holes == 1
    assert views.usual_at(4 * DAY).tolist() == [[3.0], [90.5]]


def test_late_and_repeated_rows_are_counted_and_keep_their_own_hour():
    views = SeriesViews(1)
    views.points(np.array([[1.0], [2.0]]), np.array([0.0, HOUR]))
    late = views.points(np.array([[5.0]]), np.array([600.0]))
    assert late[0, 0] == 4.0  # compared with the first hour
    views.points(np.array([[2.0]]), np.array([HOUR]))
    assert views.time_counts[:3] == (1, 1, 0)


@pytest.mark.parametrize(("first", "largest"), [(1e-3, 10), (1e-6, 100)])
def test_a_short_first_step_does_not_make_all_later_steps_holes(first, largest):
    views, times = SeriesViews(1), np.append([0.0, first], np.arange(1.0, 1_000.0))
    views.points(np.zeros((len(times), 1)), times)
    assert 0 < views.time_counts.n_holes < largest


@pytest.mark.parametrize("wrong", [1e11, 30 * DAY])
def test_one_time_far_ahead_does_not_make_all_later_rows_late(wrong):
    views, times = SeriesViews(1), np.arange(1_000) * 60.0
    times[500] = wrong
    times[900:] += 4 * DAY
    views.points(np.zeros((1_000, 1)), times)
    assert views.time_counts == (100, 0, 2, pytest.approx(60.0, rel=0.1))  # the holes: the wrong time and the last one


def test_a_clock_that_is_set_back_by_a_day_goes_on():
    views, times = SeriesViews(1), np.arange(1_000) * 60.0
    times[500:] -= DAY
    views.points(np.zeros((1_000, 1)), times)
    assert views.time_counts == (100, 0, 0, 60.0)
    assert views.usual_at(math.nan)[0] == 0.0


def test_a_row_without_a_time_after_the_first_time_belongs_to_its_hour():
    views = SeriesViews(1)
    views.points(np.array([[1.0]]), np.array([5 * HOUR]))
    views.points(np.array([[3.0]]), np.array([math.nan]))
    assert views.usual_at(5 * HOUR + 1.0)[0] == 2.0


def test_a_row_without_a_time_comes_one_usual_step_later():
    with_times, without = SeriesViews(1), SeriesViews(1)
    rows, times = daily(2)
    expected = with_times.points(rows, times)
    times[1::2][1:] = np.nan
    assert np.array_equal(without.points(rows, times), expected)


def test_without_times_all_rows_belong_to_the_same_hour():
    rows, _ = daily(2)
    detector, other = StreamDetector(1, **SMALL), StreamDetector(1, **SMALL)
    assert np.array_equal(
        detector.process_many(rows).score, other.process_many(rows, np.arange(len(rows)) / 10.0).score
    )
    assert math.isnan(detector.time_counts.step)


def test_an_ordinary_value_at_the_wrong_hour_is_the_most_surprising_one():
    """The value of 6 o'clock at midnight, in 20 streams of 10 days: expected to be the highest score in all of them.

    The deviation is 10 standard deviations of the noise; the probability that one of 450 later rows scores higher is
    below 1 in 1,000 for each stream, so that at most one failure has a probability above 0.999.
    """
    n_failed = 0
    for seed in range(20):
        rows, times = daily(10, seed)
        odd = len(rows) - 96  # midnight: the pattern is at 0, its highest value is 10, at 6 o'clock
        rows[odd] = 10.0
        scores = StreamDetector(1, preset="series", window=1024, seed=seed).process_many(rows, times).score
        n_failed += int(np.argmax(scores[500:]) + 500 != odd)
    assert n_failed <= 1


def test_practice_does_not_notice_an_ordinary_value_at_the_wrong_hour():
    rows, _ = daily(10)
    odd = len(rows) - 96
    rows[odd] = 9.0
    scores = StreamDetector(1, window=1024, seed=0).process_many(rows).score
    assert (scores[500:] > scores[odd]).sum() > 10


@pytest.fixture(scope="module")
def detector_with_an_incident():
    rows, times = daily(10)
    rows[-20:-17] += 40.0
    detector = StreamDetector(1, preset="series", window=1024, seed=0)
    detector.process_many(rows, times)
    return detector, rows, times


def test_reasons_are_values_and_not_deviations(detector_with_an_incident):
    detector, rows, _ = detector_with_an_incident
    incident = detector.incidents[-1]
    reason = incident.reasons[0]
    assert reason.value in rows[-20:-17]
    assert reason.is_high
    assert reason.view in ("hour", "level")
    usual = rows[reason.value != rows].mean()
    assert abs(reason.median - usual) < 15.0 < reason.value - reason.high
    text = str(reasons_in_words(incident, ["load"])[0])
    assert "high; expected " in text
    assert text.endswith((" at this hour), 100%", " given its recent level), 100%"))


def test_the_parts_of_an_explanation_sum_to_the_score(detector_with_an_incident):
    detector, _, times = detector_with_an_incident
    time = times[-1] + 900.0
    parts = detector.explain([60.0], time)
    assert set(parts) == {(0, "hour"), (0, "level")}
    score = detector.score([[60.0]], [time])[0]
    assert sum(map(abs, parts.values())) == pytest.approx(score)
    point = detector.next_point([60.0], time)
    (reason,) = reasons_of_point(detector, point, np.array([[60.0]]), ["load"])
    assert reason.value == 60.0
    assert abs(reason.part) == pytest.approx(score)
    low, high = reason.expected
    assert -15.0 < low < high < 15.0


def test_the_expected_range_follows_the_hour_and_holds_ordinary_values(detector_with_an_incident):
    detector, _, times = detector_with_an_incident
    end = times[-1] + 900.0
    ranges = [detector.expected_range(end + hour * HOUR) for hour in range(24)]
    lows, highs = np.hstack([low for low, _ in ranges]), np.hstack([high for _, high in ranges])
    assert (lows <= highs).all()
    assert np.argmax(lows + highs) in range(3, 10)  # the pattern is highest at 6 o'clock
    new = StreamDetector(2, **SMALL)
    assert all(np.isnan(bound).all() for bound in new.expected_range())


@pytest.mark.parametrize("amplitude", [0.0, 10.0])
def test_the_expected_range_holds_nine_of_ten_values(amplitude):
    """In 600 rows of a stationary series: 0.9, with a standard deviation of 0.012 if rows are independent.

    The limits are four standard deviations away: an error rate of 1 in 10,000.
    """
    rows, times = daily(27)
    rows += (amplitude - 10.0) * np.sin(2.0 * np.pi * times / DAY)[:, None]
    detector = StreamDetector(1, preset="series", window=1024, n_trees=1)
    detector.process_many(rows[:1_900], times[:1_900])
    n_inside = 0
    for row, time in zip(rows[1_900:2_500], times[1_900:2_500], strict=True):
        low, high = detector.expected_range(time)
        n_inside += low[0] <= row[0] <= high[0]
        detector.process(row, time)
    assert 0.85 < n_inside / 600 < 0.95


def test_missing_numbers_count_as_usual_ones():
    rows, times = daily(3, n_features=2)
    detector = StreamDetector(2, **SMALL)
    detector.process_many(rows, times)
    with_gap = detector.next_point([math.nan, 3.0], times[-1] + 900.0)
    assert (with_gap[0], with_gap[2]) == (0.0, 0.0)
    assert with_gap[1] != 0.0
    detector.process([math.nan, 3.0])
    assert detector.n_missing == 1
    with pytest.raises(InvalidInputError, match="missing"):
        detector.process([math.nan, math.nan])
    with pytest.raises(InvalidInputError):
        StreamDetector(2, **SMALL, missing="raise").process([math.nan, 3.0])


def test_skipped_rows_do_not_shift_the_times_of_others():
    rows, times = daily(2)
    expected = StreamDetector(1, **SMALL).process_many(rows, times).score
    bad = np.insert(rows, 50, np.inf, axis=0)
    when = np.insert(times, 50, times[50] - 1.0)
    found = StreamDetector(1, **SMALL, on_error="skip").process_many(bad, when).score
    assert np.array_equal(np.delete(found, 50), expected)


def test_a_wrong_time_is_an_error_even_if_the_row_is_skipped():
    detector = StreamDetector(1, **SMALL, on_error="skip")
    for call in (lambda: detector.process([math.inf], "noon"), lambda: detector.process_many([[math.inf]], ["noon"])):
        with pytest.raises(InvalidInputError, match="noon"):
            call()
    assert detector.n_seen == 0


def test_usual_values_do_not_learn_anomalies_that_are_not_learned():
    rows, times = daily(20)
    rows[1_200:1_700] += 60.0
    detector = StreamDetector(1, preset="series", window=512, n_trees=10, learn_anomalies=False)
    results = detector.process_many(rows, times)
    assert results.is_anomaly[1_200:1_230].all()
    views = SeriesViews(1)
    views.points(np.where(results.is_anomaly[:, None], math.nan, rows), times)
    assert detector.notes()["views"] == views.notes()["views"]


def test_several_values_have_two_deviations_each():
    rows, times = daily(2, n_features=3)
    detector = StreamDetector(3, **SMALL, scale=[1.0, 2.0, 3.0])
    detector.process_many(rows, times)
    assert detector.forest.n_features == 6
    assert list(detector.forest.scale) == [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_features": 8_001}, "n_features must be between 1 and 8000"),
        ({"shingle": 2}, "shingle is 2"),
        ({"categorical": [0]}, "categorical is"),
        ({"categorical": None}, "categorical"),
        ({"missing": "previous"}, "but is 'previous'"),
        ({"missing": "indicator"}, "but is 'indicator'"),
    ],
)
def test_settings_that_do_not_go_together_with_the_preset(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        StreamDetector(preset="series", **{"n_features": 2} | settings)


def test_the_widest_series_can_be_saved():
    names = [f"feature {j}" for j in range(8_000)]
    detector = StreamDetector(len(names), **SMALL | {"window": 24, "n_trees": 1, "warm_up": 0, "threshold": 0.4})
    rows = np.random.default_rng(0).normal(size=(30, len(names)))
    for i, row in enumerate(rows):
        detector.process(dict(zip(names, row, strict=True)), HOUR * i)
    restored = from_bytes(to_bytes(detector))
    assert restored.feature_names == names


def test_estimators_do_not_have_this_preset():
    with pytest.raises(InvalidInputError, match="for streams only"):
        imondrian.base.defaults.preset_of("series")
    with pytest.raises(ValueError, match="preset"):
        imondrian.IsolationMondrianForest(preset="series").fit(np.zeros((9, 1)))


def test_a_series_is_not_a_model_of_single_rows():
    detector = StreamDetector(1, **SMALL)
    detector.process([1.0])
    with pytest.raises(InvalidInputError, match="for a time series"):
        as_fitted_model(detector, "the model")


def test_times_need_the_preset():
    detector = StreamDetector(1)
    for call in (
        lambda: detector.process([1.0], time=0.0),
        lambda: detector.process_many([[1.0]], times=[0.0]),
        lambda: detector.score([[1.0]], [0.0]),
        lambda: detector.expected_range(0.0),
        lambda: detector.time_counts,
    ):
        with pytest.raises(InvalidInputError, match="preset is 'practice'"):
            call()
    assert detector.n_seen == 0


def test_single_rows_cannot_be_forgotten():
    detector = StreamDetector(1, **SMALL)
    detector.process([1.0])
    with pytest.raises(InvalidInputError, match="later points depend on them"):
        detector.forget([[1.0]])


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), st.integers(-720, 720))  # noqa: DTZ001
def test_all_forms_of_a_time_give_the_same_seconds(moment, offset):
    seconds = as_seconds(moment)
    zone = timezone(timedelta(minutes=offset))
    forms = [
        moment,
        moment.isoformat(),
        f" {moment.isoformat(' ')} ",
        np.datetime64(moment),
        moment.replace(tzinfo=zone),
    ]
    assert [as_seconds(form) for form in forms] == [seconds] * len(forms)
    assert as_seconds(seconds) == seconds
    assert as_times(np.array([moment], "datetime64[us]"), 1)[0] == seconds
    assert as_times(forms, len(forms)).tolist() == [seconds] * len(forms)
    near = np.datetime64(int(seconds) % 10**6, "s")
    for unit in ("ns", "ps"):
        assert as_seconds(near.astype(f"datetime64[{unit}]")) == as_times([near], 1)[0] == int(seconds) % 10**6
        assert as_times(np.array([near, "NaT"], f"datetime64[{unit}]"), 2)[0] == int(seconds) % 10**6
    assert seconds == (moment - datetime(1970, 1, 1)).total_seconds()  # noqa: DTZ001


@pytest.mark.parametrize(
    "time", ["yesterday", "", object(), True, math.inf, b"2024-01-01", [1], 1j, np.timedelta64(5, "m")]
)
def test_what_is_not_a_time_is_named(time):
    with pytest.raises(InvalidInputError, match="A time must be"):
        as_seconds(time)
    detector = StreamDetector(1, **SMALL)
    with pytest.raises(InvalidInputError):
        detector.process([1.0], time)
    assert detector.n_seen == 0


@pytest.mark.parametrize("convert", [as_seconds, lambda time: as_times([time], 1)])
def test_a_time_too_far_from_1970_is_named(convert):
    with pytest.raises(
        InvalidInputError, match=r"17145723000000\.0 is too far from 1970\. A number must be in seconds"
    ):
        convert(17145723000000.0)  # in units of 0.1 milliseconds


@pytest.mark.parametrize("times", [[0.0], [0.0, 1.0, 2.0], 5.0, "ab", np.zeros((2, 1)), [[1], [1, 2]]])
def test_there_must_be_one_time_for_each_row(times):
    with pytest.raises(InvalidInputError, match="times"):
        StreamDetector(1, **SMALL).process_many([[1.0], [2.0]], times)


def test_hours_of_a_time_zone_are_read_as_written_from_all_libraries():
    zone = "Europe/Berlin"
    stamps = pd.Series(pd.date_range("2024-05-01 14:05", periods=3, tz=zone))
    frame = pl.Series(stamps.dt.tz_localize(None).tolist()).dt.replace_time_zone(zone)
    assert as_times(frame, 3).tolist() == as_times(stamps, 3).tolist() == [as_seconds(stamp) for stamp in stamps]


def test_masked_times_are_unknown():
    numbers = np.ma.masked_array([1.0, 1e300], [False, True])
    moments = np.ma.masked_array(np.array(["1970-01-01T00:00:01", "2024-01-01"], "datetime64[s]"), [False, True])
    for times in (numbers, moments, pd.Series(["1970-01-01 00:00:01", None], dtype="string")):
        assert np.array_equal(as_times(times, 2), [1.0, math.nan], equal_nan=True)


def test_unknown_times():
    assert all(math.isnan(as_seconds(time)) for time in (None, math.nan, np.datetime64("NaT")))
    assert np.isnan(as_times(np.array(["NaT"], "datetime64[s]"), 1)).all()


@pytest.mark.parametrize(
    "damage",
    [
        lambda views: views["hours"].append(0.0),
        lambda views: views["hours"].__setitem__(0, -1.0),
        lambda views: views["hours"].__setitem__(0, 51.0),
        lambda views: views["hours"].__setitem__(30, 1e200),
        lambda views: views["level"].__setitem__(0, math.nan),
        lambda views: views["level"].__setitem__(0, 1e6),
        lambda views: views["spread"].__setitem__(0, -1.0),
        lambda views: views["spread"].__setitem__(0, math.nan),
        lambda views: views["clock"].__setitem__(1, 0.0),
        lambda views: views["clock"].__setitem__(0, None),
        lambda views: views["clock"].__setitem__(0, 1e300),
        lambda views: views["counts"].__setitem__(0, 101),
        lambda views: views["counts"].__setitem__(1, -1),
        lambda views: views["clock"].__setitem__(1, 3e12),
        lambda views: views["counts"].__setitem__(4, 100),
        lambda views: views["counts"].__setitem__(3, 97),
        lambda views: views["counts"].pop(),
    ],
)
def test_damaged_notes_are_refused(damage):
    detector = StreamDetector(1, **SMALL)
    rows, times = daily(1)
    detector.process_many(rows, times)
    notes = detector.notes()
    damage(notes["views"])
    with pytest.raises(ValueError, match=r"damaged|count|reshape"):
        StreamDetector.from_notes(detector.forest, notes)

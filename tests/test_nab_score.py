"""The NAB scorer of the benchmarks, compared with cases computed by hand and with a plain search for a threshold."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from nab_score import (
    PROFILES,
    Profile,
    best_limited_scores,
    best_score,
    limited,
    n_unscored,
    position_value,
    row_values,
    score_of_alarms,
)
from series_data import Series, skab_series

del sys.path[0]  # the modules of the benchmarks have common names

EDGE = 0.9866142981514303  # 2 / (1 + exp(-5)) - 1


def series(n_rows, *windows):
    return Series("made up", ["2020-01-01 00:00:00"] * n_rows, np.zeros(n_rows), list(windows))


ONE = series(1_000, (500, 599))  # rows from 150 on are scored


@st.composite
def scored_series(draw):
    """One to three series with up to two windows, and scores with many ties."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        n_rows = draw(st.integers(20, 60))
        edges = sorted(draw(st.sets(st.integers(0, n_rows - 1), min_size=4, max_size=4)))
        n_windows = draw(st.integers(0, 2))
        windows = [(edges[2 * k], edges[2 * k + 1]) for k in range(n_windows)]
        scores = draw(st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.9, np.nan]), min_size=n_rows, max_size=n_rows))
        found.append((series(n_rows, *windows), np.array(scores)))
    found.append((ONE, np.where(np.arange(1_000) == 550, 0.5, 0.0)))  # at least one window
    return found


@pytest.mark.parametrize(("n_rows", "expected"), [(0, 0), (6, 0), (7, 1), (100, 15), (5_000, 750), (20_000, 750)])
def test_the_first_15_percent_but_at_most_750_rows_are_not_scored(n_rows, expected):
    assert n_unscored(n_rows) == expected


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (-1.0, EDGE),
        (-0.5, 0.8482836399575129),
        (0.0, 0.0),
        (1.0, -EDGE),
        (2.999, -0.99999938),
        (3.0, -1.0),
        (9.0, -1.0),
    ],
)
def test_values_are_those_in_the_documentation_of_nab(position, expected):
    assert position_value(position) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(
    ("alarms", "expected"),
    [
        ([], 0.0),
        ([500], 100.0),
        ([500, 501, 599], 100.0),  # only the first counts
        ([550], 100.0 * (1.0 + 0.8482836399575129 / EDGE) / 2.0),  # in the middle: position -0.5
        ([599], 100.0 * (1.0 + 0.024994792968 / EDGE) / 2.0),  # in the last row: position -1/100
        ([300], -100.0 * 0.11 / 2.0),  # before any window
        ([300, 301], -100.0 * 0.22 / 2.0),  # each false alarm counts
        ([600], -100.0 * 0.11 * 0.02524715 / 2.0),  # one row after the window: position 1/99
        ([698], -100.0 * 0.11 * EDGE / 2.0),  # one width after it: position 1
        ([896], -100.0 * 0.11 / 2.0),  # three widths after it
        ([999], -100.0 * 0.11 / 2.0),
        ([149], 0.0),  # not scored
        ([0, 149, 500], 100.0),
        ([150], -100.0 * 0.11 / 2.0),
    ],
)
def test_scores_of_one_window_by_hand(alarms, expected):
    assert score_of_alarms([ONE], [np.array(alarms, int)]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("profile", "expected"),
    [  # one of two windows is found, with one false alarm far from any window
        ("standard", 100.0 * (1.0 - 1.0 - 0.11 + 2.0) / 4.0),
        ("reward_low_FP_rate", 100.0 * (1.0 - 1.0 - 0.22 + 2.0) / 4.0),
        ("reward_low_FN_rate", 100.0 * (1.0 - 2.0 - 0.11 + 4.0) / 6.0),
    ],
)
def test_profiles_by_hand(profile, expected):
    two = series(1_000, (200, 219), (700, 719))
    assert score_of_alarms([two], [np.array([400, 700])], PROFILES[profile]) == pytest.approx(expected)


def test_a_false_alarm_counts_by_the_distance_from_the_last_window_before_it():
    two = series(1_000, (200, 299), (700, 719))
    values = row_values(two)
    assert values.value[598 - values.first] == -1.0  # more than three widths (99 rows each) after the first
    assert values.value[729 - values.first] == pytest.approx(position_value(10 / 19))
    assert values.value[699 - values.first] == -1.0


def test_windows_of_several_series_count_alike_and_share_the_threshold():
    other = series(1_000, (500, 599))
    scores = [np.zeros(1_000), np.zeros(1_000)]
    scores[0][500], scores[1][500], scores[1][300] = 0.9, 0.7, 0.8
    best = best_score([ONE, other], scores)
    assert best.score == pytest.approx(100.0 * (2.0 - 0.11 + 2.0) / 4.0)
    assert best.threshold == 0.7


def test_a_window_that_is_partly_unscored_is_found_in_its_scored_rows_only():
    early = series(1_000, (100, 199))
    assert score_of_alarms([early], [np.array([120])]) == 0.0
    half = 100.0 * (1.0 + 0.8482836399575129 / EDGE) / 2.0
    assert score_of_alarms([early], [np.array([120, 150])]) == pytest.approx(half)


def test_a_window_in_the_unscored_rows_is_left_out():
    assert score_of_alarms([series(1_000, (10, 20), (500, 599))], [np.array([500])]) == pytest.approx(100.0)


def test_series_without_windows_have_no_score():
    with pytest.raises(ValueError, match="at least one labelled window"):
        best_score([series(100)], [np.zeros(100)])


def test_a_constant_score_is_worth_no_more_than_silence_or_alarms_everywhere():
    everywhere = score_of_alarms([ONE], [np.arange(1_000)])
    assert best_score([ONE], [np.full(1_000, 0.5)]).score == pytest.approx(max(everywhere, 0.0))


@given(found=scored_series(), profile=st.sampled_from(list(PROFILES.values())))
def test_the_best_threshold_is_the_best_of_all(found, profile: Profile):
    many, scores = zip(*found, strict=True)
    tried = [np.inf, *np.unique(np.concatenate([s[~np.isnan(s)] for s in scores]))]
    plain = [score_of_alarms(many, [np.flatnonzero(s >= t) for s in scores], profile) for t in tried]
    best = best_score(many, scores, profile)
    assert best.score == pytest.approx(max(plain))
    assert best.score == pytest.approx(
        score_of_alarms(many, [np.flatnonzero(s >= best.threshold) for s in scores], profile)
    )


@given(found=scored_series(), min_distance=st.integers(1, 30))
def test_limited_alarms_have_the_score_of_their_threshold(found, min_distance):
    many, scores = zip(*found, strict=True)
    for name, best in best_limited_scores(many, scores, min_distance).items():
        alarms = [np.flatnonzero(s >= best.threshold) for s in scores]
        scored = [rows[rows >= n_unscored(len(s))] for rows, s in zip(alarms, scores, strict=True)]
        kept = [limited(rows, min_distance) for rows in scored]
        assert best.score == pytest.approx(score_of_alarms(many, kept, PROFILES[name]))


@given(found=scored_series())
def test_a_limit_of_one_row_is_no_limit(found):
    many, scores = zip(*found, strict=True)
    limited_scores = best_limited_scores(many, scores, 1)
    for name, profile in PROFILES.items():  # few enough distinct scores that all thresholds are tried
        assert limited_scores[name].score <= best_score(many, scores, profile).score + 1e-9
    few = [(ONE, np.where(np.arange(1_000) == 500, 0.5, np.nan))]
    assert best_limited_scores(*zip(*few, strict=True), 1)["standard"].score == pytest.approx(100.0)


@given(rows=st.sets(st.integers(0, 500)), min_distance=st.integers(1, 50))
def test_limited_alarms_keep_their_distance_and_drop_no_other(rows, min_distance):
    alarms = np.array(sorted(rows), int)
    kept = limited(alarms, min_distance)
    assert (np.diff(kept) >= min_distance).all()
    for row in rows - set(kept.tolist()):
        assert any(0 < row - one < min_distance for one in kept)


def test_the_series_of_skab_have_8_sensors_and_the_labelled_rows_are_their_windows():
    if "IMONDRIAN_DATA" not in os.environ:
        pytest.skip("the data are in the folder named by IMONDRIAN_DATA")
    anomalous, normal = list(skab_series()), list(skab_series("anomaly-free"))
    assert [len(anomalous), len(normal)] == [20, 1]
    assert all(one.values.shape == (len(one.times), 8) for one in [*anomalous, *normal])
    assert all(len(one.windows) == 1 and one.windows[0][0] >= 400 for one in anomalous)
    assert normal[0].windows == []
    assert sum(one.is_in_window.sum() for one in anomalous) == 7_826

"""The benchmark of time series: views and detectors do not depend on how a series is divided; rates are right."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import series as benchmark
import series_detectors
from series_data import Series
from series_detectors import OURS, STREAM_PEERS, Delayed, HalfSpaceTrees, RunningMean, isolation_forest, t_squared
from series_views import Differences, FromMean, FromTimeOfDay, Shingles, ShortMeans, Values

del sys.path[0]  # the modules of the benchmarks have common names

VIEWS = {
    "values": Values,
    "differences": Differences,
    "short means": lambda: ShortMeans(3.0),
    "from the mean": lambda: FromMean(3.0),
    "from the time of day": FromTimeOfDay,
    "shingles": lambda: Shingles(3),
}
TABLES = st.tuples(st.integers(2, 30), st.integers(1, 3), st.integers(0, 1_000))


def table(n_rows, n_features, seed):
    """Times ten minutes apart, and values."""
    return 600.0 * np.arange(n_rows), np.random.default_rng(seed).normal(size=(n_rows, n_features))


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@given(sizes=TABLES, cut=st.integers(1, 29))
def test_a_view_of_two_halves_is_the_view_of_the_whole_and_apply_changes_nothing(view, sizes, cut):
    seconds, X = table(*sizes)
    cut = min(cut, len(X) - 1)
    whole, halves = view().learn(seconds, X), view()
    first = halves.learn(seconds[:cut], X[:cut])
    halves.apply(seconds[cut:], X[cut:])
    np.testing.assert_array_equal(np.concatenate([first, halves.learn(seconds[cut:], X[cut:])]), whole)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@given(sizes=TABLES)
def test_apply_returns_the_point_that_the_next_row_gets(view, sizes):
    seconds, X = table(*sizes)
    one = view()
    one.learn(seconds[:-1], X[:-1])
    applied = one.apply(seconds[-1:], X[-1:])
    np.testing.assert_array_equal(one.learn(seconds[-1:], X[-1:]), applied)


def test_deviations_from_the_time_of_day_by_hand():
    seconds = np.array([0.0, 600.0, 1_800.0, 86_400.0, 86_400.0 + 1_800.0])
    X = np.array([[1.0], [3.0], [10.0], [5.0], [10.0]])
    points = FromTimeOfDay(n_values=2, half_life=1.0).learn(seconds, X)
    # 1: the first; 3 - 1; 10 - the mean of all so far, 2; 5 - the mean of 1 and 3; 10 - 10
    np.testing.assert_allclose(points[:, 0], [0.0, 2.0, 8.0, 3.0, 0.0])


def test_short_means_by_hand():
    points = ShortMeans(1.0).learn(np.arange(4.0), np.array([[0.0], [4.0], [2.0], [8.0]]))
    np.testing.assert_allclose(points[:, 0], [0.0, 2.0, 2.0, 5.0])  # the half-life 1 means: half of the distance


@pytest.mark.parametrize("name", [*OURS, "running mean", "River, half-space trees"])
@pytest.mark.compiled
@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="a hundred trees need compiled kernels")
def test_a_detector_scores_two_halves_like_the_whole_and_predict_changes_nothing(name):
    if name.startswith("River"):
        pytest.importorskip("river")
    factory = (OURS | STREAM_PEERS)[name].make
    seconds, X = table(500, 2, 0)
    whole, halves = factory(2, 0).process(seconds, X), factory(2, 0)
    first = halves.process(seconds[:333], X[:333])
    assert halves.predict(seconds[333:], X[333:]).shape == (167,)
    np.testing.assert_array_equal(np.append(first, halves.process(seconds[333:], X[333:])), whole)


@pytest.mark.compiled
@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="a hundred trees need compiled kernels")
def test_a_delayed_detector_has_not_learned_the_last_rows(monkeypatch):
    monkeypatch.setattr(series_detectors, "N_AT_ONCE", 300)
    monkeypatch.setattr(series_detectors, "DELAY", 50)
    seconds, X = table(400, 1, 0)
    X[350:] += 20.0  # the last 50 rows are unlike the others, and none of them is learned
    settings_ = {"kind": "expected", "window": 512, "max_samples": 128, "n_trees": 20}
    scores = Delayed(Values(), 1, 0, settings_).process(seconds, X)
    assert scores[350:].min() > scores[200:350].max()


@pytest.mark.parametrize("score", [isolation_forest, t_squared])
def test_batch_peers_score_a_far_row_highest(score):
    X = np.random.default_rng(0).normal(size=(500, 4))
    X[450] = 30.0
    X[:, 3] = 1.0  # a constant sensor
    assert score(X[:400], X).argmax() == 450


def test_running_mean_by_hand():
    detector = RunningMean(1, 0)
    scores = detector.process(np.arange(4.0), np.array([[0.0], [2.0], [3.0], [1.0]]))
    # mean 1 and deviation 1 after two rows; the mean of 0, 2, 3 is 5/3, the variance 14/9
    np.testing.assert_allclose(scores, [0.0, 0.0, 2.0, (2.0 / 3.0) / np.sqrt(14.0 / 9.0)])


def test_half_space_trees_are_those_of_river():
    pytest.importorskip("river")
    assert HalfSpaceTrees(1, 3).process(np.arange(600.0), np.ones((600, 1))).shape == (600,)


def labelled(n_rows, *windows):
    return Series("made up", ["2020-01-01 00:00:00"] * n_rows, np.zeros((n_rows, 8)), list(windows))


def test_rates_are_those_of_all_rows_of_all_files():
    files = [labelled(10, (5, 8)), labelled(10, (0, 1))]
    alarms = [np.isin(np.arange(10), [4, 5, 6]), np.isin(np.arange(10), [9])]
    # 2 of 6 labelled rows are found, 2 of 14 others are alarms
    expected = [2.0 * 2 / (2.0 * 2 + 2 + 4), 2 / 14, 4 / 6]
    np.testing.assert_allclose(benchmark.rates(files, alarms), expected)


def test_no_alarm_falls_in_the_rows_learned_first():
    scores = np.arange(1_000.0)
    assert benchmark.above_highest(scores).nonzero()[0].tolist() == list(range(400, 1_000))
    assert not benchmark.above_highest(-scores).any()


def test_incidents_count_by_the_window_in_which_they_open():
    series = labelled(1_000, (200, 299), (600, 699))
    found = benchmark.incidents_in(series, [100, 190, 250, 260, 500])
    assert found == (2, [0.5], 2)  # row 100 is not scored by NAB


@pytest.mark.compiled
@settings(max_examples=5)
@given(seed=st.integers(0, 100))
def test_a_run_of_high_scores_opens_one_incident(seed):
    scores = np.random.default_rng(seed).uniform(0.4, 0.5, 2_000)
    scores[1_500:1_510] = 0.9
    opened = benchmark.opened_rows(scores, window=2_048, warm_up=256)
    assert [row for row in opened if row >= 1_500] == [1_500]


def test_a_missing_peer_is_named(monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "why_missing", lambda name: f"{name}: missing")
    assert set(benchmark.contestants()) == {*OURS, "running mean"}
    assert "left out: krcf: missing" in capsys.readouterr().err


def test_medians_of_the_last_rows_by_hand():
    np.testing.assert_array_equal(benchmark.last_median(np.array([3.0, 1.0, 2.0, 9.0]), 3), [np.nan, np.nan, 2.0, 2.0])


@pytest.mark.compiled
@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="a hundred trees need compiled kernels")
def test_all_tables_are_printed_and_a_level_shift_is_found(monkeypatch, capsys):
    def shifted(n_features):
        values = np.random.default_rng(0).normal(size=(700, n_features))
        values[550:600] += 15.0
        return Series(
            "made up", [f"2020-01-01 00:{i // 60:02d}:{i % 60:02d}" for i in range(700)], values, [(550, 599)]
        )

    chosen = "two forests, hour and level: the higher score"
    monkeypatch.setattr(benchmark, "OURS", {chosen: OURS[chosen]})
    monkeypatch.setattr(benchmark, "STREAM_PEERS", {"running mean": STREAM_PEERS["running mean"]})
    monkeypatch.setattr(benchmark, "nab_series", lambda: iter([shifted(1)]))
    monkeypatch.setattr(benchmark, "skab_series", lambda _="valve*": iter([shifted(8)]))
    nab, skab = benchmark.compare_on_nab(range(2)), benchmark.compare_on_skab(range(1))
    assert [len(nab[name]) for name in (chosen, "running mean")] == [2, 2]
    assert all(one["limited"]["standard"] > 95.0 for one in nab[chosen])
    assert nab["incidents"][chosen]["made up"]["delays"] == [0.0]
    assert skab[chosen]["learns 400 rows"][0]["AUC"] > 0.99
    assert skab["T-squared"]["learns 400 rows"][0]["highest"].missed == 0.0
    assert skab["alarms in all rows"]["learns 400 rows"][0]["highest"].f1 == pytest.approx(100 / 750)
    heads = [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert {"| NAB", "| incidents on NAB", "| SKAB", "| incidents on SKAB", f"| {chosen}"} <= set(heads)

"""Drift reports: none for stationary streams or a burst, one soon after a shift."""

import numpy as np
import pytest

from imondrian import StreamDetector
from imondrian.alarms.drift import DriftMonitor

SETTINGS = {"window": 512, "max_samples": 64, "n_trees": 20}


def reports(rows, **settings):
    detector = StreamDetector(rows.shape[1], **(SETTINGS | settings))
    detector.process_many(rows)
    return detector.drifts


def stream(rng, n, d, kind):
    if kind == "normal":
        return rng.normal(size=(n, d))
    if kind == "heavy":
        return rng.standard_t(3, size=(n, d))
    if kind == "copies":
        return rng.integers(0, 6, size=(n, d)).astype(float)
    return np.where(rng.random((n, 1)) < 0.5, rng.normal(0, 1, (n, d)), rng.normal(8, 0.3, (n, d)))


@pytest.mark.law
@pytest.mark.parametrize("kind", ["normal", "heavy", "copies", "mixed"])
@pytest.mark.parametrize("preset", ["paper", "practice"])
def test_stationary_streams_have_almost_no_reports(kind, preset):
    """At most one report in 15 streams of 12 windows, 88 blocks each (measured: none in 8 x 15 streams)."""
    found = [
        reports(stream(np.random.default_rng(seed), 6144, 3, kind), preset=preset, seed=seed) for seed in range(15)
    ]
    assert sum(map(len, found)) <= 1, found


@pytest.mark.parametrize("kind", ["normal", "heavy", "mixed"])
@pytest.mark.parametrize("d", [1, 3, 10])
def test_a_shift_is_reported_within_half_a_window(kind, d):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        found = reports(np.vstack([stream(rng, 3000, d, kind), stream(rng, 512, d, kind) + 40.0]), seed=seed)
        assert len(found) >= 1, seed
        assert 2936 <= found[0].since <= 3064
        assert found[0].index <= 3000 + 256
        assert found[0].value > found[0].usual


def test_a_burst_is_not_a_drift():
    """The burst is a hundredth of a window long; a burst that fills much of the window would be a drift."""
    for preset in ("paper", "practice"):
        rows = np.random.default_rng(0).normal(size=(6000, 3))
        rows[3000:3005] += 40.0
        assert reports(rows, preset=preset) == ()


def test_a_new_reference_is_collected_after_a_report():
    rng = np.random.default_rng(1)
    rows = np.vstack([rng.normal(size=(3000, 3)), rng.normal(50, 1, (3000, 3)), rng.normal(-50, 1, (3000, 3))])
    detector = StreamDetector(3, **SETTINGS)
    detector.process_many(rows)
    assert detector.n_drifts == len(detector.drifts) == 2
    for drift, shift in zip(detector.drifts, (3000, 6000), strict=True):
        assert shift - 64 <= drift.since <= shift + 64


def test_a_single_unusual_block_is_left_out_of_the_reference():
    monitor, rng = DriftMonitor(), np.random.default_rng(0)
    taken = outside = 0

    def block(n_outside):
        nonlocal taken, outside
        taken, outside = taken + 1000, outside + n_outside
        monitor.count(rng.uniform(0.4, 0.6, 100))
        return monitor.close(taken, outside, taken // 10 - 1)

    monitor.begin(0, 0, -1)
    assert [block(50) for _ in range(10)] == [None] * 10
    before = monitor.moments.copy()
    assert block(900) is None
    assert monitor.was_unusual
    np.testing.assert_array_equal(monitor.moments, before)
    assert block(50) is None
    assert not monitor.was_unusual
    assert block(900) is None
    drift = block(800)
    assert (drift.since, drift.index, drift.what, drift.value) == (1200, 1399, "outside", 0.8)


def test_scores_counted_before_the_first_block_are_dropped():
    monitor = DriftMonitor()
    monitor.count(np.array([0.5]))
    monitor.begin(0, 0, 0)
    assert not monitor.present.any()


@pytest.mark.parametrize("name", ["counts", "began"])
def test_the_damaged_part_of_a_state_is_named(name):
    state = DriftMonitor().state()
    with pytest.raises(ValueError, match=f"the state of the drift monitor is damaged: {name}"):
        DriftMonitor().restore(state | {name: [0, 0, 0]})

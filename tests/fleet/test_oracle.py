"""A fleet equals one `StreamDetector` per key, bit for bit, however the rows are ordered and cut into calls."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imondrian import Fleet, StreamDetector
from tests.fleet.fleets import (
    FIELDS,
    assert_same,
    cut,
    detector_of,
    new_fleet,
    orders,
    positions_by_key,
    process_in_parts,
    rows_with_anomalies,
)

N_ROWS = 1_200
ORDERS = orders(N_ROWS)
MANY_INCIDENTS = {"threshold": 0.2, "rules": {"gap": 2}}
SETTINGS = [
    {},
    {"kind": "expected"},
    {"kind": "depth"},
    {"preset": "paper"},
    {"threshold": "top 5%"},
    {"threshold": "kmeans", "kind": "depth"},
    {"threshold": 0.5},
    {"threshold": "score 0.6", "kind": "expected"},
    {"threshold": "surprise 2"},
    {"scale": None},
    {"scale": [1.0, 5.0], "kind": "expected"},
    {"max_samples": None},
    {"max_samples": 20},
    {"window": 1, "max_samples": 1},
    {"window": 3, "max_samples": 2, "threshold": 0.1},
    {"warm_up": 0, "threshold": 0.1},
    {"rules": {"gap": 2, "side": {0: "high"}}, "threshold": 0.1},
    {"rules": {"gap": 3, "cooldown": 5, "min_points": 2, "ignore_within": {1: 2.0}}, "threshold": 0.1},
]


def assert_equals_single_detectors(fleet, keys, X, results, events, settings):
    """Check results, incidents, events and what follows, key by key."""
    incidents = fleet.incidents
    for key, positions in positions_by_key(keys).items():
        single = detector_of(fleet, key, settings)
        expected, seen = [], []
        for first in range(0, len(positions), 7):
            expected.append(single.process_many(X[positions[first : first + 7]]))
            seen += single.events
        for name, ours in zip(FIELDS, results, strict=False):
            np.testing.assert_array_equal(ours[positions], np.concatenate([getattr(e, name) for e in expected]))
        assert tuple(found.incident for found in incidents if found.key == key) == single.incidents
        assert [found.event for found in events if found.key == key] == seen
        going_on = fleet.detector(key)
        assert (going_on.n_seen, going_on.n_skipped) == (single.n_seen, single.n_skipped)
        assert_same(going_on.process_many(X[:40]), single.process_many(X[:40]))
        assert going_on.incidents[-1:] == single.incidents[-1:]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_results_incidents_and_events_are_those_of_single_detectors(settings):
    fleet, keys, X = new_fleet(**settings), ORDERS["random"], rows_with_anomalies(N_ROWS)
    results, events = process_in_parts(fleet, keys, X, cut(N_ROWS))
    assert_equals_single_detectors(fleet, keys, X, results, events, settings)
    assert not results[-1].any()
    if settings.get("window", 32) == 32:
        assert len(events) > 0


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n_features", [1, 3])
def test_any_order_of_keys_gives_the_results_of_single_detectors(order, n_features):
    n_rows = 100 if order == "each once" else 600
    fleet, keys, X = new_fleet(n_features), ORDERS[order][:n_rows], rows_with_anomalies(n_rows, n_features)
    results, events = process_in_parts(fleet, keys, X, cut(n_rows, seed=n_features))
    assert_equals_single_detectors(fleet, keys, X, results, events, {})
    assert fleet.keys() == sorted(set(keys), key=lambda key: (isinstance(key, str), key))
    assert len(fleet) == len(set(keys))
    assert fleet.n_rows == n_rows


def test_unusable_rows_are_skipped_as_by_single_detectors():
    keys, X = ORDERS["random"], rows_with_anomalies(N_ROWS)
    rows = X.tolist()
    for i in np.random.default_rng(1).integers(0, N_ROWS, 200):
        rows[i] = [[1.0], None, ["text", 1.0], [np.inf, 1.0], [np.nan, np.nan], [1.0, 2.0, 3.0]][i % 6]
    rows = np.array(rows, dtype=object)
    fleet = new_fleet(on_error="skip")
    results, events = process_in_parts(fleet, keys, rows, cut(N_ROWS))
    assert_equals_single_detectors(fleet, keys, rows, results, events, {"on_error": "skip"})
    assert np.isnan(results[0]).sum() > 100


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), n_keys=st.integers(1, 40), n_rows=st.integers(0, 150))
def test_one_by_one_equals_all_at_once(seed, n_keys, n_rows):
    rng = np.random.default_rng(seed)
    keys = [int(key) if key % 2 else str(key) for key in rng.integers(0, n_keys, n_rows)]
    X = rng.choice([0.0, 1.0, 1e150, -3.0], size=(n_rows, 1)) if seed % 2 else rng.normal(size=(n_rows, 1))
    fleet, other, events = new_fleet(1), new_fleet(1), []
    results = fleet.process_many(keys, X)
    for i, (key, x) in enumerate(zip(keys, X, strict=True)):
        result = other.process(key, x)
        events += other.events
        expected = [column[i].item() for column in results]
        expected[5] = None if expected[5] == -1 else expected[5]
        np.testing.assert_equal(list(result), expected)
    assert tuple(events) == fleet.events
    assert fleet.incidents == other.incidents


@pytest.mark.parametrize("borrow", [False, True])
def test_two_threads_give_the_same_results_as_one(borrow):
    """With 700 keys, there are three shards."""
    rng = np.random.default_rng(0)
    keys, X = rng.integers(0, 700, 9_000).tolist(), rows_with_anomalies(9_000)
    fleets = [new_fleet(borrow=borrow, n_jobs=n_jobs) for n_jobs in (1, 2)]
    assert_same(*(fleet.process_many(keys, X) for fleet in fleets))
    assert fleets[0].incidents == fleets[1].incidents
    assert fleets[0].n_bytes == 700 * fleets[0].bytes_per_key


def test_rows_with_names_are_the_same_rows():
    keys, X = ORDERS["random"][:300], rows_with_anomalies(300)
    frame = pd.DataFrame(X, columns=["cpu", "memory"])
    fleets = [new_fleet() for _ in range(3)]
    results = fleets[0].process_many(keys, X)
    assert_same(fleets[1].process_many(keys, frame), results)
    dictionaries = frame[["memory", "cpu"]].to_dict("records")
    fleets[2].process(keys[0], {"cpu": X[0, 0], "memory": X[0, 1]})
    others = fleets[2].process_many(keys[1:], (row for row in dictionaries[1:]))
    assert_same([column[1:] for column in results], others)
    assert fleets[1].feature_names == fleets[2].feature_names == ["cpu", "memory"]
    assert fleets[1].explain(keys[-1], {"cpu": 9.0, "memory": 0.0})["cpu"] > 0.0
    assert list(fleets[0].explain(keys[-1], [9.0, 0.0])) == [0, 1]
    assert fleets[1].detector(keys[0]).feature_names == ["cpu", "memory"]


def test_the_default_sizes_equal_a_single_detector_of_these_sizes():
    X = rows_with_anomalies(900, 1)
    fleet = Fleet(1, borrow=False)
    single = StreamDetector(1, n_trees=24, window=256, max_samples=64, seed=fleet.seed_of("a"), missing="raise")
    results, expected = fleet.process_many(["a"] * 900, X), single.process_many(X)
    assert_same(results[:6], [getattr(expected, name) for name in FIELDS])


def test_changed_rules_and_thresholds_take_effect_with_the_next_row():
    keys, X = ORDERS["random"], rows_with_anomalies(N_ROWS)
    fleet = new_fleet(threshold=0.1)
    singles = {key: detector_of(fleet, key, {"threshold": 0.1}) for key in set(keys)}
    for part, threshold, rules in (
        (slice(0, 500), 0.1, {}),
        (slice(500, 800), "top 20%", {"gap": 1}),
        (slice(800, N_ROWS), "kmeans", {"side": {1: "low"}}),
    ):
        fleet.threshold, fleet.rules = threshold, rules
        assert fleet.threshold == threshold
        results = fleet.process_many(keys[part], X[part])
        for key, positions in positions_by_key(keys[part]).items():
            singles[key].threshold, singles[key].rules = threshold, rules
            expected = singles[key].process_many(X[part][positions])
            for name, ours in zip(FIELDS, results, strict=False):
                np.testing.assert_array_equal(ours[positions], getattr(expected, name))
            assert [event.event for event in fleet.events if event.key == key] == list(singles[key].events)


def test_events_and_incidents_are_in_the_order_of_the_rows():
    fleet, keys, X = new_fleet(**MANY_INCIDENTS), ORDERS["in turn"], rows_with_anomalies(N_ROWS)
    fleet.process_many(keys, X)
    positions = positions_by_key(keys)
    rows = [positions[event.key][event.event.index] for event in fleet.events]
    assert len(rows) > 20
    assert rows == sorted(rows)
    opened = [positions[found.key][found.incident.opened] for found in fleet.incidents]
    assert opened == sorted(opened)


def test_only_the_latest_incidents_are_kept(monkeypatch):
    monkeypatch.setattr("imondrian.fleet.key_incidents.N_INCIDENTS_STORED", 10)
    keys, X = ORDERS["in turn"], rows_with_anomalies(N_ROWS)
    fleet, other = (new_fleet(**MANY_INCIDENTS) for _ in range(2))
    fleet.process_many(keys, X)
    process_in_parts(other, keys, X, cut(N_ROWS))
    monkeypatch.undo()
    everything = new_fleet(**MANY_INCIDENTS)
    everything.process_many(keys, X)
    assert len(everything.incidents) > 20
    assert fleet.incidents == other.incidents == everything.incidents[-10:]


def test_the_seed_of_a_key_depends_on_the_key_and_the_seed_of_the_fleet():
    fleet, other = new_fleet(), new_fleet(seed=6)
    seeds = {fleet.seed_of(key) for key in [*ORDERS["each once"], 3, "3", "i3", ""]}
    assert len(seeds) == len({*ORDERS["each once"], 3, "3", "i3", ""})
    assert fleet.seed_of("a") != other.seed_of("a")
    assert fleet.seed_of(np.int64(3)) == fleet.seed_of(3) == new_fleet().seed_of(3)


def test_the_memory_of_a_key_is_known_before_its_first_row():
    """With the default sizes and one feature, it is at most 128 KiB."""
    assert Fleet(1).bytes_per_key <= 131_072
    assert new_fleet(max_samples=None).bytes_per_key > new_fleet().bytes_per_key == new_fleet(seed=6).bytes_per_key

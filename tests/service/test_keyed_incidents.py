"""Incidents of a detector with a key: each is announced once, with its key and an id that is never used again."""

import json
import sqlite3

import numpy as np
import pytest

from imondrian.base import json_limits
from imondrian.base.errors import InvalidInputError
from imondrian.fleet.key_incidents import N_INCIDENTS_STORED
from imondrian.service.detectors.keyed_state import KeyedState
from imondrian.service.detectors.registry import Registry
from imondrian.service.storage import keyed_incident_log
from imondrian.service.storage.keyed_incident_log import KeyedIncidentLog
from imondrian.service.storage.store import FILE
from tests.service.keyed import (
    HOSTS,
    OFTEN,
    change,
    copied,
    events_of,
    forget,
    incidents_shown,
    keyed_rows,
    learn,
    plain_fleet,
)

N_ROWS = 1_500


def events_of_fleet(fleet, keys, X):
    """Return key, number, opening or closing, and row of each event of a fleet."""
    found = []
    for key, row in zip(keys, X, strict=True):
        fleet.process(key, row)
        found += [(event.key, *event.event.incident[:1], event.event.incident.is_open) for event in fleet.events]
    return found


@pytest.mark.parametrize("n_blocks", [1, 7, 60])
def test_every_event_is_stored_once_with_its_key(tmp_path, n_blocks):
    keys, X = keyed_rows(n_rows=N_ROWS)
    for i, block in enumerate(np.array_split(np.arange(N_ROWS), n_blocks)):
        if i % 5 == 0:
            registry = Registry(tmp_path, retention=OFTEN)
        learn(registry.create("hosts", HOSTS)[0], [keys[i] for i in block], X[block])
        if i % 5 == 4 or i == n_blocks - 1:
            registry.close()
    registry = Registry(tmp_path)
    events = events_of(registry)
    found = [(each["incident"]["key"], each["incident"]["incident"], each["event"] == "opened") for each in events]
    assert found == events_of_fleet(plain_fleet(), keys, X)
    ids = {(each["incident"]["key"], each["incident"]["incident"], each["incident"]["id"]) for each in events}
    assert len(ids) == len({id_ for _, _, id_ in ids}) == len({(key, number) for key, number, _ in ids})
    assert len(ids) > 20
    fleet = registry.get("hosts").worker.keys.fleet
    latest = {(each.key, each.incident.number): each.incident for each in fleet.incidents}
    for each in incidents_shown(registry):
        incident = latest[each["key"], each["incident"]]
        assert (each["is_open"], each["n_alarms"]) == (incident.is_open, incident.n_alarms)
        assert (each["peak"]["index"], each["peak"]["surprise"]) == (incident.peak, incident.surprise)
    registry.close()


def test_an_incident_of_a_forgotten_key_ends_and_its_id_is_not_used_again(registry):
    handle, _ = registry.create("hosts", HOSTS)
    keys, X = keyed_rows(n_rows=300, names=["a", "b"])
    for _ in range(2):
        learn(handle, keys, X)
        learn(handle, ["a"] * 3, np.full((3, 2), 1e9))
        assert handle.worker.keys.incidents.has_open("a")
        assert json.loads(forget(handle, "a").content)["n_points"] == keys.count("a") + 3
        assert not handle.worker.keys.incidents.has_open("a")
    events = events_of(registry)
    assert events[-1]["event"] == "closed"
    assert (events[-1]["incident"]["key"], events[-1]["incident"]["closed"]["index"]) == ("a", None)
    opened = [each["incident"]["id"] for each in events if each["event"] == "opened"]
    closed = [each["incident"]["id"] for each in events if each["event"] == "closed"]
    assert len(opened) == len(set(opened))
    assert set(closed) <= set(opened)


def test_incidents_end_when_the_detector_is_removed(registry):
    handle, _ = registry.create("hosts", HOSTS)
    keys, X = keyed_rows(n_rows=600, names=["a", "b", "c"])
    learn(handle, keys, X)
    learn(handle, ["a", "a", "b", "b"], np.full((4, 2), 1e9))
    n_open = handle.worker.incidents.n_open
    assert n_open >= 2
    registry.remove("hosts")
    events = events_of(registry)
    ended = [each for each in events if each["incident"]["text"] == "the detector was removed"]
    assert len(ended) == n_open
    assert len({each["incident"]["id"] for each in ended}) == n_open


def test_lost_entries_start_a_new_generation_of_ids(tmp_path):
    keys, X = keyed_rows(n_rows=600, names=["a", "b", "c"])
    registry = Registry(tmp_path / "live")
    handle, _ = registry.create("hosts", HOSTS)
    learn(handle, keys, X)
    learn(handle, ["a", "a"], np.full((2, 2), 1e9))
    learn(handle, ["b", "b"], np.full((2, 2), 1e9))
    before = {each["id"] for each in incidents_shown(registry)}
    folder = copied(registry, tmp_path)
    registry.close()
    database = sqlite3.connect(folder / FILE)
    with database:
        database.execute("UPDATE entries SET content = x'00' WHERE number = 3")
    database.close()
    registry = Registry(folder)
    assert len(registry.damage_reports) == 1
    handle = registry.get("hosts")
    assert handle.worker.summary.n_seen == 602
    still_open = [each for each in incidents_shown(registry) if each["is_open"]]
    assert "a" in {each["key"] for each in still_open}
    assert before.isdisjoint(each["id"] for each in still_open)
    registry.close()


ALWAYS = {**HOSTS, "threshold": "score 0.01"}  # every row of a warm key is an alarm
TINY = {**ALWAYS, "warm_up": 2, "window": 16, "max_samples": 16, "n_trees": 1}


def test_the_times_of_an_incident_do_not_depend_on_posts_and_restarts(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2))
    X[100] = 1000.0  # the peak is followed by more alarms than are remembered
    registries = [Registry(tmp_path / name) for name in ("at once", "in parts")]
    for registry, n_parts in zip(registries, (1, 90), strict=True):
        handle, _ = registry.create("hosts", ALWAYS)
        for part in np.array_split(X, n_parts):
            learn(handle, ["a"] * len(part), part)
    registries.append(Registry(copied(registries[1], tmp_path)))
    at_once, in_parts, replayed = ([each] for registry in registries for each in incidents_shown(registry))
    assert in_parts == replayed
    for (incident,) in (at_once, in_parts):
        assert incident["peak"]["index"] == 100
        assert all(incident[name]["time"] is not None for name in ("first", "last", "opened", "peak"))
    for registry in registries:
        registry.close()
    restarted = Registry(tmp_path / "in parts")
    assert incidents_shown(restarted) == in_parts
    restarted.close()


def test_an_incident_that_a_change_of_the_rules_closes_leaves_the_times_of_the_next_one(registry):
    handle, _ = registry.create("hosts", {**ALWAYS, "gap": 30})
    X = np.random.default_rng(0).normal(size=(60, 2))
    learn(handle, ["a"] * 60, X)
    change(handle, threshold="score 0.99")
    learn(handle, ["a"] * 20, X[:20])
    change(handle, threshold="score 0.01", gap=5)
    learn(handle, ["a"] * 3, X[:3])  # the first of these rows closes the incident, and is an alarm itself
    closed, opened = incidents_shown(registry)
    assert (closed["is_open"], opened["is_open"], opened["first"]["index"]) == (False, True, 80)
    assert all(opened[name]["time"] is not None for name in ("first", "last", "opened", "peak"))


def test_all_open_incidents_are_up_to_date_however_many_there_are(registry):
    names = [f"host {i}" for i in range(N_INCIDENTS_STORED + 100)]
    handle, _ = registry.create("hosts", TINY)
    rng = np.random.default_rng(0)
    for _ in range(5):
        results = learn(handle, names, rng.normal(size=(len(names), 2)))
    shown = {each["key"]: each for each in incidents_shown(registry) if each["is_open"]}
    assert len(shown) == len(names)
    assert {key: each["last"]["index"] for key, each in shown.items()} == {row["key"]: row["index"] for row in results}


# -- snapshots --------------------------------------------------------------------------------------------------
MANY = [f"host {i}" for i in range(300)]


def with_open_incidents(registry, names=MANY):
    """Create a detector in which every key has an open incident."""
    handle, _ = registry.create("hosts", TINY)
    rng = np.random.default_rng(0)
    for _ in range(4):
        learn(handle, names, rng.normal(size=(len(names), 2)))
    assert handle.worker.incidents.n_open == len(names)
    return handle


def n_stored(registry):
    sql = "SELECT count(*) FROM key_incidents"
    return registry.writer.read(lambda store: store._database.execute(sql).fetchone()[0])


@pytest.mark.parametrize("keys_per_transaction", [7, 500])
def test_a_snapshot_can_have_any_number_of_open_incidents(tmp_path, monkeypatch, keys_per_transaction):
    monkeypatch.setattr(json_limits, "_MAX_CONTAINERS", 2_000)  # of the header of the fleet
    monkeypatch.setattr(keyed_incident_log, "KEYS_PER_TRANSACTION", keys_per_transaction)
    registry = Registry(tmp_path)
    handle = with_open_incidents(registry)
    shown = incidents_shown(registry)
    registry.close()
    assert handle.worker.problems == {}
    restarted = Registry(tmp_path)
    assert restarted.damage_reports == []
    assert incidents_shown(restarted) == shown
    assert restarted.writer.read(lambda store: store.entries_after(1, 0)) == []
    assert n_stored(restarted) == len(MANY)
    restarted.remove("hosts")
    assert n_stored(restarted) == 0
    restarted.close()


def test_a_snapshot_stores_only_the_keys_that_have_changed(tmp_path, monkeypatch):
    registry = Registry(tmp_path)
    with_open_incidents(registry)
    registry.close()
    registry, stored = Registry(tmp_path), []
    content_of = KeyedIncidentLog.content_of
    monkeypatch.setattr(KeyedIncidentLog, "content_of", lambda log, key: [stored.append(key), content_of(log, key)][1])
    handle = registry.get("hosts")
    learn(handle, MANY[:3], np.zeros((3, 2)))
    forget(handle, MANY[4])
    registry.close()
    assert set(stored) == {*MANY[:3], MANY[4]}
    registry = Registry(tmp_path)
    assert n_stored(registry) == handle.worker.incidents.n_open == len(MANY) - 1
    registry.close()


def former_state(log):
    """Return the state of a log as former versions stored it."""
    state = {**log.state(), "open": [], "alarms": []}
    del state["n_open"]
    for key in {**log._open, **log._alarms}:
        incident, times = json.loads(log.content_of(key))
        state["open"] += [] if incident is None else [incident]
        state["alarms"] += [[key, times]] if times else []
    return state


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_snapshot_of_a_former_version_is_read(tmp_path, monkeypatch, is_interrupted):
    registry = Registry(tmp_path / "live")
    with_open_incidents(registry)
    shown, state = incidents_shown(registry), KeyedIncidentLog.state
    with monkeypatch.context() as former:
        former.setattr(KeyedIncidentLog, "changed_keys", lambda _: iter(()))
        former.setattr(KeyedIncidentLog, "state", lambda log: former_state(_WithState(log, state)))
        registry.close()
    registry = Registry(tmp_path / "live")
    assert registry.damage_reports == []
    assert n_stored(registry) == 0
    assert incidents_shown(registry) == shown
    learn(registry.get("hosts"), MANY[:3], np.zeros((3, 2)))
    shown = incidents_shown(registry)
    folders = []
    if is_interrupted:
        save = KeyedState._save_fleet
        monkeypatch.setattr(
            KeyedState, "_save_fleet", lambda state: [folders.append(copied(registry, tmp_path)), save(state)]
        )
    registry.close()
    registry = Registry(folders[0] if is_interrupted else tmp_path / "live")
    assert registry.damage_reports == []
    assert incidents_shown(registry) == shown
    registry.close()


class _WithState:
    """A log whose `state` is not replaced."""

    def __init__(self, log, state):
        self._open, self._alarms, self.content_of = log._open, log._alarms, log.content_of
        self.state = lambda: state(log)


@pytest.mark.parametrize("sql", ["UPDATE key_incidents SET content = x'00'", "DELETE FROM key_incidents"])
def test_lost_open_incidents_are_reported(tmp_path, sql):
    registry = Registry(tmp_path)
    with_open_incidents(registry)
    shown = incidents_shown(registry)
    registry.close()
    database = sqlite3.connect(tmp_path / FILE)
    with database:
        database.execute(f"{sql} WHERE key = 'host 7'")
    database.close()
    registry = Registry(tmp_path)
    assert registry.damage_reports == ["1 of the open incidents of 'hosts' are damaged or missing, and are not shown."]
    assert incidents_shown(registry) == [each for each in shown if each["key"] != "host 7"]
    handle = registry.get("hosts")
    change(handle, threshold="score 0.99", gap=1)
    for _ in range(3):
        learn(handle, MANY[:10], np.zeros((10, 2)))  # all incidents of these keys close
    assert handle.worker.incidents.n_open == len(MANY) - 10
    registry.close()
    registry = Registry(tmp_path)
    assert registry.damage_reports == []
    registry.close()


def test_a_detector_works_after_an_upgrade_even_if_no_snapshot_can_be_saved(tmp_path, monkeypatch):
    registry = Registry(tmp_path / "live")
    with_open_incidents(registry)
    shown, folder = incidents_shown(registry), copied(registry, tmp_path)
    registry.close()
    database = sqlite3.connect(folder / FILE)
    with database:
        database.execute("UPDATE versions SET content = '{}'")
    database.close()

    def fail(_state, _write):
        raise InvalidInputError("The header is too large.")

    with monkeypatch.context() as failing:
        failing.setattr(KeyedState, "save_snapshot", fail)
        registry = Registry(folder)
    assert "could not be saved: The header is too large." in registry.damage_reports[-1]
    assert incidents_shown(registry) == shown
    registry.close()

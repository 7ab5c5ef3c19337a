"""The data of a removed detector is deleted in portions, between which other requests are stored."""

import itertools
import sqlite3
import threading

import numpy as np
import pytest

from imondrian.service.delivery.receivers import receivers_of
from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import NotFoundError, StorageError
from imondrian.service.storage import event_table, removals, sqlite
from imondrian.service.storage.keyed_incident_log import KeyedIncidentLog
from imondrian.service.storage.removals import Removals
from imondrian.service.storage.sqlite import open_database, rescue
from imondrian.service.storage.store import FILE
from tests.service.keyed import copied, events_of, incidents_shown, learn
from tests.service.receiving import LoopbackReceiver
from tests.service.serving import wait_until
from tests.service.test_keyed_incidents import MANY, TINY, with_open_incidents

OTHERS = ("events", "removals", "open_incidents", "outbox", "sqlite_sequence", "receivers")


@pytest.fixture(autouse=True)
def _small_portions(monkeypatch):
    monkeypatch.setattr(removals, "_SECONDS_PER_PORTION", 0.0)  # one step per portion


def n_left(registry):
    """Return how many rows of removed detectors are left, besides events."""
    database, tables = registry._store._database, sqlite._ORDERS.keys() - set(OTHERS)
    return sum(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)  # noqa: S608


def closed_keys(registry):
    """Return the keys of incidents that ended because their detector was removed."""
    events = [each for each in events_of(registry) if each["incident"]["text"] == "the detector was removed"]
    assert {each["event"] for each in events} <= {"closed"}
    assert len({each["incident"]["closed"]["time"] for each in events}) <= 1
    return [each["incident"]["key"] for each in events]


def before_portion(monkeypatch, number, action):
    """Call a function before the portion with this number, from 0."""
    proceed, numbers = Removals.proceed, itertools.count()

    def counted(*arguments):
        if next(numbers) == number:
            action()
        return proceed(*arguments)

    monkeypatch.setattr(Removals, "proceed", counted)


def test_everything_is_deleted_and_every_open_incident_ends_once(tmp_path):
    registry = Registry(tmp_path)
    with_open_incidents(registry)
    registry.close()
    registry = Registry(tmp_path)
    learn(registry.get("hosts"), MANY[:5], np.zeros((5, 2)), "id")  # the stored openings do not know these rows
    registry.remove("hosts")
    assert sorted(closed_keys(registry)) == sorted(MANY)
    rows = {each["incident"]["key"]: each["incident"]["last"]["index"] for each in events_of(registry)}
    assert [rows[key] for key in MANY[:6]] == [4] * 5 + [3]
    assert len(events_of(registry)) == len(MANY)  # its earlier events are deleted
    assert n_left(registry) == 0
    assert registry.writer.read(lambda store: store.removals.unfinished()) == []
    registry.close()


@pytest.mark.parametrize("number", [1, 5, 20, 50, 80])
def test_the_next_start_finishes_a_removal(tmp_path, monkeypatch, number):
    registry = Registry(tmp_path / "live")
    with_open_incidents(registry)
    registry.close()  # saves a snapshot
    registry = Registry(tmp_path / "live")
    with monkeypatch.context() as interrupted:
        before_portion(interrupted, number, lambda: copied(registry, tmp_path))
        registry.remove("hosts")
    registry.close()
    registry = Registry(tmp_path / "killed")
    assert registry.damage_reports == []
    assert not (tmp_path / "killed" / "keys-1.db").exists()
    with pytest.raises(NotFoundError):
        registry.get("hosts")
    wait_until(lambda: not registry.writer.read(lambda store: store.removals.unfinished()))
    assert sorted(closed_keys(registry)) == sorted(MANY)
    assert n_left(registry) == 0
    assert registry.create("hosts", TINY)[1]
    registry.close()


def test_other_requests_are_stored_between_two_portions(registry):
    with_open_incidents(registry)
    other, _ = registry.create("other", TINY)
    removal, n_learned = registry.start_removal("hosts"), 0
    while not removal.done():
        learn(other, ["a"], np.zeros((1, 2)))
        n_learned += 1
    assert n_learned > 5


def test_a_detector_is_gone_as_soon_as_its_removal_is_on_the_disk(registry, monkeypatch):
    handle = with_open_incidents(registry)
    is_reached, go_on = threading.Event(), threading.Event()
    before_portion(monkeypatch, 1, lambda: (is_reached.set(), go_on.wait(10)))
    removal = registry.start_removal("hosts")
    assert is_reached.wait(10)
    with pytest.raises(NotFoundError):
        registry.get("hosts")
    assert handle.worker.wait_for_end(10)
    assert not removal.done()
    go_on.set()
    removal.result(10)


def test_only_as_many_closings_are_described_as_are_kept(tmp_path, monkeypatch):
    for module in (event_table, removals):
        monkeypatch.setattr(module, "N_EVENTS_KEPT", 50)
    described, current = [], KeyedIncidentLog.current
    monkeypatch.setattr(KeyedIncidentLog, "current", lambda log, each: [described.append(each), current(log, each)][1])
    with LoopbackReceiver() as receiver:
        registry = Registry(tmp_path, receivers=receivers_of([receiver.url]))
        with_open_incidents(registry)
        registry.remove("hosts")
        assert len(described) == len(closed_keys(registry)) == len(events_of(registry)) == 50
        (key,) = registry._store.events.receivers
        wait_until(lambda: not registry.writer.read(lambda store: store.events.counts(key)).n_waiting)
        counts = registry.writer.read(lambda store: store.events.counts(key))
        assert counts.n_given_up >= len(MANY) - 50
        registry.close()


def test_a_removal_goes_on_when_the_disk_has_space_again(tmp_path, monkeypatch):
    def fail():
        raise StorageError("The disk is full.")

    registry = Registry(tmp_path)
    with_open_incidents(registry)
    before_portion(monkeypatch, 7, fail)
    registry.remove("hosts")
    wait_until(lambda: not registry.writer.read(lambda store: store.removals.unfinished()))
    assert sorted(closed_keys(registry)) == sorted(MANY)
    assert n_left(registry) == 0
    registry.close()


def test_a_removal_that_fails_at_once_changes_nothing(registry, monkeypatch):
    def fail():
        raise StorageError("The disk is full.")

    handle, shown = with_open_incidents(registry), incidents_shown(registry)
    before_portion(monkeypatch, 0, fail)
    with pytest.raises(StorageError, match="The disk is full"):
        registry.remove("hosts")
    assert incidents_shown(registry) == shown
    assert learn(handle, ["a"], np.zeros((1, 2)))[0]["index"] == 0
    assert closed_keys(registry) == []


def test_a_repaired_database_has_no_removed_detectors(tmp_path, monkeypatch):
    registry = Registry(tmp_path / "live")
    with_open_incidents(registry)
    before_portion(monkeypatch, 1, lambda: copied(registry, tmp_path))
    registry.remove("hosts")
    registry.close()
    path = tmp_path / "killed" / FILE
    rescue(open_database(path)[0], path).close()
    registry = Registry(tmp_path / "killed")
    assert (registry.all(), registry.problems()) == ([], [])
    wait_until(lambda: not registry.writer.read(lambda store: store.removals.unfinished()))
    assert n_left(registry) == 0
    registry.close()


def test_a_file_that_cannot_shrink_does_not_delay_the_end_of_a_removal(tmp_path):
    registry = Registry(tmp_path)
    with_open_incidents(registry)
    registry.close()
    database = sqlite3.connect(tmp_path / FILE)
    database.executescript("PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = NONE; VACUUM")
    database.close()
    registry = Registry(tmp_path)
    registry.start_removal("hosts").result(10)
    assert n_left(registry) == 0
    registry.close()

"""A detector with a key while the disk has no space for keys that leave memory: nothing is lost or learned twice."""

import json
import shutil
import subprocess
from collections import namedtuple

import pytest

from imondrian.base.errors import StoreError
from imondrian.fleet.key_store import KeyStore
from imondrian.service.changes.journal import entry_of_points
from imondrian.service.detectors import keyed_state, worker
from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import StorageError
from tests.service.keyed import (
    HOSTS,
    events_of,
    expected,
    incidents_shown,
    keyed_rows,
    learn,
    parsed,
    plain_fleet,
    points_of,
    rows_shown,
)
from tests.service.serving import wait_until

FEW = {**HOSTS, "max_bytes": 3 * plain_fleet().bytes_per_key}  # of ten keys
Usage = namedtuple("Usage", "free")  # noqa: PYI024


@pytest.fixture(autouse=True)
def _few_seconds(monkeypatch):
    monkeypatch.setattr(worker, "_SECONDS_BETWEEN_ATTEMPTS", 0.01)


class FullDisk:
    """Makes all fleets unable to move keys to the disk, while the journal can be written."""

    def __init__(self, monkeypatch):
        self.is_full, self._spill = False, KeyStore.spill
        monkeypatch.setattr(KeyStore, "spill", self._spill_unless_full(self._spill))

    def _spill_unless_full(self, spill):
        def spill_or_fail(store, states):
            states = list(states)
            if self.is_full and states:
                raise StoreError("database or disk is full")
            spill(store, states)

        return spill_or_fail


@pytest.fixture
def disk(monkeypatch):
    return FullDisk(monkeypatch)


def submitted(handle, keys, X, request=None):
    return handle.worker.submit(*entry_of_points(parsed(handle, points_of(keys, X))), len(keys), request)


def results_of(future):
    return json.loads(future.result(60).content)["results"]


def test_points_that_need_too_much_space_are_refused_and_nothing_changes(tmp_path, monkeypatch):
    keys, X = keyed_rows()
    registry, fleet = Registry(tmp_path), plain_fleet()
    handle, _ = registry.create("hosts", FEW)
    assert learn(handle, keys[:500], X[:500]) == expected(fleet, keys[:500], X[:500])
    monkeypatch.setattr(keyed_state.shutil, "disk_usage", lambda _: Usage(10_000))
    with pytest.raises(StorageError, match="The disk is full"):
        learn(handle, keys[500:600], X[500:600], "id")
    assert (handle.worker.n_requests, handle.worker.summary.n_seen) == (1, 500)
    assert "The disk is full" in registry.problems()[0]
    in_memory = [keys[499]] * 100
    assert learn(handle, in_memory, X[500:600]) == expected(fleet, in_memory, X[500:600])  # no key leaves memory
    with pytest.raises(StorageError, match="The disk is full"):
        learn(handle, keys[500:600], X[500:600], "id")
    monkeypatch.undo()
    assert registry.problems() == []
    assert learn(handle, keys[500:], X[500:], "id") == expected(fleet, keys[500:], X[500:])
    registry.close()


def test_journalled_points_wait_until_keys_can_leave_memory(tmp_path, disk):
    keys, X = keyed_rows()
    registry, fleet = Registry(tmp_path), plain_fleet()
    handle, _ = registry.create("hosts", FEW)
    assert learn(handle, keys[:500], X[:500]) == expected(fleet, keys[:500], X[:500])
    shown, incidents = rows_shown(registry), incidents_shown(registry)
    disk.is_full = True
    waiting = submitted(handle, keys[500:1000], X[500:1000], "id")
    wait_until(registry.problems)
    assert "database or disk is full" in registry.problems()[0]
    assert not waiting.done()
    with pytest.raises(StorageError, match="database or disk is full"):
        learn(handle, keys[1000:], X[1000:])
    assert submitted(handle, keys[500:1000], X[500:1000], "id") is waiting
    assert (rows_shown(registry), incidents_shown(registry)) == (shown, incidents)
    assert handle.worker.summary.n_seen == 500
    disk.is_full = False
    assert results_of(waiting) == expected(fleet, keys[500:1000], X[500:1000])
    assert registry.problems() == []
    assert learn(handle, keys[1000:], X[1000:]) == expected(fleet, keys[1000:], X[1000:])
    registry.close()


@pytest.mark.parametrize("fails_at", range(0, 60, 7))
def test_a_store_that_fails_anywhere_changes_no_bit(tmp_path, monkeypatch, fails_at):
    keys, X = keyed_rows(n_rows=600)
    spill, n_calls = KeyStore.spill, iter(range(10**6))

    def fails_twice(store, states):
        states = list(states)
        if next(n_calls) in (fails_at, fails_at + 1):
            raise StoreError("disk I/O error")
        spill(store, states)

    monkeypatch.setattr(KeyStore, "spill", fails_twice)
    registry, other = Registry(tmp_path / "fails"), Registry(tmp_path / "works")
    found = [learn(each.create("hosts", FEW)[0], keys, X) for each in (registry, other)]
    assert next(n_calls) > fails_at + 2
    assert found == [expected(plain_fleet(), keys, X)] * 2
    assert [each["incident"]["id"] for each in events_of(registry)] == [
        each["incident"]["id"] for each in events_of(other)
    ]
    registry.close()
    other.close()


def test_a_restart_while_the_disk_is_full_shows_the_last_snapshot_and_continues(tmp_path, disk):
    keys, X = keyed_rows()
    registry, fleet = Registry(tmp_path), plain_fleet()
    handle, _ = registry.create("hosts", FEW)
    assert learn(handle, keys[:500], X[:500]) == expected(fleet, keys[:500], X[:500])
    registry.close()
    registry = Registry(tmp_path)
    handle = registry.get("hosts")
    shown, incidents = rows_shown(registry), incidents_shown(registry)
    assert learn(handle, keys[500:510], X[500:510], "early") == (early := expected(fleet, keys[500:510], X[500:510]))
    disk.is_full = True
    submitted(handle, keys[510:1000], X[510:1000], "late")
    wait_until(registry.problems)
    registry.close()  # without a snapshot: the last request is half applied
    for is_first in (True, False):
        registry = Registry(tmp_path)
        handle = registry.get("hosts")
        wait_until(registry.problems)
        assert (rows_shown(registry), incidents_shown(registry)) == (shown, incidents)
        assert handle.worker.summary.n_seen == 500
        with pytest.raises(StorageError):
            learn(handle, keys[1000:], X[1000:])
        if is_first:
            registry.close()
    disk.is_full = False
    late = expected(fleet, keys[510:1000], X[510:1000])
    assert results_of(submitted(handle, keys[510:1000], X[510:1000], "late")) == late
    assert learn(handle, keys[500:510], X[500:510], "early") == early
    assert registry.problems() == registry.damage_reports == []
    assert learn(handle, keys[1000:], X[1000:]) == expected(fleet, keys[1000:], X[1000:])
    found = [(each["incident"]["key"], each["incident"]["incident"], each["event"]) for each in events_of(registry)]
    assert len(found) == len(set(found)) > 5
    registry.close()
    registry = Registry(tmp_path)
    assert registry.get("hosts").worker.summary.n_seen == len(keys)
    registry.close()


def test_a_detector_that_waits_for_the_disk_can_be_removed(tmp_path, disk):
    keys, X = keyed_rows()
    registry = Registry(tmp_path)
    handle, _ = registry.create("hosts", FEW)
    learn(handle, keys[:500], X[:500])
    disk.is_full = True
    waiting = submitted(handle, keys[500:], X[500:])
    wait_until(registry.problems)
    registry.remove("hosts")
    assert "removed" in str(waiting.exception(60))
    assert registry.problems() == []
    registry.close()


@pytest.fixture
def small_disk(tmp_path):
    """Return a folder on a disk of eight megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("n_free", [0, 100_000, 400_000])
def test_on_a_full_file_system_the_service_refuses_restarts_and_continues(small_disk, n_free):
    keys, X = keyed_rows(names=[f"host {i}" for i in range(60)])
    registry, fleet = Registry(small_disk / "data"), plain_fleet()
    handle, _ = registry.create("hosts", FEW)
    assert learn(handle, keys[:200], X[:200]) == expected(fleet, keys[:200], X[:200])
    registry.close()
    registry = Registry(small_disk / "data")
    handle = registry.get("hosts")
    filler = small_disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - n_free))
    n_learned = learned_until_full(handle, fleet, keys, X, 200)
    with filler.open("ab") as file:  # as another program
        file.write(bytes(shutil.disk_usage(small_disk).free))
    for _ in range(2):
        assert handle.worker.keys.fleet.detector(keys[0]).n_seen > 0
        assert len(rows_shown(registry)) > 50
        with pytest.raises(StorageError):
            learn(handle, keys[n_learned:], X[n_learned:])
        registry.close()
        registry = Registry(small_disk / "data")
        handle = registry.get("hosts")
    filler.unlink()
    wait_until(lambda: handle.worker.summary.n_seen == n_learned)
    wait_until(lambda: registry.problems() == [])
    assert learn(handle, keys[n_learned:], X[n_learned:]) == expected(fleet, keys[n_learned:], X[n_learned:])
    registry.close()


def learned_until_full(handle, fleet, keys, X, n_learned):
    """Post rows until they are refused; return how many were learned."""
    for first in range(n_learned, len(keys), 50):
        part = slice(first, first + 50)
        try:
            found = learn(handle, keys[part], X[part])
        except StorageError as error:
            assert "full" in str(error)  # noqa: PT017
            return first
        assert found == expected(fleet, keys[part], X[part])
    raise AssertionError("the disk was never full")

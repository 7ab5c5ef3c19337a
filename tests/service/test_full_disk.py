"""A full disk: reads, creation, delivery and a restored backup."""

import errno
import sqlite3
import threading

import numpy as np
import pytest

from imondrian.base.errors import StoreError
from imondrian.service.changes.journal import POINTS
from imondrian.service.detectors import registry as registry_module
from imondrian.service.detectors.key_files import KeyFiles
from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import NotRecoveredError, StorageError
from imondrian.service.storage.event_table import EventTable
from imondrian.service.storage.removals import Removals
from imondrian.service.storage.store import Store
from tests.service.keyed import HOSTS, keyed_rows, learn
from tests.service.receiving import LoopbackReceiver
from tests.service.serving import wait_until
from tests.service.test_keys import backup_to
from tests.service.test_notifications import announce, metric, notifying
from tests.service.test_worker import XY


def fail(*_):
    raise sqlite3.OperationalError("database or disk is full")


def test_reads_work_beside_writes_that_fail_and_do_not_hide_the_failure(tmp_path):
    registry = Registry(tmp_path)
    jobs = [registry.writer.submit(fail) for _ in range(50)]
    assert [registry.writer.read(lambda store: store.detectors()) for _ in range(50)] == [[]] * 50
    for job in jobs:
        with pytest.raises(StorageError, match="full"):
            job.result()
    registry.writer.read(lambda store: store.detectors())
    assert "full" in str(registry.writer.failure)
    registry.close()


def test_operations_of_one_transaction_get_only_their_own_errors(tmp_path, stream):
    registry = Registry(tmp_path)
    handle, _ = registry.create("a", XY)
    is_released = threading.Event()
    first = registry.writer.submit(lambda _store: is_released.wait())  # what follows is queued together
    failing = [registry.writer.submit(fail)]
    points = handle.worker.submit(POINTS, stream[:5].tobytes(), 5)
    failing.append(registry.writer.submit(fail))
    is_released.set()
    assert first.result()
    for job in failing:
        with pytest.raises(StorageError, match="full"):
            job.result()
    assert points.result().status == 200
    handle.worker.submit(POINTS, stream[5:9].tobytes(), 4).result()
    registry.close()
    registry = Registry(tmp_path)
    assert registry.get("a").worker.summary.n_seen == 9
    registry.close()


@pytest.mark.parametrize("is_removed_first", [True, False])
def test_a_removal_that_fails_loses_no_request_of_its_transaction(tmp_path, monkeypatch, stream, is_removed_first):
    registry = Registry(tmp_path)
    handle, _ = registry.create("a", XY)
    proceed, is_released = Removals.proceed, threading.Event()

    def fail_at_the_end(removals, detector, describe):
        proceed(removals, detector, describe)
        fail()

    monkeypatch.setattr(Removals, "proceed", fail_at_the_end)
    registry.writer.submit(lambda _store: is_released.wait())
    if is_removed_first:
        removal = handle.worker.remove()
        handle.worker._refusal = None  # a request that was checked just before the removal
        points = handle.worker.submit(POINTS, stream[:5].tobytes(), 5)
    else:
        points = handle.worker.submit(POINTS, stream[:5].tobytes(), 5)
        removal = handle.worker.remove()
    is_released.set()
    with pytest.raises(StorageError, match="full"):
        removal.result()
    assert points.result().status == 200
    registry.close()
    registry = Registry(tmp_path)
    assert registry.get("a").worker.summary.n_seen == 5
    registry.close()


@pytest.mark.parametrize("can_remove", [True, False])
def test_a_detector_whose_file_cannot_be_created_leaves_its_name_usable(tmp_path, monkeypatch, can_remove):
    def fail_to_create(*_):
        raise StoreError("/data/.keys-1.db.12: the store cannot be used: database or disk is full.")

    registry = Registry(tmp_path)
    with monkeypatch.context() as full_disk:
        full_disk.setattr(registry_module, "new_keyed_state", fail_to_create)
        if not can_remove:
            full_disk.setattr(Removals, "start", fail)
        with pytest.raises(StorageError, match=r"^The file for the keys of the detector could not be"):
            registry.create("hosts", HOSTS)
    if not can_remove:
        with pytest.raises(NotRecoveredError, match="could not be created, and must be removed"):
            registry.create("hosts", HOSTS)
        registry.create("others", HOSTS)
        registry.remove("hosts")
    handle, is_new = registry.create("hosts", HOSTS)
    assert is_new
    assert len(learn(handle, *keyed_rows(n_rows=20))) == 20
    registry.close()


def test_an_accepted_notification_is_not_sent_again(tmp_path, monkeypatch):
    finish, n_failures = EventTable.finish, 5

    def fail_at_first(table, key, event, *, is_sent):
        nonlocal n_failures
        if n_failures:
            n_failures -= 1
            fail()
        finish(table, key, event, is_sent=is_sent)

    monkeypatch.setattr(EventTable, "finish", fail_at_first)
    with LoopbackReceiver() as receiver:
        registry = notifying(tmp_path, receiver.url)
        announce(registry, 2)
        wait_until(lambda: metric(registry, "sent_total") == [2])
        assert [each.event["id"] for each in receiver.accepted] == [1, 2]
        registry.close()


@pytest.mark.parametrize("place", ["file", "database"])
def test_a_backup_restored_to_a_full_disk_sets_only_detectors_with_keys_aside(tmp_path, monkeypatch, place):
    registry = Registry(tmp_path / "live")
    learn(registry.create("hosts", HOSTS)[0], *keyed_rows(n_rows=200))
    registry.create("single", {"features": ["x"]})
    backup_to(registry, tmp_path / "restored")
    registry.close()

    def chunks_until_full(self, detector):
        yield from list(chunks(self, detector))[:1]
        raise OSError(errno.ENOSPC, "No space left on device")

    chunks = Store.attached_chunks
    with monkeypatch.context() as full_disk:
        if place == "file":
            full_disk.setattr(Store, "attached_chunks", chunks_until_full)
        else:
            full_disk.setattr(Store, "remove_attached_files_except", fail)
        registry = Registry(tmp_path / "restored")
        with pytest.raises(NotRecoveredError, match=r"No space left|disk is full"):
            registry.get("hosts")
        assert registry.get("single").record.name == "single"
        assert not list((tmp_path / "restored").glob("*.part"))
        registry.close()
    registry = Registry(tmp_path / "restored")
    assert learn(registry.get("hosts"), ["web-1"], np.zeros((1, 2)))[0]["index"] > 0
    assert registry.problems() == []
    assert KeyFiles(tmp_path / "restored").path(1).is_file()
    registry.close()

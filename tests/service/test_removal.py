"""Removing a detector does not wait for its queue; requests waiting for one detector do not block others."""

import contextlib
import dataclasses
import threading
import time

import numpy as np
import pytest

from imondrian.model_files import to_bytes
from imondrian.service.changes.configuration import DEFAULTS, new_detector
from imondrian.service.changes.journal import POINTS
from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import ConflictError, NotFoundError, RemovedError, StorageError, UnavailableError
from imondrian.service.http.asgi import create_app
from imondrian.service.limits import Limits, Retention
from imondrian.service.storage.incident_log import PendingEvents
from tests.service.serving import SMALL, ThreadServer, wait_until
from tests.service.test_incidents import bursts
from tests.service.test_worker import learn, n_rows

XY = {"features": ["x", "y"], **SMALL}
N_THREADS = 40  # in the thread pool
TIMEOUT = 10.0


def submit(handle, points, request=None):
    return handle.worker.submit(POINTS, points.tobytes(), len(points), request)


def test_queued_requests_of_a_removed_detector_are_refused_and_not_applied(registry, stream):
    handle, _ = registry.create("a", XY)
    with handle.worker.read_copy._write_lock:  # nothing is applied meanwhile
        active = submit(handle, stream[:1])
        wait_until(lambda: not handle.worker.n_waiting)
        waiting = [submit(handle, stream[i : i + 1], f"id-{i}") for i in range(5)]
        registry.start_removal("a").result(TIMEOUT)
        for future in waiting:
            with pytest.raises(RemovedError, match="was removed"):
                future.result(TIMEOUT)
        with pytest.raises(NotFoundError):
            registry.get("a")
        with pytest.raises(RemovedError):
            submit(handle, stream[:1])
        assert handle.worker.n_waiting == 0
        recreated, is_new = registry.create("a", XY)
        assert is_new
        assert len(learn(recreated, stream[:3])) == 3
    assert active.result(TIMEOUT).status == 200  # it had begun before the removal
    assert handle.worker.wait_for_end(TIMEOUT)
    assert n_rows(registry) == {"detectors": 1, "entries": 1, "snapshots": 0, "answers": 0, "damaged": 0}


def test_a_long_running_request_is_abandoned_when_the_detector_is_removed(registry, stream):
    handle, _ = registry.create("a", XY)
    with handle.worker.read_copy._write_lock:
        long_request = submit(handle, np.tile(stream, (20, 1)))
        wait_until(lambda: not handle.worker.n_waiting)
        registry.remove("a")
    with pytest.raises(RemovedError):
        long_request.result(TIMEOUT)
    assert handle.worker.wait_for_end(TIMEOUT)
    assert handle.worker.problems == {}


def test_a_removed_detector_saves_no_snapshot(tmp_path, stream):
    registry = Registry(tmp_path, retention=Retention(points_between_snapshots=1))
    handle, _ = registry.create("a", XY)
    with handle.worker.read_copy._write_lock:
        submit(handle, stream[:100])
        wait_until(lambda: not handle.worker.n_waiting)
        registry.remove("a")
    assert handle.worker.wait_for_end(TIMEOUT)
    assert set(n_rows(registry).values()) == {0}
    registry.close()


def test_a_removed_detector_with_events_that_wait_saves_no_snapshot(tmp_path, caplog):
    registry = Registry(tmp_path)
    handle, _ = registry.create("a", {**XY, "threshold": 0.05, "gap": 10})
    registry.remove("a")
    assert handle.worker.wait_for_end(TIMEOUT)
    worker = handle.worker
    worker._state = dataclasses.replace(worker._state, pending=PendingEvents(0, (None,)))
    worker._save_snapshot()
    assert worker.problems == {}
    assert not caplog.records
    registry.close()


def test_queued_requests_are_applied_if_a_removal_fails(registry, stream):
    handle, _ = registry.create("a", XY)
    with handle.worker.read_copy._write_lock:
        waiting = [submit(handle, stream[:1])]
        wait_until(lambda: not handle.worker.n_waiting)
        waiting += [submit(handle, stream[i : i + 1]) for i in range(5)]
        wait_until(lambda: not handle.worker._is_journalling)
        registry._store._database.execute("PRAGMA query_only = ON")
        with pytest.raises(StorageError):
            registry.remove("a")
        registry._store._database.execute("PRAGMA query_only = OFF")
    assert [future.result(TIMEOUT).status for future in waiting] == [200] * 6
    assert handle.worker.summary.n_seen == 6
    registry.remove("a")


def test_events_of_a_removed_detector_are_forgotten_in_memory_as_on_the_disk(tmp_path):
    registry = Registry(tmp_path)
    for name in ("a", "b"):
        handle, _ = registry.create(name, {**XY, "threshold": 0.05, "gap": 10})
        learn(handle, bursts())
    wait_until(lambda: registry.feed.last_id > 2)
    registry.remove("a")
    wait_until(lambda: not registry._store.removals.unfinished())
    in_memory = registry.feed.after(0)
    stored = registry.feed.stored_after(0, 1_000).result()
    assert {event.detector for event in stored} >= {2}
    assert in_memory is None or in_memory == stored
    learn(registry.get("b"), bursts(seed=1))
    later = registry.feed.after(stored[-1].id)
    assert later
    assert later == registry.feed.stored_after(stored[-1].id, 1_000).result()
    registry.close()


@contextlib.contextmanager
def blocked_writer(registry):
    """Block the writer."""
    is_blocked, release = threading.Event(), threading.Event()
    registry.writer.submit(lambda _: (is_blocked.set(), release.wait(TIMEOUT)))
    is_blocked.wait(TIMEOUT)
    try:
        yield
    finally:
        release.set()


def test_a_name_is_not_free_until_its_detector_is_deleted(registry, stream):
    handle, _ = registry.create("a", XY)
    with blocked_writer(registry):
        removal = registry.start_removal("a")
        for call in (
            lambda: registry.create("a", XY),
            lambda: registry.start_removal("a"),
            lambda: submit(handle, stream[:1]),
        ):
            with pytest.raises(UnavailableError, match="is being removed"):
                call()
    removal.result(TIMEOUT)
    assert registry.create("a", XY)[1]


def test_the_memory_of_a_removed_detector_counts_until_its_thread_has_ended(tmp_path, stream):
    n_bytes = new_detector({**DEFAULTS, **XY}).n_bytes
    registry = Registry(tmp_path, Limits(total_bytes=n_bytes * 3 // 2))
    handle, _ = registry.create("a", XY)
    with handle.worker.read_copy._write_lock:
        submit(handle, stream[:1])
        wait_until(lambda: not handle.worker.n_waiting)
        registry.remove("a")
        with pytest.raises(ConflictError, match="are allowed"):
            registry.create("b", XY)
    assert handle.worker.wait_for_end(TIMEOUT)
    assert registry.create("b", XY)[1]
    registry.close()


def test_shutdown_does_not_wait_too_long_for_a_detector_that_is_being_created(tmp_path, stream):
    registry = Registry(tmp_path)
    handle, _ = registry.create("a", XY)
    learn(handle, stream[:5])
    with registry._create_lock:
        start = time.monotonic()
        registry.close(0.3)
        assert time.monotonic() - start < TIMEOUT
    registry = Registry(tmp_path)
    assert registry.get("a").worker.summary.n_seen == 5
    registry.close()


# -- over HTTP ------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(registry):
    for name in "ab":
        registry.create(name, XY)
    with ThreadServer(create_app(registry)) as running:
        yield running


@contextlib.contextmanager
def requests_in_background(server, *requests):
    """Send many requests at once, and yield the list of their statuses."""
    statuses = []
    threads = [
        threading.Thread(target=lambda each=each: statuses.append(server.request(*each)[0])) for each in requests
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    try:
        yield statuses
    finally:
        for thread in threads:
            thread.join(60)


def assert_others_respond(server):
    start = time.monotonic()
    assert server.request("POST", "/detectors/b/scores", {"points": [[1, 2]]})[0] == 200
    assert server.request("POST", "/detectors/b/points", {"points": [[1, 2]]})[0] == 200
    assert server.request("GET", "/")[0] == 200
    assert time.monotonic() - start < TIMEOUT


def test_queued_requests_of_a_removed_detector_get_404(registry, server, stream):
    handle = registry.get("a")
    with handle.worker.read_copy._write_lock:
        submit(handle, stream[:1])  # being applied
        wait_until(lambda: not handle.worker.n_waiting)
        with requests_in_background(server, *[("POST", "/detectors/a/points", {"points": [[1, 2]]})] * 5) as statuses:
            assert server.request("DELETE", "/detectors/a")[0] == 204
            assert_others_respond(server)
    assert statuses == [404] * 5
    assert server.request("GET", "/detectors/a")[0] == 404


def test_requests_waiting_to_create_a_detector_occupy_no_threads(registry, server):
    requests = [("PUT", f"/detectors/c{i}", XY) for i in range(N_THREADS)]
    model = to_bytes(new_detector({**DEFAULTS, **XY}))
    requests += [("PUT", f"/detectors/m{i}/model", model) for i in range(N_THREADS)]
    with registry._create_lock, requests_in_background(server, *requests[::2]) as statuses:
        assert_others_respond(server)
        registry._create_lock.release()
        registry._create_lock.acquire()
        assert server.request("DELETE", "/detectors/a")[0] == 204
        registry._create_lock.release()
        wait_until(lambda: len(statuses) == N_THREADS)
        registry._create_lock.acquire()
    assert set(statuses) == {201}


def test_reads_waiting_for_the_shared_copy_occupy_no_threads(registry, server):
    body = {"points": [[1, 2]]}
    requests = [("POST", f"/detectors/a/{what}", body) for what in ("scores", "explanations")] * N_THREADS
    with registry.get("a").worker.read_copy._read_lock, requests_in_background(server, *requests) as statuses:
        assert_others_respond(server)
        registry.get("a").worker.read_copy._read_lock.release()
        wait_until(lambda: len(statuses) == 2 * N_THREADS)
        registry.get("a").worker.read_copy._read_lock.acquire()
    assert set(statuses) == {200}

"""Malicious requests: each gets a response soon, blocks nobody, and breaks nothing."""

import http.client
import json
import operator
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from imondrian import StreamDetector
from imondrian.model_files import to_bytes
from imondrian.service.changes.configuration import DEFAULTS, new_detector
from imondrian.service.detectors.registry import Registry
from imondrian.service.http import routes
from imondrian.service.http.asgi import create_app
from imondrian.service.limits import ConnectionLimits
from tests.service.serving import SMALL, Service, ThreadServer, wait_until
from tests.test_hostile_files import with_notes

CONFIGURATION = {"features": ["x", "y"], **SMALL}
X = np.random.default_rng(0).normal(size=(300, 2))


@pytest.fixture
def server(registry):
    registry.create("a", CONFIGURATION)
    with ThreadServer(create_app(registry)) as running:
        yield running


def upload(change):
    """Return the file of a detector like `a` whose notes were changed."""
    detector = new_detector({**DEFAULTS, **CONFIGURATION})
    detector.process_many(X)
    return with_notes(detector, change)


def test_an_object_with_a_duplicate_key_is_refused_in_linear_time(server):
    keys = ",".join(f'"{i:05x}":0' for i in range(60_000))
    began = time.monotonic()
    status, _, content = server.request("PUT", "/detectors/b", f'{{{keys},"0ea5f":0}}'.encode())
    assert (status, b"0ea5f" in content) == (422, True)
    assert time.monotonic() - began < 10.0


@pytest.mark.parametrize("body", ['{"points": [[%s, 1]]}', '{"points": [{"x": %s, "y": 1}]}'])
def test_an_integer_of_thousands_of_digits_is_refused(server, body):
    status, _, content = server.request("POST", "/detectors/a/points", (body % ("1" * 5_000)).encode())
    assert status == 422, content
    status, _, content = server.request(
        "PUT", "/detectors/b", f'{{"features": ["x"], "window": {"1" * 5_000}}}'.encode()
    )
    assert status == 422, content


def test_a_content_length_of_thousands_of_digits_is_refused(server):
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(b"POST /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + b"0" * 5_000 + b"\r\n\r\n")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    "change",
    [
        lambda notes: notes["drifts"].extend([[0, 0, "scores", 1, 1]] * 17),
        lambda notes: notes["drifts"].append([0, 0, "scores", float("nan"), 1]),
        lambda notes: notes["monitor"]["before"].__setitem__(0, 1.7e308),
        lambda notes: notes["counts"].__setitem__(0, 2**53 - 5),
        lambda notes: notes.update(more={f"{i:06x}": 1 for i in range(200_000)}),
    ],
)
def test_a_model_that_would_harm_the_service_later_is_refused(server, change):
    status, _, content = server.request("PUT", "/detectors/a/model", upload(change))
    assert status == 422, content
    assert server.request("POST", "/detectors/a/points", {"points": X.tolist()})[0] == 200


def test_explanations_are_not_computed_for_clients_that_disconnected(registry, monkeypatch):
    features = [f"f{j}" for j in range(200)]
    registry.create("wide", {"features": features, **SMALL})
    registry.get("wide").worker.submit(
        "points", np.random.default_rng(0).normal(size=(100, 200)).tobytes(), 100
    ).result()
    calls = []
    original = StreamDetector.explain
    monkeypatch.setattr(StreamDetector, "explain", lambda self, x: (calls.append(1), original(self, x))[1])
    body = json.dumps({"points": np.zeros((90, 200)).tolist()})
    with ThreadServer(create_app(registry)) as server:
        connections = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=30) for _ in range(20)]
        for connection in connections:
            connection.request("POST", "/detectors/wide/explanations", body)
        for connection in connections:
            connection.close()
        status, _, _ = server.request("POST", "/detectors/wide/scores", {"points": [[0.0] * 200]})
    assert status == 200
    assert len(calls) < 20 * 90


LONG_CONFIGURATION = {"features": [f"{i:03d}" * 80 for i in range(100)], **SMALL}


@pytest.mark.parametrize(
    ("work", "n_slots", "method", "path", "body"),
    [
        ("lifecycle._file_of", 2, "GET", "/detectors/a/model", None),
        ("points.explanation_of_row", 2, "GET", "/detectors/a/history/5", None),
        ("points.scores_of", 2, "POST", "/detectors/a/scores", {"points": [[0, 0]] * 200}),
        ("points.scores_of", 1, "POST", "/detectors/a/scores", {"points": [[0, 0]]}),
        ("points.rows_of", 1, "POST", "/detectors/a/scores", {"points": [[0, 0]] * 9_000}),
        ("lifecycle.object_of", 1, "PUT", "/detectors/b", LONG_CONFIGURATION),
        ("common.Registry.create", 1, "PUT", "/detectors/b", CONFIGURATION),
        ("lifecycle.check_model", 1, "PUT", "/detectors/a/model", upload(lambda _: None)),
    ],
)
def test_no_work_is_done_for_clients_that_disconnected(server, monkeypatch, work, n_slots, method, path, body):
    """Only the requests that hold a slot when their clients disconnect are processed."""
    server.request("POST", "/detectors/a/points", {"points": X.tolist()})
    calls, may_continue = [], threading.Event()
    original = operator.attrgetter(work)(routes)

    def blocked(*args, **keywords):
        calls.append(work)
        assert may_continue.wait(30)
        return original(*args, **keywords)

    monkeypatch.setattr(f"imondrian.service.http.routes.{work}", blocked)
    content = json.dumps(body) if isinstance(body, dict) else body
    connections = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=30) for _ in range(8)]
    for connection in connections:
        connection.request(method, path, content)
    wait_until(lambda: len(calls) == n_slots)
    for connection in connections:
        connection.close()
    wait_until(lambda: not server._server.server_state.connections)
    may_continue.set()
    assert server.request(method, path, content)[0] in (200, 201)
    assert len(calls) == n_slots + 1


@pytest.mark.parametrize(("path", "status"), [("points", 504), ("scores", 503)])
def test_a_shutdown_does_not_deny_a_change_that_is_in_the_journal(registry, monkeypatch, path, status):
    handle, _ = registry.create("a", CONFIGURATION)
    monkeypatch.setattr(routes.points, "scores_of", lambda *_: time.sleep(5))
    server = ThreadServer(create_app(registry), ConnectionLimits(grace_seconds=1))
    with server, ThreadPoolExecutor() as pool, handle.worker.read_copy._write_lock:  # nothing is applied meanwhile
        reply = pool.submit(server.request, "POST", f"/detectors/a/{path}", {"points": X.tolist()})
        wait_until(lambda: server._server.server_state.tasks)
        time.sleep(0.5)
        server._server.should_exit = True
        found, headers, content = reply.result()
    assert found == status
    assert ("retry-after" in headers) == (status == 503)
    assert (b"may have been applied" in content) == (status == 504)


def test_work_unfinished_at_shutdown_is_replayed_at_the_next_start(tmp_path):
    registry = Registry(tmp_path / "data")
    registry.create("a", CONFIGURATION)
    worker = registry.get("a").worker
    reference = new_detector({**DEFAULTS, **CONFIGURATION})
    reference.process_many(X)
    with worker.read_copy._write_lock:  # nothing is applied meanwhile
        done = worker.submit("points", X.tobytes(), len(X))
        while worker.n_waiting:
            time.sleep(0.01)
        registry.close(0.2)
        assert not done.done()
    restarted = Registry(tmp_path / "data")
    try:
        assert restarted.get("a").worker.summary.n_seen == len(X)
        with restarted.get("a").worker.read_copy.read() as detector:
            assert to_bytes(detector) == to_bytes(reference)
    finally:
        restarted.close()


def test_running_requests_do_not_prevent_shutdown(tmp_path):
    features = [f"f{j}" for j in range(300)]
    service = Service(tmp_path / "data").start()
    try:
        with service.client() as client:
            client.create("wide", features, **{**SMALL, "n_trees": 300})
            client.process("wide", np.random.default_rng(0).normal(size=(120, 300)).tolist())
        body = json.dumps({"points": np.random.default_rng(1).normal(size=(300, 300)).tolist()})
        connections = [http.client.HTTPConnection("127.0.0.1", service.port, timeout=60) for _ in range(30)]
        for connection in connections:
            connection.request("POST", "/detectors/wide/explanations", body)
        service.process.terminate()
        output, _ = service.process.communicate(timeout=60)
        for connection in connections:
            connection.close()
    finally:
        service.process.kill()
    assert service.process.returncode == 0
    assert "Traceback" not in output, output

"""Memory of requests: bodies, large responses and copies of detectors share one budget, and release it."""

import asyncio
import contextlib
import inspect
import json
import threading
import time
import tracemalloc

import numpy as np
import pytest
from fastapi import Response

from imondrian import StreamDetector
from imondrian.service.capacity import ConcurrencyLimit, MemoryBudget, RequestMemory
from imondrian.service.changes.journal import POINTS, Entry, EntryApplier
from imondrian.service.changes.replies import reply_to
from imondrian.service.detectors.read_copy import ReadCopy
from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import BodyTooLongError, CapacityError
from imondrian.service.http.asgi import create_app
from imondrian.service.http.guard import Guard
from imondrian.service.http.routes import backups, incidents, keys, lifecycle, page_files, points, status
from imondrian.service.limits import MIB, PER_SCORED_ROW, Limits
from tests.service.serving import SMALL, Service, ThreadServer, wait_until

XY = {"features": ["x", "y"], **SMALL}
TOKEN = "a-token-of-more-than-sixteen"  # noqa: S105
SMALL_BODY = Limits().unused_body_bytes  # larger bodies reserve memory
MAX_WAIT = 6.0  # seconds, also on a busy machine; the requests below blocked the service for 8 to 18
EMPTY_LISTS = b'{"points": [' + b"[]," * 11_000_000 + b"[]]}"


def test_reserved_memory_is_limited_and_released():
    memory = MemoryBudget(100)
    first, second = RequestMemory(memory), RequestMemory(memory)
    first.reserve(60)
    with pytest.raises(CapacityError, match="needs 41 bytes of memory, but 60 of 100 are in use"):
        second.reserve(41)
    second.reserve(40)
    first.close()
    first.close()
    with memory.reserved(60), pytest.raises(CapacityError):
        memory.reserve(1)
    memory.reserve(60)


def test_slots_and_the_queue_for_them_are_limited():
    async def run():
        limit, n_active, peak, n_refused = ConcurrencyLimit(2, 3), 0, 0, 0

        async def one():
            nonlocal n_active, peak, n_refused
            try:
                async with limit.slot():
                    n_active += 1
                    peak = max(peak, n_active)
                    await asyncio.sleep(0.01)
                    n_active -= 1
            except CapacityError:
                n_refused += 1

        await asyncio.gather(*(one() for _ in range(10)))
        await asyncio.gather(*(one() for _ in range(5)))
        return peak, n_refused

    assert asyncio.run(run()) == (2, 5)


@pytest.fixture
def server(tmp_path):
    registry = Registry(tmp_path, Limits(memory_bytes=MIB))
    registry.create("a", XY)
    with ThreadServer(create_app(registry)) as running:
        yield running


def send_half_a_body(server, method, path, head=b"Content-Length: 100000"):
    """Send half of a body of 100,000 bytes, each of which reserves several bytes of memory."""
    connection = server.connect()
    connection.sendall(f"{method} /detectors/a/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode() + head + b"\r\n\r\n")
    connection.sendall((b"c350\r\n" if head.startswith(b"Transfer") else b"") + b" " * 50_000 + b"\r\n")
    return connection


@pytest.mark.parametrize(("method", "path", "n"), [("POST", "points", 1), ("POST", "scores", 1), ("PUT", "model", 3)])
@pytest.mark.parametrize("head", [b"Content-Length: 100000", b"Transfer-Encoding: chunked"])
def test_incomplete_bodies_share_one_memory_limit(server, method, path, n, head):
    body, n = {"points": [[1, 2]]}, n * (2 if head.startswith(b"Transfer") else 1)
    with contextlib.ExitStack() as stack:
        for _ in range(n):
            stack.enter_context(send_half_a_body(server, method, path, head))
        memory = server._server.config.app._memory
        wait_until(lambda: memory._n_reserved >= 800_000)  # everything sent has arrived
        wait_until(lambda: post_padded_body(server, 60_000)[0] == 503)
        assert post_padded_body(server, 60_000)[1]["retry-after"] == "1"
        assert server.request("POST", "/detectors/a/points", body)[0] == 200  # small bodies reserve nothing
    wait_until(lambda: post_padded_body(server, 60_000)[0] == 200)  # the memory of disconnected clients is released


def post_padded_body(server, n_bytes):
    return server.request("POST", "/detectors/a/scores", json.dumps({"points": [[1, 2]]}).encode().ljust(n_bytes))


def test_a_body_without_a_length_gets_503_when_it_exceeds_the_memory(server):
    with server.connect() as connection:
        connection.sendall(b"PUT /detectors/a/model HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(8):
                connection.sendall(b"10000\r\n" + bytes(2**16) + b"\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 503 ")


def test_memory_for_the_results_is_reserved_before_points_are_learned(server):
    body = {"points": [[1, 2]] * 1_700}
    assert len(json.dumps(body)) * 8 < MIB < PER_SCORED_ROW * 1_700  # enough memory for the body alone
    status, headers, _ = server.request("POST", "/detectors/a/points", body)
    assert (status, headers["retry-after"]) == (503, "1")
    assert json.loads(server.request("GET", "/detectors/a")[2])["n_seen"] == 0
    assert server.request("POST", "/detectors/a/points", {"points": [[1, 2]] * 1_000})[0] == 200
    wait_until(lambda: server._server.config.app._memory._n_reserved == 0)


def test_the_memory_reserved_for_results_is_sufficient():
    """Applying an entry and writing its reply; d = 1 has the shortest rows and so the most of them in a body."""
    detector = StreamDetector(1, **SMALL)
    points = np.random.default_rng(0).normal(size=(20_000, 1))
    entry = Entry(1, POINTS, points.tobytes(), None, 0.0)
    applier = EntryApplier(detector, ["x"])
    applier.apply([entry._replace(content=points[:100].tobytes())])
    tracemalloc.start()
    try:
        reply_to(POINTS, applier.apply([entry])[0])
        n_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert n_bytes < PER_SCORED_ROW * len(points)


def test_the_number_of_simultaneous_copies_is_limited(server, monkeypatch):
    server.request("POST", "/detectors/a/points", {"points": [[1, 2], [3, 4]]})
    private_copy, lock, counts, statuses = ReadCopy.private_copy, threading.Lock(), [0, 0], []

    def counted(read_copy):
        with lock:
            counts[0] += 1
            counts[1] = max(counts)
        time.sleep(0.02)
        copy = private_copy(read_copy)
        with lock:
            counts[0] -= 1
        return copy

    monkeypatch.setattr(ReadCopy, "private_copy", counted)
    threads = [
        threading.Thread(target=lambda: statuses.append(server.request("GET", "/detectors/a/history/1")[0]))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    many = {"points": [[1, 2]] * 200}
    statuses += [server.request("POST", f"/detectors/a/{what}", many)[0] for what in ("scores", "explanations")]
    for thread in threads:
        thread.join()
    assert statuses == [200] * 22
    assert 1 <= counts[1] <= Limits().copies_at_once


def test_other_tasks_run_while_a_large_response_is_sent_to_a_fast_client():
    n_turns, n_pieces = 0, 0

    async def other():
        nonlocal n_turns
        while True:
            n_turns += 1
            await asyncio.sleep(0)

    async def send(message):  # never waits
        nonlocal n_pieces
        n_pieces += message["type"] == "http.response.body"

    async def app(scope, receive, send):
        await Response(bytes(10 * 2**20))(scope, receive, send)

    async def run():
        task = asyncio.create_task(other())
        scope = {"type": "http", "path": "/detectors/a", "headers": [(b"host", b"localhost")], "method": "GET"}
        await Guard(app, None, Limits(), MemoryBudget(2**30))(scope, None, send)
        task.cancel()

    asyncio.run(run())
    assert n_pieces == 160
    assert n_turns >= n_pieces


def test_a_request_gets_503_if_there_is_no_memory_for_its_copy(tmp_path):
    registry = Registry(tmp_path, Limits(memory_bytes=2**15))
    handle, _ = registry.create("a", XY)
    assert handle.worker.summary.n_bytes > 2**15
    with ThreadServer(create_app(registry)) as running:
        assert running.request("POST", "/detectors/a/points", {"points": [[1, 2]]})[0] == 200
        status, headers, _ = running.request("GET", "/detectors/a/history/0")
        assert (status, headers["retry-after"]) == (503, "1")
        assert running.request("POST", "/detectors/a/scores", {"points": [[1, 2]]})[0] == 200


def respond(n_bytes, memory, method="GET", path="/"):
    """Respond to a request with `n_bytes` bytes, and return the messages sent."""
    sent = []

    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % n_bytes)]})
        await send({"type": "http.response.body", "body": bytes(range(256)) * (n_bytes // 256)})

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "path": path, "headers": [(b"host", b"localhost")], "method": method}
    asyncio.run(Guard(app, None, Limits(), memory)(scope, receive, send))
    return sent


@pytest.mark.parametrize("n_bytes", [0, 256, 2**18, 2**18 + 256, 2**20, 10 * 2**20])
def test_responses_are_sent_in_pieces(n_bytes):
    start, *pieces = respond(n_bytes, MemoryBudget(2**30))
    assert start["status"] == 200
    assert b"".join(piece["body"] for piece in pieces) == bytes(range(256)) * (n_bytes // 256)
    assert max(len(piece["body"]) for piece in pieces) <= 2**18
    assert [piece.get("more_body", False) for piece in pieces] == [True] * (len(pieces) - 1) + [False]


def test_a_request_gets_503_if_there_is_no_memory_for_its_large_response():
    memory = MemoryBudget(4 * 2**20)
    start, *pieces = respond(5 * 2**20, memory)
    assert (start["status"], dict(start["headers"])[b"retry-after"]) == (503, b"1")
    assert "bytes of memory" in json.loads(b"".join(piece["body"] for piece in pieces))["detail"]
    assert respond(2**20, memory)[0]["status"] == 200
    memory.reserve(4 * 2**20)  # all of it was released


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/detectors/a", 503),
        ("POST", "/detectors/a/scores", 503),
        ("POST", "/detectors/a/points", 200),  # the points have been learned
        ("GET", "/detectors/points", 503),  # a detector of this name
        ("PUT", "/detectors/a", 200),
        ("DELETE", "/detectors/a/points", 200),
    ],
)
def test_large_responses_reserve_memory_and_hide_no_change(method, path, status):
    memory = MemoryBudget(0)
    assert respond(2**16, memory, method, path)[0]["status"] == 200
    assert respond(2**24, memory, method, path)[0]["status"] == status
    memory.reserve(0)  # all of it was released


def test_no_response_of_any_size_is_written_by_fastapi():
    """FastAPI would validate and write it in the event loop."""
    routers = (
        lifecycle.router,
        lifecycle.model_router,
        points.router,
        points.history_router,
        incidents.router,
        keys.router,
        backups.router,
        status.router,
        page_files.router,
    )
    endpoints = {route.endpoint for router in routers for route in router.routes}
    assert len(endpoints) == 24
    for endpoint in endpoints - {status.health, lifecycle.remove}:  # their responses are small
        assert inspect.signature(endpoint).return_annotation is Response, endpoint


def test_many_readers_of_a_wide_description_block_nobody(tmp_path):
    wide = {"features": [chr(0x20000 + i) * 253 + f"{i:03d}" for i in range(1_000)], "window": 16, "n_trees": 1}
    with Service(tmp_path) as service, contextlib.ExitStack() as stack:
        body = json.dumps(wide, ensure_ascii=False).encode()
        assert service.request("PUT", "/detectors/wide", body)[0] == 201
        for connection in [stack.enter_context(service.connect()) for _ in range(300)]:
            connection.sendall(b"GET /detectors/wide HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        slowest, end = 0.0, time.monotonic() + 3.0
        while time.monotonic() < end:
            began = time.monotonic()
            assert service.request("GET", "/health")[0] == 200
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < MAX_WAIT


def test_bodies_of_empty_lists_need_little_memory_and_block_nobody(tmp_path):
    with Service(tmp_path) as service:
        service.request("PUT", "/detectors/a", XY)
        before = n_bytes_of(service)
        statuses, slowest = send_at_once(service, 4, "POST", "/detectors/a/scores", EMPTY_LISTS)
        assert set(statuses) <= {422, 503}
        assert 422 in statuses
        assert slowest < MAX_WAIT
        assert n_bytes_of(service) - before < 400 * MIB


def send_at_once(service, n_clients, method, path, body=None):
    """Send the same request from many threads; return the statuses, and the slowest response of /health meanwhile."""
    statuses, slowest = [], 0.0
    threads = [
        threading.Thread(target=lambda: statuses.append(service.request(method, path, body)[0]))
        for _ in range(n_clients)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        began = time.monotonic()
        assert service.request("GET", "/health")[0] == 200
        slowest = max(slowest, time.monotonic() - began)
    return statuses, slowest


MANY_KEYS = b'{"features": ["a"]' + b"".join(b',"%x":0' % i for i in range(100_000)) + b"}"
LONG_LIST = b'{"features": ["a"], "scale": [' + b'"",' * 300_000 + b'""]}'


@pytest.mark.parametrize("body", [MANY_KEYS, LONG_LIST], ids=["many keys", "long list"])
def test_hostile_configurations_need_little_memory_and_block_nobody(tmp_path, body):
    assert 900_000 < len(body) < Limits().configuration_bytes
    with Service(tmp_path) as service:
        before = n_bytes_of(service)
        statuses, slowest = send_at_once(service, 20, "PUT", "/detectors/a", body)
        assert set(statuses) == {422}
        assert slowest < MAX_WAIT
        assert n_bytes_of(service) - before < 150 * MIB


def n_bytes_of(service):
    """Return the peak memory of a process."""
    with open(f"/proc/{service.process.pid}/status") as status:  # noqa: PTH123
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def test_clients_that_do_not_read_a_page_file_reserve_no_request_memory(tmp_path):
    registry = Registry(tmp_path, Limits(memory_bytes=MIB))
    registry.create("a", XY)
    app = create_app(registry)
    with ThreadServer(app) as server, contextlib.ExitStack() as stack:
        for _ in range(50):
            connection = stack.enter_context(server.connect())
            connection.sendall(b"GET /static/plotly.min.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        assert post_padded_body(server, 60_000)[0] == 200
        wait_until(lambda: app._memory._n_reserved == 0)


def status_of(memory, method, path, n_bytes, token=None, *, is_announced=True):
    """Send a body to a service with a token, with or without a Content-Length; return the status of the response."""
    sent = []

    async def app(_scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": bytes(n_bytes), "more_body": False}

    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())]
    headers += [(b"content-length", b"%d" % n_bytes)] if is_announced else [(b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "path": path, "headers": headers, "method": method}
    asyncio.run(Guard(app, TOKEN, Limits(), memory)(scope, receive, send))
    return sent[0]["status"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/health", "/static/plotly.min.js", "/static/points", "/static/model"])
@pytest.mark.parametrize("token", [None, TOKEN])
def test_bodies_of_requests_that_need_no_token_reserve_no_memory(method, path, token):
    memory = MemoryBudget(0)  # every reservation fails
    assert status_of(memory, method, path, SMALL_BODY, token) == 200
    for n_bytes in (SMALL_BODY + 1, 100_000, MIB):
        assert status_of(memory, method, path, n_bytes, token) == 413
        with pytest.raises(BodyTooLongError):
            status_of(memory, method, path, n_bytes, token, is_announced=False)


@pytest.mark.parametrize(
    ("method", "path", "needs_body"),
    [
        ("POST", "/detectors/a/points", True),
        ("DELETE", "/detectors/a/points", True),
        ("POST", "/detectors/a/scores", True),
        ("POST", "/detectors/a/explanations", True),
        ("PUT", "/detectors/a", True),
        ("PUT", "/detectors/a/model", True),
        ("GET", "/detectors/a/points", False),
        ("GET", "/detectors/a/model", False),
        ("HEAD", "/detectors/a/model", False),
        ("GET", "/detectors/a/history", False),
        ("DELETE", "/detectors/a", False),
        ("GET", "/metrics", False),
        ("POST", "/nowhere", False),
    ],
)
def test_only_bodies_that_are_needed_reserve_memory(method, path, needs_body):
    memory, expected = MemoryBudget(0), (200, 503) if needs_body else (413, 413)
    assert status_of(MemoryBudget(MIB), method, path, SMALL_BODY + 1, TOKEN) == expected[0]
    assert status_of(memory, method, path, SMALL_BODY + 1, TOKEN) == expected[1]
    assert status_of(memory, method, path, SMALL_BODY + 1) == 401
    assert status_of(memory, method, path, SMALL_BODY, TOKEN) == 200


@pytest.mark.parametrize("name", ["model", "points", "a"])
def test_a_configuration_has_the_same_limit_whatever_the_name_of_the_detector(name):
    memory, n_bytes = MemoryBudget(1000 * MIB), Limits().configuration_bytes
    assert status_of(memory, "PUT", f"/detectors/{name}", n_bytes, TOKEN) == 200
    assert status_of(memory, "PUT", f"/detectors/{name}", n_bytes + 1, TOKEN) == 413
    assert status_of(memory, "PUT", f"/detectors/{name}/model", n_bytes + 1, TOKEN) == 200


def test_bodies_announced_without_the_token_leave_the_request_memory_free(tmp_path):
    """The clients do not read, so their responses take until a deadline."""
    registry = Registry(tmp_path, Limits(memory_bytes=MIB))
    registry.create("a", XY)
    app = create_app(registry, TOKEN)
    head = b"GET /static/plotly.min.js HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n"
    with ThreadServer(app) as server, contextlib.ExitStack() as stack:
        for _ in range(10):
            connection = stack.enter_context(server.connect())
            connection.sendall(head)
            assert connection.recv(100).startswith(b"HTTP/1.1 ")
        body = json.dumps({"points": [[1, 2]]}).encode().ljust(60_000)
        assert server.request("POST", "/detectors/a/points", body, {"Authorization": f"Bearer {TOKEN}"})[0] == 200
        wait_until(lambda: app._memory._n_reserved == 0)


def test_a_request_may_have_fewer_points_if_each_takes_long(tmp_path):
    limits = Limits(values_per_request=1_000)
    registry = Registry(tmp_path, limits)
    registry.create("a", {"features": ["x", "y"], "n_trees": 5, "window": 64, "shingle": 10})  # 100 values a point
    with ThreadServer(create_app(registry)) as server:
        for path in ("points", "scores"):
            for n_points, status in ((11, 422), (10, 200)):
                body = json.dumps({"points": [[1, 2]] * n_points}).encode()
                assert server.request("POST", f"/detectors/a/{path}", body)[0] == status
    registry.close()

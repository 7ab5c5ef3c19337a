"""Limits on connections: too many, too slow, heads too long; enforced before the application sees a request."""

import asyncio
import contextlib
import errno
import socket
import threading
import time
from contextlib import suppress

import pytest
import uvicorn
from uvicorn.server import ServerState

from imondrian.service.http import connections
from imondrian.service.limits import ConnectionLimits
from tests.service.serving import ThreadServer

TIMEOUT = 20.0  # seconds to wait for something that should be quick
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
ANNOUNCES_CLOSE = tuple(map(int, uvicorn.__version__.split(".")[:2])) >= (0, 53)  # older ones only close a connection


class Echo:
    """An application that responds with the length of the body and the path; to /held only after `free` is set."""

    def __init__(self):
        self.paths, self.ended, self.release = [], [], threading.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        self.paths.append(scope["path"])
        message, n_bytes = {"more_body": True}, 0
        while message.get("more_body"):
            message = await receive()
            n_bytes += len(message.get("body", b""))
        self.ended.append(message["type"])
        while scope["path"].startswith("/held") and not self.release.is_set():
            await connections.asyncio.sleep(0.01)
        body = bytes(10**8) if scope["path"] == "/large" else f"{n_bytes} {scope['path']}".encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
def serve(echo, monkeypatch):
    """Serve with limits, and check deadlines often."""
    monkeypatch.setattr(connections, "_CHECK_SECONDS", 0.05)
    with contextlib.ExitStack() as stack:
        stack.callback(echo.release.set)
        yield lambda **limits: stack.enter_context(ThreadServer(echo, ConnectionLimits(**limits)))


def received(connection, until=b""):
    """Return what arrives up to a text, or until the other side closes."""
    connection.settimeout(TIMEOUT)
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while (until == b"" or until not in data) and (more := connection.recv(2**16)):
            data += more
    return data


def is_closed(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except BlockingIOError:
        return False


def wait_until(condition):
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.01)


# -- too many connections -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:", REQUEST])
def test_idle_connections_lock_nobody_out(serve, sent):
    server = serve(connections=10)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(server.connect()) for _ in range(40)]
        for connection in idle:
            with contextlib.suppress(OSError):
                connection.sendall(sent)
        if sent == REQUEST:  # every admitted connection gets a response, and is idle then
            responses = [received(connection, b"0 /") for connection in idle]
            assert sum(b"200 OK" in response for response in responses) >= 10
        else:
            wait_until(lambda: sum(map(is_closed, idle)) >= 30)
        assert server.request("GET", "/")[0] == 200
    assert server.request("GET", "/")[0] == 200


def test_the_connection_that_has_been_idle_longest_is_closed(serve):
    server = serve(connections=3)
    with server.connect() as first, server.connect() as second:
        for connection in (second, first):  # the second has been idle longer
            connection.sendall(REQUEST)
            received(connection, b"0 /")
        with server.connect() as third, server.connect() as fourth:
            fourth.sendall(REQUEST)
            assert b"200 OK" in received(fourth, b"0 /")
            wait_until(lambda: is_closed(second))
            assert not is_closed(first)
            assert not is_closed(third)


def test_a_new_connection_gets_503_if_all_others_are_active(serve, echo):
    server = serve(connections=3)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(server.connect()) for _ in range(3)]
        for connection in held:
            connection.sendall(REQUEST.replace(b"/", b"/held", 1))
        wait_until(lambda: echo.paths.count("/held") == 3)
        with server.connect() as surplus:
            response = received(surplus)
        assert response.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in response
        assert b"x-content-type-options: nosniff" in response
        echo.release.set()
        for connection in held:
            assert b"200 OK" in received(connection, b"/held")
    assert server.request("GET", "/")[0] == 200


# -- slow clients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "expected", "limits"),
    [
        (b"", b"", {"first_seconds": 0.2}),
        (b"\r\n", b"", {"first_seconds": 0.2}),
        (b"G", b"HTTP/1.1 408 ", {"head_seconds": 0.2}),
        (b"GET / HTTP/1.1\r\nHost: a\r\n", b"HTTP/1.1 408 ", {"head_seconds": 0.2}),
        (REQUEST, b"HTTP/1.1 200 ", {"idle_seconds": 0.2}),
        (REQUEST + b"GET /", b"HTTP/1.1 200 ", {"head_seconds": 0.2}),
        (b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n1234", b"HTTP/1.1 408 ", {"body_seconds": 0.2}),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n12", b"HTTP/1.1 408 ", {"body_seconds": 0.2}),
    ],
)
def test_connections_that_stop_sending_are_closed(serve, sent, expected, limits):
    server = serve(**limits)
    with server.connect() as connection:
        connection.sendall(sent)
        response = received(connection)  # until it is closed
    assert response.startswith(expected)
    assert bool(response) == bool(expected)


def test_a_body_that_arrives_too_slowly_is_refused(serve, echo):
    server = serve(body_seconds=0.5, body_rate=1000)
    with server.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"1")
                time.sleep(0.05)
                if "http.disconnect" in echo.ended:
                    break
        assert received(connection).startswith(b"HTTP/1.1 408 ")


def test_a_slow_body_above_the_minimum_rate_is_accepted(serve):
    server = serve(body_seconds=0.4, body_rate=10)
    with server.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 2000\r\n\r\n")
        for _ in range(20):
            connection.sendall(bytes(100))
            time.sleep(0.05)
        assert b"2000 /" in received(connection, b"2000 /")


def test_a_connection_is_closed_if_its_response_is_not_read(serve):
    server = serve(response_seconds=0.3)
    with server.connect() as connection:
        connection.sendall(REQUEST.replace(b"/", b"/large", 1))
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        wait_until(lambda: not server._server.server_state.connections)
        assert len(received(connection)) < 10**8


# -- long heads -----------------------------------------------------------------------------------------------------


def head(url=b"/", headers=b""):
    return b"GET " + url + b" HTTP/1.1\r\nHost: a\r\n" + headers + b"\r\n"


MANY = b"".join(b"a%d: b\r\n" % i for i in range(99))


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (head(b"/" + b"a" * (2**14 - 1)), b"200 OK"),
        (head(b"/" + b"a" * 2**14), b"414 "),
        (head(b"/?" + b"a" * 2**24), b"414 "),
        (head(headers=b"a: " + b"b" * (2**15 - 100) + b"\r\n"), b"200 OK"),
        (head(headers=b"a: " + b"b" * 2**15 + b"\r\n"), b"431 "),
        (head(headers=b"a: " + b"b" * 2**24 + b"\r\n"), b"431 "),
        (head(headers=b"a" * 2**24 + b": b\r\n"), b"431 "),
        (head(headers=MANY), b"200 OK"),
        (head(headers=MANY + b"more: b\r\n"), b"431 "),
        (head(headers=b"a: b\r\n" * 10**6), b"431 "),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 10**6, b"431 "),
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
    ],
    ids=range(12),
)
def test_heads_are_limited(serve, sent, expected):
    server = serve(head_seconds=60.0)
    with server.connect() as connection:
        sender = threading.Thread(target=send_as_much_as_possible, args=(connection, sent))
        sender.start()
        response = received(connection, b"}" if expected[:3] != b"200" else b"0 /")
        sender.join(TIMEOUT)
    assert response.startswith(b"HTTP/1.1 " + expected)


def send_as_much_as_possible(connection, data):
    with contextlib.suppress(OSError):
        connection.sendall(data)


def test_a_head_above_the_limits_never_reaches_the_application(serve, echo):
    server = serve()
    paths = list(echo.paths)
    with server.connect() as connection:
        send_as_much_as_possible(connection, head(b"/far", b"a: " + b"b" * 2**20 + b"\r\n"))
        received(connection)
    assert echo.paths == paths


# -- pipelined requests ---------------------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order(serve):
    server = serve()
    with server.connect() as connection:
        connection.sendall(b"".join(head(b"/%d" % i) for i in range(8)))
        response = received(connection, b"0 /7")
    assert [part[:1] for part in response.split(b"0 /")[1:]] == [b"%d" % i for i in range(8)]


def test_the_number_of_pipelined_requests_is_limited(serve, echo):
    server = serve(pipelined=4)
    with server.connect() as connection:
        connection.sendall(head(b"/held") + b"".join(head(b"/%d" % i) for i in range(10_000)))
        wait_until(lambda: "/held" in echo.paths)
        for _ in range(100):  # more requests, while the service reads
            send_as_much_as_possible(connection, head(b"/more"))
        echo.release.set()
        response = received(connection)
    assert response.count(b"HTTP/1.1 200 ") == response.count(b"HTTP/1.1") == 5
    assert response.count(b"connection: close") == ANNOUNCES_CLOSE
    assert [path for path in echo.paths if path != "/health"] == ["/held", "/0", "/1", "/2", "/3"]


def test_a_request_is_answered_even_if_invalid_data_follows_it(serve, echo):
    server = serve()
    with server.connect() as connection:
        connection.sendall(head(b"/held") + b"nonsense\r\n\r\n")
        wait_until(lambda: "/held" in echo.paths)
        echo.release.set()
        response = received(connection)
    assert response.startswith(b"HTTP/1.1 200 ")
    assert response.count(b"connection: close") == ANNOUNCES_CLOSE
    assert response.endswith(b"0 /held")


def test_an_invalid_chunked_body_gets_400(serve, echo):
    server = serve()
    with server.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n\r\n")
        assert received(connection).startswith(b"HTTP/1.1 400 ")
    wait_until(lambda: echo.ended[-1] == "http.disconnect")


@pytest.mark.parametrize("sent", [b"GET / HTT", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n12"])
def test_an_incomplete_request_does_not_prevent_shutdown(echo, sent):
    with ThreadServer(echo, ConnectionLimits(grace_seconds=600)) as server, server.connect() as connection:
        connection.sendall(sent)
        wait_until(lambda: len(server._server.server_state.connections) >= 1)
        server._server.should_exit = True
        server._thread.join(TIMEOUT)
        assert not server._thread.is_alive()
        with suppress(OSError):  # the other side may have closed it already
            connection.shutdown(socket.SHUT_WR)


# -- chunks ---------------------------------------------------------------------------------------------------------


def chunked(path, chunk, n_chunks, end=b"0\r\n\r\n"):
    head = b"POST " + path + b" HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + (b"%x\r\n%s\r\n" % (len(chunk), chunk)) * n_chunks + end


@pytest.mark.parametrize(
    ("chunk", "n_chunks", "expected"),
    [
        (b"1", 99, b"200 OK"),
        (b"1", 102, b"400 "),
        (b"1", 100_000, b"400 "),
        (b"12345678", 113, b"200 OK"),  # one more for each 64 bytes: 14 for 904
        (b"12345678", 130, b"400 "),
        (b"1" * 64, 10_000, b"200 OK"),
        (b"1" * 10**6, 5, b"200 OK"),
    ],
)
def test_a_body_of_too_many_small_chunks_is_refused(serve, chunk, n_chunks, expected):
    server = serve(chunks=100, chunk_bytes=64)
    with server.connect() as connection:
        sender = threading.Thread(target=send_as_much_as_possible, args=(connection, chunked(b"/", chunk, n_chunks)))
        sender.start()
        response = received(connection, b"}" if expected == b"400 " else b" /")
        sender.join(TIMEOUT)
    assert response.startswith(b"HTTP/1.1 " + expected)
    assert b"at most 100 chunks and one more for each 64 bytes" in response or expected == b"200 OK"
    assert response.endswith(b"%d /" % (len(chunk) * n_chunks)) or expected == b"400 "


def test_requests_after_chunked_ones_are_answered(serve):
    server = serve()
    with server.connect() as connection:
        connection.sendall(chunked(b"/1", b"1", 5_000) + head(b"/2") + chunked(b"/3", b"12", 5_000) + head(b"/4"))
        response = received(connection, b"0 /4")
    bodies = [part.split(b"HTTP")[0] for part in response.split(b"\r\n\r\n")[1:]]
    assert bodies == [b"5000 /1", b"0 /2", b"10000 /3", b"0 /4"]


def test_the_event_loop_runs_while_small_chunks_are_parsed(serve, monkeypatch):
    server, on_body, stop = serve(chunks=10**9), connections.Connection.on_body, threading.Event()
    n_parsed, peak = 0, 0  # chunks since the last turn of the event loop, and in any

    def counted(connection, body):
        nonlocal n_parsed
        n_parsed += 1
        on_body(connection, body)

    async def watch():
        nonlocal n_parsed, peak
        while not stop.is_set():
            peak, n_parsed = max(peak, n_parsed), 0
            await asyncio.sleep(0)

    monkeypatch.setattr(connections.Connection, "on_body", counted)
    watcher = connections.asyncio.run_coroutine_threadsafe(watch(), server._server.servers[0].get_loop())
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(4)]
        senders = [
            threading.Thread(target=send_as_much_as_possible, args=(each, chunked(b"/", b"1", 100_000)))
            for each in clients
        ]
        for sender in senders:
            sender.start()
        for connection in clients:
            assert received(connection, b"100000 /").endswith(b"100000 /")
        for sender in senders:
            sender.join(TIMEOUT)
    stop.set()
    watcher.result(TIMEOUT)
    assert 0 < peak < 10_000  # a read of 256 KiB has 43,000


# -- responses before the body --------------------------------------------------------------------------------------


class EarlyResponder:
    """An application that responds without reading the body."""

    def __init__(self):
        self.paths = []

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            self.paths.append(scope["path"])
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"4")]})
            await send({"type": "http.response.body", "body": b"none"})


@pytest.fixture
def early(monkeypatch):
    monkeypatch.setattr(connections, "_CHECK_SECONDS", 0.05)
    return EarlyResponder()


def post(length, body=b"", more=b""):
    return b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%s\r\n%s" % (length, more, body)


@pytest.mark.parametrize("body", [b"", b"12", b"1" * 60_000])
def test_the_connection_stays_open_after_a_short_unread_body(early, body):
    with ThreadServer(early) as server, server.connect() as connection:
        for _ in range(3):
            connection.sendall(post(len(body)))
            response = received(connection, b"none")
            assert response.startswith(b"HTTP/1.1 404 ")
            assert b"connection: close" not in response
            connection.sendall(body)


@pytest.mark.parametrize(
    "sent",
    [
        chunked(b"/p", b"1", 10, b""),
        chunked(b"/p", b"GET /far HTTP/1.1\r\n\r\n", 10, b""),
        post(10**9),
        post(5, b"", b"Expect: 100-continue\r\n"),
    ],
)
def test_nothing_is_parsed_after_an_early_response_to_a_long_body(early, sent):
    with ThreadServer(early, ConnectionLimits(linger_seconds=0.5)) as server, server.connect() as connection:
        connection.sendall(sent)
        response = received(connection)  # the service sends nothing more, but still reads
        assert response.startswith(b"HTTP/1.1 404 ")
        assert b"connection: close" in response
        assert response.endswith(b"none")
        connection.sendall(head(b"/far"))
        send_as_much_as_possible(connection, b"1\r\n1\r\n" * 10**6)
        wait_until(lambda: is_reset(connection))
    assert [path for path in early.paths if path != "/health"] == ["/p"]


def is_reset(connection):
    connection.setblocking(False)
    try:
        connection.send(b"1")
    except (BrokenPipeError, ConnectionResetError):
        return True
    except BlockingIOError:
        return False
    return False


def test_input_discarded_after_the_last_response_is_limited(early):
    with (
        ThreadServer(early, ConnectionLimits(linger_bytes=10**6, linger_seconds=600.0)) as server,
        server.connect() as connection,
    ):
        connection.sendall(post(10**9))
        assert received(connection).endswith(b"none")
        connection.sendall(bytes(100_000))
        assert not is_reset(connection)
        connection.setblocking(True)
        send_as_much_as_possible(connection, bytes(10**8))
        wait_until(lambda: is_reset(connection))


def test_a_client_that_sends_a_whole_long_body_can_read_the_early_response(early):
    with ThreadServer(early) as server:
        assert server.request("POST", "/p", bytes(30 * 2**20))[0] == 404


def test_a_lingering_connection_does_not_prevent_shutdown(early):
    with ThreadServer(early, ConnectionLimits(linger_seconds=600.0)) as server, server.connect() as connection:
        connection.sendall(chunked(b"/p", b"1", 1, b""))
        received(connection)
        server._server.should_exit = True
        server._thread.join(TIMEOUT)
        assert not server._thread.is_alive()


def test_a_client_that_closes_before_the_end_of_the_response_causes_no_error(early, monkeypatch):
    """The rest is done all the same: input is discarded, and the connection is closed after the deadline."""

    def write_eof(_transport):
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    async def respond(scope, receive, send):
        try:
            await early(scope, receive, send)
        except OSError as error:
            errors.append(error)
            raise

    errors = []
    monkeypatch.setattr(asyncio.selector_events._SelectorSocketTransport, "write_eof", write_eof)
    with ThreadServer(respond, ConnectionLimits(linger_seconds=0.5)) as server, server.connect() as connection:
        connection.sendall(post(10**9))
        assert received(connection).endswith(b"none")  # until the service closes
    assert errors == []


# -- upgrades and trailers ------------------------------------------------------------------------------------------

H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"


@pytest.mark.parametrize("more", [H2C, b"Connection: upgrade\r\nUpgrade: websocket\r\nUpgrade: b\r\n"])
@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("body", [b"", b"1234", b"GET /far HTTP/1.1\r\nHost: a\r\n\r\n", b"1" * 200_000])
def test_upgrade_requests_are_ignored(serve, echo, more, is_split, body):
    server = serve()
    with server.connect() as connection:
        for _ in range(2):
            for part in (post(len(body), b"", more), body) if is_split else (post(len(body), body, more),):
                connection.sendall(part)
                time.sleep(0.05 if is_split else 0.0)
            assert received(connection, b" /p").endswith(b"\r\n\r\n%d /p" % len(body))
        connection.sendall(head(b"/1", more) + head(b"/2", more) + head(b"/3"))
        assert received(connection, b"0 /3").count(b"HTTP/1.1 200 OK") == 3
    assert "/far" not in echo.paths


def test_a_chunked_body_after_an_upgrade_header_is_read(serve, echo):
    server = serve()
    with server.connect() as connection:
        sent = chunked(b"/p", b"GET /far HTTP/1.1\r\n\r\n", 3).replace(b"Host: a\r\n", b"Host: a\r\n" + H2C)
        for first in range(0, len(sent), 7):  # split at arbitrary positions
            connection.sendall(sent[first : first + 7])
            time.sleep(0.001)
        assert received(connection, b"63 /p").endswith(b"63 /p")
    assert "/far" not in echo.paths


def test_connect_is_refused(serve, echo):
    server = serve()
    with server.connect() as connection:
        connection.sendall(b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n" + head(b"/far"))
        assert received(connection).startswith(b"HTTP/1.1 400 ")
    assert "/far" not in echo.paths


class HeaderEcho:
    """An application that responds with the headers of the request after it has read the body."""

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            while (await receive()).get("more_body"):
                pass
            body = repr(scope["headers"]).encode() + b"."
            headers = [(b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})


def test_trailers_are_ignored():
    with ThreadServer(HeaderEcho()) as server, server.connect() as connection:
        for _ in range(2):
            sent = chunked(
                b"/", b"1", 3, b"0\r\nHost: b\r\nAuthorization: c\r\nUpgrade: d\r\nExpect: 100-continue\r\n\r\n"
            )
            connection.sendall(sent.replace(b"Host: a\r\n", b""))
            assert received(connection, b"].").endswith(b"\r\n\r\n[(b'transfer-encoding', b'chunked')].")


def test_a_disconnection_is_noticed_while_another_request_is_queued():
    """Reading is paused then, so the end of the input is not seen."""
    has_ended = threading.Event()

    async def app(scope, receive, send):
        if scope["path"] == "/health":
            await Echo()(scope, receive, send)
            return
        while (await receive())["type"] != "http.disconnect":
            pass
        has_ended.set()

    with ThreadServer(app) as server:
        with server.connect() as client:
            client.sendall(2 * REQUEST)
            wait_until(lambda: server._server.server_state.tasks)
            time.sleep(0.1)
        assert has_ended.wait(TIMEOUT)


class MemoryTransport(asyncio.Transport):
    """A transport that remembers whether it may read."""

    is_paused = False

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False

    def is_closing(self):
        return False


@pytest.mark.parametrize("n_pipelined", [0, 1])
def test_reading_continues_after_a_body_larger_than_the_buffer(n_pipelined):
    """Otherwise nobody would notice that the client of a request that waits for a slot has disconnected."""

    async def receive_requests():
        async def app(scope, receive, send):
            await asyncio.sleep(30)

        config = uvicorn.Config(app, log_config=None)
        config.load()
        connection = connections.Connections(ConnectionLimits()).protocol(config, ServerState(), {})
        transport = MemoryTransport()
        connection.connection_made(transport)
        body = bytes(2**17)
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        connection.data_received(head)
        connection.data_received(body[:-1])
        assert transport.is_paused
        connection.data_received(body[-1:] + n_pipelined * (head + body))
        return transport.is_paused

    assert asyncio.run(receive_requests()) == bool(n_pipelined)

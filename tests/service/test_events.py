"""Server-sent events: every opening and closing reaches every listener, and listeners disturb nobody."""

import contextlib
import json
import socket
import threading
import time

import numpy as np
import pytest

from imondrian.service.client import Client, ServiceError
from imondrian.service.delivery.event_feed import N_IN_MEMORY
from imondrian.service.detectors.registry import Registry
from imondrian.service.http.asgi import create_app
from imondrian.service.limits import ConnectionLimits, Limits
from imondrian.service.storage.incident_log import Announcement
from imondrian.service.storage.sqlite import open_database, rescue
from tests.service.serving import Service, ThreadServer, wait_until
from tests.service.test_incidents import XY, bursts, events_of
from tests.service.test_worker import learn

TOKEN = "a token of the tests"  # noqa: S105


class Listener(threading.Thread):
    """A client that listens to events until it has enough of them."""

    def __init__(self, server, n_events, after=None, **settings):
        super().__init__(daemon=True)
        self._client, self._n_events, self._after = server.client(**settings), n_events, after
        self.events = []

    def run(self):
        for event in self._client.events(self._after):
            self.events.append(event)
            if len(self.events) == self._n_events:
                return


def announce(registry, n, detector=1):
    for _ in range(n):
        one = Announcement(0, "opened", time.time(), {"id": "1-0-0", "detector": "a", "kind": "anomalies"})
        registry.feed.submit(lambda store, one=one: store.events.add(detector, [one])).result()


def listening(registry, n):
    return lambda: len(registry.feed._subscribers) and app_listeners(registry) == n


def app_listeners(registry):
    return next(each for each in registry.feed._subscribers)._n_listeners


def test_every_listener_gets_every_event_in_order(registry):
    with ThreadServer(create_app(registry)) as server:
        handle, _ = registry.create("a", {**XY, "threshold": 0.05})
        listeners = [Listener(server, 6, 0) for _ in range(5)]
        for listener in listeners:
            listener.start()
        for some in np.split(bursts(), 60):
            learn(handle, some)
        for listener in listeners:
            listener.join(30)
            assert not listener.is_alive()
            assert listener.events == events_of(registry)[:6]


def test_new_events_are_sent_at_once_and_old_ones_only_on_request(registry):
    with ThreadServer(create_app(registry)) as server:
        announce(registry, 3)
        listener = Listener(server, 2)
        listener.start()
        wait_until(listening(registry, 1))
        announce(registry, 2)
        listener.join(10)
        assert [each["id"] for each in listener.events] == [4, 5]
        with server.client() as client:
            assert [each["id"] for each in client.events(0, follow=False)] == [1, 2, 3, 4, 5]
            assert [each["id"] for each in client.events(3, follow=False)] == [4, 5]
            assert list(client.events(99, follow=False)) == []
            assert list(client.events(follow=False)) == []


def test_a_listener_continues_after_a_restart_without_missing_an_event(tmp_path):
    service = Service(tmp_path)
    with service, service.client() as client:
        client.create("a", **{**XY, "threshold": 0.05})
        listener = Listener(service, 6, 0, timeout=60.0)
        listener.start()
        client.process("a", bursts()[:200].tolist())
        wait_until(lambda: listener.events)
        service.process.kill()
        service.process.communicate()
        service.start()
        client.process("a", bursts()[200:].tolist())
        listener.join(60)
        ids = [each["id"] for each in listener.events]
        assert ids == list(range(1, 7))


def test_events_are_published_in_order_even_if_a_thread_is_delayed_after_submitting_some(registry, monkeypatch):
    submit, delayed = registry.writer.submit, []

    def slow_submit(operation, *on_done):
        done = submit(operation, *on_done)
        if not delayed:  # this thread loses the processor, and another one stores the next event
            delayed.append(done.result())
            announce(registry, 1)
        return done

    monkeypatch.setattr(registry.writer, "submit", slow_submit)
    announce(registry, 1)
    assert registry.feed.last_id == 2
    assert [event.id for event in registry.feed.after(0)] == [1, 2]
    assert registry.feed.after(2) == []


def test_a_listener_that_has_received_nothing_misses_nothing_across_a_restart(tmp_path):
    registry = Registry(tmp_path)
    announce(registry, 3)
    registry.writer.write(lambda store: store._database.execute("DELETE FROM events"))  # their ids are not used again
    with ThreadServer(create_app(registry)) as server:
        listener = Listener(server, 2)
        listener.start()
        wait_until(listening(registry, 1))
    registry = Registry(tmp_path)
    assert registry.feed.last_id == 3
    announce(registry, 1)
    with ThreadServer(create_app(registry), port=server.port):
        announce(registry, 1)
        listener.join(10)
    assert [each["id"] for each in listener.events] == [4, 5]


def test_a_rescued_folder_does_not_use_ids_again(tmp_path):
    registry = Registry(tmp_path)
    for name in ("a", "b"):
        registry.create(name, XY)
    announce(registry, 3)
    registry.remove("b")
    registry.remove("a")
    registry.close()
    path = tmp_path / "imondrian.db"
    rescue(open_database(path)[0], path).close()
    registry = Registry(tmp_path)
    assert registry.feed.last_id == 4  # three openings, and the closing of the last one with its detector
    handle, _ = registry.create("c", XY)
    assert handle.record.id == 3
    registry.close()


def test_an_event_that_is_cut_off_is_requested_again():
    begin = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nretry: 3000\nid: 3\n\n"
    event = b'id: 4\ndata: {"id": 4}\n\n'
    heads = []

    def serve(listener):
        for content in (begin, *(begin + event[:n] for n in (3, 5, 6, 15, len(event) - 1)), begin + event):
            connection, _ = listener.accept()
            with connection:
                heads.append(connection.recv(4096))
                connection.sendall(content)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        with contextlib.closing(Client(f"http://127.0.0.1:{listener.getsockname()[1]}").events()) as events:
            assert next(events) == {"id": 4}
        thread.join()
    assert b"Last-Event-ID" not in heads[0]
    assert all(b"Last-Event-ID: 3\r\n" in head for head in heads[1:])


def test_the_format_is_that_of_server_sent_events(registry):
    with ThreadServer(create_app(registry)) as server:
        announce(registry, 2)
        status, headers, content = server.request("GET", "/events?follow=false", headers={"Last-Event-ID": "0"})
        assert status == 200
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["cache-control"] == "no-store"
        beginning, first, second, rest = content.decode().split("\n\n")
        assert (beginning, rest) == ("retry: 3000\nid: 0", "")
        for number, block in enumerate((first, second), 1):
            id_, data = block.split("\n")
            assert id_ == f"id: {number}"
            assert json.loads(data.removeprefix("data: "))["id"] == number
        _, _, content = server.request("GET", "/events?follow=false")
        assert content == b"retry: 3000\nid: 2\n\n"  # an id without data: where to continue


@pytest.mark.parametrize("value", ["-1", "x", "1_0", "+1", "1.0", "9" * 16, "٣".encode(), "²".encode("latin-1")])
def test_an_id_consists_of_ascii_digits(registry, value):
    with ThreadServer(create_app(registry)) as server:
        status, _, content = server.request("GET", "/events?follow=false", headers={"Last-Event-ID": value})
        assert status == 422, content
        assert b"last-event-id" in content


def test_an_empty_id_is_the_same_as_none(registry):
    with ThreadServer(create_app(registry)) as server:
        announce(registry, 2)
        for headers in ({}, {"Last-Event-ID": ""}):
            status, _, content = server.request("GET", "/events?follow=false", headers=headers)
            assert (status, content) == (200, b"retry: 3000\nid: 2\n\n")


def test_listeners_need_the_token(registry):
    with ThreadServer(create_app(registry, TOKEN)) as server:
        assert server.request("GET", "/events?follow=false")[0] == 401
        with server.client(token="another token of it") as client, pytest.raises(ServiceError, match="401"):  # noqa: S106
            next(client.events())
        listener = Listener(server, 1, token=TOKEN)
        listener.start()
        wait_until(listening(registry, 1))
        announce(registry, 1)
        listener.join(10)
        assert len(listener.events) == 1


def test_heartbeats_keep_a_quiet_connection_open(registry, monkeypatch):
    monkeypatch.setattr("imondrian.service.http.listeners.HEARTBEAT_SECONDS", 0.1)
    limits = ConnectionLimits(first_seconds=0.5, idle_seconds=0.5, response_seconds=0.5, body_seconds=0.5)
    with ThreadServer(create_app(registry), limits) as server, server.connect() as connection:
        connection.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        connection.settimeout(5.0)
        end, content = time.monotonic() + 3.0, b""  # longer than all time limits
        while time.monotonic() < end:
            received = connection.recv(4096)
            assert received, content
            content += received
        assert content.count(b": still here") > 10
        announce(registry, 1)
        while b"id: 1\n" not in content:
            content += connection.recv(4096)


def test_the_number_of_listeners_is_limited_and_others_are_served(tmp_path):
    registry = Registry(tmp_path, limits=Limits(listeners=3))
    with ThreadServer(create_app(registry)) as server, contextlib.ExitStack() as stack:
        for _ in range(3):
            connection = stack.enter_context(server.connect())
            connection.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
        wait_until(listening(registry, 3))
        status, headers, _ = server.request("GET", "/events")
        assert (status, headers["retry-after"]) == (503, "1")
        assert server.request("GET", "/incidents")[0] == 200
        assert server.request("PUT", "/detectors/a", XY)[0] == 201
        stack.close()
        wait_until(lambda: app_listeners(registry) == 0 or announce(registry, 1))  # noticed at the latest when written
        assert server.request("GET", "/events?follow=false")[0] == 200


def test_of_many_that_begin_at_once_the_surplus_gets_503(tmp_path):
    registry = Registry(tmp_path, limits=Limits(listeners=3))
    with ThreadServer(create_app(registry)) as server, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in range(30)]
        for connection in connections:
            connection.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        heads = [connection.recv(12) for connection in connections]
        assert sorted(heads) == [b"HTTP/1.1 200"] * 3 + [b"HTTP/1.1 503"] * 27


def test_a_listener_that_does_not_read_is_closed_and_disturbs_nobody(tmp_path):
    registry = Registry(tmp_path)
    limits = ConnectionLimits(response_seconds=1.0)
    with ThreadServer(create_app(registry), limits) as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        wait_until(listening(registry, 1))
        long = Announcement(0, "opened", 0.0, {"id": "1-0-0", "kind": "anomalies", "text": "x" * 100_000})
        for _ in range(120):
            registry.feed.submit(lambda store: store.events.add(1, [long])).result()
        wait_until(lambda: app_listeners(registry) == 0)
        assert server.request("GET", "/health")[0] == 200


def test_a_listener_that_falls_behind_continues_with_stored_events(registry):
    n_events = N_IN_MEMORY + 250
    one = Announcement(0, "opened", 0.0, {"id": "1-0-0", "detector": "a", "kind": "anomalies"})
    with ThreadServer(create_app(registry)) as server, server.connect() as connection:
        connection.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        wait_until(listening(registry, 1))
        registry.feed.submit(lambda store: store.events.add(1, [one] * n_events)).result()  # in one transaction
        content = b""
        while f"id: {n_events}\n".encode() not in content:
            received = connection.recv(2**16)
            assert received, content[-1000:]  # the connection stays open
            content += received
    ids = [int(line.removeprefix(b"id: ")) for line in content.split(b"\n") if line.startswith(b"id: ")]
    assert ids == list(range(n_events + 1))


def test_deleted_events_do_not_keep_a_listener_from_later_ones(tmp_path, monkeypatch):
    monkeypatch.setattr("imondrian.service.delivery.event_feed.N_IN_MEMORY", 2)
    registry = Registry(tmp_path)
    announce(registry, 5)
    registry.writer.write(lambda store: store._database.execute("DELETE FROM events"))
    with ThreadServer(create_app(registry)) as server:
        listener = Listener(server, 1, 0)
        listener.start()
        wait_until(listening(registry, 1))
        announce(registry, 1, detector=2)
        listener.join(10)
        assert [each["id"] for each in listener.events] == [6]


@pytest.mark.parametrize("n_damaged", [1, 99, 100, 101, 250])
def test_damaged_events_do_not_hide_later_ones(registry, n_damaged):
    registry._store.events.receivers = ("a key",)
    announce(registry, n_damaged + 3)
    damage = "UPDATE events SET content = '{}' WHERE id <= ?"
    registry.writer.write(lambda store: store._database.execute(damage, (n_damaged,)).rowcount)
    expected = [n_damaged + i for i in (1, 2, 3)]
    stored = registry.writer.write(lambda store: store.events.after(0, 100))
    waiting = registry.writer.write(lambda store: store.events.waiting("a key", 100))
    assert [each.id for each in stored] == [each.id for each in waiting] == expected
    assert registry.writer.write(lambda store: store.events.counts("a key")).n_waiting == 3
    assert len(registry.writer.write(lambda store: store.events.after(0, 2))) == 2
    assert len(registry.writer.write(lambda store: store.events.waiting("a key", 2))) == 2


def test_shutdown_ends_all_listeners_at_once(tmp_path):
    service = Service(tmp_path)
    with service, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(service.connect()) for _ in range(5)]
        for connection in connections:
            connection.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
        began = time.monotonic()
        service.process.terminate()
        for connection in connections:
            while connection.recv(4096):
                pass
        service.process.wait(60)
        assert time.monotonic() - began < ConnectionLimits().grace_seconds  # not cancelled at its end
        assert service.process.returncode == 0

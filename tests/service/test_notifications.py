"""Notifications: each event reaches each receiver at least once, in order, whatever the receiver does."""

import contextlib
import hashlib
import hmac
import json
import shutil
import socket
import sqlite3
import threading
import time

import numpy as np
import pytest

from imondrian.base.errors import InvalidInputError
from imondrian.service.delivery.receivers import _seconds_to_wait, receivers_of, signature
from imondrian.service.detectors.registry import Registry
from imondrian.service.http.asgi import create_app
from imondrian.service.http.metrics import metrics_of
from imondrian.service.limits import Retention
from imondrian.service.storage.event_table import EventTable
from imondrian.service.storage.incident_log import Announcement
from tests.service.receiving import LoopbackReceiver, SelfSignedCertificate
from tests.service.serving import Service, ThreadServer, free_port, wait_until
from tests.service.test_incidents import XY, bursts, events_of
from tests.service.test_worker import learn

QUICK = Retention(retry_seconds=0.02, longest_retry_seconds=0.1)
SECRET = b"a secret of the tests"


def notifying(folder, *urls, secret=None, retention=QUICK):
    return Registry(folder, retention=retention, receivers=receivers_of(urls, secret))


def announce(registry, n=1, detector=1, at=None):
    for i in range(n):
        one = Announcement(
            0, "opened", time.time() if at is None else at, {"id": f"{detector}-0-{i}", "kind": "anomalies"}
        )
        registry.feed.submit(lambda store, one=one: store.events.add(detector, [one])).result()


def metric(registry, name):
    lines = [line for line in metrics_of(registry).splitlines() if line.startswith(f"imondrian_notifications_{name}{{")]
    return [int(line.rpartition(" ")[2]) for line in lines]


def test_every_opening_and_closing_is_sent_to_every_receiver(tmp_path):
    with LoopbackReceiver() as one, LoopbackReceiver() as other:
        registry = notifying(tmp_path, one.url, other.url)
        handle, _ = registry.create("a", {**XY, "threshold": 0.05})
        for some in np.split(bursts(), 60):
            learn(handle, some)
        events = events_of(registry)
        assert len(events) > 5
        for receiver in (one, other):
            wait_until(lambda receiver=receiver: len(receiver.accepted) == len(events))
            assert [each.event for each in receiver.accepted] == events
            assert {each.path for each in receiver.accepted} == {"/hooks?key=secret"}
            assert [each.headers["X-Imondrian-Event"] for each in receiver.accepted] == [str(e["id"]) for e in events]
        wait_until(lambda: metric(registry, "waiting") == [0, 0])
        assert metric(registry, "sent_total") == [len(events)] * 2
        assert "secret" not in metrics_of(registry)
        registry.close()
        with_secret = [path for path in tmp_path.iterdir() if b"key=secret" in path.read_bytes()]
        assert with_secret == []  # an address may contain a password


def test_a_new_receiver_is_notified_although_the_disk_was_full_at_the_start(tmp_path, monkeypatch, caplog):
    def fail(_table, _keys):
        raise sqlite3.OperationalError("database or disk is full")

    notifying(tmp_path).close()
    monkeypatch.setattr(EventTable, "use_receivers", fail)
    with LoopbackReceiver() as receiver:
        registry = notifying(tmp_path, receiver.url)
        assert "disk is full" in caplog.text
        announce(registry)
        wait_until(lambda: receiver.accepted)
        wait_until(lambda: metric(registry, "sent_total") == [1])
        registry.close()


def test_notifications_are_signed(tmp_path):
    with LoopbackReceiver() as receiver:
        registry = notifying(tmp_path, receiver.url, secret=SECRET)
        announce(registry)
        wait_until(lambda: receiver.accepted)
        registry.close()
        (found,) = receiver.accepted
    timestamp = found.headers["X-Imondrian-Timestamp"]
    assert abs(int(timestamp) - time.time()) < 60
    expected = hmac.new(SECRET, timestamp.encode() + b"." + found.body, hashlib.sha256).hexdigest()
    assert found.headers["X-Imondrian-Signature"] == f"sha256={expected}" == signature(SECRET, timestamp, found.body)


def test_without_a_secret_there_is_no_signature(tmp_path):
    with LoopbackReceiver() as receiver:
        registry = notifying(tmp_path, receiver.url)
        announce(registry)
        wait_until(lambda: receiver.accepted)
        registry.close()
        assert "X-Imondrian-Signature" not in receiver.accepted[0].headers


@pytest.mark.parametrize("status", [500, 503, 429, 404, 400, 301, 307])
def test_a_failed_notification_is_sent_again_until_it_is_accepted(tmp_path, status):
    location = {"Location": "http://127.0.0.1:1/elsewhere"}
    with LoopbackReceiver() as receiver:
        receiver.answer = lambda each: (
            (status, location) if sum(r.body == each.body for r in receiver.received) < 4 else 204
        )
        registry = notifying(tmp_path, receiver.url)
        announce(registry, 3)
        wait_until(lambda: len(receiver.accepted) == 3)
        assert receiver.ids() == [1, 2, 3]  # in order
        assert metric(registry, "failed_total")[0] >= 9
        assert all(each.path == "/hooks?key=secret" for each in receiver.received)  # no redirect was followed
        registry.close()


def test_a_refused_notification_delays_only_its_own_detector(tmp_path):
    with LoopbackReceiver(lambda each: 400 if each.event["incident"]["id"].startswith("1-") else 200) as receiver:
        registry = notifying(tmp_path, receiver.url)
        announce(registry, 150, detector=1)
        announce(registry, 3, detector=2)
        wait_until(lambda: len(receiver.accepted) == 3)
        assert {each.event["incident"]["id"] for each in receiver.accepted} == {"2-0-0", "2-0-1", "2-0-2"}
        refused = [each.event["id"] for each in receiver.received if each.event["incident"]["id"].startswith("1-")]
        assert set(refused) == {1}  # those after it wait
        receiver.answer = lambda _: 200
        wait_until(lambda: len(receiver.accepted) == 153)
        ids = [each.event["id"] for each in receiver.accepted if each.event["incident"]["id"].startswith("1-")]
        assert ids == sorted(ids)
        registry.close()


def test_retry_after_is_respected(tmp_path):
    with LoopbackReceiver() as receiver:
        receiver.answer = lambda _: (429, {"Retry-After": "1"}) if len(receiver.received) == 1 else 200
        registry = notifying(tmp_path, receiver.url)
        announce(registry)
        wait_until(lambda: receiver.accepted)
        first, second = receiver.received
        assert second.time - first.time >= 1.0
        registry.close()


def test_waiting_times(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 784111777.0)  # 1994-11-06 08:49:37
    assert _seconds_to_wait("120") == 120.0
    assert _seconds_to_wait("Sun, 06 Nov 1994 08:50:37 GMT") == 60.0
    assert _seconds_to_wait("Sun, 06 Nov 1994 08:48:37 GMT") == 0.0
    assert _seconds_to_wait("99999999") == 3600.0
    assert [_seconds_to_wait(text) for text in ("", "soon", "-1", "1e3", "²")] == [0.0] * 5


def test_the_wait_doubles_up_to_a_limit_with_jitter(tmp_path):
    registry = notifying(tmp_path, f"http://127.0.0.1:{free_port()}/", retention=Retention())
    channel, waits = registry.notifier.channels[0], []
    backoff = channel._backoff
    for _ in range(14):
        backoff = channel._longer(backoff, 0.0)
        waits.append(backoff.until - time.monotonic())
    limits = [min(2.0**i, 300.0) for i in range(14)]
    assert all(0.49 * limit < wait <= limit for wait, limit in zip(waits, limits, strict=True))
    assert channel._longer(backoff, 1000.0).until - time.monotonic() > 999.0
    registry.close()


def test_a_receiver_that_hangs_delays_neither_points_nor_other_receivers_nor_the_shutdown(tmp_path):
    with LoopbackReceiver(lambda _: None) as hanging, LoopbackReceiver() as good:
        registry = notifying(tmp_path, hanging.url, good.url)
        handle, _ = registry.create("a", XY)
        learn(handle, bursts()[:100])
        wait_until(lambda: hanging.received and good.accepted)
        learn(handle, bursts()[100:])
        wait_until(lambda: len(good.accepted) == len(events_of(registry)))
        assert hanging.accepted == []
        began = time.monotonic()
        registry.close()
        assert time.monotonic() - began < 10.0


def test_a_receiver_that_hangs_is_given_up_after_a_time_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("imondrian.service.delivery.receivers.READ_SECONDS", 0.2)
    with LoopbackReceiver() as receiver:
        receiver.answer = lambda _: None if len(receiver.received) < 3 else 200
        registry = notifying(tmp_path, receiver.url)
        announce(registry)
        wait_until(lambda: receiver.accepted)
        registry.close()


def test_a_receiver_that_answers_byte_by_byte_is_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr("imondrian.service.delivery.receivers.TOTAL_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10.0)
        registry = notifying(tmp_path, f"http://127.0.0.1:{listener.getsockname()[1]}/")
        announce(registry)
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):  # reset or broken pipe
            for _ in range(200):
                connection.sendall(b"H")
                time.sleep(0.05)
            pytest.fail("the attempt was not ended")
        wait_until(lambda: metric(registry, "failed_total")[0] >= 1)
        registry.close()


def test_what_was_not_delivered_is_delivered_after_a_restart(tmp_path):
    port = free_port()
    url = f"http://127.0.0.1:{port}/hooks?key=secret"
    registry = notifying(tmp_path, url)
    announce(registry, 5)
    wait_until(lambda: metric(registry, "failed_total")[0] > 3)
    assert metric(registry, "waiting") == [5]
    assert any("Notifications to http://127.0.0.1" in text for text in registry.notifier.problems())
    registry.close()
    with LoopbackReceiver(port=port) as receiver:
        registry = notifying(tmp_path, url)
        wait_until(lambda: len(receiver.accepted) == 5)
        assert receiver.ids() == [1, 2, 3, 4, 5]
        wait_until(lambda: metric(registry, "waiting") == [0])
        assert registry.notifier.problems() == []
        registry.close()
        registry = notifying(tmp_path, url)
        assert metric(registry, "sent_total") == [5]
        registry.close()
        assert len(receiver.received) == 5


# -- TLS ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    return SelfSignedCertificate(tmp_path_factory.mktemp("certificate"), "IP:127.0.0.1")


def test_a_receiver_with_an_untrusted_certificate_gets_nothing_until_it_is_trusted(tmp_path, certificate, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with LoopbackReceiver(certificate=certificate) as receiver:
        registry = notifying(tmp_path, receiver.url, secret=SECRET)
        announce(registry, 3)
        wait_until(lambda: metric(registry, "failed_total")[0] > 3)  # it is tried again
        assert (metric(registry, "waiting"), metric(registry, "given_up_total")) == ([3], [0])
        with ThreadServer(create_app(registry)) as server:
            (problem,) = json.loads(server.request("GET", "/health")[2])["problems"]
        assert f"Notifications to https://127.0.0.1:{receiver.port} fail" in problem
        assert "CERTIFICATE_VERIFY_FAILED" in problem
        assert receiver.received == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
        registry = notifying(tmp_path, receiver.url, secret=SECRET)
        wait_until(lambda: receiver.ids() == [1, 2, 3])
        wait_until(lambda: metric(registry, "waiting") == [0])
        assert registry.notifier.problems() == []
        registry.close()
        assert all(each.headers["X-Imondrian-Signature"].startswith("sha256=") for each in receiver.accepted)


def test_a_trusted_certificate_of_another_host_is_refused(tmp_path, certificate, monkeypatch):
    other = SelfSignedCertificate(tmp_path, "DNS:receiver.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(other.path))
    with LoopbackReceiver(certificate=other) as receiver:
        registry = notifying(tmp_path / "data", receiver.url)
        announce(registry)
        wait_until(lambda: metric(registry, "failed_total")[0] > 3)
        assert any("not valid for '127.0.0.1'" in text for text in registry.notifier.problems())
        assert receiver.received == []
        registry.close()


def test_the_command_line_notifies_over_tls(tmp_path, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
    with LoopbackReceiver(certificate=certificate) as receiver:
        with Service(tmp_path, "--notify", receiver.url) as service, service.client() as client:
            client.create("a", **XY)
            client.process("a", bursts()[:150].tolist())
            wait_until(lambda: len(receiver.accepted) == 2)
        assert f"incidents are reported to https://127.0.0.1:{receiver.port}" in service.output


def test_what_waits_for_a_receiver_is_sent_after_the_detector_was_removed(tmp_path):
    is_up = threading.Event()
    with LoopbackReceiver(lambda _notification: 200 if is_up.is_set() else 503) as receiver:
        registry = notifying(tmp_path, receiver.url)
        handle, _ = registry.create("a", {**XY, "threshold": 0.05})
        for some in np.split(bursts(), 60):
            learn(handle, some)
        events = events_of(registry)
        assert {event["event"] for event in events} == {"opened", "closed"}
        registry.remove("a")
        assert events_of(registry)[: len(events)] == events
        is_up.set()
        wait_until(lambda: metric(registry, "waiting") == [0])
        assert [each.event for each in receiver.accepted][: len(events)] == events
        registry.close()


def test_notifications_that_fail_for_too_long_are_given_up_and_said_so(tmp_path):
    with LoopbackReceiver(lambda notification: 200 if notification.event["id"] == 3 else 503) as receiver:
        registry = notifying(tmp_path, receiver.url, retention=QUICK._replace(notification_seconds=0.5))
        announce(registry, 3)
        wait_until(lambda: metric(registry, "given_up_total") == [2])
        wait_until(lambda: metric(registry, "sent_total") == [1])
        assert [each.event["id"] for each in receiver.received[:2]] == [1, 1]
        assert [each.event["id"] for each in receiver.accepted] == [3]
        with ThreadServer(create_app(registry)) as server:
            status, _, content = server.request("GET", "/health")
            assert status == 200  # the detectors work
            assert "2 notifications were given up" in json.loads(content)["problems"][0]


def test_a_clock_that_is_set_forward_gives_up_no_notification(tmp_path):
    is_up = threading.Event()
    with LoopbackReceiver(lambda _notification: 200 if is_up.is_set() else 503) as receiver:
        registry = notifying(tmp_path, receiver.url)
        announce(registry, 2, at=time.time() - 90_000.0)  # more than a day
        wait_until(lambda: metric(registry, "failed_total")[0] > 3)
        is_up.set()
        wait_until(lambda: metric(registry, "sent_total") == [2])
        assert (metric(registry, "given_up_total"), metric(registry, "waiting")) == ([0], [0])
        registry.close()


def test_the_oldest_are_given_up_if_too_many_wait(tmp_path, monkeypatch):
    monkeypatch.setattr("imondrian.service.storage.event_table.N_EVENTS_KEPT", 10)
    registry = notifying(tmp_path, f"http://127.0.0.1:{free_port()}/")
    announce(registry, 25)
    wait_until(lambda: (metric(registry, "waiting"), metric(registry, "given_up_total")) == ([10], [15]))
    registry.close()


def test_a_receiver_that_is_no_longer_given_is_forgotten(tmp_path):
    url = f"http://127.0.0.1:{free_port()}/"
    registry = notifying(tmp_path, url)
    announce(registry, 3)
    registry.close()
    registry = notifying(tmp_path)
    assert "notifications" not in metrics_of(registry)
    announce(registry, 1)
    registry.close()
    with LoopbackReceiver() as receiver:
        registry = notifying(tmp_path, receiver.url)
        announce(registry, 1)
        wait_until(lambda: receiver.ids() == [5])  # only events since it is known
        registry.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "ftp://example.org/",
        "file:///etc/passwd",
        "http://",
        "http://user:password@example.org/",
        "http://example.org:99999/",
        "http://example.org/a b",
        "http://example.org/\r\nX: y",
        "http://exämple.org/",
        "http://example.org/#part",
        "http://example.org/" + "x" * 3000,
    ],
)
def test_invalid_receivers_are_refused(url):
    with pytest.raises(InvalidInputError, match="receiver of notifications"):
        receivers_of([url])


def test_receivers_are_labelled_without_secrets():
    receivers = receivers_of(["https://example.org/a?token=1", "https://example.org/b?token=2", "http://[::1]:9/x"])
    assert [each.label for each in receivers] == ["https://example.org", "https://example.org (2)", "http://[::1]:9"]
    with pytest.raises(InvalidInputError, match="twice"):
        receivers_of(["http://a/b", "http://a/b"])


def test_the_command_line_notifies(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    with LoopbackReceiver() as receiver:
        options = ("--notify", receiver.url, "--notify-secret-file", str(secret))
        with Service(tmp_path / "data", *options) as service, service.client() as client:
            client.create("a", **XY)
            client.process("a", bursts()[:150].tolist())
            wait_until(lambda: len(receiver.accepted) == 2)
        assert [each.event["event"] for each in receiver.accepted] == ["opened", "closed"]
        assert all(each.headers["X-Imondrian-Signature"].startswith("sha256=") for each in receiver.accepted)
        assert "key=secret" not in service.output
        assert f"incidents are reported to http://127.0.0.1:{receiver.port}" in service.output

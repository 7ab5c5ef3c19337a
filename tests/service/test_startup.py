"""While the detectors are recovered, requests get 503 at once; then the application receives them."""

import json
import subprocess
import threading
import time

import pytest

from imondrian.service.client import Client
from imondrian.service.detectors.registry import Registry
from imondrian.service.http import startup
from imondrian.service.http.asgi import create_app
from imondrian.service.http.startup import StartingApp
from tests.service.serving import SMALL, Service, ThreadServer, wait_until

XY = {"features": ["x", "y"], **SMALL}


class SlowStart:
    """An application that is made when the test allows it."""

    def __init__(self, folder):
        self.calls, self.may_go_on = [], threading.Event()
        self.registry = Registry(folder)
        self.app = StartingApp(
            self._make,
            lambda: self.calls.append("wait"),
            lambda: self.calls.append("ready"),
            lambda: self.calls.append("failure"),
        )

    def _make(self):
        assert self.may_go_on.wait(60)
        return create_app(self.registry)


@pytest.fixture
def slow(tmp_path, monkeypatch):
    monkeypatch.setattr(startup, "_SECONDS", 0.05)
    return SlowStart(tmp_path)


class StartingServer(ThreadServer):
    """A server that is used before it is ready."""

    def wait_until_ready(self):
        wait_until(self._responds)
        return self

    def _responds(self):
        try:
            self.request("GET", "/health")
        except OSError:
            return False
        return True


def test_requests_get_503_until_the_application_is_ready(slow):
    with StartingServer(slow.app) as server:
        status, headers, content = server.request("GET", "/health")
        assert (status, headers["retry-after"], json.loads(content)["status"]) == (503, "1", "starting")
        assert headers["x-frame-options"] == "DENY"
        assert server.request("GET", "/")[1]["refresh"] == "1"
        status, _, content = server.request("PUT", "/detectors/a", XY)
        assert (status, json.loads(content)["detail"]) == (503, "The service is starting.")
        wait_until(lambda: "wait" in slow.calls)
        slow.may_go_on.set()
        wait_until(lambda: "ready" in slow.calls)
        assert server.request("GET", "/health")[0] == 200
        assert server.request("PUT", "/detectors/a", XY)[0] == 201
    assert slow.calls[-1] == "ready"


def test_a_client_waits_until_the_service_is_ready(slow):
    with StartingServer(slow.app) as server:
        threading.Timer(0.5, slow.may_go_on.set).start()
        with Client(server.address) as client:
            client.create("a", ["x", "y"], **SMALL)
            assert client.describe("a")["n_seen"] == 0


def test_a_shutdown_does_not_wait_for_the_start(slow):
    start = time.monotonic()
    with StartingServer(slow.app):
        pass
    assert slow.calls.count("ready") == 0
    assert time.monotonic() - start < 30  # without this, the test would wait for 60 seconds
    slow.may_go_on.set()


def test_the_application_is_closed_if_it_is_ready_at_the_time_of_the_shutdown(slow, tmp_path):
    slow.may_go_on.set()
    with StartingServer(slow.app):
        wait_until(lambda: "ready" in slow.calls)
    Registry(tmp_path).close()  # the folder is free


def test_a_failure_is_kept_for_the_caller():
    def fail():
        raise ValueError("damaged")

    calls = []
    app = StartingApp(fail, lambda: None, lambda: calls.append("ready"), lambda: calls.append("failure"))
    with StartingServer(app):
        wait_until(lambda: calls)
    assert calls == ["failure"]
    assert isinstance(app.error, ValueError)


def test_recovery_is_reported_detector_by_detector(tmp_path):
    registry, lines = Registry(tmp_path), []
    for name in ("a", "b"):
        registry.create(name, XY)
    registry.close()
    Registry(tmp_path, report=lines.append).close()
    assert lines == ["recovering detector 1 of 2, 'a'", "recovering detector 2 of 2, 'b'"]


def test_a_signal_during_a_long_recovery_ends_the_service(tmp_path):
    """The journal of 30,000 rows takes seconds to replay; the service ends before that, and nothing is lost."""
    with Service(tmp_path) as service:
        service.request("PUT", "/detectors/a", {"features": ["x"], **SMALL})
        points = {"points": [[i % 17] for i in range(30_000)]}
        assert service.request("POST", "/detectors/a/points", points)[0] == 200
        service.process.kill()
        service.process.communicate(timeout=60)
    process = subprocess.Popen(service.command(), stderr=subprocess.PIPE, text=True)
    wait_until(lambda: responds(service))
    process.terminate()
    output = process.communicate(timeout=60)[1]
    assert (process.returncode, "Traceback" in output) == (0, False), output
    with Service(tmp_path) as again:
        assert json.loads(again.request("GET", "/detectors/a")[2])["n_seen"] == 30_000


def responds(service):
    try:
        service.request("GET", "/health")
    except OSError:
        return False
    return True

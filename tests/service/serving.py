"""Services on loopback for tests: in another process, or in a thread of this one."""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import uvicorn

from imondrian.service.client import Client
from imondrian.service.http.server import uvicorn_config
from imondrian.service.limits import ConnectionLimits

SMALL = {"window": 128, "max_samples": 32, "n_trees": 10, "warm_up": 50, "threshold": 0.02}
TRIES = 600  # one every tenth of a second


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def wait_until(condition):
    """Wait for up to ten seconds until a condition holds."""
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("the condition did not become true")


class LoopbackServer:
    """A server on a port of loopback."""

    port: int

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    def client(self, **settings):
        return Client(self.address, **settings)

    def request(self, method, path, body=None, headers=None):
        """Send a request, and return status, headers and content."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            content = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
            connection.request(method, path, content, headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def wait_until_ready(self):
        for _ in range(TRIES):
            self.check()
            try:
                if b"starting" not in self.request("GET", "/health")[2]:
                    return self
            except OSError:
                pass
            time.sleep(0.1)
        raise AssertionError("the service does not respond")

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def check(self):
        """Raise if the service has ended."""


class Service(LoopbackServer):
    """`imondrian serve` in a folder, as a user starts it."""

    def __init__(self, folder, *options, token=None):
        self.folder, self.token, self.port = Path(folder), token, free_port()
        self._options, self.process, self.output = options, None, ""

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def start(self):
        environment = {name: value for name, value in os.environ.items() if name != "IMONDRIAN_TOKEN"}
        environment |= {} if self.token is None else {"IMONDRIAN_TOKEN": self.token}
        self.process = subprocess.Popen(
            self.command(), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return self.wait_until_ready()

    def command(self):
        command = [sys.executable, "-m", "imondrian", "serve", "--data", str(self.folder), "--port", str(self.port)]
        return [*command, *self._options]

    def stop(self):
        self.process.terminate()
        self.output = self.process.communicate(timeout=60)[0]

    def client(self, **settings):
        return super().client(token=self.token, **settings)

    def check(self):
        assert self.process.poll() is None, self.process.stdout.read()


class ThreadServer(LoopbackServer):
    """An application served by a thread of this process, so that tests can access its objects."""

    def __init__(self, app, limits=None, port=None):
        self.port = port or free_port()
        self._server = uvicorn.Server(
            uvicorn_config(app, limits or ConnectionLimits(), port=self.port, log_level="critical")
        )
        self._thread = threading.Thread(target=self._server.run)

    def __enter__(self):
        self._thread.start()
        return self.wait_until_ready()

    def __exit__(self, *_):
        self._server.should_exit = True
        self._thread.join(60)

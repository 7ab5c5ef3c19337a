"""Fixtures: tests connect only to this machine and leave no files on it."""

import socket
import threading
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from imondrian.datasets.catalogue import CATALOGUE, MIXED, Entry
from imondrian.datasets.content import checksum

POINTS = np.random.default_rng(3).normal(size=(20, 3))
LABELS = (np.arange(20) % 5 == 0).astype(np.uint8)
MADE_UP = Entry(
    name="made-up",
    title="Made up",
    n_rows=20,
    n_features=3,
    n_anomalies=4,
    anomalies="every fifth row",
    order=MIXED,
    file="made/up",
    collection="ODDS",
    page="http://example.invalid/made-up",
    checksum=checksum(POINTS, LABELS),
)


@pytest.fixture(autouse=True)
def isolated(tmp_path_factory, monkeypatch):
    """Unset the data folder, set an empty cache folder, and refuse connections to other machines."""
    connect = socket.create_connection

    def connect_locally(address, *arguments, **options):
        assert address[0] == "127.0.0.1", f"a test tried to connect to {address}"
        return connect(address, *arguments, **options)

    monkeypatch.setattr(socket, "create_connection", connect_locally)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("IMONDRIAN_DATA", raising=False)
    monkeypatch.setenv("IMONDRIAN_CACHE", str(tmp_path_factory.mktemp("home") / "cache"))


@pytest.fixture
def made_up(monkeypatch):
    """A function that adds a made-up data set, with changes, to the catalogue."""

    def add(**changes):
        entry = replace(MADE_UP, **changes)
        monkeypatch.setitem(CATALOGUE, entry.name, entry)
        return entry

    return add


class Site:
    """An HTTP server on this machine; each path has its own handler."""

    def __init__(self):
        self.handlers = {}
        self.requested = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                site.requested.append(self.path)
                with suppress(ConnectionError):  # the client may have disconnected
                    site.handlers[self.path](self)

            def log_message(self, *_arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def serve(self, path, body=b"", status=200, length=None, **headers):
        """Serve a body at a path and return its URL; `length` overrides the declared Content-Length."""

        def respond(handler):
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(body) if length is None else length))
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(body)

        self.handlers[path] = respond
        return self.address + path

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


@pytest.fixture
def site():
    """An HTTP server on this machine."""
    site = Site()
    yield site
    site.close()

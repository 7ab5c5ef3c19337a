"""No test reaches beyond this machine, or leaves anything on it."""

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
def alone(tmp_path_factory, monkeypatch):
    """Take away the folder of data, give an empty cache, and refuse connections to other machines."""
    connect = socket.create_connection

    def connect_here(address, *arguments, **options):
        assert address[0] == "127.0.0.1", f"a test asked for {address}"
        return connect(address, *arguments, **options)

    monkeypatch.setattr(socket, "create_connection", connect_here)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("IMONDRIAN_DATA", raising=False)
    monkeypatch.setenv("IMONDRIAN_CACHE", str(tmp_path_factory.mktemp("home") / "cache"))


@pytest.fixture
def made_up(monkeypatch):
    """Give a function that enters a made-up data set, with changes, into the catalogue."""

    def enter(**changes):
        entry = replace(MADE_UP, **changes)
        monkeypatch.setitem(CATALOGUE, entry.name, entry)
        return entry

    return enter


class Site:
    """A server on this machine: a path is answered by the function entered for it."""

    def __init__(self):
        self.answers = {}
        self.asked = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                site.asked.append(self.path)
                with suppress(ConnectionError):  # the other side may have had enough
                    site.answers[self.path](self)

            def log_message(self, *_arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def answer(self, path, body=b"", status=200, length=None, **headers):
        """Answer a path by a body; `length` is the one that is announced, if it is another."""

        def respond(handler):
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(body) if length is None else length))
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(body)

        self.answers[path] = respond
        return self.address + path

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


@pytest.fixture
def site():
    """Give a server on this machine."""
    site = Site()
    yield site
    site.close()

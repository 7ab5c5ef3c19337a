"""Durable points per second of the service over HTTP, beside the same detector called directly in the same run.

Single points are sent from 32 connections, and blocks of 1,000 points from one and from two connections. The
measurements alternate several times; the medians are printed. The clients run on the same machine and use part of its
processors. CPU times are printed as well, because they depend less on other work on the machine: a block passes through
four threads, each of which waits for a processor.

    python benchmarks/service.py [seconds]
"""

import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from imondrian import StreamDetector

N_FEATURES, N_BLOCK, N_CONNECTIONS, N_ROUNDS = 10, 1_000, 32, 5
X = np.random.default_rng(0).normal(size=(20 * N_BLOCK, N_FEATURES))


@contextmanager
def running_service(folder: str) -> Iterator[tuple[int, int]]:
    """Run the service, and yield its port and process id."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "imondrian", "serve", "--data", folder, "--port", str(port)]
    process = subprocess.Popen(command)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health").read()
                break
            except OSError:
                time.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def cpu_seconds(process: int) -> np.ndarray:
    """Return the CPU seconds of the event loop (the first thread of a process) and of all other threads."""
    seconds = np.zeros(2)
    for thread in Path(f"/proc/{process}/task").glob("*"):
        user, system = (thread / "stat").read_text().rsplit(")", 1)[1].split()[11:13]
        seconds[int(int(thread.name) != process)] += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return seconds


def cpu_of_posts(process: int, port: int, requests: list[bytes], n_connections: int, seconds: float) -> np.ndarray:
    """Return the CPU seconds for one request: of the event loop, of the other threads, and of the client."""
    before, client = cpu_seconds(process), time.process_time()
    n_posts = load(port, requests, n_connections, seconds) * seconds
    return np.array([*(cpu_seconds(process) - before), time.process_time() - client]) / n_posts


def request(method: str, path: str, content: object) -> bytes:
    """Return an HTTP request as bytes."""
    body = json.dumps(content, ensure_ascii=False).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    return head.encode() + b"\r\n\r\n" + body


def load(port: int, requests: list[bytes], n_connections: int, seconds: float) -> float:
    """Send requests from several connections, each after the previous response; return the responses per second."""
    selector, n_done, started = selectors.DefaultSelector(), 0, time.perf_counter()
    for _ in range(n_connections):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ, bytearray())
        connection.sendall(requests[n_done % len(requests)])
    while (now := time.perf_counter()) - started < seconds:
        for key, _ in selector.select(1.0):
            received = key.data
            received += key.fileobj.recv(2**18)
            if is_complete(received):
                n_done += 1
                received.clear()
                key.fileobj.sendall(requests[n_done % len(requests)])
    for key in list(selector.get_map().values()):
        key.fileobj.close()
    return n_done / (now - started)


def is_complete(received: bytearray) -> bool:
    """Return True if the complete response has arrived."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return False
    if not received.startswith(b"HTTP/1.1 200"):
        raise SystemExit(received.decode())
    first = received.find(b"content-length: ") + 16
    return len(received) >= end + 4 + int(received[first : received.find(b"\r", first)])


def main() -> None:
    """Measure alternately, and print the medians."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    singles = [request("POST", "/detectors/a/points", {"points": [row.tolist()]}) for row in X[:1000]]
    blocks = [
        request("POST", "/detectors/b/points", {"points": rows.tolist()}) for rows in X.reshape(-1, N_BLOCK, N_FEATURES)
    ]
    detector = StreamDetector(N_FEATURES)  # with the default settings, like the detectors of the service

    def direct() -> float:
        n_done, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            detector.process_many(X[(n_done * N_BLOCK) % len(X) :][:N_BLOCK])
            n_done += 1
        return N_BLOCK * n_done / (time.perf_counter() - started)

    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("IMONDRIAN_BENCH")) as folder,
        running_service(folder) as (port, process),
    ):
        for name in ("a", "b"):
            configuration = json.dumps({"features": [f"x{i}" for i in range(N_FEATURES)]}).encode()
            address, headers = f"http://127.0.0.1:{port}/detectors/{name}", {"Content-Type": "application/json"}
            urllib.request.urlopen(urllib.request.Request(address, configuration, headers, method="PUT"))
        runs = {
            "process_many called directly, blocks of 1,000": direct,
            "single points, 32 connections": lambda: load(port, singles, N_CONNECTIONS, seconds),
            "blocks of 1,000, 1 connection": lambda: N_BLOCK * load(port, blocks, 1, seconds),
            "blocks of 1,000, 2 connections": lambda: N_BLOCK * load(port, blocks, 2, seconds),
        }
        for run in runs.values():  # compile, and fill the windows
            run()
        found = [{name: run() for name, run in runs.items()} for _ in range(N_ROUNDS)]
        single = cpu_of_posts(process, port, singles, N_CONNECTIONS, seconds)
        block = cpu_of_posts(process, port, blocks, 1, seconds)
        before = time.process_time()
        n_blocks = direct() * seconds / N_BLOCK
        directly = (time.process_time() - before) / n_blocks
    for name in runs:
        rates = [each[name] for each in found]
        shares = [each[name] / next(iter(each.values())) for each in found]
        print(f"{name:46} {statistics.median(rates):8.0f} points/s   {statistics.median(shares):5.2f} of process_many")
    for name, (loop, others, client) in {"single point": 1e6 * single, "block": 1e6 * block}.items():
        print(f"CPU time for a {name}: event loop {loop:.0f} us, other threads {others:.0f} us, client {client:.0f} us")
    print(
        f"CPU time for a block, process_many called directly: {1e6 * directly:.0f} us,"
        f" {directly / block[:2].sum():.2f} of that of the service"
    )


if __name__ == "__main__":
    main()

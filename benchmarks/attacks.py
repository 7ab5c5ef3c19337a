"""Memory of the service, and the latency of `/health`, under attack.

Each attack runs against its own service, while a separate process requests `/health` every few milliseconds.

    python benchmarks/attacks.py [words in the names of the attacks to run]
"""

import gc
import multiprocessing
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from service import request, running_service

SECONDS, PAUSE = 15.0, 0.005  # duration of an attack; pause between two requests
MIB = 2**20
HEAD = (
    b"POST /detectors/a/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


class Attack(NamedTuple):
    """What the clients do, and the detector that they attack."""

    name: str
    run: Callable[[int], None]  # called with the port of the service
    is_large: bool = False  # attacks a large detector
    n_features: int = 2
    feature: str = "x"  # how the names of the features begin
    n_detectors: int = 1  # the first is attacked


def connect(port: int) -> socket.socket:
    """Connect to the service."""
    return socket.create_connection(("127.0.0.1", port), timeout=SECONDS)


def send(port: int, parts: list[bytes], end: float) -> None:
    """Send the parts until the service refuses them or the time is over, and read the response."""
    with suppress(OSError), connect(port) as connection:
        for part in parts:
            connection.sendall(part)
            if time.monotonic() > end:
                return
        while connection.recv(MIB):
            pass


def in_threads(n: int, function: Callable[[], None]) -> None:
    """Run a function in n threads."""
    threads = [threading.Thread(target=function, daemon=True) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)


def heads(port: int) -> None:
    """Send many header lines, a long header and a long URL, one request after the other."""
    end = time.monotonic() + SECONDS
    send(port, [b"GET / HTTP/1.1\r\n", *[b"a: b\r\n" * 10_000] * 1_700], end)
    send(port, [b"GET / HTTP/1.1\r\na: ", *[b"b" * MIB] * 100], end)
    send(port, [b"GET /", *[b"b" * MIB] * 200], end)


def unread(port: int) -> None:
    """Send 100 MB of requests without reading the responses."""
    small = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with suppress(OSError), connect(port) as connection:
        connection.settimeout(3.0)
        for _ in range(100):
            connection.sendall(small * (MIB // len(small)))


def stalled(n: int, parts: list[bytes]) -> Callable[[int], None]:
    """Send the parts from n connections, then send nothing more."""

    def run(port: int) -> None:
        end = time.monotonic() + SECONDS
        with ExitStack() as stack:
            for _ in range(n):
                with suppress(OSError):
                    connection = stack.enter_context(connect(port))
                    for part in parts:
                        connection.sendall(part)
                if time.monotonic() > end:
                    break
            time.sleep(max(end - time.monotonic(), 0))

    return run


def bodies(n: int, path: bytes, part: bytes) -> Callable[[int], None]:
    """Send n bodies of 32 MiB at once, and read the responses."""
    body = b'{"points":[' + part * (32 * MIB // len(part) - 10) + part[:-1] + b"]}"

    def run(port: int) -> None:
        in_threads(n, lambda: send(port, [HEAD % (path, len(body)), body], time.monotonic() + SECONDS))

    return run


def readers(n: int, path: str) -> Callable[[int], None]:
    """Request a path repeatedly from n connections, and read the responses."""

    def read(port: int) -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as response:
                response.read()

    return lambda port: in_threads(n, lambda: read(port))


def explainers(n: int, n_points: int, n_features: int) -> Callable[[int], None]:
    """Request explanations of points from n connections, again and again, and read the responses."""
    points = np.random.default_rng(0).normal(size=(n_points, n_features)).tolist()
    message = request("POST", "/detectors/a/explanations", {"points": points})
    message = message.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)

    def explain(port: int) -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            send(port, [message], end)

    return lambda port: in_threads(n, lambda: explain(port))


LONG_NAME = "\N{EVERGREEN TREE}" * 250
ATTACKS = (
    Attack("nothing", lambda _: time.sleep(SECONDS / 3)),
    Attack("100 MB of header lines, one header of 100 MB, or a URL of 200 MB", heads),
    Attack("100 MB of small requests, without reading a response", unread),
    Attack(
        "1,000 connections with 32,000 bytes of a head each", stalled(1_000, [b"GET / HTTP/1.1\r\na: " + b"b" * 32_000])
    ),
    Attack(
        "900 posts of 30 MB, of which 500 kB arrive", stalled(900, [HEAD % (b"points", 30_000_000), b"[" * 500_000])
    ),
    Attack("six bodies of 32 MiB of `[],`", bodies(6, b"points", b"[],")),
    Attack("four bodies of 32 MiB of `1,` for 1,000 features", bodies(4, b"points", b"1,"), n_features=1_000),
    Attack(
        "eight models of 260 MB, of which 250 MB arrive",
        stalled(8, [(HEAD % (b"model", 260_000_000)).replace(b"POST", b"PUT"), *[b"x" * 10**6] * 250]),
    ),
    Attack(
        "40 readers of `history/{index}` of a large detector", readers(40, "/detectors/a/history/1999"), is_large=True
    ),
    Attack(
        "20 clients that request its model and do not read it",
        stalled(20, [b"GET /detectors/a/model HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]),
        is_large=True,
    ),
    Attack("1,100 idle connections", stalled(1_100, [])),
    Attack(
        "ten clients that explain 100 points of 1,000 features, again and again",
        explainers(10, 100, 1_000),
        n_features=1_000,
    ),
    Attack(
        "ten clients that explain 16 points of 1,000 features with names of 1 kB",
        explainers(10, 16, 1_000),
        n_features=1_000,
        feature=LONG_NAME,
    ),
    Attack(
        "four readers of the list of 300 detectors with such names",
        readers(4, "/detectors"),
        n_features=1_000,
        feature=LONG_NAME,
        n_detectors=300,
    ),
)


def probe(port: int, ended: "multiprocessing.synchronize.Event", results: "multiprocessing.Queue[list[float]]") -> None:
    """Request `/health` until the attack has ended, and put the latencies in seconds into the queue."""
    gc.disable()  # pauses of the garbage collector (100 ms) would count as latency of the service
    latencies = []
    while not ended.is_set():
        start = time.perf_counter()
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as response:
            response.read()
        latencies.append(time.perf_counter() - start)
        time.sleep(PAUSE)
    results.put(latencies[1:])  # the first one includes the start of this process


def memory(process: int, field: str) -> float:
    """Return a field of the status of a process in MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def prepare(port: int, attack: Attack) -> None:
    """Create the detectors, and let the first learn some points."""
    sizes = {"window": 10_000, "max_samples": 1_024, "n_trees": 200} if attack.is_large else {"n_trees": 10}
    sizes = {"window": 16, "max_samples": 8, "n_trees": 1} if attack.n_detectors > 1 else sizes
    n_features = 20 if attack.is_large else attack.n_features
    created = {"features": [f"{attack.feature}{i}" for i in range(n_features)], **sizes}
    others = [("PUT", f"/detectors/a{i}", created) for i in range(1, attack.n_detectors)]
    n_rows = 2_000 if attack.is_large else 20
    points = np.random.default_rng(0).normal(size=(n_rows, n_features)).tolist()
    first = ("PUT", "/detectors/a", created), ("POST", "/detectors/a/points", {"points": points})
    for method, path, body in (*first, *others):
        with connect(port) as connection:
            connection.sendall(request(method, path, body))
            status = connection.recv(MIB).split(b"\r\n", 1)[0]
            if b" 20" not in status:
                raise SystemExit(f"{method} {path}: {status.decode()}")


def measure(attack: Attack) -> tuple[float, float, list[float]]:
    """Return the memory before the attack, its peak, and the latencies of `/health`."""
    with tempfile.TemporaryDirectory() as folder, running_service(folder) as (port, process):
        prepare(port, attack)
        before = memory(process, "VmRSS")
        ended = multiprocessing.Event()
        results: multiprocessing.Queue[list[float]] = multiprocessing.Queue()
        prober = multiprocessing.Process(target=probe, args=(port, ended, results))
        prober.start()
        attacker = multiprocessing.Process(target=attack.run, args=(port,))
        attacker.start()
        attacker.join()
        ended.set()
        latencies = results.get()
        prober.join()
        return before, memory(process, "VmHWM"), latencies


def main() -> None:
    """Run the attacks, and print the table of docs/service.md."""
    words = sys.argv[1:]
    print("| what clients send | memory, MiB | `/health`, ms: median, 99 %, slowest |\n|---|---|---|")
    for attack in ATTACKS:
        if words and not any(word in attack.name for word in words):
            continue
        before, peak, latencies = measure(attack)
        median, percentile_99, slowest = 1000 * np.quantile(latencies, [0.5, 0.99, 1.0])
        print(
            f"| {attack.name} | {before:.0f}, {peak:.0f} | {median:.0f}, {percentile_99:.0f}, {slowest:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

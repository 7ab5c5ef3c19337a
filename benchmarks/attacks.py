"""Memory of the service, and how long `/health` takes, while clients do what they should not.

Each attack gets a service of its own. A process of its own asks for `/health` every few milliseconds meanwhile.

    python benchmarks/attacks.py [words of the attacks to try]
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

from service import request, served

SECONDS, PAUSE = 15.0, 0.005  # of an attack; between two questions
MIB = 2**20
HEAD = (
    b"POST /detectors/a/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


class Attack(NamedTuple):
    """What clients do."""

    name: str
    run: Callable[[int], None]  # with the port
    is_large: bool = False  # whether the detector is a large one
    n_features: int = 2


def connect(port: int) -> socket.socket:
    """Connect, with patience."""
    return socket.create_connection(("127.0.0.1", port), timeout=SECONDS)


def send(port: int, parts: list[bytes], end: float) -> None:
    """Send all of it, as long as the service takes it, and read the answer."""
    with suppress(OSError), connect(port) as connection:
        for part in parts:
            connection.sendall(part)
            if time.monotonic() > end:
                return
        while connection.recv(MIB):
            pass


def together(n: int, what: Callable[[], None]) -> None:
    """Do something in so many threads."""
    threads = [threading.Thread(target=what, daemon=True) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)


def heads(port: int) -> None:
    """Send heads without an end, one after the other."""
    end = time.monotonic() + SECONDS
    send(port, [b"GET / HTTP/1.1\r\n", *[b"a: b\r\n" * 10_000] * 1_700], end)
    send(port, [b"GET / HTTP/1.1\r\na: ", *[b"b" * MIB] * 100], end)
    send(port, [b"GET /", *[b"b" * MIB] * 200], end)


def unread(port: int) -> None:
    """Send 100 MB of requests, and read nothing."""
    small = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with suppress(OSError), connect(port) as connection:
        connection.settimeout(3.0)
        for _ in range(100):
            connection.sendall(small * (MIB // len(small)))


def held(n: int, parts: list[bytes]) -> Callable[[int], None]:
    """Send so much from so many connections, and then nothing."""

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
    """Send so many bodies of 32 MiB at once, and read what they are answered."""
    body = b'{"points":[' + part * (32 * MIB // len(part) - 10) + part[:-1] + b"]}"

    def run(port: int) -> None:
        together(n, lambda: send(port, [HEAD % (path, len(body)), body], time.monotonic() + SECONDS))

    return run


def readers(n: int, path: str) -> Callable[[int], None]:
    """Ask for something from so many connections, again and again, and read it."""

    def read(port: int) -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
                answer.read()

    return lambda port: together(n, lambda: read(port))


ATTACKS = (
    Attack("nothing", lambda _: time.sleep(SECONDS / 3)),
    Attack("100 MB of header lines, one header of 100 MB, or a URL of 200 MB", heads),
    Attack("100 MB of small requests, without reading an answer", unread),
    Attack(
        "1,000 connections with 32,000 bytes of a head each", held(1_000, [b"GET / HTTP/1.1\r\na: " + b"b" * 32_000])
    ),
    Attack("900 posts of 30 MB, of which 500 kB come", held(900, [HEAD % (b"points", 30_000_000), b"[" * 500_000])),
    Attack("six bodies of 32 MiB of `[],`", bodies(6, b"points", b"[],")),
    Attack("four bodies of 32 MiB of `1,` for 1,000 features", bodies(4, b"points", b"1,"), n_features=1_000),
    Attack(
        "eight models of 260 MB, of which 250 MB come",
        held(8, [(HEAD % (b"model", 260_000_000)).replace(b"POST", b"PUT"), *[b"x" * 10**6] * 250]),
    ),
    Attack(
        "40 readers of `history/{index}` of a large detector", readers(40, "/detectors/a/history/1999"), is_large=True
    ),
    Attack(
        "20 readers of its model who do not read it",
        held(20, [b"GET /detectors/a/model HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]),
        is_large=True,
    ),
    Attack("1,100 idle connections", held(1_100, [])),
)


def ask(port: int, ended: "multiprocessing.synchronize.Event", told: "multiprocessing.Queue[list[float]]") -> None:
    """Ask for `/health` until it is over, and tell how many seconds each answer took."""
    gc.disable()  # or its pauses of 100 ms would be those of the service
    taken = []
    while not ended.is_set():
        start = time.perf_counter()
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
            answer.read()
        taken.append(time.perf_counter() - start)
        time.sleep(PAUSE)
    told.put(taken[1:])  # the first one is that of a process that has just started


def memory(process: int, field: str) -> float:
    """Give a line of the status of a process, in MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def prepare(port: int, attack: Attack) -> None:
    """Create the detector that is attacked."""
    sizes = {"window": 10_000, "max_samples": 1_024, "n_trees": 200} if attack.is_large else {"n_trees": 10}
    n_features = 20 if attack.is_large else attack.n_features
    features = [f"x{i}" for i in range(n_features)]
    created = {"features": features, **sizes}
    n_rows = 2_000 if attack.is_large else 20
    points = np.random.default_rng(0).normal(size=(n_rows, n_features)).tolist()
    for method, path, body in (("PUT", "", created), ("POST", "/points", {"points": points})):
        with connect(port) as connection:
            connection.sendall(request(method, f"/detectors/a{path}", body))
            status = connection.recv(MIB).split(b"\r\n", 1)[0]
            if b" 20" not in status:
                raise SystemExit(f"{method} {path}: {status.decode()}")


def measured(attack: Attack) -> tuple[float, float, list[float]]:
    """Give the memory before and at most, and how long `/health` took."""
    with tempfile.TemporaryDirectory() as folder, served(folder) as (port, process):
        prepare(port, attack)
        before = memory(process, "VmRSS")
        ended = multiprocessing.Event()
        told: multiprocessing.Queue[list[float]] = multiprocessing.Queue()
        asking = multiprocessing.Process(target=ask, args=(port, ended, told))
        asking.start()
        attacking = multiprocessing.Process(target=attack.run, args=(port,))
        attacking.start()
        attacking.join()
        ended.set()
        taken = told.get()
        asking.join()
        return before, memory(process, "VmHWM"), taken


def main() -> None:
    """Try the attacks, and print a line of the table of docs/service.md for each."""
    words = sys.argv[1:]
    print("| what clients send | memory, MiB | `/health`, ms: median, 99 %, slowest |\n|---|---|---|")
    for attack in ATTACKS:
        if words and not any(word in attack.name for word in words):
            continue
        before, most, taken = measured(attack)
        median, late, slowest = 1000 * np.quantile(taken, [0.5, 0.99, 1.0])
        print(f"| {attack.name} | {before:.0f}, {most:.0f} | {median:.0f}, {late:.0f}, {slowest:.0f} |", flush=True)


if __name__ == "__main__":
    main()

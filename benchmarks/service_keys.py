"""How long a service with many keys takes to start, after a clean stop and after a kill; and its points per second.

python benchmarks/service_keys.py [number of keys] [rows of each key]
"""

import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy as np

from imondrian.service.client import Client

KEYS_PER_POST = 5_000


def started(folder: str) -> tuple[subprocess.Popen[bytes], Client, float]:
    """Start a service; return it, a client, and the seconds until it was ready."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "imondrian", "serve", "--data", folder, "--port", str(port)]
    start = time.monotonic()
    process = subprocess.Popen([*command, "--max-memory", "16GB"])
    while not is_ready(port):
        time.sleep(0.02)
    return process, Client(f"http://127.0.0.1:{port}", timeout=600.0), time.monotonic() - start


def is_ready(port: int) -> bool:
    """Return True if the service has recovered its detectors."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as response:
            return bool(response.status == 200)
    except OSError:
        return False


def ended(process: subprocess.Popen[bytes], number: int) -> float:
    """Send a signal to a service; return the seconds until it has ended."""
    start = time.monotonic()
    process.send_signal(number)
    process.wait()
    return time.monotonic() - start


def post(client: Client, n_keys: int, n_rows: int, rng: np.random.Generator) -> float:
    """Post rows of all keys; return the points per second."""
    start = time.monotonic()
    for _ in range(n_rows):
        for first in range(0, n_keys, KEYS_PER_POST):
            names = [f"host-{i}" for i in range(first, min(first + KEYS_PER_POST, n_keys))]
            client.process("hosts", [[name, x] for name, x in zip(names, rng.normal(size=len(names)), strict=True)])
    return n_keys * n_rows / (time.monotonic() - start)


def main(n_keys: int = 10_000, n_rows: int = 70) -> None:
    """Print all figures."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        process, client, seconds = started(folder)
        print(f"start without detectors: {seconds:.2f} s")
        client.create("hosts", ["load"], key="host", max_bytes=8 * 10**9)
        print(f"{post(client, n_keys, n_rows, rng):,.0f} points a second")
        print(f"clean stop: {ended(process, signal.SIGTERM):.2f} s")
        process, client, seconds = started(folder)
        print(f"start with {client.describe('hosts')['n_keys']:,} keys after a clean stop: {seconds:.2f} s")
        n_more = 40_000 // n_keys
        post(client, n_keys, n_more, rng)
        ended(process, signal.SIGKILL)
        process, client, seconds = started(folder)
        print(f"start after a kill, with {n_more * n_keys:,} points to replay: {seconds:.2f} s")
        ended(process, signal.SIGTERM)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

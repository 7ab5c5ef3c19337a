"""A service that is killed at any moment: no confirmed point is missing or learned twice, and scores continue."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from imondrian.service.client import Client
from imondrian.service.configuration import DEFAULTS, new_detector
from tests.service.serving import SMALL, free_port

N_ROUNDS, N_CLIENTS = 50, 4
XY = {"features": ["x", "y"], **SMALL}
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="services are made by forking")


class Services:
    """Services on one port and in one folder, one after the other, killed at random moments."""

    def __init__(self, folder):
        self._folder, self.port = folder, free_port()
        self._maker = subprocess.Popen(
            [sys.executable, "-m", "tests.service.forking"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._told() == "ready"

    def start(self):
        self._maker.stdin.write(f"{self.port} {self._folder}\n")
        self._maker.stdin.flush()
        self._process = int(self._told())

    def end(self, how):
        os.kill(self._process, how)
        assert self._told() == "ended"

    def close(self):
        self._maker.stdin.close()
        self._maker.wait(60)
        self._maker.stdout.close()

    def _told(self):
        return self._maker.stdout.readline().strip()


class Sender(threading.Thread):
    """A client that posts points one request after the other, and records the responses; unaware of the kills."""

    def __init__(self, number, port):
        super().__init__()
        self._draws, self._port = np.random.default_rng(number), port
        self.is_enough, self.answered, self.error = threading.Event(), [], None

    def run(self):
        try:
            with Client(f"http://127.0.0.1:{self._port}", timeout=300.0) as client:
                client.create("a", **XY)
                while not self.is_enough.is_set():
                    self._post(client)
        except Exception as error:  # noqa: BLE001 (the test tells it)
            self.error = error

    def _post(self, client):
        points = self._draws.normal(size=(self._draws.choice([1, 1, 1, 20]), 2)) * self._draws.choice([1.0, 5.0])
        for point, result in zip(points, client.process("a", points), strict=True):
            self.answered.append((result["index"], point, result))


def killed_again_and_again(services, senders, draws):
    """Kill a service `N_ROUNDS` times while it starts, works or saves a snapshot; then start the last one."""
    for _ in range(N_ROUNDS):
        services.start()
        if draws.random() < 0.8:
            answered = sum(len(sender.answered) for sender in senders)
            for _ in range(3_000):
                if sum(len(sender.answered) for sender in senders) > answered:
                    break
                time.sleep(0.01)
            else:
                raise AssertionError([sender.error for sender in senders])
        time.sleep(draws.uniform(0.0, 0.3))
        services.end(signal.SIGKILL)
    services.start()


def test_every_confirmed_point_is_learned_once_and_scores_are_unchanged_after_fifty_kills(
    tmp_path,
):
    services = Services(tmp_path)
    senders = [Sender(i, services.port) for i in range(N_CLIENTS)]
    for sender in senders:
        sender.start()
    killed_again_and_again(services, senders, random.Random(0))  # noqa: S311
    for sender in senders:
        sender.is_enough.set()
    for sender in senders:
        sender.join(300)
    assert [sender.error for sender in senders] == [None] * N_CLIENTS
    answered = sorted((each for sender in senders for each in sender.answered), key=lambda each: each[0])
    assert [index for index, _, _ in answered] == list(range(len(answered)))  # none missing, none twice
    points = np.array([point for _, point, _ in answered])
    never_stopped = new_detector({**DEFAULTS, **XY}).process_many(points)
    assert [result["anomaly_score"] for _, _, result in answered] == never_stopped.score.tolist()
    assert [result["threshold"] for _, _, result in answered] == never_stopped.threshold.tolist()
    assert [result["is_anomaly"] for _, _, result in answered] == never_stopped.is_anomaly.tolist()
    with Client(f"http://127.0.0.1:{services.port}") as client:
        described, figures = client.describe("a"), client._request("GET", "/metrics").content.decode()
        assert described["n_seen"] == len(answered)
        assert described["n_anomalies"] == never_stopped.is_anomaly.sum()
        assert f'imondrian_points_total{{detector="a"}} {len(answered)}\n' in figures
        assert client._request("GET", "/health").value() == {"status": "ok", "complaints": []}
    services.end(signal.SIGTERM)
    services.close()
    assert len(answered) > 10 * N_ROUNDS  # otherwise there was too little load

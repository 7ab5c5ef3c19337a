"""A service that is killed at any moment: no confirmed point is missing or learned twice, and scores continue."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from imondrian.service.changes.configuration import DEFAULTS, new_detector
from imondrian.service.changes.expected_rows import N_ROWS_PER_SPREAD
from imondrian.service.client import Client
from tests.service.receiving import LoopbackReceiver
from tests.service.serving import SMALL, free_port, wait_until

N_ROUNDS, N_CLIENTS = 50, 4
N_ROUNDS_WITH_RECEIVER = 20
XY = {"features": ["x", "y"], **SMALL}
LOAD = {"features": ["load"], "preset": "series", **SMALL, "max_samples": None}
ORDERS = {"features": ["amount", "country"], "categorical": ["country"], **SMALL}
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="services are started by forking")


class Services:
    """Services on one port and in one folder, one after the other, killed at random moments."""

    def __init__(self, folder, *receivers):
        self._folder, self.port, self._receivers = folder, free_port(), receivers
        self._forker = subprocess.Popen(
            [sys.executable, "-m", "tests.service.forking"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._read_line() == "ready"

    def start(self):
        self._forker.stdin.write(f"{' '.join([str(self.port), str(self._folder), *self._receivers])}\n")
        self._forker.stdin.flush()
        self._process = int(self._read_line())

    def end(self, signal_number):
        os.kill(self._process, signal_number)
        assert self._read_line() == "ended"

    def close(self):
        self._forker.stdin.close()
        self._forker.wait(60)
        self._forker.stdout.close()

    def _read_line(self):
        return self._forker.stdout.readline().strip()


class Sender(threading.Thread):
    """A client that posts points one request after the other, and records the responses; unaware of the kills."""

    def __init__(self, number, port, configuration, draw):
        super().__init__()
        self._rng, self._port = np.random.default_rng(number), port
        self._configuration, self._draw = configuration, draw
        self.is_stopped, self.confirmed, self.error = threading.Event(), [], None

    def run(self):
        try:
            with Client(f"http://127.0.0.1:{self._port}", timeout=300.0) as client:
                client.create("a", **self._configuration)
                while not self.is_stopped.is_set():
                    self._post(client)
        except Exception as error:  # noqa: BLE001 (the test reports it)
            self.error = error

    def _post(self, client):
        points = self._draw(self._rng, self._rng.choice([1, 1, 1, 20]))
        for point, result in zip(points, client.process("a", points), strict=True):
            self.confirmed.append((result["index"], point, result))


def numbers(rng, n):
    return rng.normal(size=(n, 2)) * rng.choice([1.0, 5.0])


def outliers(rng, n):
    """Return points of which some are far away, farther each time, so that incidents open and close all the time."""
    return rng.normal(size=(n, 2)) + (rng.random((n, 1)) < 0.03) * 10.0 ** rng.uniform(1.0, 6.0)


def orders(rng, n):
    """Return orders with gaps and times, by feature name."""
    return [
        {
            "amount": None if rng.random() < 0.3 else rng.normal(),
            "country": f"country {rng.zipf(1.5)} é",
            "time": f"2026-01-31T12:30:{rng.integers(60):02}",
        }
        for _ in range(n)
    ]


def loads(rng, n):
    """Return points of a series, some of them late or without a time."""
    first = rng.integers(10**9)
    return [
        {
            "load": rng.normal() * rng.choice([1.0, 5.0]),
            "time": rng.choice([None, int(first + i), f"2026-01-31T{rng.integers(24):02}:30:00"]),
        }
        for i in range(n)
    ]


def kill_repeatedly(services, senders, rng, n_rounds):
    """Kill a service repeatedly while it starts, works or saves a snapshot; then start the last one."""
    for _ in range(n_rounds):
        services.start()
        if rng.random() < 0.8:
            confirmed = sum(len(sender.confirmed) for sender in senders)
            for _ in range(3_000):
                if sum(len(sender.confirmed) for sender in senders) > confirmed:
                    break
                time.sleep(0.01)
            else:
                raise AssertionError([sender.error for sender in senders])
        time.sleep(rng.uniform(0.0, 0.3))
        services.end(signal.SIGKILL)
    services.start()


def confirmed_despite_kills(services, configuration, draw, n_rounds):
    """Return what clients posted to services that were killed, and the results, in the order of the stream."""
    senders = [Sender(i, services.port, configuration, draw) for i in range(N_CLIENTS)]
    for sender in senders:
        sender.start()
    kill_repeatedly(services, senders, random.Random(0), n_rounds)  # noqa: S311
    for sender in senders:
        sender.is_stopped.set()
    for sender in senders:
        sender.join(300)
    assert [sender.error for sender in senders] == [None] * N_CLIENTS
    confirmed = sorted((each for sender in senders for each in sender.confirmed), key=lambda each: each[0])
    assert [index for index, _, _ in confirmed] == list(range(len(confirmed)))  # none missing, none twice
    assert len(confirmed) > 10 * n_rounds  # otherwise there was too little load
    return [point for _, point, _ in confirmed], [result for _, _, result in confirmed]


def assert_same_results(results, never_stopped):
    assert [result["anomaly_score"] for result in results] == never_stopped.score.tolist()
    assert [result["threshold"] for result in results] == never_stopped.threshold.tolist()
    assert [result["is_anomaly"] for result in results] == never_stopped.is_anomaly.tolist()
    assert [result["surprise"] for result in results] == never_stopped.surprise.tolist()
    numbers = [None if number < 0 else number for number in never_stopped.incident.tolist()]
    assert [result["incident"] for result in results] == numbers


def test_every_confirmed_point_is_learned_once_and_scores_are_unchanged_after_fifty_kills(
    tmp_path,
):
    services = Services(tmp_path)
    points, results = confirmed_despite_kills(services, XY, numbers, N_ROUNDS)
    never_stopped = new_detector({**DEFAULTS, **XY}).process_many(np.array(points))
    assert_same_results(results, never_stopped)
    with Client(f"http://127.0.0.1:{services.port}") as client:
        description, figures = client.describe("a"), client._request("GET", "/metrics").content.decode()
        assert description["n_seen"] == len(points)
        assert description["n_anomalies"] == never_stopped.is_anomaly.sum()
        assert f'imondrian_points_total{{detector="a"}} {len(points)}\n' in figures
        assert client._request("GET", "/health").value() == {"status": "ok", "problems": []}
    services.end(signal.SIGTERM)
    services.close()


def test_categories_gaps_and_times_survive_kills(tmp_path):
    services = Services(tmp_path)
    points, results = confirmed_despite_kills(services, ORDERS, orders, 10)
    detector = new_detector({**DEFAULTS, **ORDERS})
    assert_same_results(results, detector.process_many([[row["amount"], row["country"]] for row in points]))
    with Client(f"http://127.0.0.1:{services.port}") as client:
        history = client._request("GET", "/detectors/a/history").value()
        first = history["index"][0]
        assert history["index"] == list(range(max(len(points) - 2_000, 0), len(points)))
        assert history["values"] == [[row["amount"], row["country"]] for row in points[first:]]
        assert history["own_time"] == [row["time"] for row in points[first:]]
        assert client.describe("a")["n_missing"] == detector.n_missing > 0
        country = client.explain("a", [{"amount": 0.0, "country": "country 1 é"}])[0]["explanation"]
        assert any(each["text"].startswith("country = country 1 é (") for each in country)
    services.end(signal.SIGTERM)
    services.close()


def test_the_times_of_a_series_and_what_was_expected_survive_kills(tmp_path):
    services = Services(tmp_path)
    points, results = confirmed_despite_kills(services, LOAD, loads, 10)
    detector, times = new_detector({**DEFAULTS, **LOAD}), [point["time"] for point in points]
    assert_same_results(results, detector.process_many([[point["load"]] for point in points], times))
    with Client(f"http://127.0.0.1:{services.port}") as client:
        found, history = client.describe("a"), client._request("GET", "/detectors/a/history").value()
    services.end(signal.SIGTERM)
    services.close()
    assert found["times"] == detector.time_counts._asdict()
    never_stopped = new_detector({**DEFAULTS, **LOAD})
    for i, point in enumerate(points):
        if i % N_ROWS_PER_SPREAD == 0 and i >= max(history["index"][0], 1):
            low, high = never_stopped.expected_range(point["time"])
            position = i - history["index"][0]
            assert (history["expected_low"][position], history["expected_high"][position]) == (low, high)
        never_stopped.process([point["load"]], point["time"])


def unreliable(rng):
    """Return a function that answers notifications: some are accepted, some fail, some hang until the receiver ends."""
    return lambda _notification: rng.choice([200, 200, 200, 200, 500, 429, None])


@contextmanager
def restarted_receiver(rng):
    """Yield a list of receivers on the same port, of which each is killed after a moment and the next one started."""
    receivers, is_stopped = [LoopbackReceiver(unreliable(rng))], threading.Event()

    def restart_repeatedly():
        while not is_stopped.wait(rng.uniform(0.3, 1.0)):
            receivers[-1].close()
            receivers.append(LoopbackReceiver(receivers[-1].answer, receivers[-1].port))

    restarts = threading.Thread(target=restart_repeatedly)
    restarts.start()
    try:
        yield receivers
    finally:
        is_stopped.set()
        restarts.join(60)
        receivers[-1].close()


def events_of_plain_detector(detector, points):
    """Return number, opening or closing, and row of each event of a detector that never stopped."""
    expected = []
    for point in np.array(points):
        detector.process(point)
        expected += [(event.incident.number, event.incident.is_open, event.index) for event in detector.events]
    return expected


def test_no_incident_is_lost_or_announced_twice_and_every_event_is_delivered_despite_kills(tmp_path):
    rng = random.Random(1)  # noqa: S311
    configuration = {**XY, "threshold": 0.01, "gap": 8}
    detector = new_detector({**DEFAULTS, **configuration})
    with restarted_receiver(rng) as receivers:
        services = Services(tmp_path, receivers[0].url)
        points, results = confirmed_despite_kills(services, configuration, outliers, N_ROUNDS_WITH_RECEIVER)
        expected = events_of_plain_detector(detector, points)
        assert len(expected) > N_ROUNDS_WITH_RECEIVER
        with Client(f"http://127.0.0.1:{services.port}") as client:
            events, shown = list(client.events(0, follow=False)), client.incidents("a")
        receivers[-1].answer = lambda _: 200
        wait_until(lambda: {each["id"] for each in delivered(receivers)} >= {each["id"] for each in events})
    services.end(signal.SIGTERM)
    services.close()
    assert [result["index"] for result in results if result["incident"] is not None]
    incidents = [each["incident"] for each in events]
    found = [(each["incident"]["incident"], each["event"] == "opened", row_of(each)) for each in events]
    assert found == expected  # none is missing, none twice
    ids = {(incident["incident"], incident["id"]) for incident in incidents}
    assert len(ids) == len({number for number, _ in ids}) == len({id_ for _, id_ in ids})  # one id for each
    latest = {each.number: (each.is_open, each.surprise) for each in detector.incidents}
    assert {each["incident"]: (each["is_open"], each["peak"]["surprise"]) for each in shown} == latest
    by_id = {each["id"]: each for each in events}
    assert all(by_id[each["id"]] == each for each in delivered(receivers))  # an id never means anything else


def row_of(event):
    return event["incident"][event["event"]]["index"]


def delivered(receivers):
    return [notification.event for receiver in receivers for notification in receiver.accepted.copy()]

"""A detector with a key in a service that is killed at any moment: nothing is missing or learned twice."""

import os
import random
import signal

import numpy as np
import pytest

from imondrian import StreamDetector
from imondrian.service.client import Client
from tests.service.keyed import HOSTS, SIZE, expected, plain_fleet
from tests.service.test_kill import Sender, Services, kill_repeatedly

N_ROUNDS = 20
NAMES = [f"host {i} é/" for i in range(12)]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="services are started by forking")


def keyed_points(rng, n):
    """Return rows of some keys, of which some are far away."""
    X = rng.normal(size=(n, 2)) + (rng.random((n, 1)) < 0.03) * 10.0 ** rng.uniform(1.0, 6.0)
    return [[NAMES[i], *row] for i, row in zip(rng.integers(len(NAMES), size=n), X.tolist(), strict=True)]


@pytest.fixture
def configuration():
    """Return a configuration in which only some of the keys fit into memory."""
    return {**HOSTS, "max_bytes": 5 * plain_fleet().bytes_per_key}


def posted_despite_kills(services, configuration, n_senders):
    """Return what each client posted to services that were killed, and the results, in the order of its posts."""
    senders = [Sender(i, services.port, configuration, keyed_points) for i in range(n_senders)]
    for sender in senders:
        sender.start()
    kill_repeatedly(services, senders, random.Random(n_senders), N_ROUNDS)  # noqa: S311
    for sender in senders:
        sender.is_stopped.set()
    for sender in senders:
        sender.join(300)
    assert [sender.error for sender in senders] == [None] * n_senders
    return [(point, result) for sender in senders for _, point, result in sender.confirmed]


def test_results_and_incidents_are_those_of_a_fleet_that_never_stopped(tmp_path, configuration):
    services, fleet = Services(tmp_path), plain_fleet()
    posted = posted_despite_kills(services, configuration, 1)
    keys, X = [point[0] for point, _ in posted], np.array([point[1:] for point, _ in posted])
    assert len(posted) > 10 * N_ROUNDS
    wanted = expected(fleet, keys, X)
    assert [result for _, result in posted] == wanted
    with Client(f"http://127.0.0.1:{services.port}") as client:
        found, events, shown = client.describe("a"), list(client.events(0, follow=False)), client.incidents("a")
        histories = {key: client.history("a", key) for key in NAMES}
        health = client._request("GET", "/health").value()
    services.end(signal.SIGTERM)
    services.close()
    assert health == {"status": "ok", "problems": []}
    assert (found["n_seen"], found["n_keys"]) == (len(posted), len(NAMES))
    assert found["n_anomalies"] == sum(row["is_anomaly"] for row in wanted)
    assert events_by_name(events) == events_of(plain_fleet(), keys, X)
    names = {(each["incident"]["key"], each["incident"]["incident"], each["incident"]["id"]) for each in events}
    assert len(names) == len({id_ for *_, id_ in names}) == len({(key, number) for key, number, _ in names}) > 5
    latest = {(each.key, each.incident.number): each.incident for each in fleet.incidents}
    for each in shown:
        incident = latest[each["key"], each["incident"]]
        assert (each["is_open"], each["peak"]["surprise"]) == (incident.is_open, incident.surprise)
    for key, history in histories.items():
        positions = [i for i, other in enumerate(keys) if other == key][-64:]
        assert history["index"] == [wanted[i]["index"] for i in positions]
        assert history["values"] == X[positions].tolist()
        assert history["anomaly_score"] == [wanted[i]["anomaly_score"] for i in positions]


def events_by_name(events):
    return [(each["incident"]["key"], each["incident"]["incident"], each["event"] == "opened") for each in events]


def events_of(fleet, keys, X):
    found = []
    for key, row in zip(keys, X, strict=True):
        fleet.process(key, row)
        found += [(each.key, each.event.incident.number, each.event.incident.is_open) for each in fleet.events]
    return found


def test_every_row_of_several_clients_is_learned_once(tmp_path, configuration):
    services, fleet = Services(tmp_path), plain_fleet()
    posted = posted_despite_kills(services, configuration, 4)
    services.end(signal.SIGTERM)
    services.close()
    for key in NAMES:
        rows = sorted((result["index"], point[1:], result) for point, result in posted if point[0] == key)
        assert [index for index, _, _ in rows] == list(range(len(rows)))  # none missing, none twice
        single = StreamDetector(2, **SIZE, missing="raise", seed=fleet.seed_of(key))
        scores = single.process_many(np.array([point for _, point, _ in rows])).score
        warm = [index for index, _, result in rows if not result["is_borrowed"]]
        assert len(warm) > 20
        assert [rows[index][2]["anomaly_score"] for index in warm] == scores[warm].tolist()

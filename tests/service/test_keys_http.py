"""The routes of a detector with a key: points, keys, histories, explanations and incidents."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, unquote

import numpy as np
import pytest

from imondrian import Fleet
from imondrian.service.client import ServiceError
from imondrian.service.detectors.registry import Registry
from imondrian.service.http import keyed_queries
from imondrian.service.http.asgi import create_app
from imondrian.service.limits import Limits
from imondrian.service.storage.keyed_incident_log import KeyedIncidentLog
from tests.service.keyed import HOSTS, NAMES, expected, keyed_rows, plain_fleet, points_of
from tests.service.serving import ThreadServer
from tests.service.test_removal import requests_in_background

N_ROWS = 1_000


@pytest.fixture
def posted(shared_registry, shared_server):
    """Return a client, and keys, values and results of rows that were posted."""
    keys, X = keyed_rows(n_rows=N_ROWS)
    with shared_server.client() as client:
        client.create("hosts", **HOSTS)
        results = client.process("hosts", points_of(keys[:600], X[:600]))
        records = [
            {"host": key, "load": row[0], "memory": row[1], "time": f"2026-01-31T12:{i // 60:02}:{i % 60:02}"}
            for i, (key, row) in enumerate(zip(keys[600:], X[600:].tolist(), strict=True))
        ]
        results += client.process("hosts", records)
        yield client, keys, X, results


def get(server, path):
    status, _, content = server.request("GET", f"/detectors/{path}")
    return status, json.loads(content)


def test_results_have_their_keys(posted):
    _, keys, X, results = posted
    assert results == expected(plain_fleet(), keys, X)


def test_a_description_counts_the_keys(posted, shared_server):
    client, _, _, results = posted
    found = client.describe("hosts")
    assert (found["n_keys"], found["n_seen"], found["threshold"], found["is_warm"]) == (len(NAMES), N_ROWS, None, None)
    assert found["surprise"] == results[-1]["surprise"]
    assert found["n_anomalies"] == sum(row["is_anomaly"] for row in results)
    assert (found["configuration"]["key"], found["configuration"]["missing"]) == ("host", "raise")
    metrics = shared_server.request("GET", "/metrics")[2].decode()
    assert f'imondrian_keys{{detector="hosts"}} {len(NAMES)}\n' in metrics
    assert 'imondrian_threshold{detector="hosts"}' not in metrics


def test_keys_are_listed_in_every_order(posted):
    client, keys, _, results = posted
    last = {row["key"]: row for row in results}
    found = list(client.keys("hosts"))
    assert {each["key"]: each["surprise"] for each in found} == {key: row["surprise"] for key, row in last.items()}
    assert all(each["n_rows"] == keys.count(each["key"]) for each in found)
    assert all(each["anomaly_score"] == last[each["key"]]["anomaly_score"] for each in found)
    assert all(each["has_open_incident"] == (last[each["key"]]["incident"] is not None) for each in found)
    assert [each["surprise"] for each in found] == sorted((each["surprise"] for each in found), reverse=True)
    assert [each["key"] for each in client.keys("hosts", order="name")] == sorted(NAMES)
    times = [each["time"] for each in client.keys("hosts", order="time")]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("order", ["surprise", "name", "time"])
@pytest.mark.parametrize("n_sorted", [1, 3, 4, 10, 11])
def test_keys_are_sorted_in_pieces(posted, shared_server, monkeypatch, order, n_sorted):
    whole = list(posted[0].keys("hosts", order=order))
    lengths = []

    def sort(piece, key):
        lengths.append(len(piece))
        return sorted(piece, key=key)

    monkeypatch.setattr(keyed_queries, "_SORTED_AT_ONCE", n_sorted, raising=False)
    monkeypatch.setattr(keyed_queries, "sorted", sort, raising=False)
    for limit in (1, 3, 10, 1000):
        pages, after = [], 0
        while after is not None:
            _, page = get(shared_server, f"hosts/keys?order={order}&limit={limit}&after={after}")
            pages += page["keys"]
            after = page["next"]
        assert pages == whole
    assert sum(lengths) >= len(NAMES)
    assert max(lengths) <= n_sorted


def test_keys_are_searched_and_paged(posted, shared_server):
    assert [each["key"] for each in posted[0].keys("hosts", "WEB", order="name")] == ["web-1", "web-2"]
    assert [each["key"] for each in posted[0].keys("hosts", "日本")] == ["日本 é 🎉"]
    assert list(posted[0].keys("hosts", "nothing")) == []
    pages, after = [], 0
    while after is not None:
        status, page = get(shared_server, f"hosts/keys?order=name&limit=3&after={after}")
        assert (status, page["n_keys"], page["n_found"]) == (200, len(NAMES), len(NAMES))
        pages, after = [*pages, [each["key"] for each in page["keys"]]], page["next"]
    assert list(map(len, pages)) == [3, 3, 3, 1]
    assert [name for page in pages for name in page] == sorted(NAMES)
    for query in ("order=size", "limit=0", "limit=1001", "after=-1", f"search={'x' * 257}"):
        assert get(shared_server, f"hosts/keys?{query}")[0] == 422
    status, page = get(shared_server, f"hosts/keys?after={Limits().keys + 1}")  # a detector may have more keys
    assert (status, page["keys"], page["next"]) == (200, [], None)


def test_the_number_of_keys_is_limited(tmp_path):
    registry = Registry(tmp_path, Limits(keys=50))
    registry.create("hosts", HOSTS)
    path, headers = "/detectors/hosts/points", {"Idempotency-Key": "first"}
    bodies = [{"points": [[f"{i}-{j}", 0.0, 0.0] for j in range(40)]} for i in range(20)]
    with ThreadServer(create_app(registry)) as server, ThreadPoolExecutor(len(bodies)) as clients:
        first = server.request("POST", path, bodies[0], headers)
        statuses = [reply[0] for reply in clients.map(lambda body: server.request("POST", path, body), bodies)]
        assert statuses == [200] + [422] * 19
        assert get(server, "hosts/keys")[1]["n_keys"] == 40
        server.request("DELETE", "/detectors/hosts/keys/0-0")
        assert server.request("POST", path, {"points": [[f"new-{i}", 0.0, 0.0] for i in range(11)]})[0] == 200
        assert server.request("POST", path, bodies[0])[0] == 422
        again = server.request("POST", path, bodies[0], headers)  # repeated
        assert (again[0], again[2]) == (200, first[2])
    registry.close()


@pytest.mark.parametrize("name", NAMES)
def test_the_history_of_any_key(posted, name):
    client, keys, X, results = posted
    history = client.history("hosts", name)
    positions = [i for i, key in enumerate(keys) if key == name][-64:]
    assert history["key"] == name
    assert history["index"] == [results[i]["index"] for i in positions]
    assert history["values"] == X[positions].tolist()
    for column in ("anomaly_score", "surprise", "threshold", "is_anomaly", "incident", "is_borrowed"):
        assert history[column] == [results[i][column] for i in positions]
    own_times = [None if i < 600 else f"2026-01-31T12:{(i - 600) // 60:02}:{(i - 600) % 60:02}" for i in positions]
    assert history["own_time"] == own_times


def test_a_part_of_a_history(posted, shared_server):
    history = get(shared_server, "hosts/history?key=web-1")[1]
    last = history["index"][-1]
    assert get(shared_server, f"hosts/history?key=web-1&after={last - 5}&limit=3")[1]["index"] == history["index"][-3:]


@pytest.mark.parametrize("name", ["web-1", "", "日本 é 🎉"])
def test_a_row_of_a_key_is_explained(posted, shared_server, name):
    _, keys, X, results = posted
    last = [i for i, key in enumerate(keys) if key == name][-1]
    path = f"hosts/history/{results[last]['index']}?key={quote(name, safe='')}"
    status, row = get(shared_server, path)
    assert (status, row["key"], row["values"]) == (200, name, X[last].tolist())
    assert row["anomaly_score"] == results[last]["anomaly_score"]
    parts = [abs(each["part"]) for each in row["explanation"]]
    assert sum(parts) == pytest.approx(row["anomaly_score"])
    assert {each["feature"] for each in row["explanation"]} == {"load", "memory"}


def test_scores_and_explanations_are_those_of_single_detectors(posted, shared_server):
    _, keys, X, _ = posted
    fleet = plain_fleet()
    fleet.process_many(keys, X)
    wanted, rows = ["web-1", "7", "web-1", ""], np.random.default_rng(2).normal(size=(4, 2)) * 5.0
    body = {"points": points_of(wanted, rows)}
    status, _, content = shared_server.request("POST", "/detectors/hosts/scores", body)
    scores = json.loads(content)
    assert (status, scores["key"]) == (200, wanted)
    detectors = [fleet.detector(key) for key in wanted]
    assert scores["anomaly_score"] == [each.score(row[None])[0] for each, row in zip(detectors, rows, strict=True)]
    assert scores["threshold"] == [each.threshold_score for each in detectors]
    assert scores["n_seen"] == [each.n_seen for each in detectors]
    status, _, content = shared_server.request("POST", "/detectors/hosts/explanations", body)
    explanations = json.loads(content)["explanations"]
    assert [each["key"] for each in explanations] == wanted
    assert [each["anomaly_score"] for each in explanations] == scores["anomaly_score"]
    for each, row in zip(explanations, rows.tolist(), strict=True):
        assert sum(abs(reason["part"]) for reason in each["explanation"]) == pytest.approx(each["anomaly_score"])
        assert {reason["feature"]: reason["value"] for reason in each["explanation"]} == {
            "load": row[0],
            "memory": row[1],
        }


@pytest.mark.parametrize("n_bytes", [1, 100_000, 2**30])
def test_points_of_many_keys_are_read_in_blocks(posted, shared_server, monkeypatch, n_bytes):
    body = {"points": points_of(*keyed_rows(2, 60))}
    whole = [
        shared_server.request("POST", f"/detectors/hosts/{what}", body)[::2] for what in ("scores", "explanations")
    ]
    monkeypatch.setattr(keyed_queries, "_COPIED_BYTES", n_bytes)
    blocks = [
        shared_server.request("POST", f"/detectors/hosts/{what}", body)[::2] for what in ("scores", "explanations")
    ]
    assert blocks == whole
    assert [status for status, _ in whole] == [200, 200]


def test_reads_that_wait_for_keys_do_not_delay_other_detectors(posted, shared_server, monkeypatch):
    client, detector, is_saved = posted[0], Fleet.detector, threading.Event()

    def detector_after_a_save(fleet, key):
        assert is_saved.wait(60)
        return detector(fleet, key)

    monkeypatch.setattr(Fleet, "detector", detector_after_a_save)
    client.create("plain", ["x"])
    client.process("plain", [[float(i)] for i in range(200)])
    body = {"points": [["web-1", 1.0, 2.0]]}
    requests = [("POST", f"/detectors/hosts/{what}", body) for what in ("explanations", "scores")]
    last = client.history("hosts", "web-1")["index"][-1]
    requests.append(("GET", f"/detectors/hosts/history/{last}?key=web-1"))
    with requests_in_background(shared_server, *requests * 15) as statuses:
        try:
            for n_points in (1, 150):  # with the shared copy, and with a private one
                assert len(client.explain("plain", [[1.0]] * n_points)) == n_points
                assert len(client.score("plain", [[1.0]] * n_points)) == n_points
            assert len(client.history("plain")["index"]) == 200
            assert len(list(client.keys("hosts"))) == len(NAMES)
            assert not statuses
        finally:
            is_saved.set()
    assert statuses == [200] * 45


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "detail"),
    [
        ("GET", "hosts/history", None, 422, "the query parameter `key` is needed"),
        ("GET", "hosts/history/3", None, 422, "the query parameter `key` is needed"),
        ("GET", "hosts/history?key=nobody", None, 404, "There is no key 'nobody'."),
        ("GET", "hosts/history/3?key=nobody", None, 404, "There is no key 'nobody'."),
        ("GET", "hosts/history/9999?key=web-1", None, 404, "Row 9999 of the key is no longer among its latest rows"),
        ("DELETE", "hosts/keys/nobody", None, 404, "There is no key 'nobody'."),
        ("DELETE", "hosts/points", {"points": [["web-1", 1.0, 2.0]]}, 422, "single points cannot be forgotten"),
        ("GET", "hosts/model", None, 422, "it has no model file; GET /backup returns a copy of all detectors."),
        ("POST", "hosts/scores", {"points": [["nobody", 1.0, 2.0]]}, 404, "There is no key 'nobody'."),
        ("POST", "hosts/explanations", {"points": [["nobody", 1.0, 2.0]]}, 404, "There is no key 'nobody'."),
        ("POST", "hosts/scores", {"points": [[i, 1.0, 2.0] for i in range(1001)]}, 422, "have 1001 keys, but at most"),
        ("POST", "hosts/points", {"points": [[1.0, 2.0]]}, 422, "the key 'host' first"),
        ("PUT", "hosts/model", b"a file", 422, "it has no model file"),
        ("GET", "plain/keys", None, 422, "The detector 'plain' has no key"),
        ("GET", "plain/history?key=a", None, 422, "The detector 'plain' has no key"),
        ("DELETE", "plain/keys/a", None, 422, "The detector 'plain' has no key"),
        ("GET", "nobody/keys", None, 404, "There is no detector 'nobody'."),
    ],
)
def test_what_is_not_possible_is_refused_with_a_message(posted, shared_server, method, path, body, status, detail):
    posted[0].create("plain", ["x"])
    found, _, content = shared_server.request(method, f"/detectors/{path}", body)
    assert (found, detail in json.loads(content)["detail"]) == (status, True), content


@pytest.mark.parametrize("name", NAMES)
def test_any_key_can_be_forgotten(posted, shared_server, name):
    client, keys, _, _ = posted
    assert client.forget_key("hosts", name) == keys.count(name)
    assert name not in {each["key"] for each in client.keys("hosts")}
    with pytest.raises(ServiceError, match="There is no key"):
        client.forget_key("hosts", name)
    assert client.process("hosts", [[name, 1.0, 2.0]])[0]["index"] == 0
    assert client.history("hosts", name)["index"] == [0]


@pytest.mark.parametrize("key", ["%ff", "a%C3", "%ED%A0%80", "web-1%80"])
@pytest.mark.parametrize(
    ("method", "path"),
    [("DELETE", "keys/{}"), ("GET", "keys?search={}"), ("GET", "history?key={}"), ("GET", "history/0?key={}")],
)
def test_a_url_that_is_not_utf8_names_no_key(posted, shared_server, method, path, key):
    client, replaced = posted[0], unquote(key)
    assert "\ufffd" in replaced
    client.process("hosts", [[replaced, 1.0, 2.0]])
    status, _, content = shared_server.request(method, f"/detectors/hosts/{path.format(key)}")
    assert (status, b"must be UTF-8" in content) == (422, True), content
    assert client.history("hosts", replaced)["index"] == [0]
    assert shared_server.request(method, f"/detectors/hosts/{path.format(quote(replaced))}")[0] == 200


def test_repeated_requests_change_nothing(posted, shared_server):
    keys, X = keyed_rows(1, 20)
    body, headers = {"points": points_of(keys, X)}, {"Idempotency-Key": "again"}
    first, second = (shared_server.request("POST", "/detectors/hosts/points", body, headers) for _ in range(2))
    assert first[0] == 200
    assert first[2] == second[2]
    headers = {"Idempotency-Key": "forget"}
    first, second = (shared_server.request("DELETE", "/detectors/hosts/keys/web-1", None, headers) for _ in range(2))
    assert (first[0], first[2]) == (200, second[2])
    assert shared_server.request("DELETE", "/detectors/hosts/keys/web-2", None, headers)[0] == 422


def test_incidents_name_their_keys(posted):
    client, _, _, results = posted
    found = client.incidents("hosts")
    assert {each["key"] for each in found} <= set(NAMES)
    still_open = {each["key"] for each in found if each["is_open"]}
    assert still_open == {
        row["key"] for row in {row["key"]: row for row in results}.values() if row["incident"] is not None
    }
    assert client.describe("hosts")["n_open_incidents"] == len(still_open)
    assert [each["id"] for each in client.incidents(limit=1000) if each["detector"] == "hosts"] == [
        each["id"] for each in found
    ]
    events = list(client.events(0, follow=False))
    assert {each["incident"]["key"] for each in events if each["incident"]["detector"] == "hosts"} <= set(NAMES)


def test_a_response_has_at_most_1000_incidents(posted, shared_server, monkeypatch):
    client, listed = posted[0], KeyedIncidentLog.listed
    few = client.incidents("hosts", limit=1000)
    assert client.incidents("hosts", limit=3) == few[:3]
    assert client.incidents("hosts", only_open=True) == [each for each in few if each["is_open"]]
    monkeypatch.setattr(KeyedIncidentLog, "listed", lambda log: listed(log) * 500)
    status, found = get(shared_server, "hosts/incidents")
    assert (status, len(found["incidents"])) == (200, 1000)
    n_open = min(500 * sum(each["is_open"] for each in few), 1000)
    assert [each["is_open"] for each in found["incidents"]] == [True] * n_open + [False] * (1000 - n_open)
    assert get(shared_server, "hosts/incidents?limit=1001")[0] == 422


def test_an_empty_detector_has_no_keys(shared_registry, shared_server):
    with shared_server.client() as client:
        client.create("hosts", **HOSTS)
        assert list(client.keys("hosts")) == []
        assert client.describe("hosts")["surprise"] is None
        assert client.incidents("hosts") == []

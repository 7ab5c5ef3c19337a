"""The service over HTTP: requests and responses, access, and limits."""

import contextlib
import gzip
import json
import socket
import threading
import time

import numpy as np
import pytest

from imondrian import StreamDetector
from imondrian.model_files import to_bytes
from imondrian.service.changes.configuration import DEFAULTS, new_detector
from imondrian.service.client import Client
from imondrian.service.detectors.registry import Registry
from imondrian.service.http import routes
from imondrian.service.http.asgi import create_app
from imondrian.service.limits import Limits
from tests.service.serving import SMALL, Service, ThreadServer, wait_until
from tests.service.test_worker import expected

XY = {"features": ["x", "y"], **SMALL}
JSON, LINES = {"Content-Type": "application/json"}, {"Content-Type": "application/x-ndjson"}
TOKEN = "a-token-of-more-than-sixteen"  # noqa: S105


@pytest.fixture
def send(service, request):
    """Ask the service about a detector of this test, and return status and content."""
    name = f"d{abs(hash(request.node.name))}"[:20]
    assert service.request("PUT", f"/detectors/{name}", XY, JSON)[0] == 201

    def send_request(method, path, body=None, headers=JSON):
        status, _, content = service.request(method, f"/detectors/{name}{path}", body, headers)
        return status, json.loads(content) if content.startswith((b"{", b"[")) else content

    yield send_request
    service.request("DELETE", f"/detectors/{name}")


@pytest.fixture
def reference():
    return new_detector({**DEFAULTS, **XY})


def test_rows_objects_and_lines_give_the_same_results(send, reference, stream):
    rows, objects, lines = stream[:100], stream[100:200], stream[200:300]
    assert send("POST", "/points", {"points": rows.tolist()}) == (200, {"results": expected(reference, rows)})
    named = [{"y": y, "x": x} for x, y in objects.tolist()]
    assert send("POST", "/points", {"points": named}) == (200, {"results": expected(reference, objects)})
    text = "".join(f"{json.dumps(row)}\n" for row in lines.tolist()).encode()
    assert send("POST", "/points", text, LINES) == (200, {"results": expected(reference, lines)})
    text = "\n".join(json.dumps({"x": x, "y": y}) for x, y in lines.tolist()).encode()
    assert send("POST", "/points", text, LINES) == (200, {"results": expected(reference, lines)})


def test_scores_and_explanations_learn_nothing(send, reference, stream):
    send("POST", "/points", {"points": stream[:300].tolist()})
    reference.process_many(stream[:300])
    for _ in range(2):
        status, response = send("POST", "/scores", {"points": stream.tolist()})
        assert (status, response["anomaly_score"]) == (200, reference.score(stream).tolist())
        assert (response["threshold"], response["n_seen"]) == (reference.threshold_score, 300)
        status, response = send("POST", "/explanations", {"points": [[9.0, 0.0]]})
    reasons = response["explanations"][0]["explanation"]
    assert reasons[0]["feature"] == "x"
    assert (reasons[0]["side"], reasons[0]["value"]) == ("high", 9.0)
    _, low, high, _ = reference.forest.expected_values([[9.0, 0.0]])
    assert [reason["expected"] for reason in reasons] == np.stack([low[0], high[0]], axis=1).tolist()
    assert stream[172:300, 0].min() <= low[0, 0] <= high[0, 0] <= stream[172:300, 0].max()
    assert reasons[0]["text"].startswith("x = 9 (high; expected ")
    parts = reference.explain([9.0, 0.0])
    assert {reason["feature"]: reason["part"] for reason in reasons} == {"x": parts[0], "y": parts[1]}
    assert response["explanations"][0]["anomaly_score"] == pytest.approx(reference.score([[9.0, 0.0]])[0])


def test_scores_and_explanations_work_before_the_first_point(send):
    assert send("POST", "/scores", {"points": [[1, 2]]})[1]["anomaly_score"] == [0.5]
    status, response = send("POST", "/explanations", {"points": [[1, 2]]})
    assert (status, [reason["part"] for reason in response["explanations"][0]["explanation"]]) == (200, [0.25, 0.25])


def test_points_are_forgotten(send, reference, stream):
    send("POST", "/points", {"points": stream[:200].tolist()})
    assert send("DELETE", "/points", {"points": stream[190:].tolist()})[0] == 422  # some were never learned
    assert send("DELETE", "/points", {"points": stream[190:200].tolist()}) == (200, {"n_points": 10})
    reference.process_many(stream[:200])
    reference.forget(stream[190:200])
    assert send("POST", "/scores", {"points": stream.tolist()})[1]["anomaly_score"] == reference.score(stream).tolist()


def test_the_history_has_the_latest_rows_and_their_explanations(send, stream):
    results = send("POST", "/points", {"points": stream.tolist()})[1]["results"]
    status, rows = send("GET", "/history?after=579")
    assert (status, rows["index"]) == (200, list(range(580, 600)))
    assert rows["values"] == stream[580:].tolist()
    assert rows["anomaly_score"] == [each["anomaly_score"] for each in results[580:]]
    assert send("GET", "/history?after=579&limit=3")[1]["index"] == [597, 598, 599]
    odd = [each["index"] for each in results if each["is_anomaly"]][-1]
    status, row = send("GET", f"/history/{odd}")
    assert (status, row["is_anomaly"], row["anomaly_score"]) == (200, True, results[odd]["anomaly_score"])
    assert row["explanation"][0]["share"] >= row["explanation"][1]["share"]
    assert sum(abs(reason["part"]) for reason in row["explanation"]) == pytest.approx(row["anomaly_score"])
    assert send("GET", "/history/600")[0] == 404
    assert send("GET", "/history/-1")[0] == 422


def test_a_row_is_explained_as_if_it_had_not_been_learned(send, reference, stream):
    """Also if the window contains copies of the row."""
    send("POST", "/points", {"points": [*stream[:100].tolist(), [7.0, 0.0]]})
    reference.process_many(stream[:100])
    sizes = [abs(part) for part in reference.explain([7.0, 0.0]).values()]
    status, row = send("GET", "/history/100")
    found = {reason["feature"]: reason["share"] for reason in row["explanation"]}
    assert status == 200
    assert found["x"] == pytest.approx(
        sizes[0] / sum(sizes), abs=0.15
    )  # the trees have the same distribution, not the same cuts
    assert row["explanation"][0]["feature"] == "x"


def test_rows_of_a_shingle_are_explained_together_with_the_previous_rows(service, stream):
    service.request("PUT", "/detectors/shingled", {**XY, "shingle": 3}, JSON)
    rows = stream.copy()
    rows[598, 0] = 30.0
    service.request("POST", "/detectors/shingled/points", {"points": rows.tolist()})
    status, _, content = service.request("GET", "/detectors/shingled/history/599")
    found = json.loads(content)
    leading = found["explanation"][0]
    assert status == 200
    assert {reason["feature"] for reason in found["explanation"]} == {"x", "y"}
    assert (leading["feature"], leading["rows_ago"], leading["value"], leading["side"]) == ("x", [1, 1], 30.0, "high")
    assert leading["text"].startswith("x 1 row ago = 30 (high; expected ")
    assert -4.0 < leading["expected"][0] <= leading["expected"][1] < 10.0
    assert sum(abs(reason["part"]) for reason in found["explanation"]) == pytest.approx(found["anomaly_score"])
    status, _, content = service.request("POST", "/detectors/shingled/explanations", {"points": [[0.0, -30.0]]})
    found = json.loads(content)["explanations"][0]
    named = {(reason["feature"], *reason["rows_ago"]): reason for reason in found["explanation"]}
    assert (named["y", 0, 0]["value"], named["y", 0, 0]["side"]) == (-30.0, "low")
    assert named["x", 2, 2]["value"] == 30.0
    assert sum(abs(reason["part"]) for reason in found["explanation"]) == pytest.approx(found["anomaly_score"])
    scores = service.request("POST", "/detectors/shingled/scores", {"points": [[0.0, -30.0]]})[2]
    assert found["anomaly_score"] == json.loads(scores)["anomaly_score"][0]
    assert service.request("GET", "/detectors/shingled/history/1")[0] == 404  # the rows before it do not exist
    assert service.request("DELETE", "/detectors/shingled/points", {"points": stream[599:].tolist()})[0] == 422
    service.request("DELETE", "/detectors/shingled")


def test_a_shingle_with_too_few_rows_has_no_explanation(service):
    service.request("PUT", "/detectors/short", {**XY, "shingle": 3}, JSON)
    service.request("POST", "/detectors/short/points", {"points": [[1.0, 2.0]]})
    content = service.request("POST", "/detectors/short/explanations", {"points": [[1.0, 2.0]]})[2]
    assert json.loads(content) == {"explanations": [{"anomaly_score": 0.5, "surprise": 0.0, "explanation": []}]}
    service.request("DELETE", "/detectors/short")


def test_a_model_file_is_downloaded_and_checked_when_uploaded(send, reference, stream):
    send("POST", "/points", {"points": stream[:200].tolist()})
    status, content = send("GET", "/model")
    reference.process_many(stream[:200])
    named = StreamDetector.from_notes(reference.forest, {**reference.notes(), "names": ["x", "y"]})
    assert (status, content) == (200, to_bytes(named, {"service": {"time": "time", "silence": None}}))
    send("POST", "/points", {"points": stream[200:300].tolist()})
    assert send("PUT", "/model", content, {}) == (200, {"n_points": 200})
    assert send("POST", "/points", {"points": stream[200:].tolist()})[1]["results"] == expected(reference, stream[200:])
    damaged = bytearray(content)
    damaged[len(damaged) // 2] ^= 0xFF
    for wrong in (b"", b"none", bytes(damaged), content[:-100]):
        status, response = send("PUT", "/model", wrong, {})
        assert status == 422, response
    named = new_detector({**DEFAULTS, **XY})
    named.process({"y": 1.0, "x": 2.0})
    status, response = send("PUT", "/model", to_bytes(named), {})
    assert status == 422
    assert "features is ['y', 'x'], not ['x', 'y']" in response["detail"]
    status, response = send("PUT", "/model", to_bytes(StreamDetector(2, window=64, max_samples=16)), {})
    assert status == 422
    assert "window is 64, not 128" in response["detail"]
    assert send("GET", "")[1]["n_seen"] == 600


def test_a_repeated_request_gets_the_same_response(send, stream):
    headers = JSON | {"Idempotency-Key": "one"}
    first = send("POST", "/points", {"points": stream[:5].tolist()}, headers)
    assert send("POST", "/points", {"points": stream[:5].tolist()}, headers) == first
    assert send("GET", "")[1]["n_seen"] == 5
    wrong = JSON | {"Idempotency-Key": "x" * 200}
    assert send("POST", "/points", {"points": stream[:5].tolist()}, wrong)[0] == 422


WRONG_BODIES = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"\xff\xfe", "not JSON"),
    (b"[" * 100_000, "not JSON"),
    (b"[]", "points"),
    (b'{"points": 3}', "points"),
    (b'{"points": []}', "no points"),
    (b'{"points": [[1, 2]], "more": 1}', "points"),
    (b'{"points": [[1, 2, 3]]}', "Point 0 must be a list of 2 values"),
    (b'{"points": [[1, 2], [1]]}', "Point 1 must be a list of 2 values"),
    (b'{"points": [[1, 2], [1, "2"]]}', "'y' of point 1 must be a number, but is \"2\"."),
    (b'{"points": [[1, true]]}', "'y' of point 0 must be a number, but is true."),
    (b'{"points": [[1, 2], [null, null]]}', "Point 1 has no value: everything is missing."),
    (b'{"points": [{"time": "2026-01-31"}]}', "Point 0 has no value: everything is missing."),
    (b'{"points": [{"x": 1, "time": "at noon"}]}', "'time' of point 0 must be a time in ISO 8601"),
    (b'{"points": [{"x": 1, "time": 1767225600}]}', "but is 1767225600."),
    (b'{"points": [{"x": 1, "time": "2026-01-31T12:30:00.' + b"0" * 99 + b'"}]}', "'time' of point 0"),
    (b'{"points": [[1, NaN]]}', "NaN"),
    (b'{"points": [[1, Infinity]]}', "Infinity"),
    (b'{"points": [[1, 1e999]]}', "'y' of point 0 must be at most 1e+153 in absolute value, but is Infinity"),
    (b'{"points": [[1, 1' + b"0" * 400 + b"]]}", "'y' of point 0 must be a number within the range of a 64-bit float"),
    (b'{"points": [[1, 1e300]]}', "1e+300"),
    (b'{"points": [{}]}', "Point 0 has no value: everything is missing."),
    (b'{"points": [{"x": 1, "y": 2, "z": 3}]}', "'z'"),
    (b'{"points": [{"x": 1, "y": "2"}]}', "'y' of point 0 must be a number"),
    (b'{"points": [{"x": 1, "y": 2}, [1, 2]]}', "Point 1"),
    (b'{"points": [[1, 2]], "points": [[3, 4]]}', "'points' more than once"),
    (b'{"points": [{"x": 1, "y": 2, "x": 3}]}', "'x' more than once"),
]


@pytest.mark.parametrize(("body", "message"), WRONG_BODIES, ids=range(len(WRONG_BODIES)))
@pytest.mark.parametrize("path", ["/points", "/scores", "/explanations"])
def test_an_invalid_body_gets_a_one_line_error_and_nothing_is_learned(send, path, body, message):
    status, response = send("POST", path, body)
    assert status == 422, response
    assert message in response["detail"], response
    assert "\n" not in response["detail"]
    assert "Traceback" not in response["detail"]
    assert len(response["detail"]) < 500
    assert send("GET", "")[1]["n_seen"] == 0


HOSTILE = [
    "..", ".", "../../etc/passwd", "..%2F..%2Fetc%2Fpasswd", "%2e%2e", "a/b", "a%2Fb", "a%5Cb", "%00", "a%00b", "a%0Ab",
    "-a", "_a", ".hidden", "a b", "a%20b", "<script>", "%3Cscript%3E", "'; DROP TABLE detectors; --", "ä", "%C3%A4",
    "a" * 65, "a" * 10_000, "a%3Fb", "con:", "a\\b", "*", "%25", "\u202e",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_create_and_access_nothing(service, name):
    before = sorted(path.name for path in service.folder.rglob("*"))
    detectors = service.request("GET", "/detectors")[2]
    escaped = "".join(letter if letter.isascii() and letter not in " \n" else "%F0%9F" for letter in name)
    for method, path, body in [("PUT", "", XY), ("POST", "/points", {"points": [[1, 2]]}), ("GET", "", None)]:
        status, _, content = service.request(method, f"/detectors/{escaped}{path}", body, JSON)
        assert status in (404, 405, 422), (status, content)
    assert service.request("GET", f"/static/{escaped}")[0] == (422 if "%F0%9F" in escaped else 404)  # it is not UTF-8
    assert service.request("GET", "/detectors")[2] == detectors
    assert sorted(path.name for path in service.folder.rglob("*")) == before


def test_only_the_files_of_the_page_are_served(service):
    assert service.request("GET", "/")[0] == 200
    assert service.request("GET", "/static/plotly.min.js")[0] == 200
    for name in ("../asgi.py", "..%2Fasgi.py", "asgi.py", "", "index.html/"):
        assert service.request("GET", f"/static/{name}")[0] == 404, name


def test_a_file_in_the_browser_cache_is_not_sent_again(service):
    path = "/static/plotly.min.js"
    _, headers, content = service.request("GET", path)
    assert service.request("GET", path, headers={"If-None-Match": headers["etag"]})[::2] == (304, b"")
    status, short_headers, short = service.request("GET", path, headers={"Accept-Encoding": "gzip, br"})
    assert (status, short_headers["content-encoding"]) == (200, "gzip")
    assert len(short) < len(content) / 2
    assert gzip.decompress(short) == content


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[]", "object"),
        (b"{}", "features: Field required"),
        (b'{"features": 3}', "features: Input should be a valid"),
        (b'{"features": ["x"], "windw": 3}', "windw"),
        (b'{"features": ["x"], "window": "wide"}', "window"),
        (b'{"features": ["x"], "threshold": 7}', "7"),
        (b'{"features": ["\\ud800"]}', "all of them printable"),
        (b'{"features": ' + b"1" * 5_000 + b"}", "JSON"),
        (b'{"features": ["x"], "seed": NaN}', "finite"),
        (b'{"features": [' + b"1," * 1_000 + b"1]}", "features has 1001 items, but at most 1000 are allowed"),
        (b'{"features": ["x"], "scale": [' + b'"",' * 1_000 + b'""]}', "scale has 1001 items"),
        (b'{"features": ["x"], "seed": -1}', "seed"),
        (b'{"features": ["x"], "window": 64, "window": 65}', "'window' more than once"),
    ],
)
@pytest.mark.parametrize("headers", [JSON, {}, {"Content-Type": "application/x-www-form-urlencoded"}])
def test_an_invalid_configuration_gets_a_one_line_error_for_any_content_type(service, body, message, headers):
    status, _, content = service.request("PUT", "/detectors/wrong", body, headers)
    detail = json.loads(content)["detail"]
    assert status == 422
    assert message in detail, detail
    assert "\n" not in detail
    assert service.request("GET", "/detectors/wrong")[0] == 404


def test_every_response_has_the_security_headers(service):
    for path in (
        "/",
        "/docs",
        "/static/style.css",
        "/detectors",
        "/detectors/none",
        "/detectors/none/points",
        "/health",
        "/nowhere",
    ):
        for method in ("GET", "POST"):
            _, headers, _ = service.request(method, path)
            headers = {name.lower(): value for name, value in headers.items()}
            assert headers["x-content-type-options"] == "nosniff", path
            assert headers["x-frame-options"] == "DENY"
            assert "default-src 'self'" in headers["content-security-policy"]
            assert "server" not in headers


def test_pages_of_other_sites_are_refused(service):
    for headers in ({"Host": "evil.example"}, {"Host": f"evil.example:{service.port}"}, {"Host": "["}, {"Host": ""}):
        assert service.request("GET", "/detectors", headers=headers)[0] == 403, headers
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{service.port + 1}", "http://127.0.0.1"):
        assert service.request("GET", "/detectors", headers={"Origin": origin})[0] == 403, origin
    for host in ("127.0.0.1", "127.0.0.2", "localhost", "localhost.", "[::1]"):
        headers = {"Host": f"{host}:{service.port}", "Origin": f"http://{host}:{service.port}"}
        assert service.request("GET", "/detectors", headers=headers)[0] == 200, host


def test_an_unsupported_method_gets_405_with_the_allowed_ones(service):
    status, headers, _ = service.request("PATCH", "/detectors/none/points")
    assert (status, headers["allow"]) == (405, "DELETE, POST")


def test_metrics_have_the_prometheus_format(service, stream):
    service.request("PUT", "/detectors/counted", XY, JSON)
    service.request("POST", "/detectors/counted/points", {"points": stream.tolist()})
    _, headers, content = service.request("GET", "/metrics")
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = content.decode().splitlines()
    assert 'imondrian_points_total{detector="counted"} 600' in lines
    for line in lines:
        kind, name, *_ = line.lstrip("# ").split(maxsplit=2) if line.startswith("#") else ("", line)
        assert kind in ("", "HELP", "TYPE")
        assert name.startswith("imondrian_")
    service.request("DELETE", "/detectors/counted")


# -- limits ---------------------------------------------------------------------------------------------------------


def test_a_body_that_is_too_long_is_refused_before_it_is_read(service, send):
    declared = {"Content-Type": "application/json", "Content-Length": str(2**40)}
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
        head = "".join(f"{name}: {value}\r\n" for name, value in (declared | {"Host": "127.0.0.1"}).items())
        connection.sendall(f"POST /detectors/none/points HTTP/1.1\r\n{head}\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")
    assert send("POST", "/points", b" " * (32 * 2**20 + 1))[0] == 413


def test_the_length_of_a_chunked_body_is_checked_while_it_is_read(service):
    service.request("PUT", "/detectors/long", XY, JSON)
    head = b"HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    piece = b"100000\r\n" + b" " * 2**20 + b"\r\n"
    for path in (b"points", b"scores"):
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
            connection.sendall(b"POST /detectors/long/" + path + b" " + head)
            with contextlib.suppress(OSError):  # the service may respond and close meanwhile
                for _ in range(40):
                    connection.sendall(piece)
            assert connection.recv(1000).startswith(b"HTTP/1.1 413")
    service.request("DELETE", "/detectors/long")


def test_nothing_is_learned_if_the_client_disconnects_within_a_body(service, send, stream):
    name = json.loads(service.request("GET", "/detectors")[2])[-1]["name"]
    lines = [f"{json.dumps(row)}\n".encode() for row in stream[:10].tolist()]
    head = (
        f"POST /detectors/{name}/points HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n"
        f"Idempotency-Key: one\r\nContent-Length: {len(b''.join(lines))}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
        connection.sendall(head.encode() + b"".join(lines[:4]))
    status, response = send("POST", "/points", b"".join(lines), LINES | {"Idempotency-Key": "one"})
    assert (status, len(response["results"])) == (200, 10)
    assert send("GET", "")[1]["n_seen"] == 10


def test_nothing_is_logged_if_the_client_disconnects_within_a_body(tmp_path):
    with Service(tmp_path) as service:
        assert service.request("PUT", "/detectors/a", XY, JSON)[0] == 201
        for method, path in [
            ("PUT", "/detectors/b"),
            ("POST", "/detectors/a/points"),
            ("DELETE", "/detectors/a/points"),
            ("POST", "/detectors/a/scores"),
            ("POST", "/detectors/a/explanations"),
            ("PUT", "/detectors/a/model"),
        ]:
            for head in ("Content-Length: 1000", "Transfer-Encoding: chunked"):
                with service.connect() as connection:
                    connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n\r\n8\r\n".encode())
                    time.sleep(0.05)  # let the service read it
        assert service.request("GET", "/health")[0] == 200
    lines = [line for line in service.output.splitlines() if "compiling" not in line]  # on a slow machine
    assert len(lines) == 1, service.output


@pytest.mark.parametrize(
    "settings",
    [
        {"window": True},
        {"n_trees": "20"},
        {"learn_anomalies": "no"},
        {"seed": True},
        {"warm_up": "5"},
        {"scale": ["1"]},
    ],
)
def test_settings_are_not_converted_to_another_type(service, settings):
    status, _, body = service.request("PUT", "/detectors/strict", {"features": ["x"], **settings}, JSON)
    assert status == 422
    assert next(iter(settings)) in str(body)


@pytest.mark.parametrize("number", ["%2B0.0", "0.0", "1e0", "+1", "", "true"])
def test_numbers_in_a_query_are_plain_integers(send, number):
    assert send("GET", f"/history?after={number}")[0] == 422
    assert send("GET", "/history?after=-1&limit=5")[0] == 200


def test_only_bodies_with_models_or_points_may_be_long(service, send):
    assert service.request("PUT", "/detectors/long", b" " * (2**20 + 1), JSON)[0] == 413
    assert send("PUT", "/model", b" " * (33 * 2**20), {})[0] == 422


def test_too_many_points_are_refused(send):
    status, response = send("POST", "/points", {"points": [[1, 2]] * 100_001})
    assert status == 422
    assert "100001 points" in response["detail"]
    status, response = send("POST", "/explanations", {"points": [[1, 2]] * 1001})
    assert status == 422
    assert "1001 points" in response["detail"]


def test_a_full_queue_gives_429_with_retry_after(tmp_path, stream):
    registry = Registry(tmp_path, Limits(waiting_requests=2))
    handle, _ = registry.create("a", XY)
    body, statuses = {"points": stream[:1].tolist()}, []

    def post():
        status, headers, _ = server.request("POST", "/detectors/a/points", body)
        statuses.append((status, headers.get("retry-after")))

    with ThreadServer(create_app(registry)) as server:
        with handle.worker.read_copy._write_lock:  # nothing is applied meanwhile
            threads = [threading.Thread(target=post) for _ in range(8)]
            threads[0].start()
            wait_until(
                lambda: (
                    handle.worker._state.entry_number == 0
                    and handle.worker._n_journalled == 1
                    and not handle.worker.n_waiting
                )
            )
            for thread in threads[1:]:
                thread.start()
            wait_until(lambda: len(statuses) >= 5)  # one is being applied, and two wait
            assert statuses == 5 * [(429, "1")]
        for thread in threads:
            thread.join()
    assert statuses[5:] == 3 * [(200, None)]


def test_health_reports_a_failing_disk_until_it_works_again(tmp_path):
    registry = Registry(tmp_path)
    registry.create("a", XY)
    body = {"points": [[1, 2]]}
    with ThreadServer(create_app(registry)) as server:
        assert json.loads(server.request("GET", "/health")[2]) == {"status": "ok", "problems": []}
        registry._store._database.execute("PRAGMA query_only = ON")  # like a disk that has become read-only
        for method, path, sent in [("POST", "/detectors/a/points", body), ("PUT", "/detectors/b", XY)]:
            status, _, content = server.request(method, path, sent, JSON)
            assert status == 507
            assert "could not be stored" in json.loads(content)["detail"]
        status, _, content = server.request("GET", "/health")
        assert (status, json.loads(content)["status"]) == (503, "failing")
        assert server.request("POST", "/detectors/a/scores", body)[0] == 200  # reads still work
        registry._store._database.execute("PRAGMA query_only = OFF")
        assert server.request("GET", "/health")[0] == 200
        assert json.loads(server.request("POST", "/detectors/a/points", body)[2])["results"][0]["index"] == 0


def test_internal_errors_are_reported_without_details(tmp_path, monkeypatch, caplog):
    registry = Registry(tmp_path)
    handle, _ = registry.create("a", XY)
    with ThreadServer(create_app(registry)) as server, monkeypatch.context() as patched:
        patched.setattr(type(handle.worker), "submit", lambda *_: 1 / 0)
        patched.setattr(routes.lifecycle, "description_of", lambda *_: 1 / 0)
        for method, path in [("POST", "/detectors/a/points"), ("GET", "/detectors")]:
            status, headers, content = server.request(method, path, {"points": [[1, 2]]})
            assert status == 500
            assert json.loads(content) == {"detail": "Internal error; see the log of the service."}
            assert headers["x-content-type-options"] == "nosniff"
    assert "ZeroDivisionError" in caplog.text


# -- tokens ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["file", "environment"])
def guarded(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "token").write_text(f"{TOKEN}\n")
    options = ["--token-file", str(folder / "token")] if request.param == "file" else []
    token = None if options else TOKEN
    with Service(folder / "data", "--host", "0.0.0.0", *options, token=token) as running:  # noqa: S104
        yield running


def test_only_health_and_the_page_are_public_without_the_token(guarded):
    for headers_sent in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": TOKEN},
        {"Authorization": f"Basic {TOKEN}"},
    ):
        for method, path in [
            ("GET", "/detectors"),
            ("GET", "/metrics"),
            ("GET", "/openapi.json"),
            ("POST", "/detectors/a/points"),
        ]:
            status, headers, content = guarded.request(method, path, headers=headers_sent)
            assert (status, headers["www-authenticate"]) == (401, "Bearer"), (path, content)
        for method in ("GET", "HEAD"):
            assert guarded.request(method, "/health", headers=headers_sent)[0] == 200
        for path in ("/", "/docs"):
            assert guarded.request("GET", path, headers=headers_sent)[0] == 200


def test_no_response_redirects_to_the_host_header(guarded):
    for path in ("/static/style.css/", "/health/", "/detectors/", "//evil.example/", "/static//evil.example/.."):
        for headers_sent in ({}, {"Authorization": f"Bearer {TOKEN}"}):
            status, headers, content = guarded.request("GET", path, headers=headers_sent | {"Host": "evil.example"})
            assert status in (401, 404), path
            assert "location" not in {name.lower() for name in headers}
            assert b"evil.example" not in content


def test_any_host_works_with_the_token(guarded, stream):
    headers_sent = {"Authorization": f"Bearer {TOKEN}", "Host": "pumps.example"}
    assert guarded.request("PUT", "/detectors/a", XY, headers_sent | JSON)[0] in (200, 201)
    assert guarded.request("POST", "/detectors/a/points", {"points": stream[:1].tolist()}, headers_sent)[0] == 200
    with Client(guarded.address, TOKEN) as client:
        assert [each["name"] for each in client.detectors()] == ["a"]

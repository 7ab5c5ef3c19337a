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
from imondrian.service import routes
from imondrian.service.asgi import create_app
from imondrian.service.client import Client
from imondrian.service.configuration import DEFAULTS, new_detector
from imondrian.service.limits import Limits
from imondrian.service.registry import Registry
from tests.service.serving import SMALL, Here, Service, wait_until
from tests.service.test_worker import expected

XY = {"features": ["x", "y"], **SMALL}
JSON, LINES = {"Content-Type": "application/json"}, {"Content-Type": "application/x-ndjson"}
TOKEN = "a-token-of-more-than-sixteen"  # noqa: S105


@pytest.fixture
def ask(service, request):
    """Ask the service about a detector of this test, and return status and content."""
    name = f"d{abs(hash(request.node.name))}"[:20]
    assert service.ask("PUT", f"/detectors/{name}", XY, JSON)[0] == 201

    def asked(method, path, body=None, headers=JSON):
        status, _, content = service.ask(method, f"/detectors/{name}{path}", body, headers)
        return status, json.loads(content) if content.startswith((b"{", b"[")) else content

    yield asked
    service.ask("DELETE", f"/detectors/{name}")


@pytest.fixture
def alone():
    return new_detector({**DEFAULTS, **XY})


def test_rows_objects_and_lines_give_the_same_results(ask, alone, stream):
    rows, objects, lines = stream[:100], stream[100:200], stream[200:300]
    assert ask("POST", "/points", {"points": rows.tolist()}) == (200, {"results": expected(alone, rows)})
    named = [{"y": y, "x": x} for x, y in objects.tolist()]
    assert ask("POST", "/points", {"points": named}) == (200, {"results": expected(alone, objects)})
    text = "".join(f"{json.dumps(row)}\n" for row in lines.tolist()).encode()
    assert ask("POST", "/points", text, LINES) == (200, {"results": expected(alone, lines)})
    text = "\n".join(json.dumps({"x": x, "y": y}) for x, y in lines.tolist()).encode()
    assert ask("POST", "/points", text, LINES) == (200, {"results": expected(alone, lines)})


def test_scores_and_explanations_learn_nothing(ask, alone, stream):
    ask("POST", "/points", {"points": stream[:300].tolist()})
    alone.process_many(stream[:300])
    for _ in range(2):
        status, answer = ask("POST", "/scores", {"points": stream.tolist()})
        assert (status, answer["anomaly_score"]) == (200, alone.score(stream).tolist())
        assert (answer["threshold"], answer["n_seen"]) == (alone.threshold, 300)
        status, answer = ask("POST", "/explanations", {"points": [[9.0, 0.0]]})
    reasons = answer["explanations"][0]["explanation"]
    assert reasons[0]["feature"] == "x"
    assert (reasons[0]["side"], reasons[0]["value"]) == ("high", 9.0)
    low, high = np.percentile(stream[172:300, 0], [1, 99])
    assert reasons[0]["usual"] == [low, high]
    parts = alone.explain([9.0, 0.0])
    assert {reason["feature"]: reason["part"] for reason in reasons} == {"x": parts[0], "y": parts[1]}
    assert answer["explanations"][0]["anomaly_score"] == pytest.approx(alone.score([[9.0, 0.0]])[0])


def test_scores_and_explanations_work_before_the_first_point(ask):
    assert ask("POST", "/scores", {"points": [[1, 2]]})[1]["anomaly_score"] == [0.5]
    status, answer = ask("POST", "/explanations", {"points": [[1, 2]]})
    assert (status, [reason["part"] for reason in answer["explanations"][0]["explanation"]]) == (200, [0.25, 0.25])


def test_points_are_forgotten(ask, alone, stream):
    ask("POST", "/points", {"points": stream[:200].tolist()})
    assert ask("DELETE", "/points", {"points": stream[190:].tolist()})[0] == 422  # some were never learned
    assert ask("DELETE", "/points", {"points": stream[190:200].tolist()}) == (200, {"n_points": 10})
    alone.process_many(stream[:200])
    alone.forget(stream[190:200])
    assert ask("POST", "/scores", {"points": stream.tolist()})[1]["anomaly_score"] == alone.score(stream).tolist()


def test_the_history_has_the_latest_rows_and_their_explanations(ask, stream):
    results = ask("POST", "/points", {"points": stream.tolist()})[1]["results"]
    status, rows = ask("GET", "/history?after=579")
    assert (status, rows["index"]) == (200, list(range(580, 600)))
    assert rows["values"] == stream[580:].tolist()
    assert rows["anomaly_score"] == [each["anomaly_score"] for each in results[580:]]
    assert ask("GET", "/history?after=579&limit=3")[1]["index"] == [597, 598, 599]
    odd = [each["index"] for each in results if each["is_anomaly"]][-1]
    status, row = ask("GET", f"/history/{odd}")
    assert (status, row["is_anomaly"], row["anomaly_score"]) == (200, True, results[odd]["anomaly_score"])
    assert row["explanation"][0]["share"] >= row["explanation"][1]["share"]
    assert ask("GET", "/history/600")[0] == 404
    assert ask("GET", "/history/-1")[0] == 422


def test_a_row_is_explained_as_if_it_had_not_been_learned(ask, alone, stream):
    """Also if the window contains copies of the row."""
    ask("POST", "/points", {"points": [*stream[:100].tolist(), [7.0, 0.0]]})
    alone.process_many(stream[:100])
    sizes = [abs(part) for part in alone.explain([7.0, 0.0]).values()]
    status, row = ask("GET", "/history/100")
    found = {reason["feature"]: reason["share"] for reason in row["explanation"]}
    assert status == 200
    assert found["x"] == pytest.approx(
        sizes[0] / sum(sizes), abs=0.15
    )  # the trees have the same distribution, not the same cuts
    assert row["explanation"][0]["feature"] == "x"


def test_rows_of_a_shingle_are_explained_together_with_the_previous_rows(service, stream):
    service.ask("PUT", "/detectors/shingled", {**XY, "shingle": 3}, JSON)
    service.ask("POST", "/detectors/shingled/points", {"points": stream.tolist()})
    status, _, content = service.ask("GET", "/detectors/shingled/history/599")
    assert status == 200
    assert {reason["feature"] for reason in json.loads(content)["explanation"]} == {"x", "y"}
    assert service.ask("GET", "/detectors/shingled/history/1")[0] == 404  # the rows before it do not exist
    assert service.ask("DELETE", "/detectors/shingled/points", {"points": stream[599:].tolist()})[0] == 422
    service.ask("DELETE", "/detectors/shingled")


def test_a_model_file_is_downloaded_and_checked_when_uploaded(ask, alone, stream):
    ask("POST", "/points", {"points": stream[:200].tolist()})
    status, content = ask("GET", "/model")
    alone.process_many(stream[:200])
    named = StreamDetector.from_notes(alone.forest, {**alone.notes(), "names": ["x", "y"]})
    assert (status, content) == (200, to_bytes(named))
    ask("POST", "/points", {"points": stream[200:300].tolist()})
    assert ask("PUT", "/model", content, {}) == (200, {"n_points": 200})
    assert ask("POST", "/points", {"points": stream[200:].tolist()})[1]["results"] == expected(alone, stream[200:])
    spoilt = bytearray(content)
    spoilt[len(spoilt) // 2] ^= 0xFF
    for wrong in (b"", b"none", bytes(spoilt), content[:-100]):
        status, answer = ask("PUT", "/model", wrong, {})
        assert status == 422, answer
    named = new_detector({**DEFAULTS, **XY})
    named.process({"y": 1.0, "x": 2.0})
    status, answer = ask("PUT", "/model", to_bytes(named), {})
    assert status == 422
    assert "features is ['y', 'x'], not ['x', 'y']" in answer["detail"]
    status, answer = ask("PUT", "/model", to_bytes(StreamDetector(2, window=64, max_samples=16)), {})
    assert status == 422
    assert "window is 64, not 128" in answer["detail"]
    assert ask("GET", "")[1]["n_seen"] == 600


def test_a_repeated_request_gets_the_same_response(ask, stream):
    headers = JSON | {"Idempotency-Key": "one"}
    first = ask("POST", "/points", {"points": stream[:5].tolist()}, headers)
    assert ask("POST", "/points", {"points": stream[:5].tolist()}, headers) == first
    assert ask("GET", "")[1]["n_seen"] == 5
    wrong = JSON | {"Idempotency-Key": "x" * 200}
    assert ask("POST", "/points", {"points": stream[:5].tolist()}, wrong)[0] == 422


WRONG_BODIES = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"\xff\xfe", "not JSON"),
    (b"[" * 100_000, "not JSON"),
    (b"[]", "points"),
    (b'{"points": 3}', "points"),
    (b'{"points": []}', "no points"),
    (b'{"points": [[1, 2]], "more": 1}', "points"),
    (b'{"points": [[1, 2, 3]]}', "Point 0 must be a list of 2 numbers"),
    (b'{"points": [[1, 2], [1]]}', "Point 1 must be a list of 2 numbers"),
    (b'{"points": [[1, "2"]]}', "Point 0 must be a list of 2 numbers"),
    (b'{"points": [[1, true]]}', "Point 0 must be a list of 2 numbers"),
    (b'{"points": [[1, null]]}', "Point 0 must be a list of 2 numbers"),
    (b'{"points": [[1, NaN]]}', "NaN"),
    (b'{"points": [[1, Infinity]]}', "Infinity"),
    (b'{"points": [[1, 1e999]]}', "inf"),
    (b'{"points": [[1, 1' + b"0" * 400 + b"]]}", "X"),
    (b'{"points": [[1, 1e300]]}', "1e+300"),
    (b'{"points": [{"x": 1}]}', "'y'"),
    (b'{"points": [{"x": 1, "y": 2, "z": 3}]}', "'z'"),
    (b'{"points": [{"x": 1, "y": "2"}]}', "'y' of point 0 must be a number"),
    (b'{"points": [{"x": 1, "y": 2}, [1, 2]]}', "Point 1"),
    (b'{"points": [[1, 2]], "points": [[3, 4]]}', "'points' more than once"),
    (b'{"points": [{"x": 1, "y": 2, "x": 3}]}', "'x' more than once"),
]


@pytest.mark.parametrize(("body", "told"), WRONG_BODIES, ids=range(len(WRONG_BODIES)))
@pytest.mark.parametrize("path", ["/points", "/scores", "/explanations"])
def test_an_invalid_body_gets_a_one_line_error_and_nothing_is_learned(ask, path, body, told):
    status, answer = ask("POST", path, body)
    assert status == 422, answer
    assert told in answer["detail"], answer
    assert "\n" not in answer["detail"]
    assert "Traceback" not in answer["detail"]
    assert len(answer["detail"]) < 500
    assert ask("GET", "")[1]["n_seen"] == 0


HOSTILE = [
    "..", ".", "../../etc/passwd", "..%2F..%2Fetc%2Fpasswd", "%2e%2e", "a/b", "a%2Fb", "a%5Cb", "%00", "a%00b", "a%0Ab",
    "-a", "_a", ".hidden", "a b", "a%20b", "<script>", "%3Cscript%3E", "'; DROP TABLE detectors; --", "ä", "%C3%A4",
    "a" * 65, "a" * 10_000, "a%3Fb", "con:", "a\\b", "*", "%25", "\u202e",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_create_and_access_nothing(service, name):
    before = sorted(path.name for path in service.folder.rglob("*"))
    detectors = service.ask("GET", "/detectors")[2]
    asked = "".join(letter if letter.isascii() and letter not in " \n" else "%F0%9F" for letter in name)
    for method, path, body in [("PUT", "", XY), ("POST", "/points", {"points": [[1, 2]]}), ("GET", "", None)]:
        status, _, content = service.ask(method, f"/detectors/{asked}{path}", body, JSON)
        assert status in (404, 405, 422), (status, content)
    assert service.ask("GET", f"/static/{asked}")[0] == 404
    assert service.ask("GET", "/detectors")[2] == detectors
    assert sorted(path.name for path in service.folder.rglob("*")) == before


def test_only_the_files_of_the_page_are_served(service):
    assert service.ask("GET", "/")[0] == 200
    assert service.ask("GET", "/static/plotly.min.js")[0] == 200
    for name in ("../asgi.py", "..%2Fasgi.py", "asgi.py", "", "index.html/"):
        assert service.ask("GET", f"/static/{name}")[0] == 404, name


def test_a_file_in_the_browser_cache_is_not_sent_again(service):
    path = "/static/plotly.min.js"
    _, headers, content = service.ask("GET", path)
    assert service.ask("GET", path, headers={"If-None-Match": headers["etag"]})[::2] == (304, b"")
    status, short_headers, short = service.ask("GET", path, headers={"Accept-Encoding": "gzip, br"})
    assert (status, short_headers["content-encoding"]) == (200, "gzip")
    assert len(short) < len(content) / 2
    assert gzip.decompress(short) == content


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[]", "object"),
        (b"{}", "features: Field required"),
        (b'{"features": 3}', "features: Input should be a valid"),
        (b'{"features": ["x"], "windw": 3}', "windw"),
        (b'{"features": ["x"], "window": "wide"}', "window"),
        (b'{"features": ["x"], "threshold": 7}', "7"),
        (b'{"features": ["\\ud800"]}', "Invalid JSON"),
        (b'{"features": ["x"], "seed": -1}', "seed"),
        (b'{"features": ["x"], "window": 64, "window": 65}', "'window' more than once"),
    ],
)
@pytest.mark.parametrize("headers", [JSON, {}, {"Content-Type": "application/x-www-form-urlencoded"}])
def test_an_invalid_configuration_gets_a_one_line_error_for_any_content_type(service, body, told, headers):
    status, _, content = service.ask("PUT", "/detectors/wrong", body, headers)
    detail = json.loads(content)["detail"]
    assert status == 422
    assert told in detail, detail
    assert "\n" not in detail
    assert service.ask("GET", "/detectors/wrong")[0] == 404


def test_every_response_has_the_security_headers(service):
    for path in (
        "/",
        "/static/style.css",
        "/detectors",
        "/detectors/none",
        "/detectors/none/points",
        "/health",
        "/nowhere",
    ):
        for method in ("GET", "POST"):
            _, headers, _ = service.ask(method, path)
            headers = {name.lower(): value for name, value in headers.items()}
            assert headers["x-content-type-options"] == "nosniff", path
            assert headers["x-frame-options"] == "DENY"
            assert "default-src 'self'" in headers["content-security-policy"]
            assert "server" not in headers


def test_pages_of_other_sites_are_refused(service):
    for headers in ({"Host": "evil.example"}, {"Host": f"evil.example:{service.port}"}, {"Host": "["}, {"Host": ""}):
        assert service.ask("GET", "/detectors", headers=headers)[0] == 403, headers
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{service.port + 1}", "http://127.0.0.1"):
        assert service.ask("GET", "/detectors", headers={"Origin": origin})[0] == 403, origin
    for host in ("127.0.0.1", "127.0.0.2", "localhost", "localhost.", "[::1]"):
        headers = {"Host": f"{host}:{service.port}", "Origin": f"http://{host}:{service.port}"}
        assert service.ask("GET", "/detectors", headers=headers)[0] == 200, host


def test_an_unsupported_method_gets_405_with_the_allowed_ones(service):
    status, headers, _ = service.ask("PATCH", "/detectors/none/points")
    assert (status, headers["allow"]) == (405, "DELETE, POST")


def test_metrics_have_the_prometheus_format(service, stream):
    service.ask("PUT", "/detectors/counted", XY, JSON)
    service.ask("POST", "/detectors/counted/points", {"points": stream.tolist()})
    _, headers, content = service.ask("GET", "/metrics")
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = content.decode().splitlines()
    assert 'imondrian_points_total{detector="counted"} 600' in lines
    for line in lines:
        kind, name, *_ = line.lstrip("# ").split(maxsplit=2) if line.startswith("#") else ("", line)
        assert kind in ("", "HELP", "TYPE")
        assert name.startswith("imondrian_")
    service.ask("DELETE", "/detectors/counted")


# -- limits ---------------------------------------------------------------------------------------------------------


def test_a_body_that_is_too_long_is_refused_before_it_is_read(service, ask):
    declared = {"Content-Type": "application/json", "Content-Length": str(2**40)}
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
        head = "".join(f"{name}: {value}\r\n" for name, value in (declared | {"Host": "127.0.0.1"}).items())
        connection.sendall(f"POST /detectors/none/points HTTP/1.1\r\n{head}\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")
    assert ask("POST", "/points", b" " * (32 * 2**20 + 1))[0] == 413


def test_the_length_of_a_chunked_body_is_checked_while_it_is_read(service):
    service.ask("PUT", "/detectors/long", XY, JSON)
    head = b"HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    piece = b"100000\r\n" + b" " * 2**20 + b"\r\n"
    for path in (b"points", b"scores"):
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
            connection.sendall(b"POST /detectors/long/" + path + b" " + head)
            with contextlib.suppress(OSError):  # the service may respond and close meanwhile
                for _ in range(40):
                    connection.sendall(piece)
            assert connection.recv(1000).startswith(b"HTTP/1.1 413")
    service.ask("DELETE", "/detectors/long")


def test_nothing_is_learned_if_the_client_disconnects_within_a_body(service, ask, stream):
    name = json.loads(service.ask("GET", "/detectors")[2])[-1]["name"]
    lines = [f"{json.dumps(row)}\n".encode() for row in stream[:10].tolist()]
    head = (
        f"POST /detectors/{name}/points HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n"
        f"Idempotency-Key: one\r\nContent-Length: {len(b''.join(lines))}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
        connection.sendall(head.encode() + b"".join(lines[:4]))
    status, answer = ask("POST", "/points", b"".join(lines), LINES | {"Idempotency-Key": "one"})
    assert (status, len(answer["results"])) == (200, 10)
    assert ask("GET", "")[1]["n_seen"] == 10


def test_nothing_is_logged_if_the_client_disconnects_within_a_body(tmp_path):
    with Service(tmp_path) as service:
        assert service.ask("PUT", "/detectors/a", XY, JSON)[0] == 201
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
        assert service.ask("GET", "/health")[0] == 200
    assert len(service.said.splitlines()) == 1, service.said


def test_only_bodies_with_models_or_points_may_be_long(service, ask):
    assert service.ask("PUT", "/detectors/long", b" " * (2**20 + 1), JSON)[0] == 413
    assert ask("PUT", "/model", b" " * (33 * 2**20), {})[0] == 422


def test_too_many_points_are_refused(ask):
    status, answer = ask("POST", "/points", {"points": [[1, 2]] * 100_001})
    assert status == 422
    assert "100001 points" in answer["detail"]
    status, answer = ask("POST", "/explanations", {"points": [[1, 2]] * 1001})
    assert status == 422
    assert "1001 points" in answer["detail"]


def test_a_full_queue_gives_429_with_retry_after(tmp_path, stream):
    registry = Registry(tmp_path, Limits(waiting_requests=2))
    handle, _ = registry.create("a", XY)
    body, statuses = {"points": stream[:1].tolist()}, []

    def post():
        status, headers, _ = here.ask("POST", "/detectors/a/points", body)
        statuses.append((status, headers.get("retry-after")))

    with Here(create_app(registry)) as here:
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
    with Here(create_app(registry)) as here:
        assert json.loads(here.ask("GET", "/health")[2]) == {"status": "ok", "complaints": []}
        registry._store._database.execute("PRAGMA query_only = ON")  # like a disk that has become read-only
        for method, path, sent in [("POST", "/detectors/a/points", body), ("PUT", "/detectors/b", XY)]:
            status, _, content = here.ask(method, path, sent, JSON)
            assert status == 507
            assert "could not be stored" in json.loads(content)["detail"]
        status, _, content = here.ask("GET", "/health")
        assert (status, json.loads(content)["status"]) == (503, "failing")
        assert here.ask("POST", "/detectors/a/scores", body)[0] == 200  # reads still work
        registry._store._database.execute("PRAGMA query_only = OFF")
        assert here.ask("GET", "/health")[0] == 200
        assert json.loads(here.ask("POST", "/detectors/a/points", body)[2])["results"][0]["index"] == 0


def test_internal_errors_are_reported_without_details(tmp_path, monkeypatch, caplog):
    registry = Registry(tmp_path)
    handle, _ = registry.create("a", XY)
    with Here(create_app(registry)) as here, monkeypatch.context() as patched:
        patched.setattr(type(handle.worker), "submit", lambda *_: 1 / 0)
        patched.setattr(routes.lifecycle, "description_of", lambda *_: 1 / 0)
        for method, path in [("POST", "/detectors/a/points"), ("GET", "/detectors")]:
            status, headers, content = here.ask(method, path, {"points": [[1, 2]]})
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
    for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": f"Basic {TOKEN}"}):
        for method, path in [
            ("GET", "/detectors"),
            ("GET", "/metrics"),
            ("GET", "/openapi.json"),
            ("POST", "/detectors/a/points"),
        ]:
            status, headers, content = guarded.ask(method, path, headers=given)
            assert (status, headers["www-authenticate"]) == (401, "Bearer"), (path, content)
        for method in ("GET", "HEAD"):
            assert guarded.ask(method, "/health", headers=given)[0] == 200
        assert guarded.ask("GET", "/", headers=given)[0] == 200


def test_no_response_redirects_to_the_host_header(guarded):
    for path in ("/static/style.css/", "/health/", "/detectors/", "//evil.example/", "/static//evil.example/.."):
        for given in ({}, {"Authorization": f"Bearer {TOKEN}"}):
            status, headers, content = guarded.ask("GET", path, headers=given | {"Host": "evil.example"})
            assert status in (401, 404), path
            assert "location" not in {name.lower() for name in headers}
            assert b"evil.example" not in content


def test_any_host_works_with_the_token(guarded, stream):
    given = {"Authorization": f"Bearer {TOKEN}", "Host": "pumps.example"}
    assert guarded.ask("PUT", "/detectors/a", XY, given | JSON)[0] in (200, 201)
    assert guarded.ask("POST", "/detectors/a/points", {"points": stream[:1].tolist()}, given)[0] == 200
    with Client(guarded.address, TOKEN) as client:
        assert [each["name"] for each in client.detectors()] == ["a"]

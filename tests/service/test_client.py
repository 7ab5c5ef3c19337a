"""The Python client: all methods, errors, and retries while the service is busy, disconnects or restarts."""

import http.server
import json
import threading

import numpy as np
import pandas as pd
import polars as pl
import pytest

import imondrian
from imondrian.base.errors import InvalidInputError
from imondrian.service.changes.configuration import DEFAULTS, new_detector
from imondrian.service.client import Client, ServiceError
from tests.service.serving import SMALL, free_port
from tests.service.test_worker import expected


def test_all_methods(service, stream, tmp_path):
    with service.client() as client:
        assert client.create("a", ["x", "y"], **SMALL)["name"] == "a"
        assert [each["name"] for each in client.detectors()] == ["a"]
        reference = new_detector({**DEFAULTS, **SMALL, "features": ["x", "y"]})
        assert client.process("a", stream[:300]) == expected(reference, stream[:300])
        assert client.process("a", [{"x": 1.0, "y": 2.0}]) == expected(reference, np.array([[1.0, 2.0]]))
        assert client.score("a", stream) == reference.score(stream).tolist()
        assert client.explain("a", stream[:1])[0]["explanation"][0]["feature"] in ("x", "y")
        (tmp_path / "a.imf").write_bytes(client.model("a"))
        assert imondrian.load(tmp_path / "a.imf").n_seen == 301
        assert client.forget("a", [[1.0, 2.0]]) == 1
        assert client.replace("a", (tmp_path / "a.imf").read_bytes()) == 301
        assert client.process("a", stream[300:]) == expected(reference, stream[300:])
        assert client.describe("a")["n_seen"] == 601
        client.remove("a")
        with pytest.raises(ServiceError, match=r"404.*'a'") as raised:
            client.describe("a")
        assert raised.value.status == 404


def test_all_types_of_rows_give_the_same_scores(service, stream):
    rows = stream[:5]
    with service.client() as client:
        client.create("kinds", ["x", "y"], **SMALL)
        client.process("kinds", stream)
        scores = client.score("kinds", rows)
        named = {"y": rows[:, 1], "x": rows[:, 0]}
        kinds = [
            rows.tolist(),
            list(rows),
            [list(row) for row in rows],
            iter(rows),
            pd.DataFrame(named),
            pl.DataFrame(named),
        ]
        for kind in kinds:
            assert client.score("kinds", kind) == scores
        with pytest.raises(InvalidInputError, match="object"):
            client.score("kinds", [[object(), 1.0]])
        with pytest.raises(InvalidInputError, match="finite"):
            client.score("kinds", [[float("inf"), 1.0]])
        client.remove("kinds")


def test_missing_values_categories_and_times_of_all_types_are_sent(service):
    time = ["2026-01-31T12:30:00", "2026-01-31T12:31:00", None]
    columns = {"amount": [1.5, None, 3.0], "country": ["FR", None, "DE"], "is_new": [True, False, None]}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    frame = pd.DataFrame({**columns, "time": pd.to_datetime(pd.Series(time))})
    nullable = frame.convert_dtypes()
    nan = [[row["amount"] or np.nan, row["country"], row["is_new"]] for row in rows]
    kinds = [rows, frame, nullable, pl.from_pandas(nullable), nan, np.array(nan, object)]
    with service.client() as client:
        client.create("gaps", columns, categorical=["country", "is_new"], **SMALL)
        client.process("gaps", rows * 20)
        scores = client.score("gaps", rows)
        for kind in kinds:
            assert client.score("gaps", kind) == scores
        client.process("gaps", frame)
        history = client._request("GET", "/detectors/gaps/history?after=59").value()
        assert history["own_time"] == time
        assert history["values"] == [list(row.values()) for row in rows]
        assert client.describe("gaps")["n_missing"] == 21
        client.remove("gaps")


@pytest.mark.parametrize("address", ["127.0.0.1:8765", "ftp://127.0.0.1", "http://", "http://a:b@127.0.0.1", ""])
def test_an_invalid_address_is_refused(address):
    with pytest.raises(InvalidInputError, match="address"):
        Client(address)


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), float("inf")])
def test_an_invalid_timeout_is_refused(timeout):
    with pytest.raises(InvalidInputError, match="timeout"):
        Client(timeout=timeout)


def test_the_error_names_the_address_if_nothing_responds():
    address = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ServiceError, match=f"{address} does not respond") as raised:
        Client(address, timeout=0.3).detectors()
    assert raised.value.status is None


class UnreliableHandler(http.server.BaseHTTPRequestHandler):
    """Breaks the first connection, is busy the second time, shuts down the third, and responds the fourth."""

    statuses = ["break", 429, 503, 200, 301, "text"]  # noqa: RUF012
    seen = []  # noqa: RUF012

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.headers["Idempotency-Key"], body))
        status = self.statuses[len(self.seen) - 1]
        if status == "break":
            self.connection.close()
            return
        content = json.dumps({"results": []} if status == 200 else {"detail": "later"}).encode()
        content, status = (b"<html>", 200) if status == "text" else (content, status)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def test_a_request_is_repeated_with_the_same_id_until_it_succeeds():
    with http.server.HTTPServer(("127.0.0.1", 0), UnreliableHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with Client(f"http://127.0.0.1:{server.server_port}") as client:
            assert client.process("a", [[1.0]]) == []
            for message in ("301", "JSON"):  # not valid responses
                with pytest.raises(ServiceError, match=message):
                    client.process("a", [[1.0]])
        server.shutdown()
        thread.join()
    assert len(set(UnreliableHandler.seen[:4])) == 1
    assert len(set(UnreliableHandler.seen)) == 3

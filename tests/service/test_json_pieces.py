"""Large responses are written in pieces: their JSON stays the same, and memory is reserved as they grow."""

import json
import math

import pytest
from pydantic import RootModel

from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import ConflictError
from imondrian.service.http import schemas
from imondrian.service.http.asgi import create_app
from imondrian.service.http.bodies import rows_of
from imondrian.service.http.json_pieces import json_pieces
from imondrian.service.http.queries import description_of, explanations_of, history_of, incidents_of, scores_of
from imondrian.service.limits import MIB, PER_EXPLAINED_VALUE, Limits
from tests.service.serving import SMALL, ThreadServer, wait_until
from tests.service.test_worker import learn

Descriptions = RootModel[list[schemas.Description]]
LONG_NAMES = [chr(0x20000 + i) * 253 + f"{i:03d}" for i in range(1_000)]  # 1 MB
WIDE = {"features": LONG_NAMES, "window": 16, "max_samples": 8, "n_trees": 1}


@pytest.fixture
def handle(registry, stream):
    handle, _ = registry.create("a", {"features": ["x", "é☃"], **SMALL})
    learn(handle, stream[:600])
    return handle


def test_the_pieces_are_the_json_of_the_response(registry, handle):
    rows = rows_of(b'{"points": [[1, 2], [3, 4], [9, 9]]}', "application/json", handle.row_format, 10)
    history = history_of(handle, -1, 2_000)
    odd = {"threshold": [math.nan, math.inf, -math.inf, 0.1], "own_time": ["a\n☃", None], "values": [["b", None, True]]}
    for content in (
        history,
        history.model_copy(update=odd),
        history_of(handle, 10_000, 10),
        incidents_of([handle], 1_000),
        incidents_of([], 10),
        scores_of(handle, rows),
        explanations_of(handle, rows),
        description_of(handle),
        Descriptions([description_of(handle)] * 3),
        Descriptions([]),
        schemas.Keys(keys=[], n_keys=3, n_found=0, next=None),
    ):
        assert b"".join(json_pieces(content)) == content.model_dump_json().encode()


def test_each_piece_is_small(handle):
    history, descriptions = history_of(handle, -1, 2_000), Descriptions([description_of(handle)] * 50)
    for content, n_pieces in ((history, 15), (descriptions, 40)):
        assert max(map(len, json_pieces(content))) < len(content.model_dump_json()) / n_pieces


def test_a_long_list_of_detectors_reserves_memory_while_it_is_written(tmp_path):
    registry = Registry(tmp_path, Limits(memory_bytes=4 * MIB))
    app = create_app(registry)
    with ThreadServer(app) as server:
        for name in "abc":
            registry.create(name, WIDE)
        status, _, content = server.request("GET", "/detectors")
        assert (status, len(json.loads(content))) == (200, 3)
        for name in "defg":
            registry.create(name, WIDE)
        status, headers, content = server.request("GET", "/detectors")
        assert (status, headers["retry-after"]) == (503, "1")
        assert b"bytes of memory" in content
        wait_until(lambda: app._memory._n_reserved == 0)


def test_long_names_count_as_memory_of_their_detector(tmp_path):
    registry = Registry(tmp_path, Limits(total_bytes=8 * MIB))
    for name in "abc":
        registry.create(name, WIDE)
    with pytest.raises(ConflictError, match=r"would need \d+ bytes, but at most 8388608"):
        registry.create("d", WIDE)
    assert registry.create("e", WIDE | {"features": ["x"]})[1]
    with ThreadServer(create_app(registry)) as server:
        model = server.request("GET", "/detectors/a/model")[2]
        assert server.request("PUT", "/detectors/f/model", model)[0] == 409
        registry.remove("b")
        assert server.request("PUT", "/detectors/f/model", model)[0] == 201


def test_fewer_points_with_very_long_names_are_explained(tmp_path):
    registry = Registry(tmp_path)
    handle, _ = registry.create("a", WIDE)
    n_most = 16 * MIB // len("".join(LONG_NAMES).encode())
    assert handle.max_explained_points == n_most == 16
    with ThreadServer(create_app(registry)) as server:
        body = {"points": [[1.0] * 1_000] * (n_most + 1)}
        status, _, content = server.request("POST", "/detectors/a/explanations", body)
        assert (status, f"at most {n_most} are allowed" in json.loads(content)["detail"]) == (422, True)
        body["points"].pop()
        assert server.request("POST", "/detectors/a/explanations", body)[0] == 200


def test_explanations_reserve_memory(tmp_path):
    registry = Registry(tmp_path, Limits(memory_bytes=50 * PER_EXPLAINED_VALUE))
    registry.create("a", {"features": ["x", "y"], **SMALL})
    with ThreadServer(create_app(registry)) as server:
        assert server.request("POST", "/detectors/a/explanations", {"points": [[1, 2]] * 20})[0] == 200
        assert server.request("POST", "/detectors/a/explanations", {"points": [[1, 2]] * 30})[0] == 503

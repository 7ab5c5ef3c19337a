"""Large responses are written in pieces: their JSON stays the same, and memory is reserved as they grow."""

import json
import math

import pytest
from pydantic import RootModel, model_serializer

from imondrian.service.capacity import MemoryBudget, RequestMemory
from imondrian.service.changes.configuration import size_of
from imondrian.service.changes.journal import entry_of_points
from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import CapacityError, ConflictError
from imondrian.service.http import schemas
from imondrian.service.http.asgi import create_app
from imondrian.service.http.bodies import rows_of
from imondrian.service.http.json_pieces import json_pieces
from imondrian.service.http.keyed_queries import (
    KeyedExplainer,
    KeyedScorer,
    detectors_of,
    explanation_of_keyed_row,
    keyed_history_of,
    keyed_row_of,
    keys_of,
)
from imondrian.service.http.queries import (
    description_of,
    explanation_of_row,
    explanations_of,
    history_of,
    incidents_of,
    scores_of,
)
from imondrian.service.http.routes.common import _content
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


def test_answers_about_keys_and_learned_rows_are_the_same_in_pieces(registry, handle):
    keyed, _ = registry.create("keyed", {"features": ["x", "é☃"], "key": "host"})
    rows = rows_of(b'{"points": [["a", 1, 2], ["b\\n", 3, 4]]}', "application/json", keyed.row_format, 10)
    kind, content = entry_of_points(rows)
    keyed.worker.submit(kind, content, 2, None, frozenset("a")).result()
    scorer, explainer = KeyedScorer(rows), KeyedExplainer(rows, ["x", "é☃"])
    for i, detector in enumerate(detectors_of(keyed, rows.keys)):
        scorer.add(detector, [i])
        explainer.add(detector, [i])
    for answer in (
        scorer.response(),
        explainer.response(),
        keys_of(keyed, "", "name", 0, 10),
        keyed_history_of(registry, keyed, "a", -1, 10),
        explanation_of_keyed_row(keyed, keyed_row_of(registry, keyed, "a", 0)),
        explanation_of_row(handle, 590),
    ):
        assert b"".join(json_pieces(answer)) == answer.model_dump_json().encode()


def test_memory_is_reserved_while_a_response_is_written(handle):
    n_made, description = 0, description_of(handle)

    class Counted(schemas.Description):
        @model_serializer(mode="wrap")
        def counted(self, handler):
            nonlocal n_made
            n_made += 1
            return handler(self)

    many = RootModel[list[Counted]]([Counted(**description.model_dump())] * 1_000)
    n_bytes = len(description.model_dump_json())
    with pytest.raises(CapacityError):
        _content(lambda: many, RequestMemory(MemoryBudget(200 * n_bytes)))
    assert 190 < n_made < 210


def test_small_reads_work_while_all_memory_is_reserved(tmp_path, stream):
    registry = Registry(tmp_path)
    learn(registry.create("a", {"features": ["x", "y"], **SMALL})[0], stream[:100])
    app, points = create_app(registry), {"points": [[1, 2]]}
    app._memory.add(2 * registry.limits.memory_bytes)
    with ThreadServer(app) as server:
        for path in ("", "/a", "/a/history", "/a/history?limit=1", "/a/incidents"):
            assert server.request("GET", f"/detectors{path}")[0] == 200
        for path in ("scores", "explanations"):
            assert server.request("POST", f"/detectors/a/{path}", points)[0] == 200
        assert server.request("GET", "/detectors/a/model")[0] == 503


def test_a_long_list_of_detectors_is_refused_if_there_is_no_memory(tmp_path):
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


@pytest.mark.parametrize("settings", [{}, {"shingle": 20}, {"preset": "series"}])
def test_explanations_reserve_memory_for_each_value_of_a_point(tmp_path, settings):
    registry = Registry(tmp_path, Limits(memory_bytes=2_000 * PER_EXPLAINED_VALUE, explained_values=3_000))
    configuration = {"features": ["x", "y"], **({} if "preset" in settings else SMALL), **settings}
    handle, _ = registry.create("a", configuration)
    n_values = size_of(handle.configuration).n_values
    assert handle.max_explained_points == min(3_000 // (2 * settings.get("shingle", 1)), 1_000)
    n_points = 2_000 // n_values
    app = create_app(registry)
    with ThreadServer(app) as server:
        if n_points < 1_000:
            body = {"points": [[1, 2]] * (n_points + 1)}
            assert server.request("POST", "/detectors/a/explanations", body)[0] == 503
        body = {"points": [[1, 2]] * min(n_points // 2, 100)}  # more points also reserve a copy of the detector
        assert server.request("POST", "/detectors/a/explanations", body)[0] == 200
        wait_until(lambda: app._memory._n_reserved == 0)

"""Uploaded model files: refused before memory is allocated, restored in one request, checked like any other file."""

import copy
import io
import json
import shutil
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from imondrian import MondrianForest, StreamDetector
from imondrian.alarms.incidents import AlarmReason
from imondrian.base.errors import DamagedFileError, ImondrianError, InvalidInputError
from imondrian.model_files import to_bytes
from imondrian.models import storage
from imondrian.models.storage import read_header
from imondrian.service.capacity import MemoryBudget, RequestMemory
from imondrian.service.changes import journal
from imondrian.service.changes.configuration import (
    DEFAULTS,
    MemorySettings,
    checked_size,
    copy_bytes_of,
    memory_bytes_of,
    new_detector,
)
from imondrian.service.client import ServiceError
from imondrian.service.detectors import uploads
from imondrian.service.detectors.registry import Registry
from imondrian.service.detectors.uploads import check_model, configuration_in
from imondrian.service.errors import ConflictError
from imondrian.service.http.asgi import create_app
from imondrian.service.limits import Limits
from tests.service.serving import SMALL, ThreadServer, wait_until
from tests.service.test_worker import expected, learn, n_rows
from tests.test_hostile_files import with_arrays
from tests.test_storage import members, zipped

XY = {"features": ["x", "y"], **SMALL}
WIDE = {**DEFAULTS, "features": ["x"], "window": 20_000, "max_samples": None, "n_trees": 2}
MIB = 2**20


@pytest.fixture
def server(registry):
    with ThreadServer(create_app(registry)) as running:
        yield running


def put(server, name, content, **headers):
    status, _, response = server.request("PUT", f"/detectors/{name}/model", content, headers)
    return status, json.loads(response)


def file_of(detector, **forest):
    """Return the model file of a detector with a forest that has other settings."""
    settings = detector.forest.parameters() | forest
    other, file = MondrianForest(**settings), io.BytesIO()
    other.reserve(detector.forest.n_features)
    storage.write(other.snapshot(), file, {"StreamDetector": detector.notes(), "beside": {}})
    return file.getvalue()


def peak_of(call):
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("n_features", "settings"),
    [
        (2, SMALL),
        (1, {"window": 1, "n_trees": 1}),
        (3, {"window": 500, "max_samples": None, "n_trees": 7}),
        (3, {"window": 300, "max_samples": 1000, "shingle": 4, "n_trees": 3}),
        (10, {"threshold": 0.01}),
        (2, {"threshold": "auto", "preset": "paper", "max_samples": 1}),
        (3, {"window": 300, "categorical": [1]}),
        (3, {"window": 3_000, "categorical": [0, 1, 2], "n_trees": 3, "missing": "previous"}),
        (4, {"window": 85, "categorical": [2], "n_trees": 3, "shingle": 5, "missing": "indicator"}),
        (2, {"window": 64, "n_trees": 3, "missing": "raise"}),
        (1, {"preset": "series"}),
        (3, {"preset": "series", "window": 500, "n_trees": 3, "max_samples": 64, "missing": "raise"}),
    ],
)
def test_the_memory_of_a_detector_is_known_before_it_is_created(n_features, settings):
    detector = StreamDetector(n_features, **settings)
    size = MemorySettings.of(n_features, detector.parameters)
    assert memory_bytes_of(size) == detector.n_bytes <= copy_bytes_of(size)
    rows = np.random.default_rng(0).normal(size=(200, n_features))
    detector.process_many(rows)
    copied = copy.deepcopy(detector)
    copied_bytes = sum(array.nbytes for array in copied.forest.state()[0])
    assert copied_bytes <= copy_bytes_of(size)


@pytest.mark.parametrize(("n_features", "shingle"), [(1_000, 2), (1_000, 1_000), (7, 143), (1, 1_001), (1, 2**31)])
def test_the_number_of_values_in_a_point_is_limited(n_features, shingle):
    size, limits = MemorySettings(n_features, 1, 1, 1, shingle), Limits(features=1_000)
    message = "shingle must be between 1" if shingle == 2**31 else "features times shingle must be at most 1000, but is"
    with pytest.raises(InvalidInputError, match=message):
        checked_size(size, limits)
    checked_size(size._replace(shingle=1_000 // n_features), limits)


def test_a_file_whose_forest_has_more_trees_than_its_detector_is_refused_before_it_is_read(registry, server):
    handle, _ = registry.create("a", WIDE)
    content = file_of(new_detector(WIDE), n_trees=1_000)
    assert len(content) < MIB
    assert memory_bytes_of(MemorySettings(1, 20_000, None, 1_000, 1)) > 1_000 * MIB
    before = n_rows(registry)
    for name in ("a", "b"):
        status, response = put(server, name, content)
        assert (status, response["detail"]) == (422, "The model: n_trees of the forest must be 2, but is 1000.")
    assert n_rows(registry) == before
    assert peak_of(lambda: refusal_of(content, handle.record.configuration)) < 20 * MIB


def refusal_of(content, configuration, limits=Limits()):  # noqa: B008 (a tuple)
    with pytest.raises(ImondrianError) as first:
        check_model(content, configuration, limits)
    with pytest.raises(ImondrianError):
        configuration_in(content, limits)
    return str(first.value)


def test_the_setting_of_a_file_that_is_not_a_count_is_named():
    detector = new_detector(WIDE)
    notes, file = detector.notes(), io.BytesIO()
    notes["parameters"] = {**notes["parameters"], "shingle": 0}
    storage.write(detector.forest.snapshot(), file, {"StreamDetector": notes, "beside": {}})
    assert "shingle must be between 1" in refusal_of(file.getvalue(), WIDE)


@pytest.mark.parametrize(("name", "value"), [("preset", ["paper"]), ("missing", {"x": 1}), ("missing", None)])
def test_a_setting_of_a_file_that_is_not_text_is_named(name, value):
    detector = new_detector(WIDE)
    notes, file = detector.notes(), io.BytesIO()
    notes["parameters"] = {**notes["parameters"], name: value}
    storage.write(detector.forest.snapshot(), file, {"StreamDetector": notes, "beside": {}})
    assert f"{name} must be" in refusal_of(file.getvalue(), WIDE)


@pytest.mark.parametrize("change", [{"window": 40_000}, {"max_samples": 5}, {"n_jobs": 64}])
def test_a_forest_must_have_the_settings_of_its_detector(change):
    message = refusal_of(file_of(new_detector(WIDE), **change), WIDE)
    assert f"{next(iter(change))} of the forest must be" in message


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        ({"n_trees": 1_000}, {}),
        ({"window": 30_000}, {"window": 25_000}),
        ({"n_trees": 9}, {"trees": 5}),
        ({"n_trees": 9}, {"detector_bytes": 5 * MIB}),
    ],
)
def test_a_file_above_the_limits_is_refused_before_it_is_read(settings, limits):
    detector = StreamDetector(1, **{name: WIDE[name] for name in ("window", "max_samples")} | settings)
    content = to_bytes(detector)
    del detector
    assert peak_of(lambda: refusal_of(content, WIDE, Limits(**limits))) < 4 * MIB


def test_the_total_memory_limit_also_applies_to_files(tmp_path):
    content = to_bytes(new_detector({**DEFAULTS, **XY}))
    registry = Registry(tmp_path, Limits(total_bytes=200_000))
    n_bytes = registry.restore("a", content, None)[0].worker.summary.n_bytes
    for i in range(200_000 // n_bytes - 1):
        registry.restore(f"b{i}", content, None)
    with pytest.raises(ConflictError, match="200000 are allowed"):
        registry.restore("c", content, None)
    assert len(registry.all()) == 200_000 // n_bytes
    registry.close()


def test_a_zip_with_too_many_members_is_refused():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.comment = b"0" * 64
        for i in range(2_000):
            archive.writestr(str(i), b"")
    with pytest.raises(DamagedFileError, match="2000 members"):
        read_header(file, "The model")


@pytest.mark.parametrize("header", [b"[]", b"{}", b'{"notes": {}}', b"{", b'{"notes": {"StreamDetector": 3}}', b"\xff"])
def test_an_invalid_header_is_reported_as_a_damaged_file(header):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.comment = b"0" * 64
        archive.writestr("header.json", header)
    with pytest.raises(DamagedFileError):
        check_model(file.getvalue(), WIDE, Limits())


def test_a_second_end_record_in_the_zip_comment_is_refused():
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, 100, 0, 0)
    content = to_bytes(new_detector(WIDE))
    with pytest.raises(DamagedFileError, match="truncated or altered"):
        read_header(io.BytesIO(content[: -len(end)] + end), "The model")


def test_a_detector_is_restored_from_its_file_in_one_request(registry, server, stream):
    handle, _ = registry.create("a", {**XY, "features": ["temperature", "pressure"]})
    learn(handle, stream[:300])
    content = server.request("GET", "/detectors/a/model")[2]
    after = learn(handle, stream[300:400])
    assert put(server, "b", content) == (201, {"n_points": 300})
    described = json.loads(server.request("GET", "/detectors/b")[2])
    assert described["configuration"] == {**handle.record.configuration, "warm_up": SMALL["warm_up"]}
    assert learn(registry.get("b"), stream[300:400]) == after
    assert put(server, "b", content) == (200, {"n_points": 300})  # like for any existing detector
    assert registry.create("b", {**XY, "features": ["temperature", "pressure"]})[1] is False
    with server.client() as client:
        assert client.restore("c", content) == client.replace("c", content) == 300
        with pytest.raises(ServiceError, match="404"):
            client.replace("d", content)


def test_a_restored_detector_survives_a_kill_and_its_request_is_applied_once(tmp_path, stream):
    reference = new_detector({**DEFAULTS, **XY, "warm_up": None})
    reference.process_many(stream[:300])
    registry = Registry(tmp_path / "live")
    content = to_bytes(reference)
    with ThreadServer(create_app(registry)) as server:
        assert put(server, "a", content, **{"Idempotency-Key": "one"})[0] == 201
        after = learn(registry.get("a"), stream[300:310])
        assert put(server, "a", content, **{"Idempotency-Key": "one"}) == (201, {"n_points": 300})
        assert registry.get("a").worker.summary.n_seen == 310  # nothing was applied again
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
    registry = Registry(tmp_path / "killed")
    assert registry.damage_reports == []
    assert registry.get("a").record.configuration["features"] == ["x0", "x1"]
    assert after == expected(reference, stream[300:310])
    assert learn(registry.get("a"), stream[310:320]) == expected(reference, stream[310:320])
    assert registry.create("a", {**XY, "features": ["x0", "x1"], "warm_up": None})[1] is False
    registry.close()
    for _ in range(2):  # from the journal, and from the snapshot at the end
        registry = Registry(tmp_path / "killed")
        with ThreadServer(create_app(registry)) as server:
            assert put(server, "a", content, **{"Idempotency-Key": "one"}) == (201, {"n_points": 300})
            assert put(server, "a", content, **{"Idempotency-Key": "two"})[0] == 200


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"none", "not a model file"),
        (to_bytes(MondrianForest().build(np.zeros((3, 1)))), "does not contain a StreamDetector"),
        (to_bytes(StreamDetector(2, n_jobs=2)), "n_jobs is 2, not 1"),
        (to_bytes(StreamDetector(2, on_error="skip")), "on_error is 'skip', not 'raise'"),
    ],
)
def test_a_refused_model_leaves_nothing_behind(registry, server, content, message):
    status, response = put(server, "a", content)
    assert status == 422
    assert message in response["detail"]
    assert server.request("GET", "/detectors/a")[0] == 404
    assert set(n_rows(registry).values()) == {0}


def test_names_and_ids_are_also_checked_for_uploads(registry):
    detector = StreamDetector(1, window=8)
    detector.process({"a\nb": 1.0})
    with pytest.raises(InvalidInputError, match="printable"):
        registry.restore("a", to_bytes(detector), None)
    with pytest.raises(InvalidInputError, match="1 to 128"):
        registry.restore("a", to_bytes(StreamDetector(1, window=8)), "a b")
    with pytest.raises(InvalidInputError, match="name of a detector"):
        registry.restore("a/b", to_bytes(StreamDetector(1, window=8)), None)


def test_too_many_detectors_are_refused_before_the_file_is_read(tmp_path):
    registry = Registry(tmp_path, Limits(detectors=1))
    registry.create("a", XY)
    with pytest.raises(ConflictError, match="the maximum number allowed"):
        registry.restore("b", b"none", None)
    registry.close()


def test_replacing_the_model_of_an_existing_detector_always_gets_200(server):
    server.request("PUT", "/detectors/a", XY)
    content = server.request("GET", "/detectors/a/model")[2]
    for _ in range(2):
        assert put(server, "a", content, **{"Idempotency-Key": "one"}) == (200, {"n_points": 0})


@pytest.mark.parametrize("name", ["a", "b"])
def test_an_upload_gets_503_if_there_is_no_memory_for_a_valid_model(registry, server, monkeypatch, name):
    registry.create("a", {**XY, "warm_up": None})
    content = server.request("GET", "/detectors/a/model")[2]

    def failing(cls, forest, notes):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(StreamDetector, "from_notes", classmethod(failing))
        status, headers, response = server.request("PUT", f"/detectors/{name}/model", content)
        assert (status, headers["retry-after"]) == (503, "1"), response
    assert put(server, name, content)[0] == (200 if name == "a" else 201)


def test_creation_gets_503_if_there_is_no_memory_for_the_detector(server, monkeypatch):
    def failing(*_):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("imondrian.service.detectors.registry.new_state", failing)
        status, headers, response = server.request("PUT", "/detectors/a", XY)
    assert (status, headers["retry-after"]) == (503, "1")
    assert "memory" in json.loads(response)["detail"]
    assert server.request("PUT", "/detectors/a", XY)[0] == 201


def test_points_get_503_if_there_is_no_memory_for_them(server, monkeypatch):
    server.request("PUT", "/detectors/a", XY)

    def failing(*_args, **_options):
        raise MemoryError

    for method in ("POST", "DELETE"):
        with monkeypatch.context() as patched:
            patched.setattr("imondrian.service.http.routes.points.rows_of", failing)
            status, headers, response = server.request(method, "/detectors/a/points", {"points": [[0.0, 0.0]]})
        assert (status, headers.get("retry-after")) == (503, "1")
        assert "memory" in json.loads(response)["detail"]
    assert server.request("POST", "/detectors/a/points", {"points": [[0.0, 0.0]]})[0] == 200


@pytest.mark.parametrize("name", ["a", "b"])
def test_reading_a_model_reserves_the_memory_that_its_header_describes(tmp_path, monkeypatch, name):
    registry = Registry(tmp_path)
    registry.create("a", {**WIDE, "warm_up": None})
    app = create_app(registry)
    memory, reserved = app._memory, []
    with ThreadServer(app) as server:
        content = server.request("GET", "/detectors/a/model")[2]
        n_bytes = registry.get("a").worker.summary.n_bytes
        assert n_bytes > 10 * len(content)
        memory.reserve(Limits().memory_bytes - 4 * len(content))  # enough for the file, but not for its detector
        status, headers, _ = server.request("PUT", f"/detectors/{name}/model", content)
        assert (status, headers["retry-after"]) == (503, "1")
        memory.release(Limits().memory_bytes - 4 * len(content))
        read = journal.detector_from
        for module in (uploads, journal):  # while it is checked, and while the worker replaces its detector
            monkeypatch.setattr(
                module, "detector_from", lambda content: (reserved.append(memory._n_reserved), read(content))[1]
            )
        assert put(server, name, content)[0] in {200, 201}
        assert len(reserved) == 2
        assert all(n_bytes <= n_reserved <= n_bytes + 3 * len(content) for n_reserved in reserved)
        wait_until(lambda: memory._n_reserved == 0)


def test_the_largest_model_can_be_read_while_no_other_memory_is_reserved():
    limits = Limits()
    memory = MemoryBudget(limits.memory_bytes)
    memory.reserve(3 * limits.model_bytes)
    uploads._reserve(RequestMemory(memory), limits.detector_bytes, limits.model_bytes, limits)
    assert memory._n_reserved == limits.memory_bytes


@pytest.mark.parametrize("n_shown", [2**52 + 8, 2**53 - 8])
def test_a_forest_that_cannot_count_many_more_points_is_refused(server, n_shown):
    """Accepted, the detector would fail at a later request."""
    detector = StreamDetector(2, window=8, max_samples=None, n_trees=3)
    detector.process_many(np.zeros((16, 2)))
    clock, next_number = np.array([n_shown, n_shown + 1, 0]), np.full(3, n_shown)
    content = with_arrays(to_bytes(detector), clock=clock, heads__next_number=next_number)
    status, response = put(server, "a", content)
    assert status == 422
    assert f"must have seen at most {2**52} rows, but has seen {n_shown}" in response["detail"]


def with_first_reason(content, **numbers):
    """Return a model file whose latest incident has other numbers in its first reason, and a matching digest."""
    parts = members(content)
    header = json.loads(parts["header.json"])
    reason = header["notes"]["StreamDetector"]["incidents"]["latest"][-1][-1][0]
    for name, number in numbers.items():
        reason[AlarmReason._fields.index(name)] = number
    return zipped({**parts, "header.json": json.dumps(header)})


def with_incident(registry, name):
    handle, _ = registry.create(name, {**XY, "threshold": 0.001})
    X = np.random.default_rng(0).normal(size=(100, 2))
    X[-3:] += 50.0
    learn(handle, X)
    assert handle.worker.incidents.shown.open is not None
    return handle


@pytest.mark.parametrize("numbers", [{"low": 1e6, "high": 0.0}, {"low": -1e308, "high": 1e308}])
@pytest.mark.parametrize("name", ["a", "new"])
def test_an_incident_with_an_impossible_range_is_refused(server, registry, name, numbers):
    handle = with_incident(registry, "a")
    content = with_first_reason(to_bytes(handle.worker.read_copy.private_copy()), **numbers)
    assert put(server, name, content)[0] == 422
    assert registry.problems() == []
    assert len(learn(handle, np.zeros((1, 2)))) == 1
    assert server.request("GET", "/incidents")[0] == 200


def test_incidents_that_cannot_be_described_are_refused_before_they_are_journalled(server, registry, monkeypatch):
    handle = with_incident(registry, "a")
    content, n_entries = to_bytes(handle.worker.read_copy.private_copy()), n_rows(registry)["entries"]

    def fail(*_):
        raise ZeroDivisionError("a defect")

    with monkeypatch.context() as patched:
        patched.setattr("imondrian.service.storage.incident_log.reasons_in_words", fail)
        for name in ("a", "new"):
            status, answer = put(server, name, content)
            assert (status, "cannot be described: a defect" in answer["detail"]) == (422, True)
    assert n_rows(registry)["entries"] == n_entries
    assert put(server, "a", content)[0] == 200


def test_an_incident_that_cannot_be_described_does_not_hide_others(server, registry, monkeypatch):
    handles = [with_incident(registry, name) for name in ("a", "b")]
    monkeypatch.setattr(handles[0].worker.incidents, "described", lambda *_: {}["missing"])
    status, _, response = server.request("GET", "/incidents")
    assert status == 200
    assert [each["detector"] for each in json.loads(response)["incidents"]] == ["b"]


def test_a_restored_series_has_the_name_of_its_times_and_its_silence(server, registry):
    load = {"features": ["load"], "preset": "series", "window": 64, "n_trees": 3, "time": "timestamp"}
    handle, _ = registry.create("load", {**load, "silence": "1h"})
    points = {"points": [{"load": 1.0, "timestamp": 60.0 * i} for i in range(80)]}
    assert server.request("POST", "/detectors/load/points", points)[0] == 200
    content = server.request("GET", "/detectors/load/model")[2]
    assert put(server, "restored", content) == (201, {"n_points": 80})
    restored = registry.get("restored").configuration
    assert (restored["time"], restored["silence"]) == ("timestamp", 3600.0)
    point = {"points": [{"load": 1.0, "timestamp": 6000.0}]}
    assert server.request("POST", "/detectors/restored/points", point)[0] == 200
    without = to_bytes(handle.worker.read_copy.private_copy())  # as in files of former versions
    assert put(server, "former", without)[0] == 201
    assert registry.get("former").configuration["time"] == "time"


@pytest.mark.parametrize("settings", [{"time": 3}, {"time": "x" * 1000}, {"time": "x0"}, {"silence": "soon"}])
def test_invalid_settings_of_the_service_in_a_model_file_are_refused(server, registry, settings):
    handle, _ = registry.create("a", XY)
    content = to_bytes(handle.worker.read_copy.private_copy(), {"service": settings})
    assert put(server, "b", content)[0] == 422
    for ignored in ({"service": [1]}, {"service": {"unknown": 1}}):
        assert put(server, "c", to_bytes(handle.worker.read_copy.private_copy(), ignored))[0] in (200, 201)

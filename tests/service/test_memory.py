"""Memory of the service besides the budget of requests: idle workers, snapshots, replays and headers of models."""

import gc
import json
import sys
import threading
import tracemalloc
import weakref
from copy import deepcopy

import numpy as np
import pytest

from imondrian.base.errors import DamagedFileError, InvalidInputError
from imondrian.base.json_limits import MAX_JSON_VALUES, check_json_limits
from imondrian.service.changes.journal import POINTS, Entry, EntryApplier
from imondrian.service.changes.posted_rows import RowFormat, RowReader
from imondrian.service.detectors import recovery
from imondrian.service.detectors.registry import Registry
from imondrian.service.http.asgi import create_app
from imondrian.service.http.reasons import PointExplainer
from imondrian.service.limits import COPIES_OF_POINTS, MIB, Limits, Retention
from imondrian.stream.detector import StreamDetector
from tests.service.serving import SMALL, ThreadServer, wait_until

X = {"features": ["x"], **SMALL}


def test_an_idle_worker_does_not_keep_its_last_request(tmp_path):
    registry = Registry(tmp_path)
    handle, _ = registry.create("a", X)
    content = np.zeros(10).tobytes()
    n_references = sys.getrefcount(content)
    assert handle.worker.submit(POINTS, content, 10).result().status == 200
    handle.worker.history._blocks.clear()  # it keeps the latest rows
    wait_until(lambda: (gc.collect(), sys.getrefcount(content) == n_references)[1])
    registry.close()


def test_one_snapshot_is_made_at_a_time(tmp_path, monkeypatch):
    registry = Registry(tmp_path)
    handles = [registry.create(name, X)[0] for name in "abcdef"]
    for handle in handles:
        handle.worker.submit(POINTS, np.zeros(10).tobytes(), 10).result()
    n_running, most, lock = 0, 0, threading.Lock()
    state = type(handles[0].worker._state)
    save = state.save_snapshot

    def counted(self, *args):
        nonlocal n_running, most
        with lock:
            n_running += 1
            most = max(most, n_running)
        result = save(self, *args)
        with lock:
            n_running -= 1
        return result

    monkeypatch.setattr(state, "save_snapshot", counted)
    registry.close()
    assert most == 1


def test_the_memory_for_the_values_of_points_is_reserved(tmp_path):
    """Values of two bytes in the body take eight in each copy."""
    features = [f"x{i}" for i in range(100)]
    limits = Limits(memory_bytes=MIB)
    registry = Registry(tmp_path, limits)
    registry.create("a", {"features": features, **SMALL})
    body = json.dumps({"points": [[0] * 100] * 400}, separators=(",", ":")).encode()
    assert 8 * len(body) + 640 * 400 < MIB < 8 * len(body) + 640 * 400 + COPIES_OF_POINTS * 8 * 100 * 400
    with ThreadServer(create_app(registry)) as server:
        assert server.request("POST", "/detectors/a/points", body)[0] == 503
        assert json.loads(server.request("GET", "/detectors/a")[2])["n_seen"] == 0


@pytest.mark.parametrize("n_bytes", [100, 10**9])
def test_entries_are_replayed_in_batches_of_limited_size(monkeypatch, n_bytes):
    monkeypatch.setattr(recovery, "_BYTES_PER_BATCH", n_bytes)
    entries = [Entry(i, POINTS, bytes(80), None, 0.0) for i in range(10)]
    batches = list(recovery._batches(entries, 4))
    assert [entry for batch in batches for entry in batch] == entries
    assert [len(batch) for batch in batches] == ([2] * 5 if n_bytes == 100 else [4, 4, 2])


def test_what_was_expected_is_recorded_of_the_rows_in_the_history_only():
    detector = StreamDetector(1, preset="series", window=64, n_trees=2, warm_up=16)
    applier, n_rows = EntryApplier(detector, ["x"]), 3_000
    (rows,) = applier.apply([Entry(1, POINTS, np.arange(n_rows, dtype="<f8").tobytes(), None, 0.0)])
    n_kept = Retention().history_rows(1)
    assert [bool(row.expected) for row in rows] == [False] * (n_rows - n_kept) + [True] * n_kept


def test_a_header_with_very_many_values_is_refused():
    text = json.dumps([1.5] * (MAX_JSON_VALUES + 2)).encode()
    with pytest.raises(InvalidInputError, match="The header can have at most 524288 values"):
        check_json_limits(text, "The header")
    check_json_limits(json.dumps([1.5] * MAX_JSON_VALUES).encode(), "The header")
    assert issubclass(DamagedFileError, ValueError)


def test_a_backup_larger_than_the_memory_budget_is_sent(tmp_path):
    registry = Registry(tmp_path, Limits(memory_bytes=2**15))
    registry.create("a", X)
    with ThreadServer(create_app(registry)) as server:
        status, _, content = server.request("GET", "/backup")
    assert (status, content[:15]) == (200, b"SQLite format 3")
    assert len(content) > 2**15


@pytest.mark.parametrize("settings", [{"time": "t"}, {"time": "t", "preset": "series"}])
def test_a_time_with_half_a_surrogate_pair_is_refused(tmp_path, settings):
    registry = Registry(tmp_path)
    registry.create("a", {"features": ["x"], **settings})
    with ThreadServer(create_app(registry)) as server:
        body = b'{"points": [{"x": 1.5, "t": "2026-01-31\\ud80012:30:00"}]}'
        status, _, content = server.request("POST", "/detectors/a/points", body)
    assert status == 422, content


@pytest.mark.parametrize("n_lost", [1, 4_096, 8_192])
def test_a_database_without_its_last_pages_is_rescued(tmp_path, n_lost):
    registry = Registry(tmp_path)
    for name in "abc":
        handle, _ = registry.create(name, X)
        handle.worker.submit(POINTS, np.zeros(1_000).tobytes(), 1_000).result()
    registry.close()
    path = tmp_path / "imondrian.db"
    content = path.read_bytes()
    path.write_bytes(content[:-n_lost])
    registry = Registry(tmp_path)
    assert any("was damaged" in line for line in registry.damage_reports)
    assert len(registry.all()) + registry.n_set_aside == 3
    registry.close()


@pytest.mark.parametrize("path", ["points", "scores"])
@pytest.mark.parametrize("last", [[0.5, 0.5], ["not a number", 0.5]])
@pytest.mark.parametrize("form", [list, lambda row: dict(zip("xy", row, strict=True))])
def test_the_rows_of_a_request_are_freed_without_a_garbage_collection(
    shared_registry, shared_server, monkeypatch, path, last, form
):
    readers = []

    def new_reader(row_format):
        reader = RowReader(row_format)
        readers.append(weakref.ref(reader))
        return reader

    monkeypatch.setattr(RowFormat, "new_reader", new_reader)
    shared_registry.create("a", {"features": ["x", "y"], "window": 8})
    rows = [form([0.1234567890123, 0.1234567890123])] * 5_000  # long enough to be read in another thread
    gc.disable()
    try:
        body = json.dumps({"points": [*rows, form(last)]}).encode()
        status, _, _ = shared_server.request("POST", f"/detectors/a/{path}", body)
        wait_until(lambda: readers[0]() is None)  # the response arrives before the last frames of the request end
        assert status == (422 if isinstance(last[0], str) else 200)
    finally:
        gc.enable()


@pytest.mark.parametrize("scale", [None, "std"])
def test_explaining_a_row_takes_little_memory_besides_the_private_copy(scale):
    """The window has nearly all of the detector's memory; a second copy of it would double the memory."""
    n_features, window = 40, 20_000
    settings = {"n_trees": 1, "max_samples": 1, "warm_up": 0, "missing": "raise", "scale": scale}
    detector = StreamDetector(n_features, window=window, **settings)
    X = np.random.default_rng(0).normal(size=(window, n_features))
    detector.process_many(X)
    explainer = PointExplainer(deepcopy(detector), [f"f{i}" for i in range(n_features)])
    explainer.learned_point(X[:1], [X[0].tolist()], 0.5)  # imports and compiles everything
    tracemalloc.start()
    try:
        copied = deepcopy(detector)
        _, peak_of_copy = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        PointExplainer(copied, [f"f{i}" for i in range(n_features)]).learned_point(X[9:10], [X[9].tolist()], 0.5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert copied.forest.n_points == window - 1
    assert peak_of_copy < 1.2 * detector.n_bytes
    assert peak < 1.8 * detector.n_bytes  # blocks of the window: 2 MB each

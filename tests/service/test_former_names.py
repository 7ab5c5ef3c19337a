"""Folders and files with the names of an earlier version (`n_estimators`, `score`) work as before, bit for bit."""

import io
import json
import lzma

import numpy as np
import pytest

from imondrian.base.errors import InvalidInputError
from imondrian.model_files import from_bytes, to_bytes
from imondrian.models import storage
from imondrian.service.changes.configuration import DEFAULTS, new_detector
from imondrian.service.changes.journal import POINTS
from imondrian.service.changes.row_labels import split_pair
from imondrian.service.detectors.registry import Registry
from imondrian.service.detectors.uploads import check_model, configuration_in
from imondrian.service.errors import ConflictError
from imondrian.service.http.asgi import create_app
from imondrian.service.http.queries import history_of
from imondrian.service.limits import Limits
from imondrian.service.storage.store import FILE, Store
from tests.service.serving import ThreadServer
from tests.service.test_figures import BEFORE
from tests.service.test_recovery import OFTEN, XY, assert_continues, killed_folder  # noqa: F401 (a fixture)
from tests.service.test_uploads import put
from tests.service.test_worker import expected, learn

FORMER = {"n_trees": "n_estimators", "kind": "score"}


def with_former_names(settings):
    return {FORMER.get(name, name): value for name, value in settings.items()}


def file_with_former_names(content):
    """Write a model file again, with the former names."""
    detector, file = from_bytes(content), io.BytesIO()
    beside = storage.read_header(io.BytesIO(content), "The model")["notes"]["beside"]
    forest, notes = detector.snapshot()
    notes["parameters"] = with_former_names({**notes["parameters"], "kind": "preset", "scale": "preset"})
    storage.write(forest, file, {"StreamDetector": notes, "beside": beside})
    return file.getvalue()


def test_a_folder_of_version_0_1_continues_and_repeats_its_saved_replies(tmp_path):
    tmp_path.joinpath(FILE).write_bytes(lzma.decompress(BEFORE.read_bytes()))
    store = Store(tmp_path)
    former = store.detector(1).configuration
    saved_replies, _ = store.replies(1, 8)
    entries = {entry.request: entry.content for entry in store.entries_after(1, 4)}
    store.close()
    assert {"n_estimators", "score"} <= former.keys()
    registry = Registry(tmp_path)
    handle = registry.get("a")
    assert {"n_estimators", "score"}.isdisjoint(handle.record.configuration)
    assert handle.record.configuration["n_trees"] == former["n_estimators"] == 3
    assert handle.record.configuration["kind"] == "size"
    assert former["threshold"] == 0.1  # a share of the points
    assert handle.record.configuration["threshold"] == handle.configuration["threshold"] == "top 10%"
    recorded = [row for each in saved_replies for row in json.loads(each.reply.content)["results"]]
    rows = handle.worker.history.rows()
    assert [row.score for row in rows][:40] == [row["score"] for row in recorded]
    assert [row.is_anomaly for row in rows][:40] == [row["anomaly"] for row in recorded]
    for each in saved_replies[4:]:  # their points are still in the journal
        again = handle.worker.submit(POINTS, entries[each.request], 5, each.request).result()
        assert again == each.reply
    assert handle.worker.summary.n_seen == 50
    registry.close()


def test_a_configuration_and_snapshots_with_former_names_still_work(killed_folder, stream):  # noqa: F811
    store = Store(killed_folder)
    configuration = store.detector(1).configuration
    snapshots = list(store.snapshots(1))
    former = with_former_names({**configuration, "kind": "preset", "scale": "preset"})
    with store.transaction():
        store._database.execute("UPDATE detectors SET configuration = ? WHERE id = 1", (json.dumps(former),))
        store._database.execute("DELETE FROM snapshots")
        for snapshot in reversed(snapshots):
            store.add_snapshot(1, snapshot.number, file_with_former_names(snapshot.content), snapshot.history)
    store.close()
    assert b'"n_estimators"' in file_with_former_names(snapshots[0].content)
    assert_continues(killed_folder, stream, 330)
    registry = Registry(killed_folder, retention=OFTEN)
    assert registry.create("a", XY)[1] is False  # the same detector
    registry.close()


def test_a_model_file_with_former_names_is_restored(registry, stream):
    reference = new_detector({**DEFAULTS, **XY})
    reference.process_many(stream[:300])
    content = file_with_former_names(to_bytes(reference, {}))
    configuration = configuration_in(content, Limits())
    assert configuration["n_trees"] == XY["n_trees"]
    check_model(content, configuration, Limits())
    with ThreadServer(create_app(registry)) as server:
        assert put(server, "a", content) == (201, {"n_points": 300})
        assert learn(registry.get("a"), stream[300:310]) == expected(reference, stream[300:310])
        assert put(server, "a", content)[0] == 200


def former_folder(folder, threshold):
    """Change a folder as if it had been written by a version without incidents."""
    store = Store(folder)
    configuration = store.detector(1).configuration
    snapshots = list(store.snapshots(1))
    names = ("gap", "min_points", "cooldown", "side", "ignore_within", "silence")
    configuration = {name: value for name, value in configuration.items() if name not in names}
    with store.transaction():
        row = json.dumps({**configuration, "threshold": threshold})
        store._database.execute("UPDATE detectors SET configuration = ? WHERE id = 1", (row,))
        store._database.execute("DELETE FROM snapshots")
        for snapshot in reversed(snapshots):
            store.add_snapshot(
                1, snapshot.number, former_file(snapshot.content, threshold), former_rows(snapshot.history)
            )
    for table in ("events", "outbox", "receivers", "announced", "silences"):
        store._database.execute(f"DROP TABLE {table}")
    store.close()


def former_file(content, threshold):
    """Write a model file again, without incidents and surprise."""
    detector, file = from_bytes(content), io.BytesIO()
    forest, notes = detector.snapshot()
    del notes["incidents"], notes["parameters"]["rules"], notes["threshold"]["since"]
    notes["parameters"]["threshold"] = threshold
    beside = storage.read_header(io.BytesIO(content), "The model")["notes"]["beside"]
    kept = {name: beside[name] for name in ("counts", "versions")}
    storage.write(forest, file, {"StreamDetector": notes, "beside": kept})
    return file.getvalue()


def former_rows(history):
    """Return a history in the format without surprise."""
    table, labels = split_pair(history.removeprefix(b"surprise"))
    assert labels == b""
    rows = np.frombuffer(table).reshape(-1, 9)
    return np.delete(rows, [5, 6], axis=1).tobytes()


@pytest.mark.parametrize(
    ("former", "now"), [(0.1, "top 10%"), (0.015, "top 1.5%"), ("auto", 0.5), ("kmeans", "kmeans"), (0.5, 0.5)]
)
def test_a_folder_of_a_version_without_incidents_continues_with_the_meaning_of_its_threshold(
    killed_folder,  # noqa: F811
    stream,
    former,
    now,
):
    former_folder(killed_folder, former)
    registry = Registry(killed_folder, retention=OFTEN)
    handle = registry.get("a")
    assert handle.configuration["threshold"] == handle.record.configuration["threshold"] == now
    with handle.worker.read_copy.read() as detector:
        assert detector.threshold == now
        assert detector.n_seen == 330
        rule = detector.threshold
    assert registry.create("a", {**XY, "threshold": now})[1] is False
    assert registry.create("a", {**XY, "threshold": former})[1] is False  # a client that has not changed
    assert registry.create("a", {name: value for name, value in XY.items() if name != "threshold"})[1] is False
    with pytest.raises(ConflictError):
        registry.create("a", {**XY, "threshold": 0.003})
    rows = history_of(handle, -1, 2000)
    assert rows.surprise[0] is None
    assert rows.index == list(range(330))
    learn(handle, stream[330:400])
    assert history_of(handle, -1, 2000).surprise[-1] is not None
    registry.close()
    registry = Registry(killed_folder, retention=OFTEN)
    assert registry.get("a").configuration["threshold"] == rule
    registry.close()


@pytest.mark.parametrize("name", FORMER.values())
def test_former_names_are_refused_for_new_detectors(registry, name):
    with pytest.raises(InvalidInputError, match=f"Unknown setting '{name}'"):
        registry.create("a", {**XY, name: "size"})


def test_the_preset_sets_missing_settings(registry):
    sizes = {"features": ["x", "y"], "window": 64, "n_trees": 2}
    for preset, kind, scale, threshold in (("practice", "size", "std", 0.001), ("paper", "depth", None, "kmeans")):
        handle, _ = registry.create(preset, {**sizes, "preset": preset})
        configuration = handle.record.configuration
        assert (configuration["kind"], configuration["scale"], configuration["threshold"]) == (kind, scale, threshold)
        again = {**sizes, "preset": preset, "kind": kind, "scale": scale, "threshold": threshold}
        assert registry.create(preset, again)[1] is False
        with handle.worker.read_copy.read() as detector:
            assert (detector.kind, detector.forest.scale) == (kind, scale)
            assert np.isfinite(detector.score([[1.0, 2.0]])).all()

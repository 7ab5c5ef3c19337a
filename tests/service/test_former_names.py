"""Folders and model files with the names of version 0.1 (`n_estimators`, `score`) work as before, to the last bit."""

import io
import json
import lzma

import numpy as np
import pytest

from imondrian import storage
from imondrian.errors import InvalidInputError
from imondrian.model_files import from_bytes, to_bytes
from imondrian.service.asgi import create_app
from imondrian.service.configuration import DEFAULTS, new_detector
from imondrian.service.journal import POINTS
from imondrian.service.limits import Limits
from imondrian.service.registry import Registry
from imondrian.service.store import FILE, Store
from imondrian.service.uploads import check_model, configuration_in
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

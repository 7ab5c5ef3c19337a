"""Counts shown to users are exact however the service ended, also in files of the previous version."""

import json
import lzma
import shutil
import signal
from pathlib import Path

import pytest

from imondrian.model_files import to_bytes
from imondrian.service.changes.configuration import DEFAULTS, new_detector
from imondrian.service.changes.journal import FORGET, MODEL
from imondrian.service.detectors.registry import Registry
from imondrian.service.http.metrics import metrics_of
from imondrian.service.limits import Retention
from imondrian.service.storage.store import FILE
from tests.service.serving import Service
from tests.service.test_recovery import OFTEN, XY, damage_database, killed_folder  # noqa: F401 (a fixture)
from tests.service.test_worker import learn

BEFORE = Path(__file__).with_name("before_versions.db.xz")  # 50 points in 10 requests, 8 of them in a snapshot


def figures(service):
    """Return everything shown of a detector."""
    description = json.loads(service.request("GET", "/detectors/a")[2])
    return description, service.request("GET", "/metrics")[2].decode()


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_all_figures_are_the_same_after_a_stop_or_a_kill(tmp_path, stream, signal_number):
    service = Service(tmp_path)
    with service:
        service.request("PUT", "/detectors/a", XY)
        for first in range(0, 600, 100):
            service.request("POST", "/detectors/a/points", {"points": stream[first : first + 100].tolist()})
        service.request("DELETE", "/detectors/a/points", {"points": stream[590:].tolist()})
        service.request("DELETE", "/detectors/a/points", {"points": [[1e6, 1e6]]})  # refused
        before = figures(service)
        service.process.send_signal(signal_number)
        service.process.communicate(timeout=60)
        service.start()
        assert figures(service) == before
    results = new_detector({**DEFAULTS, **XY}).process_many(stream)
    assert before[0]["n_anomalies"] == results.is_anomaly.sum() > 0
    assert 'imondrian_points_total{detector="a"} 600' in before[1]
    assert 'imondrian_requests_total{detector="a"} 8' in before[1]


def counted(registry):
    worker = registry.get("a").worker
    return worker.counts.n_points, worker.counts.n_anomalies, worker.n_requests


def test_nothing_is_counted_twice_whatever_is_replayed(killed_folder, stream):  # noqa: F811
    n_anomalies = int(new_detector({**DEFAULTS, **XY}).process_many(stream[:330]).is_anomaly.sum())
    shutil.copytree(killed_folder, killed_folder.with_name("damaged"))
    damage_database(killed_folder.with_name("damaged"), "UPDATE snapshots SET content = x'00' WHERE number = 30")
    for folder in (
        killed_folder,
        killed_folder.with_name("damaged"),
        killed_folder,
    ):  # the last one was stopped cleanly
        registry = Registry(folder, retention=OFTEN)
        assert counted(registry) == (330, n_anomalies, 33)
        learn(registry.get("a"), stream[:10], "id-0")  # a repeated request: not applied again
        assert counted(registry) == (330, n_anomalies, 33)
        registry.close()


def test_replacing_the_model_does_not_change_the_counts(tmp_path, stream):
    registry = Registry(tmp_path / "live", retention=Retention(points_between_snapshots=50))
    handle, _ = registry.create("a", XY)
    learn(handle, stream[:200])
    handle.worker.submit(MODEL, to_bytes(new_detector(handle.record.configuration)), 0).result()
    learn(handle, stream[200:210])
    handle.worker.submit(FORGET, stream[200:201].tobytes(), 1).result()
    before = counted(registry)
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    registry.close()
    assert before[0] == 210
    for folder in ("live", "killed"):
        registry = Registry(tmp_path / folder)
        assert counted(registry) == before
        registry.close()


@pytest.fixture
def before(tmp_path):
    """Return a folder left by a killed service of the previous version."""
    tmp_path.joinpath(FILE).write_bytes(lzma.decompress(BEFORE.read_bytes()))
    return tmp_path


def test_counts_in_a_file_of_the_previous_version_start_at_its_last_snapshot(before):
    registry = Registry(before)
    assert registry.get("a").worker.summary.n_seen == 50
    assert counted(registry) == (10, 1, 10)
    assert 'imondrian_requests_total{detector="a"} 10' in metrics_of(registry)
    registry.close()
    registry = Registry(before)
    assert counted(registry) == (10, 1, 10)
    registry.close()

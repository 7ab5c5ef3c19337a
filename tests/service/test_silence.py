"""A detector without data for too long has an incident of its own, announced once and closed by the next point."""

import re
import shutil
import time

import numpy as np
import pytest

from imondrian.base.errors import InvalidInputError
from imondrian.service.changes.journal import SETTINGS
from imondrian.service.changes.settings import Changes, checked_silence
from imondrian.service.detectors.registry import Registry
from imondrian.service.http.metrics import metrics_of
from imondrian.service.limits import Retention
from tests.service.serving import SMALL, wait_until
from tests.service.test_incidents import change, events_of, shown
from tests.service.test_worker import expected, learn, new_detector

SILENT = {"features": ["x", "y"], **SMALL, "silence": 0.2}
QUICK = Retention(silence_check_seconds=0.02)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "live"


def whats(registry):
    return [(each["event"], each["incident"]["id"]) for each in events_of(registry)]


def test_a_detector_without_data_is_silent_until_the_next_point(folder):
    registry = Registry(folder, retention=QUICK)
    handle, _ = registry.create("a", SILENT)
    wait_until(lambda: handle.worker.is_silent)
    (incident,) = shown(registry)
    assert (incident["kind"], incident["is_open"]) == ("silence", True)
    assert incident["first"]["time"] == handle.record.created  # it never got a point
    time.sleep(0.3)
    assert whats(registry) == [("opened", incident["id"])]  # announced once
    learn(handle, np.zeros((1, 2)))
    assert not handle.worker.is_silent
    assert whats(registry) == [("opened", incident["id"]), ("closed", incident["id"])]
    assert shown(registry)[0]["closed"]["time"] >= incident["opened"]["time"]
    arrived = handle.worker.history.last_time
    wait_until(lambda: handle.worker.is_silent)
    assert shown(registry)[0]["first"]["time"] == arrived
    assert 'imondrian_silences_total{detector="a"} 2\n' in metrics_of(registry)
    assert 'imondrian_open_incidents{detector="a"} 1\n' in metrics_of(registry)
    registry.close()


def test_a_silence_survives_restarts_and_is_not_announced_again(folder, tmp_path):
    registry = Registry(folder, retention=QUICK)
    handle, _ = registry.create("a", SILENT)
    wait_until(lambda: handle.worker.is_silent)
    before = shown(registry), events_of(registry)
    shutil.copytree(folder, tmp_path / "killed")
    registry.close()
    for each in (folder, tmp_path / "killed"):
        registry = Registry(each, retention=QUICK)
        time.sleep(0.3)
        assert (shown(registry), events_of(registry)) == before
        learn(registry.get("a"), np.zeros((1, 2)))
        assert [what for what, _ in whats(registry)] == ["opened", "closed"]
        shutil.copytree(each, each.with_name(f"{each.name}-again"))
        again = Registry(each.with_name(f"{each.name}-again"))
        assert [what for what, _ in whats(again)] == ["opened", "closed"]
        assert not again.get("a").worker.is_silent
        again.close()
        registry.close()


def test_silences_do_not_change_what_is_replayed(folder, tmp_path, stream):
    registry = Registry(folder, retention=QUICK)
    handle, _ = registry.create("a", SILENT)
    reference = new_detector(handle.configuration)
    for first in (0, 100, 200):
        wait_until(lambda: handle.worker.is_silent)
        assert learn(handle, stream[first : first + 100]) == expected(reference, stream[first : first + 100])
    shutil.copytree(folder, tmp_path / "killed")
    registry.close()
    registry = Registry(tmp_path / "killed")
    assert learn(registry.get("a"), stream[300:]) == expected(reference, stream[300:])
    registry.close()


def test_data_prevents_a_silence_and_other_requests_do_not(folder):
    registry = Registry(folder, retention=QUICK)
    handle, _ = registry.create("a", {**SILENT, "silence": 0.6})
    for _ in range(10):
        learn(handle, np.zeros((1, 2)))
        time.sleep(0.1)
    assert whats(registry) == []
    change(handle, {"gap": 5})
    wait_until(lambda: handle.worker.is_silent)
    change(handle, {"gap": 6})
    assert handle.worker.is_silent
    registry.close()


def test_a_silence_ends_with_its_setting(folder):
    registry = Registry(folder, retention=QUICK)
    handle, _ = registry.create("a", SILENT)
    wait_until(lambda: handle.worker.is_silent)
    change(handle, {"silence": None})
    assert not handle.worker.is_silent
    time.sleep(0.3)
    change(handle, {"silence": "1h"})
    time.sleep(0.1)
    assert [what for what, _ in whats(registry)] == ["opened", "closed"]
    change(handle, {"silence": 0.1})
    wait_until(lambda: handle.worker.is_silent)
    registry.close()


def test_a_silence_does_not_begin_before_a_change_of_its_setting_is_applied(folder):
    registry = Registry(folder, retention=Retention(silence_check_seconds=60.0))
    handle, _ = registry.create("a", {**SILENT, "silence": 0.001})
    time.sleep(0.01)
    with handle.worker.read_copy.write_lock():  # the change is journalled, but cannot be applied yet
        content = Changes.of({"silence": None}, handle.configuration).to_bytes()
        done = handle.worker.submit(SETTINGS, content, 0)
        registry.writer.write(lambda _store: None)  # the journal is written
        for _ in range(3):
            handle.worker.open_silence_if_due()
            registry.feed.submit(handle.worker._open_silence).result()
        assert not done.done()
    done.result()
    handle.worker.open_silence_if_due()
    registry.writer.write(lambda _store: None)
    assert whats(registry) == []
    registry.close()


def test_a_removed_detector_is_no_longer_silent(folder):
    registry = Registry(folder, retention=QUICK)
    handle, _ = registry.create("a", SILENT)
    wait_until(lambda: handle.worker.is_silent)
    (_, id_), *_ = whats(registry)
    registry.remove("a")
    time.sleep(0.1)
    assert whats(registry) == [("closed", id_)]
    registry.close()


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("10m", 600.0), (" 1.5 h ", 5400.0), ("1d", 86400.0), (7, 7.0)]
)
def test_durations(text, seconds):
    assert checked_silence(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "10 minutes",
        "-1s",
        0,
        -1.0,
        float("nan"),
        float("inf"),
        "1e3s",
        "7",
        [],
        "999d",
        "1_0s",
        "٣m",
        "\uff11h",
    ],
)
def test_invalid_durations(text):
    with pytest.raises(InvalidInputError, match=re.escape(f"but is {text!r}.")):
        checked_silence(text)

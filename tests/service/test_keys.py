"""A detector with a key gives the results of a fleet, however posts are cut and however the service ended."""

import json
import shutil
import sqlite3
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from imondrian import StreamDetector
from imondrian.base.errors import InvalidInputError
from imondrian.fleet.fleet import Fleet
from imondrian.service.changes.configuration import checked_configuration
from imondrian.service.changes.journal import entry_of_points
from imondrian.service.changes.keyed_rows import LearnedRow
from imondrian.service.client import ServiceError
from imondrian.service.detectors.job_queue import QueuedKeys
from imondrian.service.detectors.key_files import KeyFile
from imondrian.service.detectors.keyed_state import KeyedState
from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import ConflictError, NotRecoveredError, RemovedError
from imondrian.service.http.asgi import create_app
from imondrian.service.limits import DESCRIPTORS_PER_KEY_FILE, KEY_BYTES, Limits, Retention
from imondrian.service.storage.key_rows import KeyRows
from imondrian.service.storage.store import FILE, Store
from tests.service.keyed import (
    HOSTS,
    NAMES,
    OFTEN,
    SIZE,
    blocks,
    change,
    copied,
    expected,
    forget,
    incidents_shown,
    keyed_rows,
    learn,
    parsed,
    plain_fleet,
    points_of,
    rows_shown,
)
from tests.service.serving import ThreadServer, wait_until
from tests.service.test_recovery import damage_database

N_ROWS = 1_500


@pytest.fixture(params=["once", "rows", "blocks"])
def cuts(request):
    """Return where a stream is cut into posts."""
    rng = np.random.default_rng(1)
    return {"once": [], "rows": range(1, N_ROWS), "blocks": sorted(rng.integers(N_ROWS, size=20))}[request.param]


# -- results ----------------------------------------------------------------------------------------------------


def test_results_equal_those_of_a_fleet_however_posts_are_cut(tmp_path, cuts):
    registry = Registry(tmp_path, retention=OFTEN)
    handle, _ = registry.create("hosts", HOSTS)
    keys, X = keyed_rows(n_rows=N_ROWS)
    found = [row for block in blocks(cuts, N_ROWS) for row in learn(handle, [keys[i] for i in block], X[block])]
    fleet = plain_fleet()
    assert found == expected(fleet, keys, X)
    assert handle.worker.counts.n_points == handle.worker.summary.n_seen == N_ROWS
    assert handle.worker.counts.n_anomalies == sum(row["is_anomaly"] for row in found) > 0
    registry.close()


def test_warm_keys_have_the_results_of_single_detectors(registry):
    handle, _ = registry.create("hosts", HOSTS)
    keys, X = keyed_rows(n_rows=N_ROWS)
    found, fleet = learn(handle, keys, X), plain_fleet()
    for name in NAMES:
        positions = [i for i, key in enumerate(keys) if key == name]
        single = StreamDetector(2, **SIZE, missing="raise", seed=fleet.seed_of(name)).process_many(X[positions])
        warm = [(row["anomaly_score"], row["index"]) for i in positions if not (row := found[i])["is_borrowed"]]
        assert len(warm) > 50
        assert warm == [(single.score[index], index) for _, index in warm]


def test_records_have_their_keys_by_name_and_integers_are_texts(registry):
    handle, _ = registry.create("hosts", HOSTS)
    listed = parsed(handle, [["7", 1.0, 2.0], [7, 1.5, 2.5]])
    named = parsed(handle, [{"host": 7, "load": 1.0, "memory": 2.0}, {"memory": 2.5, "host": "7", "load": 1.5}])
    assert listed.keys == named.keys == ["7", "7"]
    assert listed.points.tolist() == named.points.tolist() == [[1.0, 2.0], [1.5, 2.5]]


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ([1.0, 2.0], "Point 0 must be a list of 3 values, the key 'host' first, but is [1.0, 2.0]."),
        (3, "Point 0 must be a JSON list or object"),
        ([True, 1.0, 2.0], "'host' of point 0 must be text of at most 256 characters, or an integer of at most 63"),
        ([1.5, 1.0, 2.0], "but is 1.5."),
        ([None, 1.0, 2.0], "but is null."),
        ([2**63, 1.0, 2.0], "or an integer of at most 63 bits, but is 9223372036854775808."),
        (["x" * 257, 1.0, 2.0], "'host' of point 0 must be text of at most 256 characters"),
        (["\ud800", 1.0, 2.0], "'host' of point 0 must be text"),
        (["a", 1.0, None], "'memory' of point 0 must be a number, but is null."),
        (["a", "x", 2.0], "'load' of point 0 must be a number, but is \"x\"."),
        ({"load": 1.0, "memory": 2.0}, "Point 0 lacks the key 'host'."),
        ({"host": "a", "load": 1.0}, "Point 0 lacks the feature 'memory'."),
        ({"host": "a", "load": 1.0, "memory": 2.0, "disk": 3.0}, "Point 0 has an unknown feature 'disk'."),
    ],
)
def test_wrong_points_are_refused_with_a_message(shared_registry, point, message):
    handle, _ = shared_registry.create("hosts", HOSTS)
    with pytest.raises(InvalidInputError) as error:
        parsed(handle, [point])
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"key": "load"}, "key must not be the name of a feature, but is 'load'."),
        ({"key": "time"}, "key must not be the name of the time of a point, but is 'time'."),
        ({"key": ""}, "key must be a name of printable characters, but is ''."),
        ({"key": 3}, "key must be a name of printable characters, but is 3."),
        ({"preset": "series"}, "preset must not be 'series' with a key"),
        ({"categorical": ["load"]}, "categorical must be [] with a key, but is ['load']."),
        ({"missing": "median"}, "missing must be 'raise' with a key, but is 'median'."),
        ({"shingle": 2}, "shingle must be 1 with a key, but is 2."),
        ({"learn_anomalies": False}, "learn_anomalies must be True with a key, but is False."),
        ({"max_bytes": 1000}, "max_bytes must be between "),
        ({"max_bytes": 2**40}, "max_bytes must be between "),
        ({"key": None, "max_bytes": 10**8}, "max_bytes limits the memory of keys, so it requires the setting key."),
    ],
)
def test_wrong_configurations_are_refused_with_a_message(shared_registry, settings, message):
    with pytest.raises(InvalidInputError) as error:
        shared_registry.create("hosts", {**HOSTS, **settings})
    assert message in str(error.value)
    assert shared_registry.all() == []


def test_a_repeated_creation_returns_the_same_detector(registry):
    handle, is_new = registry.create("hosts", HOSTS)
    assert is_new
    assert registry.create("hosts", HOSTS) == (handle, False)
    assert registry.create("hosts", {**HOSTS, "missing": "raise", "max_bytes": 256 * 2**20}) == (handle, False)
    change(handle, threshold=0.001)
    assert registry.create("hosts", HOSTS) == (handle, False)
    for other in ({"key": "machine"}, {"key": None}, {"window": 32}, {"max_bytes": 10**8}):
        with pytest.raises(ConflictError, match="another configuration"):
            registry.create("hosts", {**HOSTS, **other})


def test_the_memory_of_keys_counts(tmp_path):
    registry = Registry(tmp_path, Limits(total_bytes=300 * 2**20))
    registry.create("hosts", HOSTS)
    with pytest.raises(ConflictError, match=r"would need 536870912 bytes, but at most 314572800 are allowed \(imond"):
        registry.create("others", HOSTS)
    registry.create("others", {**HOSTS, "max_bytes": 2**20})
    registry.close()


# -- restarts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_killed", [False, True])
def test_restarts_change_nothing(tmp_path, is_killed):
    keys, X = keyed_rows(n_rows=N_ROWS)
    fleet, folder, found = plain_fleet(), tmp_path / "data", []
    never_stopped = Registry(tmp_path / "other")
    other, _ = never_stopped.create("hosts", HOSTS)
    for block in blocks(range(70, N_ROWS, 190), N_ROWS):
        registry = Registry(folder, retention=OFTEN)
        handle, _ = registry.create("hosts", HOSTS)
        for part in np.array_split(block, 7):
            some = [keys[i] for i in part]
            found += learn(handle, some, X[part])
            assert found[-len(part) :] == learn(other, some, X[part])
        if is_killed:
            shutil.move(copied(registry, tmp_path), tmp_path / "next")
        registry.close()
        if is_killed:
            shutil.rmtree(folder)
            (tmp_path / "next").rename(folder)
    assert found == expected(fleet, keys, X)
    registry = Registry(folder)
    assert registry.damage_reports == []
    assert without_times(rows_shown(registry)) == without_times(rows_shown(never_stopped))
    assert without_arrival(incidents_shown(registry)) == without_arrival(incidents_shown(never_stopped))
    assert registry.get("hosts").worker.counts == other.worker.counts
    assert registry.get("hosts").worker.summary == other.worker.summary
    registry.close()
    never_stopped.close()


def without_times(rows):
    return {key: [row._replace(time=0.0) for row in found] for key, found in rows.items()}


def without_arrival(incidents):
    rows = ("first", "last", "opened", "closed", "peak")
    assert all(each[name]["time"] > 0.0 for each in incidents for name in rows if each[name] is not None)
    return [{**each, **{name: each[name] and {**each[name], "time": None} for name in rows}} for each in incidents]


@pytest.mark.parametrize("step", ["rows", "incidents", "replies", "fleet", "former incidents", "entries"])
def test_a_snapshot_can_be_interrupted_after_every_step(tmp_path, monkeypatch, step):
    keys, X = keyed_rows(n_rows=600)
    registry = Registry(tmp_path / "live")
    handle, _ = registry.create("hosts", HOSTS)
    half = expected(fleet := plain_fleet(), keys[:300], X[:300])
    for first in range(0, 300, 10):
        learn(handle, keys[first : first + 10], X[first : first + 10], f"id-{first}")
    registry.close()  # saves a snapshot
    registry = Registry(tmp_path / "live")
    handle = registry.get("hosts")
    forget(handle, "web-1")
    fleet.forget("web-1")
    half += expected(fleet, keys[300:], X[300:])
    for first in range(300, 600, 10):
        learn(handle, keys[first : first + 10], X[first : first + 10], f"id-{first}")
    shown, incidents = rows_shown(registry), incidents_shown(registry)
    n_writes = {"rows": 2, "incidents": 3, "replies": 4, "former incidents": 5, "entries": 6}.get(step)

    def interrupted(state, write):
        """Copy the folder after a step of the snapshot."""
        count = 0

        def counted(operation):
            nonlocal count
            count += 1
            write(operation)
            if count == n_writes and step != "fleet":
                copied(registry, tmp_path)

        if step == "fleet":
            save = Fleet.save
            monkeypatch.setattr(Fleet, "save", lambda fleet: [save(fleet), copied(registry, tmp_path)])
        original(state, counted)
        monkeypatch.undo()

    original = KeyedState.save_snapshot
    monkeypatch.setattr(KeyedState, "save_snapshot", interrupted)
    registry.close()
    restarted = Registry(tmp_path / "killed")
    handle = restarted.get("hosts")
    assert restarted.damage_reports == []
    assert rows_shown(restarted) == shown
    assert incidents_shown(restarted) == incidents
    for first in range(0, 600, 10):  # repeated requests: nothing is learned again
        assert learn(handle, keys[first : first + 10], X[first : first + 10], f"id-{first}") == half[first : first + 10]
    assert learn(handle, keys, X) == expected(fleet, keys, X)
    restarted.close()


def test_forgetting_again_after_an_interrupted_snapshot_has_the_same_reply(tmp_path, monkeypatch):
    keys, X = keyed_rows(n_rows=600)
    registry = Registry(tmp_path / "live")
    learn(registry.create("hosts", HOSTS)[0], keys, X)
    registry.close()
    registry = Registry(tmp_path / "live")
    handle = registry.get("hosts")
    replies = {name: forget(handle, name, f"id-{name}") for name in ("web-1", "web-2")}
    assert json.loads(replies["web-1"].content) == {"n_points": keys.count("web-1")}
    learn(handle, ["web-2"] * 3, X[:3])
    save = Fleet.save
    monkeypatch.setattr(Fleet, "save", lambda fleet: [copied(registry, tmp_path), save(fleet)])  # the rows are stored
    registry.close()
    monkeypatch.undo()
    restarted = Registry(tmp_path / "killed")
    for name, reply in replies.items():
        assert forget(restarted.get("hosts"), name, f"id-{name}") == reply
    restarted.close()


def test_the_latest_surprise_is_that_of_the_last_row_also_after_restarts(tmp_path):
    keys, X = keyed_rows(n_rows=600)
    registry = Registry(tmp_path / "live")
    handle, _ = registry.create("hosts", HOSTS)
    surprise = learn(handle, keys, X)[-1]["surprise"]  # all rows have the same time
    assert handle.worker.view.latest_surprise == surprise
    last = handle.worker.view.last_arrival
    killed = copied(registry, tmp_path)
    registry.close()
    for folder in (tmp_path / "live", tmp_path / "live", killed):
        registry = Registry(folder)
        view = registry.get("hosts").worker.view
        assert (view.latest_surprise, view.last_arrival) == (surprise, last)
        registry.close()


def test_keys_beyond_the_memory_move_to_the_disk_and_come_back(tmp_path):
    keys, X = keyed_rows(n_rows=N_ROWS)
    max_bytes = 3 * plain_fleet().bytes_per_key  # of ten keys
    fleet, found = plain_fleet(), []
    for part in np.array_split(np.arange(N_ROWS), 5):
        registry = Registry(tmp_path, retention=OFTEN)
        handle, _ = registry.create("hosts", {**HOSTS, "max_bytes": max_bytes})
        for some in np.array_split(part, 4):
            found += learn(handle, [keys[i] for i in some], X[some])
        assert handle.worker.keys.fleet.n_bytes <= max_bytes
        assert len(handle.worker.keys.fleet) == handle.worker.summary.n_keys == len(NAMES)
        registry.close()
    assert found == expected(fleet, keys, X)


def test_an_interrupted_save_of_the_keys_is_undone(tmp_path):
    keys, X = keyed_rows(n_rows=N_ROWS)
    registry, fleet = Registry(tmp_path / "live"), plain_fleet()
    learn(registry.create("hosts", HOSTS)[0], keys[:600], X[:600])
    expected(fleet, keys[:600], X[:600])
    registry.close()
    path = tmp_path / "live" / "keys-1.db"
    intact = path.read_bytes()
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA cache_size = 1")  # pages are written before the end of the transaction
    database.execute("BEGIN IMMEDIATE")
    database.execute("UPDATE saved SET state = zeroblob(length(state))")
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    database.execute("ROLLBACK")
    database.close()
    killed = tmp_path / "killed" / "keys-1.db"
    assert killed.with_name("keys-1.db-journal").exists()
    assert killed.read_bytes() != intact
    registry = Registry(tmp_path / "killed")
    assert learn(registry.get("hosts"), keys[600:], X[600:]) == expected(fleet, keys[600:], X[600:])
    registry.close()


def test_a_start_reads_no_key(tmp_path, monkeypatch):
    keys, X = keyed_rows(n_rows=N_ROWS)
    registry = Registry(tmp_path)
    learn(registry.create("hosts", HOSTS)[0], keys, X)
    registry.close()
    monkeypatch.setattr("imondrian.fleet.key_store.KeyStore.read", lambda *_: pytest.fail("a key was read"))
    registry = Registry(tmp_path)
    assert registry.get("hosts").worker.summary.n_keys == len(NAMES)
    assert registry.get("hosts").worker.keys.fleet.n_bytes == 0
    registry.close()


def test_settings_can_be_changed_and_survive(tmp_path):
    keys, X = keyed_rows(n_rows=N_ROWS)
    registry, fleet = Registry(tmp_path), plain_fleet()
    handle, _ = registry.create("hosts", HOSTS)
    assert learn(handle, keys[:700], X[:700]) == expected(fleet, keys[:700], X[:700])
    assert change(handle, threshold=0.1, gap=3, side={"load": "high"}, silence="10m").status == 200
    fleet.threshold, fleet.rules = 0.1, {"gap": 3, "side": {0: "high"}}
    assert learn(handle, keys[700:1000], X[700:1000]) == expected(fleet, keys[700:1000], X[700:1000])
    configuration = handle.configuration
    registry.close()
    registry = Registry(tmp_path)
    handle = registry.get("hosts")
    assert handle.configuration == configuration
    assert (configuration["threshold"], configuration["silence"]) == (0.1, 600.0)
    assert learn(handle, keys[1000:], X[1000:]) == expected(fleet, keys[1000:], X[1000:])
    registry.close()


# -- forgetting, removing, damage -------------------------------------------------------------------------------


def test_a_forgotten_key_starts_again(tmp_path):
    keys, X = keyed_rows(n_rows=N_ROWS)
    registry, fleet = Registry(tmp_path), plain_fleet()
    handle, _ = registry.create("hosts", HOSTS)
    assert learn(handle, keys[:700], X[:700]) == expected(fleet, keys[:700], X[:700])
    assert forget(handle, "a/b/../c").status == 200
    assert "a/b/../c" not in rows_shown(registry)
    fleet.forget("a/b/../c")
    reply = forget(handle, "a/b/../c")
    assert (reply.status, reply.content) == (404, b'{"detail": "There is no key \'a/b/../c\'."}')
    registry.close()
    registry = Registry(tmp_path)
    handle = registry.get("hosts")
    assert "a/b/../c" not in rows_shown(registry)
    assert learn(handle, keys[700:], X[700:]) == expected(fleet, keys[700:], X[700:])
    shown = [row.number for row in rows_shown(registry)["a/b/../c"]]
    n_rows = keys[700:].count("a/b/../c")
    assert shown == list(range(max(n_rows - 64, 0), n_rows))
    registry.close()


def test_the_latest_64_rows_of_each_key_are_shown(tmp_path):
    keys, X = keyed_rows(n_rows=N_ROWS)
    registry = Registry(tmp_path, retention=OFTEN)
    handle, _ = registry.create("hosts", HOSTS)
    found = [
        row
        for block in np.array_split(np.arange(N_ROWS), 40)
        for row in learn(handle, [keys[i] for i in block], X[block])
    ]
    for key, rows in rows_shown(registry).items():
        positions = [i for i, other in enumerate(keys) if other == key][-64:]
        assert [row.number for row in rows] == [found[i]["index"] for i in positions]
        assert [np.frombuffer(row.point).tolist() for row in rows] == X[positions].tolist()
        assert [row.score for row in rows] == [found[i]["anomaly_score"] for i in positions]
        assert [row.is_borrowed for row in rows] == [found[i]["is_borrowed"] for i in positions]
    registry.close()


def test_removal_deletes_the_file_also_after_a_crash(tmp_path):
    registry = Registry(tmp_path / "live")
    handle, _ = registry.create("hosts", HOSTS)
    learn(handle, *keyed_rows(n_rows=100))
    path = tmp_path / "live" / "keys-1.db"
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(path.with_name("keys-1.db-spill").stat().st_mode) == 0o600
    folder = copied(registry, tmp_path)
    registry.remove("hosts")
    assert handle.worker.wait_for_end(10)
    assert not list(path.parent.glob("keys-*"))
    with pytest.raises(RemovedError):
        handle.worker.submit("points", b"", 0)
    shutil.copy(folder / "keys-1.db", path)  # the crash came before the deletion of the file
    registry.close()
    registry = Registry(tmp_path / "live")
    assert not list(path.parent.glob("keys-*"))
    registry.create("hosts", HOSTS)
    assert (path.parent / "keys-2.db").exists()  # an id is not used again
    registry.close()


@pytest.mark.parametrize("damage", ["zeros", "text", "missing", "no fleet"])
def test_a_damaged_file_sets_only_its_detector_aside(tmp_path, damage):
    registry = Registry(tmp_path)
    for name in ("hosts", "others"):
        learn(registry.create(name, HOSTS)[0], *keyed_rows(n_rows=200))
    registry.close()
    path = tmp_path / "keys-1.db"
    intact = path.read_bytes()
    path.unlink()
    if damage == "zeros":
        path.write_bytes(intact[:5_000] + b"\0" * (len(intact) - 5_000))
    elif damage == "text":
        path.write_bytes(b"no database")
    elif damage == "no fleet":
        sqlite3.connect(path).execute("CREATE TABLE other (x)").connection.close()
    registry = Registry(tmp_path)
    with pytest.raises(NotRecoveredError, match="could not be recovered when the service started"):
        registry.get("hosts")
    assert learn(registry.get("others"), ["a"], np.zeros((1, 2)))[0]["index"] == 0
    registry.close()
    path.write_bytes(intact)
    registry = Registry(tmp_path)
    assert learn(registry.get("hosts"), ["web-1"], np.zeros((1, 2)))[0]["index"] > 0
    registry.close()
    path.write_bytes(b"no database")
    registry = Registry(tmp_path)
    registry.remove("hosts")
    wait_until(lambda: not path.exists())
    registry.close()


def lost_database(folder):
    return (
        f"1 files of keys belong to no detector in {folder / FILE}, which may have been lost or replaced: they were"
        " renamed to *.damaged (or *.damaged-2, ...)."
    )


@pytest.mark.parametrize("is_empty", [True, False])
def test_the_files_of_keys_are_kept_if_the_database_is_lost(tmp_path, is_empty):
    registry = Registry(tmp_path)
    learn(registry.create("hosts", HOSTS)[0], *keyed_rows(n_rows=20))
    registry.close()
    content = (tmp_path / "keys-1.db").read_bytes()
    (tmp_path / FILE).unlink()
    if is_empty:
        (tmp_path / FILE).touch()
    registry = Registry(tmp_path)
    assert registry.damage_reports == [lost_database(tmp_path)]
    registry.close()
    registry = Registry(tmp_path)
    assert registry.damage_reports == []
    registry.close()
    assert (tmp_path / "keys-1.db.damaged").read_bytes() == content


def test_the_files_of_keys_are_kept_if_the_start_after_the_loss_is_killed(tmp_path):
    registry = Registry(tmp_path)
    learn(registry.create("hosts", HOSTS)[0], *keyed_rows(n_rows=20))
    registry.close()
    content = (tmp_path / "keys-1.db").read_bytes()
    (tmp_path / FILE).unlink()
    Store(tmp_path).close()  # all that the killed start did
    registry = Registry(tmp_path)
    assert registry.damage_reports == [lost_database(tmp_path)]
    registry.close()
    assert (tmp_path / "keys-1.db.damaged").read_bytes() == content


def test_the_files_of_keys_are_kept_if_an_older_database_replaces_the_newer(tmp_path):
    registry = Registry(tmp_path)
    learn(registry.create("hosts", HOSTS)[0], *keyed_rows(n_rows=20))
    registry.close()
    older = (tmp_path / FILE).read_bytes()
    registry = Registry(tmp_path)
    learn(registry.create("others", HOSTS)[0], *keyed_rows(n_rows=20))
    registry.close()
    content = (tmp_path / "keys-2.db").read_bytes()
    (tmp_path / FILE).write_bytes(older)
    registry = Registry(tmp_path)
    assert registry.damage_reports == [lost_database(tmp_path)]
    assert registry.get("hosts").worker.is_keyed
    registry.close()
    assert (tmp_path / "keys-2.db.damaged").read_bytes() == content


def test_a_second_loss_of_the_database_keeps_the_files_of_the_first(tmp_path):
    contents = []
    for n_rows in (20, 60):
        registry = Registry(tmp_path)
        learn(registry.create("hosts", HOSTS)[0], *keyed_rows(n_rows=n_rows))
        registry.close()
        contents.append((tmp_path / "keys-1.db").read_bytes())
        (tmp_path / FILE).unlink()
    Registry(tmp_path).close()
    assert [(tmp_path / f"keys-1.db.{name}").read_bytes() for name in ("damaged", "damaged-2")] == contents


@pytest.mark.parametrize("is_set_aside", [True, False])
def test_a_detector_whose_file_cannot_be_deleted_is_removed(tmp_path, is_set_aside, caplog):
    registry = Registry(tmp_path)
    learn(registry.create("hosts", HOSTS)[0], *keyed_rows(n_rows=100))
    if is_set_aside:
        registry.close()
    path = tmp_path / "keys-1.db"
    path.unlink()
    path.mkdir()
    if is_set_aside:
        registry = Registry(tmp_path)
        with pytest.raises(NotRecoveredError):
            registry.get("hosts")
    removal = registry.start_removal("hosts")
    wait_until(removal.done)
    assert removal.result() is None
    wait_until(lambda: "keys-1.db belongs to no detector, but cannot be deleted" in caplog.text)
    learn(registry.create("hosts", HOSTS)[0], *keyed_rows(n_rows=100))
    registry.close()


def test_a_removal_that_fails_at_its_end_is_reported(registry, monkeypatch):
    def fail(_name):
        raise RuntimeError("a bug")

    registry.create("hosts", HOSTS)
    monkeypatch.setattr(registry, "_forget", fail)
    removal = registry.start_removal("hosts")
    wait_until(removal.done)
    with pytest.raises(RuntimeError, match="a bug"):
        removal.result()


def test_a_damaged_key_fails_its_detector_only(tmp_path):
    keys, X = keyed_rows(n_rows=600)
    registry = Registry(tmp_path)
    learn(registry.create("hosts", HOSTS)[0], keys, X)
    registry.close()
    database = sqlite3.connect(tmp_path / "keys-1.db")
    with database:
        database.execute("UPDATE saved SET state = zeroblob(1000) WHERE key = ?", (b"tweb-1",))
    database.close()
    registry = Registry(tmp_path)
    handle = registry.get("hosts")
    assert learn(handle, ["web-2"], np.zeros((1, 2)))[0]["index"] > 0
    with pytest.raises(Exception, match="The detector has failed"):
        learn(handle, ["web-1"], np.zeros((1, 2)))
    registry.close()
    registry = Registry(tmp_path)
    with pytest.raises(NotRecoveredError, match="The stored state of the key 'web-1' is damaged"):
        registry.get("hosts")
    registry.close()


def test_damaged_rows_are_not_shown(tmp_path):
    registry = Registry(tmp_path)
    learn(registry.create("hosts", HOSTS)[0], *keyed_rows(n_rows=600))
    registry.close()
    database = sqlite3.connect(tmp_path / FILE)
    with database:
        database.execute("UPDATE latest_rows SET content = zeroblob(9) WHERE key = 'web-1'")
        database.execute("UPDATE latest_rows SET time = 'x' WHERE key = 'web-2'")
    database.close()
    registry = Registry(tmp_path)
    shown = rows_shown(registry)
    assert shown["web-1"] == []
    assert "web-2" not in shown
    assert len(shown["7"]) > 30
    registry.close()


def test_a_detector_with_a_key_needs_four_descriptors(tmp_path):
    registry, before = Registry(tmp_path, retention=OFTEN), n_descriptors()
    handle, _ = registry.create("hosts", HOSTS)
    learn(handle, *keyed_rows(n_rows=150))
    wait_until(lambda: handle.worker._state.snapshot_number > 0)
    assert n_descriptors() - before == DESCRIPTORS_PER_KEY_FILE
    registry.close()


def n_descriptors():
    return len(list(Path("/dev/fd").iterdir()))


def test_too_many_detectors_with_a_key_are_refused_or_set_aside(tmp_path):
    def detectors(limit):
        return Registry(tmp_path, Limits(keyed_detectors=limit))

    registry = detectors(3)
    for name in "abc":
        learn(registry.create(name, HOSTS)[0], ["web-1"], np.zeros((1, 2)))
    with pytest.raises(ConflictError, match="At most 3 detectors with a key can be open at the same time"):
        registry.create("d", HOSTS)
    assert registry.create("c", HOSTS)[1] is False
    registry.create("single", {"features": ["x"]})
    worker = registry.get("c").worker
    registry.remove("c")
    assert worker.wait_for_end(10)  # then its files are closed
    registry.create("d", HOSTS)
    registry.close()
    registry = detectors(1)
    assert [handle.record.name for handle in registry.all()] == ["a", "single"]
    with pytest.raises(NotRecoveredError, match="At most 1 detectors with a key can be open at the same time"):
        registry.get("b")
    content, _ = registry.backup()
    content.close()
    registry.close()
    registry = detectors(3)
    assert registry.problems() == []
    assert learn(registry.get("b"), ["web-1"], np.zeros((1, 2)))[0]["index"] == 1
    registry.close()


def submitted(handle, keys, request=None):
    rows = parsed(handle, points_of(keys, np.zeros((len(keys), 2))))
    return handle.worker.submit(*entry_of_points(rows), len(keys), request, frozenset(keys))


def test_too_many_keys_are_refused(tmp_path):
    registry = Registry(tmp_path, Limits(keys=3))
    handle, _ = registry.create("hosts", HOSTS)
    submitted(handle, ["a", "b"]).result()
    with pytest.raises(InvalidInputError, match="has 2 keys, and the request has 2 others, but at most 3 keys"):
        submitted(handle, ["a", "c", "d", "c"])
    submitted(handle, ["a", "c"]).result()
    with pytest.raises(InvalidInputError, match="has 3 keys, and the request has 1 others"):
        submitted(handle, ["d"])
    forget(handle, "a")
    submitted(handle, ["d"]).result()
    assert list(handle.worker.keys.rows.summaries) == ["b", "c", "d"]
    registry.close()


def test_new_keys_are_refused_if_all_detectors_have_used_the_memory(tmp_path):
    total = keyed_memory(n_keys=3)
    registry = Registry(tmp_path, Limits(total_bytes=total))
    handle, _ = registry.create("hosts", HOSTS)
    submitted(handle, ["a", "b"]).result()
    message = f"has 2 keys, and the request has 2 others, but at most 3 keys are allowed in the {total} bytes of all"
    with pytest.raises(InvalidInputError, match=message):
        submitted(handle, ["a", "c", "d"])
    submitted(handle, ["a", "c"]).result()
    submitted(handle, ["a", "b", "c"]).result()
    registry.close()
    registry = Registry(tmp_path, Limits(total_bytes=total - KEY_BYTES))  # the known keys are kept
    handle = registry.get("hosts")
    submitted(handle, ["a", "b", "c"]).result()
    with pytest.raises(InvalidInputError, match="has 3 keys, and the request has 1 others"):
        submitted(handle, ["d"])
    registry.close()


def test_new_keys_in_the_queues_of_other_detectors_count(tmp_path):
    total = 2 * keyed_memory(n_keys=0) + 3 * KEY_BYTES
    registry = Registry(tmp_path, Limits(total_bytes=total))
    first, second = (registry.create(name, HOSTS)[0] for name in "ab")
    with first.worker.keys.fleet._locks[0]:  # nothing is applied meanwhile
        waiting = [submitted(first, keys) for keys in (["a", "b"], ["b", "a"])]
        with pytest.raises(InvalidInputError, match="has 0 keys, and the request has 2 others, but at most 1 keys"):
            submitted(second, ["c", "d"])
        with pytest.raises(ConflictError, match=f"but at most {total} are allowed"):
            registry.create("c", {"features": ["x"]})
        submitted(second, ["c"]).result(10)
        with pytest.raises(InvalidInputError, match="has 2 keys, and the request has 1 others, but at most 2 keys"):
            submitted(first, ["d"])
    assert [future.result(10).status for future in waiting] == [200, 200]
    for keys in (["a", "b"], ["b", "a"]):
        submitted(first, keys).result(10)
    with pytest.raises(InvalidInputError, match="has 2 keys, and the request has 1 others, but at most 2 keys"):
        submitted(first, ["d"])
    wait_until(lambda: first.worker._queued_keys.n_bytes == 0)
    registry.close()


def test_a_detector_that_is_being_created_counts(tmp_path, monkeypatch):
    total = 2 * keyed_memory(n_keys=0) + 3 * KEY_BYTES
    registry = Registry(tmp_path, Limits(total_bytes=total))
    first, _ = registry.create("a", HOSTS)
    add, refusals = registry._add, []

    def add_beside_keys(*arguments):
        with pytest.raises(InvalidInputError, match="but at most 3 keys") as raised:
            submitted(first, list("abcd"))
        refusals.append(raised.value)
        return add(*arguments)

    monkeypatch.setattr(registry, "_add", add_beside_keys)
    registry.create("b", HOSTS)
    assert len(refusals) == 1
    submitted(first, list("abc")).result(10)
    with pytest.raises(ConflictError):
        registry.create("c", HOSTS)
    assert registry._n_bytes_being_created == 0
    registry.close()


def test_new_keys_are_counted_at_every_moment_while_they_are_applied(tmp_path, monkeypatch):
    registry = Registry(tmp_path)
    handle, _ = registry.create("a", HOSTS)
    before, seen, remove = handle.worker.n_bytes, [], QueuedKeys.remove
    reader = threading.Thread(target=lambda: seen.append(handle.worker.n_bytes))

    def slow_remove(queued, jobs):
        remove(queued, jobs)
        reader.start()
        reader.join(0.2)  # it waits until the summary has the keys, too
        assert not seen

    monkeypatch.setattr(QueuedKeys, "remove", slow_remove)
    submitted(handle, list("abc")).result(10)
    reader.join(10)
    assert seen == [before + 3 * KEY_BYTES]
    registry.close()


def keyed_memory(n_keys):
    """Return the memory of the detector HOSTS with n_keys keys."""
    return checked_configuration(HOSTS, Limits())[1] + n_keys * KEY_BYTES


def test_the_keys_of_waiting_requests_count(tmp_path):
    registry = Registry(tmp_path, Limits(keys=4))
    handle, _ = registry.create("hosts", HOSTS)
    submitted(handle, ["a"]).result()
    with handle.worker.keys.fleet._locks[0]:  # nothing is applied meanwhile
        waiting = [submitted(handle, keys) for keys in (["a", "b"], ["b", "c"], ["c", "a"])]
        with pytest.raises(InvalidInputError, match="has 3 keys, and the request has 2 others"):
            submitted(handle, ["b", "d", "e"])
        waiting.append(submitted(handle, ["d", "a"]))
        waiting.append(submitted(handle, ["d", "b"]))
        with pytest.raises(InvalidInputError, match="has 4 keys, and the request has 1 others"):
            submitted(handle, ["e"])
    assert {future.result(10).status for future in waiting} == {200}
    assert set(handle.worker.keys.rows.summaries) == set("abcd")
    registry.close()


def test_a_repeated_request_gets_its_reply_however_many_keys_there_are(tmp_path):
    registry = Registry(tmp_path, Limits(keys=3))
    handle, _ = registry.create("hosts", HOSTS)
    reply = submitted(handle, ["a", "b", "c"], "id").result()
    forget(handle, "a")
    submitted(handle, ["d"]).result()
    assert submitted(handle, ["a", "b", "c"], "id").result() == reply
    registry.close()


# -- backups ----------------------------------------------------------------------------------------------------


def test_a_backup_has_the_keys_at_one_moment(tmp_path):
    keys, X = keyed_rows(n_rows=N_ROWS)
    registry, fleet = Registry(tmp_path / "live", retention=OFTEN), plain_fleet()
    handle, _ = registry.create("hosts", {**HOSTS, "max_bytes": 3 * fleet.bytes_per_key})
    registry.create("single", {"features": ["x"]})
    for part in np.array_split(np.arange(1_000), 9):
        learn(handle, [keys[i] for i in part], X[part])
    expected(fleet, keys[:1_000], X[:1_000])
    content, n_bytes = registry.backup()
    shown, incidents = rows_shown(registry), incidents_shown(registry)
    folder = tmp_path / "restored"
    folder.mkdir()
    with content:
        (folder / FILE).write_bytes(content.read())
    assert (folder / FILE).stat().st_size == n_bytes
    learn(handle, keys, X)  # not part of the copy
    registry.close()
    restored = Registry(folder)
    assert restored.damage_reports == []
    assert rows_shown(restored) == shown
    assert incidents_shown(restored) == incidents
    handle = restored.get("hosts")
    assert learn(handle, keys[1_000:], X[1_000:]) == expected(fleet, keys[1_000:], X[1_000:])
    assert stat.S_IMODE((folder / "keys-1.db").stat().st_mode) == 0o600
    assert restored.writer.write(lambda store: store.attached_files()) == []
    restored.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE key_files SET content = 'text' WHERE detector = 1",
        "UPDATE key_files SET content = CAST(x'ff' AS TEXT) WHERE detector = 1",
        "UPDATE key_files SET content = 3000000000 WHERE detector = 1",
        "UPDATE key_files SET position = 'first' WHERE detector = 1",
        "UPDATE key_files SET position = position + 1 WHERE detector = 1",
        "INSERT INTO key_files VALUES (1, 1, 'more')",
    ],
)
@pytest.mark.parametrize("has_file", [False, True])
def test_a_damaged_file_in_a_backup_sets_only_its_detector_aside(tmp_path, sql, has_file):
    registry = Registry(tmp_path / "live")
    for name in ("hosts", "others"):
        learn(registry.create(name, HOSTS)[0], *keyed_rows(n_rows=200))
    backup_to(registry, tmp_path / "restored")
    registry.close()
    damage_database(tmp_path / "restored", sql)
    damage_database(tmp_path / "restored", "INSERT INTO key_files VALUES (3, 0, 'of no detector')")
    if has_file:  # of another time
        shutil.copy(tmp_path / "live" / "keys-1.db", tmp_path / "restored")
    for folder in ("restored", "copy"):
        registry = Registry(tmp_path / folder)
        with pytest.raises(
            NotRecoveredError, match=r"file with its keys is damaged in the backup: piece [01] cannot be"
        ):
            registry.get("hosts")
        assert learn(registry.get("others"), ["web-1"], np.zeros((1, 2)))[0]["index"] > 0
        if folder == "restored":
            registry.create("third", HOSTS)
            backup_to(registry, tmp_path / "copy")
        else:
            registry.remove("hosts")
        registry.close()
    registry = Registry(tmp_path / "copy")
    assert [handle.record.name for handle in registry.all()] == ["others", "third"]
    assert registry.problems() == registry.damage_reports == []
    registry.close()


def backup_to(registry, folder):
    """Write a backup to a new folder."""
    folder.mkdir()
    content, _ = registry.backup()
    with content:
        (folder / FILE).write_bytes(content.read())


def test_a_backup_has_the_files_of_detectors_that_are_set_aside(tmp_path):
    registry = Registry(tmp_path / "live")
    learn(registry.create("hosts", HOSTS)[0], *keyed_rows(n_rows=100))
    registry.close()
    path = tmp_path / "live" / "keys-1.db"
    path.write_bytes(b"no database")
    registry = Registry(tmp_path / "live")
    content, _ = registry.backup()
    (tmp_path / "restored").mkdir()
    with content:
        (tmp_path / "restored" / FILE).write_bytes(content.read())
    registry.close()
    Registry(tmp_path / "restored").close()
    assert (tmp_path / "restored" / "keys-1.db").read_bytes() == b"no database"


def test_a_backup_while_detectors_are_removed_reads_only_their_files(tmp_path, monkeypatch):
    registry = Registry(tmp_path / "live")
    for name in ("first", "second"):
        learn(registry.create(name, HOSTS)[0], *keyed_rows(n_rows=200))
    registry.close()
    registry = Registry(tmp_path / "live")
    workers = [registry.get(name).worker for name in ("first", "second")]
    contents = {n: (tmp_path / "live" / f"keys-{n}.db").read_bytes() for n in (1, 2)}
    chunks, foreign = KeyFile.chunks, []

    def chunks_during_a_removal(file):
        for name, worker in zip(("first", "second"), workers, strict=True):
            if not foreign:
                registry.remove(name)
                worker.wait_for_end(0.5)
        if not foreign:  # each takes the lowest number that is free: that of a file which was closed too early
            foreign.extend((tmp_path / "foreign").open("wb+") for _ in range(8))
        yield from chunks(file)

    monkeypatch.setattr(KeyFile, "chunks", chunks_during_a_removal)
    content, _ = registry.backup()
    for each in foreign:
        each.close()
    (tmp_path / FILE).write_bytes(content.read())
    content.close()
    assert all(worker.wait_for_end(10) for worker in workers)
    assert not list((tmp_path / "live").glob("keys-*"))
    registry.close()
    database = sqlite3.connect(tmp_path / FILE)
    rows = database.execute("SELECT detector, content FROM key_files ORDER BY detector, position").fetchall()
    database.close()
    assert {n: b"".join(content for detector, content in rows if detector == n) for n in (1, 2)} == contents


def test_a_removed_detector_whose_file_is_closed_is_not_part_of_a_backup(tmp_path, monkeypatch):
    registry = Registry(tmp_path / "live")
    handle = registry.create("hosts", HOSTS)[0]
    monkeypatch.setattr(registry, "_forget", lambda _name: None)  # the handle is there a moment longer than its file
    registry.remove("hosts")
    assert handle.worker.wait_for_end(10)
    content, _ = registry.backup()
    content.close()
    registry.close()


def test_a_request_that_would_move_keys_too_often_is_refused(tmp_path):
    n_bytes = plain_fleet().bytes_per_key
    registry = Registry(tmp_path, limits=Limits(moved_bytes=20 * n_bytes))
    registry.create("few", {**HOSTS, "max_bytes": 2 * n_bytes})
    registry.create("many", HOSTS)
    with ThreadServer(create_app(registry)) as server, server.client() as client:
        rows = [[f"web-{i % 3}", 0.0, 0.0] for i in range(21)]
        with pytest.raises(ServiceError, match=r"The 21 points have 3 keys, which do not fit into max_bytes together"):
            client.process("few", rows)
        assert len(client.process("few", rows[:20])) == 20
        assert len(client.process("few", [row for row in rows if row[0] != "web-0"] * 2)) == 28
        assert len(client.process("many", rows)) == 21


def test_a_snapshot_is_saved_if_a_replay_would_take_long(tmp_path):
    registry = Registry(tmp_path, retention=Retention(seconds_between_snapshots=0.0))
    handle, _ = registry.create("hosts", HOSTS)
    learn(handle, *keyed_rows(n_rows=20))
    wait_until(lambda: handle.worker._state.snapshot_number == 1)
    registry.close()


@pytest.mark.parametrize(("n_features", "n_most"), [(1, 500), (1_000, 15)])
def test_rows_of_keys_are_stored_in_portions_of_a_few_megabytes(n_features, n_most):
    rows, keys = KeyRows(n_features), [f"k{i}" for i in range(600)]
    row = LearnedRow("", 0, 0.0, None, bytes(8 * n_features), 0.5, 0.9, False, 1.0, -1, False)
    rows.add([row._replace(key=key) for key in keys])
    _, *portions = rows.portions()
    assert [key for portion in portions for key, _ in portion.rows] == keys
    assert max(len(portion.rows) for portion in portions) == n_most
    assert n_most * 64 * (64 + 8 * n_features) < 10_000_000

"""Incidents of the service: what is shown of them, and that they survive any end of the service."""

import json
import shutil
import sqlite3

import numpy as np
import pytest

from imondrian.model_files import to_bytes
from imondrian.service.changes.configuration import DEFAULTS, new_detector
from imondrian.service.changes.journal import MODEL, POINTS, SETTINGS, Entry
from imondrian.service.changes.replies import ReplyMemory
from imondrian.service.changes.row_labels import Labels
from imondrian.service.changes.settings import Changes
from imondrian.service.detectors.registry import Registry
from imondrian.service.detectors.state import new_state
from imondrian.service.errors import StorageError
from imondrian.service.http.asgi import create_app
from imondrian.service.http.metrics import metrics_of
from imondrian.service.http.queries import incidents_of
from imondrian.service.limits import Limits, Retention
from imondrian.service.storage.event_table import N_EVENTS_KEPT, EventTable
from imondrian.service.storage.incident_log import Announcement
from imondrian.service.storage.store import FILE, StoredDetector
from tests.service.serving import SMALL, ThreadServer
from tests.service.test_recovery import damage_database
from tests.service.test_worker import learn, results

XY = {"features": ["x", "y"], **SMALL, "threshold": 0.001, "gap": 10}
OFTEN = Retention(points_between_snapshots=100)
ORDERS = {**XY, "features": ["amount", "country"], "categorical": ["country"]}


def bursts(n=600, seed=0):
    """Return a stream in which every 100 rows a few rows are far away, each time farther."""
    X = np.random.default_rng(seed).normal(size=(n, 2))
    for i, first in enumerate(range(90, n, 100)):
        X[first : first + 3] += 30.0 * (-8.0) ** i
    return X


def shown(registry, name="a"):
    return json.loads(incidents_of([registry.get(name)], 1000).model_dump_json())["incidents"]


def state_of(record):
    return new_state(record, Retention(), ReplyMemory(0).new_replies(1, 0, 0))


def events_of(registry):
    return [json.loads(event.as_json()) for event in registry._store.events.after(0, N_EVENTS_KEPT)]


def replayed(folder, target, **arguments):
    shutil.copytree(folder, target)
    return Registry(target, **arguments)


def test_incidents_are_those_of_a_plain_detector(registry):
    handle, _ = registry.create("a", {**XY, "threshold": 0.05})
    reference = new_detector(handle.configuration)
    for some in np.split(bursts(), 20):
        learn(handle, some)
        reference.process_many(some)
    found = sorted(shown(registry), key=lambda incident: incident["incident"])
    assert len(found) > 3
    assert [
        (each["incident"], each["first"]["index"], each["last"]["index"], each["opened"]["index"], each["n_alarms"])
        for each in found
    ] == [(each.number, each.first, each.last, each.opened, each.n_alarms) for each in reference.incidents]
    assert [each["peak"]["surprise"] for each in found] == [each.surprise for each in reference.incidents]
    assert len({each["id"] for each in found}) == len(found)
    assert all(each["first"]["time"] <= each["opened"]["time"] <= each["last"]["time"] for each in found)
    assert all("expected" in each["text"] for each in found)


def test_every_incident_is_announced_once_when_it_opens_and_once_when_it_closes(registry):
    handle, _ = registry.create("a", XY)
    for some in np.split(bursts(), 60):
        learn(handle, some)
    events = events_of(registry)
    found = {each["id"]: each for each in shown(registry)}
    opened = [each["incident"]["id"] for each in events if each["event"] == "opened"]
    closed = [each["incident"]["id"] for each in events if each["event"] == "closed"]
    assert sorted(opened) == sorted(found)
    assert sorted(closed) == sorted(id_ for id_, each in found.items() if not each["is_open"])
    assert [each["id"] for each in events] == list(range(1, len(events) + 1))
    for event in events:
        if event["event"] == "closed":
            assert event["incident"] | {"key": None} == found[event["incident"]["id"]]
    assert f'imondrian_incidents_total{{detector="a"}} {len(opened)}\n' in metrics_of(registry)


def test_incidents_and_events_are_the_same_after_a_kill_or_a_stop(tmp_path):
    registry = Registry(tmp_path / "live", retention=OFTEN)
    handle, _ = registry.create("a", XY)
    for i, some in enumerate(np.split(bursts(), 60)):
        learn(handle, some)
        if i % 7 == 0 or 48 < i < 52:
            before = shown(registry), events_of(registry), handle.worker.counts
            again = replayed(tmp_path / "live", tmp_path / f"killed-{i}", retention=OFTEN)
            assert (shown(again), events_of(again), again.get("a").worker.counts) == before
            again.close()
    before = shown(registry), events_of(registry)
    registry.close()
    registry = Registry(tmp_path / "live")
    assert (shown(registry), events_of(registry)) == before
    registry.close()


def test_events_that_could_not_be_stored_are_stored_by_a_replay_or_with_the_next_request(tmp_path, monkeypatch):
    registry = Registry(tmp_path / "live")
    handle, _ = registry.create("a", XY)
    learn(handle, bursts()[:90])

    def full(*_):
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(EventTable, "add", full)
        learn(handle, bursts()[90:95])  # the points are on the disk, so they are confirmed
        assert handle.worker.counts.n_incidents == 1
        assert "the disk is full" in registry.problems()[0]
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
    assert events_of(registry) == []
    again = Registry(tmp_path / "killed")
    again.get("a").worker.submit(POINTS, bursts()[95:96].tobytes(), 1).result()
    learn(handle, bursts()[95:96])
    assert registry.problems() == []
    assert events_of(registry) == events_of(again) != []
    registry.close()
    again.close()


def test_a_snapshot_is_not_saved_before_its_events(tmp_path, monkeypatch):
    registry = Registry(tmp_path / "live", retention=Retention(points_between_snapshots=5))
    handle, _ = registry.create("a", XY)
    learn(handle, bursts()[:90])

    def full(*_):
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(EventTable, "add", full)
        learn(handle, bursts()[90:96])
        handle.worker.stop()  # would save a snapshot
        assert handle.worker.wait_for_end(30.0)
        assert "the disk is full" in handle.worker.problems["snapshot"]
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
    again = Registry(tmp_path / "killed")
    learn(again.get("a"), bursts()[96:97])
    assert [each["event"] for each in events_of(again)] == ["opened"]
    again.close()
    registry.close()


@pytest.mark.parametrize("seed", range(8))
def test_what_is_shown_does_not_depend_on_how_entries_are_applied_together(seed):
    X, cuts = bursts(400, seed), np.random.default_rng(seed).integers(1, 400, seed).tolist()
    entries = [Entry(i + 1, POINTS, row.tobytes(), None, 1000.0 + i) for i, row in enumerate(X)]
    record = StoredDetector(1, "a", {**DEFAULTS, **XY, "threshold": 0.05}, 0.0)
    one, other = state_of(record), state_of(record)
    for entry in entries:
        one, _ = one.apply([entry])
    for first, end in zip([0, *sorted(cuts)], [*sorted(cuts), 400], strict=True):
        if first < end:
            other, _ = other.apply(entries[first:end])
    assert one.pending == other.pending
    assert announced(one) == announced(other)
    assert described(one) == described(other)
    assert len(one.pending.latest) > 4


def announced(state):
    return [state.incidents.announcement(each) for each in state.pending.latest]


def described(state):
    return [state.incidents.described(each, state.incidents.shown) for each in state.applier.detector.incidents]


def test_own_times_and_categories_are_shown_and_survive(tmp_path):
    registry = Registry(tmp_path / "live")
    registry.create("a", ORDERS)
    rng = np.random.default_rng(0)
    rows = [
        {"amount": float(rng.normal()), "country": "FR", "time": f"2026-01-31T{i // 60:02}:{i % 60:02}:00"}
        for i in range(200)
    ]
    for i in (150, 151, 152):
        rows[i] |= {"amount": 40.0, "country": "Côte d'Ivoire"}
    with ThreadServer(create_app(registry)) as server, server.client() as client:
        for row in rows:
            client.process("a", [row])
        incident = client.incidents("a")[0]
        assert incident["peak"]["index"] in (150, 151, 152)
        for name in ("first", "last", "opened", "closed", "peak"):
            assert incident[name]["own_time"] == rows[incident[name]["index"]]["time"]
        country = next(each for each in incident["explanation"] if each["feature"] == "country")
        assert country["value"] == "Côte d'Ivoire"
        assert "country = Côte d'Ivoire (" in incident["text"]
        client.process("a", [{"amount": 4000.0, "country": None}] * 2)
        assert "country = missing (" in client.incidents("a")[0]["text"]
        everything = client.incidents("a")
        again = replayed(tmp_path / "live", tmp_path / "killed")
        assert shown(again) == everything
        again.close()
    again = Registry(tmp_path / "live")  # the server has closed the other one
    assert shown(again) == everything
    again.close()


def test_a_closing_that_a_smaller_gap_causes_late_has_the_same_time_after_a_replay(tmp_path):
    registry, rng = Registry(tmp_path / "live", retention=Retention(history=50)), np.random.default_rng(0)
    with ThreadServer(create_app(registry)) as server, server.client() as client:
        client.create("a", **{**XY, "gap": 10_000})
        client.process("a", rng.normal(size=(200, 2)).tolist())
        client.process("a", [[50.0, 50.0], [60.0, 60.0]])
        for _ in range(20):
            client.process("a", rng.normal(size=(10, 2)).tolist())
        assert client.incidents("a")[0]["is_open"]
        client.change("a", gap=10)
        client.process("a", [{"x": 0.0, "y": 0.0, "time": "2026-01-31 12:00:00"}])
        (closed,) = everything = client.incidents("a")
        assert closed["closed"]["index"] == closed["last"]["index"] + 10
        assert closed["closed"]["own_time"] == "2026-01-31 12:00:00"
        again = replayed(tmp_path / "live", tmp_path / "killed", retention=Retention(history=50))
        assert shown(again) == everything
        again.close()


def test_a_category_that_was_not_kept_is_not_found_in_later_entries_of_a_replay(tmp_path):
    registry, rng = Registry(tmp_path / "live", retention=Retention(history=50)), np.random.default_rng(0)

    def orders(n):
        return [[float(amount), f"country {i % 3}"] for i, amount in enumerate(rng.normal(size=n))]

    with ThreadServer(create_app(registry)) as server, server.client() as client:
        client.create("a", **{**ORDERS, "window": 256, "n_trees": 20, "max_samples": 64, "threshold": "score 0.985"})
        for _ in range(3):
            client.process("a", orders(200))
        far = [[0.0, "KP"], [0.0, "KP"], [90.0, "KP"]]
        client.process("a", [*orders(100), *far, *orders(9_000)])  # the first labels are dropped
        assert not client.process("a", [[0.0, "KP"]])[0]["is_anomaly"]
        everything = client.incidents("a")
        country = next(each for each in everything[-1]["explanation"] if each["feature"] == "country")
        assert country["value"] is None
        again = replayed(tmp_path / "live", tmp_path / "killed", retention=Retention(history=50))
        assert shown(again) == everything
        again.close()


def test_only_the_latest_incidents_are_kept(registry):
    handle, _ = registry.create("a", {**XY, "gap": 2, "threshold": "score 0.6"})
    X = np.random.default_rng(0).normal(size=(1500, 2)) / 10.0
    for first in range(60, 1500, 15):
        X[first : first + 2] = np.random.default_rng(first).uniform(-50.0, 50.0, (2, 2))
    learn(handle, X)
    n_opened = handle.worker.counts.n_incidents
    assert n_opened > 64
    found = shown(registry)
    assert len(found) == 64
    assert max(each["incident"] for each in found) == n_opened - 1


def many_bursts():
    """Return the settings of a detector, and rows that open and close very many incidents."""
    X = np.random.default_rng(0).normal(size=(600, 2)) / 10.0
    for first in range(60, 600, 6):
        X[first : first + 2] = np.random.default_rng(first).uniform(-50.0, 50.0, (2, 2))
    return {**XY, "gap": 2, "threshold": "score 0.6", "learn_anomalies": False}, X


@pytest.mark.parametrize("n_portions", [0, 1, 2, 7])
def test_no_event_is_lost_or_stored_twice_if_the_service_is_killed_between_two_portions(
    tmp_path, monkeypatch, n_portions
):
    monkeypatch.setattr("imondrian.service.detectors.applied_state._EVENTS_PER_TRANSACTION", 10)
    settings, X = many_bursts()
    registry = Registry(tmp_path / "live")
    handle, _ = registry.create("a", settings)
    add, calls = EventTable.add, []

    def full_after_some(*arguments):
        calls.append(arguments)
        if len(calls) > n_portions:
            raise StorageError("the disk is full")
        return add(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(EventTable, "add", full_after_some)
        learn(handle, X)
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
    assert len(events_of(registry)) == 10 * n_portions
    again = Registry(tmp_path / "killed")
    for each in (registry, again):
        learn(each.get("a"), X[:1])
    events = events_of(registry)
    assert events == events_of(again)
    assert [each["id"] for each in events] == list(range(1, len(events) + 1))
    assert len({(each["event"], each["incident"]["id"]) for each in events}) == len(events) > 100
    registry.close()
    again.close()


def test_events_that_would_be_deleted_at_once_are_not_written(tmp_path, monkeypatch):
    for module in ("changes.journal", "storage.incident_log", "storage.event_table"):
        monkeypatch.setattr(f"imondrian.service.{module}.N_EVENTS_KEPT", 5)
    settings, X = many_bursts()
    found = []
    for name, blocks in (("one", [X]), ("many", np.split(X, 600))):
        registry = Registry(tmp_path / name)
        registry.writer.write(lambda store: store.events.use_receivers(("receiver",)))
        handle, _ = registry.create("a", settings)
        for some in blocks:
            learn(handle, some)
        events = events_of(registry)
        found.append(
            (
                [(each["id"], each["event"], each["incident"]["id"], each["incident"]["text"]) for each in events],
                registry._store.events.counts("receiver"),
                handle.worker.counts,
            )
        )
        assert len(events) == 5
        assert events[-1]["id"] == registry.feed.last_id > 100
        registry.close()
    assert found[0] == found[1]
    assert found[0][1].n_given_up == found[0][0][-1][0] - 5


def test_a_large_entry_keeps_only_the_latest_events_in_memory(monkeypatch):
    for module in ("changes.journal", "storage.incident_log"):
        monkeypatch.setattr(f"imondrian.service.{module}.N_EVENTS_KEPT", 5)
    settings, X = many_bursts()
    state = state_of(StoredDetector(1, "a", {**DEFAULTS, **settings}, 0.0))
    state, _ = state.apply([Entry(1, POINTS, X.tobytes(), None, 1000.0)])
    assert len(state.pending.latest) == 5
    assert state.pending.n_skipped + 5 == state.applier.events.n_events > 100
    assert not state.applier.events.latest  # they would keep the content of the entry in memory
    state, _ = state.apply([Entry(2, POINTS, X.tobytes(), None, 1001.0)])
    assert len(state.pending.latest) == 5
    assert state.pending.n_skipped > 200
    assert state.pending.latest[0].entry == 2


def test_long_names_are_shortened_in_texts_and_take_few_bytes(registry):
    settings, X = many_bursts()
    names = ["\N{GRINNING FACE}" * 255 + "x", "\N{GRINNING FACE}" * 255 + "y"]
    handle, _ = registry.create("a", {**settings, "features": names})
    learn(handle, X[:100])
    stored = registry._store.events.after(0, 1)[0]
    incident = json.loads(stored.as_json())["incident"]
    assert {each["feature"] for each in incident["explanation"]} <= set(names)
    assert all(each["text"].startswith("\N{GRINNING FACE}" * 61 + "... = ") for each in incident["explanation"])
    assert len(stored.content.encode()) < 5_000


@pytest.mark.parametrize("n_rows", [2, 3, 10])
def test_the_time_of_a_row_is_found_without_a_list_of_all(n_rows):
    labels = Labels({}, ["12:00", None])
    assert [labels.time_of(i, n_rows) for i in range(n_rows)] == labels.times_of(n_rows)


def not_stored(registry, monkeypatch, rows):
    """Learn rows while no event can be stored."""
    with monkeypatch.context() as patched:
        patched.setattr(registry.get("a").worker, "_store_announcements", lambda: None)
        learn(registry.get("a"), rows)


def test_an_incident_ends_with_its_detector_even_if_its_closing_is_about_to_be_stored(registry, monkeypatch):
    handle, _ = registry.create("a", XY)
    learn(handle, bursts()[:93])
    opened = shown(registry)[0]
    not_stored(registry, monkeypatch, bursts()[93:120])
    assert handle.worker.incidents.shown.open is None
    listened = registry.feed.last_id
    registry.remove("a")
    events = [json.loads(event.as_json()) for event in registry.feed.after(listened)]
    assert [(each["event"], each["incident"]["id"]) for each in events] == [("closed", opened["id"])]
    assert events[0]["incident"]["explanation"] == []


def test_an_incident_of_a_detector_that_is_set_aside_ends_with_it(tmp_path):
    registry = Registry(tmp_path)
    handle, _ = registry.create("a", XY)
    learn(handle, bursts()[:93])
    opened = shown(registry)[0]
    registry.close()
    damage_database(tmp_path, "UPDATE detectors SET configuration = 'damaged'")
    registry = Registry(tmp_path)
    assert registry.n_set_aside == 1
    registry.remove("a")
    events = [json.loads(event.as_json()) for event in registry.feed.after(1)]
    assert [(each["event"], each["incident"]["id"]) for each in events] == [("closed", opened["id"])]
    registry.close()


@pytest.mark.parametrize("content", ["x'00'", "'damaged'", "'[]'", "'{}'"])
def test_a_detector_with_a_damaged_open_incident_can_be_removed(registry, content):
    handle, _ = registry.create("a", XY)
    learn(handle, bursts()[:93])
    registry._store._database.execute(f"UPDATE open_incidents SET content = {content}")  # noqa: S608 (from above)
    registry.remove("a")
    assert registry.feed.after(1) == []


def test_an_incident_whose_opening_is_not_stored_is_not_closed_with_its_detector(registry, monkeypatch):
    handle, _ = registry.create("a", XY)
    learn(handle, bursts()[:90])
    not_stored(registry, monkeypatch, bursts()[90:93])
    assert handle.worker.incidents.shown.open is not None
    registry.remove("a")
    assert registry.feed.after(0) == []


def opened_and_closed(registry):
    events = events_of(registry)
    return tuple([each["incident"]["id"] for each in events if each["event"] == what] for what in ("opened", "closed"))


def copied_without_end(folder, target):
    """Copy a folder, and damage the last entry of its journal."""
    shutil.copytree(folder, target)
    last = "(SELECT max(number) FROM entries)"
    damage_database(target, f"UPDATE entries SET digest = x'00' WHERE number = {last}")  # noqa: S608
    return Registry(target)


@pytest.mark.parametrize("n_rows", [90, 91, 93])
def test_ids_of_incidents_are_not_used_again_after_the_end_of_the_journal_is_lost(tmp_path, n_rows):
    registry = Registry(tmp_path / "0")
    handle, _ = registry.create("a", XY)
    for some in np.split(bursts()[:n_rows], [50, 90]):  # an incident opens in the last entry, or before it
        if len(some):
            learn(handle, some)
    learn(handle, bursts()[n_rows:95])
    killed, registries = tmp_path / "0", [registry]
    for i in range(1, 4):
        lost = copied_without_end(killed, tmp_path / f"{i}")
        assert len(lost.damage_reports) == 1
        learn(lost.get("a"), bursts()[90:95] * i)
        opened, closed = opened_and_closed(lost)
        assert len(set(opened)) == len(opened) > i
        assert sorted(closed) == sorted(opened[:-1])
        assert [each["id"] for each in shown(lost) if each["is_open"]] == opened[-1:]
        again = replayed(tmp_path / f"{i}", tmp_path / f"{i}-again")
        assert (events_of(again), shown(again)) == (events_of(lost), shown(lost))
        again.close()
        registries.append(lost)
        killed = tmp_path / f"{i}"
    for each in registries:
        each.close()


def test_ids_of_incidents_are_not_used_again_after_all_snapshots_are_lost(tmp_path):
    registry = Registry(tmp_path / "live", retention=OFTEN)
    handle, _ = registry.create("a", XY)
    for some in np.split(bursts()[:393], [100, 200, 300]):
        learn(handle, some)
    n_opened = len(opened_and_closed(registry)[0])
    registry.close()
    damage_database(tmp_path / "live", "UPDATE snapshots SET content = x'00'")
    registry = Registry(tmp_path / "live")
    assert registry.get("a").worker.summary.n_seen == 0
    learn(registry.get("a"), bursts()[:93])
    opened, closed = opened_and_closed(registry)
    assert len(set(opened)) == len(opened) > n_opened
    assert sorted(closed) == sorted(opened[:-1])
    registry.close()


def test_open_incidents_of_a_folder_of_a_former_version_end_with_their_detector(tmp_path):
    registry = Registry(tmp_path)
    handle, _ = registry.create("a", XY)
    learn(handle, bursts()[:93])
    before = events_of(registry)
    registry.close()
    damage_database(tmp_path, "INSERT INTO announced SELECT detector, entry FROM announced_events")
    for table in ("announced_events", "open_incidents"):
        database = sqlite3.connect(tmp_path / FILE)
        database.execute(f"DROP TABLE {table}")
        database.close()
    registry = Registry(tmp_path)
    assert events_of(registry) == before
    registry.remove("a")
    events = [json.loads(event.as_json()) for event in registry.feed.after(1)]
    assert [(each["event"], each["incident"]["id"]) for each in events] == [("closed", before[0]["incident"]["id"])]
    registry.close()


def test_a_replaced_detector_gets_other_ids_and_its_open_incident_ends(tmp_path):
    registry = Registry(tmp_path / "live")
    handle, _ = registry.create("a", XY)
    learn(handle, bursts()[:93])  # an incident is open
    model = to_bytes(new_detector(handle.configuration))
    handle.worker.submit(MODEL, model, 0).result()
    assert shown(registry) == []
    learn(handle, bursts()[:93])
    again = replayed(tmp_path / "live", tmp_path / "killed")
    for each in (registry, again):
        events = events_of(each)
        assert [event["event"] for event in events] == ["opened", "closed", "opened"]
        ids = [event["incident"]["id"] for event in events]
        assert ids[0] == ids[1] != ids[2]
        assert events[1]["incident"]["closed"]["index"] is None
        assert [incident["id"] for incident in shown(each)] == [ids[2]]
        each.close()


def test_an_open_incident_in_a_model_file_is_announced(registry):
    detector = new_detector({**DEFAULTS, **XY})
    detector.process_many(bursts()[:93])
    handle, _ = registry.restore("a", to_bytes(detector), None)
    learn(handle, bursts()[93:110])
    events = events_of(registry)
    assert [event["event"] for event in events] == ["opened", "closed"]
    assert events[0]["incident"]["first"]["time"] is None  # not known
    assert events[1]["incident"]["closed"]["time"] is not None


def test_open_incidents_of_a_removed_detector_end(registry):
    handle, _ = registry.create("a", XY)
    learn(handle, bursts()[:93])
    (opened,) = events_of(registry)
    registry.remove("a")
    (closed,) = events_of(registry)  # everything else is deleted
    assert (closed["event"], closed["incident"]["id"]) == ("closed", opened["incident"]["id"])
    assert closed["incident"]["explanation"] == []
    assert closed["id"] > opened["id"]
    assert incidents_of(registry.all(), 10).incidents == []


def test_all_incidents_lists_open_ones_first_then_the_latest(registry):
    with ThreadServer(create_app(registry)) as server, server.client() as client:
        for name, n in (("a", 150), ("b", 93), ("c", 250)):
            client.create(name, **XY)
            client.process(name, bursts()[:n].tolist())
        found = client.incidents()
        assert {each["detector"] for each in found} == {"a", "b", "c"}
        order = [(each["is_open"], each["opened"]["time"]) for each in found]
        assert order == sorted(order, reverse=True)
        assert client.incidents(limit=1) == found[:1]
        only_open = client.incidents(only_open=True)
        assert [each["detector"] for each in only_open] == ["b"]
        assert [each["id"] for each in client.incidents("b")] == [only_open[0]["id"]]
        assert server.request("GET", "/incidents?limit=1001")[0] == 422
        assert server.request("GET", "/incidents?limit=0")[0] == 422
        assert server.request("GET", "/detectors/z/incidents")[0] == 404


def test_results_scores_and_history_have_surprise_and_incident(registry):
    handle, _ = registry.create("a", XY)
    reference = new_detector(handle.configuration)
    X = bursts()[:100]
    expected = reference.process_many(X)
    with ThreadServer(create_app(registry)) as server, server.client() as client:
        posted = client.process("a", X.tolist())
        assert [each["surprise"] for each in posted] == expected.surprise.tolist()
        numbers = [None if number < 0 else number for number in expected.incident.tolist()]
        assert [each["incident"] for each in posted] == numbers
        assert set(numbers) == {None, 0}
        history = json.loads(server.request("GET", "/detectors/a/history")[2])
        assert (history["surprise"], history["incident"]) == (expected.surprise.tolist(), numbers)
        row = json.loads(server.request("GET", "/detectors/a/history/90")[2])
        assert (row["surprise"], row["incident"]) == (expected.surprise[90], numbers[90])
        scores = json.loads(server.request("POST", "/detectors/a/scores", {"points": X[:5].tolist()})[2])
        assert scores["surprise"] == reference.surprise(np.array(scores["anomaly_score"])).tolist()
        assert client.explain("a", X[:1].tolist())[0]["surprise"] == scores["surprise"][0]
        assert client.describe("a")["surprise"] == expected.surprise[-1]
        assert f'imondrian_surprise{{detector="a"}} {expected.surprise[-1]}' in metrics_of(registry)


def test_the_surprise_of_a_score_is_that_of_the_next_row_with_this_score():
    detector, X = new_detector({**DEFAULTS, **XY}), bursts()
    for i, x in enumerate(X):
        predicted = detector.surprise(detector.score(x[None])) if i % 10 == 0 else None
        result = detector.process(x)
        assert predicted is None or predicted.tolist() == [result.surprise]


def test_a_request_without_events_writes_no_further_row(registry):
    handle, _ = registry.create("a", XY)
    learn(handle, np.zeros((50, 2)))
    n_changes = registry._store._database.total_changes
    learn(handle, np.zeros((1, 2)))
    assert registry._store._database.total_changes == n_changes + 1  # the journal entry


def test_only_the_latest_events_are_kept(registry, monkeypatch):
    monkeypatch.setattr("imondrian.service.storage.event_table.N_EVENTS_KEPT", 5)
    for i in range(12):
        one = Announcement(0, "opened", float(i), {"id": str(i), "kind": "anomalies"})
        registry.feed.submit(lambda store, one=one: store.events.add(1, [one])).result()
    assert [each["id"] for each in events_of(registry)] == [8, 9, 10, 11, 12]


def test_damaged_events_are_left_out(tmp_path):
    registry = Registry(tmp_path)
    handle, _ = registry.create("a", XY)
    learn(handle, bursts()[:250])
    n_events = len(events_of(registry))
    registry.close()
    damage_database(tmp_path, "UPDATE events SET content = replace(content, 'opened', 'closed') WHERE id = 1")
    registry = Registry(tmp_path)
    assert len(events_of(registry)) == n_events - 1
    registry.close()


# -- changes of settings --------------------------------------------------------------------------------------------


def change(handle, settings, request=None):
    content = Changes.of(settings, handle.configuration).to_bytes()
    return handle.worker.submit(SETTINGS, content, 0, request).result()


CHANGES = [
    {"threshold": 0.05},
    {"threshold": "top 5%", "gap": 3},
    {"min_points": 2, "cooldown": 20},
    {"side": {"x": "low"}, "ignore_within": {"y": "50%"}},
    {"threshold": "kmeans", "side": {}},
    {"threshold": "preset", "gap": 64},
]


def test_changes_are_the_same_as_on_a_plain_detector_and_replayed_to_the_last_bit(tmp_path):
    registry = Registry(tmp_path / "live", retention=Retention(points_between_snapshots=170))
    handle, _ = registry.create("a", XY)
    reference = new_detector(handle.configuration)
    X = bursts(700)
    for i, (some, settings_) in enumerate(zip(np.split(X, 7), [*CHANGES, {"silence": "5m"}], strict=True)):
        expected = reference.process_many(some)
        found = learn(handle, some)
        assert [each["threshold"] for each in found] == expected.threshold.tolist()
        assert [each["incident"] for each in found] == [None if n < 0 else n for n in expected.incident.tolist()]
        reply = json.loads(change(handle, settings_, f"id-{i}").content)
        indices = {"x": 0, "y": 1}
        rules = {
            name: {indices[key]: each for key, each in value.items()} if isinstance(value, dict) else value
            for name, value in settings_.items()
            if name not in ("threshold", "silence")
        }
        reference.rules = {**reference.rules._asdict(), **rules}
        if "threshold" in settings_:
            reference.threshold = settings_["threshold"]
        assert reply["threshold"] == reference.threshold
        assert {name: handle.configuration[name] for name in reply} == reply
        again = replayed(tmp_path / "live", tmp_path / f"killed-{i}")
        assert again.get("a").configuration == handle.configuration
        assert change(again.get("a"), settings_, f"id-{i}").content == json.dumps(reply).encode()
        more = np.random.default_rng(1).normal(size=(30, 2)) * 3.0
        copy = new_detector(handle.configuration).from_notes(reference.forest, reference.notes())
        assert (
            results(again.get("a").worker.submit(POINTS, more.tobytes(), 30).result())[-1]["index"] == copy.n_seen + 29
        )
        again.close()
    registry.close()
    registry = Registry(tmp_path / "live")
    assert registry.get("a").configuration["silence"] == 300.0
    assert registry.get("a").configuration["gap"] == 64
    registry.close()


def test_after_a_change_the_original_and_the_current_configuration_are_the_same_detector(registry):
    handle, _ = registry.create("a", XY)
    change(handle, {"threshold": 0.05, "gap": 7})
    assert registry.create("a", XY)[1] is False
    assert registry.create("a", {**XY, "threshold": 0.05, "gap": 7})[1] is False
    assert handle.configuration["threshold"] == 0.05
    with ThreadServer(create_app(registry)) as server:
        assert server.request("PUT", "/detectors/a", {**XY, "threshold": 0.03})[0] == 409


def test_a_restored_backup_keeps_the_current_settings(registry):
    handle, _ = registry.create("a", XY)
    learn(handle, bursts()[:150])
    with ThreadServer(create_app(registry)) as server, server.client() as client:
        model = client.model("a")
        client.change("a", threshold="top 3%", side={"y": "high"})
        assert client.restore("a", model) == 150
        configuration = client.describe("a")["configuration"]
        assert (configuration["threshold"], configuration["side"]) == ("top 3%", {"y": "high"})
        client.restore("b", client.model("a"))  # a new detector has the settings of the file
        assert client.describe("b")["configuration"]["side"] == {"y": "high"}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"window": 5}, "'window'"),
        ({"features": ["x"]}, "'features'"),
        ({"threshold": 0.01, "seed": 3}, "'seed'"),
        ({"nonsense": 1}, "'nonsense'"),
        ({}, "no setting"),
        ([], "object"),
        ({"threshold": 0.7}, "0.7"),
        ({"threshold": None}, "threshold"),
        ({"gap": 0}, "gap"),
        ({"gap": "many"}, "gap"),
        ({"side": {"z": "high"}}, "'z'"),
        ({"side": {"x": "up"}}, "side"),
        ({"side": {"country": "high"}}, "'country'"),
        ({"ignore_within": {"x": -1.0}}, "-1"),
        ({"ignore_within": {"x": "ten"}}, "ten"),
        ({"silence": "soon"}, "'soon'"),
        ({"silence": 0}, "0"),
        ({"silence": True}, "silence"),
    ],
)
def test_invalid_changes_are_refused_and_name_the_setting(registry, body, named):
    configuration = {**XY, "features": ["x", "country"], "categorical": ["country"]}
    with ThreadServer(create_app(registry)) as server:
        server.request("PUT", "/detectors/a", configuration)
        before = registry.get("a").configuration
        status, _, content = server.request("PATCH", "/detectors/a", body)
        assert status == 422
        assert named in json.loads(content)["detail"]
        assert registry.get("a").configuration == before
        assert server.request("PATCH", "/detectors/z", {"gap": 3})[0] == 404


def test_the_same_settings_are_refused_at_creation(registry):
    with ThreadServer(create_app(registry)) as server:
        for settings_ in ({"gap": 0}, {"side": {"z": "low"}}, {"ignore_within": {"x": "-3%"}}, {"silence": "x"}):
            assert server.request("PUT", "/detectors/a", {**XY, **settings_})[0] == 422
        created = {**XY, "side": {"x": "high"}, "ignore_within": {"y": 2.5}, "silence": "2m", "min_points": 3}
        status, _, content = server.request("PUT", "/detectors/a", created)
        assert status == 201
        configuration = json.loads(content)["configuration"]
        assert configuration["silence"] == 120.0
        assert {name: configuration[name] for name in ("side", "ignore_within", "min_points")} == {
            "side": {"x": "high"},
            "ignore_within": {"y": 2.5},
            "min_points": 3,
        }
        assert server.request("PUT", "/detectors/a", created)[0] == 200


def test_a_change_with_a_known_id_is_applied_once(registry):
    handle, _ = registry.create("a", XY)
    first = change(handle, {"gap": 5}, "same")
    change(handle, {"gap": 6})
    assert change(handle, {"gap": 5}, "same") == first
    assert handle.configuration["gap"] == 6
    assert handle.worker.n_requests == 2


@pytest.mark.parametrize(
    "settings_",
    [
        {"threshold": f"top {'1' * 900_000}x"},  # would take minutes to compare with a pattern
        {"silence": f"{'1' * 900_000}x"},
        {"ignore_within": {"x": f"{'1' * 900_000}%"}},
        {"side": {"x": "h" * 900_000}},
    ],
)
def test_long_texts_are_refused_at_once(registry, settings_):
    with ThreadServer(create_app(registry)) as server:
        server.request("PUT", "/detectors/a", XY)
        for method, name, others in (("PATCH", "a", {}), ("PUT", "b", XY)):
            status, _, content = server.request(method, f"/detectors/{name}", {**others, **settings_})
            assert status == 422
            assert "not have more than 100 characters" in json.loads(content)["detail"]


def test_limits_of_rules_by_feature(registry):
    with ThreadServer(create_app(registry)) as server:
        server.request("PUT", "/detectors/a", XY)
        many = {"side": {str(i): "high" for i in range(Limits().features + 1)}}
        assert server.request("PATCH", "/detectors/a", many)[0] == 422

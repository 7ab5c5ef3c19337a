"""A running detector gives the scores of a plain `StreamDetector`, applies each request once, and limits its queue."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from imondrian import StreamDetector
from imondrian.base.errors import InvalidInputError
from imondrian.model_files import to_bytes
from imondrian.service.changes.configuration import new_detector
from imondrian.service.changes.journal import FORGET, MODEL, POINTS
from imondrian.service.changes.replies import Reply, ReplyMemory, SavedReply
from imondrian.service.detectors.read_copy import ReadCopy
from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import (
    ConflictError,
    DetectorFailedError,
    NotFoundError,
    QueueFullError,
    StorageError,
    UnavailableError,
)
from imondrian.service.limits import Limits, Retention
from tests.service.serving import SMALL

XY = {"features": ["x", "y"], **SMALL}


def learn(handle, points, request=None):
    return results(handle.worker.submit(POINTS, points.tobytes(), len(points), request).result())


def results(reply):
    assert reply.status == 200, reply
    return json.loads(reply.content)["results"]


def expected(detector, points):
    columns = zip(*(column.tolist() for column in detector.process_many(points)), strict=True)
    names = ("anomaly_score", "is_anomaly", "threshold", "index", "surprise", "incident")
    rows = [dict(zip(names, row, strict=True)) for row in columns]
    return [{**row, "incident": None if row["incident"] < 0 else row["incident"]} for row in rows]


def test_scores_equal_those_of_a_plain_detector(registry, stream):
    handle, _ = registry.create("a", XY)
    reference = new_detector(handle.record.configuration)
    for some in np.split(stream, [1, 2, 3, 100, 420]):
        assert learn(handle, some) == expected(reference, some)
    assert handle.worker.summary.n_seen == len(stream)
    assert handle.worker.counts.n_anomalies > 0


def test_concurrent_requests_are_each_answered_and_learned_once(registry, stream):
    handle, _ = registry.create("a", XY)
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda point: learn(handle, point[None])[0], stream))
    order = np.argsort([reply["index"] for reply in replies])
    assert [replies[i]["index"] for i in order] == list(range(len(stream)))
    reference = new_detector(handle.record.configuration)
    assert [replies[i] for i in order] == expected(reference, stream[order])


def test_a_repeated_request_gets_the_same_reply_and_is_not_learned_again(registry, stream):
    handle, _ = registry.create("a", XY)
    first = learn(handle, stream[:9], "one")
    learn(handle, stream[9:20])
    assert learn(handle, stream[:9], "one") == first
    assert handle.worker.summary.n_seen == 20


def test_a_repeated_request_shares_the_future_of_the_pending_one(registry, stream):
    handle, _ = registry.create("a", XY)
    with handle.worker.read_copy._write_lock:  # nothing can be applied meanwhile
        first = handle.worker.submit(POINTS, stream[:2].tobytes(), 2, "one")
        assert handle.worker.submit(POINTS, stream[:2].tobytes(), 2, "one") is first
    assert len(results(first.result())) == 2
    assert handle.worker.summary.n_seen == 2


def test_the_oldest_replies_are_dropped(tmp_path, stream):
    registry = Registry(tmp_path, retention=Retention(replies=3))
    handle, _ = registry.create("a", XY)
    for i in range(5):
        learn(handle, stream[i : i + 1], f"id-{i}")
    assert [learn(handle, stream[i : i + 1], f"id-{i}")[0]["index"] for i in (2, 3, 4, 1)] == [2, 3, 4, 5]
    registry.close()


@pytest.mark.parametrize("request_id", ["", "x" * 129, "a b", "ä", "a\n"])
def test_an_invalid_request_id_is_refused(registry, stream, request_id):
    handle, _ = registry.create("a", XY)
    with pytest.raises(InvalidInputError, match="1 to 128"):
        learn(handle, stream[:1], request_id)


def test_forgetting_is_exact_and_unknown_points_change_nothing(registry, stream):
    handle, _ = registry.create("a", XY)
    reference = new_detector(handle.record.configuration)
    learn(handle, stream[:200])
    reference.process_many(stream[:200])
    reply = handle.worker.submit(FORGET, stream[150:160].tobytes(), 10).result()
    assert (reply.status, json.loads(reply.content)) == (200, {"n_points": 10})
    reply = handle.worker.submit(FORGET, stream[150:151].tobytes(), 1).result()
    assert reply.status == 422
    assert "detail" in json.loads(reply.content)
    reference.forget(stream[150:160])
    assert learn(handle, stream[200:300]) == expected(reference, stream[200:300])


def test_a_model_file_replaces_the_detector(registry, stream):
    handle, _ = registry.create("a", XY)
    learn(handle, stream[:10])
    other = new_detector(handle.record.configuration)
    other.process_many(stream[300:500])
    reply = handle.worker.submit(MODEL, to_bytes(other), 0).result()
    assert json.loads(reply.content) == {"n_points": 200}
    assert learn(handle, stream[500:]) == expected(other, stream[500:])


def test_reads_do_not_wait_for_learning(registry, stream):
    handle, _ = registry.create("a", XY)
    learn(handle, stream[:300])
    with handle.worker.read_copy.read() as before:
        assert before.n_seen == 300
    with (
        handle.worker.read_copy.write_lock(),
        handle.worker.read_copy.read() as meanwhile,
    ):  # while points are learned
        assert meanwhile.n_seen == 300
        meanwhile.score(stream)


def test_reads_see_all_confirmed_points_when_nothing_is_being_learned(registry, stream):
    handle, _ = registry.create("a", XY)
    for n in (1, 2, 3):
        learn(handle, stream[:1])
        with handle.worker.read_copy.read() as copy:
            assert copy.n_seen == n


def test_reads_wait_for_a_new_copy_if_the_current_one_is_too_old(tmp_path, stream):
    registry = Registry(tmp_path, retention=Retention(copy_max_age=0.0))
    handle, _ = registry.create("a", XY)
    learn(handle, stream[:10])
    shared_copy, has_read = handle.worker.read_copy, threading.Event()

    def read_copy():
        with shared_copy.read() as copy:
            has_read.set()
            return copy.n_seen

    with ThreadPoolExecutor(1) as pool:
        with shared_copy.write_lock():
            future = pool.submit(read_copy)
            assert not has_read.wait(0.2)
        assert future.result() == 10
    registry.close()


def test_reads_get_a_copy_while_a_large_block_is_being_learned(tmp_path, stream):
    registry = Registry(tmp_path, retention=Retention(copy_max_age=0.0))
    handle, _ = registry.create("a", XY)
    large = np.tile(stream, (40, 1))
    done, seen = handle.worker.submit(POINTS, large.tobytes(), len(large)), []
    while not done.done():
        with handle.worker.read_copy.read() as copy:
            seen.append(copy.n_seen)
    assert any(0 < n_seen < len(large) for n_seen in seen)
    assert seen == sorted(seen)
    assert results(done.result()) == expected(new_detector(handle.record.configuration), large)
    registry.close()


def test_a_failed_detector_reports_the_error_and_is_restored_by_a_restart(tmp_path, stream, monkeypatch):
    registry = Registry(tmp_path)
    handle, _ = registry.create("a", XY)
    other, _ = registry.create("b", XY)
    learn(handle, stream[:10])
    with monkeypatch.context() as patched:
        patched.setattr(StreamDetector, "process_many", lambda *_: 1 / 0)
        with pytest.raises(DetectorFailedError, match="ZeroDivisionError"):
            learn(handle, stream[10:20], "one")
    with pytest.raises(DetectorFailedError):
        learn(handle, stream[20:30])
    assert len(learn(other, stream[:10])) == 10
    registry.close()
    registry = Registry(tmp_path)
    assert registry.damage_reports == []
    again = learn(registry.get("a"), stream[10:20], "one")  # it was in the journal, and has been replayed
    assert [each["index"] for each in again] == list(range(10, 20))
    assert registry.get("a").worker.summary.n_seen == 20
    registry.close()


def test_requests_refused_by_a_full_queue_can_be_repeated(tmp_path, stream):
    registry = Registry(tmp_path, Limits(waiting_points=5, waiting_requests=3))
    handle, _ = registry.create("a", XY)
    with handle.worker.read_copy._write_lock:
        waiting = [handle.worker.submit(POINTS, stream[:1].tobytes(), 1)]
        with pytest.raises(QueueFullError):  # one may be active already, so at most three wait
            waiting += [handle.worker.submit(POINTS, stream[i : i + 1].tobytes(), 1) for i in range(1, 6)]
        with pytest.raises(QueueFullError):
            handle.worker.submit(POINTS, stream[:5].tobytes(), 5, "again")
    for future in waiting:
        future.result()
    assert len(learn(handle, stream[:5], "again")) == 5
    registry.close()


def test_requests_that_cannot_be_stored_are_not_learned_and_can_be_repeated(registry, stream):
    handle, _ = registry.create("a", XY)
    learn(handle, stream[:10])
    registry._store._database.execute("PRAGMA query_only = ON")  # like a disk that has become read-only
    with pytest.raises(StorageError, match="readonly"):
        learn(handle, stream[10:20], "one")
    assert registry.writer.retry() is not None
    registry._store._database.execute("PRAGMA query_only = OFF")
    assert registry.writer.retry() is None
    assert [each["index"] for each in learn(handle, stream[10:20], "one")] == list(range(10, 20))


def test_a_removed_detector_accepts_no_more_requests(registry, stream):
    handle, _ = registry.create("a", XY)
    learn(handle, stream[:10])
    registry.remove("a")
    with pytest.raises(UnavailableError):
        learn(handle, stream[:1])
    with pytest.raises(NotFoundError, match="'a'"):
        registry.get("a")
    assert set(n_rows(registry).values()) == {0}


def n_rows(registry):
    tables = ("detectors", "entries", "snapshots", "answers", "damaged")
    database = registry._store._database
    return {table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}  # noqa: S608


def test_creating_the_same_detector_again_changes_nothing_and_a_different_one_is_a_conflict(registry):
    handle, is_new = registry.create("a", XY)
    assert is_new
    assert registry.create("a", XY) == (handle, False)
    with pytest.raises(ConflictError, match="'a'"):
        registry.create("a", {**XY, "window": 64})


def test_the_number_of_detectors_is_limited(tmp_path):
    registry = Registry(tmp_path, Limits(detectors=2))
    registry.create("a", XY)
    registry.create("b", XY)
    with pytest.raises(ConflictError, match="2 detectors"):
        registry.create("c", XY)
    registry.close()


def test_the_total_memory_of_all_detectors_is_limited(tmp_path):
    registry = Registry(tmp_path, Limits(total_bytes=300_000))
    handle, _ = registry.create("a", XY)
    for i in range(300_000 // handle.worker.summary.n_bytes - 1):
        registry.create(f"b{i}", XY)
    with pytest.raises(ConflictError, match="300000 are allowed"):
        registry.create("c", XY)
    registry.close()


def test_a_detector_that_needs_too_much_memory_is_refused_before_allocation(registry):
    huge = {"features": [f"x{i}" for i in range(1000)], "window": 100_000, "max_samples": None, "n_trees": 1000}
    for wanted in (huge, {**huge, "features": ["x"]}):
        with pytest.raises(InvalidInputError, match="bytes"):
            registry.create("a", wanted)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"features": []}, "features"),
        ({"features": ["x", "x"]}, "differ, but .x. appears more than once"),
        ({"features": ["x" * 300]}, "256"),
        ({"features": ["\ud800"]}, "printable"),
        ({"features": ["a\nb"]}, "printable"),
        ({"features": ["x"] * 1001}, "1001"),
        ({"windw": 5}, "windw"),
        ({"window": 0}, "window"),
        ({"window": 10**9}, "window"),
        ({"n_trees": 10**6}, "n_trees"),
        ({"shingle": 10**6}, "shingle"),
        ({"threshold": 2.0}, "threshold"),
        ({"kind": "width"}, "width"),
        ({"scale": [1.0]}, "scale"),
    ],
)
def test_an_invalid_setting_is_named(registry, wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        registry.create("a", {**XY, **wrong})
    assert registry.all() == []


def test_every_setting_reaches_the_detector(registry):
    settings = {**XY, "kind": "expected", "scale": [1.0, 2.0], "shingle": 1, "learn_anomalies": False, "seed": 7}
    handle, _ = registry.create("a", settings)
    with handle.worker.read_copy.read() as detector:
        assert {name: detector.parameters[name] for name in settings if name != "features"} == {
            name: value for name, value in settings.items() if name != "features"
        }
        assert isinstance(detector, StreamDetector)
        assert detector.kind == "expected"


def test_a_different_request_with_a_known_id_is_refused(registry, stream):
    handle, _ = registry.create("a", XY)
    learn(handle, stream[:5], "one")
    for kind, points in [(POINTS, stream[5:9]), (FORGET, stream[:5])]:
        with pytest.raises(InvalidInputError, match="'one' was already used for a different request"):
            handle.worker.submit(kind, points.tobytes(), len(points), "one")
    assert handle.worker.summary.n_seen == 5


def test_a_failed_removal_leaves_the_detector_unchanged(registry, stream):
    handle, _ = registry.create("a", XY)
    learn(handle, stream[:10])
    registry._store._database.execute("PRAGMA query_only = ON")
    with pytest.raises(StorageError):
        registry.remove("a")
    registry._store._database.execute("PRAGMA query_only = OFF")
    assert [each["index"] for each in learn(handle, stream[10:12])] == [10, 11]
    registry.remove("a")
    assert registry.all() == []


def test_a_detector_that_has_failed_can_be_removed(registry, stream, monkeypatch):
    handle, _ = registry.create("a", XY)
    with monkeypatch.context() as patched:
        patched.setattr(StreamDetector, "process_many", lambda *_: 1 / 0)
        with pytest.raises(DetectorFailedError):
            learn(handle, stream[:5])
    assert "a: The detector has failed" in registry.problems()[0]
    registry.remove("a")
    assert registry.problems() == []


@pytest.mark.parametrize("error", [MemoryError, ZeroDivisionError])
def test_a_failed_snapshot_is_reported_until_one_succeeds(tmp_path, stream, monkeypatch, error):
    registry = Registry(tmp_path, retention=Retention(points_between_snapshots=10))
    handle, _ = registry.create("a", XY)

    def failing(*_):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("imondrian.service.detectors.state.to_bytes", failing)
        learn(handle, stream[:30])
        learn(handle, stream[30:31])
        assert "a: The last snapshot could not be saved" in registry.problems()[0]
    learn(handle, stream[31:60])
    learn(handle, stream[60:61])  # applied after the snapshot is saved
    assert registry.problems() == []
    assert n_rows(registry)["snapshots"] == 1
    registry.close()


def test_an_error_in_a_write_does_not_affect_later_ones(registry, stream):
    handle, _ = registry.create("a", XY)
    for error in (MemoryError, ZeroDivisionError):

        def failing(_store, error=error):
            raise error

        with pytest.raises(error):
            registry.writer.write(failing)
    assert len(learn(handle, stream[:5])) == 5


def test_requests_after_the_shutdown_are_refused_at_once(tmp_path, stream):
    registry = Registry(tmp_path)
    handle, _ = registry.create("a", XY)
    registry.close()
    with pytest.raises(UnavailableError):
        learn(handle, stream[:1])
    with pytest.raises(StorageError, match="shutting down"):
        registry.create("b", XY)


def test_a_new_model_clears_the_history(registry, stream):
    handle, _ = registry.create("a", XY)
    other = new_detector(handle.record.configuration)
    other.process_many(stream[:5])
    learn(handle, stream[:100])
    handle.worker.submit(MODEL, to_bytes(other), 0).result()
    learn(handle, stream[5:8])
    learn(handle, stream[8:9])
    assert [row.number for row in handle.worker.history.rows()][:3] == [5, 6, 7]


def test_a_detector_above_the_limit_is_refused_before_it_is_created(tmp_path, monkeypatch):
    registry = Registry(tmp_path, Limits(detectors=1))
    registry.create("a", XY)
    monkeypatch.setattr("imondrian.service.changes.configuration.StreamDetector", None)
    with pytest.raises(ConflictError, match="the maximum number allowed"):
        registry.create("b", XY)
    registry.close()


def test_queued_model_files_are_limited_by_their_total_size(tmp_path, stream):
    registry = Registry(tmp_path, Limits(waiting_bytes=1000))
    handle, _ = registry.create("a", XY)
    model = to_bytes(new_detector(handle.record.configuration))
    refused = 0
    with handle.worker.read_copy._write_lock:
        for _ in range(6):  # one is applied, one is journalled, and one may wait
            try:
                handle.worker.submit(MODEL, model, 0)
            except QueueFullError:
                refused += 1
    assert 3 <= refused <= 5
    registry.close()


def test_a_removal_after_the_shutdown_is_refused(tmp_path):
    registry = Registry(tmp_path)
    registry.create("a", XY)
    registry.close()
    with pytest.raises(UnavailableError, match="shutting down"):
        registry.remove("a")


def test_reads_never_see_a_half_changed_detector(registry, stream, monkeypatch):
    handle, _ = registry.create("a", XY)
    learn(handle, stream[:3])
    with handle.worker.read_copy.read() as copy:
        assert copy.n_seen == 3
    process_many = StreamDetector.process_many

    def failing(detector, points):
        process_many(detector, points[:5])
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(StreamDetector, "process_many", failing)
        with pytest.raises(DetectorFailedError):
            learn(handle, stream[3:13])
    with handle.worker.read_copy.read() as copy:
        assert copy.n_seen == 3
    assert handle.worker.read_copy.private_copy().n_seen == 3


def test_too_little_memory_for_a_copy_does_not_affect_the_writer(registry, stream, monkeypatch):
    handle, _ = registry.create("a", XY)
    handle.worker.read_copy._is_requested = True
    with monkeypatch.context() as patched:
        patched.setattr(ReadCopy, "_update", no_memory)
        learn(handle, stream[:10])
    assert [each["index"] for each in learn(handle, stream[10:12])] == [10, 11]


def no_memory(*_):
    raise MemoryError


def test_each_refused_request_gets_a_new_error(registry, stream, monkeypatch):
    handle, _ = registry.create("a", XY)
    with monkeypatch.context() as patched:
        patched.setattr(StreamDetector, "process_many", no_memory)
        with pytest.raises(DetectorFailedError):
            learn(handle, stream[:5])
    errors = []
    for _ in range(3):
        with pytest.raises(DetectorFailedError) as raised:
            learn(handle, stream[:5])
        errors.append(raised.value)
    assert len(set(map(id, errors))) == 3


def test_a_detector_that_cannot_be_created_leaves_its_name_free(registry, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("imondrian.service.detectors.registry.new_state", no_memory)
        with pytest.raises(MemoryError):
            registry.create("a", XY)
    assert registry.create("a", XY)[1]


def saved_reply(number, n_bytes=4, request=None):
    return SavedReply(number, request or f"id-{number}", b"", Reply(200, bytes(n_bytes)))


def numbers(replies):
    return [reply.number for reply in replies.since(0)]


def test_a_newer_reply_replaces_the_one_with_the_same_id():
    replies = ReplyMemory(10_000).new_replies(1, 3, 10_000)
    for number, request in enumerate("bacda", start=1):
        replies.add([saved_reply(number, request=request)])
    assert numbers(replies) == [3, 4, 5]
    assert replies.oldest == 2
    assert replies.n_bytes == 3 * saved_reply(0).n_bytes


def test_the_detector_with_most_replies_drops_its_oldest():
    memory = ReplyMemory(100_000)
    large, small = memory.new_replies(1, 100, 80_000), memory.new_replies(2, 100, 80_000)
    large.add(saved_reply(number, 10_000) for number in range(1, 8))
    large.make_room()
    assert numbers(large) == list(range(1, 8))  # 74 kB fit
    small.add(saved_reply(number, 1_000) for number in range(1, 41))
    small.make_room()
    assert numbers(large) == [3, 4, 5, 6, 7]  # from 74 kB an eighth, and another one: then the other has more
    assert numbers(small) == list(range(11, 41))  # from 60 kB an eighth, and another one
    assert large.oldest == 3
    assert large.find("id-2", b"") is None
    assert large.find("id-3", b"").result().content == bytes(10_000)


def test_the_latest_reply_of_each_detector_is_dropped_last():
    memory = ReplyMemory(100_000)
    first, second, third = (memory.new_replies(i, 100, 80_000) for i in range(3))
    first.add([saved_reply(1, 60_000)])
    second.add(saved_reply(number, 10_000) for number in range(1, 4))
    third.add([saved_reply(1, 20_000)])
    third.make_room()
    assert [numbers(each) for each in (first, second, third)] == [[1], [3], [1]]  # not the largest one
    second.add([saved_reply(4, 70_000)])
    second.make_room()
    assert [numbers(each) for each in (first, second, third)] == [[], [4], [1]]  # the latest ones do not fit together
    third.add([saved_reply(2, 200_000)])
    third.make_room()
    assert [numbers(each) for each in (first, second, third)] == [[], [], [2]]  # the newest, whatever its size


def test_replies_of_removed_or_replaced_detectors_take_no_memory():
    memory = ReplyMemory(100_000)
    for detector in (1, 1, 2):  # recovery may begin again
        memory.new_replies(detector, 100, 80_000).add(saved_reply(number, 10_000) for number in range(1, 5))
    memory.remove(2)
    last = memory.new_replies(3, 100, 80_000)
    last.add(saved_reply(number, 10_000) for number in range(1, 5))
    last.make_room()
    assert numbers(last) == [1, 2, 3, 4]


def total_of_replies(registry):
    return sum(each.worker._replies.n_bytes for each in registry.all())


def test_the_replies_of_all_detectors_are_bounded_together_also_after_a_restart(tmp_path, stream):
    limits, retention = Limits(total_bytes=2**21), Retention(reply_bytes=2**17)  # 256 KiB together
    registry = Registry(tmp_path, limits, retention)
    handles = [registry.create(name, XY | {"window": 20, "n_trees": 2})[0] for name in "abcd"]
    for i in range(10):
        for handle in handles:
            learn(handle, stream[i * 60 : i * 60 + 60], f"id-{i}")
    assert 2**17 < total_of_replies(registry) <= 2**18
    latest = [learn(handle, stream[540:600], "id-9") for handle in handles]
    assert [results[0]["index"] for results in latest] == [540] * 4
    assert all(handle.worker._replies.oldest > 1 for handle in handles)
    registry.close()
    again = Registry(tmp_path, limits, retention)
    assert 2**17 < total_of_replies(again) <= 2**18
    assert [learn(each, stream[540:600], "id-9") for each in again.all()] == latest
    again.remove("a")
    assert again._folder.reply_memory._detectors.keys() == {2, 3, 4}
    again.close()


def test_a_repeated_request_is_not_learned_twice_however_large_its_reply_is(tmp_path, stream):
    registry = Registry(tmp_path, Limits(total_bytes=2**20), Retention(reply_bytes=1_000))
    handles = [registry.create(name, XY | {"window": 20, "n_trees": 2})[0] for name in "ab"]
    for handle in handles:
        points = np.tile(stream, (3, 1))  # 300 kB, of which 128 KiB are allowed
        assert learn(handle, points, "one") == learn(handle, points, "one")
        assert handle.worker.summary.n_seen == len(points)
    registry.close()


def test_refused_requests_do_not_grow_the_journal_without_bound(tmp_path, stream):
    registry = Registry(tmp_path, retention=Retention(requests_between_snapshots=20))
    handle, _ = registry.create("a", XY)
    learn(handle, stream[:100])
    for _ in range(100):
        assert handle.worker.submit(FORGET, stream[500:501].tobytes(), 1).result().status == 422
    rows = n_rows(registry)
    assert rows["snapshots"] == 2
    assert rows["entries"] <= 40
    registry.close()

"""A detector that cannot be recovered is set aside with its data, and reported; the others work."""

import json
import pickle
import shutil
import sqlite3
import threading

import pytest

from imondrian import StreamDetector
from imondrian.service.changes.configuration import new_detector
from imondrian.service.changes.journal import MODEL, Entry
from imondrian.service.detectors.read_copy import ReadCopy
from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import NotFoundError, NotRecoveredError, UnavailableError
from imondrian.service.http.asgi import create_app
from imondrian.service.http.metrics import metrics_of
from imondrian.service.limits import Limits
from imondrian.service.storage.sqlite import open_or_rescue
from imondrian.service.storage.store import FILE, Store
from tests.service.serving import SMALL, Service, ThreadServer
from tests.service.test_recovery import OFTEN, damage_database
from tests.service.test_uploads import WIDE, file_of
from tests.service.test_worker import expected, learn, n_rows

XY = {"features": ["x", "y"], **SMALL}
GOOD, BAD = XY, {**XY, "window": 100}


@pytest.fixture
def killed_folder(tmp_path, stream):
    """Return a folder of a killed service with a good and a bad detector, with snapshots and journals."""
    registry = Registry(tmp_path / "live", retention=OFTEN)
    for name, configuration in (("bad", BAD), ("good", GOOD)):
        handle, _ = registry.create(name, configuration)
        for first in range(0, 330, 10):
            learn(handle, stream[first : first + 10], f"id-{first}")
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    registry.close()
    return tmp_path / "killed"


def stored_rows(folder, detector):
    """Return all rows of a detector in the file."""
    database = sqlite3.connect(folder / FILE)
    rows = [
        database.execute(f"SELECT * FROM {table} WHERE {key} = ? ORDER BY 1, 2", (detector,)).fetchall()  # noqa: S608
        for table, key in [
            ("detectors", "id"),
            *((t, "detector") for t in ("entries", "versions", "snapshots", "answers")),
        ]
    ]
    database.close()
    return rows


def assert_is_set_aside(folder, stream, reason, limits=None):
    """The bad one is reported, refuses all requests with the reason, and stays unchanged; the good one works."""
    before = stored_rows(folder, 1)
    registry = Registry(folder, limits)
    with ThreadServer(create_app(registry)) as server:
        assert learn(registry.get("good"), stream[330:340]) == expected(trained(GOOD, stream[:330]), stream[330:340])
        status, _, content = server.request("GET", "/health")
        (problem,) = json.loads(content)["problems"]
        assert status == 503
        assert problem.startswith("bad: The detector could not be recovered")
        assert reason in problem
        for method, path, body in REQUESTS:
            status, _, content = server.request(method, f"/detectors/bad{path}", body)
            assert (status, f"bad: {json.loads(content)['detail']}") == (503, problem), path
        assert [each["name"] for each in json.loads(server.request("GET", "/detectors")[2])] == ["good"]
        assert "imondrian_detectors_set_aside 1" in metrics_of(registry)
    assert stored_rows(folder, 1) == before


REQUESTS = [
    ("GET", "", None),
    ("PUT", "", BAD),
    ("POST", "/points", {"points": [[0.0, 0.0]]}),
    ("DELETE", "/points", {"points": [[0.0, 0.0]]}),
    ("POST", "/scores", {"points": [[0.0, 0.0]]}),
    ("POST", "/explanations", {"points": [[0.0, 0.0]]}),
    ("GET", "/history", None),
    ("GET", "/history/3", None),
    ("GET", "/model", None),
    ("PUT", "/model", b"none"),
]


def trained(configuration, points):
    detector = new_detector({**WIDE, **configuration})
    detector.process_many(points)
    return detector


def assert_is_back(folder, stream):
    registry = Registry(folder)
    assert registry.problems() == registry.damage_reports == []
    reference = trained(BAD, stream[:330])
    assert learn(registry.get("bad"), stream[330:]) == expected(reference, stream[330:])
    registry.close()


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        ("{", "The configuration of 'bad' is damaged"),
        ("[1]", "The configuration of 'bad' is damaged: it is [1]"),
        (json.dumps(BAD).encode(), "The configuration of 'bad' is damaged: it is not text"),
        ("{}", "features must be a list"),
        (json.dumps({**BAD, "window": "x"}), "window must be"),
        (json.dumps({**BAD, "window": 100_000, "max_samples": None, "n_trees": 1000}), "bytes are allowed"),
    ],
)
def test_a_damaged_configuration_sets_one_detector_aside(killed_folder, stream, configuration, reason):
    (row,) = stored_rows(killed_folder, 1)[0]
    damage_database(killed_folder, "UPDATE detectors SET configuration = ? WHERE id = 1", configuration)
    assert_is_set_aside(killed_folder, stream, reason.replace("bytes are", "are"))
    damage_database(killed_folder, "UPDATE detectors SET configuration = ? WHERE id = 1", row[2])
    assert_is_back(killed_folder, stream)


def test_too_little_memory_for_one_detector_sets_it_aside(killed_folder, stream, monkeypatch):
    process_many = StreamDetector.process_many

    def failing(detector, points):
        if detector.parameters["window"] == BAD["window"]:
            raise MemoryError("no room for an array")
        return process_many(detector, points)

    with monkeypatch.context() as patched:
        patched.setattr(StreamDetector, "process_many", failing)
        assert_is_set_aside(killed_folder, stream, "MemoryError no room for an array")
    assert_is_back(killed_folder, stream)


@pytest.mark.parametrize(
    "error",
    [EOFError("Ran out of input"), OSError(28, "No space left on device"), pickle.UnpicklingError(), RuntimeError()],
    ids=repr,
)
def test_an_error_in_a_replay_that_no_entry_caused_loses_no_entry(killed_folder, stream, monkeypatch, error):
    """As raised when a kernel is loaded or compiled."""
    process_many = StreamDetector.process_many

    def failing(detector, points):
        if detector.parameters["window"] == BAD["window"] and detector.n_seen >= 300:
            raise error
        return process_many(detector, points)

    with monkeypatch.context() as patched:
        patched.setattr(StreamDetector, "process_many", failing)
        assert_is_set_aside(killed_folder, stream, f"{type(error).__name__} {error}".strip())
    assert_is_back(killed_folder, stream)


@pytest.mark.parametrize("table", ["entries", "snapshots"])
def test_a_disk_that_cannot_be_read_for_a_moment_loses_nothing(killed_folder, stream, monkeypatch, table):
    class FailingDisk:
        def __init__(self, database):
            self.database = database

        def __getattr__(self, name):
            return getattr(self.database, name)

        def execute(self, sql, values=()):
            if f"content, {'history' if table == 'snapshots' else 'request'}" in sql and values[0] == 1:
                raise sqlite3.OperationalError("disk I/O error")
            return self.database.execute(sql, values)

    def failing(path):
        database, problems = open_or_rescue(path)
        return FailingDisk(database), problems

    with monkeypatch.context() as patched:
        patched.setattr("imondrian.service.storage.store.open_or_rescue", failing)
        assert_is_set_aside(killed_folder, stream, "The data could not be read: disk I/O error")
    assert_is_back(killed_folder, stream)


def test_too_little_memory_for_a_snapshot_is_not_treated_as_damage(killed_folder, stream, monkeypatch):
    from_notes = StreamDetector.from_notes.__func__

    def failing(cls, forest, notes):
        if notes["parameters"]["window"] == BAD["window"]:
            raise MemoryError
        return from_notes(cls, forest, notes)

    with monkeypatch.context() as patched:
        patched.setattr(StreamDetector, "from_notes", classmethod(failing))
        assert_is_set_aside(killed_folder, stream, "more memory than is available")
    assert_is_back(killed_folder, stream)


def test_too_little_memory_for_the_copy_of_one_detector_sets_it_aside(killed_folder, stream, monkeypatch):
    make = ReadCopy._update

    def failing(copies):
        if copies._applier.detector.parameters["window"] == BAD["window"]:
            raise MemoryError
        make(copies)

    with monkeypatch.context() as patched:
        patched.setattr(ReadCopy, "_update", failing)
        assert_is_set_aside(killed_folder, stream, "MemoryError")
    assert_is_back(killed_folder, stream)


def test_an_undamaged_snapshot_that_cannot_be_read_sets_the_detector_aside(killed_folder, stream, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("imondrian.models.storage.READABLE", (9,))  # as if the file had an unknown version
        registry = Registry(killed_folder)
        assert [problem.split(":")[0] for problem in registry.problems()] == ["bad", "good"]
        registry.close()
    assert_is_back(killed_folder, stream)


def add_model(folder, content):
    """Write a model to the journal of the bad detector without any check."""
    store = Store(folder)
    with store.transaction():
        store.add_entries(1, [Entry(34, MODEL, content, None, 0.0)])
    store.close()


def test_a_journalled_model_larger_than_its_detector_sets_it_aside(killed_folder, stream):
    add_model(killed_folder, file_of(new_detector(WIDE), n_trees=1_000))
    assert_is_set_aside(killed_folder, stream, "n_trees of the forest must be 2, but is 1000")
    damage_database(killed_folder, "DELETE FROM entries WHERE detector = 1 AND number = 34")
    assert_is_back(killed_folder, stream)


def test_a_journalled_model_above_the_limits_sets_the_detector_aside(killed_folder, stream):
    add_model(killed_folder, file_of(new_detector(WIDE)))
    assert_is_set_aside(killed_folder, stream, "2000000 are allowed", Limits(detector_bytes=2_000_000))
    registry = Registry(killed_folder)
    assert registry.get("bad").worker.summary.n_bytes > 2_000_000
    registry.close()


def test_a_detector_that_is_set_aside_can_be_removed_and_created_again(killed_folder, stream):
    damage_database(killed_folder, "UPDATE detectors SET configuration = '{' WHERE id = 1")
    registry = Registry(killed_folder, Limits(detectors=2))
    with ThreadServer(create_app(registry)) as server:
        assert server.request("DELETE", "/detectors/bad")[0] == 204
        assert server.request("GET", "/health")[0] == 200
        assert server.request("GET", "/detectors/bad")[0] == 404
        assert server.request("PUT", "/detectors/bad", BAD)[0] == 201
    assert stored_rows(killed_folder, 1) == [[], [], [], [], []]


def test_only_one_of_two_removals_of_a_detector_that_is_set_aside_is_started(killed_folder):
    damage_database(killed_folder, "UPDATE detectors SET configuration = '{' WHERE id = 1")
    registry, is_free = Registry(killed_folder), threading.Event()
    blocked = registry.writer.submit(lambda _store: is_free.wait(10))
    removal = registry.start_removal("bad")
    with pytest.raises(UnavailableError, match="is being removed"):
        registry.start_removal("bad")
    is_free.set()
    assert blocked.result()
    removal.result()
    with pytest.raises(NotFoundError):
        registry.start_removal("bad")
    portion = registry.writer.write(lambda store: store.removals.proceed(1))  # again, although it is finished
    assert portion == ([], True)
    registry.close()


def test_a_detector_that_is_set_aside_counts_towards_the_limit(killed_folder):
    damage_database(killed_folder, "UPDATE detectors SET configuration = '{' WHERE id = 1")
    registry = Registry(killed_folder, Limits(detectors=2))
    with pytest.raises(NotRecoveredError, match="set aside"):
        registry.create("bad", BAD)
    with pytest.raises(Exception, match="2 detectors"):
        registry.create("third", GOOD)
    assert n_rows(registry)["detectors"] == 2
    registry.close()


def test_the_service_prints_at_the_start_which_detector_is_set_aside(killed_folder):
    damage_database(killed_folder, "UPDATE detectors SET configuration = '{' WHERE id = 1")
    service = Service(killed_folder).start()
    service.process.terminate()
    output = service.process.communicate(timeout=60)[0]
    assert "imondrian: bad: The detector could not be recovered" in output
    assert "serving 1 detector," in output


@pytest.mark.parametrize("created", ["x", b"x", float("inf"), -1.0])
def test_a_damaged_creation_time_sets_one_detector_aside(killed_folder, stream, created):
    (row,) = stored_rows(killed_folder, 1)[0]
    damage_database(killed_folder, "UPDATE detectors SET created = ? WHERE id = 1", created)
    assert_is_set_aside(killed_folder, stream, "The creation time of 'bad' is damaged")
    damage_database(killed_folder, "UPDATE detectors SET created = ? WHERE id = 1", row[3])
    assert_is_back(killed_folder, stream)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("CAST(x'ff' AS TEXT)", "not text"),
        ("x'ff'", "not text"),
        ("x'676f6f64'", "not text"),
        ("''", "''"),
        ("'a/b'", "'a/b'"),
        ("'a' || char(10)", r"'a\n'"),
        ("'" + "a" * 100 + "'", "'" + "a" * 100 + "'"),
    ],
)
def test_a_detector_with_a_damaged_name_is_set_aside_under_another_name(killed_folder, stream, name, reason):
    damage_database(killed_folder, f"UPDATE detectors SET name = {name} WHERE id = 1")  # noqa: S608
    registry = Registry(killed_folder)
    registry.create("other", GOOD)
    with ThreadServer(create_app(registry)) as server:
        assert server.request("GET", "/detectors")[0] == server.request("GET", "/metrics")[0] == 200
        status, _, content = server.request("GET", "/health")
        (problem,) = json.loads(content)["problems"]
        assert status == 503
        assert problem.startswith("damaged-1: The detector could not be recovered")
        assert f"The name of the detector is damaged: it is {reason}." in problem
        assert server.request("GET", "/detectors/damaged-1")[0] == 503
        assert server.request("POST", "/detectors/good/points", {"points": [[1, 2]]})[0] == 200
        assert len(entry_numbers(registry, 1)) > 0
        assert server.request("DELETE", "/detectors/damaged-1")[0] == 204
        assert server.request("GET", "/health")[0] == 200
        assert len(entry_numbers(registry, 1)) == 0


def entry_numbers(registry, detector):
    return registry._store._database.execute("SELECT number FROM entries WHERE detector = ?", (detector,)).fetchall()


def test_the_substitute_for_a_damaged_name_differs_from_existing_names(killed_folder):
    damage_database(killed_folder, "UPDATE detectors SET name = 'damaged-1' WHERE id = 2")
    damage_database(killed_folder, "UPDATE detectors SET name = '' WHERE id = 1")
    registry = Registry(killed_folder)
    assert [handle.record.name for handle in registry.all()] == ["damaged-1"]
    registry.remove("damaged-1-")
    assert registry.problems() == []
    registry.close()

"""A journal written under other versions is replayed and reported, and a snapshot is saved at once."""

import io
import lzma
import shutil
import sqlite3

import pytest

from imondrian.model_files import from_bytes
from imondrian.models.storage import read_header
from imondrian.service.changes.configuration import DEFAULTS, new_detector
from imondrian.service.changes.journal import current_versions, difference
from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import StorageError
from imondrian.service.storage.store import FILE, Store
from tests.service.test_figures import BEFORE
from tests.service.test_recovery import (
    OFTEN,
    XY,
    assert_continues,
    assert_no_problems,
    damage_database,
    killed_after,
    killed_folder,  # noqa: F401 (a fixture)
)
from tests.service.test_worker import expected, learn, n_rows


@pytest.fixture
def other_version(monkeypatch):
    """Change the version of a package."""
    monkeypatch.setattr("llvmlite.__version__", "99.1")


def test_the_versions_include_everything_that_scores_depend_on():
    versions = current_versions()
    assert {"imondrian", "python", "numpy", "numba", "llvmlite", "machine", "processor"} <= set(versions)
    assert all(isinstance(value, str) and value for value in versions.values())
    assert current_versions() == versions


def test_differences_are_named():
    assert difference({"a": "1", "b": "2"}, {"a": "1", "b": "3"}) == "b 2, now 3"
    assert difference({"a": "1"}, {"c": "3"}) == "a 1, now unknown, c unknown, now 3"
    assert difference({}, {"a": "1"}) == "unknown versions"


def test_a_journal_of_other_versions_is_replayed_reported_and_saved_as_a_snapshot(killed_folder, stream, other_version):  # noqa: F811
    registry = Registry(killed_folder, retention=OFTEN)
    (report,) = registry.damage_reports
    assert report.startswith("The last 3 entries of the journal of 'a' were written under other versions (llvmlite ")
    assert ", now 99.1)" in report
    assert registry.get("a").worker.summary.n_seen == 330  # nothing confirmed is lost
    snapshot = next(registry._store.snapshots(1))
    assert snapshot.number == 33
    assert from_bytes(snapshot.content).n_seen == 330
    assert read_header(io.BytesIO(snapshot.content), "The model")["notes"]["beside"]["versions"] == current_versions()
    shutil.copytree(killed_folder, killed_folder.with_name("again"))  # killed before any other request
    registry.close()
    assert_no_problems(killed_folder.with_name("again"))
    assert_continues(killed_folder.with_name("again"), stream, 330)


def test_nothing_is_reported_after_a_clean_stop(killed_folder, stream, monkeypatch):  # noqa: F811
    Registry(killed_folder).close()
    monkeypatch.setattr("llvmlite.__version__", "99.1")
    assert_continues(killed_folder, stream, 330)


def test_only_the_versions_of_replayed_entries_matter(tmp_path, stream, monkeypatch):
    folder = killed_after(tmp_path / "live", stream[:60])
    Registry(folder).close()  # saves a snapshot
    monkeypatch.setattr("llvmlite.__version__", "99.1")
    registry = Registry(folder)
    learn(registry.get("a"), stream[60:70])
    learn(registry.get("a"), stream[70:80])
    assert n_versions(registry) == 2  # one for all entries before, one for those since
    shutil.copytree(folder, tmp_path / "again")
    registry.close()
    assert_no_problems(tmp_path / "again")


def n_versions(registry):
    return registry._store._database.execute("SELECT count(*) FROM versions").fetchone()[0]


def test_all_versions_in_a_journal_are_reported(tmp_path, stream, monkeypatch):
    folder = killed_after(tmp_path / "live", stream[:10])
    for i, version in enumerate(("98.1", "98.2", "98.3")):
        monkeypatch.setattr("llvmlite.__version__", version)
        store = Store(folder)
        with store.transaction():
            entry = store.entries_after(1, 0)[0]
            store.add_entries(1, [entry._replace(number=2 + i, request=None)])
        store.close()
    registry = Registry(folder)
    (report,) = registry.damage_reports
    assert "llvmlite 98.1, now 98.3; llvmlite 98.2, now 98.3" in report
    assert registry.get("a").worker.summary.n_seen == 40
    registry.close()


def test_versions_of_entries_that_are_set_aside_are_deleted(killed_folder, stream, other_version):  # noqa: F811
    store = Store(killed_folder)
    with store.transaction():
        store.add_entries(1, [store.entries_after(1, 32)[0]._replace(number=34, request=None)])
    store.close()
    damage_database(killed_folder, "UPDATE entries SET content = zeroblob(length(content)) WHERE number = 34")
    registry = Registry(killed_folder)
    assert len(registry.damage_reports) == 2  # the damage, and the other version of the entries before it
    assert n_versions(registry) == 2  # those of the entries before it, and of the entry that follows the cut
    learn(registry.get("a"), stream[:1])
    assert n_versions(registry) == 2
    registry.close()


def test_a_failed_snapshot_is_reported_and_retried_at_the_next_start(killed_folder, other_version, monkeypatch):  # noqa: F811
    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "add_snapshot", full)
        registry = Registry(killed_folder)
        assert "under other versions" in registry.damage_reports[0]
        assert (
            "could not be saved: The data could not be stored or read: database or disk is full"
            in registry.damage_reports[1]
        )
        shutil.copytree(killed_folder, killed_folder.with_name("again"))
        registry.close()
    registry = Registry(killed_folder.with_name("again"))
    assert len(registry.damage_reports) == 1
    registry.close()
    assert_no_problems(killed_folder.with_name("again"))


def test_a_journal_without_versions_has_unknown_versions(tmp_path):
    tmp_path.joinpath(FILE).write_bytes(lzma.decompress(BEFORE.read_bytes()))
    registry = Registry(tmp_path)
    (report,) = registry.damage_reports
    assert report.startswith(
        "The last 2 entries of the journal of 'a' were written under other versions (unknown versions)"
    )
    assert registry.get("a").worker.summary.n_seen == 50
    assert n_rows(registry)["snapshots"] == 2
    registry.close()
    assert_no_problems(tmp_path)


@pytest.mark.parametrize(
    "damaged",
    [
        "'{'",
        "'[]'",
        "CAST(x'fb' || CAST(substr(content, 2) AS BLOB) AS TEXT)",  # not UTF-8
        "CAST(content AS BLOB)",
        "printf('%.100000c', '[')",  # nested more deeply than Python can decode
        """'{"numba": 1}'""",
        """'{"numba": "\\ud800"}'""",
    ],
)
def test_damaged_versions_are_unknown_versions(killed_folder, stream, damaged):  # noqa: F811
    damage_database(killed_folder, f"UPDATE versions SET content = {damaged}")  # noqa: S608 (from above)
    registry = Registry(killed_folder)
    assert "(unknown versions)" in registry.damage_reports[0]
    reference = new_detector({**DEFAULTS, **XY})
    reference.process_many(stream[:330])
    assert learn(registry.get("a"), stream[330:]) == expected(reference, stream[330:])
    registry.close()


def test_versions_are_written_in_the_same_transaction_as_the_first_entries(tmp_path, stream):
    registry = Registry(tmp_path)
    handle, _ = registry.create("a", XY)
    database = registry._store._database
    database.execute("CREATE TEMP TRIGGER full BEFORE INSERT ON entries BEGIN SELECT raise(ABORT, 'full'); END")
    with pytest.raises(StorageError, match="full"):
        learn(handle, stream[:1])
    assert n_versions(registry) == 0  # like the entry
    database.execute("DROP TRIGGER full")
    learn(handle, stream[:1])
    assert n_versions(registry) == 1
    registry.close()

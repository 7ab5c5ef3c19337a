"""Detectors continue to the last bit however the service ended; damaged data is reported, and not used."""

import shutil
import sqlite3
import subprocess

import numpy as np
import pytest

from imondrian import StreamDetector
from imondrian.base.errors import InvalidInputError
from imondrian.model_files import to_bytes
from imondrian.service.changes.configuration import DEFAULTS, new_detector
from imondrian.service.changes.journal import FORGET, MODEL, POINTS, digest_of
from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import StorageError
from imondrian.service.limits import Retention
from imondrian.service.storage.sqlite import open_database, rescue
from imondrian.service.storage.store import FILE
from tests.service.serving import SMALL
from tests.service.test_worker import expected, learn, n_rows

XY = {"features": ["x", "y"], **SMALL}
OFTEN = Retention(points_between_snapshots=100)


@pytest.fixture
def killed_folder(tmp_path, stream):
    """Return a folder left by a killed service, with two snapshots and a journal after them."""
    registry = Registry(tmp_path / "live", retention=OFTEN)
    handle, _ = registry.create("a", XY)
    for first in range(0, 330, 10):
        learn(handle, stream[first : first + 10], f"id-{first}")
    shutil.copytree(tmp_path / "live", tmp_path / "killed")  # the state after a kill
    registry.close()
    return tmp_path / "killed"


def damage_database(folder, sql, *values):
    database = sqlite3.connect(folder / FILE)
    with database:
        assert database.execute(sql, values).rowcount > 0
    database.close()


def assert_continues(folder, stream, n_learned, problems=0):
    registry = Registry(folder, retention=OFTEN)
    assert len(registry.damage_reports) == problems, registry.damage_reports
    handle = registry.get("a")
    reference = new_detector(handle.record.configuration)
    before = expected(reference, stream[:n_learned])
    assert handle.worker.summary.n_seen == n_learned
    for first in range(0, n_learned, 10):  # repeated requests: nothing is learned again
        assert learn(handle, stream[first : first + 10], f"id-{first}") == before[first : first + 10]
    assert learn(handle, stream[n_learned:]) == expected(reference, stream[n_learned:])
    registry.close()
    return registry.damage_reports


def test_a_killed_service_continues_to_the_last_bit(killed_folder, stream):
    assert_continues(killed_folder, stream, 330)


def test_a_clean_stop_leaves_a_snapshot_and_no_write_ahead_log(killed_folder, stream):
    Registry(killed_folder, retention=OFTEN).close()
    assert not (killed_folder / f"{FILE}-wal").exists()
    registry = Registry(killed_folder)
    assert registry._store.entries_after(1, next(registry._store.snapshots(1)).number) == []
    registry.close()
    assert_continues(killed_folder, stream, 330)


def test_the_history_is_restored(killed_folder, stream):
    for _ in range(2):  # after a kill, and after a clean stop
        registry = Registry(killed_folder)
        rows = registry.get("a").worker.history.rows()
        assert [row.number for row in rows] == list(range(330))
        assert [row.values for row in rows] == stream[:330].tolist()
        results = new_detector({**DEFAULTS, **XY}).process_many(stream[:330])
        assert [row.score for row in rows] == results.score.tolist()
        assert [row.is_anomaly for row in rows] == results.is_anomaly.tolist()
        registry.close()


def test_forgetting_and_model_files_are_replayed(tmp_path, stream):
    registry = Registry(tmp_path / "live")
    handle, _ = registry.create("a", XY)
    other = new_detector(handle.record.configuration)
    other.process_many(stream[:77])
    learn(handle, stream[:50])
    handle.worker.submit(MODEL, to_bytes(other), 0).result()
    learn(handle, stream[77:200])
    handle.worker.submit(FORGET, stream[120:130].tobytes(), 10).result()
    handle.worker.submit(FORGET, stream[120:130].tobytes(), 10).result()  # refused, and again in the replay
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    after = learn(handle, stream[200:300])
    registry.close()
    registry = Registry(tmp_path / "killed")
    assert learn(registry.get("a"), stream[200:300]) == after
    registry.close()


def test_a_damaged_snapshot_is_reported_and_the_previous_one_is_used(killed_folder, stream):
    damage_database(
        killed_folder,
        "UPDATE snapshots SET content = substr(content, 1, 5000) || zeroblob(100) || substr(content, 5101)"
        " WHERE number = (SELECT max(number) FROM snapshots)",
    )
    problems = assert_continues(killed_folder, stream, 330, problems=1)
    assert "snapshot of 'a' is damaged" in problems[0]
    assert_no_problems(killed_folder)


def assert_no_problems(folder):
    """Damage is not reported again at the next start."""
    registry = Registry(folder)
    assert registry.damage_reports == []
    registry.close()


def test_without_a_valid_snapshot_a_complete_journal_is_replayed_from_the_start(tmp_path, stream):
    registry = Registry(tmp_path / "live", retention=Retention(points_between_snapshots=200))
    handle, _ = registry.create("a", XY)
    for first in range(0, 330, 10):
        learn(handle, stream[first : first + 10], f"id-{first}")
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    registry.close()
    damage_database(tmp_path / "killed", "UPDATE snapshots SET content = x'00'")
    assert_continues(tmp_path / "killed", stream, 330, problems=1)


def test_without_a_valid_snapshot_and_a_complete_journal_the_detector_starts_empty(killed_folder, stream):
    damage_database(killed_folder, "UPDATE snapshots SET content = x'00'")
    registry = Registry(killed_folder)
    assert any("starts empty" in problem for problem in registry.damage_reports)
    handle = registry.get("a")
    assert handle.worker.summary.n_seen == 0
    assert learn(handle, stream, "id-0") == expected(new_detector(handle.record.configuration), stream)
    registry.close()
    assert_no_problems(killed_folder)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entries SET content = zeroblob(length(content))",
        "UPDATE entries SET number = number + 100",
        "UPDATE entries SET request = 'another'",
        "UPDATE entries SET request = CAST(x'e9' AS TEXT)",
        "UPDATE entries SET kind = 'forget'",
        "DELETE FROM entries",
    ],
)
def test_a_damaged_end_of_the_journal_is_set_aside_and_reported(killed_folder, stream, damage):
    damage_database(killed_folder, f"{damage} WHERE number = 32")  # of 33
    problems = assert_continues(killed_folder, stream, 310, problems=1)
    assert "journal of 'a' is damaged" in problems[0]
    database = sqlite3.connect(killed_folder / FILE)
    assert database.execute("SELECT count(*) FROM damaged").fetchone()[0] in (1, 2)
    database.close()
    assert_no_problems(killed_folder)


def test_a_request_lost_with_the_end_of_the_journal_can_be_repeated(killed_folder, stream):
    damage_database(killed_folder, "UPDATE entries SET content = zeroblob(length(content)) WHERE number = 33")
    registry = Registry(killed_folder)
    results = learn(registry.get("a"), stream[320:330], "id-320")
    assert [each["index"] for each in results] == list(range(320, 330))
    registry.close()


def test_an_invalid_entry_is_set_aside_with_all_later_ones(killed_folder, stream, monkeypatch):
    process_many = StreamDetector.process_many

    def failing(detector, points):
        if (points == stream[315]).all(axis=1).any():
            process_many(detector, points[:5])  # half changed
            raise InvalidInputError("a value is too large")
        return process_many(detector, points)

    with monkeypatch.context() as patched:
        patched.setattr(StreamDetector, "process_many", failing)
        registry = Registry(killed_folder)
        assert len(registry.damage_reports) == 2
        assert "Entry 32 of the journal of 'a' cannot be replayed" in registry.damage_reports[0]
        registry.close()
    assert_continues(killed_folder, stream, 310)


def test_an_entry_whose_length_is_wrong_is_set_aside(killed_folder, stream):
    content = stream[310:320].tobytes()[:-1]
    digest = digest_of(1, 32, POINTS, content, "id-310", 0.0)
    damage_database(
        killed_folder, "UPDATE entries SET content = ?, time = 0.0, digest = ? WHERE number = 32", content, digest
    )
    registry = Registry(killed_folder)
    assert "Entry 32 of the journal of 'a' cannot be replayed: 159 bytes" in registry.damage_reports[0]
    assert "its last 2 entries were set aside" in registry.damage_reports[1]
    registry.close()
    assert_continues(killed_folder, stream, 310)


@pytest.mark.parametrize(
    "damage",
    [
        "content = x'7b7d'",
        "request = CAST(x'e9642d30' AS TEXT)",  # one bit of 'id-0' is wrong: not UTF-8
        "request = 'ie-0'",
        "request = x'69642d30'",
        "status = 'x'",
    ],
)
def test_damaged_replies_are_reported_and_left_out(killed_folder, stream, damage):
    damage_database(killed_folder, f"UPDATE answers SET {damage} WHERE number = 1")  # noqa: S608 (from above)
    registry = Registry(killed_folder)
    assert ["1 saved replies" in problem for problem in registry.damage_reports] == [True]
    assert registry.problems() == []
    handle = registry.get("a")
    assert [each["index"] for each in learn(handle, stream[10:20], "id-10")] == list(range(10, 20))
    assert [each["index"] for each in learn(handle, stream[:10], "id-0")] == list(range(330, 340))
    registry.close()


def test_text_that_is_not_utf_8_does_not_stop_a_rescue(killed_folder, tmp_path):
    """Two rows that cannot be read as text used to hide all rows between them."""
    Registry(killed_folder).close()
    damage_database(killed_folder, "UPDATE answers SET request = CAST(x'e9' AS TEXT) WHERE number IN (2, 30)")
    database, _ = open_database(killed_folder / FILE)
    database = rescue(database, killed_folder / FILE)
    assert database.execute("SELECT count(*) FROM answers").fetchone() == (33,)
    database.close()


FRAME = 24 + 4096


def flip_bits(content, first, n_bytes=1):
    content[first : first + n_bytes] = bytes(byte ^ 0x55 for byte in content[first : first + n_bytes])


@pytest.mark.parametrize(
    "damage",
    [
        lambda log, last: flip_bits(log, 32 + (last - 4) * FRAME + 200),  # in a page
        lambda log, last: flip_bits(log, 32 + (last - 4) * FRAME + 9),  # in the salt of a frame
        lambda log, last: flip_bits(log, 32 + (last - 6) * FRAME, 2 * FRAME),  # two frames
        lambda log, _: flip_bits(log, 17),  # in the salt of the header
        lambda log, _: flip_bits(log, 0, 4),  # in the magic number
    ],
)
def test_a_damaged_write_ahead_log_is_reported(killed_folder, damage):
    log = killed_folder / f"{FILE}-wal"
    content = bytearray(log.read_bytes())
    damage(content, (len(content) - 32) // FRAME)
    log.write_bytes(content)
    registry = Registry(killed_folder)
    assert any("write-ahead log is damaged" in report for report in registry.damage_reports)
    assert sum(handle.worker.summary.n_seen for handle in registry.all()) < 330
    registry.close()
    assert_no_problems(killed_folder)


@pytest.mark.parametrize("n_kept", range(1, 40))
def test_a_truncated_write_ahead_log_loses_at_most_its_end(killed_folder, stream, n_kept):
    log = killed_folder / f"{FILE}-wal"
    content = log.read_bytes()
    log.write_bytes(content[: len(content) * n_kept // 40])
    registry = Registry(killed_folder)
    handles = [each for each in registry.all() if each.record.name == "a"]
    if handles:  # otherwise the log ends before the detector was created
        n_seen = handles[0].worker.summary.n_seen
        reference = new_detector(handles[0].record.configuration)
        reference.process_many(stream[:n_seen]) if n_seen else None
        assert learn(handles[0], stream[n_seen:]) == expected(reference, stream[n_seen:])
    registry.close()


def pages_of(path):
    database = sqlite3.connect(path)
    (n_pages,) = database.execute("PRAGMA page_count").fetchone()
    rows = database.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0").fetchall()
    database.close()
    return n_pages, dict(rows)


def test_an_unreadable_page_is_reported_and_the_rest_still_works(killed_folder, tmp_path, stream):
    registry = Registry(killed_folder)
    learn(registry.get("a"), stream[330:340], "id-330")
    shutil.copytree(killed_folder, tmp_path / "again")
    registry.close()
    Registry(tmp_path / "again").close()
    n_pages, roots = pages_of(tmp_path / "again" / FILE)
    vital = {1, roots["detectors"], roots["sqlite_sequence"]}
    for page in range(1, n_pages + 1):
        folder = tmp_path / f"page {page}"
        shutil.copytree(tmp_path / "again", folder)
        content = bytearray((folder / FILE).read_bytes())
        content[(page - 1) * 4096 : page * 4096] = bytes(4096)
        (folder / FILE).write_bytes(content)
        if page in vital:
            assert_starts_or_refuses(folder)
        else:
            assert_scores_are_right(folder, stream)
        shutil.rmtree(folder)


@pytest.mark.parametrize("filler", [b"\0", b"\xff"])
def test_a_detector_whose_row_is_unreadable_is_set_aside_with_its_data(killed_folder, stream, filler):
    """A new detector must not get its id, and with it the old data."""
    Registry(killed_folder).close()
    _, roots = pages_of(killed_folder / FILE)
    with (killed_folder / FILE).open("r+b") as file:
        file.seek((roots["detectors"] - 1) * 4096)
        file.write(4096 * filler)
    registry = Registry(killed_folder)
    (problem,) = registry.problems()
    assert "damaged-1: " in problem
    assert "is set aside with all its data" in problem
    handle, _ = registry.create("new", XY)
    learn(handle, stream[:50])
    registry.close()
    restarted = Registry(killed_folder)
    assert restarted.get("new").worker.summary.n_seen == 50
    assert restarted.problems() == [problem]
    restarted.close()


def test_a_rescue_interrupted_before_its_last_step_is_completed(killed_folder, stream):
    log = (killed_folder / f"{FILE}-wal").read_bytes()
    registry = Registry(killed_folder)
    after = learn(registry.get("a"), stream[330:350], "after")
    registry.close()
    shutil.copy(killed_folder / FILE, killed_folder / f"{FILE}.rescued")
    (killed_folder / FILE).rename(killed_folder / f"{FILE}.damaged")
    (killed_folder / f"{FILE}-wal").write_bytes(log)  # of the damaged file
    registry = Registry(killed_folder)
    assert "damaged" in registry.damage_reports[0]
    assert registry.get("a").worker.summary.n_seen == 350
    assert learn(registry.get("a"), stream[330:350], "after") == after
    registry.close()


def assert_starts_or_refuses(folder):
    try:
        registry = Registry(folder)
    except StorageError:
        return
    registry.close()


def assert_scores_are_right(folder, stream):
    registry = Registry(folder)
    handle = registry.get("a")
    n_seen = handle.worker.summary.n_seen
    assert n_seen == 340 or registry.damage_reports
    reference = new_detector({**DEFAULTS, **XY})
    reference.process_many(stream[:n_seen])
    with handle.worker.read_copy.read() as copy:
        assert copy.score(stream).tolist() == reference.score(stream).tolist()
    registry.close()


def test_snapshots_are_saved_even_if_the_service_is_killed_repeatedly(tmp_path, stream):
    shutil.copytree(killed_after(tmp_path / "0", stream[:60]), tmp_path / "1")
    for i in range(1, 6):
        registry = Registry(tmp_path / str(i), retention=OFTEN)
        learn(registry.get("a"), stream[60 * i : 60 * i + 60])
        learn(registry.get("a"), stream[:1])
        n_entries = n_rows(registry)["entries"]
        shutil.copytree(tmp_path / str(i), tmp_path / str(i + 1))
        registry.close()
        assert n_entries <= 8


def killed_after(folder, points):
    registry = Registry(folder, retention=OFTEN)
    handle, _ = registry.create("a", XY)
    learn(handle, points)
    shutil.copytree(folder, folder.with_name("killed"))
    registry.close()
    return folder.with_name("killed")


@pytest.fixture
def small_disk(tmp_path):
    """Return a folder on a disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_on_a_full_file_system_the_service_refuses_restarts_and_continues(small_disk, stream):
    registry = Registry(small_disk / "data", retention=OFTEN)
    handle, _ = registry.create("a", XY)
    learn(handle, stream[:50])
    filler = small_disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(small_disk).free))
    n_learned = learned_until_full(handle, np.tile(stream, (20, 1)), 50)
    with handle.worker.read_copy.read() as copy:
        copy.score(stream)
    registry.close()
    registry = Registry(small_disk / "data", retention=OFTEN)  # with the disk still full
    handle = registry.get("a")
    assert handle.worker.summary.n_seen == n_learned
    filler.unlink()
    reference = new_detector(handle.record.configuration)
    many = np.tile(stream, (20, 1))
    reference.process_many(many[:n_learned])
    assert learn(handle, stream) == expected(reference, stream)
    registry.close()


def test_the_error_names_a_file_that_is_not_a_sqlite_database(tmp_path):
    (tmp_path / FILE).write_bytes(b"something else entirely" * 100)
    with pytest.raises(StorageError, match=FILE):
        Registry(tmp_path)


def test_the_error_names_a_folder_that_cannot_be_created(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        Registry(tmp_path / "file" / "data")


def test_a_folder_can_be_used_by_only_one_service(registry, tmp_path):
    with pytest.raises(StorageError, match="in use by another service"):
        Registry(tmp_path / "data")


def test_requests_are_refused_while_the_disk_is_full(tmp_path, stream):
    registry = Registry(tmp_path, retention=OFTEN)
    handle, _ = registry.create("a", XY)
    database = registry._store._database
    learn(handle, stream[:90])
    (n_pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {n_pages + 3}")
    n_learned = learned_until_full(handle, stream, 90)
    assert "full" in str(registry.writer.failure)
    database.execute("PRAGMA max_page_count = 1000000")
    reference = new_detector(handle.record.configuration)
    reference.process_many(stream[:n_learned])
    assert learn(handle, stream[n_learned:]) == expected(reference, stream[n_learned:])
    assert registry.writer.failure is None
    registry.close()
    assert_no_problems(tmp_path)


def learned_until_full(handle, stream, n_learned):
    for i in range(n_learned, len(stream)):
        try:
            learn(handle, stream[i : i + 1])
        except StorageError as error:
            assert "full" in str(error)  # noqa: PT017
            return i
    raise AssertionError("the disk was never full")


def test_the_size_on_disk_is_bounded(tmp_path, stream):
    registry = Registry(tmp_path, retention=Retention(points_between_snapshots=200, replies=10))
    handle, _ = registry.create("a", XY)
    sizes = []
    for i in range(60):
        learn(handle, stream, f"id-{i}")
        sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
    assert max(sizes[30:]) <= 1.2 * max(sizes[:30])
    counts = n_rows(registry)
    assert counts["snapshots"] == 2
    assert counts["entries"] <= 2
    assert counts["answers"] <= 10
    registry.remove("a")
    registry.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < sizes[-1] / 4

"""`imondrian backup`: a service that is started from a backup continues where the backed up one was."""

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import ExitStack, closing

import numpy as np
import pytest

from imondrian.service.client import ServiceError
from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import StorageError
from imondrian.service.http.asgi import create_app
from imondrian.service.limits import Limits
from imondrian.service.storage.store import FILE, Store
from tests.service.serving import SMALL, Service, ThreadServer, free_port, wait_until

TOKEN = "0123456789abcdef"  # noqa: S105


def run(*arguments, **environment):
    command = [sys.executable, "-m", "imondrian", "backup", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment or None, timeout=120)


def restored(backup, folder):
    """Return a service in a new folder that contains the backup."""
    folder.mkdir()
    shutil.copy(backup, folder / FILE)
    return Service(folder)


def test_a_service_started_from_a_backup_continues_bit_for_bit(tmp_path, stream):
    backup = tmp_path / "backup.db"
    with Service(tmp_path / "data") as service, service.client() as client:
        client.create("pumps", ["temperature", "pressure"], **SMALL)
        client.process("pumps", stream[:400])
        done = run(backup, "--url", service.address, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout) == {"file": str(backup), "n_bytes": backup.stat().st_size, "n_detectors": 1}
        assert backup.stat().st_mode & 0o777 == 0o600
        before = client.describe("pumps")
        expected = client.process("pumps", stream[400:])
        assert [path.name for path in (tmp_path / "data").iterdir() if "backup" in path.name] == []
    with restored(backup, tmp_path / "other") as service, service.client() as client:
        assert client.describe("pumps") == before
        assert client.process("pumps", stream[400:]) == expected


def test_every_backup_during_heavy_writing_is_a_state_that_was_confirmed(tmp_path):
    X = np.random.default_rng(0).normal(size=(4_000, 2))
    n_confirmed, n_seen = [0], []
    with Service(tmp_path / "data") as service, service.client() as client:
        client.create("a", ["x", "y"], **SMALL)

        def write():
            with service.client() as other:
                for i in range(0, len(X), 20):
                    other.process("a", X[i : i + 20])
                    n_confirmed[0] = i + 20

        writer = threading.Thread(target=write)
        writer.start()
        for k in range(3):
            lowest = n_confirmed[0]
            client.backup(tmp_path / f"{k}.db")
            n_seen.append((lowest, n_confirmed[0] + 20))
        writer.join()
    for k, (lowest, highest) in enumerate(n_seen):
        with restored(tmp_path / f"{k}.db", tmp_path / f"folder{k}") as service, service.client() as client:
            assert lowest <= client.describe("a")["n_seen"] <= highest
            assert service.request("GET", "/health")[0] == 200


def test_a_backup_needs_the_token(tmp_path):
    with Service(tmp_path / "data", token=TOKEN) as service:
        done = run(tmp_path / "b.db", "--url", service.address, PATH="")
        assert done.returncode == 2
        assert "imondrian: The service returned 401" in done.stderr
        assert not (tmp_path / "b.db").exists()
        (tmp_path / "token").write_text(TOKEN)
        done = run(tmp_path / "b.db", "--url", service.address, "--token-file", tmp_path / "token")
        assert done.returncode == 0, done.stderr


def test_a_service_that_does_not_respond_is_an_error_in_one_line(tmp_path):
    address = f"http://127.0.0.1:{free_port()}"
    done = run(tmp_path / "b.db", "--url", address)
    assert done.returncode == 2
    assert done.stderr.startswith(f"imondrian: {address} does not respond: ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_old_backup_is_replaced_only_by_a_complete_one(tmp_path, monkeypatch):
    path = tmp_path / "b.db"
    path.write_bytes(b"old")
    with Service(tmp_path / "data") as service, service.client() as client:
        with monkeypatch.context() as patched:
            patched.setattr("imondrian.service.client.shutil.copyfileobj", lambda _, file: file.write(b"half"))
            with pytest.raises(ServiceError, match=r"the backup has .* bytes, but only 4 arrived"):
                client.backup(path)
        assert path.read_bytes() == b"old"
        assert client.backup(path).n_detectors == 0
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_backup_is_refused_if_the_disk_has_too_little_space(tmp_path, monkeypatch):
    store = Store(tmp_path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("imondrian.service.storage.store.shutil.disk_usage", lambda _: usage._replace(free=1_000))
    with pytest.raises(StorageError, match=r"A backup needs .* bytes of disk space, but only 1,000 are free"):
        store.backup()
    store.close()


def test_a_copy_left_over_by_a_killed_process_is_replaced_or_deleted_at_the_next_start(tmp_path):
    store = Store(tmp_path)
    left_over = [tmp_path / f"{FILE}.unfinished-backup", tmp_path / f"{FILE}.unfinished-backup-journal"]
    left_over[0].write_bytes(b"half a copy")
    file, n_bytes = store.backup()
    with file:
        content = file.read()
    assert len(content) == n_bytes
    assert content.startswith(b"SQLite format 3\0")
    assert not left_over[0].exists()
    store.close()
    for path in left_over:
        path.write_bytes(b"half a copy")
    (tmp_path / f"{FILE}.backup").write_bytes(b"a copy of somebody")
    Store(tmp_path).close()
    assert not any(path.exists() for path in left_over)
    assert (tmp_path / f"{FILE}.backup").exists()


def fill(registry, n_mebibytes):
    for _ in range(n_mebibytes):
        registry.writer.write(Store.write_filler)


@pytest.mark.parametrize("seconds", [60.0, 1.0])
def test_slow_readers_of_backups_hold_one_copy_and_not_for_ever(tmp_path, monkeypatch, seconds):
    registry = Registry(tmp_path, limits=Limits(backup_seconds=seconds, backup_rate=2**40))
    fill(registry, 32)  # more than the buffers of a socket
    make_copy, copies = registry.backup, []

    def counted():
        assert all(file.closed for file in copies)
        file, n_bytes = make_copy()
        copies.append(file)
        return file, n_bytes

    monkeypatch.setattr(registry, "backup", counted)
    with ThreadServer(create_app(registry)) as server, ExitStack() as stack:
        slow = [stack.enter_context(server.connect()) for _ in range(3)]
        for connection in slow:
            connection.sendall(b"GET /backup HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            wait_until(lambda: copies)
        if seconds > 10.0:
            slow[0].close()
            assert len(read_all(slow[1])) > 32 * 2**20
        else:  # all of them are cut off, one after the other
            wait_until(lambda: len(copies) == 3 and all(file.closed for file in copies))
            assert all(len(read_all(connection)) < 32 * 2**20 for connection in slow)


def read_all(connection):
    content = bytearray()
    while chunk := connection.recv(2**20):
        content += chunk
    return content

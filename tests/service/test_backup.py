"""Every command of docs/backup.md does what the page says."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from imondrian.service.storage.store import FILE
from tests.service.serving import SMALL, Service
from tests.service.test_docs import ADDRESS

DOCUMENT = Path(__file__).parents[2].joinpath("docs", "backup.md").read_text()
DOWNLOAD, RESTORE, COPY_FOLDER, RESTORE_FOLDER = re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)
SAVE_ALL, RESTORE_ALL = re.findall(r"```py\n(.*?)```", DOCUMENT, re.DOTALL)


@pytest.fixture
def running(tmp_path, stream):
    with Service(tmp_path / "data") as service, service.client() as client:
        client.create("pumps", ["temperature", "pressure"], **SMALL)
        client.process("pumps", stream[:2])
        yield service


def shell(service, commands, folder):
    """Run commands of the page in a folder, with `imondrian` from this source tree."""
    program = f"{sys.executable} -m imondrian"
    commands = re.sub(r"^imondrian", program, commands.replace(ADDRESS, service.address), flags=re.MULTILINE)
    bash = ["bash", "-euc", commands]
    completed = subprocess.run(bash, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_a_model_file_is_downloaded_inspected_and_restored(running, stream, tmp_path):
    assert re.search("rows seen +2$", shell(running, DOWNLOAD, tmp_path), re.MULTILINE)
    shown = re.search(r"^# (.*)$", RESTORE, re.MULTILINE)[1]
    assert shell(running, RESTORE, tmp_path) == shown
    with running.client() as client:
        configuration = client.describe("restored")["configuration"]
        assert configuration == client.describe("pumps")["configuration"]
        assert configuration["features"] == ["temperature", "pressure"]
        assert client.process("restored", stream[2:300]) == client.process("pumps", stream[2:300])


def test_all_detectors_are_saved_and_restored_from_python(running, stream, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with running.client() as client:
        client.create("a.b-c", ["x", "y"], **SMALL)
        client.process("a.b-c", stream)
        scores = {name: client.score(name, stream[:5]) for name in ("pumps", "a.b-c")}
        run(SAVE_ALL, running)
        for name in scores:
            client.remove(name)
        run(RESTORE_ALL, running)
        assert {name: client.score(name, stream[:5]) for name in scores} == scores


def run(code, service):
    exec(compile(code.replace(ADDRESS, service.address), "docs/backup.md", "exec"), {})  # noqa: S102


def run_as_root(commands, var):
    """Run commands of the page with another folder instead of /var, and a `systemctl` that only records its calls."""
    systemctl = 'systemctl() { echo "$*" >> calls; }\n'
    bash = ["bash", "-c", systemctl + commands.replace("/var/", f"{var}/")]  # without -e, as in a terminal
    completed = subprocess.run(bash, cwd=var, capture_output=True, text=True, timeout=60, check=False)
    calls = var.joinpath("calls").read_text().splitlines()
    var.joinpath("calls").unlink()
    assert calls == ["stop imondrian", "start imondrian"]
    return completed


@pytest.fixture(params=["folder", "symbolic link"])
def var(request, tmp_path):
    """Return a folder like /var; with DynamicUser=yes, systemd makes the data folder a symbolic link."""
    data = tmp_path / "var" / "lib" / ("private/imondrian" if request.param == "symbolic link" else "imondrian")
    data.mkdir(mode=0o700, parents=True)
    if request.param == "symbolic link":
        (tmp_path / "var" / "lib" / "imondrian").symlink_to("private/imondrian")
    return tmp_path / "var"


def test_the_folder_is_copied_and_restored_while_the_service_is_stopped(var, stream):
    data, states, backups = var / "lib" / "imondrian", [], []
    is_link = data.is_symlink()
    for i in range(3):  # a second copy must not end up inside the first
        with Service(data) as service, service.client() as client:
            client.create("pumps", ["temperature", "pressure"], **SMALL) if i == 0 else None
            client.process("pumps", stream[100 * i : 100 * i + 100])
            states.append(state_of(service))
        assert run_as_root(COPY_FOLDER, var).stderr == ""
        (new,) = set((var / "backups").iterdir()) - set(backups)
        backups.append(new)
        assert [path.name for path in new.iterdir()] == [FILE]
        assert new.stat().st_mode & 0o777 == 0o700
        time.sleep(1.0)  # names of copies contain the second
    for i in (0, 2, 1):
        (data / f"{FILE}-wal").write_bytes(b"of another state")
        command = re.sub(r"^backup=.*$", f"backup={backups[i]}", RESTORE_FOLDER, flags=re.MULTILINE)
        assert run_as_root(command.replace(f"{var}/", "/var/"), var).stderr == ""
        assert data.is_symlink() == is_link
        assert [path.name for path in data.iterdir()] == [FILE]
        with Service(data) as restored:
            assert state_of(restored) == states[i]
            assert json.loads(restored.request("GET", "/health")[2]) == {"status": "ok", "problems": []}


def state_of(service):
    return service.request("GET", "/detectors")[2], service.request("GET", "/detectors/pumps/history")[2]


def test_a_copy_that_does_not_exist_deletes_nothing(var):
    data = var / "lib" / "imondrian" / FILE
    data.write_bytes(b"the only copy")
    assert "No such file" in run_as_root(RESTORE_FOLDER, var).stderr
    assert data.read_bytes() == b"the only copy"


def test_sqlite_reports_a_locked_file_while_the_service_runs(running, tmp_path):
    with (
        closing(sqlite3.connect(tmp_path / "data" / FILE, timeout=0.1)) as source,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        source.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    if shutil.which("sqlite3"):
        command = ["sqlite3", str(tmp_path / "data" / FILE), ".backup copy.db"]
        completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert "locked" in completed.stderr
    assert running.request("GET", "/health")[0] == 200  # the service is not affected


def test_a_killed_service_leaves_a_write_ahead_log_that_is_part_of_the_database(running, tmp_path):
    running.process.kill()
    running.process.communicate(timeout=60)
    assert f"{FILE}-wal" in {path.name for path in (tmp_path / "data").iterdir()}
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with Service(tmp_path / "copy") as restored, restored.client() as client:
        assert client.describe("pumps")["n_seen"] == 2
    running.start()

"""Every command of docs/backup.md does what the page says."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from imondrian.service.store import FILE
from tests.service.serving import SMALL, Service
from tests.service.test_docs import ADDRESS

DOCUMENT = Path(__file__).parents[2].joinpath("docs", "backup.md").read_text()
DOWNLOAD, RESTORE, COPY_FOLDER = re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)
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


def test_the_folder_is_copied_while_the_service_is_stopped(running, tmp_path, stream):
    stop, copy, start = COPY_FOLDER.splitlines()
    assert (stop.split()[:2], start.split()[:2]) == (["systemctl", "stop"], ["systemctl", "start"])
    copy = copy.replace("/var/lib/imondrian", "data").replace("/var/backups/imondrian", "copy")
    before = running.request("GET", "/detectors")[2], running.request("GET", "/detectors/pumps/history")[2]
    running.stop()
    shell(running, copy, tmp_path)
    assert [path.name for path in (tmp_path / "copy").iterdir()] == [FILE]
    with Service(tmp_path / "copy") as restored:
        assert (
            restored.request("GET", "/detectors")[2],
            restored.request("GET", "/detectors/pumps/history")[2],
        ) == before
        assert json.loads(restored.request("GET", "/health")[2]) == {"status": "ok", "complaints": []}
    running.start()


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

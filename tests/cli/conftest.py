"""Fixtures that run the command line in a separate process, in a temporary folder."""

import io
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest

TIMEOUT = 180  # seconds to wait for a process; the first process may have to compile the kernels
COMMAND = [sys.executable, "-m", "imondrian"]


@pytest.fixture(scope="session")
def table_text():
    """A table of 400 rows around zero: row number, name, a, b, c; rows 100 (in b) and 300 (in c) are outliers."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(400, 3))
    points[99, 1] = 15.0
    points[299, 2] = -15.0
    lines = [f"{i + 1},n{i},{a:.6f},{b:.6f},{c:.6f}" for i, (a, b, c) in enumerate(points)]
    return "\n".join(["id,name,a,b,c", *lines]) + "\n"


class ForkingProcess:
    """Runs commands in forks of a process that has loaded everything; see `forking.py`."""

    def __init__(self):
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(TIMEOUT)
        program = [sys.executable, "-m", "tests.cli.forking", str(theirs.fileno())]
        self._process = subprocess.Popen(
            program, cwd=Path(__file__).parents[2], stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
        )
        theirs.close()
        self._threads = ThreadPoolExecutor(3)

    def run(self, folder, arguments, stdin):
        """Run a command; return its exit code, and what it wrote to standard output and standard error."""
        ours, theirs = zip(*(os.pipe()[:: 1 if i else -1] for i in range(3)), strict=True)
        socket.send_fds(self._control, [json.dumps([str(folder), *arguments]).encode()], theirs)
        for stream in theirs:
            os.close(stream)
        written = self._threads.submit(_write_all, ours[0], stdin)
        output, errors = self._threads.map(_read_all, ours[1:])
        written.result()
        return int(self._control.recv(64)), output, errors

    def close(self):
        self._control.close()
        self._process.wait(TIMEOUT)
        self._threads.shutdown()


def _write_all(stream, content):
    with open(stream, "wb") as file, suppress(BrokenPipeError):  # noqa: PTH123
        file.write(content)


def _read_all(stream):
    with open(stream, "rb") as file:  # noqa: PTH123
        return file.read()


@cache
def forking_process():
    return ForkingProcess()


def pytest_sessionfinish():
    if forking_process.cache_info().currsize:
        forking_process().close()


class Shell:
    """Runs commands in a folder."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, *arguments, stdin=None, check=0):
        is_text = not isinstance(stdin, bytes)
        content = (stdin or "").encode() if is_text else stdin
        arguments = [str(argument) for argument in arguments]
        code, *streams = forking_process().run(self.folder, arguments, content)
        if is_text:
            streams = [io.TextIOWrapper(io.BytesIO(stream)).read() for stream in streams]  # with universal newlines
        done = subprocess.CompletedProcess(arguments, code, *streams)
        assert done.returncode == check, done.stderr
        return done

    def start(self, *arguments, **streams):
        return subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            cwd=self.folder,
            stdin=streams.get("stdin", subprocess.PIPE),
            stdout=streams.get("stdout", subprocess.PIPE),
            stderr=streams.get("stderr", subprocess.PIPE),
            env={**os.environ, "PYTHONUNBUFFERED": ""},
        )

    def fails(self, *arguments, stdin=None):
        """Run a command that must fail with exit code 2 and leave no files; return its one-line message."""
        before = sorted(os.listdir(self.folder))  # noqa: PTH208
        done = self.run(*arguments, stdin=stdin, check=2)
        assert "Traceback" not in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        assert sorted(os.listdir(self.folder)) == before  # noqa: PTH208
        return done.stderr

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return name

    def text(self, name):
        return (self.folder / name).read_text()


@pytest.fixture
def shell(tmp_path, table_text):
    shell = Shell(tmp_path)
    shell.write("data.csv", table_text)
    return shell


@pytest.fixture(scope="session")
def fitted(tmp_path_factory, table_text):
    """A folder with data.csv and a model file fitted on it; tests must not change it."""
    shell = Shell(tmp_path_factory.mktemp("fitted"))
    shell.write("data.csv", table_text)
    shell.run("fit", "data.csv", "--save", "model.imf", "--threshold", "0.01")
    return shell

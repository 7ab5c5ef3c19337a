"""Fixtures that run the command line in a separate process, in a temporary folder."""

import os
import subprocess
import sys

import numpy as np
import pytest

TIMEOUT = 180  # seconds to wait for a process; the first process may have to compile the kernels
COMMAND = [sys.executable, "-m", "imondrian"]


@pytest.fixture(scope="session")
def table_text():
    """A table of 400 rows around zero with two outliers, rows 100 (in b) and 300 (in c), row numbers and ids."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(400, 3))
    points[99, 1] = 15.0
    points[299, 2] = -15.0
    lines = [f"{i + 1},n{i},{a:.6f},{b:.6f},{c:.6f}" for i, (a, b, c) in enumerate(points)]
    return "\n".join(["id,name,a,b,c", *lines]) + "\n"


class Shell:
    """Runs commands in a folder."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, *arguments, stdin=None, check=0):
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT,
            text=not isinstance(stdin, bytes),
            check=False,
        )
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
    """A read-only folder with data.csv and a model file fitted on it."""
    shell = Shell(tmp_path_factory.mktemp("fitted"))
    shell.write("data.csv", table_text)
    shell.run("fit", "data.csv", "--save", "model.imf", "--threshold", "0.01")
    return shell

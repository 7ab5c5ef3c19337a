"""Signals end a command cleanly: a file is the old one or the new one, and temporary files are removed."""

import os
import signal
import subprocess
import sys

import pytest

from tests.cli.conftest import TIMEOUT
from tests.service.serving import Service

WRITING = """
import os, signal, sys
import imondrian.cli.commands.info as info
import imondrian.base.files as files
from imondrian.cli.app import main

def send(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)

def write_file(path, console_options):
    with files.atomic_write(path) as file:
        file.write(b"new")
        {inside}

{before}
info.info = write_file
sys.argv = ["imondrian", "info", "out.txt"]
main()
"""
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def run_and_interrupt(folder, inside="pass", before="", by="exec"):
    """Run a command that writes a file and sends itself signals; return exit code, standard error and the file."""
    (folder / "out.txt").write_text("old")
    program = WRITING.format(inside=inside, before=before)
    done = subprocess.run(
        ["bash", "-c", f'{by} "$0" -c "$1"', sys.executable, program],
        cwd=folder,
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert os.listdir(folder) == ["out.txt"], done.stderr  # noqa: PTH208
    return done.returncode, done.stderr, (folder / "out.txt").read_text()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_leaves_the_old_file_and_no_temporary_file(tmp_path, number):
    assert run_and_interrupt(tmp_path, f"send({number})") == (128 + number, b"imondrian: interrupted\n", "old")


@pytest.mark.parametrize("number", SIGNALS)
def test_more_signals_do_not_interrupt_the_cleanup(tmp_path, number):
    again = f"""
unlink = files.Path.unlink
files.Path.unlink = lambda path: (send({signal.SIGHUP:d}, {signal.SIGTERM:d}, {signal.SIGINT:d}), unlink(path))
"""
    assert run_and_interrupt(tmp_path, f"send({number})", again) == (128 + number, b"imondrian: interrupted\n", "old")


LOST = """
import gc, weakref

class Referenced:
    pass

def send_in_callback(number):
    referenced = Referenced()
    reference = weakref.ref(referenced, lambda _: send(number))
    del referenced  # the callback is called here, and Python drops the exception that the signal raises
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_whose_exception_is_dropped_by_python_ends_the_command(tmp_path, number):
    code, errors, _ = run_and_interrupt(tmp_path, f"send_in_callback({number})", LOST)
    assert code == 128 + number
    assert errors.startswith(b"Exception ignored in")
    assert errors.endswith(b"imondrian: interrupted\n")


def test_a_long_command_ends_soon_if_python_drops_the_exception_of_a_signal(tmp_path):
    """And the file is not replaced."""
    slow = f"send_in_callback({signal.SIGINT:d})\n        import time; time.sleep(60)"
    code, errors, content = run_and_interrupt(tmp_path, slow, LOST)
    assert (code, content) == (128 + signal.SIGINT, "old")
    assert errors.endswith(b"imondrian: interrupted\n")


def test_a_cleanup_that_takes_long_is_not_interrupted(tmp_path):
    slow = """
import time
unlink = files.Path.unlink
files.Path.unlink = lambda path: (time.sleep(1), unlink(path))
"""
    assert run_and_interrupt(tmp_path, f"send({signal.SIGINT:d})", slow)[0] == 128 + signal.SIGINT


def test_a_signal_whose_exception_is_dropped_ends_a_service_that_starts(tmp_path):
    serve = """
from imondrian.cli.commands.serve import serve
info.info = lambda path, console_options: serve(path, "127.0.0.1", 0, None)
send_in_callback(signal.SIGTERM)
"""
    program = WRITING.format(inside="pass", before=LOST).replace("\nmain()", "\nraise_on_signals()" + serve + "main()")
    program = program.replace("info.info = write_file\n", "from imondrian.cli.signals import raise_on_signals\n")
    (tmp_path / "out.txt").write_text("a file, not a folder")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 128 + signal.SIGTERM, done.stderr


def test_a_signal_just_after_the_temporary_file_was_created_leaves_no_file(tmp_path):
    patch = f"""
real_open = os.open
def open_and_send(path, flags, *mode):
    descriptor = real_open(path, flags, *mode)
    if flags & os.O_EXCL:
        send({signal.SIGTERM:d})
    return descriptor
os.open = open_and_send
"""
    assert run_and_interrupt(tmp_path, before=patch) == (128 + signal.SIGTERM, b"imondrian: interrupted\n", "old")


def test_an_ignored_hangup_stays_ignored(tmp_path):
    assert run_and_interrupt(tmp_path, f"send({signal.SIGHUP:d})", by="trap '' HUP; exec") == (0, b"", "new")


def test_a_hangup_ends_a_service_like_sigterm(tmp_path):
    service = Service(tmp_path / "data").start()
    service.process.send_signal(signal.SIGHUP)
    output, _ = service.process.communicate(timeout=TIMEOUT)
    assert service.process.returncode == 0, output
    assert "Traceback" not in output

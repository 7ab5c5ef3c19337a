"""A progress bar appears on a terminal if the work takes more than a second, but not with --quiet."""

import logging
import os
import pty
import select
import sys
import time

import pytest

from imondrian.cli.console import Console
from imondrian.cli.options import ConsoleOptions
from tests.cli.conftest import TIMEOUT

BAR = b"scoring standard input"
N_FIRST = 10_000  # bytes; the format is decided after 8 KiB


def shown_on_terminal(fitted, *options, timeout):
    """Score rows on a terminal, some of them only once a bar is shown; return everything shown on the terminal."""
    terminal, process_side = pty.openpty()
    process = fitted.start("score", "model.imf", "-", *options, stderr=process_side)
    os.close(process_side)
    text = fitted.text("data.csv").encode()
    process.stdin.write(text[:N_FIRST])
    process.stdin.flush()
    shown = b""
    deadline = time.monotonic() + timeout
    while BAR not in shown and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 10_000)
    process.stdin.write(text[N_FIRST:])
    process.stdin.close()
    assert process.stdout.read().count(b"\n") == 401
    assert process.wait(TIMEOUT) == 0
    process.stdout.close()
    while select.select([terminal], [], [], 0.1)[0]:
        try:
            shown += os.read(terminal, 10_000)
        except OSError:  # the other end is closed
            break
    os.close(terminal)
    return shown


def test_a_progress_bar_appears_on_a_terminal_and_the_summary_after_it(fitted):
    shown = shown_on_terminal(fitted, timeout=TIMEOUT)
    assert BAR in shown
    assert b"400" in shown


def test_quiet_shows_no_progress_bar(fitted):
    assert shown_on_terminal(fitted, "--quiet", timeout=6) == b""


@pytest.mark.parametrize("options", [ConsoleOptions(), ConsoleOptions(quiet=True), ConsoleOptions(as_json=True)])
@pytest.mark.parametrize("is_terminal", [False, True])
def test_compilation_is_announced_once_on_a_terminal(monkeypatch, capsys, options, is_terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    logger = logging.getLogger("imondrian.compilation")
    monkeypatch.setattr(logger, "handlers", [])
    Console(options)
    for name in ("build", "score"):
        logger.info("Compiling %s.", name)
    n_notes = int(is_terminal and not options.quiet and not options.as_json)
    assert capsys.readouterr().err.count("compiling for this processor") == n_notes

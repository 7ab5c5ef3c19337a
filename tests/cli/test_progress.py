"""A progress bar appears on a terminal if the work takes more than a second, but not with --quiet."""

import os
import pty
import select
import time

from tests.cli.conftest import PATIENCE

BAR = b"scoring standard input"


def shown_on_terminal(fitted, *options, patience):
    """Score rows on a terminal, some of them only after a bar is shown; return everything on the terminal."""
    ours, theirs = pty.openpty()
    process = fitted.start("score", "model.imf", "-", *options, stderr=theirs)
    os.close(theirs)
    text = fitted.text("data.csv").encode()
    process.stdin.write(text[:5000])
    process.stdin.flush()
    shown = b""
    deadline = time.monotonic() + patience
    while BAR not in shown and time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            shown += os.read(ours, 10_000)
    process.stdin.write(text[5000:])
    process.stdin.close()
    assert process.stdout.read().count(b"\n") == 401
    assert process.wait(PATIENCE) == 0
    process.stdout.close()
    while select.select([ours], [], [], 0.1)[0]:
        try:
            shown += os.read(ours, 10_000)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    return shown


def test_a_bar_appears_on_a_terminal_and_the_summary_after_it(fitted):
    shown = shown_on_terminal(fitted, patience=PATIENCE)
    assert BAR in shown
    assert b"400" in shown


def test_no_bar_is_shown_with_quiet(fitted):
    assert shown_on_terminal(fitted, "--quiet", patience=6) == b""

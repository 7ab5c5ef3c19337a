"""`imondrian watch --exec`: every opening and closing reaches the command, in order; one that fails stops nothing."""

import json
import os
import signal
import threading
import time

import numpy as np
import pytest

from imondrian import InvalidInputError
from imondrian.cli.console import Console
from imondrian.cli.options import ConsoleOptions
from imondrian.cli.watch.event_commands import EventCommands, parse_command
from tests.cli.conftest import TIMEOUT

SETTINGS = (
    "--window",
    "128",
    "--trees",
    "20",
    "--samples",
    "32",
    "--threshold",
    "score 0.8",
    "--gap",
    "4",
    "--incidents",
)
N_INCIDENTS = 3


def spikes(n_incidents=N_INCIDENTS):
    """Rows with two spikes every 40 rows, alternately high and low and growing; the last incident stays open."""
    values = np.random.default_rng(5).normal(size=100 + 40 * n_incidents)
    for last in (38, 39):
        values[100 + 40 * np.arange(n_incidents) + last] = 30.0 * (-10.0) ** np.arange(n_incidents) + last
    return "".join(f'{{"a": {value}}}\n' for value in values.tolist())


def numbers_and_events(text):
    return [(line["incident"], line["event"]) for line in map(json.loads, text.splitlines())]


EXPECTED = [(number, event) for number in range(N_INCIDENTS) for event in ("opened", "closed")][:-1]


def test_the_command_receives_each_incident_in_order(shell):
    command = "sh -c 'cat >> got.ndjson; echo $IMONDRIAN_KIND $IMONDRIAN_EVENT $IMONDRIAN_INCIDENT | tee -a names.txt'"
    done = shell.run("watch", *SETTINGS, "--exec", command, stdin=spikes())
    assert numbers_and_events(done.stdout) == EXPECTED
    assert shell.text("got.ndjson") == done.stdout
    assert shell.text("names.txt") == "".join(f"anomalies {event} {number}\n" for number, event in EXPECTED)
    assert "anomalies opened 2\n" in done.stderr  # the output of the command
    assert f"{N_INCIDENTS} incidents, 0 of 5 commands failed; incident 2 has been open since row 220\n" in done.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("sh -c 'exit 3'", "the command ended with exit code 3."),
        ("sh -c 'kill -9 $$'", "the command was ended by signal 9."),
        ("sh -c 'echo $$ >> pids; sleep 1000'", "the command took longer than 0.5 s and was killed."),
        ("./removed", "the command could not be run: "),
    ],
)
def test_a_command_that_fails_is_reported_and_counted(shell, command, message):
    program = shell.folder / "removed"
    program.write_text("#!/bin/sh\nrm -- $0\nexit 1\n")
    program.chmod(0o755)
    done = shell.run("watch", *SETTINGS, "--exec", command, "--exec-timeout", "0.5", stdin=spikes())
    assert numbers_and_events(done.stdout) == EXPECTED  # the stream goes on
    assert f"imondrian: --exec, incident 2 (anomalies) opened: {message}" in done.stderr
    assert "5 of 5 commands failed" in done.stderr
    pids = shell.folder / "pids"
    assert all(has_ended(int(pid)) for pid in pids.read_text().split()) if pids.exists() else True


def has_ended(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_nothing_is_lost_if_commands_are_slower_than_the_stream(shell):
    n_incidents = 20  # more events than can be pending
    done = shell.run("watch", *SETTINGS, "--exec", "sh -c 'sleep 0.05; cat >> got.ndjson'", stdin=spikes(n_incidents))
    assert len(done.stdout.splitlines()) == 2 * n_incidents - 1
    assert shell.text("got.ndjson") == done.stdout


def test_commands_that_do_not_read_the_incident_are_no_failure(shell):
    done = shell.run("watch", *SETTINGS, "--exec", "true", stdin=spikes())
    assert "0 of 5 commands failed" in done.stderr


class Running:
    """A process that watches rows, with commands that wait until a file exists."""

    def __init__(self, shell, *options):
        command = "sh -c 'echo $$ >> pids; until test -e go; do sleep 0.05; done; cat >> got.ndjson'"
        self.shell = shell
        self.process = shell.start("watch", *SETTINGS, "--model", "state.imf", "--exec", command, *options)
        self.limit = threading.Timer(TIMEOUT, self.process.kill)
        self.limit.start()
        self.process.stdin.write(spikes().encode())
        self.process.stdin.flush()
        self.lines = [self.process.stdout.readline().decode() for _ in EXPECTED]  # reading goes on meanwhile
        wait_for(shell.folder / "pids")

    def end(self):
        """Return exit code, further output and standard error."""
        output, errors = self.process.communicate(timeout=TIMEOUT)
        self.limit.cancel()
        return self.process.returncode, output.decode(), errors.decode()


def wait_for(path):
    deadline = time.monotonic() + TIMEOUT
    while not (path.exists() and path.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)


def test_pending_commands_are_waited_for_after_a_signal(shell):
    running = Running(shell)
    running.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    (shell.folder / "go").touch()
    code, output, errors = running.end()
    assert (code, output) == (0, "")
    assert shell.text("got.ndjson") == "".join(running.lines)
    assert "0 of 5 commands failed" in errors
    assert (shell.folder / "state.imf").exists()


def test_commands_that_never_end_do_not_keep_the_stream_from_ending(shell):
    running = Running(shell, "--exec-timeout", "2")
    running.process.send_signal(signal.SIGINT)
    code, output, errors = running.end()
    assert (code, output) == (0, "")
    assert "took longer than" in errors
    not_run = [line for line in errors.splitlines() if "was not run, because the stream was ended: " in line]
    assert json.loads(not_run[-1].partition("was ended: ")[2]) == json.loads(running.lines[-1])  # it is not lost
    assert "5 of 5 commands failed" in errors
    assert all(has_ended(int(pid)) for pid in shell.text("pids").split())


def test_a_second_signal_ends_the_program_and_the_command(shell):
    running = Running(shell)
    running.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    running.process.send_signal(signal.SIGTERM)
    code, output, errors = running.end()
    assert (code, output) == (128 + signal.SIGTERM, "")
    assert "interrupted" in errors
    assert has_ended(int(shell.text("pids").split()[0]))
    assert (shell.folder / "state.imf").exists()


def test_a_saved_detector_has_no_pending_commands(shell):
    """After a crash, rows since the last save are read again, so their incidents are reported again."""
    (shell.folder / "log.ndjson").write_text(spikes())
    options = ("--follow", "log.ndjson", "--model", "state.imf", "--save-every", "1")
    command = "sh -c 'echo $$ >> pids; exec sleep 1000'"
    process = shell.start("watch", *SETTINGS, *options, "--exec", command)
    wait_for(shell.folder / "pids")
    process.kill()  # like a power failure, except that the command goes on
    os.kill(int(shell.text("pids").split()[0]), signal.SIGKILL)
    process.communicate(timeout=TIMEOUT)
    process = shell.start("watch", *SETTINGS, *options, "--exec", "sh -c 'cat >> got.ndjson'")
    lines = [process.stdout.readline().decode() for _ in EXPECTED]
    process.terminate()
    process.communicate(timeout=TIMEOUT)
    assert numbers_and_events("".join(lines)) == EXPECTED  # under the same numbers
    assert shell.text("got.ndjson") == "".join(lines)


def test_a_command_is_split_into_words_as_in_a_shell():
    assert parse_command("sh -c 'a b' \"c d\" e\\ f") == ["sh", "-c", "a b", "c d", "e f"]
    for text in ("", "  ", "'", "sh\0", "no-such-program-here", "/"):
        with pytest.raises(InvalidInputError, match="--exec"):
            parse_command(text)


def test_a_long_line_reaches_a_command_that_reads_it_late(capfd):
    line = json.dumps({"text": "x" * 1_000_000})
    event = {"kind": "anomalies", "event": "opened", "incident": 0}
    with EventCommands(["sh", "-c", "sleep 0.2; wc -c"], 60.0, Console(ConsoleOptions())) as commands:
        commands.put(event, line)
    assert (commands.n_events, commands.n_failed) == (1, 0)
    with EventCommands(["true"], 60.0, Console(ConsoleOptions())) as commands:
        commands.put(event, line)
    assert commands.n_failed == 0
    assert capfd.readouterr().err.strip() == str(len(line))

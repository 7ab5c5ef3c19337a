"""Commands that are run when an incident opens or closes: one after the other, while the stream is read."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from queue import Full, Queue
from types import TracebackType
from typing import Any, NamedTuple, Self

from imondrian.base.errors import InvalidInputError
from imondrian.cli.console import Console

_MAX_PENDING = 16  # events in the queue; while it is full, the stream is not read
_SIGNAL_SECONDS = 0.5  # longest time until a signal is noticed
_KILL_SECONDS = 5.0  # how long to wait for a killed process to end


class _Event(NamedTuple):
    """An incident that opens or closes."""

    line: str  # the event as a line of NDJSON
    variables: dict[str, str]  # environment variables of the command
    title: str  # the name of the event in messages


def parse_command(text: str) -> list[str]:
    """Split a command into words like a shell; raise InvalidInputError if it is malformed, empty or unknown."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidInputError(f"--exec {text!r:.200}: {error}.") from None
    if not words:
        raise InvalidInputError("--exec needs a command, but is empty.")
    if "\0" in text or shutil.which(words[0]) is None:
        raise InvalidInputError(f"--exec: there is no program {words[0]!r:.200}.")
    return words


class EventCommands:
    """Runs a command for each event, in a separate thread; the end of a `with` block waits for pending commands.

    A command that fails is reported on standard error and counted; the stream goes on.

    Parameters
    ----------
    words : list of str
        The program and its arguments.
    timeout : float
        Seconds after which a command is killed, with all processes of its process group.
    console : Console
        Where to report commands that failed.
    """

    def __init__(self, words: list[str], timeout: float, console: Console) -> None:
        self._words = words
        self._timeout = timeout
        self._console = console
        self._queue: Queue[_Event] = Queue(_MAX_PENDING)
        self._deadline = float("inf")  # a command is killed at this time at the latest; none is started after it
        self._process: subprocess.Popen[str] | None = None
        self.n_events = self.n_failed = 0
        threading.Thread(target=self._run_all, daemon=True).start()

    def put(self, event: dict[str, Any], line: str, key: str = "") -> None:
        """Queue the command for an event; wait while the queue is full. With --by, `key` names the detector."""
        self.n_events += 1
        kind, name, number = (str(event[field]) for field in ("kind", "event", "incident"))
        variables = {"IMONDRIAN_KIND": kind, "IMONDRIAN_EVENT": name, "IMONDRIAN_INCIDENT": number}
        of_key = f" of {key}" if key else ""
        pending = _Event(line, variables, f"--exec, incident {number}{of_key} ({kind}) {name}")
        while True:
            with suppress(Full):
                self._queue.put(pending, timeout=_SIGNAL_SECONDS)
                return

    def wait(self) -> None:
        """Wait until no command is pending."""
        with self._queue.all_tasks_done:
            while self._queue.unfinished_tasks:
                self._queue.all_tasks_done.wait(_SIGNAL_SECONDS)

    def stop(self) -> None:
        """Give all pending commands together at most `timeout` more seconds; safe in a signal handler."""
        self._deadline = min(self._deadline, time.monotonic() + self._timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Wait for pending commands; kill the running one if the program is to end immediately."""
        try:
            if kind is None or issubclass(kind, Exception):
                self.wait()
                return
        except BaseException:
            self._kill_now()
            raise
        self._kill_now()

    def _kill_now(self) -> None:
        self._deadline = 0.0
        process = self._process
        if process is not None and process.returncode is None:
            _kill(process)

    def _run_all(self) -> None:
        while True:
            event = self._queue.get()
            failure = self._run(event)
            if failure:
                self.n_failed += 1
                self._console.warn(f"{event.title}: {failure}")
            self._queue.task_done()

    def _run(self, event: _Event) -> str:
        """Run the command; return what went wrong, or "" if nothing did."""
        seconds = min(self._timeout, self._deadline - time.monotonic())
        if seconds <= 0.0:
            return f"the command was not run, because the stream was ended: {event.line.rstrip()}"
        try:
            process = self._process = subprocess.Popen(  # noqa: S603 (the user's own command)
                self._words,
                stdin=subprocess.PIPE,
                stdout=sys.stderr.fileno(),
                env={**os.environ, **event.variables},
                start_new_session=True,  # so Ctrl+C does not end the command, and its children can be killed with it
                text=True,
                encoding="utf-8",
            )
            process.communicate(event.line, timeout=seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            return f"the command took longer than {seconds:.3g} s and was killed."
        except OSError as error:
            return f"the command could not be run: {error}."
        finally:
            self._process = None
        if process.returncode < 0:
            return f"the command was ended by signal {-process.returncode}."
        return f"the command ended with exit code {process.returncode}." if process.returncode else ""


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and those that it has started, unless they have left its process group."""
    with suppress(OSError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(_KILL_SECONDS)

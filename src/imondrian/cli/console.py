"""What a command says: results on standard output, notes and progress on standard error."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from imondrian.cli.settings import Telling

_PATIENCE = 1.0  # seconds before a progress bar appears
_WIDTH = 160  # of lines that do not go to a terminal
Progress = Callable[[float], None]  # is told the share that is done


class Console:
    """Says as much as it was asked to; the result to standard error where standard output is for the table."""

    def __init__(self, telling: Telling, table: str | None = None) -> None:
        self._telling = telling
        self._results = sys.stderr if table == "-" else sys.stdout

    def note(self, text: str) -> None:
        """Say something about the work, to a person."""
        if not self._telling.quiet and not self._telling.as_json:
            complain(text)

    def warn(self, text: str) -> None:
        """Say that something may be lost or wrong, also to those who asked for errors only."""
        complain(f"imondrian: {text}")

    def tell(self, as_json: dict[str, Any], print_on: Callable[[Any], None]) -> None:
        """Tell the result: as JSON, or by a function that prints on a console of rich."""
        if self._telling.as_json:
            self._results.write(json.dumps(as_json, allow_nan=False) + "\n")
        elif not self._telling.quiet:
            print_on(_rich_console(self._results))
        self._results.flush()

    @contextmanager
    def progress(self, doing: str) -> Iterator[Progress]:
        """Give a function that is told how far the work is; a bar appears after a second, and on a terminal only."""
        if self._telling.quiet or not sys.stderr.isatty():
            yield lambda _share: None
            return
        bar = _Bar(doing)
        try:
            yield bar.show
        finally:
            bar.close()


def _rich_console(file: TextIO) -> Any:
    from rich.console import Console as RichConsole

    class PlainConsole(RichConsole):
        """A console that leaves it to its caller what it means that nobody reads on."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    width = None if file.isatty() else _WIDTH
    return PlainConsole(file=file, width=width, highlight=False, soft_wrap=True, emoji=False)


def complain(text: str) -> None:
    """Write a line to standard error; that nobody reads it, since the terminal was closed, is not an error."""
    try:
        sys.stderr.write(f"{printable(text)}\n")
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Let everything that is still written to a stream vanish: nobody reads it any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def printable(text: str) -> str:
    """Write out what is no letter: text from outside must not steer a terminal."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


class _Bar:
    """A progress bar that appears when its time has come."""

    def __init__(self, doing: str) -> None:
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=RichConsole(stderr=True), transient=True)
        self._task = self._bar.add_task(printable(doing), total=None)
        self._timer = threading.Timer(_PATIENCE, self._bar.start)
        self._timer.daemon = True
        self._timer.start()

    def show(self, share: float) -> None:
        """Show how much is done; none: that it cannot be known."""
        self._bar.update(self._task, completed=share, total=1.0 if share > 0.0 else None)

    def close(self) -> None:
        """Take the bar away."""
        self._timer.cancel()
        self._timer.join()
        self._bar.stop()

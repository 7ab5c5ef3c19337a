"""Console output: results on standard output, notes and progress on standard error."""

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from imondrian.cli.options import ConsoleOptions

_COMPILATION = "imondrian.compilation"  # name of the logger to which the engine reports that it compiles a kernel
_BAR_DELAY = 1.0  # seconds before a progress bar appears
_WIDTH = 160  # characters per line, if the output is not a terminal
Progress = Callable[[float], None]  # called with the share of the work that is done


class Console:
    """Prints results and notes; results go to standard error if the output file is "-" (standard output)."""

    def __init__(self, options: ConsoleOptions, output: str | None = None) -> None:
        self._options = options
        self._results = sys.stderr if output == "-" else sys.stdout
        if sys.stderr.isatty() and not options.quiet and not options.as_json:
            _announce_compilation()

    def note(self, text: str) -> None:
        """Print a note for a person; nothing with --quiet or --json."""
        if not self._options.quiet and not self._options.as_json:
            print_to_stderr(text)

    def warn(self, text: str) -> None:
        """Print a warning that something may be lost or wrong, even with --quiet."""
        print_to_stderr(f"imondrian: {text}")

    def print_result(self, as_json: dict[str, Any], print_on: Callable[[Any], None]) -> None:
        """Print the result: as JSON with --json, otherwise by calling `print_on` with a rich console.

        With --quiet and without --json, print nothing.
        """
        if self._options.as_json:
            self._results.write(json.dumps(as_json, allow_nan=False) + "\n")
        elif not self._options.quiet:
            print_on(_rich_console(self._results))
        self._results.flush()

    @contextmanager
    def progress(self, title: str) -> Iterator[Progress]:
        """Return a context manager that yields a function to report progress.

        A progress bar appears after a second, and only on a terminal.
        """
        if self._options.quiet or not sys.stderr.isatty():
            yield lambda _share: None
            return
        bar = _Bar(title)
        try:
            yield bar.show
        finally:
            bar.close()


def print_to_stderr(text: str) -> None:
    """Print a line to standard error; ignore an error if the terminal was closed."""
    try:
        sys.stderr.write(f"{printable(text)}\n")
        sys.stderr.flush()
    except OSError:
        discard_output(sys.stderr)


class _CompilationNote(logging.Handler):
    """Prints one line when the first kernel is compiled, which takes a while."""

    def emit(self, _record: logging.LogRecord) -> None:
        logging.getLogger(_COMPILATION).removeHandler(self)
        print_to_stderr("compiling for this processor; only necessary after an installation or an upgrade ...")


def _announce_compilation() -> None:
    """Print a note when a kernel is compiled, so that a person at a terminal knows why the command takes longer."""
    logger = logging.getLogger(_COMPILATION)
    logger.addHandler(_CompilationNote())
    logger.setLevel(logging.INFO)


def discard_output(stream: TextIO) -> None:
    """Redirect a stream to the null device, because nobody reads it any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def printable(text: str) -> str:
    """Escape control characters, so that text from outside cannot control a terminal."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def print_facts(facts: dict[str, str], console: Any) -> None:
    """Print each name with its text; names without a text are left out."""
    for name, text in facts.items():
        if text:
            console.print(f"  {name:<10} {escaped(text)}")


def escaped(text: str) -> str:
    """Escape control characters and rich markup in text from outside."""
    from rich.markup import escape

    return escape(printable(text))


def _rich_console(file: TextIO) -> Any:
    from rich.console import Console as RichConsole

    class PlainConsole(RichConsole):
        """A console that raises BrokenPipeError instead of ending the program."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    width = None if file.isatty() else _WIDTH
    return PlainConsole(file=file, width=width, highlight=False, soft_wrap=True, emoji=False)


class _Bar:
    """A progress bar that appears after a delay."""

    def __init__(self, title: str) -> None:
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=RichConsole(stderr=True), transient=True)
        self._task = self._bar.add_task(printable(title), total=None)
        self._timer = threading.Timer(_BAR_DELAY, self._bar.start)
        self._timer.daemon = True
        self._timer.start()

    def show(self, share: float) -> None:
        """Show the share that is done; 0: unknown."""
        self._bar.update(self._task, completed=share, total=1.0 if share > 0.0 else None)

    def close(self) -> None:
        """Remove the bar."""
        self._timer.cancel()
        self._timer.join()
        self._bar.stop()

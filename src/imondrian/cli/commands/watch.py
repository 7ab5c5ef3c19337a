"""`imondrian watch`: a stream in, the same stream out with scores, one line for one line."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imondrian.cli.console import Console
from imondrian.cli.detectors import Keeper
from imondrian.cli.forests import checked_jobs
from imondrian.cli.outputs import check_place
from imondrian.cli.settings import Choice, Detecting, Source, Telling, Watching
from imondrian.cli.watcher import Watcher
from imondrian.errors import InvalidInputError
from imondrian.tables.formats import without_mark
from imondrian.tables.lines import Lines
from imondrian.tables.records import Parser, parser_for


def run(source: Source, choice: Choice, detecting: Detecting, watching: Watching, telling: Telling) -> bool:
    """Watch a stream until it ends or a signal comes; tell whether there were anomalies."""
    _check(source, watching)
    checked_jobs(watching.jobs)
    console = Console(telling, table="-")
    keeper = Keeper(watching, detecting, console)
    watcher = Watcher(keeper, choice, watching, console)
    source = source._replace(path=watching.follow or source.path)
    with _opened(source) as descriptor:
        lines = Lines(descriptor, follow=watching.follow is not None)
        if watching.follow:
            watcher.pass_by(_n_already_seen(source, keeper, console))
        with _stopped_by_signals(lines):
            try:
                _watch(lines, source, watcher)
            except BrokenPipeError:  # nobody reads on: nothing more can be said
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            finally:
                keeper.save()
    watcher.sum_up()
    return watcher.n_anomalies > 0


def _check(source: Source, watching: Watching) -> None:
    check_place(watching.model, (".imf",))
    if watching.follow is not None and source.path != "-":
        raise InvalidInputError(f"Either {source.path} is read or {watching.follow} is followed, not both.")
    if watching.save_every is not None and watching.model is None:
        raise InvalidInputError("--save-every needs --model, the file to save in.")


def _watch(lines: Lines, source: Source, watcher: Watcher) -> None:
    parser: Parser | None = None
    header: bytes | None = None
    for batch in lines.batches():
        rows = [line for line in batch if line.strip()]
        if parser is None and rows:
            parser, is_header = _parser(rows[0], source)
            header = without_mark(rows[0]) if is_header else None
        rows = [line for line in rows if without_mark(line) != header]  # a file that begins anew has it again
        if parser is not None and rows:
            watcher.take(rows, parser)


def _parser(first: bytes, source: Source) -> tuple[Parser, bool]:
    return parser_for(first.rstrip(b"\r\n"), source.format, source.separator, has_header=not source.no_header)


@contextmanager
def _opened(source: Source) -> Iterator[int]:
    if source.path == "-":
        yield sys.stdin.fileno()
        return
    if not Path(source.path).exists():
        raise InvalidInputError(f"{source.path}: there is no such file.")
    with Path(source.path).open("rb", buffering=0) as file:
        yield file.fileno()


def _n_already_seen(source: Source, keeper: Keeper, console: Console) -> int:
    """Tell how many rows of a file that is followed are known to a detector that goes on."""
    if not keeper.is_resumed:
        return 0
    with Path(source.path).open("rb") as file:
        rows = (line for line in file if line.strip())
        n_rows = int(not _parser(next(rows, b"{"), source)[1]) + sum(1 for _ in rows)
    if n_rows < keeper.n_seen:
        console.note(f"{source.path} has fewer rows than have been seen, {keeper.n_seen}: it is read from its start.")
        return 0
    console.note(f"{source.path}: goes on after row {keeper.n_seen}.")
    return keeper.n_seen


@contextmanager
def _stopped_by_signals(lines: Lines) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM end the stream; a second one ends the program as usual."""

    def stop(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        lines.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

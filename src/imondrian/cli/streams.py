"""Streams to watch: standard input, a file, or a file that is followed, from where it was left."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from imondrian.cli.console import Console
from imondrian.cli.places import Place, bytes_before, find, place_after
from imondrian.cli.settings import Source, Watching
from imondrian.errors import InvalidInputError
from imondrian.tables.following import FollowedFile
from imondrian.tables.formats import format_by_name, without_mark
from imondrian.tables.lines import Batch, Lines, Pipe, Restart
from imondrian.tables.records import CsvParser, Parser, parser_for


class Some(NamedTuple):
    """Some lines of a stream that are rows."""

    lines: list[bytes]
    parser: Parser  # makes records of them
    place_after: Callable[[int], Place | None]  # so many of them, in a file that is followed


class Stream:
    """Rows of a stream as they come; a header is not a row, also where a file begins again."""

    def __init__(self, source: Source, watching: Watching, place: Place | None, console: Console) -> None:
        self._source = source._replace(path=watching.follow or source.path)
        self._follow = watching.follow is not None
        self._place = place
        self._console = console
        self._parser: Parser | None = None
        self._header: bytes | None = None
        self._is_at_start = True  # of a file: the next line may be a header
        self._lines: Lines | None = None
        self.is_stopped = False

    def stop(self) -> None:
        """End the stream; may be called from a signal handler."""
        self.is_stopped = True
        if self._lines is not None:
            self._lines.stop()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the stream, a file that is followed at the place where it was left."""
        path = self._source.path
        if path == "-":
            self._lines = Lines(Pipe(sys.stdin.fileno()))
            yield
        elif self._follow:
            with self._followed() as self._lines:
                yield
        else:
            _check_there(path)
            with Path(path).open("rb", buffering=0) as file:
                self._lines = Lines(Pipe(file.fileno()))
                yield

    def batches(self) -> Iterator[Some]:
        """Yield the rows as they come, in batches."""
        for batch in () if self._lines is None else self._lines.batches():
            if batch.restart is not None:
                self._begin_file(batch.restart)
            rows = self._rows(batch)
            if self._parser is not None and rows:
                lines = [line for _, line in rows]
                yield Some(lines, self._parser, partial(self._place_after, batch, [i for i, _ in rows]))

    # -- files that are followed ------------------------------------------------------------------------------------

    @contextmanager
    def _followed(self) -> Iterator[Lines]:
        file, position = self._where_to_begin()
        before = bytes_before(file, position)
        descriptor = os.open(file, os.O_RDONLY)
        os.lseek(descriptor, position, os.SEEK_SET)
        followed = FollowedFile(self._source.path, descriptor, before)
        try:
            yield Lines(followed, position, before)
        finally:
            followed.close()

    def _where_to_begin(self) -> tuple[Path, int]:
        """Find the file to begin with, and the position in it."""
        path, place = self._source.path, self._place
        found = None if place is None else find(place, path)
        if place is None or found is None:
            _check_there(path)
            if not Path(path).is_file():
                raise InvalidInputError(f"{path} must be a regular file to be followed.")
        if place is None:
            return Path(path), 0
        if place.header is not None:
            self._learn(place.header.encode())
        if found is None:
            self._console.warn(
                f"{path} is not the file that was followed: it was replaced or cut, and its content is not beside it."
                f" Rows that were added to it since are lost; {path} is read from its start."
            )
            return Path(path), 0
        if found != Path(path):
            self._console.warn(
                f"{path} was replaced or cut since it was followed: the rest of {found} is read first, then {path} from"
                " its start. If it was replaced more than once, the files in between are not read."
            )
        self._learn_from_start_of(found)
        return found, place.position

    def _learn_from_start_of(self, file: Path) -> None:
        """Learn what kind of records these are from the first line, if the place did not tell."""
        self._is_at_start = False
        if self._parser is None:
            with file.open("rb") as lines:
                self._learn(next((line for line in lines if line.strip()), b"").rstrip(b"\r\n"))

    def _begin_file(self, restart: Restart) -> None:
        self._is_at_start = True
        self._console.note(f"{self._source.path} was {restart.value}: it is read from its start.")

    def _place_after(self, batch: Batch, numbers: list[int], n_rows: int) -> Place | None:
        """Return the place after the first rows of a batch, which are the lines with these numbers."""
        if not self._follow:
            return None
        n_lines = len(batch.lines) if n_rows == len(numbers) else numbers[n_rows]
        header = None if self._header is None else self._header.decode()
        return place_after(*batch.after(n_lines), header)

    # -- from lines to rows -----------------------------------------------------------------------------------------

    def _rows(self, batch: Batch) -> list[tuple[int, bytes]]:
        """Return the lines that are rows, with their numbers in the batch."""
        rows = [(i, line) for i, line in enumerate(batch.lines) if line.strip()]
        if rows and self._is_at_start:
            self._is_at_start = False
            first = without_mark(rows[0][1])
            rows[0] = rows[0][0], first
            if self._parser is None or self._is_header(first):
                self._learn(first)
        return [(i, line) for i, line in rows if without_mark(line) != self._header]

    def _is_header(self, line: bytes) -> bool:
        """Return True if the first line of another file is a header, perhaps with other columns or in another order."""
        return self._header is not None and isinstance(self._parser, CsvParser) and self._parser.is_header(line)

    def _learn(self, first: bytes) -> None:
        """Learn from the first line what kind of records these are."""
        source = self._source
        kind = source.format or format_by_name(source.path)
        self._parser, is_header = parser_for(first, kind, source.separator, has_header=not source.no_header)
        self._header = without_mark(first) if is_header else None


def _check_there(path: str) -> None:
    if not Path(path).exists():
        raise InvalidInputError(f"{path}: there is no such file.")

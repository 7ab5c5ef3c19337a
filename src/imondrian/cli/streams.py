"""Streams to watch: standard input, a file, or a file that is followed, from where it was left."""

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from imondrian.cli.console import Console
from imondrian.cli.settings import Source, Watching
from imondrian.errors import InvalidInputError
from imondrian.tables.formats import format_by_name, without_mark
from imondrian.tables.lines import Batch, Lines
from imondrian.tables.records import Parser, parser_for

_KNOWN_BYTES = 256  # before a place, by which it is known again


class Place(NamedTuple):
    """How far a file has been read; what stands just before tells whether it is still that file."""

    position: int
    digest: str


class Stream:
    """Records of a stream as they come; a header is none, also where a file begins anew."""

    def __init__(self, source: Source, watching: Watching, place: Place | None, console: Console) -> None:
        self._source = source._replace(path=watching.follow or source.path)
        self._follow = watching.follow is not None
        self._place = place
        self._console = console
        self._parser: Parser | None = None
        self._header: bytes | None = None
        self._lines: Lines | None = None

    def stop(self) -> None:
        """End the stream; may be called from a signal handler."""
        if self._lines is not None:
            self._lines.stop()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the stream, a file that is followed at the place where it was left."""
        if self._source.path == "-":
            self._lines = Lines(sys.stdin.fileno())
            yield
            return
        with _open(self._source.path, self._follow) as file:
            if self._follow and self._place is not None:
                self._go_on(file, self._place)
            self._lines = Lines(file.fileno(), follow=self._follow, position=file.tell())
            yield

    def batches(self) -> Iterator[tuple[list[bytes], Parser, int]]:
        """Give lines with what turns them into records, and the place behind them."""
        for batch in () if self._lines is None else self._lines.batches():
            rows = self._rows(batch)
            if self._parser is not None and rows:
                yield rows, self._parser, batch.position

    def place(self, position: int) -> Place | None:
        """Make it possible to go on from here; only files that are followed can be gone on with."""
        if not self._follow:
            return None
        with Path(self._source.path).open("rb") as file:
            return Place(position, _digest_before(file, position))

    def _rows(self, batch: Batch) -> list[bytes]:
        rows = [line for line in batch.lines if line.strip()]
        if rows and self._parser is None:
            rows[0] = without_mark(rows[0])
            self._learn(rows[0])
        return [line for line in rows if without_mark(line) != self._header]

    def _learn(self, first: bytes) -> None:
        """Learn from the first line what kind of records these are."""
        source = self._source
        kind = source.format or format_by_name(source.path)
        self._parser, is_header = parser_for(first, kind, source.separator, has_header=not source.no_header)
        self._header = without_mark(first) if is_header else None

    def _go_on(self, file: IO[bytes], place: Place) -> None:
        size = os.fstat(file.fileno()).st_size
        if size < place.position or _digest_before(file, place.position) != place.digest:
            self._console.note(f"{self._source.path} is not what was followed: it is read from its start.")
            file.seek(0)
            return
        file.seek(0)
        first = next((line for line in file if line.strip()), b"")
        self._learn(first.rstrip(b"\r\n"))
        file.seek(place.position)


def _open(path: str, follow: bool) -> Any:  # noqa: FBT001
    if not Path(path).exists():
        raise InvalidInputError(f"{path}: there is no such file.")
    if follow and not Path(path).is_file():
        raise InvalidInputError(f"{path} is no file that can be followed.")
    return Path(path).open("rb", buffering=0)


def _digest_before(file: IO[bytes], position: int) -> str:
    start = max(position - _KNOWN_BYTES, 0)
    file.seek(start)
    return hashlib.sha256(file.read(position - start)).hexdigest()

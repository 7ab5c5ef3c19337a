"""The input of `imondrian watch`: standard input, a file, or a followed file, resumed where reading stopped."""

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from imondrian.base.errors import InvalidInputError
from imondrian.base.files import check_exists
from imondrian.cli.console import Console
from imondrian.cli.options import SourceOptions, WatchOptions
from imondrian.tables.followed_file import FollowedFile
from imondrian.tables.formats import format_by_name, without_byte_order_mark
from imondrian.tables.line_records import CsvParser, Parser, parser_for
from imondrian.tables.lines import CONTEXT_BYTES, LineBatch, Lines, Pipe, Restart

_MAX_POSITION = 2**63 - 1  # the largest position in a file


class FilePosition(NamedTuple):
    """How far a followed file has been read; stored in the model file."""

    position: int
    digest: str  # of the last bytes before the position: identifies the file, even after it is renamed
    header: str | None = None  # the line with the column names, which a later file may lack


PositionAfter = Callable[[int], FilePosition | None]


class StreamBatch(NamedTuple):
    """Consecutive lines of a stream that are rows."""

    lines: list[bytes]
    parser: Parser  # parses them into records
    position_after: PositionAfter  # returns the position in a followed file after the first n lines


class WatchInput:
    """The rows of a stream as they arrive, without the header, which the stream may contain more than once.

    Parameters
    ----------
    source : SourceOptions
        File or standard input, and format.
    options : WatchOptions
        Options of `watch`, including the file to follow, if any.
    position : FilePosition or None
        Where to resume in a followed file.
    console : Console
        Where to print notes and warnings.
    """

    def __init__(
        self, source: SourceOptions, options: WatchOptions, position: FilePosition | None, console: Console
    ) -> None:
        self._source = source._replace(path=options.follow or source.path)
        self._follow = options.follow is not None
        self._position = position
        self._console = console
        self._parser: Parser | None = None
        self._header: bytes | None = None
        # lines equal to it are skipped wherever they are; None: a header is skipped only at the start of a file
        self._repeated_header: bytes | None = None
        self._is_at_start = True  # True: the next line is the first of a file, and may be a header
        self._lines: Lines | None = None
        self.is_stopped = False

    def stop(self) -> None:
        """End the stream; safe in a signal handler."""
        self.is_stopped = True
        if self._lines is not None:
            self._lines.stop()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Return a context manager in which the stream is open."""
        path = self._source.path
        if path == "-":
            self._lines = Lines(Pipe(sys.stdin.fileno()), reports_pauses=True)
            yield
        elif self._follow:
            with self._followed_lines() as self._lines:
                yield
        else:
            check_exists(path)
            with Path(path).open("rb", buffering=0) as file:
                self._lines = Lines(Pipe(file.fileno()), reports_pauses=True)
                yield

    def batches(self) -> Iterator[StreamBatch | None]:
        """Yield batches of rows as they arrive, and None about twice a second while no row arrives."""
        for batch in () if self._lines is None else self._lines.batches():
            if batch.restart is not None:
                self._start_file(batch.restart)
            rows = self._rows(batch)
            if self._parser is not None and rows:
                lines, numbers = [line for _, line in rows], [i for i, _ in rows]
                yield StreamBatch(lines, self._parser, partial(self._position_after, batch, numbers))
            else:
                yield None

    # -- followed files ---------------------------------------------------------------------------------------------

    @contextmanager
    def _followed_lines(self) -> Iterator[Lines]:
        file, position = self._find_start()
        context = _bytes_before(file, position) or b""
        descriptor = os.open(file, os.O_RDONLY)
        os.lseek(descriptor, position, os.SEEK_SET)
        followed = FollowedFile(self._source.path, descriptor, context)
        try:
            yield Lines(followed, position, context, reports_pauses=True)
        finally:
            followed.close()

    def _find_start(self) -> tuple[Path, int]:
        """Return the file to start with, and the position in it."""
        path, stored = self._source.path, self._position
        found = None if stored is None else _find_file(stored, path)
        if stored is None or found is None:
            check_exists(path)
            if not Path(path).is_file():
                raise InvalidInputError(f"{path} must be a regular file to be followed.")
        if stored is None:
            return Path(path), 0
        if stored.header is not None:
            self._set_parser(stored.header.encode())
        if found is None:
            self._console.warn(
                f"{path} is not the file that was followed: it was replaced or truncated, and no file beside it has the"
                " old content. Rows that were added to the old file after reading stopped are lost;"
                f" {path} is read from its start."
            )
            return Path(path), 0
        if found != Path(path):
            self._console.warn(
                f"{path} has been replaced or truncated since it was followed: the rest of {found} is read first, then"
                f" {path} from its start. If it was replaced more than once, the files in between are not read."
            )
        self._set_parser_from_file(found)
        return found, stored.position

    def _set_parser_from_file(self, file: Path) -> None:
        """Recognise the format by the first line of the file, unless a header was stored with the position."""
        self._is_at_start = False
        if self._parser is None:
            with file.open("rb") as lines:
                self._set_parser(next((line for line in lines if line.strip()), b"").rstrip(b"\r\n"))

    def _start_file(self, restart: Restart) -> None:
        self._is_at_start = True
        self._console.note(f"{self._source.path} was {restart.value}: it is read from its start.")

    def _position_after(self, batch: LineBatch, numbers: list[int], n_rows: int) -> FilePosition | None:
        """Return the position after the first `n_rows` rows of a batch; `numbers` are the line numbers of its rows."""
        if not self._follow:
            return None
        n_lines = len(batch.lines) if n_rows == len(numbers) else numbers[n_rows]
        position, context = batch.after(n_lines)
        header = None if self._header is None else self._header.decode()
        return FilePosition(position, _digest(context), header)

    # -- from lines to rows -----------------------------------------------------------------------------------------

    def _rows(self, batch: LineBatch) -> list[tuple[int, bytes]]:
        """Return the lines that are rows, with their numbers in the batch."""
        rows = [(i, line) for i, line in enumerate(batch.lines) if line.strip()]
        if rows and self._is_at_start:
            self._is_at_start = False
            first = without_byte_order_mark(rows[0][1])
            rows[0] = rows[0][0], first
            if self._parser is None or self._is_header(first):
                self._set_parser(first)
            if first == self._header:
                del rows[0]
        return [(i, line) for i, line in rows if without_byte_order_mark(line) != self._repeated_header]

    def _is_header(self, line: bytes) -> bool:
        """Return True if the first line of a later file is a header, perhaps with other columns or another order."""
        return self._header is not None and isinstance(self._parser, CsvParser) and self._parser.is_header(line)

    def _set_parser(self, first: bytes) -> None:
        """Recognise the format by the first line."""
        source = self._source
        file_format = source.format or format_by_name(source.path)
        self._parser, is_header = parser_for(first, file_format, source.separator, has_header=not source.no_header)
        self._header = without_byte_order_mark(first) if is_header else None
        may_be_row = isinstance(self._parser, CsvParser) and self._parser.has_numeric_names
        self._repeated_header = None if may_be_row else self._header


def check_position(value: Any, model: str) -> FilePosition:
    """Return the position stored in a model file; raise an InvalidInputError if it is invalid.

    Positions in older model files have no header.
    """
    required, known = {"position", "digest"}, set(FilePosition._fields)
    is_valid = (
        isinstance(value, dict)
        and required <= set(value) <= known
        and type(value["position"]) is int
        and 0 <= value["position"] <= _MAX_POSITION
        and isinstance(value["digest"], str)
        and (value.get("header") is None or _is_line_of_text(value["header"]))
    )
    if not is_valid:
        raise InvalidInputError(f"{model}: the stored position in the followed file is invalid: {value!r:.200}.")
    return FilePosition(**value)


def _is_line_of_text(header: Any) -> bool:
    """Return True for a line that is not blank and can be encoded as UTF-8."""
    if not isinstance(header, str) or "\n" in header:
        return False
    try:
        return bool(without_byte_order_mark(header.encode()).strip())
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _find_file(stored: FilePosition, path: str) -> Path | None:
    """Return the file in which reading stopped: `path`, or a file beside it, if it was renamed; None if there is none.

    Tools that rotate files add to the name (log.csv.1, log.csv-20240131, log-1.csv). Of several copies, the one that
    was modified last is returned.
    """
    file = Path(path)
    if _has_position(file, stored):
        return file
    others = [other for other in file.parent.glob("*") if other.name.startswith(file.stem) and other != file]
    return max((other for other in others if _has_position(other, stored)), key=_modification_time, default=None)


def _has_position(file: Path, stored: FilePosition) -> bool:
    try:
        context = _bytes_before(file, stored.position) if file.is_file() else None
    except OSError:  # unreadable, or removed just now
        return False
    return context is not None and _digest(context) == stored.digest


def _bytes_before(file: Path, position: int) -> bytes | None:
    """Return the last bytes before a position; None if the file is shorter."""
    with file.open("rb") as content:
        if content.seek(0, 2) < position:
            return None
        content.seek(max(position - CONTEXT_BYTES, 0))
        return content.read(min(position, CONTEXT_BYTES))


def _digest(context: bytes) -> str:
    return hashlib.sha256(context).hexdigest()


def _modification_time(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0

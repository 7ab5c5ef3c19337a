"""Reading tables in batches: text, Parquet and Excel workbooks, from files or standard input.

Text and Parquet are read in bounded memory, except Parquet from standard input or compressed with gzip.
"""

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import polars as pl

from imondrian.base.errors import InvalidInputError
from imondrian.base.files import check_exists
from imondrian.tables.encodings import AUTO, Utf8Reader
from imondrian.tables.formats import (
    check_format,
    check_separator,
    check_supported,
    format_by_content,
    format_by_name,
    is_workbook,
)
from imondrian.tables.text_parsing import ReadingFacts, TextSource, first_line, read_csv, read_ndjson
from imondrian.tables.workbooks import WorkbookSource, read_sheet

PARQUET_ROWS = 100_000  # per batch
STANDARD_INPUT = "-"
FrameAndShare = tuple[pl.DataFrame, float]  # some rows, and the share of the table that has been read
_START_BYTES = 2**13  # read before the format is decided
_GZIP = b"\x1f\x8b"
_MAX_WORKBOOK_BYTES = 2**30  # decompressed, if it is compressed with gzip


class TableBatch(NamedTuple):
    """Consecutive rows of a table."""

    first: int  # number of rows before these
    frame: pl.DataFrame
    share_read: float  # share of the table that has been read, these rows included; 0 if unknown


class TextLayout(NamedTuple):
    """How the text of a CSV file, or a sheet, is laid out; None: recognised by its content."""

    separator: str | None = None
    has_header: bool = True
    encoding: str = AUTO
    skip_lines: int | None = None  # before the header
    sheet: str | None = None  # of a workbook; None: the first one


DEFAULT_LAYOUT = TextLayout()


class Table:
    r"""A table that can be read once, in batches or all at once.

    Parameters
    ----------
    path : str
        A file, or "-" for standard input. gzip is recognised by content.
    file_format : {"csv", "tsv", "ndjson", "parquet", "xlsx"}, optional
        The format; by default recognised by the extension, else by the first bytes. A file that begins like a zip
        archive is always read as a workbook.
    layout : TextLayout, optional
        Separator, header, encoding, lines to skip and sheet; by default there is a header, the sheet is the first one,
        and the rest is recognised by the content. Without a header, the columns are named column_1, column_2 and so on.

    Attributes
    ----------
    facts : ReadingFacts
        Notes on how the table was read, and the original column names; complete when all rows have been read.

    Raises
    ------
    InvalidInputError
        If the file is missing, empty, a folder or not a table.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     n_bytes = file.write("a,b\n1,2\n3,4\n")
    ...     file.flush()
    ...     Table(file.name).read_all().rows()
    [('1', '2'), ('3', '4')]
    """

    def __init__(self, path: str, *, file_format: str | None = None, layout: TextLayout = DEFAULT_LAYOUT) -> None:
        self.name = "standard input" if path == STANDARD_INPUT else path
        self._raw = _open(path)
        is_file = path != STANDARD_INPUT and Path(path).is_file()
        self.n_bytes = Path(path).stat().st_size if is_file else None  # size on disk
        self.layout = layout
        self.facts = ReadingFacts()
        with self._closed_on_error():
            self._file: Any = _RestartedFile(self._raw, self.name)
            self.is_gzip = self._file.start.startswith(_GZIP)
            if self.is_gzip:
                self._file = _RestartedFile(_decompressed(self._file), self.name)
            start = self._file.start
            if not start:
                raise InvalidInputError(f"{self.name} is empty.")
            check_supported(start, self.name)
            found = check_format(file_format) if file_format else format_by_name(path)
            self.file_format = "xlsx" if is_workbook(start) else found or format_by_content(start, self.name)
            if layout.sheet is not None and self.file_format != "xlsx":
                raise InvalidInputError(f"{self.name} is not a workbook, so it has no sheet {layout.sheet!r:.200}.")
            is_tsv = self.file_format == "tsv"
            self.separator = check_separator(layout.separator) if layout.separator else "\t" if is_tsv else None
            self._text = Utf8Reader(self.read, layout.encoding, self.name)

    def batches(self) -> Iterator[TableBatch]:
        """Yield the rows in batches, in order; then close the file.

        Raises
        ------
        InvalidInputError
            If the table has no rows or cannot be parsed.
        """
        first = 0
        try:
            for frame, share_read in _READERS[self.file_format](self):
                yield TableBatch(first, frame, share_read)
                first += frame.height
        finally:
            self.close()
        if self._text.note is not None:
            self.facts.notes.append(self._text.note)
        if first == 0:
            raise InvalidInputError(f"{self.name} has no rows.")

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self._raw is not sys.stdin.buffer:
            self._raw.close()

    def read_all(self, progress: Callable[[float], None] = lambda _share: None) -> pl.DataFrame:
        """Read all rows; `progress` is called with the share that has been read."""
        frames = []
        for batch in self.batches():
            frames.append(batch.frame)
            progress(batch.share_read)
        try:
            return pl.concat(_with_booleans_as_text(frames), how="diagonal_relaxed", rechunk=True)
        except pl.exceptions.PolarsError as error:
            raise InvalidInputError(f"{self.name}: the type of a column changes: {first_line(error)}.") from None

    def share_read(self) -> float:
        """Return the share of the bytes that has been read; 0 if the size is unknown."""
        return 0.0 if not self.n_bytes else min(self._raw.tell() / self.n_bytes, 1.0)

    def read_text(self, n_bytes: int) -> bytes:
        """Read text of the table as UTF-8, whatever its encoding."""
        return self._text.read(n_bytes)

    def read(self, n_bytes: int = -1) -> bytes:
        """Read bytes of the table, decompressed."""
        try:
            return bytes(self._file.read(n_bytes))
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidInputError(f"{self.name} cannot be read: {error}.") from None

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise


def _with_booleans_as_text(frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Convert booleans to text in columns that have other types in other frames: `concat` reads true as 1 there."""
    types: dict[str, set[pl.DataType]] = {}
    for frame in frames:
        for name, dtype in frame.schema.items():
            types.setdefault(name, set()).add(dtype)
    mixed = [name for name, found in types.items() if pl.Boolean in found and len(found - {pl.Null}) > 1]
    return [frame.cast({name: pl.String for name in mixed if name in frame.columns}) for frame in frames]


def _open(path: str) -> IO[bytes]:
    if path == STANDARD_INPUT:
        return sys.stdin.buffer
    check_exists(path)
    if Path(path).is_dir():
        raise InvalidInputError(f"{path} is a folder, not a file.")
    return Path(path).open("rb")


class _RestartedFile:
    """A file whose first bytes have been read; `read` returns them again.

    Unlike `peek`, which returns what one read of a pipe delivered, this waits for all of the first bytes.
    """

    def __init__(self, file: Any, name: str) -> None:
        self._file = file
        try:
            self.start = bytes(file.read(_START_BYTES))
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidInputError(f"{name} cannot be read: {error}.") from None
        self._unread = self.start

    def read(self, n_bytes: int = -1) -> bytes:
        """Return the next bytes: all that are left if `n_bytes` is negative."""
        n_taken = len(self._unread) if n_bytes < 0 else n_bytes
        taken, self._unread = self._unread[:n_taken], self._unread[n_taken:]
        return taken + bytes(self._file.read(n_bytes if n_bytes < 0 else n_bytes - len(taken)))


def _decompressed(file: Any) -> io.BufferedReader:
    return io.BufferedReader(gzip.GzipFile(fileobj=file))


def _read_text(table: Table, parse: Callable[[TextSource], Iterator[pl.DataFrame]]) -> Iterator[FrameAndShare]:
    layout = table.layout
    source = TextSource(table.name, table.read_text, table.facts, table.separator, layout.has_header, layout.skip_lines)
    for frame in parse(source):
        yield frame, table.share_read()


def _read_workbook(table: Table) -> Iterator[FrameAndShare]:
    layout, content = table.layout, table.read(_MAX_WORKBOOK_BYTES + 1)
    if len(content) > _MAX_WORKBOOK_BYTES:
        raise InvalidInputError(f"{table.name}: a workbook may have at most {_MAX_WORKBOOK_BYTES >> 30} GiB.")
    source = WorkbookSource(table.name, content, table.facts, layout.sheet, layout.has_header, layout.skip_lines)
    yield read_sheet(source), 1.0


def _read_parquet(table: Table) -> Iterator[FrameAndShare]:
    """Read slice by slice; standard input and compressed files must be read completely first."""
    source = Path(table.name) if table.n_bytes is not None and not table.is_gzip else io.BytesIO(table.read())
    try:
        lazy = pl.scan_parquet(source, glob=False)
        n_rows = lazy.select(pl.len()).collect().item()
        for first in range(0, n_rows, PARQUET_ROWS):
            yield lazy.slice(first, PARQUET_ROWS).collect(), min(first + PARQUET_ROWS, n_rows) / n_rows
    except pl.exceptions.PolarsError as error:
        raise InvalidInputError(f"{table.name} cannot be read as Parquet: {first_line(error)}.") from None


_READERS: dict[str, Callable[[Table], Iterator[FrameAndShare]]] = {
    "csv": lambda table: _read_text(table, read_csv),
    "tsv": lambda table: _read_text(table, read_csv),
    "ndjson": lambda table: _read_text(table, read_ndjson),
    "parquet": _read_parquet,
    "xlsx": _read_workbook,
}

"""Reading tables in batches: CSV, TSV, NDJSON and Parquet, from files or standard input, in bounded memory."""

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import polars as pl

from imondrian.errors import InvalidInputError
from imondrian.tables.formats import check_format, check_separator, check_supported, format_by_content, format_by_name
from imondrian.tables.text_parsing import TextSource, first_line, read_csv, read_ndjson

PARQUET_ROWS = 100_000  # per batch
STANDARD_INPUT = "-"
FrameAndShare = tuple[pl.DataFrame, float]  # some rows, and the share of the table that has been read
_START_BYTES = 4096
_GZIP = b"\x1f\x8b"


class TableBatch(NamedTuple):
    """Consecutive rows of a table."""

    first: int  # number of rows before these
    frame: pl.DataFrame
    share_read: float  # share of the table that has been read, these rows included; 0 if unknown


class Table:
    r"""A table that can be read once, in batches or all at once.

    Parameters
    ----------
    path : str
        A file, or "-" for standard input. gzip is recognised by content.
    file_format : {"csv", "tsv", "ndjson", "parquet"}, optional
        The format; by default recognised by the extension, else by the first bytes.
    separator : str, optional
        Separator of CSV fields; by default the most frequent of ``,``, ``;``, tab and ``|`` in the first line.
    has_header : bool, default=True
        True if a CSV file's first line contains the column names. Otherwise they are column_1, column_2 and so on.

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

    def __init__(
        self, path: str, *, file_format: str | None = None, separator: str | None = None, has_header: bool = True
    ) -> None:
        self.name = "standard input" if path == STANDARD_INPUT else path
        self._raw = _open(path)
        is_file = path != STANDARD_INPUT and Path(path).is_file()
        self.n_bytes = Path(path).stat().st_size if is_file else None  # size on disk
        self.has_header = has_header
        with self._closed_on_error():
            self.is_gzip = _peek(self._raw, self.name).startswith(_GZIP)
            self._file: Any = io.BufferedReader(gzip.GzipFile(fileobj=self._raw)) if self.is_gzip else self._raw
            start = _peek(self._file, self.name)
            if not start:
                raise InvalidInputError(f"{self.name} is empty.")
            check_supported(start, self.name)
            found = check_format(file_format) if file_format else format_by_name(path)
            self.file_format = found or format_by_content(start, self.name)
            is_tsv = self.file_format == "tsv"
            self.separator = check_separator(separator) if separator else "\t" if is_tsv else None

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
            return pl.concat(frames, how="diagonal_relaxed", rechunk=True)
        except pl.exceptions.PolarsError as error:
            raise InvalidInputError(f"{self.name}: the type of a column changes: {first_line(error)}.") from None

    def share_read(self) -> float:
        """Return the share of the bytes that has been read; 0 if the size is unknown."""
        return 0.0 if not self.n_bytes else min(self._raw.tell() / self.n_bytes, 1.0)

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


def _open(path: str) -> IO[bytes]:
    if path == STANDARD_INPUT:
        return sys.stdin.buffer
    if not Path(path).exists():
        raise InvalidInputError(f"{path}: file not found.")
    if Path(path).is_dir():
        raise InvalidInputError(f"{path} is a folder, not a file.")
    return Path(path).open("rb")


def _peek(file: Any, name: str) -> bytes:
    try:
        return bytes(file.peek(_START_BYTES))
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{name} cannot be read: {error}.") from None


def _read_text(table: Table, parse: Callable[[TextSource], Iterator[pl.DataFrame]]) -> Iterator[FrameAndShare]:
    for frame in parse(TextSource(table.name, table.read, table.separator, table.has_header)):
        yield frame, table.share_read()


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
}

"""Tables read in batches: CSV, TSV, NDJSON and Parquet, from files or standard input, in bounded memory."""

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
from imondrian.tables.formats import check_kind, checked_format, checked_separator, format_by_content, format_by_name
from imondrian.tables.texts import Text, first_line, read_csv, read_ndjson

PARQUET_ROWS = 100_000
STANDARD_INPUT = "-"
Read = tuple[pl.DataFrame, float]  # some rows, and the share of the table that has been read
_START_BYTES = 4096
_GZIP = b"\x1f\x8b"


class Batch(NamedTuple):
    """Some rows of a table."""

    first: int  # how many rows stand before these
    frame: pl.DataFrame
    share_read: float  # of the table, with these; 0 where that cannot be known


class Table:
    r"""A table to be read once, in batches or whole.

    Parameters
    ----------
    path : str
        A file, "-" for standard input.
    kind : "csv", "tsv", "ndjson" or "parquet", optional
        The format, where neither the ending of the name nor the first bytes tell it.
    separator : str, optional
        What separates the fields of CSV; by default the most frequent of ``,``, ``;``, tab and ``|`` in its first line.
    has_header : bool, default=True
        Whether the first line of CSV names the columns. If not, they are column_1, column_2 and so on.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     n_bytes = file.write("a,b\n1,2\n3,4\n")
    ...     file.flush()
    ...     Table(file.name).whole().rows()
    [('1', '2'), ('3', '4')]
    """

    def __init__(
        self, path: str, *, kind: str | None = None, separator: str | None = None, has_header: bool = True
    ) -> None:
        self.name = "standard input" if path == STANDARD_INPUT else path
        self._raw = _opened(path)
        is_file = path != STANDARD_INPUT and Path(path).is_file()
        self.n_bytes = Path(path).stat().st_size if is_file else None  # as they lie on the disk
        self.has_header = has_header
        with self._closed_if_failing():
            self._file = _unpacked(self._raw, self.name)
            start = _peeked(self._file, self.name)
            if not start:
                raise InvalidInputError(f"{self.name} is empty.")
            check_kind(start, self.name)
            self.kind = checked_format(kind) if kind else format_by_name(path) or format_by_content(start, self.name)
            self.separator = checked_separator(separator) if separator else "\t" if self.kind == "tsv" else None

    def batches(self) -> Iterator[Batch]:
        """Give the rows in batches, in their order; then the file is closed."""
        first = 0
        try:
            for frame, share_read in _READERS[self.kind](self):
                yield Batch(first, frame, share_read)
                first += frame.height
        finally:
            self.close()
        if first == 0:
            raise InvalidInputError(f"{self.name} has no rows.")

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self._raw is not sys.stdin.buffer:
            self._raw.close()

    def whole(self, progress: Callable[[float], None] = lambda _share: None) -> pl.DataFrame:
        """Read all rows; the progress is told as the share that has been read."""
        frames = []
        for batch in self.batches():
            frames.append(batch.frame)
            progress(batch.share_read)
        try:
            return pl.concat(frames, how="diagonal_relaxed", rechunk=True)
        except pl.exceptions.PolarsError as error:
            raise InvalidInputError(f"{self.name}: a column changes its kind: {first_line(error)}.") from None

    def share_read(self) -> float:
        """Tell what share of the bytes has been read; 0 where that cannot be known."""
        return 0.0 if not self.n_bytes else min(self._raw.tell() / self.n_bytes, 1.0)

    def read(self, n_bytes: int = -1) -> bytes:
        """Read some of the bytes of the table, unpacked."""
        try:
            return bytes(self._file.read(n_bytes))
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidInputError(f"{self.name} cannot be read: {error}.") from None

    @contextmanager
    def _closed_if_failing(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise


def _opened(path: str) -> IO[bytes]:
    if path == STANDARD_INPUT:
        return sys.stdin.buffer
    if not Path(path).exists():
        raise InvalidInputError(f"{path}: there is no such file.")
    if Path(path).is_dir():
        raise InvalidInputError(f"{path} is a folder, not a file.")
    return Path(path).open("rb")


def _unpacked(file: IO[bytes], name: str) -> Any:
    is_packed = _peeked(file, name).startswith(_GZIP)
    return io.BufferedReader(gzip.GzipFile(fileobj=file)) if is_packed else file


def _peeked(file: Any, name: str) -> bytes:
    try:
        return bytes(file.peek(_START_BYTES))
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{name} cannot be read: {error}.") from None


def _read_text(table: Table, parsed: Callable[[Text], Iterator[pl.DataFrame]]) -> Iterator[Read]:
    for frame in parsed(Text(table.name, table.read, table.separator, table.has_header)):
        yield frame, table.share_read()


def _read_parquet(table: Table) -> Iterator[Read]:
    """Read slice after slice; standard input must be read whole first."""
    source = Path(table.name) if table.n_bytes is not None else io.BytesIO(table.read())
    try:
        lazy = pl.scan_parquet(source, glob=False)
        n_rows = lazy.select(pl.len()).collect().item()
        for first in range(0, n_rows, PARQUET_ROWS):
            yield lazy.slice(first, PARQUET_ROWS).collect(), min(first + PARQUET_ROWS, n_rows) / n_rows
    except pl.exceptions.PolarsError as error:
        raise InvalidInputError(f"{table.name} is no Parquet file that can be read: {first_line(error)}.") from None


_READERS: dict[str, Callable[[Table], Iterator[Read]]] = {
    "csv": lambda table: _read_text(table, read_csv),
    "tsv": lambda table: _read_text(table, read_csv),
    "ndjson": lambda table: _read_text(table, read_ndjson),
    "parquet": _read_parquet,
}

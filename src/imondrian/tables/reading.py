"""Tables read in batches: CSV, TSV, NDJSON and Parquet, from files or standard input, in bounded memory.

The cells of CSV are left as text: what is a number is decided in `columns`, where a cell that is none can be named.
"""

import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import polars as pl

from imondrian.errors import InvalidInputError
from imondrian.tables.formats import checked_format, format_by_content, format_by_name, separator_in, without_mark

BLOCK_BYTES = 2**23  # of text that is parsed at once
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
        self.n_bytes = None if path == STANDARD_INPUT else Path(path).stat().st_size  # as they lie on the disk
        self.has_header = has_header
        with self._closed_if_failing():
            self._file = _unpacked(self._raw, self.name)
            start = _peeked(self._file, self.name)
            if not start:
                raise InvalidInputError(f"{self.name} is empty.")
            self.kind = checked_format(kind) if kind else format_by_name(path) or format_by_content(start)
            self.separator = _checked_separator(separator) if separator else self._usual_separator(start)

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
        if self.n_bytes is not None:
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
            raise InvalidInputError(f"{self.name}: a column changes its kind: {_first_line(error)}.") from None

    def share_read(self) -> float:
        """Tell what share of the bytes has been read; 0 where that cannot be known."""
        return 0.0 if not self.n_bytes else min(self._raw.tell() / self.n_bytes, 1.0)

    @property
    def stream(self) -> IO[bytes]:
        """The bytes of the table, unpacked."""
        return self._file

    @contextmanager
    def _closed_if_failing(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _usual_separator(self, start: bytes) -> str:
        return "\t" if self.kind == "tsv" else separator_in(without_mark(start).partition(b"\n")[0])


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


def _checked_separator(separator: str) -> str:
    separator = {"\\t": "\t", "tab": "\t"}.get(separator, separator)
    if len(separator.encode()) != 1 or separator in '"\n\r':
        raise InvalidInputError(f"The separator must be one character, but is {separator!r}.")
    return separator


# -- text ---------------------------------------------------------------------------------------------------------


def _read_csv(table: Table) -> Iterator[Read]:
    """Parse block after block, each with the header before it."""
    blocks = _blocks(table)
    first, _, rest = _cut(start := next(blocks), table.name, _end_of_first_record)
    header = (first if table.has_header else _numbered_names(table, first)) + b"\n"
    n_rows = 0
    for block in chain([rest if table.has_header else start], blocks):
        if block.strip(b"\r\n"):
            frame = _parsed_csv(table, header, block, n_rows)
            n_rows += frame.height
            yield frame, table.share_read()


def _parsed_csv(table: Table, header: bytes, block: bytes, n_rows: int) -> pl.DataFrame:
    """Parse a block; lines that are blank are no rows."""
    try:
        frame = pl.read_csv(io.BytesIO(header + block), separator=table.separator, infer_schema=False)
        return frame.filter(~pl.all_horizontal(pl.all().is_null()))
    except pl.exceptions.PolarsError as error:
        _complain_of_csv(table, header + block, n_rows)
        raise InvalidInputError(f"{table.name}: after row {n_rows}: {_first_line(error)}.") from None


def _complain_of_csv(table: Table, block: bytes, n_rows: int) -> None:
    """Name the first row that is no text, or that has more fields than there are names."""
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        near = n_rows + block.count(b"\n", 0, error.start)
        raise InvalidInputError(f"{table.name}: near row {near}: this is not UTF-8 text.") from None
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=table.separator)
    width = len(next(rows, []))
    for i, row in enumerate(rows, start=n_rows + 1):
        if len(row) > width:
            raise InvalidInputError(f"{table.name}: row {i} has {len(row)} fields, but there are {width} columns.")


def _numbered_names(table: Table, first: bytes) -> bytes:
    """Name the columns of a table without a header by their numbers."""
    n_columns = len(next(csv.reader([first.decode(errors="replace")], delimiter=table.separator), []))
    return table.separator.join(f"column_{j + 1}" for j in range(n_columns)).encode()


def _read_ndjson(table: Table) -> Iterator[Read]:
    n_lines = 0
    for block in _blocks(table):
        if block.strip():
            yield _parsed_ndjson(table, block, n_lines), table.share_read()
        n_lines += block.count(b"\n")


def _parsed_ndjson(table: Table, block: bytes, n_lines: int) -> pl.DataFrame:
    try:
        return pl.read_ndjson(io.BytesIO(block), infer_schema_length=None)
    except pl.exceptions.PolarsError:
        return _parsed_by_line(table, block, n_lines)


def _parsed_by_line(table: Table, block: bytes, n_lines: int) -> pl.DataFrame:
    """Parse what polars would not, a value of many types in a column or NaN for example, or name the line."""
    records = []
    for i, line in enumerate(block.splitlines(), start=n_lines + 1):
        if line.strip():
            try:
                records.append(json.loads(line))
            except ValueError as error:
                raise InvalidInputError(f"{table.name}: line {i} is not JSON: {error}.") from None
            if not isinstance(records[-1], dict):
                raise InvalidInputError(f"{table.name}: line {i} is not an object: {line.decode()[:40]!r}.")
    names = dict.fromkeys(name for record in records for name in record)
    return pl.DataFrame([_column_of(name, [record.get(name) for record in records]) for name in names])


def _column_of(name: str, values: list[Any]) -> pl.Series:
    """Make numbers a column of numbers, and anything else one of text."""
    if all(value is None or isinstance(value, (bool, int, float)) for value in values):
        with suppress(OverflowError):  # of whole numbers without end
            return pl.Series(name, [None if value is None else float(value) for value in values], pl.Float64)
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pl.Series(name, texts, pl.String)


def _blocks(table: Table) -> Iterator[bytes]:
    """Read blocks of whole records: they are cut at ends of lines that do not stand between quotes."""
    is_quoted = table.kind != "ndjson"
    rest = without_mark(_some(table)).lstrip(b"\r\n")
    while more := _some(table):
        block, end, rest = _cut(rest, table.name, _end_of_last_record if is_quoted else _end_of_last_line)
        if end:
            yield block + end
        rest += more
    if rest:
        yield rest


def _some(table: Table) -> bytes:
    try:
        return table.stream.read(BLOCK_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{table.name} cannot be read: {error}.") from None


def _cut(block: bytes, name: str, end_of: Callable[[bytes], int]) -> tuple[bytes, bytes, bytes]:
    """Part a block at the end of a line; all of it is rest if there is none."""
    if len(block) > 64 * BLOCK_BYTES:
        raise InvalidInputError(f"{name}: a record is longer than {64 * BLOCK_BYTES} bytes; is a quote left open?")
    place = end_of(block)
    return (b"", b"", block) if place < 0 else (block[:place], b"\n", block[place + 1 :])


def _end_of_last_line(block: bytes) -> int:
    return block.rfind(b"\n")


def _end_of_last_record(block: bytes) -> int:
    place = block.rfind(b"\n")
    n_quotes = block.count(b'"', 0, place) if place >= 0 else 0
    while place >= 0 and n_quotes % 2 == 1:
        before = block.rfind(b"\n", 0, place)
        n_quotes -= block.count(b'"', max(before, 0), place)
        place = before
    return place


def _end_of_first_record(block: bytes) -> int:
    place = block.find(b"\n")
    while place >= 0 and block.count(b'"', 0, place) % 2 == 1:
        place = block.find(b"\n", place + 1)
    return place if place >= 0 else len(block)


# -- Parquet ------------------------------------------------------------------------------------------------------


def _read_parquet(table: Table) -> Iterator[Read]:
    """Read slice after slice; standard input must be read whole first."""
    source = Path(table.name) if table.n_bytes is not None else io.BytesIO(table.stream.read())
    try:
        lazy = pl.scan_parquet(source)
        n_rows = lazy.select(pl.len()).collect().item()
        for first in range(0, n_rows, PARQUET_ROWS):
            yield lazy.slice(first, PARQUET_ROWS).collect(), min(first + PARQUET_ROWS, n_rows) / n_rows
    except pl.exceptions.PolarsError as error:
        raise InvalidInputError(f"{table.name} is no Parquet file that can be read: {_first_line(error)}.") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0].rstrip(".")


_READERS: dict[str, Callable[[Table], Iterator[Read]]] = {
    "csv": _read_csv,
    "tsv": _read_csv,
    "ndjson": _read_ndjson,
    "parquet": _read_parquet,
}

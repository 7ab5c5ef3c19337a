"""Writing tables batch by batch; the file appears only when it is complete."""

import csv
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import polars as pl

from imondrian.base.errors import InvalidInputError
from imondrian.base.files import atomic_write
from imondrian.tables.formats import output_format

STANDARD_OUTPUT = "-"
_ROWS_PER_WRITE = 100_000
WriteBatch = Callable[[pl.DataFrame], None]


@contextmanager
def table_writer(path: str, labels: Mapping[str, str] | None = None) -> Iterator[WriteBatch]:
    """Return a context manager that yields a function to write batches of rows to a table.

    Parameters
    ----------
    path : str
        File to write; its extension sets the format. The file appears, or replaces an older one, when the context
        ends without an error. "-" is standard output, as CSV.
    labels : mapping of str to str, optional
        In CSV, labels to write instead of some column names; several columns may have the same label. The mapping may
        be filled until the first batch is written.
    """
    open_writer = partial(_WRITERS[output_format(path)], labels={} if labels is None else labels)
    if path == STANDARD_OUTPUT:
        with open_writer(sys.stdout.buffer) as write:
            yield write
        sys.stdout.buffer.flush()
        return
    with atomic_write(path) as file, open_writer(file) as write:
        yield write


@contextmanager
def _csv_writer(file: IO[bytes], labels: Mapping[str, str], separator: str) -> Iterator[WriteBatch]:
    header = _Header()

    def write(frame: pl.DataFrame) -> None:
        for rows in frame.iter_slices(_ROWS_PER_WRITE):
            is_first = not header.columns
            conforming = header.conform(_as_flat(rows))
            if is_first:
                file.write(_csv_line([labels.get(name, name) for name in conforming.columns], separator))
            file.write(conforming.write_csv(separator=separator, include_header=False).encode())

    yield write


def _csv_line(cells: list[str], separator: str) -> bytes:
    line = io.StringIO()
    csv.writer(line, delimiter=separator, lineterminator="\n").writerow(cells)
    return line.getvalue().encode()


@contextmanager
def _ndjson_writer(file: IO[bytes], labels: Mapping[str, str]) -> Iterator[WriteBatch]:
    def write(frame: pl.DataFrame) -> None:
        for rows in frame.iter_slices(_ROWS_PER_WRITE):
            file.write(_with_hexadecimal_bytes(rows).write_ndjson().encode())

    yield write


@contextmanager
def _parquet_writer(file: IO[bytes], labels: Mapping[str, str]) -> Iterator[WriteBatch]:
    """Write each batch to a temporary file, and join them at the end: Parquet cannot be appended to."""
    with tempfile.TemporaryDirectory(prefix="imondrian-") as folder:
        parts: list[Path] = []

        def write(frame: pl.DataFrame) -> None:
            parts.append(Path(folder) / f"{len(parts):08d}.parquet")
            frame.write_parquet(parts[-1])

        yield write
        joined = Path(folder) / "joined"
        pl.concat([pl.scan_parquet(part, glob=False) for part in parts], how="diagonal_relaxed").sink_parquet(joined)
        with joined.open("rb") as source:
            shutil.copyfileobj(source, file)


class _Header:
    """The columns of the first batch; later batches may lack some, but must not add any."""

    def __init__(self) -> None:
        self.columns: dict[str, None] = {}

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a batch with the columns of the first batch; columns that it lacks are empty."""
        present = set(frame.columns)
        self.columns = self.columns or dict.fromkeys(frame.columns)
        for name in present:
            if name not in self.columns:
                raise InvalidInputError(
                    f"The column {name!r} appears only after the first rows: write this table as .ndjson or .parquet."
                )
        return frame.select(pl.col(name) if name in present else pl.lit(None).alias(name) for name in self.columns)


def _as_flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with lists and structs as JSON text, and durations as text, since CSV has none of them."""
    frame = _with_hexadecimal_bytes(frame)
    durations = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Duration)]
    frame = frame.with_columns(
        pl.Series(name, [None if value is None else str(value) for value in frame[name]], pl.String)
        for name in durations
    )
    nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    return frame.with_columns(pl.Series(name, [_as_json(value) for value in frame[name]], pl.String) for name in nested)


def _with_hexadecimal_bytes(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with binary values as hexadecimal text."""
    return frame.with_columns(
        pl.col(name).bin.encode("hex") for name, dtype in frame.schema.items() if dtype == pl.Binary
    )


def _as_json(value: Any) -> str | None:
    plain = value.to_list() if isinstance(value, pl.Series) else value
    return None if plain is None else json.dumps(plain, default=str)


_WRITERS: dict[str, Callable[..., AbstractContextManager[WriteBatch]]] = {
    "csv": partial(_csv_writer, separator=","),
    "tsv": partial(_csv_writer, separator="\t"),
    "ndjson": _ndjson_writer,
    "parquet": _parquet_writer,
}

"""Tables written batch by batch, and there only when complete."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import polars as pl

from imondrian.errors import InvalidInputError
from imondrian.files import atomic_write
from imondrian.tables.formats import format_to_write

STANDARD_OUTPUT = "-"
_ROWS_AT_ONCE = 100_000
Write = Callable[[pl.DataFrame], None]


@contextmanager
def written_table(path: str) -> Iterator[Write]:
    """Give a function that writes a batch; the format is told by the ending of the name.

    The file takes its place when all batches have been written. "-" is standard output, and CSV.
    """
    write_as = _WRITERS[format_to_write(path)]
    if path == STANDARD_OUTPUT:
        with write_as(sys.stdout.buffer) as write:
            yield write
        sys.stdout.buffer.flush()
        return
    with atomic_write(path) as file, write_as(file) as write:
        yield write


@contextmanager
def _csv(file: IO[bytes], separator: str) -> Iterator[Write]:
    shape = _Shape()

    def write(frame: pl.DataFrame) -> None:
        for rows in frame.iter_slices(_ROWS_AT_ONCE):
            is_first = not shape.columns
            text = shape.of(_flat(rows)).write_csv(separator=separator, include_header=is_first)
            file.write(text.encode())

    yield write


@contextmanager
def _ndjson(file: IO[bytes]) -> Iterator[Write]:
    def write(frame: pl.DataFrame) -> None:
        for rows in frame.iter_slices(_ROWS_AT_ONCE):
            file.write(_spelled(rows).write_ndjson().encode())

    yield write


@contextmanager
def _parquet(file: IO[bytes]) -> Iterator[Write]:
    """Write every batch to a file of its own, and join them at the end: Parquet cannot be appended to."""
    with tempfile.TemporaryDirectory(prefix="imondrian-") as folder:
        parts: list[Path] = []

        def write(frame: pl.DataFrame) -> None:
            parts.append(Path(folder) / f"{len(parts):08d}.parquet")
            frame.write_parquet(parts[-1])

        yield write
        whole = Path(folder) / "whole"
        pl.concat([pl.scan_parquet(part, glob=False) for part in parts], how="diagonal_relaxed").sink_parquet(whole)
        with whole.open("rb") as source:
            shutil.copyfileobj(source, file)


class _Shape:
    """The columns of the first batch, which the others must have too."""

    def __init__(self) -> None:
        self.columns: dict[str, None] = {}

    def of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Bring a batch into the shape of the first; a column that it lacks is empty."""
        known = set(frame.columns)
        self.columns = self.columns or dict.fromkeys(frame.columns)
        for name in known:
            if name not in self.columns:
                raise InvalidInputError(
                    f"The column {name!r} appears only after the first rows: write this table as .ndjson or .parquet."
                )
        return frame.select(pl.col(name) if name in known else pl.lit(None).alias(name) for name in self.columns)


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Write lists and records as JSON: CSV has only text."""
    frame = _spelled(frame)
    nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
    return frame.with_columns(pl.Series(name, [_json_of(value) for value in frame[name]], pl.String) for name in nested)


def _spelled(frame: pl.DataFrame) -> pl.DataFrame:
    """Write bytes as hexadecimal digits: text has no others."""
    return frame.with_columns(
        pl.col(name).bin.encode("hex") for name, kind in frame.schema.items() if kind == pl.Binary
    )


def _json_of(value: Any) -> str | None:
    plain = value.to_list() if isinstance(value, pl.Series) else value
    return None if plain is None else json.dumps(plain, default=str)


_WRITERS: dict[str, Callable[[IO[bytes]], AbstractContextManager[Write]]] = {
    "csv": partial(_csv, separator=","),
    "tsv": partial(_csv, separator="\t"),
    "ndjson": _ndjson,
    "parquet": _parquet,
}

"""The rows of a table as points: which columns count, and what is missing."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import polars as pl

from imondrian.cli.console import Console
from imondrian.cli.settings import Choice, Source
from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.tables.columns import Columns, choose, points_of
from imondrian.tables.missing import MISSING, Medians, medians_of
from imondrian.tables.reading import Batch, Table

_FEW = 20  # rows, of which scores say little


class Rows(NamedTuple):
    """Rows that have been read, and their points; NaN where a value is missing."""

    frame: pl.DataFrame
    features: list[str]
    points: Array
    first: int = 0  # how many rows stand before these

    @property
    def usable(self) -> Array:
        """Which rows have all their values."""
        return np.asarray(np.isfinite(self.points).all(axis=1))


def opened(source: Source) -> Table:
    """Open a table."""
    return Table(source.path, kind=source.format, separator=source.separator, has_header=not source.no_header)


def read_rows(table: Table, choice: Choice, console: Console) -> tuple[Rows, Columns]:
    """Read a whole table and turn it into points; tell also which columns were left out."""
    with console.progress(f"reading {table.name}") as progress:
        frame = table.whole(progress)
    warn_of_header(table, frame, console)
    with naming(table):
        columns = chosen(frame, choice)
    rows = rows_of(table, Batch(0, frame, 1.0), columns.features, choice.missing)
    n_usable = check_usable(table, rows)
    if n_usable < _FEW:
        console.note(f"{table.name}: of {n_usable} row{'s' * (n_usable > 1)} little can be said.")
    return rows, columns


def check_usable(table: Table, rows: Rows) -> int:
    """Count the rows that have all their values; there must be some."""
    n_usable = int(rows.usable.sum())
    if n_usable == 0:
        raise InvalidInputError(f"{table.name}: every row has a missing value.")
    return n_usable


def rows_of(table: Table, batch: Batch, features: list[str], missing: str, medians: Medians | None = None) -> Rows:
    """Turn a batch into points, with what is missing treated as asked for: by default with its own medians."""
    with naming(table):
        points = points_of(batch.frame, features, batch.first)
        points = MISSING[missing](points, features, batch.first, medians or (lambda: medians_of(points)))
    return Rows(batch.frame, features, points, batch.first)


def chosen(frame: pl.DataFrame, choice: Choice) -> Columns:
    """Choose the features of a table."""
    features, ignore = (names_in(names, frame.columns) for names in (choice.features, choice.ignore))
    return choose(frame, features, ignore, choice.time)


def names_in(given: Iterable[str], known: list[str]) -> list[str]:
    """Part names at commas, but for those that are names as they stand; each once."""
    names = [[text] if text in known else text.split(",") for text in given]
    return list(dict.fromkeys(name for some in names for name in some if name))


def warn_of_header(table: Table, frame: pl.DataFrame, console: Console) -> None:
    """Say so if the names of the columns look like numbers."""
    if table.kind in ("csv", "tsv") and table.has_header and all(_is_number(name) for name in frame.columns):
        console.note(f"{table.name}: the first line was taken for names; if it is a row, say --no-header.")


@contextmanager
def naming(table: Table) -> Iterator[None]:
    """Say which table an error is about."""
    try:
        yield
    except InvalidInputError as error:
        text = str(error)
        raise InvalidInputError(f"{table.name}: {text[:1].lower()}{text[1:]}") from None


def _is_number(text: str) -> bool:
    try:
        float(text.partition("_duplicated_")[0])
    except ValueError:
        return False
    return True

"""Rows of a table as points: the feature columns, and what to do with missing values."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import polars as pl

from imondrian.cli.console import Console
from imondrian.cli.options import FeatureOptions, SourceOptions
from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.tables.feature_columns import FeatureChoice, TableColumns
from imondrian.tables.missing import MISSING, Medians, column_medians
from imondrian.tables.table_reader import Table, TableBatch

_FEW_ROWS = 20  # with fewer, scores are unreliable


class Rows(NamedTuple):
    """Rows of a table and their points, NaN where a value is missing."""

    frame: pl.DataFrame
    features: list[str]
    points: Array
    first: int = 0  # number of rows of the table before these

    @property
    def usable(self) -> Array:
        """True for each row without missing values."""
        return np.asarray(np.isfinite(self.points).all(axis=1))


def open_table(source: SourceOptions) -> Table:
    """Open the table that the options name."""
    return Table(source.path, file_format=source.format, separator=source.separator, has_header=not source.no_header)


def read_rows(table: Table, options: FeatureOptions, console: Console) -> tuple[Rows, FeatureChoice]:
    """Read a whole table, choose its features and return its rows; also return which columns were left out."""
    with console.progress(f"reading {table.name}") as progress:
        frame = table.read_all(progress)
    _note_numeric_header(table, frame, console)
    columns = TableColumns(frame)
    with errors_named_after(table):
        choice = choose_features(columns, frame.columns, options)
    rows = rows_of_batch(table, TableBatch(0, frame, 1.0), columns, choice.features, options.missing)
    n_usable = check_usable(table, rows)
    if n_usable < _FEW_ROWS:
        console.note(f"{table.name}: only {n_usable} usable row{'s' * (n_usable > 1)}, so scores are unreliable.")
    return rows, choice


def check_usable(table: Table, rows: Rows) -> int:
    """Return the number of rows without missing values; raise an InvalidInputError if there are none."""
    n_usable = int(rows.usable.sum())
    if n_usable == 0:
        raise InvalidInputError(f"{table.name}: every row has a missing value.")
    return n_usable


def rows_of_batch(
    table: Table,
    batch: TableBatch,
    columns: TableColumns,
    features: list[str],
    missing: str,
    medians: Medians | None = None,
) -> Rows:
    """Return the rows of a batch with the rule for missing values applied; `medians` default to those of the batch."""
    with errors_named_after(table):
        points = columns.points(features)
        points = MISSING[missing](points, features, batch.first, medians or (lambda: column_medians(points)))
    return Rows(batch.frame, features, points, batch.first)


def choose_features(columns: TableColumns, names: list[str], options: FeatureOptions) -> FeatureChoice:
    """Choose the features of a table according to the options."""
    features, ignore = (split_names(given, names) for given in (options.features, options.ignore))
    return columns.choose(features, ignore, options.time)


def split_names(given: Iterable[str], columns: list[str]) -> list[str]:
    """Split names at commas, unless the whole text is a column name; return each name once."""
    names = [[text] if text in columns else text.split(",") for text in given]
    return list(dict.fromkeys(name for part in names for name in part if name))


@contextmanager
def errors_named_after(table: Table) -> Iterator[None]:
    """Return a context manager that puts the name of the table before error messages."""
    try:
        yield
    except InvalidInputError as error:
        text = str(error)
        raise InvalidInputError(f"{table.name}: {text[:1].lower()}{text[1:]}") from None


def _note_numeric_header(table: Table, frame: pl.DataFrame, console: Console) -> None:
    is_text = table.file_format in ("csv", "tsv")
    if is_text and table.has_header and all(_is_number(name) for name in frame.columns):
        console.note(f"{table.name}: the first line was read as column names; if it is a row, pass --no-header.")


def _is_number(text: str) -> bool:
    try:
        float(text.partition("_duplicated_")[0])
    except ValueError:
        return False
    return True

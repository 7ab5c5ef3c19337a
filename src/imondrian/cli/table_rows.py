"""Rows of a table as points: the feature columns, and what to do with missing values."""

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import polars as pl

from imondrian.base.categories import category_text
from imondrian.base.errors import InvalidInputError
from imondrian.cli.console import Console
from imondrian.cli.options import FeatureOptions, SourceOptions
from imondrian.engine.jit import Array
from imondrian.tables.feature_columns import (
    ColumnRules,
    FeatureChoice,
    FeatureColumn,
    NotANumberError,
    TableColumns,
)
from imondrian.tables.missing import MISSING, find_gaps
from imondrian.tables.number_formats import FormatRules
from imondrian.tables.table_reader import Table, TableBatch, TextLayout
from imondrian.tables.table_start import is_number

_FEW_ROWS = 20  # with fewer usable rows, a note says that scores are unreliable


class Rows(NamedTuple):
    """Rows of a table, and the same rows as points, with codes for categories and NaN for missing numbers."""

    frame: pl.DataFrame
    columns: list[FeatureColumn]
    points: Array
    first: int = 0  # number of rows of the table before these

    @property
    def features(self) -> list[str]:
        """The names of the features."""
        return [feature.name for feature in self.columns]

    @property
    def categorical(self) -> list[int]:
        """The indices of the features that are categories."""
        return [j for j, feature in enumerate(self.columns) if feature.is_category]

    @property
    def usable(self) -> Array:
        """True for each row that has at least one value."""
        return np.asarray(~find_gaps(self.points, self.columns).all(axis=1))

    def n_gaps(self) -> dict[str, int]:
        """Return the number of missing numbers in the usable rows, for each feature that has some."""
        counts = np.isnan(self.points[self.usable]).sum(axis=0)
        return {feature.name: int(n) for feature, n in zip(self.columns, counts, strict=True) if n}

    def category_texts(self, indices: Array) -> list[dict[int, str]]:
        """Return the categories of some rows as text, by the index of the feature; missing ones are left out."""
        columns = TableColumns(self.frame[indices])
        texts: list[dict[int, str]] = [{} for _ in indices]
        for j in self.categorical:
            for row, value in zip(texts, columns.categories(self.columns[j]), strict=True):
                if value is not None:
                    row[j] = category_text(value)
        return texts


def open_table(source: SourceOptions) -> Table:
    """Open the table that the options name."""
    layout = TextLayout(source.separator, not source.no_header, source.encoding, source.skip_lines, source.sheet)
    return Table(source.path, file_format=source.format, layout=layout)


def read_rows(table: Table, options: FeatureOptions, console: Console) -> tuple[Rows, FeatureChoice]:
    """Read a whole table, choose its features and return its rows; also return which columns were left out."""
    with console.progress(f"reading {table.name}") as progress:
        frame = table.read_all(progress)
    _note_numeric_header(table, frame, console)
    columns = TableColumns(frame)
    with errors_named_after(table):
        choice = columns.choose(column_rules(table, frame.columns, options))
    with _column_options_suggested():
        rows = rows_of_batch(table, TableBatch(0, frame, 1.0), columns, choice.columns, options.missing or "median")
    n_usable = check_usable(table, rows)
    if n_usable < _FEW_ROWS:
        console.note(f"{table.name}: only {n_usable} usable row{'s' * (n_usable > 1)}, so scores are unreliable.")
    table.facts.notes += choice.notes
    return rows, choice


def check_usable(table: Table, rows: Rows) -> int:
    """Return the number of usable rows; raise an InvalidInputError if there are none."""
    n_usable = int(rows.usable.sum())
    if n_usable == 0:
        raise InvalidInputError(f"{table.name}: no row can be used, because of missing values.")
    return n_usable


def rows_of_batch(
    table: Table, batch: TableBatch, columns: TableColumns, features: list[FeatureColumn], missing: str
) -> Rows:
    """Return the rows of a batch with the rule for missing values applied."""
    with errors_named_after(table):
        points = MISSING[missing].prepare(columns.points(features), features, batch.first)
    return Rows(batch.frame, features, points, batch.first)


def column_rules(table: Table, names: list[str], options: FeatureOptions) -> ColumnRules:
    """Return what the options say about the columns of a table."""
    features, ignore, categorical = (
        split_names(given, names) for given in (options.features, options.ignore, options.categorical)
    )
    has_semicolons = table.facts.separator == ";"  # then a comma is probably the decimal separator
    return ColumnRules(
        features,
        ignore,
        categorical,
        options.time,
        options.id,
        options.calendar,
        FormatRules(options.decimal, options.thousands).checked(),
        "," if has_semicolons else None,
    )


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
        error.args = (f"{table.name}: {text[:1].lower()}{text[1:]}",)
        raise


@contextmanager
def _column_options_suggested() -> Iterator[None]:
    """Return a context manager that adds, to an error about a column that is not numeric, options that avoid it."""
    try:
        yield
    except NotANumberError as error:
        name = shlex.quote(error.column)
        options = f"--ignore {name} leaves the column out, --categorical {name} makes it a category"
        raise InvalidInputError(f"{str(error).removesuffix('.')} ({options}).") from None


def _note_numeric_header(table: Table, frame: pl.DataFrame, console: Console) -> None:
    labels = [table.facts.labels.get(name, name) for name in frame.columns]
    is_untyped = table.file_format in ("csv", "tsv", "xlsx")
    if is_untyped and table.layout.has_header and all(map(is_number, labels)):
        console.note(f"{table.name}: the first line was read as column names; if it is a row, pass --no-header.")

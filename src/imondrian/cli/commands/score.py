"""`imondrian score` and `imondrian explain`: use a model file on a table of any length, batch by batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from imondrian.base.errors import InvalidInputError
from imondrian.cli.console import Console
from imondrian.cli.detect.scored_rows import (
    check_result_names,
    load_table_model,
    parts_table,
    result_table,
    scored_batches,
)
from imondrian.cli.detect.summary import MAX_REASONS_EXPLAINED, ShownColumns, SummaryBuilder, print_rows, row_as_json
from imondrian.cli.option_checks import check_outputs
from imondrian.cli.options import ConsoleOptions, FeatureOptions, OutputOptions, SourceOptions
from imondrian.cli.table_rows import Rows, open_table
from imondrian.engine.jit import Array
from imondrian.tables.table_writer import WriteBatch, table_writer

if TYPE_CHECKING:
    from imondrian.models.explanations import ExplainedRow


def score(
    model: str,
    source_options: SourceOptions,
    feature_options: FeatureOptions,
    console_options: ConsoleOptions,
    jobs: int,
    output: str,
    top: int,
) -> bool:
    """Score a table and write it with the results; return True if there are anomalies."""
    output_options = OutputOptions(table=output)
    check_outputs(source_options, output_options, console_options)
    console = Console(console_options, output)
    table_model = load_table_model(model, jobs)
    table = open_table(source_options)
    builder = SummaryBuilder(table_model.fitted, ShownColumns(feature_options.id, feature_options.time), top)
    with console.progress(f"scoring {table.name}") as progress, table_writer(output, table.facts.labels) as write:
        for scored in scored_batches(table_model, table, feature_options, progress):
            check_result_names(scored.rows.frame.columns, output)
            builder.add(scored)
            write(result_table(scored, output))
    summary = builder.summary(table, {}, output_options.files())
    console.print_result(summary.as_json(), summary.print_on)
    return summary.n_anomalies > 0


def explain(
    model: str,
    source_options: SourceOptions,
    feature_options: FeatureOptions,
    console_options: ConsoleOptions,
    jobs: int,
    row_numbers: list[int],
    top: int,
    output: str | None,
) -> None:
    """Explain the given rows, or those with the highest scores.

    If `output` is set, write the part of each feature in the score of each row of the table.
    """
    check_outputs(source_options, OutputOptions(table=output), console_options)
    console = Console(console_options, output)
    table_model = load_table_model(model, jobs)
    table = open_table(source_options)
    shown = ShownColumns(feature_options.id, feature_options.time)
    builder = SummaryBuilder(table_model.fitted, shown, top, MAX_REASONS_EXPLAINED)
    found: list[ExplainedRow] = []
    with console.progress(f"explaining {table.name}") as progress, _optional_writer(output) as write:
        for scored in scored_batches(table_model, table, feature_options, progress):
            builder.add(scored)
            found += builder.describe(scored, _indices(scored.rows, row_numbers))
            if output:
                write(parts_table(scored))
        _check_row_numbers(row_numbers, builder.n_rows, table.name)
    for number in sorted(set(row_numbers) - {row.row for row in found}):
        console.note(f"row {number} has a missing value and therefore no score")
    for note in table.facts.notes:
        console.note(f"{table.name}: {note}")
    rows = found if row_numbers else builder.highest
    result = {"source": table.name, "rows": [row_as_json(row) for row in rows]}
    console.print_result(result, lambda rich: print_rows(rows, rich))


@contextmanager
def _optional_writer(output: str | None) -> Iterator[WriteBatch]:
    if output is None:
        yield _write_nothing
    else:
        with table_writer(output) as write:
            yield write


def _write_nothing(frame: pl.DataFrame) -> None:
    pass


def _indices(rows: Rows, row_numbers: list[int]) -> Array:
    """Return the indices, in this batch, of the rows with these numbers, which count from 1 in the table."""
    indices = (number - rows.first - 1 for number in sorted(set(row_numbers)))
    return np.array([i for i in indices if 0 <= i < len(rows.points)], dtype=np.int64)


def _check_row_numbers(row_numbers: list[int], n_rows: int, name: str) -> None:
    for number in row_numbers:
        if not 1 <= number <= n_rows:
            raise InvalidInputError(f"{name}: there is no row {number}; there are {n_rows} rows.")

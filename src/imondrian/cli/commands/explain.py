"""`imondrian explain`: what makes rows odd, in full."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import polars as pl

from imondrian.cli.batches import scored_batches
from imondrian.cli.console import Console
from imondrian.cli.forests import checked_jobs
from imondrian.cli.outputs import check_outputs
from imondrian.cli.results import parts_of
from imondrian.cli.rows import Rows, opened
from imondrian.cli.settings import Choice, Outputs, Source, Telling
from imondrian.cli.summary import N_REASONS_IN_FULL, Tally, print_rows, row_as_json
from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.explanations import AnomalousRow
from imondrian.scorer import loaded, scorer_of
from imondrian.tables.writing import Write, written_table


def run(
    model: str,
    source: Source,
    choice: Choice,
    jobs: int,
    asked: list[int],
    top: int,
    output: str | None,
    telling: Telling,
) -> None:
    """Explain the rows asked for, or the oddest; and write the parts of all rows, if asked to."""
    check_outputs(source, Outputs(table=output), telling)
    console = Console(telling, output)
    scorer = scorer_of(loaded(model), model)
    scorer.forest.n_jobs = checked_jobs(jobs)
    table = opened(source)
    tally = Tally(scorer, choice.time, top, N_REASONS_IN_FULL)
    found: list[AnomalousRow] = []
    with console.progress(f"explaining {table.name}") as progress, _written(output) as write:
        for rows, scores in scored_batches(scorer, table, choice, model, progress):
            tally.add(rows, scores)
            found += tally.described(rows, _places(rows, asked), scores)
            if output:
                write(parts_of(rows, scorer, scores))
        _check_found(asked, tally.n_rows, table.name)
    for row in sorted(set(asked) - {odd.row for odd in found}):
        console.note(f"row {row} has a missing value, and so no score")
    shown = found if asked else tally.oddest
    console.tell({"source": table.name, "rows": [row_as_json(row) for row in shown]}, _printing(shown))


@contextmanager
def _written(output: str | None) -> Iterator[Write]:
    if output is None:
        yield _nowhere
    else:
        with written_table(output) as write:
            yield write


def _nowhere(frame: pl.DataFrame) -> None:
    pass


def _places(rows: Rows, asked: list[int]) -> Array:
    """Find the rows asked for in a batch."""
    places = (row - rows.first - 1 for row in sorted(set(asked)))
    return np.array([place for place in places if 0 <= place < len(rows.points)], dtype=np.int64)


def _check_found(asked: list[int], n_rows: int, name: str) -> None:
    for row in asked:
        if not 1 <= row <= n_rows:
            raise InvalidInputError(f"{name}: there is no row {row}; there are {n_rows}.")


def _printing(shown: list[AnomalousRow]) -> Any:
    return lambda console: print_rows(shown, console)

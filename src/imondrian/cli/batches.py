"""A table scored with a model: its features are found among the columns, and batch after batch is scored."""

from collections.abc import Iterator
from functools import cache

import polars as pl

from imondrian.cli.console import Progress
from imondrian.cli.rows import Rows, chosen, naming, rows_of
from imondrian.cli.settings import Choice
from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.scorer import Scorer
from imondrian.tables.columns import check_names
from imondrian.tables.reading import Batch, Table


def scored_batches(
    scorer: Scorer, table: Table, choice: Choice, model: str, progress: Progress
) -> Iterator[tuple[Rows, Array]]:
    """Give batches of rows with their scores."""
    features: list[str] = []
    medians = cache(scorer.medians)
    for batch in table.batches():
        features = features or matched_features(scorer, table, batch.frame, choice, model)
        needed = [*features, *([] if choice.time is None else [choice.time])]
        rows = rows_of(table, _with_columns(batch, needed), features, choice.missing, medians)
        yield rows, scorer.scores(rows.points)
        progress(batch.share_read)


def _with_columns(batch: Batch, names: list[str]) -> Batch:
    """Add columns that only other batches have, without values."""
    known = set(batch.frame.columns)
    return batch._replace(
        frame=batch.frame.with_columns(pl.lit(None).alias(name) for name in names if name not in known)
    )


def matched_features(scorer: Scorer, table: Table, frame: pl.DataFrame, choice: Choice, model: str) -> list[str]:
    """Find the model's features by name; those of a model without names are the numeric columns, in their order."""
    with naming(table):
        check_names([] if choice.time is None else [choice.time], frame.columns)
        if scorer.features is not None:
            _check_names(scorer.features, frame.columns, model)
            return scorer.features
        numeric = chosen(frame, choice).features
        if len(numeric) != scorer.forest.n_features:
            wanted = f"{model} has {scorer.forest.n_features} features without names"
            raise InvalidInputError(f"{wanted}, but here are {len(numeric)}: {', '.join(numeric)}.")
        return numeric


def _check_names(features: list[str], columns: list[str], model: str) -> None:
    lacking = [name for name in features if name not in columns]
    if lacking:
        raise InvalidInputError(
            f"{model} was made of other features: there is no column {', '.join(map(repr, lacking))}."
        )

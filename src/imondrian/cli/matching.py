"""The features of a model, found among the columns of a table."""

import polars as pl

from imondrian.cli.rows import chosen, naming
from imondrian.cli.scorer import Scorer
from imondrian.cli.settings import Choice
from imondrian.errors import InvalidInputError
from imondrian.tables.reading import Table


def matched_features(scorer: Scorer, table: Table, frame: pl.DataFrame, choice: Choice, model: str) -> list[str]:
    """Find the model's features by name; those of a model without names are the numeric columns, in their order."""
    with naming(table):
        _check_time(frame, choice.time)
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


def _check_time(frame: pl.DataFrame, time: str | None) -> None:
    if time is not None and time not in frame.columns:
        raise InvalidInputError(f"there is no column {time!r}.")

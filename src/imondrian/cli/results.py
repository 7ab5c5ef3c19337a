"""Results as columns: score, label and explanation, added to the rows of a table."""

import numpy as np
import polars as pl

from imondrian.cli.rows import Rows
from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.explanations import reasons_of
from imondrian.scorer import Scorer
from imondrian.tables.columns import ADDED, EXPLANATION, LABEL, ROW, SCORE, typed
from imondrian.tables.formats import TEXTS, format_to_write


def check_free(columns: list[str], output: str | None) -> None:
    """Refuse to write over columns that are not the results of an earlier run."""
    taken = [name for name in ADDED if name in columns]
    if output is not None and taken and SCORE not in columns:
        raise InvalidInputError(f"The table has a column {taken[0]!r} of its own, which the results need: rename it.")


def with_results(rows: Rows, scorer: Scorer, scores: Array, output: str) -> pl.DataFrame:
    """Add results to rows that are to be written; in text, cells stay as they were read."""
    frame = rows.frame if format_to_write(output) in TEXTS else typed(rows.frame, rows.features)
    return frame.with_columns(
        pl.Series(SCORE, scores, pl.Float64).fill_nan(None),
        pl.Series(LABEL, scores > scorer.threshold, pl.Boolean),
        pl.Series(EXPLANATION, _explanations(rows, scorer, scores), pl.String),
    )


def _explanations(rows: Rows, scorer: Scorer, scores: Array) -> list[str | None]:
    """Say of the anomalies what makes them odd."""
    texts: list[str | None] = [None] * len(scores)
    anomalies = np.flatnonzero(scores > scorer.threshold)
    for i, parts in zip(anomalies, scorer.parts(rows.points[anomalies]), strict=True):
        texts[i] = ", ".join(map(str, reasons_of(parts, rows.points[i], rows.features)))
    return texts


def parts_of(rows: Rows, scorer: Scorer, scores: Array) -> pl.DataFrame:
    """Give the parts of the features in the score of each row: positive where it lies too high, negative too low."""
    parts = np.full(rows.points.shape, np.nan)
    usable = np.isfinite(scores)
    if usable.any():
        parts[usable] = scorer.parts(rows.points[usable])
    numbers = np.arange(rows.first + 1, rows.first + 1 + len(scores))
    columns = {ROW: pl.Series(numbers), SCORE: pl.Series(scores)}
    for j, name in enumerate(rows.features):
        columns[f"{name} part" if name in (ROW, SCORE) else name] = pl.Series(parts[:, j])
    return pl.DataFrame(columns).fill_nan(None)

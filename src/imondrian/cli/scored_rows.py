"""Fit a forest on a table and score it, or score a table with a model batch by batch; a row is explained once."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from imondrian.cli.console import Progress
from imondrian.cli.option_checks import check_jobs, parse_threshold
from imondrian.cli.options import FeatureOptions, ForestOptions
from imondrian.cli.table_rows import Rows, choose_features, errors_named_after, rows_of_batch
from imondrian.column_names import EXPLANATION, LABEL, ROW, SCORE, TABLE_RESULTS
from imondrian.defaults import preset_of
from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.explanations import reasons_of
from imondrian.fitted_model import FitResult, FittedModel, fit, no_progress, seed_from
from imondrian.model_files import Model, load_model
from imondrian.tables.feature_columns import TableColumns, check_names, with_numeric_features
from imondrian.tables.formats import UNTYPED_FORMATS, output_format
from imondrian.tables.missing import Medians, column_medians_of_copies
from imondrian.tables.table_reader import Table, TableBatch


class ScoredRows:
    """Rows with their scores; a row is explained at most once, when its explanation is first needed.

    Parameters
    ----------
    rows : Rows
        The rows.
    model : FittedModel
        The model that scored them.
    scores : array of shape (n_rows,)
        Their scores, NaN for rows with a missing value.
    """

    def __init__(self, rows: Rows, model: FittedModel, scores: Array) -> None:
        self.rows = rows
        self.model = model
        self.scores = scores
        self._parts = np.empty((0, rows.points.shape[1]))  # of the rows explained so far
        self._position = np.full(len(scores), -1)  # of each row in `_parts`; -1: not explained yet

    @property
    def is_anomaly(self) -> Array:
        """True for each row whose score is above the threshold."""
        return np.asarray(self.scores > self.model.threshold)

    def highest(self, n: int) -> Array:
        """Return the indices of the n rows with the highest scores, highest first; rows without a score are last."""
        return np.argsort(-np.nan_to_num(self.scores, nan=-1.0), kind="stable")[:n]

    def parts(self, indices: Array) -> Array:
        """Return the parts of the features in the scores of some rows."""
        new = indices[self._position[indices] < 0]
        if new.size:
            self._position[new] = len(self._parts) + np.arange(new.size)
            self._parts = np.vstack([self._parts, self.model.explain(self.rows.points[new])])
        return self._parts[self._position[indices]]


# -- models -----------------------------------------------------------------------------------------------------------


def load_model_file(path: str) -> Model:
    """Load a model file; raise an InvalidInputError if it is missing or a folder."""
    try:
        return load_model(path)
    except FileNotFoundError:
        raise InvalidInputError(f"{path}: file not found.") from None
    except IsADirectoryError:
        raise InvalidInputError(f"{path} is a folder, not a file.") from None


def fit_rows(rows: Rows, options: ForestOptions, progress: Progress = no_progress) -> FitResult:
    """Fit a forest on the rows without missing values, like IsolationMondrianForest."""
    preset = preset_of(options.preset)
    parameters = {
        "preset": options.preset,
        "n_estimators": options.trees,
        "max_samples": options.samples or None,
        "window": None,
        "kind": preset.kind,
        "scale": preset.scale,
        "contamination": parse_threshold(options.threshold) or preset.contamination,
        "n_jobs": check_jobs(options.jobs),
        "random_state": options.seed,
    }
    seed = seed_from(np.random.RandomState(options.seed))  # the same forest as with scikit-learn
    return fit(rows.points[rows.usable], parameters, seed, rows.features, progress)


def fit_and_score(rows: Rows, options: ForestOptions, progress: Progress) -> ScoredRows:
    """Fit a forest on rows and score each row once."""
    model, fitted_scores = fit_rows(rows, options, progress)
    if fitted_scores is None:
        return ScoredRows(rows, model, model.score(rows.points, progress))
    scores = np.full(len(rows.points), np.nan)
    scores[rows.usable] = fitted_scores
    return ScoredRows(rows, model, scores)


# -- batches ----------------------------------------------------------------------------------------------------------


def scored_batches(
    model: FittedModel, table: Table, options: FeatureOptions, model_path: str, progress: Progress
) -> Iterator[ScoredRows]:
    """Score a table with a model, batch by batch."""
    features: list[str] = []
    medians = medians_of_model(model)
    for batch in table.batches():
        columns = TableColumns(batch.frame, batch.first)
        features = features or model_features(model, table, batch.frame, columns, options, model_path)
        complete = _with_all_columns(batch, [*features, *_time_names(options)])
        if complete is not batch:
            columns = TableColumns(complete.frame, batch.first)
        rows = rows_of_batch(table, complete, columns, features, options.missing, medians)
        yield ScoredRows(rows, model, model.score(rows.points))
        progress(batch.share_read)


def medians_of_model(model: FittedModel) -> Medians:
    """Return a function that returns the medians of the points that the model holds, computed once."""
    return cache(lambda: column_medians_of_copies(*model.forest.points_and_copies()))


def model_features(
    model: FittedModel,
    table: Table,
    frame: pl.DataFrame,
    columns: TableColumns,
    options: FeatureOptions,
    model_path: str,
) -> list[str]:
    """Return the feature columns of a model: by name, or all numeric columns in order if the model has no names."""
    with errors_named_after(table):
        check_names(_time_names(options), frame.columns)
        if model.feature_names is not None:
            _check_features_present(model.feature_names, frame.columns, model_path)
            return model.feature_names
        numeric = choose_features(columns, frame.columns, options).features
        if len(numeric) != model.forest.n_features:
            raise InvalidInputError(
                f"{model_path} has {model.forest.n_features} unnamed features, but the table has {len(numeric)} numeric"
                f" columns: {', '.join(numeric)}."
            )
        return numeric


def _time_names(options: FeatureOptions) -> list[str]:
    return [] if options.time is None else [options.time]


def _check_features_present(features: list[str], columns: list[str], model_path: str) -> None:
    lacking = [name for name in features if name not in columns]
    if lacking:
        absent = "is no column" if len(lacking) == 1 else "are no columns"
        names = ", ".join(map(repr, lacking))
        raise InvalidInputError(f"{model_path} was fitted on other features: there {absent} {names}.")


def _with_all_columns(batch: TableBatch, names: list[str]) -> TableBatch:
    """Return a batch with all these columns; those that only other batches have are empty."""
    present = set(batch.frame.columns)
    lacking = [name for name in names if name not in present]
    if not lacking:
        return batch
    return batch._replace(frame=batch.frame.with_columns(pl.lit(None).alias(name) for name in lacking))


# -- results as columns -----------------------------------------------------------------------------------------------


def check_result_names(columns: list[str], output: str | None) -> None:
    """Raise an InvalidInputError if a result would overwrite a column that is not a result of an earlier run."""
    taken = [name for name in TABLE_RESULTS if name in columns]
    if output is not None and taken and SCORE not in columns:
        raise InvalidInputError(f"The table has its own column {taken[0]!r}, which is the name of a result: rename it.")


def result_table(scored: ScoredRows, output: str) -> pl.DataFrame:
    """Return the rows with score, label and explanation added; for CSV and TSV, cells stay as they were read."""
    rows, scores = scored.rows, scored.scores
    is_untyped = output_format(output) in UNTYPED_FORMATS
    frame = rows.frame if is_untyped else with_numeric_features(rows.frame, rows.features)
    return frame.with_columns(
        pl.Series(SCORE, scores, pl.Float64).fill_nan(None),
        pl.Series(LABEL, scored.is_anomaly, pl.Boolean),
        pl.Series(EXPLANATION, _explanations(scored), pl.String),
    )


def _explanations(scored: ScoredRows) -> list[str | None]:
    """Return the explanations of the anomalies, None for other rows."""
    rows = scored.rows
    texts: list[str | None] = [None] * len(scored.scores)
    anomalies = np.flatnonzero(scored.is_anomaly)
    for i, parts in zip(anomalies, scored.parts(anomalies), strict=True):
        texts[i] = ", ".join(map(str, reasons_of(parts, rows.points[i], rows.features)))
    return texts


def parts_table(scored: ScoredRows) -> pl.DataFrame:
    """Return the part of each feature in the score of each row: positive if unusually high, negative if low."""
    rows, scores = scored.rows, scored.scores
    parts = np.full(rows.points.shape, np.nan)
    usable = np.flatnonzero(np.isfinite(scores))
    if usable.size:
        parts[usable] = scored.parts(usable)
    numbers = np.arange(rows.first + 1, rows.first + 1 + len(scores))
    columns: dict[str, Any] = {ROW: pl.Series(numbers), SCORE: pl.Series(scores)}
    for j, name in enumerate(rows.features):
        columns[f"{name} part" if name in (ROW, SCORE) else name] = pl.Series(parts[:, j])
    return pl.DataFrame(columns).fill_nan(None)

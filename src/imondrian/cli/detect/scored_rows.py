"""Score a table: with a forest that is fitted on it, or batch by batch with the model of a file."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from imondrian.base.column_names import EXPLANATION, LABEL, ROW, SCORE, SURPRISE, TABLE_RESULTS
from imondrian.base.defaults import preset_of
from imondrian.base.errors import InvalidInputError
from imondrian.cli.console import Progress
from imondrian.cli.model_loading import load_model_file
from imondrian.cli.option_checks import check_jobs, contamination_from
from imondrian.cli.options import FeatureOptions, ForestOptions
from imondrian.cli.table_rows import Rows, column_rules, errors_named_after, rows_of_batch
from imondrian.engine.jit import Array
from imondrian.model_files import as_fitted_model, load_extra, save
from imondrian.models.explanations import Expectations, Reason, reasons_of_rows
from imondrian.models.fitted_model import FitResult, FittedModel, fit, no_progress, seed_from, with_scores
from imondrian.tables.column_notes import columns_from_notes, notes_of_columns
from imondrian.tables.feature_columns import (
    FeatureColumn,
    TableColumns,
    check_names,
    with_numeric_features,
)
from imondrian.tables.formats import UNTYPED_FORMATS, output_format
from imondrian.tables.missing import MISSING
from imondrian.tables.table_reader import Table, TableBatch

_COLUMNS = "columns"  # name of the extra value of a model file that says how features are read from columns


class ScoredRows:
    """Rows with their scores; a row is explained at most once, when its explanation is first needed.

    Parameters
    ----------
    rows : Rows
        The rows.
    model : FittedModel
        The model that scored them.
    scores : array of shape (n_rows,)
        Their scores, NaN for rows that cannot be used.
    """

    def __init__(self, rows: Rows, model: FittedModel, scores: Array) -> None:
        self.rows = rows
        self.model = model
        self.scores = scores
        self._expectations = Expectations(model.forest, indicators=model.indicators)
        self._parts = np.empty((0, rows.points.shape[1]))  # parts of the features, for the rows explained so far
        self._position = np.full(len(scores), -1)  # index of each row in `_parts`; -1: not explained yet

    @cached_property
    def surprises(self) -> Array:
        """The surprise of each row, NaN for rows that cannot be used."""
        return self.model.surprise(self.scores)

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

    def reasons(self, indices: Array, n: int = 3) -> list[list[Reason]]:
        """Return the features with the largest parts in the scores of some rows, at most n features per row."""
        points = self.rows.points[indices]
        return reasons_of_rows(
            self.parts(indices),
            points,
            self.rows.features,
            n,
            expectations=self._expectations,
            points=self.model.points_of_forest(points),
            texts=self.rows.category_texts(indices),
        )


# -- models -----------------------------------------------------------------------------------------------------------


class TableModel(NamedTuple):
    """A model from a file, and how its features are read from a table."""

    path: str
    fitted: FittedModel
    columns: Mapping[str, FeatureColumn]  # features that are not plain numbers or categories, by name

    def with_missing(self, rule: str | None) -> "TableModel":
        """Return the model with another rule for missing values; None keeps the rule of the model."""
        if rule is None:
            return self
        parameters = {**self.fitted.parameters, "missing": MISSING[rule].of_model}
        return self._replace(fitted=replace(self.fitted, parameters=parameters))

    @property
    def missing(self) -> str:
        """The rule for the missing values of a table."""
        return "fail" if self.fitted.missing == "raise" else self.fitted.missing

    @property
    def categorical(self) -> set[str]:
        """The names of the features that are categories."""
        names = self.fitted.feature_names or []
        return {names[j] for j in self.fitted.categorical if j < len(names)}


def load_table_model(path: str, jobs: int) -> TableModel:
    """Load a model file to use it on tables."""
    fitted = as_fitted_model(load_model_file(path), path)
    fitted.forest.n_jobs = check_jobs(jobs)
    return TableModel(path, fitted, columns_from_notes(load_extra(path).get(_COLUMNS, []), path))


def save_table_model(model: FittedModel, columns: list[FeatureColumn], path: str) -> None:
    """Save a model, and how its features are read from a table."""
    notes = notes_of_columns(columns)
    save(model, path, {_COLUMNS: notes} if notes else None)


def fit_rows(rows: Rows, options: ForestOptions, missing: str | None, progress: Progress = no_progress) -> FitResult:
    """Fit a forest on the usable rows, like IsolationMondrianForest; `missing` is the value of --missing."""
    preset = preset_of(options.preset)
    parameters = {
        "preset": options.preset,
        "n_estimators": options.trees,
        "max_samples": options.samples or None,
        "window": None,
        "kind": preset.kind,
        "scale": preset.scale,
        "contamination": contamination_from(options.threshold, preset.table_threshold),
        "categorical": rows.categorical,
        "missing": MISSING[missing or "median"].of_model,
        "n_jobs": check_jobs(options.jobs),
        "random_state": options.seed,
    }
    seed = seed_from(np.random.RandomState(options.seed))  # as in IsolationMondrianForest, for the same forest
    return fit(rows.points[rows.usable], parameters, seed, rows.features, progress)


def fit_and_score(rows: Rows, options: ForestOptions, missing: str | None, progress: Progress) -> ScoredRows:
    """Fit a forest on rows and score each row once."""
    model, fitted_scores = fit_rows(rows, options, missing, progress)
    if fitted_scores is None:
        scores = model.score(rows.points, progress)
        return ScoredRows(rows, with_scores(model, scores), scores)
    scores = np.full(len(rows.points), np.nan)
    scores[rows.usable] = fitted_scores
    return ScoredRows(rows, model, scores)


# -- batches ----------------------------------------------------------------------------------------------------------


def scored_batches(
    model: TableModel, table: Table, options: FeatureOptions, progress: Progress
) -> Iterator[ScoredRows]:
    """Score a table with a model, batch by batch; the first batch decides how the features are read."""
    model = model.with_missing(options.missing)
    features: list[FeatureColumn] = []
    for batch in table.batches():
        columns = TableColumns(batch.frame, batch.first)
        features = features or model_features(model, table, batch.frame, columns, options)
        complete = _with_all_columns(batch, [*(feature.column for feature in features), *_shown_names(options)])
        if complete is not batch:
            columns = TableColumns(complete.frame, batch.first)
        rows = rows_of_batch(table, complete, columns, features, options.missing or model.missing)
        yield ScoredRows(rows, model.fitted, model.fitted.score(rows.points))
        progress(batch.share_read)


def model_features(
    model: TableModel, table: Table, frame: pl.DataFrame, columns: TableColumns, options: FeatureOptions
) -> list[FeatureColumn]:
    """Return how to read the features of a model: by name, or by the order of the columns if features have no names.

    What was decided about the columns is added to the notes on the table.
    """
    with errors_named_after(table):
        check_names(_shown_names(options), frame.columns)
        rules = column_rules(table, frame.columns, options)
        names = model.fitted.feature_names
        if names is None:
            choice = columns.choose(rules)
            choice = choice._replace(columns=_unnamed_features(model, choice.columns))
        else:
            sources = [model.columns[name].column if name in model.columns else name for name in names]
            _check_features_present(sources, frame.columns, model.path)
            choice = columns.features_of_model(names, model.categorical, model.columns, rules)
    table.facts.notes += choice.notes
    return choice.columns


def _unnamed_features(model: TableModel, columns: list[FeatureColumn]) -> list[FeatureColumn]:
    """Return the features of a model without feature names: the usable columns in their order.

    If the model has no categories, columns of categories are left out.

    Raises
    ------
    InvalidInputError
        If the number of columns, or the kind of one, does not match the model.
    """
    categorical, n_features = model.fitted.categorical, model.fitted.n_features
    found = columns if categorical else [feature for feature in columns if not feature.is_category]
    if len(found) != n_features:
        names = ", ".join(feature.name for feature in found)
        kinds = "columns of numbers and categories" if categorical else "numeric columns"
        raise InvalidInputError(
            f"{model.path} has {n_features} unnamed features, but the table has {len(found)} {kinds}: {names}."
        )
    for j, feature in enumerate(found):
        if feature.is_category != (j in categorical):
            has, expects = ("categories", "numbers") if feature.is_category else ("numbers", "categories")
            raise InvalidInputError(f"The column {feature.name!r} has {has}, but {model.path} expects {expects}.")
    return found


def _shown_names(options: FeatureOptions) -> list[str]:
    """Return the columns that are displayed beside the rows."""
    return [name for name in (options.id, options.time) if name is not None]


def _check_features_present(features: list[str], columns: list[str], model_path: str) -> None:
    lacking = [name for name in features if name not in columns]
    if lacking:
        are_missing = "is no column" if len(lacking) == 1 else "are no columns"
        names = ", ".join(map(repr, lacking))
        raise InvalidInputError(f"{model_path} was fitted on other features: there {are_missing} {names}.")


def _with_all_columns(batch: TableBatch, names: list[str]) -> TableBatch:
    """Return the batch with all these columns; a column that it lacks is added without values."""
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
    """Return the rows with the results added; for CSV and TSV, cells stay as they were read."""
    rows, scores = scored.rows, scored.scores
    is_untyped = output_format(output) in UNTYPED_FORMATS
    frame = rows.frame if is_untyped else with_numeric_features(rows.frame, rows.columns)
    return frame.with_columns(
        pl.Series(SCORE, scores, pl.Float64).fill_nan(None),
        pl.Series(SURPRISE, scored.surprises, pl.Float64).fill_nan(None),
        pl.Series(LABEL, scored.is_anomaly, pl.Boolean),
        pl.Series(EXPLANATION, _explanations(scored), pl.String),
    )


def _explanations(scored: ScoredRows) -> list[str | None]:
    """Return the explanations of the anomalies, None for other rows."""
    texts: list[str | None] = [None] * len(scored.scores)
    anomalies = np.flatnonzero(scored.is_anomaly)
    for i, reasons in zip(anomalies, scored.reasons(anomalies), strict=True):
        texts[i] = "; ".join(map(str, reasons))
    return texts


def parts_table(scored: ScoredRows) -> pl.DataFrame:
    """Return the part of each feature in the score of each row: positive if its value is high, negative if low."""
    rows, scores = scored.rows, scored.scores
    parts = np.full(rows.points.shape, np.nan)
    usable = np.flatnonzero(np.isfinite(scores))
    if usable.size:
        parts[usable] = scored.parts(usable)
    numbers = np.arange(rows.first + 1, rows.first + 1 + len(scores))
    columns: dict[str, Any] = {
        ROW: pl.Series(numbers),
        SCORE: pl.Series(scores),
        SURPRISE: pl.Series(scored.surprises),
    }
    taken = set(columns)
    for j, name in enumerate(rows.features):
        columns[f"{name} part" if name in taken else name] = pl.Series(parts[:, j])
    return pl.DataFrame(columns).fill_nan(None)

"""Fit a forest to the rows of a distributed frame: executors draw the samples, the driver builds the trees."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from imondrian.base.defaults import MAX_SAMPLES, MISSING_VALUES, N_TREES, PRESET, SEED
from imondrian.base.errors import InvalidInputError
from imondrian.base.option_types import (
    ON_ERROR,
    KindOrPreset,
    Missing,
    OnError,
    PresetName,
    ScaleOrPreset,
    StreamCategorical,
    ThresholdOrPreset,
)
from imondrian.models.distributed import DrawnSamples, new_sampled_forest
from imondrian.models.fitted_model import FittedModel
from imondrian.spark.arrow_points import problem_with
from imondrian.spark.fit_settings import FitSettings
from imondrian.spark.partition_samples import UnusableRows, draw_samples
from imondrian.spark.point_columns import Features, check_choice, features_to_learn, with_feature_count
from imondrian.spark.sampled_model import model_on_samples

if TYPE_CHECKING:
    from imondrian.estimator import IsolationMondrianForest


def fit(  # noqa: PLR0913
    df: DataFrame,
    features: str | Sequence[str],
    n_trees: int = N_TREES,
    max_samples: int = MAX_SAMPLES,
    seed: int = SEED,
    *,
    preset: PresetName = PRESET,
    kind: KindOrPreset = "preset",
    scale: ScaleOrPreset = "preset",
    threshold: ThresholdOrPreset = "preset",
    categorical: StreamCategorical = (),
    missing: Missing = MISSING_VALUES,
    on_error: OnError = "raise",
) -> "IsolationMondrianForest":
    """Fit a forest to the rows of a distributed frame.

    Each tree has its own uniform sample of the rows, drawn in one pass: the rows with the smallest random keys. A key
    depends only on the seed, the tree and the row; each copy of a row has its own key. The forest is therefore the
    same, bit for bit, regardless of partitioning, number of executors and row order. To count the copies, Spark
    shuffles the distinct rows of each partition. The samples are collected on the driver, which builds the trees.

    Parameters
    ----------
    df : DataFrame
    features : list of str, or str
        Columns of numbers, text and booleans, or one column of arrays or vectors. Text and booleans are categories.
    n_trees : int, default=100
        Number of trees.
    max_samples : int, default=256
        Maximum number of rows in each tree.
    seed : int, default=0
        The same seed and the same rows give the same forest.
    preset : "practice" or "paper", default="practice"
        Sets kind, scale and threshold where they are left at "preset".
    kind : "preset", "depth", "expected" or "size", default="preset"
        Which score to use.
    scale : "preset", None, "std" or one weight per feature, default="preset"
        As in `MondrianForest`; "std" uses the standard deviations of all samples together.
    threshold : "preset", "auto", "kmeans", float, or a string such as "top 5%", default="preset"
        Which rows are anomalies, as on the command line. A number p below 0.5: rows whose surprise is above -log10(p),
        so an ordinary row is flagged with a probability of about p; "surprise 3" is the same as 0.001. "top 5%": that
        share of the rows. "kmeans": rows with a score above the midpoint of the means of two clusters of scores. 0.5,
        or "score 0.6": rows with a score above this number. "auto": 0.001 with the preset "practice", 0.5 with "paper".
        "preset": "auto" with "practice", "kmeans" with "paper". The threshold is computed from the scores of the rows
        that the trees hold.
    categorical : sequence of str or int, or mask, default=()
        Further features that are categories: the names of their columns, their indices, or a mask. They are columns of
        numbers for which only two things count: whether two values are equal, and how common each is. If one column
        holds all features, the features have no names. A missing value is a category of its own.
    missing : "median", "indicator" or "raise", default="median"
        What to do with missing numbers (null or NaN). "median": replace them by the median of the column in all samples
        together. "indicator": also add a yes/no feature for each column with gaps. "raise": the row cannot be used.
    on_error : "raise" or "skip", default="raise"
        How to handle a row that cannot be used (an infinite value, or no value at all): raise InvalidInputError, or
        skip the row with a warning.

    Returns
    -------
    imondrian.IsolationMondrianForest
        An ordinary estimator, which can be saved, loaded, extended and used anywhere; `forest_` is its forest.
    """
    settings = FitSettings.with_threshold(preset, kind, scale, threshold, missing)
    fitted = fit_with_settings(df, features, (n_trees, max_samples, seed), settings, categorical, on_error)
    from imondrian.estimator import IsolationMondrianForest  # noqa: PLC0415 (workers do not need scikit-learn)

    return IsolationMondrianForest.from_fitted_model(fitted)


def fit_with_settings(
    df: DataFrame,
    features: str | Sequence[str],
    forest_arguments: tuple[int, int, int],
    settings: FitSettings,
    categorical: StreamCategorical,
    on_error: str,
) -> FittedModel:
    """Fit a forest like `fit`; `forest_arguments` are its n_trees, max_samples and seed."""
    check_choice(on_error, "on_error", ON_ERROR)
    column, feature_info = features_to_learn(df, features, categorical)
    feature_info = with_feature_count(df, column, feature_info, categorical)
    n_trees, max_samples, seed = forest_arguments
    forest = new_sampled_forest(n_trees, max_samples, settings.scale, seed, feature_info.categorical)
    drawn = _checked_samples(*draw_samples(df, column, feature_info, forest, settings.missing), feature_info, on_error)
    pooled = drawn.points.reshape(-1, drawn.points.shape[2])
    fitted = model_on_samples(drawn, pooled, settings.parameters(forest), forest.seed, feature_info.names)
    return replace(fitted, stored_threshold=fitted.threshold, stored_distribution=fitted.distribution)


def _checked_samples(
    drawn: DrawnSamples | None, unusable: UnusableRows, features: Features, on_error: str
) -> DrawnSamples:
    """Raise an error or warn about unusable rows; raise an error if no row is usable."""
    n_points = 0 if drawn is None else drawn.n_points
    if unusable.n_rows > 0:
        problem = problem_with(unusable.example, features)
        message = f"{unusable.n_rows} of {n_points + unusable.n_rows} rows cannot be used: {problem}"
        if on_error == "raise":
            raise InvalidInputError(f"{message}. Use on_error='skip' to skip them.")
        warnings.warn(f"{message}. They are skipped.", stacklevel=3)
    if drawn is None:
        raise InvalidInputError("The frame has no usable rows.")
    return drawn

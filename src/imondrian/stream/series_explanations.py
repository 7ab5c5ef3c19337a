"""The features that make a row of a time series unusual, each with its view and the values expected instead."""

from itertools import permutations
from typing import NamedTuple

import numpy as np

from imondrian.engine.jit import Array
from imondrian.engine.series_views import N_VIEWS
from imondrian.forest.mondrian_forest import MondrianForest


class SeriesPart(NamedTuple):
    """The part of one feature in the score of a row. Value, median, low and high are in the units of the feature."""

    feature: int
    view: int  # the view with the largest part, if possible one in which the value is outside the expected range
    share: float  # of the score
    value: float
    is_high: bool  # whether the value is above the median
    median: float  # median of what was expected in this view
    low: float  # 5 % quantile of what was expected
    high: float  # 95 % quantile of what was expected


def series_parts(forest: MondrianForest, point: Array, values: Array, parts: Array, n: int) -> list[SeriesPart]:
    """Return the features with the largest parts in the score of a row, at most n, largest first.

    To find what is expected of a feature, its deviations in both views are hidden, since both come from the same value.
    Missing numbers have no part.

    Parameters
    ----------
    forest : MondrianForest
        A forest that does not hold the point.
    point : array of shape (2 * n_features,)
        The deviations of the row in both views; see `SeriesViews`.
    values : array of shape (n_features,)
        The row. NaN: the number is missing.
    parts : array of shape (2 * n_features,)
        The parts of the deviations in the score.
    n : int
        Maximum number of features.
    """
    n_features, by_view = values.size, np.abs(parts.reshape(N_VIEWS, -1))
    sizes = by_view.sum(axis=0)
    features = np.array([j for j in np.argsort(-sizes, kind="stable").tolist() if not np.isnan(values[j])][:n], int)
    if features.size == 0:
        return []
    columns = np.arange(N_VIEWS)[:, None] * n_features + features  # in each view
    usual = values[features] - point[columns]
    median, low, high = (usual + quantile for quantile in _expected_deviations(forest, point, columns))
    is_outside = (values[features] < low) | (values[features] > high)
    # the sum, which no part exceeds, puts views in which the value is outside its range before the others
    views = (by_view[:, features] + is_outside * sizes.sum()).argmax(axis=0)
    chosen = views, np.arange(features.size)
    fields = (
        features,
        views,
        sizes[features] / max(sizes.sum(), np.finfo(float).tiny),
        values[features],
        values[features] > median[chosen],
        *(quantile[chosen] for quantile in (median, low, high)),
    )
    return [SeriesPart(*part) for part in zip(*(field.tolist() for field in fields), strict=True)]


def _expected_deviations(forest: MondrianForest, point: Array, columns: Array) -> tuple[Array, Array, Array]:
    """Return median, low and high of the columns, each of shape (N_VIEWS, n).

    For each column, the columns of the same feature in the other views are hidden.
    """
    queries = np.tile(point, (*columns.shape, 1))
    for view, other in permutations(range(N_VIEWS), 2):
        queries[view, np.arange(columns.shape[1]), columns[other]] = np.nan
    expected = forest.expected_values(queries.reshape(-1, point.size), columns.reshape(-1, 1))
    median, low, high = (quantile.reshape(columns.shape) for quantile in (expected.median, expected.low, expected.high))
    return median, low, high

"""What makes a row of a time series unusual: its features, in which view, and what was expected instead."""

from typing import NamedTuple

import numpy as np

from imondrian.engine.jit import Array
from imondrian.engine.series_views import N_VIEWS
from imondrian.forest import MondrianForest


class SeriesPart(NamedTuple):
    """The part of one feature in the score of a row. All numbers are values of the feature, not deviations."""

    feature: int
    view: int  # the view with the larger part
    share: float  # of the score
    value: float
    is_high: bool  # whether the value is unusually high in this view
    median: float  # of what was expected
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
    n_features, by_view = values.size, parts.reshape(N_VIEWS, -1)
    sizes = np.abs(by_view).sum(axis=0)
    features = np.array([j for j in np.argsort(-sizes, kind="stable").tolist() if not np.isnan(values[j])][:n], int)
    if features.size == 0:
        return []
    views = np.abs(by_view[:, features]).argmax(axis=0)
    columns = views * n_features + features
    asked = np.repeat(point[None], features.size, axis=0)
    for view in range(N_VIEWS):
        is_other = views != view
        asked[is_other, view * n_features + features[is_other]] = np.nan
    expected = forest.expected_values(asked, columns[:, None])
    usual = values[features] - point[columns]
    fields = (
        features,
        views,
        sizes[features] / max(sizes.sum(), np.finfo(float).tiny),
        values[features],
        by_view[views, features] > 0.0,
        *(usual + quantile[:, 0] for quantile in (expected.median, expected.low, expected.high)),
    )
    return [SeriesPart(*part) for part in zip(*(field.tolist() for field in fields), strict=True)]

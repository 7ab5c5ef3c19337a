"""Expected values of features: the median and the range of what the trees expect, given the rest of the row.

These are values of features. They have nothing to do with the score `kind="expected"`, which is an expected depth.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from imondrian.engine.expected_values import write_expected_values, write_most_frequent
from imondrian.engine.jit import Array
from imondrian.engine.threads import even_slices
from imondrian.forest.feature_layout import FeatureLayout
from imondrian.forest.scores import ScoringCache

_LOW, _MEDIAN, _HIGH = 0.05, 0.5, 0.95
_VALUES_PER_TASK = 2**20  # one value for each tree, feature and row: 8 MB


class ExpectedValues(NamedTuple):
    """What would be ordinary for features of rows, given the other features of each row; arrays of the same shape.

    Each number is a value that some tree expects: quantiles are not interpolated. For a categorical feature, all three
    are the category that the largest number of trees expects. NaN if no tree holds a point, which is possible with a
    window and a small `max_samples`.
    """

    median: Array
    low: Array  # the 5 % quantile over the trees
    high: Array  # the 95 % quantile over the trees
    share: Array  # of a category: the share of the trees that expect it; NaN for numbers


def expected_values(cache: ScoringCache, layout: FeatureLayout, rows: Array, features: Array) -> ExpectedValues:
    """Return the expected values of the features `features[i]` of each coded row i; NaN in a row is a gap."""
    expected = ExpectedValues(*np.full((4, *features.shape), np.nan))
    coordinates, categorical = layout.last_coordinates(features), np.isin(features, layout.categorical)
    per_row = features.shape[1] * cache.trees.heads.size
    n_rows = min(-(-len(rows) // cache.threads.n_threads), max(_VALUES_PER_TASK // per_row, 1))
    write = partial(_write, cache, rows, coordinates, categorical, expected)
    cache.threads.run([partial(write, block) for block in even_slices(len(rows), n_rows)])
    return expected


def _write(
    cache: ScoringCache, rows: Array, coordinates: Array, categorical: Array, expected: ExpectedValues, block: slice
) -> None:
    """Write the expected values of a block of rows."""
    chosen = coordinates[block]
    values = np.empty((*chosen.shape, cache.trees.heads.size))
    n_trees = write_expected_values(cache.trees, rows[block], chosen, cache.weights, values)
    if n_trees == 0:
        return  # all are NaN
    values = np.sort(values[..., :n_trees])
    for column, share in ((expected.low, _LOW), (expected.median, _MEDIAN), (expected.high, _HIGH)):
        column[block] = values[..., rank_of_quantile(share, n_trees)]
    are_categories = categorical[block]
    if are_categories.any():
        codes = np.ascontiguousarray(values[are_categories])
        most_frequent, shares = np.empty(len(codes)), np.empty(len(codes))
        write_most_frequent(codes, most_frequent, shares)
        for column in (expected.low, expected.median, expected.high):
            column[block][are_categories] = most_frequent
        expected.share[block][are_categories] = shares


def rank_of_quantile(share: float, n: int) -> int:
    """Return the index of a quantile among n sorted values.

    It is the index of the first value v such that at least this share of the values is <= v.

    Examples
    --------
    >>> [rank_of_quantile(share, 100) for share in (0.05, 0.5, 0.95)]
    [4, 49, 94]
    >>> rank_of_quantile(0.95, 1)
    0
    """
    return max(math.ceil(round(share * n, 9)) - 1, 0)  # 0.07 * 100, for example, is slightly more than 7

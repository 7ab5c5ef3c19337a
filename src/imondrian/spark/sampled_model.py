"""Fit a model on samples: replace missing numbers in the samples, then build the trees."""

from dataclasses import replace
from typing import Any

import numpy as np

from imondrian.engine.jit import Array
from imondrian.models.distributed import Categories, DrawnSamples, forest_on_samples
from imondrian.models.fitted_model import FittedModel, new_model


def model_on_samples(
    drawn: DrawnSamples, rows: Array, parameters: dict[str, Any], seed: int, names: list[str] | None
) -> FittedModel:
    """Build a forest on samples, with the medians of `rows`; the threshold is not computed.

    All points, not only the samples, determine which features have indicators of missing values, and how common
    categories and gaps are.
    """
    with_gaps = np.flatnonzero(drawn.n_gaps).tolist()
    empty = new_model(rows, parameters, seed, names, with_gaps=with_gaps)
    n_trees, n_slots, n_features = drawn.points.shape
    points = empty.points_of_forest(drawn.points.reshape(-1, n_features))
    samples = np.ascontiguousarray(points).reshape(n_trees, n_slots, -1)
    gaps = [_indicator_counts(int(drawn.n_gaps[j]), drawn.n_points) for j in empty.indicators]
    forest = forest_on_samples(empty.forest, drawn.n_points, samples, [*drawn.categories, *gaps])
    return replace(empty, forest=forest)


def _indicator_counts(n_gaps: int, n_points: int) -> Categories:
    """Return the counts of an indicator: 0 where there is a number, 1 where it is missing."""
    codes, counts = np.array([0.0, 1.0]), np.array([n_points - n_gaps, n_gaps])
    return codes[counts > 0], counts[counts > 0]

"""Count, mean and squared deviations of every feature, updated point by point; weights 1 / standard deviation."""

import math

from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.randomness import LARGEST

COUNT, MEAN, SQUARES = 0, 1, 2  # the rows of `moments`; SQUARES: the sum of the squared deviations from the mean


@kernel
def write_weights(moments: Array, weights: Array) -> None:
    """Write the weight of every feature."""
    for j in range(weights.size):
        weights[j] = weight(moments[COUNT, j], moments[MEAN, j], moments[SQUARES, j])


@kernel
def add_points(moments: Array, X: Array) -> None:
    """Add the rows of X to the moments."""
    for i in range(X.shape[0]):
        add_point(moments, X[i])


@kernel
def add_points_and_write_weights(moments: Array, X: Array, weights: Array) -> None:
    """Add the rows of X to the moments; after row i, write the weights to weights[i]."""
    for i in range(X.shape[0]):
        add_point(moments, X[i])
        for j in range(X.shape[1]):
            weights[i, j] = weight(moments[COUNT, j], moments[MEAN, j], moments[SQUARES, j])


@helper
def add_point(moments: Array, x: Array) -> None:
    """Add x to the moments (Welford's method)."""
    share = 1.0 / (moments[COUNT, 0] + 1.0)
    for j in range(x.size):
        deviation = x[j] - moments[MEAN, j]
        moments[COUNT, j] += 1.0
        moments[MEAN, j] += deviation * share
        moments[SQUARES, j] = min(moments[SQUARES, j] + deviation * (x[j] - moments[MEAN, j]), LARGEST)


@helper
def weight(count: float, mean: float, squares: float) -> float:
    """Return 1 / standard deviation, or 1 if the deviations are no larger than the rounding error of the mean.

    The moments are NaN if another thread changed the points while they were added; then, too, the weight is 1.
    """
    rounding = mean * 2.2e-16
    if not squares > count * rounding * rounding:
        return 1.0
    return math.sqrt(count) / math.sqrt(squares)

"""Feature weights: how much a unit of each feature counts in the rates of the cuts. The data stay as they are."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.nodes import MAX_SHOWN, MAX_SIZE
from imondrian.engine.randomness import LARGEST
from imondrian.inputs import as_weights

COUNT, MEAN, SQUARES = 0, 1, 2  # the rows of `moments`; squares: the sum of the squared deviations from the mean


class Scale(Protocol):
    """One weight per feature, which may move with the points seen and not forgotten."""

    moments: Array
    moves: bool  # whether the weights depend on the points

    def weights(self) -> Array:
        """Give the weights as they are now."""

    def restart(self, X: Array, n_points: int) -> None:
        """Begin anew with these points, a sample of n_points."""

    def follow(self, X: Array) -> Array:
        """Add points, and give the weights after each of them as a row."""

    def join(self, moments: Array) -> None:
        """Add all that another scale has seen."""

    def restore(self, moments: Array) -> None:
        """Take over the moments of another scale of the same kind."""

    def copy(self) -> "Scale":
        """Make another that can move on without this one."""


class FixedScale:
    """Weights that stay as they are."""

    moves = False

    def __init__(self, weights: Array) -> None:
        self._weights = weights
        self.moments = np.zeros((3, weights.size))

    def weights(self) -> Array:
        """Give the weights."""
        return self._weights

    def restart(self, X: Array, n_points: int) -> None:
        """Do nothing."""

    def follow(self, X: Array) -> Array:
        """Give the weights once for every row."""
        return np.tile(self._weights, (X.shape[0], 1))

    def join(self, moments: Array) -> None:
        """Do nothing."""

    def restore(self, moments: Array) -> None:
        """Do nothing."""

    def copy(self) -> Scale:
        """Give this one, which never moves."""
        return self


class StandardScale:
    """One over the standard deviation of each feature; 1 for a feature that does not vary."""

    moves = True

    def __init__(self, n_features: int) -> None:
        self.moments = np.zeros((3, n_features))
        self._weights: Array | None = None  # those of the moments, once they have been asked for

    def weights(self) -> Array:
        """Give the weights as they are now."""
        weights = self._weights
        if weights is None:
            weights = np.empty(self.moments.shape[1])
            write_weights(self.moments, weights)
            self._weights = weights  # only now: other threads may read at the same time
        return weights

    def restore(self, moments: Array) -> None:
        """Take over the moments of another scale."""
        self.moments[:], self._weights = moments, None

    def copy(self) -> Scale:
        """Make another with the same moments."""
        other = StandardScale(self.moments.shape[1])
        other.restore(self.moments)
        return other

    def restart(self, X: Array, n_points: int) -> None:
        """Take the deviations of these points alone, as if n_points had them."""
        self.restore(np.zeros_like(self.moments))
        add_points(self.moments, X)
        self.moments[SQUARES] *= n_points / max(X.shape[0], 1)
        self.moments[COUNT] = n_points

    def follow(self, X: Array) -> Array:
        """Add points one by one (Welford's method)."""
        self._weights = None
        weights = np.empty(X.shape)
        add_points_and_write_weights(self.moments, X, weights)
        return weights

    def join(self, moments: Array) -> None:
        """Add all that another scale has seen (the pairwise update of Chan, Golub and LeVeque)."""
        ours, theirs, self._weights = self.moments, moments, None
        count = ours[COUNT] + theirs[COUNT]
        apart = theirs[MEAN] - ours[MEAN]
        share = np.divide(theirs[COUNT], count, out=np.zeros_like(count), where=count > 0)
        with np.errstate(over="ignore"):
            squares = ours[SQUARES] + theirs[SQUARES] + apart * apart * ours[COUNT] * share
        ours[SQUARES] = np.minimum(squares, LARGEST)
        ours[MEAN] += apart * share
        ours[COUNT] = np.minimum(count, MAX_SHOWN)


def unit_scale(n_features: int) -> Scale:
    """Make a scale that weighs all features alike, as the paper does."""
    return FixedScale(np.ones(n_features))


SCALES: dict[str | None, Callable[[int], Scale]] = {None: unit_scale, "std": StandardScale}


def new_scale(scale: Any, n_features: int) -> Scale:
    """Make the scale of that name, or one of the given weights."""
    if scale is None or isinstance(scale, str):
        return SCALES[scale](n_features)
    return FixedScale(as_weights(scale, n_features))


def are_possible(moments: Array, n_points: int) -> bool:
    """Tell whether there can be at least n_points points with such moments."""
    count, mean, squares = moments
    counts = count.min() >= n_points and count.max() <= MAX_SHOWN and bool((count == count[0]).all())
    return counts and bool((np.abs(mean) <= MAX_SIZE).all() and (squares >= 0).all() and np.isfinite(squares).all())


@kernel
def write_weights(moments: Array, weights: Array) -> None:
    """Write the present weight of every feature."""
    for j in range(weights.size):
        weights[j] = weight(moments[COUNT, j], moments[MEAN, j], moments[SQUARES, j])


@kernel
def add_points(moments: Array, X: Array) -> None:
    """Add the rows of X to the moments."""
    for i in range(X.shape[0]):
        add_point(moments, X[i])


@kernel
def add_points_and_write_weights(moments: Array, X: Array, weights: Array) -> None:
    """Add the rows of X to the moments; after each, write the weights into a row."""
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
    """Give one over the standard deviation, or 1 where the deviations are no more than rounding errors of the mean."""
    rounding = mean * 2.2e-16
    if squares <= count * rounding * rounding:
        return 1.0
    return math.sqrt(count) / math.sqrt(squares)

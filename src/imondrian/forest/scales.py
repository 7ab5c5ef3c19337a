"""Feature weights: the rate of cuts in a feature is its extent times its weight. The data are not transformed."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from imondrian.engine.jit import Array
from imondrian.engine.moments import (
    COUNT,
    MEAN,
    SQUARES,
    add_points,
    add_points_and_write_weights,
    write_weights,
)
from imondrian.engine.nodes import MAX_COUNT, MAX_VALUE
from imondrian.engine.randomness import LARGEST
from imondrian.forest.feature_layout import FeatureLayout
from imondrian.forest.inputs import as_weights

RARITY_WEIGHT, PLACE_WEIGHT = 4.0, 2.0  # with "std"; a number that is 0 or 1, equally often, has the weight 2 as well


class Scale(Protocol):
    """One weight per coordinate; the weights of an adaptive scale depend on the points shown and not forgotten."""

    is_adaptive: bool  # True if the weights depend on the points

    @property
    def moments(self) -> Array:
        """Count, mean and sum of squared deviations of each numeric feature."""

    def weights(self) -> Array:
        """Return the current weights."""

    def restart(self, X: Array, n_points: int) -> None:
        """Discard all points and start again with n_points points; X contains all of them, or a sample."""

    def add(self, X: Array) -> None:
        """Add points."""

    def update(self, X: Array) -> Array:
        """Add points one by one; return the weights after each of them, one row per point."""

    def join(self, moments: Array) -> None:
        """Add all points that another scale, with these moments, was computed from."""

    def restore(self, moments: Array) -> None:
        """Restore the moments of another scale of the same kind."""

    def copy(self) -> "Scale":
        """Return an independent copy."""


class FixedScale:
    """Weights that never change."""

    is_adaptive = False

    def __init__(self, weights: Array, n_numbers: int) -> None:
        self._weights = weights
        self.moments = np.zeros((3, n_numbers))

    def weights(self) -> Array:
        """Return the weights."""
        return self._weights

    def restart(self, X: Array, n_points: int) -> None:
        """Do nothing."""

    def add(self, X: Array) -> None:
        """Do nothing."""

    def update(self, X: Array) -> Array:
        """Return the weights, repeated for every row."""
        return np.tile(self._weights, (X.shape[0], 1))

    def join(self, moments: Array) -> None:
        """Do nothing."""

    def restore(self, moments: Array) -> None:
        """Do nothing."""

    def copy(self) -> Scale:
        """Return this scale, which never changes."""
        return self


class StandardScale:
    """1 / standard deviation of each feature; 1 for a feature that does not vary."""

    is_adaptive = True

    def __init__(self, n_features: int) -> None:
        self.moments = np.zeros((3, n_features))
        self._weights: Array | None = None  # computed on demand from the moments

    def weights(self) -> Array:
        """Return the current weights."""
        weights = self._weights
        if weights is None:
            weights = np.empty(self.moments.shape[1])
            write_weights(self.moments, weights)
            self._weights = weights  # assigned when complete: other threads may read at the same time
        return weights

    def restore(self, moments: Array) -> None:
        """Restore the moments of another scale."""
        self.moments[:], self._weights = moments, None

    def copy(self) -> Scale:
        """Return an independent copy."""
        other = StandardScale(self.moments.shape[1])
        other.restore(self.moments)
        return other

    def restart(self, X: Array, n_points: int) -> None:
        """Use the standard deviations of these points only, as if they were those of n_points points."""
        self.restore(np.zeros_like(self.moments))
        self.add(X)
        with np.errstate(over="ignore"):
            squares = self.moments[SQUARES] * (n_points / max(X.shape[0], 1))
        self.moments[SQUARES] = np.minimum(squares, LARGEST)
        self.moments[COUNT] = n_points

    def add(self, X: Array) -> None:
        """Add points (Welford's method)."""
        self._weights = None
        add_points(self.moments, X)

    def update(self, X: Array) -> Array:
        """Add points one by one; return the weights after each of them."""
        self._weights = None
        weights = np.empty(X.shape)
        add_points_and_write_weights(self.moments, X, weights)
        return weights

    def join(self, moments: Array) -> None:
        """Add all points of another scale (the pairwise update of Chan, Golub and LeVeque)."""
        ours, theirs, self._weights = self.moments, moments, None
        count = ours[COUNT] + theirs[COUNT]
        difference = theirs[MEAN] - ours[MEAN]
        share = np.divide(theirs[COUNT], count, out=np.zeros_like(count), where=count > 0)
        with np.errstate(over="ignore"):
            squares = ours[SQUARES] + theirs[SQUARES] + difference * difference * ours[COUNT] * share
        ours[SQUARES] = np.minimum(squares, LARGEST)
        ours[MEAN] += difference * share
        ours[COUNT] = np.minimum(count, MAX_COUNT)


class MixedScale:
    """A scale of the numbers, and fixed weights of rarities and places.

    Parameters
    ----------
    numbers : Scale
        The scale of the numbers.
    others : array
        The weights of the coordinates after the numbers.
    """

    is_adaptive = True

    def __init__(self, numbers: Scale, others: Array) -> None:
        self._numbers, self._others = numbers, others
        self._all: tuple[Array, Array] | None = None  # the weights of the numbers, and of all coordinates

    @property
    def moments(self) -> Array:
        """The moments of the numbers."""
        return self._numbers.moments

    def weights(self) -> Array:
        """Return the current weights; the same array as long as they do not change."""
        numbers, known = self._numbers.weights(), self._all
        if known is None or known[0] is not numbers:
            known = self._all = numbers, np.concatenate([numbers, self._others])
        return known[1]

    def restart(self, X: Array, n_points: int) -> None:
        """Discard all points and start again with n_points points; X contains all of them, or a sample."""
        self._numbers.restart(self._numbers_of(X), n_points)

    def add(self, X: Array) -> None:
        """Add points."""
        self._numbers.add(self._numbers_of(X))

    def update(self, X: Array) -> Array:
        """Add points one by one; return the weights after each of them."""
        numbers = self._numbers.update(self._numbers_of(X))
        return np.hstack([numbers, np.tile(self._others, (X.shape[0], 1))])

    def join(self, moments: Array) -> None:
        """Add all points that another scale, with these moments, was computed from."""
        self._numbers.join(moments)

    def restore(self, moments: Array) -> None:
        """Restore the moments of another scale of the same kind."""
        self._numbers.restore(moments)

    def copy(self) -> Scale:
        """Return an independent copy."""
        return MixedScale(self._numbers.copy(), self._others)

    def _numbers_of(self, X: Array) -> Array:
        return np.ascontiguousarray(X[:, : self.moments.shape[1]])


def unit_scale(layout: FeatureLayout) -> Scale:
    """Return a scale with weight 1 for all coordinates, as in the paper."""
    return FixedScale(np.ones(layout.n_coordinates), layout.n_numbers)


def standard_scale(layout: FeatureLayout) -> Scale:
    """Return a scale with weight 1 / standard deviation for numbers, and fixed weights for categories."""
    if layout.n_categorical == 0:
        return StandardScale(layout.n_numbers)
    others = np.repeat([RARITY_WEIGHT, PLACE_WEIGHT], layout.n_categorical)
    return MixedScale(StandardScale(layout.n_numbers), others) if layout.n_numbers else FixedScale(others, 0)


SCALES: dict[str | None, Callable[[FeatureLayout], Scale]] = {None: unit_scale, "std": standard_scale}


def new_scale(scale: Any, layout: FeatureLayout) -> Scale:
    """Return the scale with this name, or a fixed scale with these weights of the features."""
    if scale is None or isinstance(scale, str):
        return SCALES[scale](layout)
    return FixedScale(layout.weights(as_weights(scale, layout.n_features)), layout.n_numbers)


def are_valid_moments(moments: Array, n_points: int) -> bool:
    """Return True if at least n_points points can have these moments."""
    count, mean, squares = moments
    if count.size == 0:
        return True  # without numbers there is nothing to check
    counts = count.min() >= n_points and count.max() <= MAX_COUNT and bool((count == count[0]).all())
    return counts and bool((np.abs(mean) <= MAX_VALUE).all() and (squares >= 0).all() and np.isfinite(squares).all())

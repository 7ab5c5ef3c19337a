"""The common part of the over-sampling detectors: learned rows, their first principal direction, and its rotation.

Removing a row, or adding copies of it, changes the scatter of the rows (the sum of the outer products of their
deviations from the mean) by a multiple of one outer product, because the mean moves along the row's deviation from it.
In the coordinates of the principal axes of all rows, the new scatter is a diagonal matrix plus that multiple of an
outer product, so that a step of the power method takes O(n_features) operations instead of O(n_features^2).

[Yeh2009] Y.-R. Yeh, Z.-Y. Lee, Y.-J. Lee, "Anomaly detection via over-sampling principal component analysis", KES-IDT
2009; [Lee2013] Y.-J. Lee, Y.-R. Yeh, Y.-C. F. Wang, "Anomaly detection via online oversampling principal component
analysis", IEEE Transactions on Knowledge and Data Engineering 25(7).
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from imondrian.base.errors import InvalidInputError
from imondrian.engine.baselines.principal_direction import write_principal_directions
from imondrian.engine.jit import Array
from imondrian.forest.inputs import as_points

_FACTOR = 2.0**-40  # scales deviations, so that squares of the largest values do not overflow; exact: a power of two
_MIN_SCATTER = 1e-290  # of the scaled rows; rows with a smaller scatter count as equal
_MAX_DISTANCE = 1e50  # times the spread of the rows; a row beyond it determines the direction by itself
_ROUNDING = 1e-12  # if less than this share of the scatter remains without a row, the remainder is rounding error


class DirectionDetector(ABC):
    """Base class: scores a row by how far its copies turn the first principal direction of the other rows.

    The score is 1 - |cosine| of the angle, between 0 and 1 (the score of outlierness of [Lee2013]). Subclasses compute
    the turned direction.
    """

    def __init__(self, ratio: float = 0.1) -> None:
        self.ratio = as_ratio(ratio)
        self._rows: LearnedRows | None = None

    def fit(self, X: npt.ArrayLike) -> Self:
        """Forget all rows, then learn these."""
        self._rows = LearnedRows(as_points(X, None))
        return self

    def extend(self, X: npt.ArrayLike) -> Self:
        """Learn more rows; `fit` need not be called first."""
        if self._rows is None:
            return self.fit(X)
        self._rows.learn(as_points(X, self._rows.n_features))
        return self

    def score(self, X: npt.ArrayLike) -> Array:
        """Return the scores of rows without learning them; each row is compared with all learned rows."""
        rows = self._learned()
        return self._scores(rows.new_targets(as_points(X, rows.n_features)))

    def learned_scores(self) -> Array:
        """Return the scores of all learned rows in order of arrival; each row is compared with all others."""
        return self._scores(self._learned().learned_targets())

    def _learned(self) -> "LearnedRows":
        if self._rows is None:
            raise InvalidInputError(f"This {type(self).__name__} has not learned any rows: call fit or extend first.")
        return self._rows

    def _scores(self, targets: "Targets") -> Array:
        """Return the scores of targets; if all other rows are equal, the score of a target that differs from them is 1.

        In one dimension there is only one direction, so that all scores are 0.
        """
        before, scatter = principal_directions(targets, targets.removal_weight)
        turned = outlierness(before, self._turned(targets, before))
        is_apart = (targets.coordinates != 0.0).any(axis=1) & (targets.scatter.size > 1)
        return np.where(scatter > _ROUNDING, turned, is_apart)

    @abstractmethod
    def _turned(self, targets: "Targets", before: Array) -> Array:
        """Return, for each target, the unit direction with its copies; `before` has the directions without copies."""


def as_ratio(ratio: Any) -> float:
    """Check the number of copies of a row, as a share of the rows that it is compared with."""
    is_number = isinstance(ratio, (float, int, np.floating)) and not isinstance(ratio, bool)
    if is_number and 0.0 < ratio <= 1.0:
        return float(ratio)
    raise InvalidInputError(f"ratio must be a number in (0, 1], but is {ratio!r}.")


class Targets(NamedTuple):
    """Rows to compare, one at a time, with the learned rows: with all of them, or with all others.

    Coordinates are deviations from the mean of all learned rows along the principal axes of their scatter, in a unit in
    which the scatter along the first axis is 1.
    """

    coordinates: Array
    scatter: Array  # of all learned rows along each axis, largest first; zeros if all rows are equal
    n_others: int  # rows that a target is compared with
    removal_weight: float  # scatter of the others = scatter of all learned rows + this times a target's outer product
    stretch: float  # ratio of a target's deviation from the mean of the others to its deviation from the mean of all


class LearnedRows:
    """All rows learned so far, their mean and their scatter."""

    def __init__(self, points: Array) -> None:
        self.n_rows = 0
        self.mean = points[0].copy()
        self.scatter = np.zeros((points.shape[1], points.shape[1]))  # of the scaled rows
        self._blocks: list[Array] = []
        self.learn(points)

    @property
    def n_features(self) -> int:
        """The number of features of a row."""
        return self.mean.size

    def learn(self, points: Array) -> None:
        """Add rows and update mean and scatter; the scatter of equal rows is exactly 0."""
        n_rows = self.n_rows + points.shape[0]
        mean = self.mean + (points - self.mean).sum(axis=0) / n_rows
        deviations, move = (points - mean) * _FACTOR, (self.mean - mean) * _FACTOR
        self.scatter += deviations.T @ deviations + self.n_rows * np.outer(move, move)
        self.mean, self.n_rows = mean, n_rows
        self._blocks.append(points.copy())

    def new_targets(self, points: Array) -> Targets:
        """Return new rows as targets, each compared with all learned rows."""
        scatter, axes = self._principal_axes()
        return Targets(self._coordinates(points, axes), scatter, self.n_rows, removal_weight=0.0, stretch=1.0)

    def learned_targets(self) -> Targets:
        """Return the learned rows as targets, each compared with all others."""
        scatter, axes = self._principal_axes()
        n_others = max(self.n_rows - 1, 1)  # for a single row the deviation is 0, so any number will do
        share = self.n_rows / n_others
        return Targets(self._coordinates(self._all(), axes), scatter, n_others, removal_weight=-share, stretch=share)

    def _all(self) -> Array:
        self._blocks = [np.concatenate(self._blocks)]
        return self._blocks[0]

    def _principal_axes(self) -> tuple[Array, Array]:
        """Return the scatter along the principal axes, scaled to a maximum of 1, and the axes as columns."""
        scatter, axes = np.linalg.eigh(self.scatter)
        scatter, axes = np.maximum(scatter[::-1], 0.0), axes[:, ::-1]
        if scatter[0] < _MIN_SCATTER:
            return np.zeros_like(scatter), axes
        return scatter / scatter[0], axes / np.sqrt(scatter[0])

    def _coordinates(self, points: Array, axes: Array) -> Array:
        coordinates = ((points - self.mean) * _FACTOR) @ axes
        farthest = np.abs(coordinates).max(axis=1, keepdims=True)
        return np.ascontiguousarray(coordinates * (_MAX_DISTANCE / np.maximum(farthest, _MAX_DISTANCE)))


def outlierness(before: Array, after: Array) -> Array:
    """Return 1 - |cosine| for each pair of unit directions.

    It is computed as half the squared distance of the directions, after one of them is reversed if their cosine is
    negative: this is accurate for small angles.
    """
    sign = np.where((before * after).sum(axis=1, keepdims=True) < 0.0, -1.0, 1.0)
    return np.minimum(0.5 * ((before - sign * after) ** 2).sum(axis=1), 1.0)


def principal_directions(targets: Targets, weight: float) -> tuple[Array, Array]:
    """Return, for each target x, the first principal direction of the scatter plus ``weight * x x^T``.

    The directions are unit rows in the coordinates of the targets, computed by the power method. The scatter along each
    direction is returned, too.
    """
    directions, scatter = np.empty_like(targets.coordinates), np.empty(targets.coordinates.shape[0])
    write_principal_directions(targets.scatter, targets.coordinates, weight, directions, scatter)
    return directions, scatter

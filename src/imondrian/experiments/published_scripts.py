"""The compared systems as implemented in the authors' published scripts, only to explain Table III.

These implementations differ from the descriptions of the systems. With the stages of the scripts, the implementations
of LOF and osPCA give the paper's AUC values to two decimal places (the paper truncates them), except for some of osPCA
on Satellite. The package `baselines` has the systems as described.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.neighbors import NearestNeighbors

from imondrian.engine.jit import Array
from imondrian.forest.inputs import as_points
from imondrian.forest.mondrian_forest import MondrianForest

_NEIGHBOURS = 10
_BLOCK = 1_000  # rows whose matrices are in memory at a time


class _StoredRows:
    """Stores all rows, to score them again at every stage."""

    def __init__(self) -> None:
        self._rows: list[Array] = []

    def fit(self, X: Any) -> Self:
        """Add the first stage."""
        self._rows = [as_points(X, None)]
        return self

    def extend(self, X: Any) -> Self:
        """Add another stage."""
        self._rows.append(as_points(X, self._rows[0].shape[1]))
        return self


class PublishedLOF(_StoredRows):
    """LOF in which each row is the first of its own ten neighbours, recomputed for all rows at every stage."""

    def learned_scores(self) -> Array:
        """Score all rows."""
        rows = np.vstack(self._rows)
        distances, neighbours = NearestNeighbors(n_neighbors=_NEIGHBOURS).fit(rows).kneighbors(rows)
        reach = np.maximum(distances, distances[neighbours, -1])
        density = 1.0 / (reach.mean(axis=1) + 1e-10)
        return density[neighbours].mean(axis=1) / density


class PublishedForest(_StoredRows):
    """Online iMForest as in the script: every later stage inserts rows of the first stage again."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._forest = MondrianForest(n_trees=100, seed=seed)

    def fit(self, X: Any) -> Self:
        """Add the first stage."""
        super().fit(X)
        self._forest.build(self._rows[0])
        return self

    def extend(self, X: Any) -> Self:
        """Add another stage, but learn the same number of rows of the first stage instead."""
        super().extend(X)
        self._forest.extend(self._rows[0][: len(self._rows[-1])])
        return self

    def learned_scores(self) -> Array:
        """Score all rows added, whether learned or not."""
        return self._forest.score(np.vstack(self._rows))


class Moments(NamedTuple):
    """For each of k rows, moments of the rows it is compared with: their number, sum, and sum of outer products."""

    n: Array  # of shape (k,)
    total: Array  # of shape (k, d)
    products: Array  # of shape (k, d, d)

    @property
    def mean(self) -> Array:
        """The means."""
        return self.total / self.n[:, None]

    @property
    def scatter(self) -> Array:
        """The sums of outer products of deviations from the means."""
        return self.products - self.n[:, None, None] * _outer(self.mean)


class PublishedScript(ABC):
    """Scores each row once, on arrival: in the first stage against the other rows, later against all earlier rows."""

    times_learned = 1.0  # how often a row of a later stage is counted

    def __init__(self, ratio: float = 0.1) -> None:
        self.ratio = ratio

    def fit(self, X: Any) -> Self:
        """Add the first stage."""
        rows = as_points(X, None)
        self._n, self._total, self._products = float(len(rows)), rows.sum(axis=0), rows.T @ rows
        scores = [self._first_scores(x, self._without(x)) for x in _blocks(rows)]
        self._scores = self._stored(np.concatenate(scores))
        return self

    def extend(self, X: Any) -> Self:
        """Add another stage."""
        for x in _blocks(as_points(X, len(self._total))):
            self._scores = np.concatenate([self._scores, self._later_scores(x, self._before(x))])
            self._n += self.times_learned * len(x)
            self._total = self._total + self.times_learned * x.sum(axis=0)
            self._products = self._products + self.times_learned * (x.T @ x)
        return self

    def learned_scores(self) -> Array:
        """Return the scores computed when the rows arrived."""
        return self._scores

    def _without(self, x: Array) -> Moments:
        return Moments(np.full(len(x), self._n - 1.0), self._total - x, self._products - _outer(x))

    def _before(self, x: Array) -> Moments:
        """Return the moments before each of these rows."""
        number, outer = self.times_learned * np.arange(len(x)), _outer(x)
        total = self._total + self.times_learned * (np.cumsum(x, axis=0) - x)
        products = self._products + self.times_learned * (np.cumsum(outer, axis=0) - outer)
        return Moments(self._n + number, total, products)

    def _stored(self, scores: Array) -> Array:
        return scores

    @abstractmethod
    def _first_scores(self, x: Array, others: Moments) -> Array: ...

    @abstractmethod
    def _later_scores(self, x: Array, others: Moments) -> Array: ...


class PublishedOsPCA1(PublishedScript):
    """OsPCA1 of the published script.

    It differs from its description: instead of the outer product of the row, its squared length is added to every entry
    of the matrix, and the copies of the row do not change the mean. The "covariance" is therefore not always positive
    semidefinite, and the power method may end at a negative eigenvalue.
    """

    def _first_scores(self, x: Array, others: Moments) -> Array:
        squared_lengths = (x**2).sum(axis=1)[:, None, None]
        means = _outer(others.mean)
        products = others.products / others.n[:, None, None]
        copied = (products + self.ratio * squared_lengths) / (1.0 + self.ratio) - means
        return _outlierness(_dominant(products - means), _dominant(copied))

    def _later_scores(self, x: Array, others: Moments) -> Array:
        return self._first_scores(x, others)


class PublishedOsPCA2(PublishedScript):
    """OsPCA2 of the published script.

    It differs from its description: all scores of the first stage are written to one element, so all but one are 0;
    the direction in that stage is that of uncentred rows; later rows are learned twice, once before they are scored,
    and the direction with copies of the row is compared with a direction that already includes the row.
    """

    times_learned = 2.0

    def _stored(self, scores: Array) -> Array:
        stored = np.zeros_like(scores)
        stored[-2] = scores[-1]
        return stored

    def _first_scores(self, x: Array, others: Moments) -> Array:
        direction = _dominant(others.products)
        return _outlierness(direction, self._copied(x, others, direction))

    def _later_scores(self, x: Array, others: Moments) -> Array:
        with_row = Moments(others.n + 1.0, others.total + x, others.products + _outer(x))
        return _outlierness(_dominant(with_row.scatter), self._copied(x, others, _dominant(others.scatter)))

    def _copied(self, x: Array, others: Moments, direction: Array) -> Array:
        """Return the least-squares direction with copies of the row."""
        deviation = x - others.mean
        along = (direction * deviation).sum(axis=1, keepdims=True)
        projected = np.einsum("kij,kj->ki", others.scatter, direction) / (others.n * self.ratio)[:, None]
        return projected + along * deviation


def _blocks(rows: Array) -> Iterator[Array]:
    return (rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK))


def _outer(rows: Array) -> Array:
    return np.einsum("ki,kj->kij", rows, rows)


def _dominant(matrices: Array) -> Array:
    """Return the limits of the power method: the eigenvectors of the eigenvalues with the largest absolute values."""
    values, vectors = np.linalg.eigh(matrices)
    largest = np.abs(values).argmax(axis=1)
    return np.take_along_axis(vectors, largest[:, None, None], axis=2)[:, :, 0]


def _outlierness(one: Array, other: Array) -> Array:
    """Return 1 - |cosine| of the angle between directions."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return 1.0 - np.abs((one * other).sum(axis=1)) / lengths

"""Incremental local outlier factor: a new row updates only the rows whose neighbourhoods change.

[Pokrajac2007] D. Pokrajac, A. Lazarevic, L. J. Latecki, "Incremental local outlier detection for data streams",
CIDM 2007; [Breunig2000] M. Breunig, H.-P. Kriegel, R. Ng, J. Sander, "LOF: identifying density-based local outliers",
SIGMOD 2000.
"""

from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from imondrian.base.errors import InvalidInputError
from imondrian.engine.baselines.incremental_lof import Tables, empty_tables, insert_rows, resized, write_scores
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_POINTS
from imondrian.forest.inputs import as_count, as_points

_INITIAL_CAPACITY = 64


class UpdateCounts(NamedTuple):
    """Numbers of local reachability densities and of outlier factors computed, new rows included."""

    n_densities: int
    n_factors: int


class IncrementalLOF:
    """The local outlier factor of a stream; after every row, the factors equal those computed from scratch.

    Insertion as in [Pokrajac2007], with the factors of [Breunig2000] as computed by scikit-learn: exactly k neighbours
    (or all other rows, if there are at most k), and 1e-10 added to a mean reachability distance. Differences from
    [Pokrajac2007]: of equally distant neighbours only the earlier rows are used, not all, so that many copies cost no
    more than other rows; if a recomputed value is unchanged, no other row is updated because of it; the neighbours of a
    new row are found by scanning all rows instead of with an index.

    Parameters
    ----------
    n_neighbors : int, default=10
        The k of the papers.

    Attributes
    ----------
    n_updates : UpdateCounts
        Updates made by the last `fit` or `extend`, summed over the inserted rows.

    Examples
    --------
    >>> from imondrian.experiments.baselines.incremental_lof import IncrementalLOF
    >>> lof = IncrementalLOF(n_neighbors=2).fit([[0.0], [1.0], [2.5], [3.0]])
    >>> lof.learned_scores().round(3)
    array([1.071, 1.071, 0.938, 0.938])
    >>> lof.extend([[20.0]]).n_updates  # the new row is not a neighbour of any other row
    UpdateCounts(n_densities=1, n_factors=1)
    >>> lof.score([[2.0], [9.0]]).round(3)
    array([0.804, 3.571])
    """

    def __init__(self, n_neighbors: int = 10) -> None:
        self.n_neighbors = as_count(n_neighbors, "n_neighbors", 1, MAX_POINTS)
        self.n_updates = UpdateCounts(0, 0)
        self._n_rows = 0
        self._tables: Tables | None = None

    def fit(self, X: npt.ArrayLike) -> Self:
        """Forget all rows, then learn these one by one."""
        points = as_points(X, None)
        self._n_rows, self._tables = 0, None
        return self.extend(points)

    def extend(self, X: npt.ArrayLike) -> Self:
        """Learn more rows one by one; `fit` need not be called first."""
        points = as_points(X, None if self._tables is None else self._tables.features.shape[0])
        tables = self._tables = self._with_capacity_for(points)
        self.n_updates = UpdateCounts(*map(int, insert_rows(tables, self._n_rows, points)))
        self._n_rows += len(points)
        return self

    def score(self, X: npt.ArrayLike) -> Array:
        """Return the factors of rows without learning them; all 1 if only one row has been learned.

        Each row is compared with the learned rows, whose densities do not change.
        """
        tables = self._learned()
        points = as_points(X, tables.features.shape[0])
        scores = np.empty(len(points))
        write_scores(tables, self._n_rows, points, scores)
        return scores

    def learned_scores(self) -> Array:
        """Return the factors of all learned rows in order of arrival; a single row has the factor 1."""
        return self._learned().factors[: self._n_rows].copy()

    def _learned(self) -> Tables:
        if self._tables is None:
            raise InvalidInputError("This IncrementalLOF has not learned any rows: call fit or extend first.")
        return self._tables

    def _with_capacity_for(self, points: Array) -> Tables:
        """Return tables with space for these rows and a scratch row for scoring; if they grow, they at least double."""
        needed = self._n_rows + len(points) + 1
        if self._tables is None:
            return empty_tables(max(needed, _INITIAL_CAPACITY), self.n_neighbors, points.shape[1])
        capacity = self._tables.factors.size
        return self._tables if needed <= capacity else resized(self._tables, max(needed, 2 * capacity))

"""Shingling: the last few rows of a time series form one point, so that its shape counts as well as its values."""

from typing import Any

import numpy as np

from imondrian.base.copying import shallow_copy
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_VALUE
from imondrian.forest.inputs import as_count

_MAX_COUNT = 2**20


class Shingle:
    """The last `size` rows, oldest first, concatenated.

    Parameters
    ----------
    size : int
        Number of rows in a point; 1 leaves rows unchanged.
    n_features : int, default=1
        Number of values in a row.

    Examples
    --------
    >>> shingle = Shingle(size=3)
    >>> shingle.points([[1.0], [2.0], [3.0], [4.0]]).tolist()
    [[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]
    >>> shingle.points([[5.0]]).tolist()
    [[3.0, 4.0, 5.0]]
    """

    def __init__(self, size: int, n_features: int = 1) -> None:
        self.size = as_count(size, "shingle", 1, _MAX_COUNT)
        self.n_features = as_count(n_features, "n_features", 1, _MAX_COUNT)
        self.last = np.empty((0, self.n_features))  # the rows that precede the next one in a point

    def copy(self) -> "Shingle":
        """Return an independent copy."""
        other = shallow_copy(self)
        other.last = self.last.copy()
        return other

    @property
    def n_rows_needed(self) -> int:
        """Number of rows still needed before each further row completes a point."""
        return self.size - 1 - self.last.shape[0]

    @property
    def n_bytes(self) -> int:
        """Memory in bytes for the stored rows, as if all `size` - 1 of them were stored already."""
        return (self.size - 1) * self.n_features * self.last.itemsize

    def points(self, rows: Array, _times: Array | None = None) -> Array:
        """Return the points that the rows complete (one per row, fewer at the start), and store the last rows."""
        if self.size == 1:
            return np.asarray(rows)
        points = self._points_of(rows)
        n_kept = min(self.size - 1, self.last.shape[0] + len(rows))
        self.last = np.vstack([self.last, rows])[self.last.shape[0] + len(rows) - n_kept :].copy()
        return points

    def notes(self) -> dict[str, Any]:
        """Return the state in types that JSON supports."""
        return {"shingle": self.last.ravel().tolist()}

    def restore(self, notes: dict[str, Any]) -> None:
        """Restore the state that `notes` of another shingle returned.

        Raises
        ------
        ValueError
            If there are too many rows, or a value is not finite or exceeds MAX_VALUE in absolute value.
        """
        last = np.array(notes["shingle"], dtype=np.float64).reshape(-1, self.n_features)
        if last.shape[0] >= self.size or not (np.abs(last) <= MAX_VALUE).all():
            raise ValueError("the rows of the shingle are damaged.")
        self.last = last

    def preview(self, rows: Array, _times: Array | None = None) -> Array:
        """Return the point of each row as if that row came next, without storing it.

        While `n_rows_needed` is above 0, no row has a point.
        """
        if self.size == 1:
            return np.asarray(rows)
        return np.vstack([self._points_of(row[None]) for row in rows])

    def _points_of(self, rows: Array) -> Array:
        joined = np.vstack([self.last, rows])
        n_points = max(joined.shape[0] - self.size + 1, 0)
        if n_points == 0:
            return np.empty((0, self.size * self.n_features))
        views = np.lib.stride_tricks.sliding_window_view(joined, self.size, axis=0)
        return np.ascontiguousarray(views.transpose(0, 2, 1)).reshape(n_points, -1)

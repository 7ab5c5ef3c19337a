"""Views of a time series: what a detector sees instead of the values themselves.

A view has two functions. `learn` returns one point per row, and learns the rows; `apply` returns the points that
further rows would have, without learning them.
"""

from copy import deepcopy
from typing import Protocol

import numpy as np

SECONDS_PER_DAY = 86_400.0


class View(Protocol):
    """What a detector sees of rows at some times, which are in seconds."""

    def learn(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the points of rows, and learn the rows."""

    def apply(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the points of further rows, without learning them."""


class Values:
    """The values themselves."""

    def learn(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the rows."""
        return self.apply(seconds, X)

    def apply(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the rows."""
        del seconds
        return X


class Differences:
    """The difference from the row before."""

    def __init__(self) -> None:
        self._last: np.ndarray | None = None

    def learn(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the differences."""
        del seconds
        differences = np.diff(X, axis=0, prepend=X[:1] if self._last is None else self._last[None])
        self._last = X[-1]
        return differences

    def apply(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the differences, as if these rows came next, one after the other."""
        return deepcopy(self).learn(seconds, X)


class ExponentialMean:
    """An exponential mean of the rows with a half-life in rows; at the start, the mean of all rows."""

    def __init__(self, half_life: float) -> None:
        self._share = 1.0 - 0.5 ** (1.0 / half_life)
        self.n_rows, self.mean = 0, np.zeros(0)

    def count(self, x: np.ndarray) -> None:
        """Count a row."""
        self.n_rows += 1
        mean = x if self.n_rows == 1 else self.mean
        self.mean = mean + max(self._share, 1.0 / self.n_rows) * (x - mean)


class ShortMeans:
    """The exponential mean up to each row: the values without their noise."""

    def __init__(self, half_life: float) -> None:
        self._mean = ExponentialMean(half_life)

    def learn(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the means."""
        del seconds
        points = np.empty(X.shape)
        for i, x in enumerate(X):
            self._mean.count(x)
            points[i] = self._mean.mean
        return points

    def apply(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the means, as if these rows came next, one after the other."""
        return deepcopy(self).learn(seconds, X)


class FromMean:
    """The deviation from an exponential mean of the rows before."""

    def __init__(self, half_life: float) -> None:
        self._mean = ExponentialMean(half_life)

    def learn(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the deviations; that of the first row is 0."""
        points = np.zeros(X.shape)
        for i, x in enumerate(X):
            if self._mean.n_rows:
                points[i] = x - self._mean.mean
            self._mean.count(x)
        return points

    def apply(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the deviations from the present mean."""
        del seconds
        return X - self._mean.mean


class FromTimeOfDay:
    """The deviation from what is usual at this time of day: the mean of the last values in the same part of the day.

    A part of the day without a value has the exponential mean of all rows.
    """

    def __init__(self, part: float = 1_800.0, n_values: int = 20, half_life: float = 34.3) -> None:
        self._part, self._n_values = part, n_values
        self._means: dict[int, tuple[np.ndarray, int]] = {}
        self._recent = ExponentialMean(half_life)

    def learn(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the deviations; that of the first row is 0."""
        points = np.zeros(X.shape)
        for i, (part, x) in enumerate(zip(self._parts(seconds), X, strict=True)):
            mean, n = self._usual(part, x)
            points[i] = x - mean
            self._means[part] = mean + (x - mean) / min(n + 1, self._n_values), min(n + 1, self._n_values)
            self._recent.count(x)
        return points

    def apply(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the deviations from the present means."""
        return np.array([x - self._usual(part, x)[0] for part, x in zip(self._parts(seconds), X, strict=True)])

    def _parts(self, seconds: np.ndarray) -> list[int]:
        """Return the part of the day of each time."""
        return (seconds % SECONDS_PER_DAY // self._part).astype(int).tolist()

    def _usual(self, part: int, x: np.ndarray) -> tuple[np.ndarray, int]:
        """Return the mean in a part of the day, and the number of values in this mean."""
        return self._means.get(part, (self._recent.mean if self._recent.n_rows else x.astype(float), 0))


class Together:
    """Several views side by side."""

    def __init__(self, *views: View) -> None:
        self._views = views

    def learn(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the points of all views."""
        return np.hstack([view.learn(seconds, X) for view in self._views])

    def apply(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the points of all views, without learning the rows."""
        return np.hstack([view.apply(seconds, X) for view in self._views])


class Shingles:
    """The last rows in one point; the first row is repeated at the start."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._last: np.ndarray | None = None

    def learn(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the shingles."""
        del seconds
        before = np.repeat(X[:1], self._size - 1, axis=0) if self._last is None else self._last
        rows = np.concatenate([before, X])
        self._last = rows[len(rows) - (self._size - 1) :]
        return np.concatenate([rows[k : k + len(X)] for k in range(self._size)], axis=1)

    def apply(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the shingles, as if these rows came next, one after the other."""
        return deepcopy(self).learn(seconds, X)

"""Rows as a stream brings them, arrays, dictionaries or frames, made into points with the features in one order."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.inputs import as_column, as_number, as_point, as_points

_MOST_BITS = 64  # of an integer that is a name


class Records:
    """The features of a stream: how many, and their names (text or numbers) once a row has named them.

    The first dictionary or frame fixes the names and their order; later ones must have the same names, in any order.
    Rows without names count by position.
    """

    def __init__(self, n_features: int, names: list[Any] | None = None) -> None:
        self.n_features = n_features
        self.names = names

    def point(self, x: Any) -> Array:
        """Make one row a table of one point, or raise an InvalidInputError that names what is wrong with it."""
        if isinstance(x, np.ndarray):
            return as_point(x.reshape(1) if x.ndim == 0 else x, self.n_features)
        if isinstance(x, Mapping) or _has_named_values(x):
            names = self._checked_names(x.keys())
            point = as_point(np.array([as_number(x[name], name) for name in names]), self.n_features)
            self.names = names
            return point
        return as_point([x] if self.n_features == 1 and np.isscalar(x) else x, self.n_features)

    def points(self, X: Any) -> Array:
        """Make rows a table of points, or raise; nothing is taken over from a table in which any row is bad."""
        if _is_frame(X):
            names = self._checked_names(X.columns)
            points = as_points(np.column_stack([as_column(X[name], name) for name in names]), self.n_features)
            self.names = names
            return points
        if isinstance(X, np.ndarray):
            return as_points(X[:, None] if X.ndim == 1 and self.n_features == 1 else X, self.n_features)
        if not isinstance(X, Iterable) or isinstance(X, (str, bytes, Mapping)):
            raise InvalidInputError(f"X must be a table or rows one after the other, but is {X!r}.")
        attempt = Records(self.n_features, self.names)
        rows = [_numbered(attempt, i, row) for i, row in enumerate(X)]
        self.names = attempt.names
        return np.vstack(rows) if rows else np.empty((0, self.n_features))

    def fix_names(self, names: Any) -> None:
        """Take over names that another has learned, or raise."""
        if not isinstance(names, list):
            raise InvalidInputError(f"The names of the features are {names!r}.")
        self.names = self._checked_names(names)

    def usable(self, X: Any) -> tuple[Array, Array]:
        """Make those rows points that can be; give also which they are."""
        X = X if _is_frame(X) or isinstance(X, np.ndarray) else list(X)
        try:
            table = self.points(X)
            return table, np.ones(table.shape[0], np.bool_)
        except InvalidInputError:
            points = [self._point_or_none(row) for row in _rows(X)]
            usable = [point for point in points if point is not None]
            return np.vstack([np.empty((0, self.n_features)), *usable]), np.array([p is not None for p in points])

    def _point_or_none(self, row: Any) -> Array | None:
        try:
            return self.point(row)
        except InvalidInputError:
            return None

    def _checked_names(self, names: Iterable[Any]) -> list[Any]:
        """Give the names in their order, if these are they."""
        given = [name.item() if isinstance(name, np.generic) else name for name in names]
        if self.names is None:
            _check_new_names(given)
            if len(given) != self.n_features:
                raise InvalidInputError(f"x has {len(given)} features, but there should be {self.n_features}.")
            return given
        for name in self.names:
            if name not in given:
                raise InvalidInputError(f"x has no feature {name!r}.")
        for name in given:
            if name not in self.names:
                raise InvalidInputError(f"x has a feature {name!r} that is not known here.")
        return self.names


def _check_new_names(names: list[Any]) -> None:
    """Refuse names that could not be told apart, or found again, after they were saved."""
    seen: dict[str, Any] = {}
    for name in names:
        if not isinstance(name, (str, int, float)):
            raise InvalidInputError(f"The name of a feature must be text or a number, but one is {name!r}.")
        if name != name or (isinstance(name, int) and name.bit_length() > _MOST_BITS):  # noqa: PLR0124 (NaN)
            raise InvalidInputError("The name of a feature must not be NaN or an integer of more than 64 bits.")
        if str(name) in seen:
            raise InvalidInputError(f"The features {seen[str(name)]!r} and {name!r} have the same name.")
        seen[str(name)] = name


def _numbered(records: Records, i: int, row: Any) -> Array:
    try:
        return records.point(row)
    except InvalidInputError as error:
        raise InvalidInputError(f"Row {i}: {error}") from None


def _has_named_values(x: Any) -> bool:
    """Tell whether x is a series of pandas with an index of names, as a row of a frame is, and not of places."""
    return hasattr(x, "index") and hasattr(x, "to_dict") and list(x.index) != list(range(len(x)))


def _is_frame(X: Any) -> bool:
    return hasattr(X, "columns") and hasattr(X, "to_numpy")


def _rows(X: Any) -> Iterable[Any]:
    """Give one row after the other, those of a frame as dictionaries."""
    if hasattr(X, "to_dicts"):
        return X.to_dicts()
    if hasattr(X, "to_dict"):
        return X.to_dict("records")
    return X

"""Conversion of rows (arrays, dictionaries or data frames) to points with the features in a fixed order."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.inputs import as_column, as_number, as_point, as_points

_MAX_BITS = 64  # of an integer that is the name of a feature
_IN_MEMORY = (np.ndarray, list, tuple, str, bytes, Mapping)
Self = TypeVar("Self")
ReturnType = TypeVar("ReturnType")


def lists_rows(method: Callable[[Self, Any], ReturnType]) -> Callable[[Self, Any], ReturnType]:
    """Decorate a method of rows X: an iterable is listed first, so that no lock is held while it produces rows."""

    @wraps(method)
    def listed(self: Self, X: Any) -> ReturnType:
        return method(self, rows_in_memory(X))

    return listed


def rows_in_memory(X: Any) -> Any:
    """Return a list of the rows of an iterable; return tables, and what is not iterable, unchanged."""
    if isinstance(X, _IN_MEMORY) or _is_frame(X) or not isinstance(X, Iterable) or getattr(X, "shape", None) == ():
        return X
    return list(X)


class RowConverter:
    """Converts rows to points with a fixed number of features.

    The first dictionary or data frame determines the names of the features (text or numbers) and their order. Later
    ones must have the same names, in any order. Rows without names are converted by position.

    Attributes
    ----------
    names : list or None
        The names of the features; None until a row has named them.
    """

    def __init__(self, n_features: int, names: list[Any] | None = None) -> None:
        self.n_features = n_features
        self.names = names

    def point(self, x: Any) -> Array:
        """Return one row as a table of one point; raise InvalidInputError if it cannot be used."""
        if isinstance(x, np.ndarray):
            return as_point(x.reshape(1) if x.ndim == 0 else x, self.n_features)
        if isinstance(x, Mapping) or _has_named_values(x):
            names = self._names_in_order(x.keys())
            point = as_point(np.array([as_number(x[name], name) for name in names]), self.n_features)
            self.names = names
            return point
        return as_point([x] if self.n_features == 1 and np.isscalar(x) else x, self.n_features)

    def points(self, X: Any) -> Array:
        """Return rows as a table of points; if any row cannot be used, raise InvalidInputError and learn no names."""
        if _is_frame(X):
            names = self._names_in_order(X.columns)
            points = as_points(np.column_stack([as_column(X[name], name) for name in names]), self.n_features)
            self.names = names
            return points
        if isinstance(X, np.ndarray):
            return as_points(X[:, None] if X.ndim == 1 and self.n_features == 1 else X, self.n_features)
        if not isinstance(X, Iterable) or isinstance(X, (str, bytes, Mapping)):
            raise InvalidInputError(f"X must be a table or an iterable of rows, but is {X!r}.")
        attempt = RowConverter(self.n_features, self.names)
        rows = [_point_of_row(attempt, i, row) for i, row in enumerate(X)]
        self.names = attempt.names
        return np.vstack(rows) if rows else np.empty((0, self.n_features))

    def usable_points(self, X: Any) -> tuple[Array, Array]:
        """Return the points of the usable rows, and a mask that is True for these rows."""
        try:
            table = self.points(X)
            return table, np.ones(table.shape[0], np.bool_)
        except InvalidInputError:
            points = [self._point_or_none(row) for row in _rows(X)]
            usable = [point for point in points if point is not None]
            return np.vstack([np.empty((0, self.n_features)), *usable]), np.array([p is not None for p in points])

    def checked_names(self, names: Any) -> list[Any]:
        """Check and return a list of names that another converter has learned."""
        if not isinstance(names, list):
            raise InvalidInputError(f"The names of the features must be a list, but are {names!r}.")
        return self._names_in_order(names)

    def _point_or_none(self, row: Any) -> Array | None:
        try:
            return self.point(row)
        except InvalidInputError:
            return None

    def _names_in_order(self, names: Iterable[Any]) -> list[Any]:
        """Return the names in the order of the features; raise if they do not match the names already known."""
        present = [name.item() if isinstance(name, np.generic) else name for name in names]
        if self.names is None:
            _check_new_names(present)
            if len(present) != self.n_features:
                raise InvalidInputError(f"x has {len(present)} features, but there should be {self.n_features}.")
            return present
        for name in self.names:
            if name not in present:
                raise InvalidInputError(f"x has no feature {name!r}.")
        for name in present:
            if name not in self.names:
                raise InvalidInputError(f"x has a feature {name!r} that earlier rows do not have.")
        return self.names


def _check_new_names(names: list[Any]) -> None:
    """Raise if two names would be the same in a model file, or if a name could not be restored from one."""
    seen: dict[str, Any] = {}
    for name in names:
        if not isinstance(name, (str, int, float)):
            raise InvalidInputError(f"The name of a feature must be text or a number, but one is {name!r}.")
        if name != name or (isinstance(name, int) and name.bit_length() > _MAX_BITS):  # noqa: PLR0124 (NaN)
            raise InvalidInputError("The name of a feature must not be NaN or an integer of more than 64 bits.")
        if str(name) in seen:
            raise InvalidInputError(f"The features {seen[str(name)]!r} and {name!r} have the same name.")
        seen[str(name)] = name


def _point_of_row(converter: RowConverter, i: int, row: Any) -> Array:
    try:
        return converter.point(row)
    except InvalidInputError as error:
        raise InvalidInputError(f"Row {i}: {error}") from None


def _has_named_values(x: Any) -> bool:
    """Return True for a pandas Series with feature names as its index (a row of a data frame), not positions."""
    return hasattr(x, "index") and hasattr(x, "to_dict") and list(x.index) != list(range(len(x)))


def _is_frame(X: Any) -> bool:
    return hasattr(X, "columns") and hasattr(X, "to_numpy")


def _rows(X: Any) -> Iterable[Any]:
    """Return the rows of X; those of a data frame as dictionaries."""
    if hasattr(X, "to_dicts"):
        return X.to_dicts()
    if hasattr(X, "to_dict"):
        return X.to_dict("records")
    return X

"""Conversion of rows (arrays, dictionaries or data frames) to points with the features in a fixed order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from imondrian.base.categories import category_code, is_missing
from imondrian.base.copying import shallow_copy
from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.forest.inputs import as_number, as_points, as_points_with_gaps, as_row, as_row_with_gaps, without_mask
from imondrian.rows.missing_values import check_rows_have_values
from imondrian.rows.mixed_tables import (
    as_number_with_gap,
    column_values,
    columns_of,
    is_frame,
    points_of_columns,
    points_of_table,
)

_CHECKS = as_row, as_points, as_number
_CHECKS_WITH_GAPS = as_row_with_gaps, as_points_with_gaps, as_number_with_gap
_MAX_BITS = 64  # of an integer that is the name of a feature
_IN_MEMORY = (np.ndarray, list, tuple, str, bytes, Mapping)
Method = TypeVar("Method", bound=Callable[..., Any])


def reads_iterables_first(method: Method) -> Method:
    """Decorate a method: read every argument that is an iterable into a list first, while no lock is held."""

    @wraps(method)
    def listed(self: Any, X: Any, *others: Any, **named: Any) -> Any:
        others = tuple(map(rows_in_memory, others))
        return method(self, rows_in_memory(X), *others, **{name: rows_in_memory(named[name]) for name in named})

    return cast("Method", listed)


def rows_in_memory(X: Any) -> Any:
    """Return a list of the rows of an iterable; return data in memory, and what is not iterable, unchanged.

    A memoryview becomes an array: Python cannot iterate over some memoryviews, such as those with two dimensions.
    """
    X = _without_view(X)
    if isinstance(X, _IN_MEMORY) or is_frame(X) or not isinstance(X, Iterable) or getattr(X, "shape", None) == ():
        return X
    return list(X)


def has_length(X: Any) -> bool:
    """Return True if rows can be counted; those of an array without dimensions cannot."""
    return hasattr(X, "__len__") and getattr(X, "shape", None) != ()


def _without_view(values: Any) -> Any:
    """Return a memoryview as an array of the same memory, and anything else unchanged."""
    if not isinstance(values, memoryview):
        return values
    try:
        values.nbytes  # noqa: B018 (raises if the view has been released)
        return np.asarray(values)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise InvalidInputError(f"The memoryview cannot be read: {error}.") from None


class CodedRows(np.ndarray[Any, np.dtype[np.float64]]):
    """Rows in which categories are codes already (see `categories.category_code`): ``rows.view(CodedRows)``."""


class RowConverter:
    """Converts rows to points with a fixed number of features: codes for categories, NaN for missing numbers.

    The first dictionary or data frame determines the names of the features (text or numbers) and their order. Later
    ones must have the same names, in any order. Rows without names are converted by position. A missing number is None,
    NaN, NA or a key that is absent from a dictionary; unless gaps are allowed, it makes the row unusable. A row
    without any value is always unusable.

    Parameters
    ----------
    n_features : int
        Number of features.
    names : list, optional
        The names of the features.
    categorical : sequence of int or str, optional
        The categorical features. If they are names, these features become the first ones, in the order given.
    allows_gaps : bool, default=False
        Whether numbers may be missing.

    Attributes
    ----------
    names : list or None
        The names of the features; None until a row has named them.
    """

    def __init__(
        self,
        n_features: int,
        names: list[Any] | None = None,
        categorical: Sequence[Any] = (),
        *,
        allows_gaps: bool = False,
    ) -> None:
        self.n_features = n_features
        self.names = names
        self._categorical_names = [name for name in categorical if isinstance(name, str)]
        self._categorical = frozenset(range(len(categorical)) if self._categorical_names else categorical)
        self._allows_gaps = allows_gaps
        self._as_row, self._as_points, self._as_number = _CHECKS_WITH_GAPS if allows_gaps else _CHECKS

    def point(self, x: Any) -> Array:
        """Return one row as a table of one point; raise InvalidInputError if it cannot be used."""
        x = _without_view(x)
        if isinstance(x, np.ndarray) and self._has_numbers_only(x):
            self._check_names_are_known()
            return self._as_row(x.reshape(1) if x.ndim == 0 else x, self.n_features)[None]
        if isinstance(x, Mapping) or _has_named_values(x):
            names = self._names_in_order(x.keys())
            point = self._point_of_values([x.get(name) for name in names], names)
            self.names = names
            return point
        self._check_names_are_known()
        return self._point_of_sequence([x] if self.n_features == 1 and np.isscalar(x) else x)

    def points(self, X: Any) -> Array:
        """Return rows as a table of points; if any row cannot be used, raise InvalidInputError and learn no names."""
        if is_frame(X):
            names = self._names_in_order(X.columns)
            present = {name: X[name] for name in X.columns}
            columns = [present[name] if name in present else np.full(len(X), None) for name in names]
            points = self._checked_points(points_of_columns(columns, self._categorical, names))
            self.names = names
            return points
        if isinstance(X, np.ndarray):
            self._check_names_are_known()
            return self._points_of_array(X[:, None] if X.ndim == 1 and self.n_features == 1 else X)
        if not isinstance(X, Iterable) or isinstance(X, (str, bytes, Mapping)):
            raise InvalidInputError(f"X must be a table or an iterable of rows, but is {X!r}.")
        attempt = shallow_copy(self)
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

    def _has_numbers_only(self, array: Array) -> bool:
        """Return True if no value of an array needs to be converted: only numbers, or codes instead of categories."""
        return isinstance(array, CodedRows) or (not self._categorical and array.dtype.kind in "biuf")

    def _points_of_array(self, X: Array) -> Array:
        if X.ndim != 2 or X.shape[1] != self.n_features or self._has_numbers_only(X):
            return self._checked_points(np.asarray(without_mask(X)))
        return self._checked_points(points_of_table(X, self._categorical, self.names))

    def _checked_points(self, points: Array) -> Array:
        points = self._as_points(points, self.n_features)
        if self._categorical:
            check_rows_have_values(points, tuple(self._categorical))
        return points

    def _point_of_sequence(self, x: Any) -> Array:
        """Convert a row without names, by position."""
        values = _as_list(x)
        if not self._categorical and isinstance(values, (list, tuple)) and all(map(_is_float, values)):
            return self._as_row(np.array(values), self.n_features)[None]
        if not isinstance(values, (list, tuple)) or any(isinstance(value, (list, tuple)) for value in values):
            return self._as_row(x, self.n_features)[None]  # raises
        if len(values) != self.n_features:
            raise InvalidInputError(f"x has {len(values)} features, but there should be {self.n_features}.")
        return self._point_of_values(values, self.names or range(self.n_features))

    def _point_of_values(self, values: Sequence[Any], names: Sequence[Any]) -> Array:
        """Convert one value per feature."""
        categorical, as_number = self._categorical, self._as_number
        pairs = zip(values, names, strict=True)
        if not categorical:
            return self._as_row(np.array([as_number(value, name) for value, name in pairs]), self.n_features)[None]
        row = [
            category_code(value) if j in categorical else as_number(value, name)
            for j, (value, name) in enumerate(pairs)
        ]
        if all(map(is_missing, values)):
            raise InvalidInputError("x has no value: everything is missing.")
        return self._as_row(np.array(row), self.n_features)[None]

    def _check_names_are_known(self) -> None:
        """Raise if `categorical` lists names and a row without names arrives before any row has named its features."""
        if self._categorical_names and self.names is None:
            name = self._categorical_names[0]
            raise InvalidInputError(
                f"The first row must name its features, because categorical lists the name {name!r}."
            )

    def _names_in_order(self, names: Iterable[Any]) -> list[Any]:
        """Return the names in the order of the features; raise if they do not match the names already known."""
        present = [name.item() if isinstance(name, np.generic) else name for name in names]
        if self.names is None:
            _check_new_names(present)
            if len(present) != self.n_features:
                raise InvalidInputError(f"x has {len(present)} features, but there should be {self.n_features}.")
            _check_all_present(self._categorical_names, present)
            categorical = set(self._categorical_names)
            return [*self._categorical_names, *(name for name in present if name not in categorical)]
        if present != self.names:
            if not self._allows_gaps:
                _check_all_present(self.names, present)
            known = set(self.names)
            for name in present:
                if name not in known:
                    raise InvalidInputError(f"x has a feature {name!r} that earlier rows do not have.")
        return self.names


def _as_list(x: Any) -> Any:
    """Return an array, or a sequence other than a tuple or text, as a list; return anything else unchanged."""
    if isinstance(x, (list, tuple)):
        return x
    if hasattr(x, "tolist"):
        return x.tolist()
    if hasattr(x, "__array__"):
        return np.asarray(x).tolist()
    return list(x) if isinstance(x, Sequence) and not isinstance(x, (str, bytes, bytearray)) else x


def _is_float(value: Any) -> bool:
    return type(value) is float


def _check_all_present(names: list[Any], present: list[Any]) -> None:
    in_row = set(present)
    for name in names:
        if name not in in_row:
            raise InvalidInputError(f"x has no feature {name!r}.")


def _check_new_names(names: list[Any]) -> None:
    """Raise if two names would be the same in a model file, or if a name could not be restored from the file."""
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


def _rows(X: Any) -> Iterable[Any]:
    """Return the rows of X; those of a data frame as dictionaries."""
    if not is_frame(X):
        return X
    columns = dict(zip(X.columns, map(column_values, columns_of(X)), strict=True))
    return [{name: values[i] for name, values in columns.items()} for i in range(len(X))]

"""Convert the rows of a request to points and labels.

Points have codes for categories and NaN for missing numbers; labels are the categories as posted, and the times as
text.
"""

import json
from collections import deque
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from imondrian.base.categories import MISSING_CODE, category_code, category_text, distinct_key
from imondrian.base.defaults import SERIES
from imondrian.base.errors import InvalidInputError
from imondrian.base.shortening import shortened
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_VALUE
from imondrian.forest.inputs import as_points, as_points_with_gaps
from imondrian.rows.missing_values import have_values
from imondrian.service.changes.row_labels import TIME, Category, Labels, time_text
from imondrian.service.limits import Limits, Retention
from imondrian.stream.row_times import as_seconds

_NUMBERS = {int, float}
_CATEGORIES = {str, bool, int, float}
_MAX_TIME_LENGTH = 64
_MAX_VALUE_LENGTH = 200  # characters of a value in an error message


class RowFormat(NamedTuple):
    """What the rows of a detector must look like."""

    features: list[str]  # names, in the order of the columns
    categorical: frozenset[int] = frozenset()
    allows_gaps: bool = False  # numbers may be null, and features may be absent from records
    max_category_length: int = Limits().category_length
    max_labelled_rows: int = Retention().history  # number of latest rows whose labels are kept
    time: str = TIME  # name of the time in a record, unless a feature has this name
    uses_times: bool = False  # whether the detector uses the times (preset "series"); otherwise they are only shown

    @classmethod
    def of(cls, configuration: dict[str, Any], limits: Limits, retention: Retention) -> "RowFormat":
        """Return the format of the rows of a detector with this configuration."""
        features, names = configuration["features"], set(configuration["categorical"])
        return cls(
            features,
            frozenset(j for j, name in enumerate(features) if name in names),
            allows_gaps=configuration["missing"] != "raise",
            max_category_length=limits.category_length,
            max_labelled_rows=retention.history_rows(len(features)),
            time=configuration["time"],
            uses_times=configuration["preset"] == SERIES,
        )

    def new_reader(self) -> "RowReader":
        """Return a reader of such rows."""
        return RowReader(self)


class PostedRows(NamedTuple):
    """The rows of a request."""

    points: Array
    labels: Labels
    times: Array | None = None  # in seconds, NaN for a row without a time; None if times are absent or only shown


class _BlockLabels(NamedTuple):
    """The labels of a block of rows."""

    first: int  # number of the first row
    categories: dict[float, Category]  # by code
    times: dict[int, str]  # by number of the row


class RowReader:
    """Converts decoded JSON rows, block by block; errors name the point, the feature and the value.

    A value takes 8 bytes. Only the labels of the latest rows are kept, so their memory is bounded, whatever the rows
    contain.

    Parameters
    ----------
    row_format : RowFormat
        What the rows must look like.

    Attributes
    ----------
    n_rows : int
        Number of rows so far.
    """

    def __init__(self, row_format: RowFormat) -> None:
        self.n_rows = 0
        self._format, self._known = row_format, set[str]()  # names of the features, if the rows are records
        self._values, self._has_gaps = bytearray(), False
        self._seconds, self._has_seconds = bytearray(), False  # times of all rows
        self._block_seconds: dict[int, float] = {}  # by number of the row
        self._block = _BlockLabels(0, {}, {})
        self._earlier: deque[_BlockLabels] = deque()
        self._codes: dict[tuple[type, Any], float] = {}  # of the categories of a block
        self._are_records = False

    def add(self, rows: list[Any]) -> None:
        """Add the next rows, which must be all lists or all records by feature name."""
        first, self.n_rows = self.n_rows, self.n_rows + len(rows)
        if self._block.categories or self._block.times:
            self._begin_block(first)
        if first == 0 and isinstance(rows[0], dict):
            self._known, self._are_records = set(self._format.features), True
        read_row = self._values_of_record if self._are_records else self._checked_list
        lists = [read_row(i, row) for i, row in enumerate(rows, first)]
        if self._format.categorical or not all(_NUMBERS.issuperset(map(type, row)) for row in lists):
            lists = [self._numbers(i, row) for i, row in enumerate(lists, first)]
        self._values += self._as_bytes(first, lists)
        if self._format.uses_times:
            self._add_seconds(first)

    def result(self) -> PostedRows:
        """Return all rows."""
        if not self.n_rows:
            raise InvalidInputError("There are no points.")
        n_features = len(self._format.features)
        points = np.frombuffer(self._values).reshape(-1, n_features)
        if self._has_gaps:
            has_value = have_values(points, tuple(self._format.categorical))
            if not has_value.all():
                raise InvalidInputError(f"Point {int(np.argmin(has_value))} has no value: everything is missing.")
        self._check_range(points)
        points = (as_points_with_gaps if self._has_gaps else as_points)(points, n_features)
        times = np.frombuffer(self._seconds) if self._has_seconds else None
        return PostedRows(points, self._latest_labels(), times)

    def _check_range(self, points: Array) -> None:
        """Raise InvalidInputError if a number is infinite or too large; the error names the feature and the point."""
        values = points.ravel()
        if np.fmax.reduce(values) > MAX_VALUE or np.fmin.reduce(values) < -MAX_VALUE:  # both ignore NaN
            i, j = np.argwhere(np.abs(points) > MAX_VALUE)[0].tolist()
            raise self._error(i, j, float(points[i, j]), f"at most {MAX_VALUE:g} in absolute value")

    def _begin_block(self, first: int) -> None:
        """Begin a block: drop the codes of the previous block, and labels of blocks whose rows will not be shown."""
        self._codes.clear()
        self._earlier.append(self._block)
        self._block = _BlockLabels(first, {}, {})
        while self._earlier and self.n_rows - self._second_block().first >= self._format.max_labelled_rows:
            self._earlier.popleft()

    def _second_block(self) -> _BlockLabels:
        """Return the labels of the second-oldest block that is kept."""
        return self._earlier[1] if len(self._earlier) > 1 else self._block

    def _latest_labels(self) -> Labels:
        """Return the labels of the latest rows."""
        categories, times = dict[float, Category](), dict[int, str]()
        for block in (*self._earlier, self._block):
            categories |= {code: value for code, value in block.categories.items() if code not in categories}
            times |= block.times
        latest = range(max(self.n_rows - self._format.max_labelled_rows, 0), self.n_rows)
        return Labels(categories, [times.get(i) for i in latest] if times else [])

    # -- rows ---------------------------------------------------------------------------------------------------

    def _checked_list(self, i: int, row: Any) -> list[Any]:
        """Return a row if it is a list of the right length, or raise InvalidInputError."""
        if not isinstance(row, list) or len(row) != len(self._format.features):
            n = len(self._format.features)
            raise InvalidInputError(f"Point {i} must be a list of {n} values, but is {shown_value(row)}.")
        return row

    def _values_of_record(self, i: int, row: Any) -> list[Any]:
        """Return the values of a record, in the order of the features, with None for absent features."""
        if not isinstance(row, dict):
            raise InvalidInputError(f"Point {i} must be an object like those before it, but is {shown_value(row)}.")
        if row.keys() != self._known:
            row = self._without_time(i, row)
            self._check_names(i, row)
        return [row.get(name) for name in self._format.features]

    def _without_time(self, i: int, row: dict[str, Any]) -> dict[str, Any]:
        """Record the time of a row, and return the row without it."""
        key = self._format.time
        if key not in row or key in self._known:
            return row
        if row[key] is not None:
            read_time = self._recorded_time if self._format.uses_times else self._shown_time
            self._block.times[i] = read_time(i, row[key])
        return {name: value for name, value in row.items() if name != key}

    def _check_names(self, i: int, row: dict[str, Any]) -> None:
        for name in row:
            if name not in self._known:
                raise InvalidInputError(f"Point {i} has an unknown feature {name!r:.100}.")
        if len(row) < len(self._known) and not self._format.allows_gaps:
            absent = next(name for name in self._format.features if name not in row)
            raise InvalidInputError(f"Point {i} lacks the feature {absent!r}.")

    # -- times --------------------------------------------------------------------------------------------------

    def _shown_time(self, i: int, time: Any) -> str:
        """Return the time of a point as it is shown, or raise InvalidInputError."""
        if _is_short_text(time):
            try:
                datetime.fromisoformat(time)
            except ValueError:
                pass
            else:
                return time
        raise InvalidInputError(
            f"{self._format.time!r} of point {i} must be a time in ISO 8601, such as 2026-01-31T12:30:00Z, but is"
            f" {shown_value(time)}."
        )

    def _recorded_time(self, i: int, time: Any) -> str:
        """Record the time of a point in seconds, and return it as it is shown, or raise InvalidInputError."""
        seconds = _seconds_of(time)
        if seconds is None:
            raise InvalidInputError(
                f"{self._format.time!r} of point {i} must be a time in ISO 8601, such as 2026-01-31T12:30:00Z, or a"
                f" number of seconds since 1970, but is {shown_value(time)}."
            )
        self._block_seconds[i] = seconds
        return time if isinstance(time, str) else time_text(seconds)

    def _add_seconds(self, first: int) -> None:
        """Add the times of the rows from `first` on, in seconds."""
        seconds = np.full(self.n_rows - first, np.nan)
        for i, value in self._block_seconds.items():
            seconds[i - first] = value
        self._has_seconds |= bool(self._block_seconds)
        self._seconds += seconds.tobytes()
        self._block_seconds.clear()

    # -- values -------------------------------------------------------------------------------------------------

    def _numbers(self, i: int, row: list[Any]) -> list[float]:
        """Return a row with codes for categories, and NaN for missing numbers."""
        categorical = self._format.categorical
        return [
            self._code(i, j, value) if j in categorical else self._number(i, j, value) for j, value in enumerate(row)
        ]

    def _number(self, i: int, j: int, value: Any) -> float:
        if type(value) in _NUMBERS:
            return value
        if value is not None or not self._format.allows_gaps:
            raise self._error(i, j, value, "a number")
        self._has_gaps = True
        return np.nan

    def _code(self, i: int, j: int, value: Any) -> float:
        if value is None:
            self._has_gaps = True
            return MISSING_CODE
        if type(value) not in _CATEGORIES:
            raise self._error(i, j, value, "text, a number or a boolean")
        key = distinct_key(value)
        if key not in self._codes:
            self._check_category(i, j, value)
            self._codes[key] = category_code(value)
            self._block.categories.setdefault(self._codes[key], value)
        return self._codes[key]

    def _check_category(self, i: int, j: int, value: Category) -> None:
        max_length = self._format.max_category_length
        try:
            text = category_text(value)
        except InvalidInputError:  # infinite, or too many digits
            raise self._error(i, j, value, "a finite number") from None
        if len(text) > max_length:
            raise self._error(i, j, value, f"a category of at most {max_length} characters")
        if not is_unicode(text):
            raise self._error(i, j, value, "valid Unicode")

    def _error(self, i: int, j: int, value: Any, expected: str) -> InvalidInputError:
        name = self._format.features[j]
        return InvalidInputError(f"{name!r} of point {i} must be {expected}, but is {shown_value(value)}.")

    def _as_bytes(self, first: int, rows: list[list[Any]]) -> bytes:
        try:
            return np.array(rows, np.float64).tobytes()
        except OverflowError:
            places = ((i, j) for i, row in enumerate(rows) for j in range(len(row)) if _is_huge(row[j]))
            i, j = next(places)
            raise self._error(first + i, j, rows[i][j], "a number within the range of a 64-bit float") from None


def _is_short_text(time: Any) -> bool:
    return isinstance(time, str) and len(time) <= _MAX_TIME_LENGTH and is_unicode(time)


def _seconds_of(time: Any) -> float | None:
    """Return a time in seconds, or None if it is invalid."""
    if not _is_short_text(time) and type(time) not in _NUMBERS:
        return None
    try:
        return as_seconds(time)
    except InvalidInputError:
        return None


def is_unicode(text: str) -> bool:
    """Return False if the text has half of a surrogate pair, which cannot be sent in a response."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_huge(value: Any) -> bool:
    try:
        float(value)
    except OverflowError:
        return True
    return False


def shown_value(value: Any) -> str:
    """Return a value as JSON, shortened, for an error message."""
    try:
        return shortened(json.dumps(value), _MAX_VALUE_LENGTH)
    except RecursionError:  # less nesting can be written than read
        return "deeply nested"

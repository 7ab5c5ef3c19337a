"""Explanations in words: the features that make a row anomalous, and what is expected of them."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from imondrian.base.categories import MISSING_CODE
from imondrian.base.column_names import NO_NAME
from imondrian.base.option_types import View
from imondrian.base.shortening import shortened
from imondrian.engine.jit import Array
from imondrian.forest.mondrian_forest import MondrianForest

MISSING_TEXT = "missing"
MAX_SHOWN_LENGTH = 100  # characters of a name or a category in words
_MIN_SHARE = 0.05  # features with a smaller share are not named, except the first
_EXACT = 2.0**53  # floats below this represent integers exactly
_RANGE_DIGITS, _MAX_DIGITS = 3, 6  # least and greatest number of significant digits of the bounds of a range
_ALWAYS_WITH_RANGE = 3  # this many reasons say what is expected, however small their shares are
_COMMON = 0.1  # categories with at least this share are described by a percentage
_AT: dict[View, str] = {"hour": " at this hour", "level": " given its recent level"}
_MIN_RELATIVE_SIZE = 1 / 3  # a neighbouring part is merged if it has at least this share of the largest part


class Frequency(NamedTuple):
    """How many points of a forest have a category."""

    count: int  # type: ignore[assignment]  # points with the category (hides tuple.count)
    n_points: int  # all points

    def __str__(self) -> str:
        if self.count == 0:
            return "never seen"
        if self.count >= _COMMON * self.n_points:
            return f"{self.count / self.n_points:.0%} of rows"
        return f"1 in {round(self.n_points / self.count):,}"


class Reason(NamedTuple):
    """The share of one feature in a score; with a shingle, that of the feature in one or more neighbouring rows."""

    feature: str
    value: float  # of the row with the largest part, if there are several; the code of a category; NaN if missing
    share: float  # of the score, in [0, 1]
    is_high: bool  # True: the number is unusually high; False: unusually low, or a category
    text: str | None = None  # the category, "" if it is not known; None for a number
    frequency: Frequency | None = None  # of the category; None if not known
    expected: tuple[float, float] | None = None  # the range of ordinary numbers given the rest; None if not known
    rows_ago: tuple[int, int] = (0, 0)  # the latest and the earliest row, counted back from the last row of a shingle
    values: tuple[float, float] | None = None  # the lowest and the highest number of several rows; None for one row
    part: float = math.nan  # of the score; negative if the number is unusually low
    view: View | None = None  # of a time series: in which view the number is unusual; None without views

    @property
    def name(self) -> str:
        """The feature with its rows, such as "load", "load 1 row ago", "load 2 to 5 rows ago"."""
        latest, earliest = self.rows_ago
        name = shortened(self.feature, MAX_SHOWN_LENGTH) or NO_NAME
        if earliest == 0:
            return name
        if latest == 0:
            return f"{name} in the last {earliest + 1} rows"
        ago = f"{latest}" if latest == earliest else f"{latest} to {earliest}"
        return f"{name} {ago} row{'s' * (earliest > 1)} ago"

    @property
    def side(self) -> Literal["high", "low", ""]:
        """Either "high" or "low": whether the number lies above or below those of other rows.

        It is "" for a category or a missing number.
        """
        if self.text is not None or math.isnan(self.value):
            return ""
        return "high" if self.is_high else "low"

    @property
    def unusual_side(self) -> Literal["high", "low", ""]:
        """The side, but "" if the number lies in its expected range."""
        is_expected = self.expected is not None and self.expected[0] <= self.value <= self.expected[1]
        return "" if is_expected else self.side

    @property
    def value_text(self) -> str:
        """The category, shortened if it is long, or the number: an integer with all digits, others with six."""
        return self._value_text("")

    @property
    def remark(self) -> str:
        """How unusual the value is, such as "never seen" or "high; expected 4 to 210"; "" if not known."""
        if self.text is not None:
            return "" if self.frequency is None else str(self.frequency)
        if self.expected is None:
            return self.side
        low, high = self.expected
        at = "" if self.view is None else _AT[self.view]
        return "; ".join(filter(None, [self.unusual_side, f"expected {_range_text(low, high, self.value)}{at}"]))

    def __str__(self) -> str:
        value = self._value_text(",")
        is_value = f" = {value}" if value else ""
        remark = f" ({self.remark})" if self.remark else ""
        return f"{self.name}{is_value}{remark}, {self.share:.0%}"

    def _value_text(self, separator: str) -> str:
        if self.text is not None:
            return shortened(self.text, MAX_SHOWN_LENGTH)
        numbers = (self.value,) if self.values is None else dict.fromkeys(self.values)
        return " to ".join(_number_text(number, separator) for number in numbers)


class ExplainedRow(NamedTuple):
    """A row of a table, its score, and the reasons for it."""

    row: int  # counted from 1
    score: float
    surprise: float
    is_anomaly: bool
    time: str | None
    explanation: list[Reason]
    id: str | None = None  # the value of the column that identifies rows


class Expectations:
    """What a forest expects: the range of a number given the rest of its point, and how common a category is.

    The forest must not change while this object is in use.

    Parameters
    ----------
    forest : MondrianForest
        A forest that holds points.
    n_rows : int, default=1
        Number of rows in a point: the size of the shingle.
    indicators : sequence of int, default=()
        The features with an indicator of missing values; the indicators are the last columns of each row.
    """

    def __init__(self, forest: MondrianForest, n_rows: int = 1, indicators: Sequence[int] = ()) -> None:
        self._forest = forest
        self._width = (forest.n_features or 0) // n_rows
        self.categorical = frozenset(j for j in forest.categorical if j < self._width)  # features of a row
        first = self._width - len(indicators)
        self._indicators = {j: first + k for k, j in enumerate(indicators)}

    def frequency(self, row: int, j: int, code: float) -> Frequency:
        """Return how many of the points counted by the forest have this category in feature j of row `row`."""
        counts, n_points = self._forest.category_counts(row * self._width + j, np.array([code]))
        return Frequency(int(counts[0]), int(n_points))

    def ranges(self, points: Array, parts: Sequence["Part"]) -> list[tuple[float, float] | None]:
        """Return the 5 % and 95 % quantiles of what is expected in the leading row of each part; None if not known.

        `points` are points as the forest holds them, one for each part. All rows of a part are hidden, so that one
        unusual value does not make the others look ordinary. For a missing number, the range is the one expected if it
        were present.
        """
        queries = points.copy()
        for point, part in zip(queries, parts, strict=True):
            columns = [row * self._width + part.feature for row in range(part.first, part.last + 1)]
            point[[column for row, column in enumerate(columns, part.first) if row != part.leading]] = np.nan
            if part.feature in self._indicators:
                offset = self._indicators[part.feature] - part.feature
                point[[column + offset for column in columns]] = 0.0
        features = np.array([[part.leading * self._width + part.feature] for part in parts])
        _, low, high, _ = self._forest.expected_values(queries, features)
        bounds = zip(low[:, 0].tolist(), high[:, 0].tolist(), strict=True)
        return [None if math.isnan(first) else (first, last) for first, last in bounds]


class Part(NamedTuple):
    """The part of one feature in the score of a point, merged over neighbouring rows with parts of similar size."""

    feature: int
    first: int  # the first of the merged rows; the earliest row of the point is row 0
    last: int  # the last of the merged rows
    leading: int  # the row with the largest part
    size: float  # the sum of the parts, which have the same sign


def largest_parts(parts: Array, rows: Array, categorical: Collection[int], n: int) -> list[Part]:
    """Return the n largest parts, largest first, after merging those of neighbouring rows."""
    if len(parts) > 1:
        return merged_parts(parts, rows, categorical)[:n]
    order = np.argsort(-np.abs(parts[0]), kind="stable")[:n].tolist()
    return [Part(j, 0, 0, 0, float(parts[0, j])) for j in order]


def merged_parts(parts: Array, rows: Array, categorical: Collection[int]) -> list[Part]:
    """Merge the parts of neighbouring rows and sort them, largest first.

    Starting with the largest part of all, the neighbouring rows of the same feature are added as long as their parts
    have the same sign and at least a third of the largest part; categories must also be the same, and missing numbers
    are not merged with known ones. This is repeated with the largest part that is left, until no part is left. So the
    absolute sizes have the same sum as before.

    Parameters
    ----------
    parts : array of shape (n_rows, n_features)
        The parts of the values of a point.
    rows : array of shape (n_rows, n_features)
        The values.
    categorical : collection of int
        The categorical features.

    Returns
    -------
    list of Part

    Examples
    --------
    >>> parts = np.array([[0.01], [0.2], [0.3], [0.02]])
    >>> [tuple(part) for part in merged_parts(parts, np.zeros((4, 1)), [])]
    [(0, 1, 2, 2, 0.5), (0, 3, 3, 3, 0.02), (0, 0, 0, 0, 0.01)]
    """
    merged: list[Part] = []
    is_used = np.zeros(parts.shape, np.bool_)
    for i in np.argsort(-np.abs(parts), axis=None, kind="stable").tolist():
        leading, j = divmod(i, parts.shape[1])
        if is_used[leading, j]:
            continue
        largest = parts[leading, j]
        is_similar = ~is_used[:, j] & (parts[:, j] * np.sign(largest) >= _MIN_RELATIVE_SIZE * abs(largest))
        is_similar &= np.isnan(rows[:, j]) == np.isnan(rows[leading, j])
        if j in categorical:
            is_similar &= rows[:, j] == rows[leading, j]
        first = last = leading
        while first > 0 and is_similar[first - 1]:
            first -= 1
        while last + 1 < len(parts) and is_similar[last + 1]:
            last += 1
        is_used[first : last + 1, j] = True
        merged.append(Part(j, first, last, leading, float(parts[first : last + 1, j].sum())))
    return sorted(merged, key=lambda part: -abs(part.size))


def reasons_of(
    parts: Array,
    row: Array,
    names: list[str],
    n: int = 3,
    *,
    expectations: Expectations | None = None,
    point: Array | None = None,
    texts: Mapping[int, str] | None = None,
    min_share: float = _MIN_SHARE,
) -> list[Reason]:
    """Return the features with the largest parts in the score of a row, at most n, largest first.

    With a shingle, neighbouring rows with parts of similar size are merged (see `merged_parts`).

    Parameters
    ----------
    parts : array of shape (n_features,) or (n_rows, n_features)
        The part of each feature, as `MondrianForest.explain` returns it; with a shingle, in each row.
    row : array of the same shape
        The row: codes in categorical columns, NaN for missing numbers.
    names : list of str
        Names of the features.
    n : int, default=3
        Maximum number of features.
    expectations : Expectations, optional
        What the forest expects; if omitted, the reasons do not say what is expected.
    point : array of shape (n_values,), optional
        The row as the forest holds it, with missing numbers replaced; by default the row itself.
    texts : mapping of int to str, optional
        The texts of the categories, by the index of the feature (with a shingle, by the index in `row.ravel()`). A
        category that is not listed is shown as its code.
    min_share : float, default=0.05
        Features with a smaller share of the score are left out, except for the first. Reasons with a smaller share than
        0.05 do not say what is expected of a number, unless they are among the first three.

    Returns
    -------
    list of Reason

    Examples
    --------
    >>> parts, row = np.array([0.02, -0.5, 0.2]), np.array([1.0, -9000.0, 4.0])
    >>> [str(reason) for reason in reasons_of(parts, row, ["a", "b", "c"])]
    ['b = -9,000 (low), 69%', 'c = 4 (high), 28%']
    >>> [str(reason) for reason in reasons_of(parts, row, ["a", "b", "c"], texts={2: "FR"})]
    ['b = -9,000 (low), 69%', 'c = FR, 28%']
    >>> series = np.array([[1.0], [8.0], [9.0], [2.0]])
    >>> [str(reason) for reason in reasons_of(np.array([[0.0], [0.3], [0.4], [0.0]]), series, ["load"])]
    ['load 1 to 2 rows ago = 8 to 9 (high), 100%']
    """
    points = None if point is None else point[None]
    return reasons_of_rows(
        parts[None],
        row[None],
        names,
        n,
        expectations=expectations,
        points=points,
        texts=[texts or {}],
        min_share=min_share,
    )[0]


def reasons_of_rows(
    parts: Array,
    rows: Array,
    names: list[str],
    n: int = 3,
    *,
    expectations: Expectations | None = None,
    points: Array | None = None,
    texts: Sequence[Mapping[int, str]],
    min_share: float = _MIN_SHARE,
) -> list[list[Reason]]:
    """Like `reasons_of` for many rows at once, which is faster: the first axis of all arrays is that of the rows."""
    if not len(parts):
        return []
    shape = (len(parts), -1, parts.shape[-1])
    describers = [
        _RowDescriber(row, names, expectations, own_texts)
        for row, own_texts in zip(rows.reshape(shape), texts, strict=True)
    ]
    chosen = [
        describer.largest(own_parts, n, min_share)
        for describer, own_parts in zip(describers, parts.reshape(shape), strict=True)
    ]
    ranges: dict[tuple[int, int], tuple[float, float] | None] = {}
    if expectations is not None:
        held = (rows if points is None else points).reshape(len(parts), -1)
        with_range = [
            (i, rank)
            for i, (describer, own) in enumerate(zip(describers, chosen, strict=True))
            for rank, part in enumerate(own)
            if describer.is_range_worthwhile(rank, part)
        ]
        if with_range:
            found = expectations.ranges(held[[i for i, _ in with_range]], [chosen[i][rank] for i, rank in with_range])
            ranges = dict(zip(with_range, found, strict=True))
    return [
        [describer.reason(part, ranges.get((i, rank))) for rank, part in enumerate(own)]
        for i, (describer, own) in enumerate(zip(describers, chosen, strict=True))
    ]


class _RowDescriber:
    """Describes the parts of one row, or of one point with several rows."""

    def __init__(
        self, rows: Array, names: list[str], expectations: Expectations | None, texts: Mapping[int, str]
    ) -> None:
        self._rows, self._names, self._expectations, self._texts = rows, names, expectations, texts
        known = frozenset() if expectations is None else expectations.categorical
        self._categorical = known | {i % rows.shape[1] for i in texts}
        self._total = 0.0

    def largest(self, parts: Array, n: int, min_share: float) -> list[Part]:
        """Return the largest parts, at most n; after the first, only those with a large enough share.

        Also store the sum of all parts, to which shares are relative.
        """
        self._total = max(float(np.abs(parts).sum()), np.finfo(float).tiny)
        largest = largest_parts(parts, self._rows, self._categorical, n)
        return [part for rank, part in enumerate(largest) if rank == 0 or self._share(part) >= min_share]

    def is_range_worthwhile(self, rank: int, part: Part) -> bool:
        """Return True if the part is that of a number, and large enough to say what is expected."""
        return part.feature not in self._categorical and (rank < _ALWAYS_WITH_RANGE or self._share(part) >= _MIN_SHARE)

    def reason(self, part: Part, expected: tuple[float, float] | None) -> Reason:
        """Return the reason in numbers and words."""
        j, latest = part.feature, len(self._rows) - 1
        value = float(self._rows[part.leading, j])
        reason = Reason(
            self._names[j],
            value,
            self._share(part),
            part.size > 0,
            expected=expected,
            rows_ago=(latest - part.last, latest - part.first),
            part=part.size,
        )
        if j in self._categorical:
            known = self._expectations
            frequency = None if known is None else known.frequency(part.leading, j, value)
            return reason._replace(is_high=False, text=self._category_text(part.leading, j, value), frequency=frequency)
        numbers = self._rows[part.first : part.last + 1, j]
        is_range = part.last > part.first and not math.isnan(value)
        return reason._replace(values=(float(numbers.min()), float(numbers.max()))) if is_range else reason

    def _share(self, part: Part) -> float:
        return abs(part.size) / self._total

    def _category_text(self, row: int, j: int, code: float) -> str:
        if code == MISSING_CODE:
            return MISSING_TEXT
        return self._texts.get(row * len(self._names) + j, _number_text(code, ""))


def _number_text(value: float, separator: str) -> str:
    """Return a number with six significant digits; an integer with all its digits."""
    if math.isnan(value):
        return MISSING_TEXT
    if math.isinf(value):
        return f"{value:g}"
    is_integer = value == round(value) and abs(value) < _EXACT
    return f"{value:{separator}.0f}" if is_integer else f"{value:{separator}.6g}"


def _range_text(low: float, high: float, value: float) -> str:
    """Return a range such as "12,300 to 98,800".

    The bounds are rounded to the second significant digit of their difference, but have at least three significant
    digits. They have more, up to six, if the value would otherwise appear to lie on the other side of a bound. Bounds
    in the wrong order are exchanged, and equal bounds are written once. Equal bounds, and bounds whose difference is
    not finite, have six significant digits (integers have all their digits).
    """
    if low > high:
        return _range_text(high, low, value)
    width = high - low
    if not 0.0 < width < math.inf:
        return " to ".join(dict.fromkeys(_number_text(bound, ",") for bound in (low, high)))
    last_digit = math.floor(math.log10(width)) - 1
    for n_digits in range(_RANGE_DIGITS, _MAX_DIGITS + 1):
        bounds = [_rounded(bound, last_digit, n_digits) for bound in (low, high)]
        if [value < low, value > high] == [value < bounds[0], value > bounds[1]]:
            break
    return " to ".join(dict.fromkeys(_number_text(bound, ",") for bound in bounds))


def _rounded(value: float, last_digit: int, least: int) -> float:
    """Round a number to a multiple of 10**last_digit, but to at least `least` and at most six significant digits."""
    n_digits = math.floor(math.log10(abs(value))) - last_digit + 1 if value else 1
    return float(f"{value:.{min(max(n_digits, least), _MAX_DIGITS)}g}")

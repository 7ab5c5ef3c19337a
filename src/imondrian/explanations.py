"""Explanations in words: the features that make a row anomalous, and what is usual for them."""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from imondrian.categories import MISSING_CODE
from imondrian.column_names import NO_NAME
from imondrian.engine.jit import Array
from imondrian.forest import MondrianForest
from imondrian.order_statistics import quantile_of_copies

MISSING_TEXT = "missing"
_MIN_SHARE = 0.05  # features with a smaller share are not named, except the first
_EXACT = 2.0**53  # floats below this represent integers exactly
_USUAL_QUANTILES = 0.05, 0.95
_USUAL_DIGITS = 3
_COMMON = 0.1  # categories with at least this share are described by a percentage


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
    """The share of one feature in the score of a row."""

    feature: str
    value: float  # of the row; the code of a category; NaN if a number is missing
    share: float  # of the score, in [0, 1]
    is_high: bool  # True: the number is unusually high; False: unusually low, or a category
    text: str | None = None  # the category; None for a number
    frequency: Frequency | None = None  # of the category; None if not known
    usual: tuple[float, float] | None = None  # the range of most numbers; None if not known

    @property
    def side(self) -> Literal["high", "low", ""]:
        """Either "high" or "low": whether the number lies above or below those of other rows; "" for a category."""
        if self.text is not None or math.isnan(self.value):
            return ""
        return "high" if self.is_high else "low"

    @property
    def value_text(self) -> str:
        """The category, or the number as text with six significant digits; an integer with all its digits."""
        return self.text if self.text is not None else _number_text(self.value, "")

    @property
    def remark(self) -> str:
        """How unusual the value is, such as "never seen", "1 in 240" or "high; usual 4 to 210"; "" if not known."""
        if self.text is not None:
            return "" if self.frequency is None else str(self.frequency)
        if self.usual is None:
            return self.side
        low, high = self.usual
        side = "" if low <= self.value <= high else self.side
        return "; ".join(filter(None, [side, f"usual {_range_text(low, high)}"]))

    def __str__(self) -> str:
        value = self.text if self.text is not None else _number_text(self.value, ",")
        remark = f" ({self.remark})" if self.remark else ""
        return f"{self.feature or NO_NAME} = {value}{remark}, {self.share:.0%}"


class ExplainedRow(NamedTuple):
    """A row of a table, its score, and the reasons for it."""

    row: int  # counted from 1
    score: float
    is_anomaly: bool
    time: str | None
    explanation: list[Reason]
    id: str | None = None  # the value of the column that identifies rows


class UsualValues:
    """What is usual in a forest: the range of most numbers of a feature, and how common its categories are.

    Each feature is looked up when it is first needed. The forest must not change meanwhile.

    Parameters
    ----------
    forest : MondrianForest
        A forest that holds points.
    """

    def __init__(self, forest: MondrianForest) -> None:
        self._forest = forest
        self._categorical = frozenset(forest.categorical)
        self._held: tuple[Array, Array] | None = None  # points and their numbers of copies
        self._ranges: dict[int, tuple[float, float]] = {}

    def is_category(self, j: int) -> bool:
        """Return True if feature j is categorical."""
        return j in self._categorical

    def frequency(self, j: int, code: float) -> Frequency:
        """Return how many points that the forest counts have a category in the categorical feature j."""
        counts, n_points = self._forest.category_counts(j, np.array([code]))
        return Frequency(int(counts[0]), int(n_points))

    def range(self, j: int) -> tuple[float, float]:
        """Return the 5 % and 95 % quantiles of the numeric feature j in the points that the forest holds."""
        if j not in self._ranges:
            self._held = self._held or self._forest.points_and_copies()
            points, copies = self._held
            low, high = (quantile_of_copies(points[:, j], copies, share) for share in _USUAL_QUANTILES)
            self._ranges[j] = low, high
        return self._ranges[j]


def reasons_of(
    parts: Array,
    row: Array,
    names: list[str],
    n: int = 3,
    *,
    usual: UsualValues | None = None,
    texts: Mapping[int, str] | None = None,
    min_share: float = _MIN_SHARE,
) -> list[Reason]:
    """Return the features with the largest parts in the score of a row, at most n, largest first.

    Parameters
    ----------
    parts : array of shape (n_features,)
        The part of each feature, as `MondrianForest.explain` returns it.
    row : array of shape (n_features,)
        The row: codes in categorical columns, NaN for missing numbers.
    names : list of str
        Names of the features.
    n : int, default=3
        Maximum number of features.
    usual : UsualValues, optional
        What is usual in the forest; if omitted, the reasons do not say what is usual.
    texts : mapping of int to str, optional
        The categories of the row, by the index of the feature; a category that is not listed is shown as its code.
    min_share : float, default=0.05
        Features with a smaller share of the score are left out, except for the first.

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
    """
    sizes = np.abs(parts)
    shares = sizes / max(sizes.sum(), np.finfo(float).tiny)  # the parts of a shingle can cancel
    leading = np.argsort(-sizes, kind="stable")[:n]
    reasons = [
        Reason(names[j], float(row[j]), float(shares[j]), bool(parts[j] > 0))
        for rank, j in enumerate(leading)
        if rank == 0 or shares[j] >= min_share
    ]
    return [_described(reason, int(j), usual, texts or {}) for reason, j in zip(reasons, leading, strict=False)]


def _described(reason: Reason, j: int, usual: UsualValues | None, texts: Mapping[int, str]) -> Reason:
    """Add what is usual for feature j and, if it is a category, its text."""
    if j not in texts and (usual is None or not usual.is_category(j)):
        return reason if usual is None else reason._replace(usual=usual.range(j))
    frequency = None if usual is None else usual.frequency(j, reason.value)
    return reason._replace(is_high=False, text=_category_text(j, reason.value, texts), frequency=frequency)


def _category_text(j: int, code: float, texts: Mapping[int, str]) -> str:
    return MISSING_TEXT if code == MISSING_CODE else texts.get(j, _number_text(code, ""))


def _number_text(value: float, separator: str) -> str:
    """Return a number with six significant digits; an integer with all its digits."""
    if math.isnan(value):
        return MISSING_TEXT
    is_integer = value == round(value) and abs(value) < _EXACT
    return f"{value:{separator}.0f}" if is_integer else f"{value:{separator}.6g}"


def _range_text(low: float, high: float) -> str:
    texts = [_rounded_text(bound) for bound in (low, high)]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def _rounded_text(value: float) -> str:
    """Return a number rounded to three significant digits, such as 12,300."""
    return _number_text(float(f"{value:.{_USUAL_DIGITS}g}"), ",")

"""Explanations in words: the names of the features that make a row anomalous."""

from typing import NamedTuple

import numpy as np

from imondrian.engine.jit import Array

NO_NAME = "(no name)"
_MIN_SHARE = 0.05  # features with a smaller share are not named, except the first
_EXACT = 2.0**53  # floats below this represent integers exactly


class Reason(NamedTuple):
    """The share of one feature in the score of a row."""

    feature: str
    value: float  # of the row
    share: float  # of the score, in [0, 1]
    is_high: bool  # True: the value is unusually high; False: unusually low

    @property
    def side(self) -> str:
        """Either "high" or "low": whether the value lies above or below those of other rows."""
        return "high" if self.is_high else "low"

    @property
    def value_text(self) -> str:
        """The value as text, with six significant digits; an integer with all its digits."""
        is_integer = self.value == round(self.value) and abs(self.value) < _EXACT
        return f"{self.value:.0f}" if is_integer else f"{self.value:.6g}"

    def __str__(self) -> str:
        return f"{self.feature or NO_NAME} {self.side} ({self.share:.0%})"


class ExplainedRow(NamedTuple):
    """A row of a table, its score, and the reasons for it."""

    row: int  # counted from 1
    score: float
    is_anomaly: bool
    time: str | None
    explanation: list[Reason]


def reasons_of(parts: Array, row: Array, names: list[str], n: int = 3) -> list[Reason]:
    """Return the features with the largest parts in the score of a row, at most n, largest first.

    Parts below a twentieth of the score are left out, except for the largest.

    Examples
    --------
    >>> parts, row = np.array([0.02, -0.5, 0.2]), np.array([1.0, -9.0, 4.0])
    >>> [str(reason) for reason in reasons_of(parts, row, ["a", "b", "c"])]
    ['b low (69%)', 'c high (28%)']
    """
    sizes = np.abs(parts)
    shares = sizes / sizes.sum()
    leading = np.argsort(-sizes, kind="stable")[:n]
    return [
        Reason(names[j], float(row[j]), float(shares[j]), bool(parts[j] > 0))
        for rank, j in enumerate(leading)
        if rank == 0 or shares[j] >= _MIN_SHARE
    ]

"""Labels of rows, for display: the categories as they were posted, and the rows' own times.

A detector needs only the code of a category (see `categories.py`), from which the text cannot be computed. So labels
are stored with the rows that introduce them: in the same journal entry, and in the history of a snapshot.
"""

import json
import math
import struct
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from imondrian.base.categories import MISSING_CODE, category_code
from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array

Category = str | bool | int | float
Value = Category | None  # of a feature, in JSON
TIME = "time"  # default name of the time in a record
_LENGTH = struct.Struct("<Q")


class Labels(NamedTuple):
    """The labels of some rows; if there are many rows, only the latest have labels."""

    categories: dict[float, Category]  # as posted, by code; the missing category has no label
    times: list[str | None]  # of each of the latest rows; empty if none of them has a time

    def __bool__(self) -> bool:
        return bool(self.categories or self.times)

    def to_bytes(self) -> bytes:
        """Return the labels as bytes, which `labels_from` decodes."""
        parts = [list(self.categories.values()), self.times]
        return json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode() if self else b""

    def of_rows(self, points: Array, times: list[str | None]) -> "Labels":
        """Return the labels of rows with these points and times."""
        codes = self.categories.keys() & set(points.ravel().tolist()) if self.categories else ()
        return Labels({code: self.categories[code] for code in codes}, times)

    def times_of(self, n_rows: int) -> list[str | None]:
        """Return the times of all `n_rows` rows, with None for rows that have no label."""
        return [None] * (n_rows - len(self.times)) + self.times

    def time_of(self, i: int, n_rows: int) -> str | None:
        """Return the time of row i of `n_rows` rows."""
        i -= n_rows - len(self.times)
        return self.times[i] if i >= 0 else None

    def values(self, points: Array, categorical: Iterable[int]) -> list[list[Value]]:
        """Return rows as they were posted: categories instead of codes, and None for missing values."""
        rows: list[list[Value]] = points.tolist()
        for j in categorical:
            for row in rows:
                row[j] = None if row[j] == MISSING_CODE else self.categories.get(row[j], row[j])  # type: ignore[arg-type]
        if np.isnan(points).any():
            rows = [[None if _is_nan(value) else value for value in row] for row in rows]
        return rows


NO_LABELS = Labels({}, [])


def joined_pair(first: bytes, second: bytes) -> bytes:
    """Return two byte strings as one: the length of the first, the first, the second."""
    return _LENGTH.pack(len(first)) + first + second


def split_pair(content: bytes) -> tuple[bytes, bytes]:
    """Return the two byte strings that `joined_pair` joined."""
    if len(content) < _LENGTH.size:
        raise InvalidInputError(f"Two joined values have at least {_LENGTH.size} bytes, not {len(content)}.")
    end = _LENGTH.size + _LENGTH.unpack_from(content)[0]
    if end > len(content):
        raise InvalidInputError(f"A value of {end - _LENGTH.size} bytes does not fit into {len(content)} bytes.")
    return content[_LENGTH.size : end], content[end:]


def labels_from(content: bytes) -> Labels:
    """Return the labels that `Labels.to_bytes` wrote."""
    if not content:
        return NO_LABELS
    categories, times = json.loads(content)
    return Labels({category_code(category): category for category in categories}, times)


def time_text(seconds: float) -> str:
    """Return a time in seconds since 1970 as a date and time, or as a number if it is outside the years 1 to 9999."""
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(sep=" ")
    except (ValueError, OverflowError, OSError):
        return repr(seconds)


def _is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)

"""The latest rows of a detector, for the page and for explanations."""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from imondrian.engine.jit import Array
from imondrian.service.changes.expected_rows import n_expected_values
from imondrian.service.changes.journal import MODELS, Entry, Outcome, ScoredRow, points_from
from imondrian.service.changes.row_labels import Category, Labels, Value, joined_pair, labels_from, split_pair
from imondrian.service.limits import Retention

_FORMER_FIELDS = ("number", "time", "score", "threshold", "is_anomaly")  # of versions without surprise
_ROW_FIELDS = (*_FORMER_FIELDS, "surprise", "incident")  # stored before the values of a row
# first bytes of a former history with labels; older histories begin with the number of a row, never with these bytes
_FORMER_LABELS = b"labelled"
_WITH_SURPRISE = b"surprise"  # first bytes of a history with surprise
_WITH_EXPECTED = b"expected"  # first bytes of a history of a series: the values are followed by what was expected


_FIELDS: dict[bytes, tuple[str, ...]] = {
    _FORMER_LABELS: _FORMER_FIELDS,
    _WITH_SURPRISE: _ROW_FIELDS,
    _WITH_EXPECTED: _ROW_FIELDS,
}


class HistoryRow(NamedTuple):
    """A row with its values and its score."""

    number: int  # in the stream, counted from 0
    time: float  # of arrival, in seconds since 1970
    own_time: str | None  # as posted
    values: list[Value]  # as posted
    point: list[float]  # codes for categories, NaN for missing numbers
    score: float
    threshold: float
    is_anomaly: bool
    surprise: float  # NaN if the row was learned by a version without surprise
    incident: int  # number of the incident that is open after the row, or NO_INCIDENT
    expected: bytes  # what was expected of a row of a series (`expected_rows.py`); otherwise empty


class _Block(NamedTuple):
    """The rows of a journal entry as bytes; they are decoded only when they are read."""

    time: float
    points: bytes
    labels: bytes
    rows: list[ScoredRow]


class History:
    """The latest rows; one thread adds rows while others read them.

    Parameters
    ----------
    n_features : int
        Number of values in a row.
    categorical : sequence of int
        The categorical features.
    retention : Retention
        How many rows, and how many bytes of their labels (categories and times as posted), are stored.
    """

    def __init__(self, n_features: int, categorical: Sequence[int], retention: Retention) -> None:
        self._n_features, self._categorical = n_features, categorical
        self._max_rows, self._max_label_bytes = retention.history_rows(n_features), retention.history_label_bytes
        self._blocks: deque[_Block] = deque()
        self._n_rows = self._n_label_bytes = 0

    def add(self, entry: Entry, outcome: Outcome) -> None:
        """Add the rows of a journal entry; an entry with a model clears the history."""
        if entry.kind in MODELS:  # the rows so far belong to the replaced detector
            self._blocks.clear()
            self._n_rows = self._n_label_bytes = 0
        if isinstance(outcome, list):
            self._append(self._latest(_Block(entry.time, *entry.points_and_labels(), outcome)))
            self._drop_oldest()

    def _latest(self, block: _Block) -> _Block:
        """Return a block without its oldest rows, if it has too many rows."""
        if len(block.rows) <= self._max_rows:
            return block
        points, labels = points_from(block.points, self._n_features)[-self._max_rows :], labels_from(block.labels)
        own = labels.of_rows(points, labels.times[-self._max_rows :])
        return _Block(block.time, points.tobytes(), own.to_bytes(), block.rows[-self._max_rows :])

    def _append(self, block: _Block) -> None:
        self._blocks.append(block)
        self._n_rows += len(block.rows)
        self._n_label_bytes += len(block.labels)

    def _drop_oldest(self) -> None:
        while self._is_too_long():
            oldest = self._blocks.popleft()
            self._n_rows -= len(oldest.rows)
            self._n_label_bytes -= len(oldest.labels)

    def _is_too_long(self) -> bool:
        """Return True if the oldest block must be dropped; the latest one is always kept."""
        has_others = len(self._blocks) > 1
        is_not_needed = self._n_rows - len(self._blocks[0].rows) >= self._max_rows
        return has_others and (is_not_needed or self._n_label_bytes > self._max_label_bytes)

    def to_bytes(self) -> bytes:
        """Return the rows as bytes, for a snapshot."""
        rows = self.rows()
        table = np.array([[*(getattr(row, name) for name in _ROW_FIELDS), *row.point] for row in rows], "<f8")
        lines = (line.tobytes() + row.expected for line, row in zip(table, rows, strict=True))
        first_bytes = _WITH_EXPECTED if rows and rows[0].expected else _WITH_SURPRISE
        return first_bytes + joined_pair(b"".join(lines), _labels_of(rows, self._categorical).to_bytes())

    def restore(self, content: bytes) -> None:
        """Add the rows of a snapshot, which may be of a version without surprise or labels."""
        table, stored = content, b""
        names: tuple[str, ...] = _FORMER_FIELDS
        for first_bytes, fields in _FIELDS.items():
            if content.startswith(first_bytes):
                table, stored = split_pair(content[len(first_bytes) :])
                names = fields
        n_expected = n_expected_values(self._n_features) if content.startswith(_WITH_EXPECTED) else 0
        lines = points_from(table, len(names) + self._n_features + n_expected)
        labels, arrivals = labels_from(stored), lines[:, names.index("time")]
        starts = [0, *(np.flatnonzero(np.diff(arrivals)) + 1).tolist(), len(lines)]
        for start, end in pairwise(starts):  # the rows of a request, which share their labels, are one block again
            if start < end:
                own_times = labels.times[start:end]
                self._append(_block_of(names, lines[start:end], self._n_features, labels, own_times))

    @property
    def last(self) -> ScoredRow | None:
        """The latest row, or None."""
        blocks = self._blocks.copy()
        return blocks[-1].rows[-1] if blocks else None

    @property
    def last_time(self) -> float | None:
        """Time of arrival of the latest row, or None."""
        blocks = self._blocks.copy()
        return blocks[-1].time if blocks else None

    def category(self, code: float) -> Category | None:
        """Return the category with a code, as posted with one of the latest rows; None if it is not known."""
        for block in reversed(self._blocks.copy()):
            if block.labels and code in (categories := labels_from(block.labels).categories):
                return categories[code]
        return None

    def rows(self, after: int = -1) -> list[HistoryRow]:
        """Return the latest rows after row `after`, oldest first."""
        blocks = [block for block in self._blocks.copy() if block.rows[-1].number > after]
        rows = [row for block in blocks for row in self._decoded(block) if row.number > after]
        return rows[-self._max_rows :]

    def consecutive_rows(self, number: int, size: int) -> list[HistoryRow]:
        """Return the `size` consecutive rows that end with row `number`, or an empty list if any of them is missing."""
        rows = [row for row in self.rows(number - size) if row.number <= number][-size:]
        return rows if [row.number for row in rows] == list(range(number - size + 1, number + 1)) else []

    def _decoded(self, block: _Block) -> list[HistoryRow]:
        points, labels = points_from(block.points, self._n_features), labels_from(block.labels)
        times, values = labels.times_of(len(points)), labels.values(points, self._categorical)
        rows = zip(times, values, points.tolist(), block.rows, strict=True)
        return [HistoryRow(row.number, block.time, time, x, point, *row[1:]) for time, x, point, row in rows]


def _block_of(
    names: tuple[str, ...], lines: Array, n_features: int, labels: Labels, own_times: list[str | None]
) -> _Block:
    """Return rows of a snapshot, which arrived at the same time, as a block."""
    first, end = len(names), len(names) + n_features
    points = np.ascontiguousarray(lines[:, first:end])
    rows = [
        _scored_row(dict(zip(names, line.tolist(), strict=False)))._replace(expected=line[end:].tobytes())
        for line in lines
    ]
    own = labels.of_rows(points, own_times)
    return _Block(float(lines[0, names.index("time")]), points.tobytes(), own.to_bytes(), rows)


def _scored_row(values: dict[str, float]) -> ScoredRow:
    """Return a row from its values in a snapshot."""
    scored = ScoredRow(int(values["number"]), values["score"], values["threshold"], bool(values["is_anomaly"]))
    if "surprise" not in values:
        return scored
    return scored._replace(surprise=values["surprise"], incident=int(values["incident"]))


def _labels_of(rows: list[HistoryRow], categorical: Sequence[int]) -> Labels:
    """Return the labels of rows."""
    pairs = ((row.point[j], row.values[j]) for row in rows for j in categorical)
    categories = {code: value for code, value in pairs if value is not None}
    has_times = any(row.own_time is not None for row in rows)
    return Labels(categories, [row.own_time for row in rows] if has_times else [])

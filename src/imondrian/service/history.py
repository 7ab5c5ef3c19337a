"""The latest rows of a detector, for the page and for explanations."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from imondrian.service.journal import MODELS, Entry, Outcome, ScoredRow, points_from
from imondrian.service.limits import Retention
from imondrian.service.row_labels import NO_LABELS, Labels, Value, labels_from, with_labels, without_labels

_ROW_FIELDS = ("number", "time", "score", "threshold", "is_anomaly")  # stored before the values of a row
_WITH_LABELS = b"labelled"  # first bytes of a stored history with labels; no row has such a number


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
        How many rows, and how many bytes of their labels, are stored.
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

    def _latest(self, block: _Block) -> _Block:
        """Return the latest rows of a block, if it has too many."""
        if len(block.rows) <= self._max_rows:
            return block
        points, labels = points_from(block.points, self._n_features)[-self._max_rows :], labels_from(block.labels)
        own = labels.of_rows(points, labels.times[-self._max_rows :])
        return _Block(block.time, points.tobytes(), own.to_bytes(), block.rows[-self._max_rows :])

    def _append(self, block: _Block) -> None:
        self._blocks.append(block)
        self._n_rows += len(block.rows)
        self._n_label_bytes += len(block.labels)
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
        table = np.array([[*(getattr(row, name) for name in _ROW_FIELDS), *row.point] for row in rows], "<f8").tobytes()
        labels = _labels_of(rows, self._categorical)
        return _WITH_LABELS + with_labels(table, labels.to_bytes()) if labels else table

    def restore(self, content: bytes) -> None:
        """Add the rows of a snapshot."""
        table, labels = content, NO_LABELS
        if content.startswith(_WITH_LABELS):
            table, stored = without_labels(content[len(_WITH_LABELS) :])
            labels = labels_from(stored)
        for i, row in enumerate(points_from(table, len(_ROW_FIELDS) + self._n_features)):
            number, time, score, threshold, is_anomaly = row[: len(_ROW_FIELDS)].tolist()
            point = row[len(_ROW_FIELDS) :]
            scored = ScoredRow(int(number), score, threshold, bool(is_anomaly))
            own = labels.of_rows(point, labels.times[i : i + 1])
            self._append(_Block(time, point.tobytes(), own.to_bytes(), [scored]))

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


def _labels_of(rows: list[HistoryRow], categorical: Sequence[int]) -> Labels:
    """Return the labels of rows."""
    pairs = ((row.point[j], row.values[j]) for row in rows for j in categorical)
    categories = {code: value for code, value in pairs if value is not None}
    has_times = any(row.own_time is not None for row in rows)
    return Labels(categories, [row.own_time for row in rows] if has_times else [])

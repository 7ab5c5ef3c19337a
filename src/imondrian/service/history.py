"""The latest rows of a detector and what was said of them, for the page."""

from collections import deque
from typing import NamedTuple

import numpy as np

from imondrian.service.doing import Outcome, Said, points_from
from imondrian.service.entries import MODELS, Entry


class Seen(NamedTuple):
    """A row, and what was said of it."""

    number: int  # in the stream, counted from 0
    time: float  # when it came, in seconds
    values: list[float]
    score: float
    threshold: float
    is_anomaly: bool


class _Block(NamedTuple):
    """The rows of an entry, as they came: only who reads them takes them apart."""

    time: float
    content: bytes
    said: list[Said]


_SAID = ("number", "time", "score", "threshold", "is_anomaly")  # before the values, as bytes


class History:
    """At least so many rows, the latest; one thread adds while others read."""

    def __init__(self, n_most: int, n_features: int) -> None:
        self._n_most, self._n_features, self._n_held = n_most, n_features, 0
        self._blocks: deque[_Block] = deque()

    def add(self, entry: Entry, outcome: Outcome) -> None:
        """Note the rows of an entry of the journal; those of another model are no longer of interest."""
        if entry.kind in MODELS:  # whose rows are others
            self._blocks.clear()
            self._n_held = 0
        if not isinstance(outcome, list):
            return
        kept = outcome[-self._n_most :]
        self._hold(_Block(entry.time, entry.content[-len(kept) * 8 * self._n_features :], kept))

    def _hold(self, block: _Block) -> None:
        self._blocks.append(block)
        self._n_held += len(block.said)
        while self._n_held - len(self._blocks[0].said) >= self._n_most:
            self._n_held -= len(self._blocks.popleft().said)

    def to_bytes(self) -> bytes:
        """Give the latest rows, to be kept with a snapshot."""
        table = [[*(getattr(row, name) for name in _SAID), *row.values] for row in self.rows()]
        return np.array(table, "<f8").tobytes()

    def restore(self, content: bytes) -> None:
        """Begin with rows that were kept."""
        for row in points_from(content, len(_SAID) + self._n_features):
            number, time, score, threshold, is_anomaly = row[: len(_SAID)].tolist()
            self._hold(
                _Block(time, row[len(_SAID) :].tobytes(), [Said(int(number), score, threshold, bool(is_anomaly))])
            )

    def rows(self, after: int = -1) -> list[Seen]:
        """Give the rows after a number, the oldest first, and of those the latest."""
        blocks = [block for block in self._blocks.copy() if block.said[-1].number > after]
        rows = [row for block in blocks for row in self._seen(block) if row.number > after]
        return rows[-self._n_most :]

    def run(self, number: int, size: int) -> list[Seen]:
        """Give so many rows one after the other, the last of them with this number; nothing if they are not there."""
        rows = [row for row in self.rows(number - size) if row.number <= number][-size:]
        return rows if [row.number for row in rows] == list(range(number - size + 1, number + 1)) else []

    def _seen(self, block: _Block) -> list[Seen]:
        points = points_from(block.content, self._n_features).tolist()
        return [Seen(said.number, block.time, x, *said[1:]) for x, said in zip(points, block.said, strict=True)]

"""The keys of a detector and their latest rows: rows since the last snapshot in memory, earlier rows in a table.

In the table, the rows of a key are one value, with a digest. After a restart, everything in memory is restored from the
table and the journal.
"""

import json
import sqlite3
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from imondrian.service.changes.journal import digest_of
from imondrian.service.changes.keyed_rows import LearnedRow
from imondrian.service.changes.row_labels import joined_pair, split_pair

# at most 500 keys, with about 8 MB of rows, so that other detectors do not wait long for the writer
KEYS_PER_TRANSACTION, _BYTES_PER_TRANSACTION = 500, 8_000_000
N_ROWS_KEPT = 64  # of each key
_HEAD = struct.Struct("<8d")
_FIELDS = ("number", "time", "score", "threshold", "is_anomaly", "surprise", "incident", "is_borrowed")


class KeySummary(NamedTuple):
    """The latest figures of a key."""

    n_rows: int
    time: float  # of arrival of the latest row, in seconds since 1970
    score: float
    surprise: float
    is_anomaly: bool

    @classmethod
    def of(cls, row: LearnedRow) -> "KeySummary":
        """Return the figures of a key whose latest row is this one."""
        return cls(row.number + 1, row.time, row.score, row.surprise, row.is_anomaly)


class RowPortion(NamedTuple):
    """The rows of some keys, to be stored in one transaction."""

    rows: list[tuple[str, list[LearnedRow]]]
    forgotten: list[str]

    def write(self, detector: int, table: "LatestRowsTable") -> None:
        """Store the rows; a key that was forgotten and has come back keeps only its new rows."""
        table.remove(detector, self.forgotten)
        table.add(detector, self.rows)


class KeyRows:
    """The keys of a detector and their latest rows; one thread changes it while others read it.

    Parameters
    ----------
    n_features : int
        Number of values in a row.
    summaries : iterable, optional
        The keys of the last snapshot, with their figures.

    Attributes
    ----------
    summaries : dict
        The latest figures of each key.
    latest : KeySummary or None
        The figures of the key that had the latest row, even if the key has been forgotten since.
    """

    def __init__(self, n_features: int, summaries: Iterable[tuple[str, KeySummary]] = ()) -> None:
        self._n_features = n_features
        self.summaries: dict[str, KeySummary] = dict(summaries)
        self.latest = max(self.summaries.values(), key=lambda summary: summary.time, default=None)
        self._recent: dict[str, deque[LearnedRow]] = {}  # rows since the last snapshot, by key
        self._forgotten: set[str] = set()  # keys forgotten since the last snapshot; their stored rows are not used

    def add(self, rows: list[LearnedRow]) -> None:
        """Add rows."""
        for row in rows:
            recent = self._recent.get(row.key)
            if recent is None:
                recent = self._recent[row.key] = deque(maxlen=N_ROWS_KEPT)
            recent.append(row)
            self.summaries[row.key] = KeySummary.of(row)
        self.latest = KeySummary.of(rows[-1])

    def forget(self, key: str) -> None:
        """Forget a key."""
        self._forgotten.add(key)
        self._recent.pop(key, None)
        self.summaries.pop(key, None)

    def rows(self, table: "LatestRowsTable", detector: int, key: str) -> list[LearnedRow]:
        """Return the latest rows of a key, oldest first; to be called in the thread of the writer."""
        recent = list(self._recent.get(key, deque[LearnedRow]()).copy())
        is_forgotten = key in self._forgotten
        return _merged([] if is_forgotten else table.rows(detector, key, self._n_features), recent)

    def portions(self) -> Iterable[RowPortion]:
        """Yield what has changed since the last snapshot, in portions for one transaction each."""
        keys, forgotten = iter(self._recent.copy()), self._forgotten.copy()
        n_bytes_per_key = N_ROWS_KEPT * (_HEAD.size + 8 * self._n_features)
        n_keys = min(KEYS_PER_TRANSACTION, max(_BYTES_PER_TRANSACTION // n_bytes_per_key, 1))
        yield RowPortion([], list(forgotten - self._recent.keys()))
        while some := list(islice(keys, n_keys)):
            yield RowPortion([(key, list(self._recent[key])) for key in some], list(forgotten & set(some)))

    def clear_saved(self) -> None:
        """Drop the rows that `portions` has yielded, once they are stored."""
        self._recent, self._forgotten = {}, set()


class LatestRowsTable:
    """The table with the latest rows of each key, as of the last snapshot; changed only inside a transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def summaries(self, detector: int) -> Iterator[tuple[str, KeySummary]]:
        """Yield the latest figures of each key, without reading its rows; damaged figures are left out."""
        sql = "SELECT key, n_rows, time, score, surprise, is_anomaly FROM latest_rows WHERE detector = ?"
        for key, *values in self._database.execute(sql, (detector,)).fetchall():
            if isinstance(key, str) and tuple(map(type, values)) == (int, float, float, float, int):
                n_rows, time, score, surprise, is_anomaly = values
                yield key, KeySummary(n_rows, time, score, surprise, bool(is_anomaly))

    def rows(self, detector: int, key: str, n_values: int) -> list[LearnedRow]:
        """Return the latest rows of a key, with `n_values` values each; no rows if they are missing or damaged."""
        content = self._content(detector, key)
        return _rows_from(key, content, n_values) if content else []

    def add(self, detector: int, rows: Iterable[tuple[str, list[LearnedRow]]]) -> None:
        """Add the next rows of keys, at least one row for each; only the latest `N_ROWS_KEPT` of a key are kept."""
        for key, later in rows:
            earlier = self._content(detector, key) if len(later) < N_ROWS_KEPT else b""
            content = _joined(earlier, later)
            values = (detector, key, *KeySummary.of(later[-1]), content, digest_of(detector, key, content))
            self._database.execute("INSERT OR REPLACE INTO latest_rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def _content(self, detector: int, key: str) -> bytes:
        """Return the stored rows of a key as bytes; no bytes if they are missing or damaged."""
        sql = "SELECT content, digest FROM latest_rows WHERE detector = ? AND key = ?"
        content, digest = self._database.execute(sql, (detector, key)).fetchone() or (b"", b"")
        is_valid = isinstance(content, bytes) and digest == digest_of(detector, key, content)
        return content if is_valid else b""

    def remove(self, detector: int, keys: Iterable[str]) -> None:
        """Delete the rows of keys."""
        sql = "DELETE FROM latest_rows WHERE detector = ? AND key = ?"
        self._database.executemany(sql, [(detector, key) for key in keys])


def _merged(earlier: list[LearnedRow], later: list[LearnedRow]) -> list[LearnedRow]:
    """Return the latest rows of a key from two lists; a row that is in both is taken from the second one."""
    first = later[0].number if later else None
    return [*(row for row in earlier if first is None or row.number < first), *later][-N_ROWS_KEPT:]


def _joined(content: bytes, later: list[LearnedRow]) -> bytes:
    """Return stored rows and later ones as bytes, like `_merged`, without decoding the stored ones."""
    lines = b"".join(map(_line, later))
    earlier, own_times = _split(content) if content else (b"", [])
    width, n_kept = len(lines) // len(later), max(N_ROWS_KEPT - len(later), 0)
    numbers = np.frombuffer(earlier, "<f8")[:: width // 8]
    end = int(np.count_nonzero(numbers < later[0].number))
    first = max(end - n_kept, 0)
    times = [*own_times[first:end], *(row.own_time for row in later)][-N_ROWS_KEPT:]
    encoded = json.dumps(times, ensure_ascii=False).encode() if any(time is not None for time in times) else b""
    return joined_pair(earlier[first * width : end * width] + lines[-N_ROWS_KEPT * width :], encoded)


def _line(row: LearnedRow) -> bytes:
    return _HEAD.pack(*(getattr(row, name) for name in _FIELDS)) + row.point


def _split(content: bytes) -> tuple[bytes, list[str | None]]:
    """Return the rows as bytes, and the times that they carried, or None for each if no row carried a time."""
    lines, encoded = split_pair(content)
    return lines, json.loads(encoded) if encoded else [None] * N_ROWS_KEPT


def _rows_from(key: str, content: bytes, n_values: int) -> list[LearnedRow]:
    lines, own_times = _split(content)
    width = _HEAD.size + 8 * n_values
    starts = range(0, len(lines), width)
    return [_row_from(key, lines[start : start + width], time) for start, time in zip(starts, own_times, strict=False)]


def _row_from(key: str, line: bytes, own_time: str | None) -> LearnedRow:
    values: dict[str, Any] = dict(zip(_FIELDS, _HEAD.unpack_from(line), strict=True))
    for name in ("number", "incident"):
        values[name] = int(values[name])
    for name in ("is_anomaly", "is_borrowed"):
        values[name] = bool(values[name])
    return LearnedRow(key=key, own_time=own_time, point=line[_HEAD.size :], **values)

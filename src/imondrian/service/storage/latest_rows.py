"""The table with the latest rows of each key, as of the last snapshot: one value per key, with a digest."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from imondrian.service.changes.journal import digest_of
from imondrian.service.changes.keyed_rows import LearnedRow
from imondrian.service.changes.row_labels import with_labels, without_labels

N_ROWS_KEPT = 64  # of each key
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


class LatestRowsTable:
    """The table of the latest rows; changed only inside a transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def summaries(self, detector: int) -> Iterator[tuple[str, KeySummary]]:
        """Yield the latest figures of each key, without reading its rows; damaged ones are left out."""
        sql = "SELECT key, n_rows, time, score, surprise, is_anomaly FROM latest_rows WHERE detector = ?"
        for key, *values in self._database.execute(sql, (detector,)).fetchall():
            if isinstance(key, str) and tuple(map(type, values)) == (int, float, float, float, int):
                n_rows, time, score, surprise, is_anomaly = values
                yield key, KeySummary(n_rows, time, score, surprise, bool(is_anomaly))

    def rows(self, detector: int, key: str) -> list[LearnedRow]:
        """Return the latest rows of a key, oldest first; none if there are none, or they are damaged."""
        sql = "SELECT content, digest FROM latest_rows WHERE detector = ? AND key = ?"
        found = self._database.execute(sql, (detector, key)).fetchone()
        if found is None or not isinstance(found[0], bytes) or found[1] != digest_of(detector, key, found[0]):
            return []
        return _rows_from(key, found[0])

    def add(self, detector: int, rows: Iterable[tuple[str, list[LearnedRow]]]) -> None:
        """Add the next rows of keys, of which there is at least one per key; only the latest are kept."""
        for key, later in rows:
            latest = merged(self.rows(detector, key) if len(later) < N_ROWS_KEPT else [], later)
            content = _as_bytes(latest)
            values = (detector, key, *KeySummary.of(latest[-1]), content, digest_of(detector, key, content))
            marks = ", ".join("?" * len(values))
            self._database.execute(f"INSERT OR REPLACE INTO latest_rows VALUES ({marks})", values)  # noqa: S608

    def remove(self, detector: int, keys: Iterable[str]) -> None:
        """Delete the rows of keys."""
        sql = "DELETE FROM latest_rows WHERE detector = ? AND key = ?"
        self._database.executemany(sql, [(detector, key) for key in keys])


def merged(earlier: list[LearnedRow], later: list[LearnedRow]) -> list[LearnedRow]:
    """Return the latest of some rows of a key; if both lists have a row, that of the second one is used."""
    first = later[0].number if later else None
    return [*(row for row in earlier if first is None or row.number < first), *later][-N_ROWS_KEPT:]


def _as_bytes(rows: list[LearnedRow]) -> bytes:
    table = np.array([[getattr(row, name) for name in _FIELDS] for row in rows], "<f8")
    lines = b"".join(line.tobytes() + row.point for line, row in zip(table, rows, strict=True))
    has_times = any(row.own_time is not None for row in rows)
    own_times = json.dumps([len(rows), [row.own_time for row in rows] if has_times else []], ensure_ascii=False)
    return with_labels(lines, own_times.encode())


def _rows_from(key: str, content: bytes) -> list[LearnedRow]:
    lines, encoded = without_labels(content)
    n_rows, own_times = json.loads(encoded)
    width = len(lines) // n_rows
    return [
        _row_from(key, lines[i * width : (i + 1) * width], own_times[i] if own_times else None) for i in range(n_rows)
    ]


def _row_from(key: str, line: bytes, own_time: str | None) -> LearnedRow:
    n_bytes = 8 * len(_FIELDS)
    values: dict[str, Any] = dict(zip(_FIELDS, np.frombuffer(line[:n_bytes], "<f8").tolist(), strict=True))
    for name in ("number", "incident"):
        values[name] = int(values[name])
    for name in ("is_anomaly", "is_borrowed"):
        values[name] = bool(values[name])
    return LearnedRow(key=key, own_time=own_time, point=line[n_bytes:], **values)

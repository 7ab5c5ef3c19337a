"""The keys of a detector in memory: the latest figures of each key, and its rows since the last snapshot.

Earlier rows are in the table of `latest_rows.py`. After a restart, all of it is restored from that table and the
journal.
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from imondrian.service.changes.keyed_rows import LearnedRow
from imondrian.service.storage.latest_rows import N_ROWS_KEPT, KeySummary, merged
from imondrian.service.storage.store import Store

KEYS_PER_TRANSACTION = 500  # a few megabytes at most, so that other detectors do not wait long for the writer


class RowPortion(NamedTuple):
    """The rows of some keys, to be stored in one transaction."""

    rows: list[tuple[str, list[LearnedRow]]]
    forgotten: list[str]

    def write(self, detector: int, store: Store) -> None:
        """Store the rows; a key that was forgotten and has come back keeps only its new rows."""
        store.latest_rows.remove(detector, self.forgotten)
        store.latest_rows.add(detector, self.rows)


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

    def rows(self, store: Store, detector: int, key: str) -> list[LearnedRow]:
        """Return the latest rows of a key, oldest first; to be called in the thread of the writer."""
        recent = list(self._recent.get(key, deque[LearnedRow]()).copy())
        is_forgotten = key in self._forgotten
        return merged([] if is_forgotten else store.latest_rows.rows(detector, key, self._n_features), recent)

    def portions(self) -> Iterable[RowPortion]:
        """Yield what has changed since the last snapshot, in portions for one transaction each."""
        keys, forgotten = iter(self._recent.copy()), self._forgotten.copy()
        yield RowPortion([], list(forgotten - self._recent.keys()))
        while some := list(islice(keys, KEYS_PER_TRANSACTION)):
            yield RowPortion([(key, list(self._recent[key])) for key in some], list(forgotten & set(some)))

    def clear_saved(self) -> None:
        """Drop the rows that `portions` has yielded, once they are stored."""
        self._recent, self._forgotten = {}, set()

"""The state of a detector (everything that changes: latest rows, counts, saved replies), and its snapshot."""

import io
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from imondrian.drift import Drift
from imondrian.model_files import EXTRA, to_bytes
from imondrian.service.configuration import new_detector
from imondrian.service.journal import (
    MODELS,
    POINTS,
    Entry,
    EntryApplier,
    Outcome,
    ScoredRow,
    current_versions,
    detector_from,
    points_from,
)
from imondrian.service.limits import Retention
from imondrian.service.replies import SavedReplies
from imondrian.service.store import Snapshot, Store, StoredDetector
from imondrian.storage import read_header
from imondrian.stream import StreamDetector


class HistoryRow(NamedTuple):
    """A row with its values and its score."""

    number: int  # in the stream, counted from 0
    time: float  # of arrival, in seconds since 1970
    values: list[float]
    score: float
    threshold: float
    is_anomaly: bool


class _Block(NamedTuple):
    """The rows of a journal entry as bytes; they are decoded only when they are read."""

    time: float
    content: bytes
    rows: list[ScoredRow]


_ROW_FIELDS = ("number", "time", "score", "threshold", "is_anomaly")  # stored before the values of a row


class History:
    """The latest rows; one thread adds rows while others read them."""

    def __init__(self, max_rows: int, n_features: int) -> None:
        self._max_rows, self._n_features, self._n_rows = max_rows, n_features, 0
        self._blocks: deque[_Block] = deque()

    def add(self, entry: Entry, outcome: Outcome) -> None:
        """Add the rows of a journal entry; an entry with a model clears the history."""
        if entry.kind in MODELS:  # the rows so far belong to the replaced detector
            self._blocks.clear()
            self._n_rows = 0
        if not isinstance(outcome, list):
            return
        latest = outcome[-self._max_rows :]
        self._append(_Block(entry.time, entry.content[-len(latest) * 8 * self._n_features :], latest))

    def _append(self, block: _Block) -> None:
        self._blocks.append(block)
        self._n_rows += len(block.rows)
        while self._n_rows - len(self._blocks[0].rows) >= self._max_rows:
            self._n_rows -= len(self._blocks.popleft().rows)

    def to_bytes(self) -> bytes:
        """Return the rows as bytes, for a snapshot."""
        table = [[*(getattr(row, name) for name in _ROW_FIELDS), *row.values] for row in self.rows()]
        return np.array(table, "<f8").tobytes()

    def restore(self, content: bytes) -> None:
        """Add the rows of a snapshot."""
        for row in points_from(content, len(_ROW_FIELDS) + self._n_features):
            number, time, score, threshold, is_anomaly = row[: len(_ROW_FIELDS)].tolist()
            scored = ScoredRow(int(number), score, threshold, bool(is_anomaly))
            self._append(_Block(time, row[len(_ROW_FIELDS) :].tobytes(), [scored]))

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
        points = points_from(block.content, self._n_features).tolist()
        return [HistoryRow(row.number, block.time, x, *row[1:]) for x, row in zip(points, block.rows, strict=True)]


class Counts(NamedTuple):
    """Points learned, and anomalies among them, since the detector was created.

    Each snapshot contains the counts; replaying the journal after it brings them up to date.
    """

    n_points: int = 0
    n_anomalies: int = 0

    @classmethod
    def from_notes(cls, notes: dict[str, Any]) -> Self:
        """Return the counts in the notes of a snapshot; zeros if it was saved by a version without counts."""
        return cls(*(int(notes.get(name, 0)) for name in cls._fields))

    def plus(self, outcomes: list[Outcome]) -> "Counts":
        """Return the counts after more outcomes."""
        learned = [outcome for outcome in outcomes if isinstance(outcome, list)]
        n_anomalies = sum(row.is_anomaly for rows in learned for row in rows)
        return Counts(self.n_points + sum(map(len, learned)), self.n_anomalies + n_anomalies)


class Summary(NamedTuple):
    """Summary figures of a detector."""

    n_seen: int
    threshold: float
    is_warm: bool
    n_bytes: int
    n_drifts: int
    drifts: tuple[Drift, ...]


def summary_of(detector: StreamDetector) -> Summary:
    """Return the summary figures of a detector."""
    return Summary(
        detector.n_seen, detector.threshold, detector.is_warm, detector.n_bytes, detector.n_drifts, detector.drifts
    )


_COUNTS, _VERSIONS = "counts", "versions"  # keys in the extra values of a snapshot's model file


class SinceSnapshot(NamedTuple):
    """Points and bytes of the entries applied since the last snapshot."""

    n_points: int = 0
    n_bytes: int = 0

    def plus(self, entries: list[Entry], n_features: int) -> "SinceSnapshot":
        """Return the totals after more entries."""
        n_values = sum(len(entry.content) for entry in entries if entry.kind == POINTS) // 8
        return SinceSnapshot(
            self.n_points + n_values // n_features, self.n_bytes + sum(len(entry.content) for entry in entries)
        )


class DetectorState(NamedTuple):
    """Everything about a detector that changes."""

    applier: EntryApplier
    entry_number: int  # of the last entry applied
    snapshot_number: int  # of the last entry in the last snapshot
    since_snapshot: SinceSnapshot
    counts: Counts
    replies: SavedReplies
    history: History

    def after(self, entries: list[Entry], outcomes: list[Outcome]) -> "DetectorState":
        """Return the state after entries were applied with these outcomes."""
        since = self.since_snapshot.plus(entries, self.applier.detector.parameters["n_features"])
        return self._replace(entry_number=entries[-1].number, since_snapshot=since, counts=self.counts.plus(outcomes))

    def saved(self) -> "DetectorState":
        """Return the state after it was saved as a snapshot."""
        return self._replace(snapshot_number=self.entry_number, since_snapshot=SinceSnapshot())


def new_state(record: StoredDetector, retention: Retention) -> DetectorState:
    """Return the state of a new detector."""
    n_features = len(record.configuration["features"])
    history = History(min(retention.history, max(retention.history_values // n_features, 1)), n_features)
    replies = SavedReplies(retention.replies, retention.reply_bytes)
    return DetectorState(
        EntryApplier(new_detector(record.configuration)), 0, 0, SinceSnapshot(), Counts(), replies, history
    )


def restored_state(state: DetectorState, snapshot: Snapshot) -> DetectorState:
    """Restore a snapshot into the state of a new detector; raise DamagedFileError if it is damaged.

    Fills the history of `state` in place, and returns the state with detector, numbers and counts replaced. Saved
    replies are read separately.
    """
    applier = EntryApplier(detector_from(snapshot.content))
    state.history.restore(snapshot.history)
    extra = read_header(io.BytesIO(snapshot.content), "A snapshot")["notes"].get(EXTRA, {})
    counts = Counts.from_notes(extra.get(_COUNTS, {}))
    return state._replace(applier=applier, entry_number=snapshot.number, snapshot_number=snapshot.number, counts=counts)


def prepare_snapshot(id_: int, state: DetectorState) -> Callable[[Store], None]:
    """Make a snapshot, and return a function that writes it together with the replies since the previous one."""
    extra: dict[str, Any] = {_COUNTS: state.counts._asdict(), _VERSIONS: current_versions()}
    snapshot = Snapshot(state.entry_number, to_bytes(state.applier.detector, extra), state.history.to_bytes())
    replies, oldest = state.replies.since(state.snapshot_number), state.replies.oldest

    def write(store: Store) -> None:
        store.add_replies(id_, replies, oldest)
        store.add_snapshot(id_, *snapshot)

    return write

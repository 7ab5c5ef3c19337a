"""The state of a detector (everything that changes: counts, latest rows, saved replies), and its snapshot."""

import io
from collections.abc import Callable
from contextlib import nullcontext
from itertools import groupby
from typing import Any, NamedTuple, Self

from imondrian.alarms.drift import Drift
from imondrian.base.defaults import SERIES
from imondrian.model_files import EXTRA, to_bytes
from imondrian.models.storage import read_header
from imondrian.service.changes.configuration import new_detector
from imondrian.service.changes.expected_rows import spread_as_json, spread_from_json
from imondrian.service.changes.journal import (
    MODELS,
    WITH_POINTS,
    Entry,
    EntryApplier,
    LockFactory,
    Outcome,
    current_versions,
    detector_from,
)
from imondrian.service.changes.replies import SavedReplies
from imondrian.service.limits import Retention
from imondrian.service.storage.history import History
from imondrian.service.storage.incident_log import Announcement, IncidentLog, PendingEvents
from imondrian.service.storage.store import Snapshot, Store, StoredDetector
from imondrian.stream.detector import StreamDetector
from imondrian.stream.series_views import TimeCounts


class Counts(NamedTuple):
    """Points learned, anomalies among them, and incidents that opened, since the detector was created.

    Each snapshot contains the counts; replaying the journal after it brings them up to date.
    """

    n_points: int = 0
    n_anomalies: int = 0
    n_incidents: int = 0

    @classmethod
    def from_notes(cls, notes: dict[str, Any]) -> Self:
        """Return the counts in the notes of a snapshot; zeros if it was saved by a version without counts."""
        return cls(*(int(notes.get(name, 0)) for name in cls._fields))

    def plus(self, outcomes: list[Outcome], n_opened: int) -> "Counts":
        """Return the counts after more outcomes and openings of incidents."""
        learned = [outcome for outcome in outcomes if isinstance(outcome, list)]
        n_anomalies = sum(row.is_anomaly for rows in learned for row in rows)
        return Counts(
            self.n_points + sum(map(len, learned)), self.n_anomalies + n_anomalies, self.n_incidents + n_opened
        )


class Summary(NamedTuple):
    """Summary figures of a detector."""

    n_seen: int
    threshold: float
    is_warm: bool
    n_bytes: int
    n_missing: int
    n_drifts: int
    drifts: tuple[Drift, ...]
    time_counts: TimeCounts | None  # None: the preset is not "series"


def summary_of(detector: StreamDetector) -> Summary:
    """Return the summary figures of a detector."""
    others = {name: getattr(detector, name) for name in ("n_seen", "is_warm", "n_bytes", "n_missing", "n_drifts")}
    time_counts = detector.time_counts if detector.preset == SERIES else None
    return Summary(**others, threshold=detector.threshold_score, drifts=detector.drifts, time_counts=time_counts)


_COUNTS, _VERSIONS, _INCIDENTS = "counts", "versions", "incidents"  # keys in the extra values of a snapshot
_SILENCE, _SPREAD = "silence", "spread"
_EVENTS_PER_TRANSACTION = 256  # a few megabytes at most, so that other detectors do not wait long for the writer


class SinceSnapshot(NamedTuple):
    """Points and bytes of the entries applied since the last snapshot, and number of entries without points."""

    n_points: int = 0
    n_bytes: int = 0
    n_others: int = 0

    def plus(self, entries: list[Entry], n_features: int) -> "SinceSnapshot":
        """Return the totals after more entries."""
        n_values = sum(len(entry.points_and_labels()[0]) for entry in entries) // 8
        return SinceSnapshot(
            self.n_points + n_values // n_features,
            self.n_bytes + sum(len(entry.content) for entry in entries),
            self.n_others + sum(entry.kind not in WITH_POINTS for entry in entries),
        )

    def is_snapshot_due(self, retention: Retention) -> bool:
        """Return True if replaying these entries would take too long, or they take too much space."""
        return (
            self.n_points >= retention.points_between_snapshots
            or self.n_bytes >= retention.bytes_between_snapshots
            or self.n_others >= retention.requests_between_snapshots
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
    incidents: IncidentLog
    pending: PendingEvents = PendingEvents()

    def apply(self, entries: list[Entry], lock: LockFactory = nullcontext) -> tuple["DetectorState", list[Outcome]]:
        """Apply entries; return the state after them, and their outcomes.

        Detector, history and incidents change in place.
        """
        state, outcomes = self, list[Outcome]()
        for has_models, group in groupby(entries, key=lambda entry: entry.kind in MODELS):
            together = list(group)
            for some in [[entry] for entry in together] if has_models else [together]:
                state, more = state._apply_together(some, lock)
                outcomes += more
        return state, outcomes

    def _apply_together(self, entries: list[Entry], lock: LockFactory) -> tuple["DetectorState", list[Outcome]]:
        """Apply entries to the same detector."""
        outcomes = self.applier.apply(entries, lock)
        counts, pending = self.counts.plus(outcomes, self.applier.events.n_opened), self.pending
        is_renumbered = self.applier.generation != self.incidents.shown.generation
        if self.applier.events.n_events or counts.n_anomalies > self.counts.n_anomalies or is_renumbered:
            pending = pending.plus(self.incidents.update(self.applier, entries, outcomes, self.history))
        self.applier.events.latest.clear()  # they reference the entries
        for entry, outcome in zip(entries, outcomes, strict=True):
            self.history.add(entry, outcome)
        since = self.since_snapshot.plus(entries, self.applier.detector.parameters["n_features"])
        return self._replace(
            entry_number=entries[-1].number, since_snapshot=since, counts=counts, pending=pending
        ), outcomes

    def next_portion(self) -> list[Announcement]:
        """Return the first pending events as they are stored; they follow the skipped ones."""
        return [self.incidents.announcement(event) for event in self.pending.latest[:_EVENTS_PER_TRANSACTION]]

    def without_portion(self) -> "DetectorState":
        """Return the state after the first pending events were stored."""
        return self._replace(pending=self.pending.after(_EVENTS_PER_TRANSACTION))

    def saved(self) -> "DetectorState":
        """Return the state after it was saved as a snapshot."""
        return self._replace(snapshot_number=self.entry_number, since_snapshot=SinceSnapshot())


def new_state(record: StoredDetector, retention: Retention) -> DetectorState:
    """Return the state of a new detector."""
    configuration, features = record.configuration, record.configuration["features"]
    detector = new_detector(configuration)
    applier = EntryApplier(detector, features, configuration["silence"])
    history = History(len(features), detector.parameters["categorical"], retention)
    replies = SavedReplies(retention.replies, retention.reply_bytes)
    incidents = IncidentLog(record.id, record.name, features)
    return DetectorState(applier, 0, 0, SinceSnapshot(), Counts(), replies, history, incidents)


def restored_state(state: DetectorState, snapshot: Snapshot) -> DetectorState:
    """Restore a snapshot into the state of a new detector; raise DamagedFileError if it is damaged.

    Fills the history of `state` in place, and returns the state with detector, numbers and counts replaced. Saved
    replies are read separately.
    """
    detector = detector_from(snapshot.content)
    state.history.restore(snapshot.history)
    extra = read_header(io.BytesIO(snapshot.content), "A snapshot")["notes"].get(EXTRA, {})
    counts = Counts.from_notes(extra.get(_COUNTS, {}))
    state.incidents.restore(extra.get(_INCIDENTS, {}), detector)
    generation = state.incidents.shown.generation
    spread = spread_from_json(extra.get(_SPREAD))
    applier = EntryApplier(detector, state.applier.features, extra.get(_SILENCE), generation, spread)
    return state._replace(applier=applier, entry_number=snapshot.number, snapshot_number=snapshot.number, counts=counts)


def prepare_snapshot(id_: int, state: DetectorState) -> Callable[[Store], None]:
    """Make a snapshot, and return a function that writes it together with the replies since the previous one.

    All pending events must be stored before: a replay from the snapshot does not repeat them.
    """
    extra: dict[str, Any] = {
        _COUNTS: state.counts._asdict(),
        _VERSIONS: current_versions(),
        _INCIDENTS: state.incidents.state(),
        _SILENCE: state.applier.silence,
        _SPREAD: spread_as_json(state.applier.spread),
    }
    snapshot = Snapshot(state.entry_number, to_bytes(state.applier.detector, extra), state.history.to_bytes())
    replies, oldest = state.replies.since(state.snapshot_number), state.replies.oldest

    def write(store: Store) -> None:
        store.add_replies(id_, replies, oldest)
        store.add_snapshot(id_, *snapshot)

    return write

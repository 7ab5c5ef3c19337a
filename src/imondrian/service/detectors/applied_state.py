"""The interface through which a worker uses the state of its detector: a single detector, or one detector per key."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, Self

from imondrian.alarms.drift import Drift
from imondrian.service.changes.journal import (
    WITH_POINTS,
    Entry,
    EventMark,
    KeyedOutcome,
    LockFactory,
    Outcome,
    StoreWait,
    no_wait,
)
from imondrian.service.changes.replies import SavedReplies
from imondrian.service.limits import Retention
from imondrian.service.storage.incident_log import Announcement, ListedIncident, PendingEvent, PendingEvents
from imondrian.service.storage.store import Store
from imondrian.stream.series_views import TimeCounts

AnyOutcome = Outcome | KeyedOutcome
Write = Callable[[Callable[[Store], Any]], Any]  # calls a function with the store, in a transaction
_EVENTS_PER_TRANSACTION = 256  # a few megabytes at most, so that other detectors do not wait long for the writer


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

    def plus(self, outcomes: Iterable[AnyOutcome], n_opened: int) -> "Counts":
        """Return the counts after more outcomes and openings of incidents."""
        learned = [outcome for outcome in outcomes if isinstance(outcome, list)]
        n_anomalies = sum(row.is_anomaly for rows in learned for row in rows)
        return Counts(
            self.n_points + sum(map(len, learned)), self.n_anomalies + n_anomalies, self.n_incidents + n_opened
        )


class Summary(NamedTuple):
    """Summary figures of a detector."""

    n_seen: int
    threshold: float  # NaN with a key: each key has its own
    is_warm: bool | None  # None with a key
    n_bytes: int
    n_missing: int
    n_drifts: int
    drifts: tuple[Drift, ...]
    time_counts: TimeCounts | None  # None: the preset is not "series"
    copy_bytes: int  # memory of a private copy for a read
    n_keys: int | None = None  # None without a key


class SinceSnapshot(NamedTuple):
    """What was applied since the last snapshot."""

    n_points: int = 0  # learned
    n_bytes: int = 0  # of entries
    n_others: int = 0  # entries that learn no points
    seconds: float = 0.0  # that it took to apply the entries

    def plus(self, entries: list[Entry], n_features: int) -> "SinceSnapshot":
        """Return the totals after more entries."""
        n_values = sum(len(entry.points_and_labels()[0]) for entry in entries) // 8
        return SinceSnapshot(
            self.n_points + n_values // n_features,
            self.n_bytes + sum(len(entry.content) for entry in entries),
            self.n_others + sum(entry.kind not in WITH_POINTS for entry in entries),
            self.seconds,
        )

    def is_snapshot_due(self, retention: Retention) -> bool:
        """Return True if replaying these entries would take too long, or they take too much space."""
        return (
            self.n_points >= retention.points_between_snapshots
            or self.n_bytes >= retention.bytes_between_snapshots
            or self.n_others >= retention.requests_between_snapshots
            or self.seconds >= retention.seconds_between_snapshots
        )


class Incidents(Protocol):
    """The incidents of a detector, for responses."""

    @property
    def n_open(self) -> int:
        """Number of open incidents."""

    def listed(self) -> list[ListedIncident]:
        """Return the open incidents and the latest closed ones."""

    def current(self, stored: dict[str, Any]) -> dict[str, Any]:
        """Return the current description of an open incident; if it is not open any more, its stored description."""

    def announcement(self, event: PendingEvent) -> Announcement:
        """Return what is announced about an event."""


class Applier(Protocol):
    """An object that applies journal entries: an `EntryApplier` or a `KeyedApplier`."""

    generation: int
    stored_events: EventMark

    @property
    def settings(self) -> dict[str, Any]:
        """The current values of the settings that can be changed."""


class View(Protocol):
    """What other threads read of a detector."""

    @property
    def incidents(self) -> Incidents:
        """The incidents."""

    @property
    def last_arrival(self) -> float | None:
        """When the latest row arrived, in seconds since 1970; None if that is not known."""

    @property
    def latest_surprise(self) -> float | None:
        """The surprise of the latest row; None if that is not known."""

    def write_lock(self) -> AbstractContextManager[None]:
        """Return the lock that is held for one change."""


@dataclass(frozen=True, kw_only=True)
class AppliedState(ABC):
    """Everything about a detector that changes, as of the last journal entry applied.

    Some parts of a state change in place, and are shared by all states of a detector.
    """

    id: int
    applier: Applier
    incidents: Incidents
    replies: SavedReplies
    entry_number: int = 0  # of the last entry applied
    snapshot_number: int = 0  # of the last entry in the last snapshot
    since_snapshot: SinceSnapshot = field(default_factory=SinceSnapshot)
    counts: Counts = field(default_factory=Counts)
    pending: PendingEvents = field(default_factory=PendingEvents)
    backlog: tuple[Entry, ...] = ()  # entries that could not be replayed yet, because the disk is full

    @abstractmethod
    def apply(
        self, entries: list[Entry], lock: LockFactory = nullcontext, wait: StoreWait = no_wait
    ) -> tuple[Self, list[Any]]:
        """Apply entries; return the state after them, and their outcomes.

        If the store of the keys cannot be written, `wait` is called; when `wait` returns, the write is tried again.
        """

    def disk_bytes(self, _content: bytes, _n_points: int) -> int:
        """Return how much disk space an entry with points needs at most, or 0 if the space need not be checked."""
        return 0

    def moved_bytes(self, _keys: frozenset[str], _n_points: int) -> int:
        """Return how many bytes of keys may move between memory and disk while points are learned."""
        return 0

    def has_disk_space(self, _n_bytes: int) -> bool:
        """Return True if the disk has this much free space."""
        return True

    @abstractmethod
    def summary(self) -> Summary:
        """Return the summary figures."""

    @abstractmethod
    def view(self, copy_max_age: float) -> View:
        """Return what other threads read; a copy for reads is at most `copy_max_age` seconds old."""

    @abstractmethod
    def save_snapshot(self, write: Write) -> None:
        """Save a snapshot, and the replies since the previous one.

        All pending events must be stored first: a replay from the snapshot does not repeat them.
        """

    @abstractmethod
    def close(self) -> None:
        """Close files; no entry can be applied after that."""

    @abstractmethod
    def delete_files(self) -> None:
        """Delete the files of a closed state, after the detector was removed."""

    def next_portion(self) -> list[Announcement]:
        """Return the first pending events in the form in which they are stored.

        Events that are only counted, because there were too many (`PendingEvents.n_skipped`), are not among them.
        """
        return [self.incidents.announcement(event) for event in self.pending.latest[:_EVENTS_PER_TRANSACTION]]

    def without_portion(self) -> Self:
        """Return the state after the first pending events were stored."""
        return replace(self, pending=self.pending.after(_EVENTS_PER_TRANSACTION))

    def timed(self, seconds: float) -> Self:
        """Return the state with the time that it took to apply the last entries."""
        since = self.since_snapshot
        return replace(self, since_snapshot=since._replace(seconds=since.seconds + seconds))

    def saved(self) -> Self:
        """Return the state after it was saved as a snapshot."""
        return replace(self, snapshot_number=self.entry_number, since_snapshot=SinceSnapshot())

    def not_saved(self) -> Self:
        """Return the state after a snapshot failed: the next one is due after as many points or requests as usual."""
        return replace(self, since_snapshot=SinceSnapshot())

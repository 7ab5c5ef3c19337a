"""The state of a single detector, which has no key, and its snapshot.

The state is everything that changes: the detector, counts, latest rows, incidents and saved replies.
"""

import io
import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

from imondrian.base.defaults import SERIES
from imondrian.model_files import EXTRA, to_bytes
from imondrian.models.storage import read_header
from imondrian.service.changes.configuration import MemorySettings, copy_bytes_of, new_detector
from imondrian.service.changes.expected_rows import spread_as_json, spread_from_json
from imondrian.service.changes.journal import (
    MODELS,
    Entry,
    EntryApplier,
    LockFactory,
    Outcome,
    StoreWait,
    current_versions,
    detector_from,
    no_wait,
)
from imondrian.service.changes.replies import SavedReplies
from imondrian.service.detectors.applied_state import AppliedState, Counts, Summary, Write
from imondrian.service.detectors.read_copy import ReadCopy
from imondrian.service.limits import Retention
from imondrian.service.storage.history import History
from imondrian.service.storage.incident_log import IncidentLog
from imondrian.service.storage.store import Snapshot, Store, StoredDetector
from imondrian.stream.detector import StreamDetector

_COUNTS, _VERSIONS, _INCIDENTS = "counts", "versions", "incidents"  # keys in the extra values of a snapshot
_SILENCE, _SPREAD = "silence", "spread"


class SingleView(NamedTuple):
    """What other threads read of a single detector."""

    history: History
    incidents: IncidentLog
    read_copy: ReadCopy

    @property
    def last_arrival(self) -> float | None:
        """When the latest row arrived."""
        return self.history.last_time

    @property
    def latest_surprise(self) -> float | None:
        """The surprise of the latest row."""
        last = self.history.last
        return None if last is None or math.isnan(last.surprise) else last.surprise

    def write_lock(self) -> AbstractContextManager[None]:
        """Return the lock that is held for one change."""
        return self.read_copy.write_lock()


@dataclass(frozen=True, kw_only=True)
class DetectorState(AppliedState):
    """Everything about a single detector that changes."""

    applier: EntryApplier
    incidents: IncidentLog
    history: History

    def apply(
        self, entries: list[Entry], lock: LockFactory = nullcontext, _wait: StoreWait = no_wait
    ) -> tuple["DetectorState", list[Outcome]]:
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
        """Apply entries that do not replace the detector, or a single entry that does."""
        outcomes = self.applier.apply(entries, lock)
        counts, pending = self.counts.plus(outcomes, self.applier.events.n_opened), self.pending
        is_renumbered = self.applier.generation != self.incidents.shown.generation
        if self.applier.events.n_events or counts.n_anomalies > self.counts.n_anomalies or is_renumbered:
            pending = pending.plus(self.incidents.update(self.applier, entries, outcomes, self.history))
        self.applier.events.latest.clear()  # they reference the entries
        for entry, outcome in zip(entries, outcomes, strict=True):
            self.history.add(entry, outcome)
        since = self.since_snapshot.plus(entries, self.applier.detector.parameters["n_features"])
        following = replace(self, entry_number=entries[-1].number, since_snapshot=since, counts=counts, pending=pending)
        return following, outcomes

    def summary(self) -> Summary:
        """Return the summary figures."""
        return summary_of(self.applier.detector)

    def view(self, copy_max_age: float) -> SingleView:
        """Return what other threads read."""
        return SingleView(self.history, self.incidents, ReadCopy(self.applier, copy_max_age))

    def save_snapshot(self, write: Write) -> None:
        """Save a snapshot, and the replies since the previous one, in one transaction."""
        extra: dict[str, Any] = {
            _COUNTS: self.counts._asdict(),
            _VERSIONS: current_versions(),
            _INCIDENTS: self.incidents.state(),
            _SILENCE: self.applier.silence,
            _SPREAD: spread_as_json(self.applier.spread),
        }
        snapshot = Snapshot(self.entry_number, to_bytes(self.applier.detector, extra), self.history.to_bytes())
        replies, oldest = self.replies.since(self.snapshot_number), self.replies.oldest

        def add(store: Store) -> None:
            store.add_replies(self.id, replies, oldest)
            store.add_snapshot(self.id, *snapshot)

        write(add)

    def close(self) -> None:
        """Do nothing: everything is in the database."""

    def delete_files(self) -> None:
        """Do nothing: there are no files."""


def summary_of(detector: StreamDetector) -> Summary:
    """Return the summary figures of a detector."""
    others = {name: getattr(detector, name) for name in ("n_seen", "is_warm", "n_missing", "n_drifts", "drifts")}
    parameters = detector.parameters
    return Summary(
        **others,
        threshold=detector.threshold_score,
        n_bytes=detector.n_bytes,
        time_counts=detector.time_counts if detector.preset == SERIES else None,
        copy_bytes=copy_bytes_of(MemorySettings.of(parameters["n_features"], parameters)),
    )


def new_state(record: StoredDetector, retention: Retention, replies: SavedReplies) -> DetectorState:
    """Return the state of a new detector."""
    configuration, features = record.configuration, record.configuration["features"]
    detector = new_detector(configuration)
    applier = EntryApplier(detector, features, configuration["silence"])
    history = History(len(features), detector.parameters["categorical"], retention)
    incidents = IncidentLog(record.id, record.name, features)
    return DetectorState(id=record.id, applier=applier, replies=replies, history=history, incidents=incidents)


def restored_state(state: DetectorState, snapshot: Snapshot) -> DetectorState:
    """Restore a snapshot into the state of a new detector; raise DamagedFileError if it is damaged.

    The history and the incidents of `state` are filled in place; the returned state has the detector, the entry numbers
    and the counts of the snapshot. Saved replies are read separately.
    """
    detector = detector_from(snapshot.content)
    state.history.restore(snapshot.history)
    extra = read_header(io.BytesIO(snapshot.content), "A snapshot")["notes"].get(EXTRA, {})
    counts = Counts.from_notes(extra.get(_COUNTS, {}))
    state.incidents.restore(extra.get(_INCIDENTS, {}), detector)
    generation = state.incidents.shown.generation
    spread = spread_from_json(extra.get(_SPREAD))
    applier = EntryApplier(detector, state.applier.features, extra.get(_SILENCE), generation, spread)
    number = snapshot.number
    return replace(state, applier=applier, entry_number=number, snapshot_number=number, counts=counts)

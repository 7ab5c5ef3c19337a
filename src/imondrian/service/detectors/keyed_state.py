"""The state of a detector with a key (a fleet, its incidents and latest rows), and its incremental snapshot.

A snapshot is saved in three steps. First, the latest rows, the incidents of keys and the replies are written to the
database. Then the changed keys are written to the file of the fleet, with the number of the last journal entry. At the
end, the incidents of the previous snapshot and the journal entries up to that number are deleted. After a crash between
two steps, the number in the file of the fleet shows which incidents are valid and which entries must be replayed, and
the journal still has all of them.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import NamedTuple

from imondrian.base.errors import DamagedFileError, InvalidInputError
from imondrian.fleet.fleet import Fleet
from imondrian.fleet.key_store import stored_bytes
from imondrian.service.changes.journal import (
    CUT,
    FORGET_KEY,
    SETTINGS,
    WITH_POINTS,
    AppliedEvents,
    Entry,
    KeyedOutcome,
    LockFactory,
    StoreWait,
    current_versions,
    no_wait,
)
from imondrian.service.changes.keyed_applier import KeyedApplier, KeyedEvent
from imondrian.service.changes.keyed_configuration import keyed_bytes, new_fleet
from imondrian.service.changes.keyed_rows import LearnedRow, split_content
from imondrian.service.changes.replies import SavedReplies
from imondrian.service.detectors.applied_state import AppliedState, Counts, Summary, Write
from imondrian.service.detectors.key_files import KeyFile, KeyFiles
from imondrian.service.storage.incident_log import PendingEvent, PendingEvents
from imondrian.service.storage.key_rows import KeyRows, KeySummary, RowPortion
from imondrian.service.storage.keyed_incident_log import KeyedIncidentLog, StoredContent
from imondrian.service.storage.store import Store, StoredDetector

_NUMBER, _COUNTS, _VERSIONS = "number", "counts", "versions"  # in the extra values of the fleet
_INCIDENTS, _SILENCE, _GENERATION, _LATEST = "incidents", "silence", "generation", "latest"
_MARGIN_BYTES = 2**18  # for the pages of SQLite besides the content of an entry


class KeyedView(NamedTuple):
    """What other threads read of a detector with a key."""

    fleet: Fleet
    rows: KeyRows
    incidents: KeyedIncidentLog
    file: KeyFile

    @property
    def last_arrival(self) -> float | None:
        """When the latest row arrived."""
        return None if self.rows.latest is None else self.rows.latest.time

    @property
    def latest_surprise(self) -> float | None:
        """The surprise of the latest row."""
        return None if self.rows.latest is None else self.rows.latest.surprise

    def write_lock(self) -> AbstractContextManager[None]:
        """Return a lock that does nothing: the fleet has its own."""
        return nullcontext()


@dataclass(frozen=True, kw_only=True)
class KeyedState(AppliedState):
    """Everything about a detector with a key that changes."""

    applier: KeyedApplier
    incidents: KeyedIncidentLog
    rows: KeyRows
    max_bytes: int
    file: KeyFile
    files: KeyFiles

    def disk_bytes(self, content: bytes, n_points: int) -> int:
        """Return how much disk space an entry with points needs at most, for the journal and keys that leave memory.

        Return 0 if no key leaves memory, or if the disk certainly has enough space.
        """
        fleet = self.applier.fleet
        if len(self.rows.summaries) + n_points <= self.max_bytes // fleet.bytes_per_key:
            return 0  # all keys fit into memory
        if self.has_disk_space(2 * n_points * stored_bytes(fleet.bytes_per_key)):
            return 0  # there is space for all keys that can leave memory
        n_bytes = fleet.spill_bytes(json.loads(split_content(content)[1]))
        return n_bytes and n_bytes + 2 * len(content) + _MARGIN_BYTES

    def moved_bytes(self, keys: frozenset[str], n_points: int) -> int:
        """Return how many bytes of keys may move between memory and disk while points are learned.

        If not all keys of the points fit into memory, each point may move a key.
        """
        n_bytes = self.applier.fleet.bytes_per_key
        return n_points * n_bytes if len(keys) * n_bytes > self.max_bytes else 0

    def has_disk_space(self, n_bytes: int) -> bool:
        """Return True if the disk has this much free space."""
        return n_bytes == 0 or shutil.disk_usage(self.files.path(self.id).parent).free >= n_bytes

    def apply(
        self, entries: list[Entry], lock: LockFactory = nullcontext, wait: StoreWait = no_wait
    ) -> tuple["KeyedState", list[KeyedOutcome]]:
        """Apply entries; return the state after them, and their outcomes.

        Fleet, rows and incidents change in place.
        """
        outcomes, changed = list[KeyedOutcome](), list[PendingEvent]()
        events = AppliedEvents(self.applier.stored_events)

        def announce(entry: Entry, event: PendingEvent) -> None:
            position, is_new = events.count(entry, is_opening=event.is_opening)
            if is_new:
                changed.append(event._replace(position=position))

        for has_points, group in groupby(entries, key=lambda entry: entry.kind in WITH_POINTS):
            if has_points:
                outcomes += self._learn(list(group), lock, wait, announce)
                continue
            for entry in group:
                with lock():
                    outcomes.append(self._apply_one(entry, announce))
        following = replace(
            self,
            entry_number=entries[-1].number,
            since_snapshot=self.since_snapshot.plus(entries, len(self.applier.features)),
            counts=self.counts.plus(outcomes, events.n_opened),
            pending=self.pending.plus(PendingEvents(0, tuple(changed))),
        )
        return following, outcomes

    def _learn(
        self,
        entries: list[Entry],
        lock: LockFactory,
        wait: StoreWait,
        announce: Callable[[Entry, PendingEvent], None],
    ) -> list[list[LearnedRow]]:
        """Score and learn the points of entries, and record their rows and incidents."""
        outcomes, events, alarms = self.applier.learn(entries, lock, wait)
        by_row: dict[int, list[KeyedEvent]] = {}
        for event in events:
            by_row.setdefault(id(event.row), []).append(event)
        for rows in outcomes:
            for row in rows:
                if row.is_anomaly:
                    self.incidents.add_alarm(row)
                for event in by_row.get(id(row), ()):
                    announce(event.entry, self.incidents.record(event))
            self.rows.add(rows)
        self.incidents.update(alarms)
        return outcomes

    def _apply_one(self, entry: Entry, announce: Callable[[Entry, PendingEvent], None]) -> KeyedOutcome:
        if entry.kind == SETTINGS:
            return self.applier.change_settings(entry)
        if entry.kind == FORGET_KEY:
            return self._forget(entry, announce)
        if entry.kind != CUT:
            raise NotImplementedError(f"Unknown kind of journal entry: {entry.kind!r}.")
        self.applier.generation = int(entry.content)
        for event in self.incidents.renumber(self.applier.generation, entry):
            announce(entry, event)
        return self.applier.generation

    def _forget(self, entry: Entry, announce: Callable[[Entry, PendingEvent], None]) -> int | InvalidInputError:
        """Forget a key; return how many rows it had, or the error if there is no such key."""
        key = json.loads(entry.content)
        outcome = self.applier.forget(key)
        if isinstance(outcome, InvalidInputError):
            return outcome
        self.rows.forget(key)
        end = self.incidents.forget(key, entry)
        if end is not None:
            announce(entry, end)
        return outcome

    def summary(self) -> Summary:
        """Return the summary figures."""
        fleet, n_keys = self.applier.fleet, len(self.rows.summaries)
        return Summary(
            n_seen=fleet.n_rows,
            threshold=math.nan,
            is_warm=None,
            n_bytes=keyed_bytes(self.max_bytes, n_keys),
            n_missing=0,
            n_drifts=0,
            drifts=(),
            time_counts=None,
            copy_bytes=fleet.bytes_per_key,
            n_keys=n_keys,
        )

    def view(self, _copy_max_age: float) -> KeyedView:
        """Return what other threads read; the fleet can be read while it changes."""
        return KeyedView(self.applier.fleet, self.rows, self.incidents, self.file)

    def save_snapshot(self, write: Write) -> None:
        """Save what has changed since the last snapshot."""
        for portion in self.rows.portions():
            write(partial(self._add_rows, portion))
        self._save_incidents(write)
        replies, oldest = self.replies.since(self.snapshot_number), self.replies.oldest
        write(lambda store: store.add_replies(self.id, replies, oldest))
        self._save_fleet()
        self._remove_former_incidents(write)
        write(lambda store: store.remove_entries(self.id, self.entry_number))
        self.rows.clear_saved()
        self.incidents.clear_saved()

    def _add_rows(self, portion: RowPortion, store: Store) -> None:
        portion.write(self.id, store.latest_rows)

    def _save_incidents(self, write: Write) -> None:
        for keys in self.incidents.changed_keys():
            contents = [(key, self.incidents.content_of(key)) for key in keys]
            write(partial(self._add_incidents, contents))

    def _add_incidents(self, contents: list[tuple[str, bytes]], store: Store) -> None:
        store.key_incidents.add(self.id, self.entry_number, contents)

    def _remove_former_incidents(self, write: Write) -> None:
        for keys in self.incidents.changed_keys():
            write(partial(self._remove_other_incidents, keys))

    def _remove_other_incidents(self, keys: list[str], store: Store) -> None:
        store.key_incidents.remove_others(self.id, self.entry_number, keys)

    def _save_fleet(self) -> None:
        fleet = self.applier.fleet
        fleet.extra = {
            _NUMBER: self.entry_number,
            _COUNTS: self.counts._asdict(),
            _VERSIONS: current_versions(),
            _INCIDENTS: self.incidents.state(),
            _SILENCE: self.applier.silence,
            _GENERATION: self.applier.generation,
            _LATEST: self.rows.latest,
        }
        with self.files.lock:
            fleet.save()

    def close(self) -> None:
        """Close the file of the fleet."""
        self.applier.fleet.close()
        self.files.close(self.file)

    def delete_files(self) -> None:
        """Delete the file of the fleet, which is closed."""
        self.files.remove(self.id)


def new_keyed_state(record: StoredDetector, files: KeyFiles, replies: SavedReplies) -> KeyedState:
    """Create the file of a new detector, and return its state."""
    files.create(record.id, new_fleet(record.configuration | {"max_bytes": None}))
    return stored_keyed_state(record, files, replies, KeyRows(len(record.configuration["features"])))


def stored_keyed_state(
    record: StoredDetector,
    files: KeyFiles,
    replies: SavedReplies,
    rows: KeyRows,
    incidents: Iterable[StoredContent] = (),
) -> KeyedState:
    """Return the state of the last snapshot of a detector, given its rows and incidents in the database.

    Keys are read when they are needed.

    Raises
    ------
    DamagedFileError, StoreError
        If the file of the fleet is damaged or cannot be opened.
    """
    file = KeyFile(files.path(record.id))
    try:
        fleet = files.open_fleet(record.id, record.configuration["max_bytes"])
    except BaseException:
        file.close()
        raise
    try:
        return _restored(record, _OpenFleet(fleet, file, files), replies, rows, incidents)
    except (ValueError, TypeError, KeyError) as error:
        fleet.close()
        file.close()
        raise DamagedFileError(f"{files.path(record.id)}: the snapshot is damaged: {str(error)[:300]}") from None


class _OpenFleet(NamedTuple):
    """A fleet and its file."""

    fleet: Fleet
    file: KeyFile
    files: KeyFiles


def _restored(
    record: StoredDetector,
    opened: _OpenFleet,
    replies: SavedReplies,
    rows: KeyRows,
    stored_incidents: Iterable[StoredContent],
) -> KeyedState:
    fleet, features = opened.fleet, record.configuration["features"]
    extra, incidents = fleet.extra, KeyedIncidentLog(record.id, record.name, features)
    if fleet.parameters["n_features"] != len(features):
        raise ValueError(f"its rows have {fleet.parameters['n_features']} values, not {len(features)}.")
    number, silence = int(extra.get(_NUMBER, 0)), extra.get(_SILENCE, record.configuration["silence"])
    incidents.restore(extra[_INCIDENTS] if extra else {}, number, stored_incidents)
    if extra.get(_LATEST) is not None:  # the times in the table are not enough: all rows of a request have the same one
        rows.latest = KeySummary(*extra[_LATEST])
    return KeyedState(
        id=record.id,
        applier=KeyedApplier(fleet, features, silence, int(extra.get(_GENERATION, 0))),
        incidents=incidents,
        replies=replies,
        rows=rows,
        max_bytes=record.configuration["max_bytes"],
        file=opened.file,
        files=opened.files,
        entry_number=number,
        snapshot_number=number,
        counts=Counts.from_notes(extra.get(_COUNTS, {})),
    )

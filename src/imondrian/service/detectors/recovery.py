"""Recovery of detectors at the start: load the last valid snapshot, and replay the journal after it."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from imondrian.base.errors import ImondrianError, InvalidInputError, StoreError
from imondrian.service.changes.configuration import checked_size, is_former, is_keyed, stored_configuration
from imondrian.service.changes.journal import CUT, MODELS, Entry, EventMark, difference
from imondrian.service.changes.replies import ReplyMemory, SavedReplies, reply_to, saved_reply_to
from imondrian.service.detectors.applied_state import AppliedState
from imondrian.service.detectors.key_files import KeyFiles, check_number_of_keyed
from imondrian.service.detectors.keyed_state import KeyedState, new_keyed_state, stored_keyed_state
from imondrian.service.detectors.state import DetectorState, new_state, restored_state
from imondrian.service.detectors.uploads import size_in_model
from imondrian.service.errors import StorageError
from imondrian.service.limits import Limits, Retention
from imondrian.service.storage.key_rows import KeyRows
from imondrian.service.storage.store import Store, StoredDetector

_LOG = logging.getLogger("imondrian.service")
_ENTRIES_PER_BATCH = 256
_BYTES_PER_BATCH = 2**22


class Folder(NamedTuple):
    """Where detectors are stored, with which limits, and the memory for their replies."""

    store: Store
    files: KeyFiles
    limits: Limits
    retention: Retention
    reply_memory: ReplyMemory

    def new_replies(self, detector: int) -> SavedReplies:
        """Return an empty store of replies for a detector."""
        return self.reply_memory.new_replies(detector, self.retention.replies, self.retention.reply_bytes)


def recover(folder: Folder, id_: int, n_keyed: int) -> tuple[StoredDetector, AppliedState, list[str]]:
    """Recover a detector; if that is not possible, raise an error and change nothing.

    Parameters
    ----------
    folder : Folder
    id_ : int
        The id of the detector.
    n_keyed : int
        How many detectors with a key are open already.

    Returns
    -------
    record : StoredDetector
        The row of the detector, with a checked configuration.
    state : AppliedState
        The state of the detector after the last entry of its journal.
    problems : list of str
        What was damaged, and which scores may differ.
    """
    problems: list[str] = []
    record = _with_checked_configuration(folder.store.detector(id_), folder.limits)
    if is_keyed(record.configuration):
        check_number_of_keyed(n_keyed, folder.limits)
    state = _start_state(folder, record, problems)
    try:
        state = _replayed(folder, record, state, problems)
    except StoreError as error:
        state.close()
        state = _with_backlog(folder, record, error)
    except BaseException:
        state.close()
        raise
    for problem in problems:
        _LOG.error("%s", problem)
    return record, state, problems


def _replayed(folder: Folder, record: StoredDetector, state: AppliedState, problems: list[str]) -> AppliedState:
    """Return the state after the last entry of the journal."""
    store = folder.store
    entries = store.entries_after(record.id, state.entry_number)
    _check_models(entries, folder.limits)
    state, error = replay(state, entries)
    if error is not None:
        state.close()
        state, error = _replay_before_failure(lambda: _start_state(folder, record, []), entries)
        problems.append(f"Entry {state.entry_number + 1} of the journal of {record.name!r} cannot be replayed: {error}")
    state.applier.stored_events = EventMark()  # everything that follows is new
    state, n_lost = _cut(store, record, state)
    if n_lost:
        problems.append(f"The journal of {record.name!r} is damaged: its last {n_lost} entries were set aside.")
    return _save_under_current_versions(store, record, state, problems)


def _with_backlog(folder: Folder, record: StoredDetector, error: StoreError) -> AppliedState:
    """Return the state of the last snapshot; the entries after it are its backlog, which the worker applies later.

    This is done only if keys could not be moved to the disk. After another error, or if an entry is damaged, the error
    is raised again.
    """
    state = _start_state(folder, record, [])
    entries = folder.store.entries_after(record.id, state.entry_number)
    if error.results is None or folder.store.last_number(record.id) != entries[-1].number:
        state.close()
        raise error
    return replace(state, backlog=tuple(entries))


def replay(
    state: AppliedState, entries: list[Entry], batch_size: int = _ENTRIES_PER_BATCH
) -> tuple[AppliedState, InvalidInputError | None]:
    """Apply entries in batches; if an entry is invalid, stop, and return the state before its batch, and the error.

    Only an InvalidInputError means that an entry is invalid. All other errors propagate: they may have another cause,
    such as too little memory, a full disk or a bug, and all entries may be valid.
    """
    for batch in _batches(entries, batch_size):
        try:
            following, outcomes = state.apply(batch)
        except InvalidInputError as error:
            return state, error
        state.replies.add(
            saved_reply_to(entry, entry.request, reply_to(entry.kind, outcome))
            for entry, outcome in zip(batch, outcomes, strict=True)
            if entry.request is not None
        )
        state.replies.make_room()
        state = following
    return state, None


def _batches(entries: list[Entry], batch_size: int) -> Iterator[list[Entry]]:
    """Divide entries into batches that are applied together; many large entries at once would need much memory."""
    batch: list[Entry] = []
    for entry in entries:
        is_full = len(batch) == batch_size or sum(len(each.content) for each in batch) > _BYTES_PER_BATCH
        if batch and is_full:
            yield batch
            batch = []
        batch.append(entry)
    if batch:
        yield batch


def _with_checked_configuration(record: StoredDetector, limits: Limits) -> StoredDetector:
    """Return the row of a detector with a checked configuration."""
    configuration = stored_configuration(record.configuration, limits)
    return record._replace(configuration=configuration, is_former=is_former(record.configuration))


def _cut(store: Store, record: StoredDetector, state: AppliedState) -> tuple[AppliedState, int]:
    """Discard everything after the last entry that was replayed; return the state, and how many entries were lost.

    If later entries are known to have existed, their incidents may have been announced. An entry that starts a new
    generation of ids is then added and applied, so that the ids of those incidents are not used again.
    """
    number, last_number = state.entry_number, store.last_number(record.id)
    if last_number <= number:
        return state, store.cut(record.id, state.snapshot_number, number)
    generation = max(state.applier.generation + last_number, store.events.last_generation(record.id)) + 1
    entry = Entry(number + 1, CUT, str(generation).encode(), None, time.time())
    n_lost = store.cut(record.id, state.snapshot_number, number, entry)
    return state.apply([entry])[0], n_lost


def _start_state(folder: Folder, record: StoredDetector, problems: list[str]) -> AppliedState:
    """Return the state of the last valid snapshot, with the saved replies up to that snapshot.

    A replay from this snapshot leaves out events that are stored already, so that none is announced twice.
    """
    store = folder.store
    last_snapshot = _last_keyed_snapshot if is_keyed(record.configuration) else _last_snapshot
    state: AppliedState = last_snapshot(folder, record, problems)
    state.applier.stored_events = store.events.announced(record.id)
    replies, n_damaged = store.replies(record.id, state.entry_number)
    state.replies.add(replies)
    state.replies.make_room()
    if n_damaged:
        problems.append(
            f"{n_damaged} saved replies of {record.name!r} are damaged: repeated requests with these ids are processed"
            " again."
        )
    return state


def _last_keyed_snapshot(folder: Folder, record: StoredDetector, problems: list[str]) -> KeyedState:
    """Return the state of the last snapshot of a detector with a key, or of a new one if there is no file yet."""
    store, path = folder.store, folder.files.path(record.id)
    if path.exists():
        rows = KeyRows(len(record.configuration["features"]), store.latest_rows.summaries(record.id))
        incidents = store.key_incidents.contents(record.id)
        state = stored_keyed_state(record, folder.files, folder.new_replies(record.id), rows, incidents)
        if state.incidents.n_lost:
            problems.append(
                f"{state.incidents.n_lost} of the open incidents of {record.name!r} are damaged or missing, and are not"
                " shown."
            )
        return state
    if store.last_number(record.id) and store.first_number(record.id) != 1:
        raise StorageError(f"The file {path} with the keys of the detector is missing.")
    return new_keyed_state(record, folder.files, folder.new_replies(record.id))


def _last_snapshot(folder: Folder, record: StoredDetector, problems: list[str]) -> DetectorState:
    """Return the state of the last valid snapshot, or of a new detector if there is none."""
    store, state = folder.store, new_state(record, folder.retention, folder.new_replies(record.id))
    for snapshot in store.snapshots(record.id):
        if snapshot.content:
            checked_size(size_in_model(snapshot.content), folder.limits)
            return restored_state(state, snapshot)
        problems.append(f"A snapshot of {record.name!r} is damaged: earlier data is used instead.")
    if problems and store.first_number(record.id) != 1:
        problems.append(
            f"No snapshot of {record.name!r} is valid, and the beginning of its journal is missing: the detector starts"
            " empty."
        )
    return state


def _check_models(entries: list[Entry], limits: Limits) -> None:
    """Raise InvalidInputError if a model in the journal needs too much memory, before any model is read."""
    for entry in entries:
        if entry.kind in MODELS:
            checked_size(size_in_model(entry.content), limits)


def _replay_before_failure(
    start: Callable[[], AppliedState], entries: list[Entry]
) -> tuple[AppliedState, InvalidInputError | None]:
    """Replay the entries before the one that fails, in a new state: the failure left the detector half changed."""
    failed, error = replay(start(), entries, 1)
    failed.close()
    return replay(start(), entries[: failed.entry_number - failed.snapshot_number])[0], error


def _save_under_current_versions(
    store: Store, record: StoredDetector, state: AppliedState, problems: list[str]
) -> AppliedState:
    """If replayed entries were written under other versions, report that, and save a snapshot at once.

    Scores of replayed entries may differ in the last bits from those under the other versions. Later starts begin with
    the new snapshot, so they are exact again.
    """
    n_replayed = state.entry_number - state.snapshot_number
    others = store.other_versions(record.id, state.snapshot_number + 1, state.entry_number) if n_replayed else []
    if not others:
        return state
    differences = "; ".join(difference(other, store.versions) for other in others)
    problems.append(
        f"The last {n_replayed} entries of the journal of {record.name!r} were written under other versions"
        f" ({differences}): they were replayed, and scores since the last snapshot may differ in their last bits from"
        " those in earlier responses."
    )
    try:
        while state.pending.latest:
            with store.transaction():
                store.events.add(record.id, state.next_portion(), state.pending.n_skipped)
            state = state.without_portion()
        state.save_snapshot(partial(_write, store))
    except (ImondrianError, MemoryError) as error:
        problems.append(f"A snapshot of {record.name!r} under the current versions could not be saved: {error}")
        return state
    return state.saved()


def _write(store: Store, operation: Callable[[Store], Any]) -> Any:
    """Call an operation in a transaction."""
    with store.transaction():
        return operation(store)

"""Detectors as they were, however the service ended: the last sound snapshot, and the journal after it."""

import logging
from collections.abc import Callable
from functools import partial

from imondrian.errors import DamagedFileError
from imondrian.service.configuration import checked_size, stored_configuration
from imondrian.service.errors import StorageError
from imondrian.service.journal import MODELS, Entry, difference
from imondrian.service.limits import Limits, Retention
from imondrian.service.replies import reply_to, saved_reply_to
from imondrian.service.state import DetectorState, new_state, prepare_snapshot, restored_state
from imondrian.service.store import Store, StoredDetector
from imondrian.service.uploads import size_in_model

_LOG = logging.getLogger("imondrian.service")
_ENTRIES_PER_BATCH = 256


def recover(
    store: Store, id_: int, limits: Limits, retention: Retention
) -> tuple[StoredDetector, DetectorState, list[str]]:
    """Bring a detector back, and tell what was damaged on the way; if it cannot be done, nothing is changed."""
    complaints: list[str] = []
    record = _with_checked_configuration(store.detector(id_), limits)
    begin = partial(_start_state, store, record, limits, retention)
    state = begin(complaints)
    entries = store.entries_after(id_, state.entry_number)
    _check_models(entries, limits)
    state, error = replay(state, entries)
    if error is not None:
        state, error = _replay_before_failure(partial(begin, []), entries)
        complaints.append(
            f"Entry {state.entry_number + 1} of the journal of {record.name!r} cannot be done again: {error}"
        )
    n_lost = store.cut(id_, state.snapshot_number, state.entry_number)
    if n_lost:
        complaints.append(f"The journal of {record.name!r} is damaged: the last {n_lost} of its entries are set aside.")
    state = _save_under_current_versions(store, record, state, complaints)
    for complaint in complaints:
        _LOG.error("%s", complaint)
    return record, state, complaints


def replay(
    state: DetectorState, entries: list[Entry], batch_size: int = _ENTRIES_PER_BATCH
) -> tuple[DetectorState, Exception | None]:
    """Do entries until one fails; too little memory and a model that cannot be read are errors, and no fault of it."""
    for first in range(0, len(entries), batch_size):
        batch = entries[first : first + batch_size]
        try:
            outcomes = state.applier.apply(batch)
        except (MemoryError, DamagedFileError):
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, the others must come back)
            return state, error
        for entry, outcome in zip(batch, outcomes, strict=True):
            state.history.add(entry, outcome)
            if entry.request is not None:
                state.replies.add(saved_reply_to(entry, entry.request, reply_to(entry.kind, outcome)))
        state = state.after(batch, outcomes)
    return state, None


def _with_checked_configuration(record: StoredDetector, limits: Limits) -> StoredDetector:
    """Check the configuration before a detector is made of it."""
    return record._replace(configuration=stored_configuration(record.configuration, limits))


def _start_state(
    store: Store, record: StoredDetector, limits: Limits, retention: Retention, complaints: list[str]
) -> DetectorState:
    """Begin with the last sound snapshot, and the answers up to there."""
    state = _last_snapshot(store, record, limits, retention, complaints)
    given, n_damaged = store.replies(record.id, state.entry_number)
    for each in given:
        state.replies.add(each)
    if n_damaged:
        complaints.append(
            f"{n_damaged} of the answers of {record.name!r} are damaged: their requests are not known again."
        )
    return state


def _last_snapshot(
    store: Store, record: StoredDetector, limits: Limits, retention: Retention, complaints: list[str]
) -> DetectorState:
    """Begin with the last snapshot that is sound; without any, with a new detector."""
    state = new_state(record, retention)
    for snapshot in store.snapshots(record.id):
        if snapshot.content:
            checked_size(size_in_model(snapshot.content), limits)
            return restored_state(state, snapshot)
        complaints.append(f"A snapshot of {record.name!r} is damaged, and what was before it is used.")
    if complaints and store.first_number(record.id) != 1:
        complaints.append(f"No snapshot of {record.name!r} is sound, and its journal has no beginning: it begins anew.")
    return state


def _check_models(entries: list[Entry], limits: Limits) -> None:
    """Refuse the models in a journal that would take too much memory, before any of them is read."""
    for entry in entries:
        if entry.kind in MODELS:
            checked_size(size_in_model(entry.content), limits)


def _replay_before_failure(
    begin: Callable[[], DetectorState], entries: list[Entry]
) -> tuple[DetectorState, Exception | None]:
    """Do the entries before the one that fails; begin again, since that one leaves the detector half done."""
    failed, error = replay(begin(), entries, 1)
    return replay(begin(), entries[: failed.entry_number - failed.snapshot_number])[0], error


def _save_under_current_versions(
    store: Store, record: StoredDetector, state: DetectorState, complaints: list[str]
) -> DetectorState:
    """If entries that were done again were written under other versions, tell it, and keep a snapshot at once.

    Under other versions their scores may differ in the last bits; from the snapshot on, starts are exact again.
    """
    n_done = state.entry_number - state.snapshot_number
    others = store.other_versions(record.id, state.snapshot_number + 1, state.entry_number) if n_done else []
    if not others:
        return state
    told = "; ".join(difference(other, store.versions) for other in others)
    complaints.append(
        f"The last {n_done} entries of the journal of {record.name!r} were written under other versions ({told}): they"
        " were done again after the last snapshot, and scores since then may differ in the last bits from those"
        " answered before."
    )
    try:
        with store.transaction():
            prepare_snapshot(record.id, state)(store)
    except (StorageError, MemoryError) as error:
        complaints.append(f"A snapshot of {record.name!r} under the present versions could not be kept: {error}")
        return state
    return state.saved()

"""Detectors as they were, however the service ended: the last sound snapshot, and the journal after it."""

import logging
from collections.abc import Callable
from functools import partial

from imondrian.errors import DamagedFileError
from imondrian.service.answers import answer_to, given_to
from imondrian.service.configuration import checked_size, kept_configuration
from imondrian.service.entries import MODELS, Entry
from imondrian.service.settings import Keeping, Limits
from imondrian.service.state import State, new_state, restored, snapshot_of
from imondrian.service.store import Kept, StorageError, Store
from imondrian.service.uploads import sizes_in
from imondrian.service.versions import difference

_LOG = logging.getLogger("imondrian.service")
_ENTRIES_TOGETHER = 256


def recovered(store: Store, id_: int, limits: Limits, keeping: Keeping) -> tuple[Kept, State, list[str]]:
    """Bring a detector back, and tell what was damaged on the way; if it cannot be done, nothing is changed."""
    complaints: list[str] = []
    kept = _configured(store.detector(id_), limits)
    begin = partial(_begun, store, kept, limits, keeping)
    state = begin(complaints)
    entries = store.entries_after(id_, state.number)
    _check_models(entries, limits)
    state, error = done(state, entries)
    if error is not None:
        state, error = _done_before_failure(partial(begin, []), entries)
        complaints.append(f"Entry {state.number + 1} of the journal of {kept.name!r} cannot be done again: {error}")
    n_lost = store.cut(id_, state.n_kept, state.number)
    if n_lost:
        complaints.append(f"The journal of {kept.name!r} is damaged: the last {n_lost} of its entries are set aside.")
    state = _under_present_versions(store, kept, state, complaints)
    for complaint in complaints:
        _LOG.error("%s", complaint)
    return kept, state, complaints


def done(state: State, entries: list[Entry], n_together: int = _ENTRIES_TOGETHER) -> tuple[State, Exception | None]:
    """Do entries until one fails; too little memory and a model that cannot be read are errors, and no fault of it."""
    for first in range(0, len(entries), n_together):
        some = entries[first : first + n_together]
        try:
            outcomes = state.doer.do(some)
        except (MemoryError, DamagedFileError):
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, the others must come back)
            return state, error
        for entry, outcome in zip(some, outcomes, strict=True):
            state.history.add(entry, outcome)
            if entry.request is not None:
                state.answers.give(given_to(entry, entry.request, answer_to(entry.kind, outcome)))
        state = state.after(some, outcomes)
    return state, None


def _configured(kept: Kept, limits: Limits) -> Kept:
    """Check the configuration before a detector is made of it."""
    return kept._replace(configuration=kept_configuration(kept.configuration, limits))


def _begun(store: Store, kept: Kept, limits: Limits, keeping: Keeping, complaints: list[str]) -> State:
    """Begin with the last sound snapshot, and the answers up to there."""
    state = _last_snapshot(store, kept, limits, keeping, complaints)
    given, n_damaged = store.answers(kept.id, state.number)
    for each in given:
        state.answers.give(each)
    if n_damaged:
        complaints.append(
            f"{n_damaged} of the answers of {kept.name!r} are damaged: their requests are not known again."
        )
    return state


def _last_snapshot(store: Store, kept: Kept, limits: Limits, keeping: Keeping, complaints: list[str]) -> State:
    """Begin with the last snapshot that is sound; without any, with a new detector."""
    state = new_state(kept, keeping)
    for snapshot in store.snapshots(kept.id):
        if snapshot.content:
            checked_size(sizes_in(snapshot.content), limits)
            return restored(state, snapshot)
        complaints.append(f"A snapshot of {kept.name!r} is damaged, and what was before it is used.")
    if complaints and store.first_number(kept.id) != 1:
        complaints.append(f"No snapshot of {kept.name!r} is sound, and its journal has no beginning: it begins anew.")
    return state


def _check_models(entries: list[Entry], limits: Limits) -> None:
    """Refuse the models in a journal that would take too much memory, before any of them is read."""
    for entry in entries:
        if entry.kind in MODELS:
            checked_size(sizes_in(entry.content), limits)


def _done_before_failure(begin: Callable[[], State], entries: list[Entry]) -> tuple[State, Exception | None]:
    """Do the entries before the one that fails; begin again, since that one leaves the detector half done."""
    failed, error = done(begin(), entries, 1)
    return done(begin(), entries[: failed.number - failed.n_kept])[0], error


def _under_present_versions(store: Store, kept: Kept, state: State, complaints: list[str]) -> State:
    """If entries that were done again were written under other versions, tell it, and keep a snapshot at once.

    Under other versions their scores may differ in the last bits; from the snapshot on, starts are exact again.
    """
    n_done = state.number - state.n_kept
    others = store.other_versions(kept.id, state.n_kept + 1, state.number) if n_done else []
    if not others:
        return state
    told = "; ".join(difference(other, store.versions) for other in others)
    complaints.append(
        f"The last {n_done} entries of the journal of {kept.name!r} were written under other versions ({told}): they"
        " were done again after the last snapshot, and scores since then may differ in the last bits from those"
        " answered before."
    )
    try:
        with store.transaction():
            snapshot_of(kept.id, state)(store)
    except (StorageError, MemoryError) as error:
        complaints.append(f"A snapshot of {kept.name!r} under the present versions could not be kept: {error}")
        return state
    return state.kept()

"""Detectors as they were, however the service ended: the last sound snapshot, and the journal after it."""

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from imondrian.errors import ImondrianError
from imondrian.service.answers import Answers, answer_to, given_to
from imondrian.service.configuration import new_detector
from imondrian.service.doing import Doer, detector_from
from imondrian.service.entries import POINTS, Entry
from imondrian.service.history import History
from imondrian.service.settings import Keeping
from imondrian.service.store import Kept, Store

_LOG = logging.getLogger("imondrian.service")
_ENTRIES_TOGETHER = 256


class Since(NamedTuple):
    """How much was done since a snapshot."""

    n_points: int = 0
    n_bytes: int = 0

    def plus(self, entries: list[Entry], n_features: int) -> "Since":
        """Count entries that were done."""
        n_values = sum(len(entry.content) for entry in entries if entry.kind == POINTS) // 8
        return Since(
            self.n_points + n_values // n_features, self.n_bytes + sum(len(entry.content) for entry in entries)
        )


class State(NamedTuple):
    """All of a detector that changes."""

    doer: Doer
    number: int  # of the last entry of the journal that was done
    n_kept: int  # number of the entry that the last snapshot follows
    since: Since  # what was done after it
    answers: Answers
    history: History


def new_state(kept: Kept, keeping: Keeping) -> State:
    """Begin a detector."""
    n_features = len(kept.configuration["features"])
    history = History(min(keeping.history, max(keeping.history_values // n_features, 1)), n_features)
    answers = Answers(keeping.answers, keeping.answer_bytes)
    return State(Doer(new_detector(kept.configuration)), 0, 0, Since(), answers, history)


def recovered(store: Store, kept: Kept, keeping: Keeping) -> tuple[State, list[str]]:
    """Bring a detector back, and tell what was damaged on the way."""
    complaints: list[str] = []
    state = _begun(store, kept, keeping, complaints)
    entries = store.entries_after(kept.id, state.number)
    state, error = _tried(state, entries, _ENTRIES_TOGETHER)
    if error is not None:
        state, error = _done_before_failure(partial(_begun, store, kept, keeping, []), entries)
        complaints.append(f"Entry {state.number + 1} of the journal of {kept.name!r} cannot be done again: {error}")
    n_lost = store.cut(kept.id, state.n_kept, state.number)
    if n_lost:
        complaints.append(f"The journal of {kept.name!r} is damaged: the last {n_lost} of its entries are set aside.")
    for complaint in complaints:
        _LOG.error("%s", complaint)
    state.history.n_points = state.history.n_anomalies = 0  # which count from now on
    return state, complaints


def _begun(store: Store, kept: Kept, keeping: Keeping, complaints: list[str]) -> State:
    """Begin with the last sound snapshot, and the answers up to there."""
    state = _last_snapshot(store, kept, keeping, complaints)
    given, n_damaged = store.answers(kept.id, state.number)
    for each in given:
        state.answers.give(each)
    if n_damaged:
        complaints.append(
            f"{n_damaged} of the answers of {kept.name!r} are damaged: their requests are not known again."
        )
    return state


def _last_snapshot(store: Store, kept: Kept, keeping: Keeping, complaints: list[str]) -> State:
    """Begin with the last snapshot that is sound; without any, anew."""
    state = new_state(kept, keeping)
    for number, content, history in store.snapshots(kept.id):
        try:
            doer = Doer(detector_from(content))
            state.history.restore(history)
            return state._replace(doer=doer, number=number, n_kept=number)
        except ImondrianError as error:
            complaints.append(f"A snapshot of {kept.name!r} is damaged, and what was before it is used: {error}")
    if complaints and store.first_number(kept.id) != 1:
        complaints.append(f"No snapshot of {kept.name!r} is sound, and its journal has no beginning: it begins anew.")
    return state


def _done_before_failure(begin: Callable[[], State], entries: list[Entry]) -> tuple[State, Exception | None]:
    """Do the entries before the one that fails; begin anew, since that one leaves the detector half done."""
    failed, error = _tried(begin(), entries, 1)
    return _tried(begin(), entries[: failed.number - failed.n_kept], _ENTRIES_TOGETHER)[0], error


def _tried(state: State, entries: list[Entry], n_together: int) -> tuple[State, Exception | None]:
    """Do entries until one fails; that there is not enough memory is not the fault of an entry."""
    for first in range(0, len(entries), n_together):
        some = entries[first : first + n_together]
        try:
            outcomes = state.doer.do(some)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, the others must come back)
            return state, error
        for entry, outcome in zip(some, outcomes, strict=True):
            state.history.add(entry, outcome)
            if entry.request is not None:
                state.answers.give(given_to(entry, entry.request, answer_to(outcome)))
        since = state.since.plus(some, state.doer.detector.parameters["n_features"])
        state = state._replace(number=some[-1].number, since=since)
    return state, None

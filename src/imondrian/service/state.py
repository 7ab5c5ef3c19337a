"""All of a detector that changes, and how it is kept as a snapshot."""

import io
from collections.abc import Callable
from typing import Any, NamedTuple

from imondrian.model_files import to_bytes
from imondrian.service.answers import Answers
from imondrian.service.configuration import new_detector
from imondrian.service.counts import Counts
from imondrian.service.doing import Doer, Outcome, detector_from
from imondrian.service.entries import POINTS, Entry
from imondrian.service.history import History
from imondrian.service.settings import Keeping
from imondrian.service.store import Kept, Snapshot, Store
from imondrian.service.versions import present_versions
from imondrian.storage import read_header

_BESIDE, _COUNTS, _VERSIONS = "beside", "counts", "versions"  # in the notes of a snapshot's model file


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
    counts: Counts
    answers: Answers
    history: History

    def after(self, entries: list[Entry], outcomes: list[Outcome]) -> "State":
        """Return the state once entries were done, with these outcomes."""
        since = self.since.plus(entries, self.doer.detector.parameters["n_features"])
        return self._replace(number=entries[-1].number, since=since, counts=self.counts.plus(outcomes))

    def kept(self) -> "State":
        """Return the state once it was kept as a snapshot."""
        return self._replace(n_kept=self.number, since=Since())


def new_state(kept: Kept, keeping: Keeping) -> State:
    """Begin a detector."""
    n_features = len(kept.configuration["features"])
    history = History(min(keeping.history, max(keeping.history_values // n_features, 1)), n_features)
    answers = Answers(keeping.answers, keeping.answer_bytes)
    return State(Doer(new_detector(kept.configuration)), 0, 0, Since(), Counts(), answers, history)


def restored(state: State, snapshot: Snapshot) -> State:
    """Return a new state as it was when the snapshot was kept; a damaged snapshot is a DamagedFileError."""
    doer = Doer(detector_from(snapshot.content))
    state.history.restore(snapshot.history)
    beside = read_header(io.BytesIO(snapshot.content), "A snapshot")["notes"].get(_BESIDE, {})
    counts = Counts.from_notes(beside.get(_COUNTS, {}))
    return state._replace(doer=doer, number=snapshot.number, n_kept=snapshot.number, counts=counts)


def snapshot_of(id_: int, state: State) -> Callable[[Store], None]:
    """Make a snapshot; the function that is returned writes it, and the answers that were given since the last one."""
    beside: dict[str, Any] = {_COUNTS: state.counts._asdict(), _VERSIONS: present_versions()}
    snapshot = Snapshot(state.number, to_bytes(state.doer.detector, beside), state.history.to_bytes())
    given, oldest = state.answers.since(state.n_kept), state.answers.oldest

    def write(store: Store) -> None:
        store.add_answers(id_, given, oldest)
        store.add_snapshot(id_, *snapshot)

    return write

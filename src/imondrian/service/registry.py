"""All detectors of the service, by name: made, found and removed."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from imondrian.errors import ImondrianError
from imondrian.service.configuration import are_alike, checked_configuration, checked_name, checked_size, is_name
from imondrian.service.entries import NEW_MODEL, Entry, checked_request
from imondrian.service.live import GoneError, Live
from imondrian.service.memory import Memory
from imondrian.service.recovery import done, recovered
from imondrian.service.settings import Keeping, Limits
from imondrian.service.state import State, new_state
from imondrian.service.store import Kept, StorageError, Store
from imondrian.service.uploads import configuration_in, sizes_in
from imondrian.service.writer import Writer

_LOG = logging.getLogger("imondrian.service")


class UnknownError(ImondrianError):
    """There is no detector of that name."""


class ConflictError(ImondrianError):
    """There is another detector of that name, or there are as many as there may be."""


class AsideError(ImondrianError):
    """The detector could not be recovered when the service started."""


class Known(NamedTuple):
    """A detector of the service."""

    kept: Kept
    live: Live


class _Aside(NamedTuple):
    """A detector that could not be recovered; what is kept of it is left as it is, for the next start."""

    id: int
    reason: str


class Registry:
    """The detectors in a folder; opening it brings them back as they were."""

    def __init__(self, folder: Path, limits: Limits | None = None, keeping: Keeping | None = None) -> None:
        self.limits, self.keeping = limits or Limits(), keeping or Keeping()
        store = Store(folder)
        self.damages = store.complaints  # what was damaged when it was opened
        self._known, self._aside = dict[str, Known](), dict[str, _Aside]()
        try:
            self._recover(store)
        except BaseException:
            store.close()
            raise
        self._leaving: set[Live] = set()  # removed, but their threads may not have ended yet
        self._store, self._making = store, threading.Lock()  # the latter is held while a detector is made

    def all(self) -> list[Known]:
        """List the detectors, oldest first, without those set aside."""
        return list(self._known.values())

    @property
    def n_aside(self) -> int:
        """Number of detectors that could not be recovered."""
        return len(self._aside)

    def get(self, name: str) -> Known:
        """Find a detector; one that is set aside is an AsideError."""
        known, aside = self._known.get(name), self._aside.get(name)
        if aside is not None:
            raise AsideError(aside.reason)
        if known is None:
            raise UnknownError(f"There is no detector {name[:100]!r}.")
        return known

    def create(self, name: str, given: dict[str, Any]) -> tuple[Known, bool]:
        """Make a detector, and tell whether it is new: one that is there already must have the same configuration."""
        with self._making:
            known = self._existing(name)
            configuration, n_bytes = checked_configuration(given, self.limits)
            if known is None:
                self._check_room(n_bytes)
                return self._made(name, configuration, []), True
            if not are_alike(known.kept.configuration, configuration):
                raise ConflictError(f"There is a detector {name!r} with another configuration.")
            return known, False

    def restore(
        self, name: str, content: bytes, request: str | None, memory: Memory | None = None
    ) -> tuple[Known, bool]:
        """Make a detector from a model file, and tell whether it is new: one that is there already is left as it is."""
        checked_request(request, self.limits)
        known = self._known.get(name)
        if known is not None:  # what replaces its state need not wait for others
            return known, False
        with self._making:
            known = self._existing(name)
            if known is not None:
                return known, False
            self._check_room(checked_size(sizes_in(content), self.limits))
            configuration = configuration_in(content, self.limits, memory)
            return self._made(name, configuration, [Entry(1, NEW_MODEL, content, request, time.time())]), True

    def remove(self, name: str) -> None:
        """Remove a detector and all that is kept of it."""
        self.start_removal(name).result()

    def start_removal(self, name: str) -> Future[None]:
        """Remove a detector and all that is kept of it; the future is done when it is gone.

        Nothing waits for what the detector has to do: that is refused.
        """
        aside = self._aside.get(name)
        if aside is not None:
            deletion = self.writer.submit(lambda store: store.remove_detector(aside.id))
            return _followed(deletion, lambda: self._aside.pop(name, None))
        known = self.get(name)
        return _followed(known.live.remove(), lambda: self._forget(name))

    def _forget(self, name: str) -> None:
        """Forget a detector that is gone from the disk; called by the writer, which must not wait for a lock."""
        self._leaving.add(self._known.pop(name).live)

    def complaints(self) -> list[str]:
        """Tell what goes wrong at present."""
        failing = [f"{each.kept.name}: {told}" for each in self.all() for told in each.live.complaints.copy().values()]
        return [*(f"{name}: {aside.reason}" for name, aside in self._aside.copy().items()), *failing]

    def close(self, seconds: float | None = None) -> None:
        """Do what waits, keep snapshots, and let go of the folder.

        If that takes longer than so many seconds, the rest is done after the next start: it is in the journal.
        """
        last = None if seconds is None else time.monotonic() + seconds

        def left() -> float | None:
            return None if last is None else max(last - time.monotonic(), 0.0)

        n_seconds = left()
        is_locked = self._making.acquire(timeout=-1 if n_seconds is None else n_seconds)
        try:
            for known in self.all():
                known.live.end()
            late = [known.kept.name for known in self.all() if not known.live.wait_for_end(left())]
            if late:
                _LOG.warning("What waits for %s is done after the next start.", ", ".join(late))
            self.writer.close()
            self._store.close()
        finally:
            if is_locked:
                self._making.release()

    # -- the start ----------------------------------------------------------------------------------------------

    def _recover(self, store: Store) -> None:
        """Bring back all detectors that can be, before anything is written by the writer."""
        found, detectors = [], store.detectors()
        names = {name for _, name in detectors}
        for id_, name in detectors:
            with self._setting_aside(id_, self._usable_name(id_, name, names)):
                self._check_kept_name(name)
                kept, state, complaints = recovered(store, id_, self.limits, self.keeping)
                self.damages += complaints
                found.append((kept, state))
        self.writer = Writer(store)
        for kept, state in found:
            with self._setting_aside(kept.id, kept.name):
                self._known[kept.name] = Known(kept, Live(kept.id, state, self.writer, self.limits, self.keeping))

    def _check_kept_name(self, name: str | None) -> None:
        if name is None or not is_name(name, self.limits):
            told = "not text" if name is None else repr(name[:100])
            raise StorageError(f"The name of the detector is damaged: it is {told}.")

    def _usable_name(self, id_: int, name: str | None, names: set[str | None]) -> str:
        """Return the name of a detector, or one by which it can be asked for if its own is damaged."""
        if name is not None and is_name(name, self.limits):
            return name
        free = f"damaged-{id_}"
        while free in names:
            free += "-"
        return free

    @contextmanager
    def _setting_aside(self, id_: int, name: str) -> Iterator[None]:
        """Set a detector aside if it fails, so that the others work."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (whatever it is, the others must come back)
            is_ours = isinstance(error, ImondrianError)
            _LOG.error("The detector %r could not be recovered.", name, exc_info=None if is_ours else error)
            told = str(error) if is_ours else f"{type(error).__name__} {error}".strip()
            self._aside[name] = _Aside(
                id_,
                "The detector could not be recovered when the service started, and is set aside with all its data until"
                f" the next start: {told}",
            )

    # -- new ones -----------------------------------------------------------------------------------------------

    def _existing(self, name: str) -> Known | None:
        """Return the detector of that name; None if there is none and it can be made."""
        checked_name(name, self.limits)
        aside, known = self._aside.get(name), self._known.get(name)
        if aside is not None:
            raise AsideError(aside.reason)
        if known is not None:
            if known.live.is_being_removed:
                raise GoneError("The detector is being removed.")
            return known
        n_detectors = len(self._known) + len(self._aside)
        if n_detectors >= self.limits.detectors:
            raise ConflictError(f"There are {n_detectors} detectors, as many as there may be.")
        return None

    def _check_room(self, n_bytes: int) -> None:
        self._leaving -= {live for live in self._leaving.copy() if live.wait_for_end(0.0)}
        lives = [*(known.live for known in self.all()), *self._leaving.copy()]
        n_bytes += sum(live.figures.n_bytes for live in lives)
        if n_bytes > self.limits.total_bytes:
            raise ConflictError(f"All detectors would take {n_bytes} bytes, but {self.limits.total_bytes} are allowed.")

    def _made(self, name: str, configuration: dict[str, Any], entries: list[Entry]) -> Known:
        """Keep a new detector and the first entries of its journal, in one transaction, and do them."""
        created = time.time()

        def keep(store: Store) -> int:
            number = store.add_detector(name, configuration, created)
            if entries:
                store.add_entries(number, entries)
            return number

        number = self.writer.write(keep)
        kept = Kept(number, name, configuration, created)
        try:
            state = self._begun(kept, entries)
            self._known[name] = Known(kept, Live(number, state, self.writer, self.limits, self.keeping))
        except BaseException:
            self.writer.write(lambda store: store.remove_detector(number))
            raise
        return self._known[name]

    def _begun(self, kept: Kept, entries: list[Entry]) -> State:
        state, error = done(new_state(kept, self.keeping), entries)
        if error is not None:
            raise error
        return state


def _followed(first: Future[None], action: Callable[[], Any]) -> Future[None]:
    """Return a future that is done when the first one and then an action is; if the first fails, it has its error."""
    both = Future[None]()

    def follow(done: Future[None]) -> None:
        error = done.exception()
        if error is None:
            action()
            both.set_result(None)
        else:
            both.set_exception(error)

    first.add_done_callback(follow)
    return both

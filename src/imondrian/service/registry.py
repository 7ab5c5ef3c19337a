"""All detectors of the service, by name: made, found and removed."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from imondrian.errors import ImondrianError
from imondrian.service.configuration import are_alike, checked_configuration, checked_name, checked_size
from imondrian.service.entries import MODEL, Entry, checked_request
from imondrian.service.live import Live
from imondrian.service.recovery import done, recovered
from imondrian.service.settings import Keeping, Limits
from imondrian.service.state import State, new_state
from imondrian.service.store import Kept, Store
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
        self._store, self._lock = store, threading.Lock()

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
        with self._lock:
            is_new = self._is_free(name)
            configuration, n_bytes = checked_configuration(given, self.limits)
            if is_new:
                self._check_room(n_bytes)
                return self._made(name, configuration, []), True
            if not are_alike(self.get(name).kept.configuration, configuration):
                raise ConflictError(f"There is a detector {name!r} with another configuration.")
            return self.get(name), False

    def restore(self, name: str, content: bytes, request: str | None) -> tuple[Known, bool]:
        """Make a detector from a model file, and tell whether it is new: one that is there already is left as it is."""
        checked_request(request, self.limits)
        if name in self._known:  # what replaces its state need not wait for others
            return self.get(name), False
        with self._lock:
            if not self._is_free(name):
                return self.get(name), False
            self._check_room(checked_size(sizes_in(content), self.limits))
            configuration = configuration_in(content, self.limits)
            return self._made(name, configuration, [Entry(1, MODEL, content, request, time.time())]), True

    def remove(self, name: str) -> None:
        """Remove a detector and all that is kept of it."""
        with self._lock:
            if name in self._aside:
                self.writer.write(lambda store: store.remove_detector(self._aside[name].id))
                del self._aside[name]
                return
            self.get(name).live.remove()
            del self._known[name]

    def complaints(self) -> list[str]:
        """Tell what goes wrong at present."""
        failing = [f"{each.kept.name}: {told}" for each in self.all() for told in each.live.complaints.copy().values()]
        return [*(f"{name}: {aside.reason}" for name, aside in self._aside.copy().items()), *failing]

    def close(self, seconds: float | None = None) -> None:
        """Do what waits, keep snapshots, and let go of the folder.

        If that takes longer than so many seconds, the rest is done after the next start: it is in the journal.
        """
        last = None if seconds is None else time.monotonic() + seconds
        with self._lock:
            for known in self.all():
                known.live.end()
            left = [
                known.kept.name
                for known in self.all()
                if not known.live.wait_for_end(None if last is None else max(last - time.monotonic(), 0.0))
            ]
            if left:
                _LOG.warning("What waits for %s is done after the next start.", ", ".join(left))
            self.writer.close()
            self._store.close()

    # -- the start ----------------------------------------------------------------------------------------------

    def _recover(self, store: Store) -> None:
        """Bring back all detectors that can be, before anything is written by the writer."""
        found = []
        for id_, name in store.detectors():
            with self._setting_aside(id_, name):
                kept, state, complaints = recovered(store, id_, self.limits, self.keeping)
                self.damages += complaints
                found.append((kept, state))
        self.writer = Writer(store)
        for kept, state in found:
            with self._setting_aside(kept.id, kept.name):
                self._known[kept.name] = Known(kept, Live(kept.id, state, self.writer, self.limits, self.keeping))

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

    def _is_free(self, name: str) -> bool:
        """Tell whether a detector of that name can be made; False if there is one."""
        checked_name(name, self.limits)
        if name in self._known or name in self._aside:
            self.get(name)
            return False
        n_detectors = len(self._known) + len(self._aside)
        if n_detectors >= self.limits.detectors:
            raise ConflictError(f"There are {n_detectors} detectors, as many as there may be.")
        return True

    def _check_room(self, n_bytes: int) -> None:
        n_bytes += sum(known.live.figures.n_bytes for known in self.all())
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

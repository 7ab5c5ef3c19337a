"""All detectors of the service, by name: made, found and removed."""

import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from imondrian.errors import ImondrianError
from imondrian.service.configuration import checked_configuration, checked_name
from imondrian.service.live import Live
from imondrian.service.recovery import new_state, recovered
from imondrian.service.settings import Keeping, Limits
from imondrian.service.store import Kept, Store
from imondrian.service.writer import Writer


class UnknownError(ImondrianError):
    """There is no detector of that name."""


class ConflictError(ImondrianError):
    """There is another detector of that name, or there are as many as there may be."""


class Known(NamedTuple):
    """A detector of the service."""

    kept: Kept
    live: Live


class Registry:
    """The detectors in a folder; opening it brings them back as they were."""

    def __init__(self, folder: Path, limits: Limits | None = None, keeping: Keeping | None = None) -> None:
        self.limits, self.keeping = limits or Limits(), keeping or Keeping()
        store = Store(folder)
        self.damages = store.complaints  # what was damaged when it was opened
        try:
            found = [(kept, *recovered(store, kept, self.keeping)) for kept in store.detectors()]
        except BaseException:
            store.close()
            raise
        self.writer = Writer(store)
        self._store, self._lock, self._known = store, threading.Lock(), dict[str, Known]()
        for kept, state, complaints in found:
            self.damages += complaints
            self._known[kept.name] = Known(kept, Live(kept.id, state, self.writer, self.limits, self.keeping))

    def all(self) -> list[Known]:
        """List the detectors, oldest first."""
        return list(self._known.values())

    def get(self, name: str) -> Known:
        """Find a detector."""
        known = self._known.get(name)
        if known is None:
            raise UnknownError(f"There is no detector {name[:100]!r}.")
        return known

    def create(self, name: str, given: dict[str, Any]) -> tuple[Known, bool]:
        """Make a detector, and tell whether it is new: one that is there already must have the same configuration."""
        checked_name(name, self.limits)
        with self._lock:
            if name not in self._known and len(self._known) >= self.limits.detectors:
                raise ConflictError(f"There are {len(self._known)} detectors, as many as there may be.")
            configuration, n_bytes = checked_configuration(given, self.limits)
            if name in self._known:
                if self._known[name].kept.configuration != configuration:
                    raise ConflictError(f"There is a detector {name!r} with another configuration.")
                return self._known[name], False
            n_bytes += sum(known.live.figures.n_bytes for known in self.all())
            if n_bytes > self.limits.total_bytes:
                raise ConflictError(
                    f"All detectors would take {n_bytes} bytes, but {self.limits.total_bytes} are allowed."
                )
            self._known[name] = self._made(name, configuration)
            return self._known[name], True

    def remove(self, name: str) -> None:
        """Remove a detector and all that is kept of it."""
        with self._lock:
            self.get(name).live.remove()
            del self._known[name]

    def complaints(self) -> list[str]:
        """Tell what goes wrong at present."""
        return [f"{each.kept.name}: {told}" for each in self.all() for told in each.live.complaints.copy().values()]

    def close(self) -> None:
        """Do what waits, keep snapshots, and let go of the folder."""
        with self._lock:
            for known in self.all():
                known.live.end()
            self.writer.close()
            self._store.close()

    def _made(self, name: str, configuration: dict[str, Any]) -> Known:
        created = time.time()
        number = self.writer.write(lambda store: store.add_detector(name, configuration, created))
        kept = Kept(number, name, configuration, created)
        try:
            return Known(kept, Live(number, new_state(kept, self.keeping), self.writer, self.limits, self.keeping))
        except BaseException:
            self.writer.write(lambda store: store.remove_detector(number))
            raise

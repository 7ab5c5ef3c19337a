"""A copy of a detector for reads, so that they do not wait while points are learned."""

import copy
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from imondrian.service.changes.journal import EntryApplier
from imondrian.stream.detector import StreamDetector

_POLL_SECONDS = 0.005  # between two checks for a new copy


class ReadCopy:
    """A copy of the detector of an applier: current if nothing is being learned, else at most `max_age` seconds old.

    Parameters
    ----------
    applier : EntryApplier
        May change its detector only while it holds `write_lock`.
    max_age : float
        Seconds for which a copy may be used while the detector is being changed.
    """

    def __init__(self, applier: EntryApplier, max_age: float) -> None:
        self._applier, self._max_age = applier, max_age
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        self._is_requested = False
        self._update()

    @contextmanager
    def write_lock(self) -> Iterator[None]:
        """Hold the lock for changing the detector; before releasing it, make a copy if a reader waits for one."""
        with self._write_lock:
            self._is_current = False
            try:
                yield
            except BaseException:
                self._is_current = True  # the copy is consistent; the detector may not be
                raise
            if self._is_requested:
                with suppress(MemoryError):  # not a problem of the writer; the reader tries again
                    self._update()

    @contextmanager
    def read(self) -> Iterator[StreamDetector]:
        """Yield the copy to one reader at a time; others wait."""
        with self._read_lock:
            self._refresh()
            yield self._copy

    def private_copy(self) -> StreamDetector:
        """Return a separate copy, for a long read or for a caller that changes it."""
        with self.read() as detector:
            return copy.deepcopy(detector)

    def _refresh(self) -> None:
        """Copy the detector if it is not being changed; if the copy is too old, have the writer make one."""
        oldest = time.monotonic() - self._max_age
        while not self._is_current:
            if self._write_lock.acquire(timeout=_POLL_SECONDS if self._copied_at < oldest else 0.0):
                try:
                    self._update()
                finally:
                    self._write_lock.release()
            elif self._copied_at >= oldest:
                return
            else:
                self._is_requested = True

    def _update(self) -> None:
        self._copy, self._is_current, self._is_requested = copy.deepcopy(self._applier.detector), True, False
        self._copied_at = time.monotonic()

"""A copy of a detector for those who only ask, so that they do not wait for what is being learned."""

import copy
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from imondrian.service.doing import Doer
from imondrian.stream import StreamDetector

_PATIENCE = 0.005  # seconds between two looks at whether there is a copy


class Copies:
    """The detector of a doer as it was a moment ago: now, if nothing is being done, else at most `lasts` seconds ago.

    Parameters
    ----------
    doer : Doer
        Who may only change the detector inside `changing`.
    lasts : float
        Seconds for which a copy is good while the detector is being changed.
    """

    def __init__(self, doer: Doer, lasts: float) -> None:
        self._doer, self._lasts = doer, lasts
        self._changing, self._asking = threading.Lock(), threading.Lock()
        self._is_wanted = False
        self._make()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keep others from copying while the detector is changed; if someone waits for a copy, make it then."""
        with self._changing:
            self._is_current = False
            try:
                yield
            except BaseException:
                self._is_current = True  # the copy is whole, which the detector may not be
                raise
            if self._is_wanted:
                with suppress(MemoryError):  # which is not the fault of who changes it; who asks tries again
                    self._make()

    @contextmanager
    def asking(self) -> Iterator[StreamDetector]:
        """Give the copy to one who asks; others wait until it is done."""
        with self._asking:
            self._refresh()
            yield self._copy

    def own(self) -> StreamDetector:
        """Give a copy of one's own, to ask for long or to change."""
        with self.asking() as detector:
            return copy.deepcopy(detector)

    def _refresh(self) -> None:
        """Copy the detector if nobody changes it; else, if the copy is too old, have who changes it do so."""
        oldest = time.monotonic() - self._lasts
        while not self._is_current:
            if self._changing.acquire(timeout=_PATIENCE if self._made < oldest else 0.0):
                try:
                    self._make()
                finally:
                    self._changing.release()
            elif self._made >= oldest:
                return
            else:
                self._is_wanted = True

    def _make(self) -> None:
        self._copy, self._is_current, self._is_wanted = copy.deepcopy(self._doer.detector), True, False
        self._made = time.monotonic()

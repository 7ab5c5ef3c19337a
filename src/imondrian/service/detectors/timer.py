"""A thread that makes checks at regular intervals."""

import logging
import threading
from collections.abc import Callable

_LOG = logging.getLogger("imondrian.service")


class Timer:
    """Calls a function every `seconds` until `close`; errors are logged.

    Parameters
    ----------
    function : callable
    seconds : float
    """

    def __init__(self, function: Callable[[], None], seconds: float) -> None:
        self._function, self._seconds, self._is_closed = function, seconds, threading.Event()
        self._thread = threading.Thread(target=self._run, name="imondrian-timer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, and wait until it has ended."""
        self._is_closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closed.wait(self._seconds):
            try:
                self._function()
            except Exception:  # noqa: BLE001 (the next check must take place)
                _LOG.exception("A regular check failed.")

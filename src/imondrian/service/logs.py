"""Log lines that repeat: the first is written, those of the next minute are counted."""

import logging
import threading
from typing import Any

LOGGERS = ("asyncio", "uvicorn.error", "imondrian.service")
_N_LINES = 1_000  # that are remembered
_LONGEST = 1_000  # characters that tell two lines apart


class Repeats(logging.Filter):
    """Lets the same line through once in some seconds, with the number of times it was kept back before.

    Lines are the same if logger, message, and type and text of an exception are.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        super().__init__()
        self._seconds, self._lock = seconds, threading.Lock()
        self._lines: dict[tuple[str, ...], tuple[float, int]] = {}  # when each was written, and how often not since

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if a line is to be written."""
        line = _line_of(record)
        with self._lock:
            written, n_kept_back = self._lines.get(line, (None, 0))
            if written is not None and record.created - written < self._seconds:
                self._lines[line] = (written, n_kept_back + 1)
                return False
            self._lines.pop(line, None)
            self._lines[line] = (record.created, 0)
            if len(self._lines) > _N_LINES:
                del self._lines[next(iter(self._lines))]
        if n_kept_back:
            record.msg, record.args = _counted(record.getMessage(), n_kept_back), ()
        return True

    def kept_back(self) -> list[str]:
        """List the lines that were counted and not written since."""
        with self._lock:
            return [_counted(line[1], n) for line, (_, n) in self._lines.items() if n]


def count_repeats() -> Repeats:
    """Have the repeated lines of the service, its server and its event loop counted."""
    repeats = Repeats()
    for name in LOGGERS:
        logging.getLogger(name).addFilter(repeats)
    return repeats


def _line_of(record: logging.LogRecord) -> tuple[str, ...]:
    error: Any = record.exc_info[1] if record.exc_info else None
    return record.name, record.getMessage()[:_LONGEST], type(error).__name__, str(error)[:_LONGEST]


def _counted(message: str, n_kept_back: int) -> str:
    return f"{message.rstrip()} ... repeated {n_kept_back} times"

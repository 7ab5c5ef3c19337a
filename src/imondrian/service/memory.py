"""One account of the memory that requests take: bodies, large answers and copies of detectors."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from imondrian.errors import ImondrianError


class FullError(ImondrianError):
    """There is no memory for a request at present."""


class Memory:
    """Counts the bytes that are in use, and refuses those that would be too many."""

    def __init__(self, n_most: int) -> None:
        self._n_most, self._n_taken, self._lock = n_most, 0, threading.Lock()

    def take(self, n_bytes: int) -> None:
        """Count bytes as in use, or raise a FullError."""
        with self._lock:
            n_taken = self._n_taken + n_bytes
            if n_taken > self._n_most:
                raise FullError(
                    f"The request needs {n_bytes} bytes of memory, but {self._n_taken} of {self._n_most} are in use."
                )
            self._n_taken = n_taken

    def give_back(self, n_bytes: int) -> None:
        """Count bytes as free again."""
        with self._lock:
            self._n_taken -= n_bytes

    @contextmanager
    def holding(self, n_bytes: int) -> Iterator[None]:
        """Count bytes as in use for as long as something takes."""
        self.take(n_bytes)
        try:
            yield
        finally:
            self.give_back(n_bytes)


class Account:
    """What one request has taken so far; closing the account gives all of it back."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._n_taken = memory, 0

    def add(self, n_bytes: int) -> None:
        """Take more bytes, or raise a FullError."""
        self._memory.take(n_bytes)
        self._n_taken += n_bytes

    def close(self) -> None:
        """Give all bytes back."""
        if self._n_taken:
            self._memory.give_back(self._n_taken)
            self._n_taken = 0

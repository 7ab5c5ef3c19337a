"""Limits on the memory that requests use together, and on how many of them run at the same time."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from weakref import WeakKeyDictionary

from imondrian.service.errors import CapacityError


class MemoryBudget:
    """The memory that all requests share: bodies, large responses and copies of detectors.

    Parameters
    ----------
    max_bytes : int
        Limit on the sum of all reservations; only bytes counted by `add` may exceed it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._n_reserved, self._lock = max_bytes, 0, threading.Lock()

    def reserve(self, n_bytes: int) -> None:
        """Reserve bytes, or raise CapacityError."""
        with self._lock:
            n_reserved = self._n_reserved + n_bytes
            if n_reserved > self._max_bytes:
                raise CapacityError(
                    f"The request needs {n_bytes} bytes of memory, but {self._n_reserved} of {self._max_bytes} are in"
                    " use."
                )
            self._n_reserved = n_reserved

    def add(self, n_bytes: int) -> None:
        """Count bytes that are in use already, even if the sum then exceeds the limit."""
        with self._lock:
            self._n_reserved += n_bytes

    def release(self, n_bytes: int) -> None:
        """Release reserved bytes."""
        with self._lock:
            self._n_reserved -= n_bytes

    @contextmanager
    def reserved(self, n_bytes: int) -> Iterator[None]:
        """Reserve bytes for the duration of a context."""
        self.reserve(n_bytes)
        try:
            yield
        finally:
            self.release(n_bytes)


class RequestMemory:
    """The reservations of one request; `close` releases all of them."""

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory, self._n_reserved, self._n_response = memory, 0, 0

    def reserve(self, n_bytes: int) -> None:
        """Reserve more bytes, or raise CapacityError."""
        self._memory.reserve(n_bytes)
        self._n_reserved += n_bytes

    def reserve_response(self, n_bytes: int) -> None:
        """Reserve bytes for the response, which has this length so far, or raise CapacityError."""
        if n_bytes > self._n_response:
            self.reserve(n_bytes - self._n_response)
            self._n_response = n_bytes

    def add(self, n_bytes: int) -> None:
        """Count more bytes that are in use already."""
        self._memory.add(n_bytes)
        self._n_reserved += n_bytes

    def close(self) -> None:
        """Release all bytes."""
        if self._n_reserved:
            self._memory.release(self._n_reserved)
            self._n_reserved = 0


class ConcurrencyLimit:
    """A semaphore with a bounded queue, served in order of arrival; for use in one event loop.

    Parameters
    ----------
    n_slots : int
        How many requests may hold a slot at the same time.
    max_waiting : int
        How many requests may wait for a slot.
    """

    def __init__(self, n_slots: int, max_waiting: int) -> None:
        self._semaphore, self._max_waiting, self._n_waiting = asyncio.Semaphore(n_slots), max_waiting, 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot and hold it, or raise CapacityError if too many requests are waiting."""
        if self._n_waiting >= self._max_waiting:
            raise CapacityError(f"{self._n_waiting} requests of this kind are already waiting.")
        self._n_waiting += 1
        try:
            await self._semaphore.acquire()
        finally:
            self._n_waiting -= 1
        try:
            yield
        finally:
            self._semaphore.release()


class ConcurrencyLimitPerObject:
    """A separate `ConcurrencyLimit` for each object, discarded with the object."""

    def __init__(self, n_slots: int, max_waiting: int) -> None:
        self._n_slots, self._max_waiting = n_slots, max_waiting
        self._limits: WeakKeyDictionary[object, ConcurrencyLimit] = WeakKeyDictionary()

    def slot(self, key: object) -> AbstractAsyncContextManager[None]:
        """Wait for a slot of an object and hold it, or raise CapacityError if too many requests are waiting."""
        limit = self._limits.get(key)
        if limit is None:
            limit = self._limits[key] = ConcurrencyLimit(self._n_slots, self._max_waiting)
        return limit.slot()

"""Turns: of what takes much memory or time, only a few run at once, and only so many wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from weakref import WeakKeyDictionary

from imondrian.service.memory import FullError


class Turns:
    """Lets requests have their turn in the order in which they come; used from one event loop."""

    def __init__(self, n_at_once: int, n_waiting: int) -> None:
        self._free, self._n_most, self._n_waiting = asyncio.Semaphore(n_at_once), n_waiting, 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, or raise a FullError if too many wait already."""
        if self._n_waiting >= self._n_most:
            raise FullError(f"{self._n_waiting} requests of this kind wait already.")
        self._n_waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._n_waiting -= 1
        try:
            yield
        finally:
            self._free.release()


class TurnsOfEach:
    """Turns for each of many objects by itself, for as long as these are there."""

    def __init__(self, n_at_once: int, n_waiting: int) -> None:
        self._n_at_once, self._n_waiting = n_at_once, n_waiting
        self._turns: WeakKeyDictionary[object, Turns] = WeakKeyDictionary()

    def turn(self, of: object) -> AbstractAsyncContextManager[None]:
        """Wait for a turn with an object, or raise a FullError if too many wait for it already."""
        turns = self._turns.get(of)
        if turns is None:
            turns = self._turns[of] = Turns(self._n_at_once, self._n_waiting)
        return turns.turn()

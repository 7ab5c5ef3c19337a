"""Waiting in the event loop for what threads do: the loop is woken once for all that is done meanwhile."""

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import Any


class Waiting:
    """Futures of threads, waited for in the running event loop.

    What `asyncio.wrap_future` does, but for the number of times that the loop is woken: that costs more than to answer.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._is_woken = False

    def result_of(self, future: Future[Any]) -> asyncio.Future[Any]:
        """Give something to await that has the result of a future."""
        awaited: asyncio.Future[Any] = self._loop.create_future()
        future.add_done_callback(lambda done: self._note(awaited, done))
        return awaited

    def _note(self, awaited: asyncio.Future[Any], done: Future[Any]) -> None:
        """Note in any thread that a future is done, and wake the loop unless it has been woken already."""
        self._done.append((awaited, done))
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self._is_woken = False  # before looking: what comes from now on wakes again
        while self._done:
            awaited, done = self._done.popleft()
            if awaited.cancelled():  # whoever asked is gone
                continue
            error = done.exception()
            awaited.set_result(done.result()) if error is None else awaited.set_exception(error)

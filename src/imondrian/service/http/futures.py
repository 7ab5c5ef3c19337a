"""Await futures of threads in the event loop, with one wake-up for many results."""

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import Any


class FutureBridge:
    """Makes futures of threads awaitable in the running event loop.

    Like `asyncio.wrap_future`, but the loop is woken once for all futures that complete before it runs: waking it
    costs more than sending a response.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._is_woken = False

    def wrap(self, future: Future[Any]) -> asyncio.Future[Any]:
        """Return an awaitable that gets the result of a future."""
        awaited: asyncio.Future[Any] = self._loop.create_future()
        future.add_done_callback(lambda done: self._on_done(awaited, done))
        return awaited

    def _on_done(self, awaited: asyncio.Future[Any], done: Future[Any]) -> None:
        """Queue a completed future, from any thread, and wake the loop unless a wake-up is already pending."""
        self._done.append((awaited, done))
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._set_results)

    def _set_results(self) -> None:
        self._is_woken = False  # first: futures that complete from now on must wake the loop again
        while self._done:
            awaited, done = self._done.popleft()
            if awaited.cancelled():  # the client has disconnected
                continue
            error = done.exception()
            awaited.set_result(done.result()) if error is None else awaited.set_exception(error)

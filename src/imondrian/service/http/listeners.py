"""Server-sent events: once stored, openings and closings of incidents are sent to clients that stay connected.

All listeners share the events in memory (`event_feed.py`), so none of them needs a queue; a listener that falls behind
reads from the store. A response begins with the id of the event after which it continues, so that a client that loses
its connection before the first event knows where to continue.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

from imondrian.service.delivery.event_feed import EventFeed
from imondrian.service.errors import CapacityError
from imondrian.service.http.futures import FutureBridge
from imondrian.service.storage.event_table import StoredEvent

HEARTBEAT_SECONDS = 15.0
_EVENTS_PER_READ = 100
_HEARTBEAT = b": still here\n\n"


class Listeners:
    """All clients that listen to events, in one event loop.

    Parameters
    ----------
    feed : EventFeed
    futures : FutureBridge
        For reading events from the store.
    max_listeners : int
        How many clients may listen at the same time.
    """

    def __init__(self, feed: EventFeed, futures: FutureBridge, max_listeners: int) -> None:
        self._feed, self._futures, self._max_listeners = feed, futures, max_listeners
        self._loop, self._n_listeners = asyncio.get_running_loop(), 0
        self._news = asyncio.Event()  # set, and replaced by another, whenever events have been stored
        feed.subscribe(self, self._on_events)

    def close(self) -> None:
        """Stop waiting for events."""
        self._feed.unsubscribe(self)

    def _on_events(self) -> None:
        """Wake all listeners, from the thread of the writer."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Count one more listener; raise CapacityError if there are too many."""
        if self._n_listeners >= self._max_listeners:
            raise CapacityError(f"{self._n_listeners} clients are already listening to events.")
        self._n_listeners += 1
        try:
            yield
        finally:
            self._n_listeners -= 1

    async def stream(self, after: int | None, ending: asyncio.Event, *, follow: bool) -> AsyncIterator[bytes]:
        """Yield events after an id, by default new ones, as text; if `follow`, wait for more until `ending` is set."""
        newest = self._feed.last_id
        last = newest if after is None else min(after, newest)  # larger ids are those of another data folder
        yield _beginning(last)
        while not (follow and ending.is_set()):
            news, newest = self._news, self._feed.last_id  # before reading, so that nothing is missed
            events = self._feed.after(last)
            if events is None:  # no longer in memory
                events = await self._futures.wrap(self._feed.stored_after(last, _EVENTS_PER_READ))
                last = last if events else max(last, newest)  # none: they were deleted with their detectors
            elif not events:
                if not follow:
                    return
                if not await _either(news, ending, HEARTBEAT_SECONDS):
                    yield _HEARTBEAT
            for event in events:
                last = event.id
                yield _text_of(event)


async def _either(first: asyncio.Event, second: asyncio.Event, seconds: float) -> bool:
    """Wait until one of two events is set; return False if neither is set within `seconds`."""
    tasks = [asyncio.ensure_future(event.wait()) for event in (first, second)]
    try:
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in tasks:
            task.cancel()


def _beginning(last: int) -> bytes:
    """Return the first lines of a response: an id without data is remembered by clients, but is not an event."""
    return f"retry: 3000\nid: {last}\n\n".encode()


def _text_of(event: StoredEvent) -> bytes:
    """Return an event in the format of server-sent events; `as_json` contains no line breaks."""
    return f"id: {event.id}\ndata: {event.as_json()}\n\n".encode()

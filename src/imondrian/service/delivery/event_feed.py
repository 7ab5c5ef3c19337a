"""Keep the latest openings and closings of incidents in memory once they are committed, and wake subscribers."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from imondrian.service.storage.event_table import StoredEvent
from imondrian.service.storage.store import Store
from imondrian.service.storage.writer import Writer

N_IN_MEMORY = 1_000  # events


class EventFeed:
    """The latest events of all detectors, in the order of their ids.

    Parameters
    ----------
    writer : Writer
        The thread in which events are stored and published.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer, self._lock = writer, threading.Lock()
        self._latest: deque[StoredEvent] = deque(maxlen=N_IN_MEMORY)
        self._subscribers: dict[object, Callable[[], None]] = {}
        self.last_id: int = writer.write(lambda store: store.events.last_id())

    def submit(self, operation: Callable[[Store], list[StoredEvent]]) -> Future[list[StoredEvent]]:
        """Queue an operation that stores events; they are published once they are on the disk."""
        return self._writer.submit(operation, self.publish_result)

    def publish_result(self, stored: Future[list[StoredEvent]]) -> None:
        """Publish the events that an operation has stored, in the order of their ids; for the thread of the writer."""
        if stored.exception() is None:
            self.publish(stored.result())

    def publish(self, events: list[StoredEvent]) -> None:
        """Publish events that are on the disk, in the order of their ids; call it in the thread of the writer."""
        if not events:
            return
        with self._lock:
            self._latest += events
            self.last_id = events[-1].id
            subscribers = list(self._subscribers.values())
        for wake in subscribers:
            wake()

    def publish_removal(self, events: list[StoredEvent]) -> None:
        """Publish the closings of a removed detector.

        All events in memory are forgotten, since some of them are deleted from the store.
        """
        with self._lock:
            self._latest.clear()
        self.publish(events)

    def subscribe(self, key: object, wake: Callable[[], None]) -> None:
        """Call `wake`, in the thread of the writer, whenever there are new events."""
        with self._lock:
            self._subscribers[key] = wake

    def unsubscribe(self, key: object) -> None:
        """Undo `subscribe`."""
        with self._lock:
            self._subscribers.pop(key, None)

    def after(self, id_: int) -> list[StoredEvent] | None:
        """Return the events after an id, or None if some of them may no longer be in memory."""
        with self._lock:
            if id_ >= self.last_id:
                return []
            if not self._latest or self._latest[0].id > id_ + 1:
                return None
            return [event for event in self._latest if event.id > id_]

    def stored_after(self, id_: int, limit: int) -> Future[list[StoredEvent]]:
        """Read at most `limit` events after an id from the store."""
        return self._writer.submit(lambda store: store.events.after(id_, limit))

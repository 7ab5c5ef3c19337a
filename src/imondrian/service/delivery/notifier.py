"""Delivery of events to receivers, from the outbox in the store: at least once, in order for each detector."""

import logging
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from http.client import HTTPException
from random import Random
from typing import NamedTuple

from imondrian.service.delivery.event_feed import EventFeed
from imondrian.service.delivery.receivers import Delivery, Receiver
from imondrian.service.errors import StorageError
from imondrian.service.limits import Retention
from imondrian.service.storage.event_table import ReceiverCounts, StoredEvent
from imondrian.service.storage.store import Store
from imondrian.service.storage.writer import Writer

_LOG = logging.getLogger("imondrian.service")
_JITTER = Random()  # noqa: S311 (not for secrets; a separate generator, so that the global one does not change)
_EVENTS_PER_PASS = 100
_MANY_FAILURES = 3  # after this many in a row, the service reports a problem
_SECONDS_TO_END = 2.0  # for the threads, at shutdown; unconfirmed notifications are sent again after the next start
_MAX_DOUBLINGS = 30


def use_receivers(store: Store, receivers: Sequence[Receiver]) -> None:
    """Set the receivers of new events; the store is written only if the receivers have changed.

    If the disk is full, notifications that wait for former receivers are deleted at a later start.
    """
    keys = tuple(receiver.key for receiver in receivers)
    store.events.receivers = keys
    if store.events.has_other_receivers(keys):
        try:
            with store.transaction():
                store.events.use_receivers(keys)
        except StorageError as error:
            _LOG.warning("Notifications for former receivers were not deleted: %s", error)


class Notifier:
    """Sends events to all receivers, each in a thread of its own.

    Attributes
    ----------
    channels : list of Channel
        One for each receiver.
    """

    def __init__(self, receivers: Sequence[Receiver], writer: Writer, feed: EventFeed, retention: Retention) -> None:
        self.channels = [Channel(receiver, writer, feed, retention) for receiver in receivers]

    def problems(self) -> list[str]:
        """Return how many notifications were given up since the start, and which receivers do not accept them."""
        return [text for channel in self.channels for text in channel.problems()]

    def close(self) -> None:
        """End the threads, and wait for them, but at most `_SECONDS_TO_END` seconds."""
        for channel in self.channels:
            channel.stop()
        deadline = time.monotonic() + _SECONDS_TO_END
        for channel in self.channels:
            channel.wait_for_end(max(deadline - time.monotonic(), 0.0))


class _Backoff(NamedTuple):
    """How often in a row something has failed, since when, and when it is tried again, by the monotonic clock."""

    n_failures: int = 0
    since: float = math.inf
    until: float = 0.0


class Channel:
    """The notifications of one receiver, and the thread that sends them.

    Attributes
    ----------
    counts : ReceiverCounts
        Numbers of notifications that were sent, were given up, and are waiting.
    n_failed : int
        Number of failed attempts since the start.
    """

    def __init__(self, receiver: Receiver, writer: Writer, feed: EventFeed, retention: Retention) -> None:
        self.label, self.n_failed = receiver.label, 0
        self._receiver, self._writer, self._feed, self._retention = receiver, writer, feed, retention
        self._backoff, self._detector_backoffs = _Backoff(), dict[int, _Backoff]()
        self._failure = ""  # why the last attempt failed; empty if it succeeded
        self._delivery: Delivery | None = None
        self._accepted = set[int]()  # events that the receiver has accepted, but that are still in the outbox
        self._is_closed, self._wake = False, threading.Event()
        self.counts: ReceiverCounts = writer.write(self._read_counts)
        self._n_given_up_before = self.counts.n_given_up
        feed.subscribe(self, self._on_events)
        self._thread = threading.Thread(target=self._run, name="imondrian-notifier", daemon=True)
        self._thread.start()

    def problems(self) -> list[str]:
        """Return how many notifications were given up since the start, and whether notifications fail now."""
        found, n_given_up = [], self.counts.n_given_up - self._n_given_up_before
        if n_given_up:
            were, them = ("notification was", "it") if n_given_up == 1 else ("notifications were", "them")
            found.append(f"{n_given_up} {were} given up: {self.label} did not accept {them} in time.")
        failures = max(
            [self._backoff.n_failures, *(each.n_failures for each in self._detector_backoffs.copy().values())]
        )
        if failures >= _MANY_FAILURES:
            found.append(f"Notifications to {self.label} fail ({self._failure}); {self.counts.n_waiting} are waiting.")
        return found

    def stop(self) -> None:
        """Tell the thread to end, and abort what it is sending."""
        self._is_closed = True
        self._feed.unsubscribe(self)
        self._wake.set()
        delivery = self._delivery
        if delivery is not None:
            delivery.abort()

    def wait_for_end(self, seconds: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(seconds)

    # -- the thread of the writer -------------------------------------------------------------------------------

    def _on_events(self) -> None:
        """Wake the thread, which sends new events, and update the counts."""
        self._wake.set()
        with suppress(StorageError):  # the service is shutting down
            self._writer.submit(self._read_counts, self._on_counts)

    def _read_counts(self, store: Store) -> ReceiverCounts:
        return store.events.counts(self._receiver.key)

    def _on_counts(self, read: Future[ReceiverCounts]) -> None:
        if read.exception() is None:
            self.counts = read.result()

    # -- its own thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closed:
            self._wake.clear()
            try:
                seconds = self._send_waiting()
            except StorageError as error:
                self._failure, seconds = str(error), self._retention.retry_seconds
            except Exception:  # noqa: BLE001 (the thread must not end)
                _LOG.exception("The delivery of notifications failed.")
                seconds = self._retention.longest_retry_seconds
            if not self._is_closed:
                self._wake.wait(seconds)

    def _send_waiting(self) -> float | None:
        """Send waiting events; return the seconds until the next attempt, or None if no event waits."""
        if self._backoff.until > time.monotonic():
            return self._backoff.until - time.monotonic()
        while events := self._writer.write(self._read_waiting):
            blocked = set[int]()  # a detector blocked at an event stays blocked at later ones: they are sent in order
            for event in events:
                if self._is_closed:
                    return None
                blocked |= self._blocked()
                if event.detector in blocked:
                    continue
                self._send_or_give_up(event)
                if self._backoff.until > time.monotonic():
                    return self._backoff.until - time.monotonic()
        self._detector_backoffs = {key: each for key, each in self._detector_backoffs.items() if key in self._blocked()}
        untils = [each.until for each in self._detector_backoffs.values()]
        return max(min(untils) - time.monotonic(), 0.0) if untils else None

    def _blocked(self) -> set[int]:
        """Return the detectors whose events must wait."""
        now = time.monotonic()
        return {detector for detector, backoff in self._detector_backoffs.items() if backoff.until > now}

    def _read_waiting(self, store: Store) -> list[StoredEvent]:
        events = store.events.waiting(self._receiver.key, _EVENTS_PER_PASS, self._blocked())
        self.counts = store.events.counts(self._receiver.key)
        return events

    def _send_or_give_up(self, event: StoredEvent) -> None:
        if event.id in self._accepted:  # it is still in the outbox, because the disk was full
            self._finish(event, is_sent=True)
            return
        answer = None
        try:
            self._delivery = Delivery(self._receiver)
            answer = self._delivery.send(event)
        except (OSError, HTTPException, ValueError) as error:
            self._failure = str(error) or type(error).__name__
        finally:
            self._delivery = None
        if answer is not None and answer.is_success:
            self._backoff, self._failure = _Backoff(), ""
            self._detector_backoffs.pop(event.detector, None)
            self._accepted.add(event.id)
            self._finish(event, is_sent=True)
        elif not self._is_closed:
            if answer is not None:
                self._failure = f"status {answer.status}"
            wait, concerns_all = (0.0, True) if answer is None else (answer.wait, answer.concerns_all)
            backoff = self._back_off(event, wait, concerns_all=concerns_all)
            if self._is_too_old(event, backoff):
                self._finish(event, is_sent=False)

    def _finish(self, event: StoredEvent, *, is_sent: bool) -> None:
        """Remove an event from the outbox."""

        def finish(store: Store) -> ReceiverCounts:
            store.events.finish(self._receiver.key, event.id, is_sent=is_sent)
            return store.events.counts(self._receiver.key)

        self.counts = self._writer.write(finish)
        self._accepted.discard(event.id)

    def _is_too_old(self, event: StoredEvent, backoff: _Backoff) -> bool:
        """Return True if an event is too old to be tried again.

        It must have happened more than `notification_seconds` ago by the system clock. As that clock may have been set
        forward, attempts must also have failed for longer than that by the monotonic clock.
        """
        limit = self._retention.notification_seconds
        return time.time() - event.time > limit and time.monotonic() - backoff.since > limit

    def _back_off(self, event: StoredEvent, wait: float, *, concerns_all: bool) -> _Backoff:
        """Postpone the next attempt: for all events, or only for events of the same detector."""
        self.n_failed += 1
        if concerns_all:
            self._backoff = self._longer(self._backoff, wait)
            return self._backoff
        backoff = self._longer(self._detector_backoffs.get(event.detector, _Backoff()), wait)
        self._detector_backoffs[event.detector] = backoff
        return backoff

    def _longer(self, backoff: _Backoff, wait: float) -> _Backoff:
        """Return the backoff after one more failure.

        The time until the next attempt doubles up to a limit, with jitter, but is at least `wait` seconds.
        """
        seconds = self._retention.retry_seconds * 2.0 ** min(backoff.n_failures, _MAX_DOUBLINGS)
        jittered = min(seconds, self._retention.longest_retry_seconds) * _JITTER.uniform(0.5, 1.0)
        now = time.monotonic()
        return _Backoff(backoff.n_failures + 1, min(backoff.since, now), now + max(jittered, wait))

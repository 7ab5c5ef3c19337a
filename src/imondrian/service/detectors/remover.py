"""Finishes removals of detectors: their data is deleted in portions, in the thread of the writer."""

import logging
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from imondrian.service.delivery.event_feed import EventFeed
from imondrian.service.errors import StorageError
from imondrian.service.storage.removals import Describe, RemovalPortion, as_stored
from imondrian.service.storage.store import Store
from imondrian.service.storage.writer import Writer

_LOG = logging.getLogger("imondrian.service")


class _Removal(NamedTuple):
    """The removal of a detector."""

    detector: int
    describe: Describe  # describes its open incidents
    finished: Future[None]


class Remover:
    """Deletes the data of removed detectors in portions; between two portions, other detectors can store changes.

    Parameters
    ----------
    writer : Writer
        The thread in which the data is deleted.
    feed : EventFeed
        Publishes the closings of open incidents.
    """

    def __init__(self, writer: Writer, feed: EventFeed) -> None:
        self._writer, self._feed = writer, feed
        self._failed: deque[_Removal] = deque()

    def finish(self, detector: int, started: Future[RemovalPortion], describe: Describe = as_stored) -> Future[None]:
        """Finish a removal after its first portion; the future fails only if the first portion does.

        If the service ends meanwhile, the next start finishes the removal.
        """
        removal = _Removal(detector, describe, Future())

        def follow(first: Future[RemovalPortion]) -> None:
            error = first.exception()
            if error is None:
                self._go_on(removal, first.result())
            else:
                removal.finished.set_exception(error)

        started.add_done_callback(follow)
        return removal.finished

    def remove(self, detector: int) -> Future[None]:
        """Remove a detector that has no worker."""
        return self.finish(detector, self.start(detector))

    def start(self, detector: int) -> Future[RemovalPortion]:
        """Store the first portion of the removal of a detector that has no worker."""
        return self._writer.submit(lambda store: store.removals.start(detector), self.publish)

    def publish(self, stored: Future[RemovalPortion]) -> None:
        """Publish the closings of incidents in a portion, if it is on the disk."""
        if stored.exception() is None:
            self._feed.publish_removal(stored.result().events)

    def resume(self, detector: int) -> None:
        """Finish a removal that an earlier process started."""
        self._submit(_Removal(detector, as_stored, Future()))

    def retry(self) -> None:
        """Try again to finish removals that have failed, for example because the disk was full."""
        for _ in range(len(self._failed)):
            self._submit(self._failed.popleft()._replace(finished=Future()))

    def _go_on(self, removal: _Removal, portion: RemovalPortion) -> None:
        if portion.is_finished:
            removal.finished.set_result(None)
        else:
            self._submit(removal)

    def _submit(self, removal: _Removal) -> None:
        try:
            self._writer.submit(partial(_proceed, removal), partial(self._on_stored, removal))
        except StorageError:  # the service is shutting down
            removal.finished.set_result(None)

    def _on_stored(self, removal: _Removal, stored: Future[RemovalPortion]) -> None:
        self.publish(stored)
        error = stored.exception()
        if error is None:
            self._go_on(removal, stored.result())
            return
        _LOG.error("The data of a removed detector could not be deleted yet.", exc_info=error)
        self._failed.append(removal)
        removal.finished.set_result(None)  # the detector is removed; only its data remains


def _proceed(removal: _Removal, store: Store) -> RemovalPortion:
    return store.removals.proceed(removal.detector, removal.describe)

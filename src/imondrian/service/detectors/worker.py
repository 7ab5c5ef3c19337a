"""A running detector: requests are journalled, then applied, then answered."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from imondrian.base.errors import InvalidInputError, StoreError
from imondrian.service.changes.configuration import name_bytes
from imondrian.service.changes.journal import (
    POINTS_PER_LOCK,
    SETTINGS,
    WITH_POINTS,
    Entry,
    checked_request_id,
    digest_of,
)
from imondrian.service.changes.keyed_rows import journalled_rows
from imondrian.service.changes.replies import Reply, reply_to, saved_reply_to
from imondrian.service.changes.settings import Changes
from imondrian.service.delivery.event_feed import EventFeed
from imondrian.service.detectors.applied_state import AppliedState, Counts
from imondrian.service.detectors.job_queue import NO_KEYS, Job, JournalledJob, QueuedKeys, QueueSize
from imondrian.service.detectors.keyed_state import KeyedView
from imondrian.service.detectors.read_copy import ReadCopy
from imondrian.service.detectors.state import SingleView
from imondrian.service.errors import DetectorFailedError, RemovedError, StorageError, UnavailableError
from imondrian.service.limits import KEY_BYTES, Limits, Retention
from imondrian.service.storage.event_table import Silence, StoredEvent
from imondrian.service.storage.history import History
from imondrian.service.storage.incident_log import Announcement
from imondrian.service.storage.removals import RemovalPortion
from imondrian.service.storage.store import Store, StoredDetector
from imondrian.service.storage.writer import Operation, Writer

_LOG = logging.getLogger("imondrian.service")
_SHUTTING_DOWN = "The service is shutting down."
_NO_SPACE = "The disk is full: there is no space for keys that leave memory."
_SECONDS_BETWEEN_ATTEMPTS = 1.0  # to move keys to the disk
_BEING_REMOVED, _REMOVED = "The detector is being removed.", "The detector was removed."


class DetectorWorker:
    """A detector, the thread that changes it, and a copy of it for reads.

    The writer commits all waiting requests, with those of other detectors, to the journal in one transaction. Then they
    are ready: the thread of the worker applies them while the writer commits later requests.

    Parameters
    ----------
    record : StoredDetector
        The row of the detector in the store.
    state : AppliedState
        The initial state.
    writer : Writer
        Commits the journal and the snapshots.
    feed : EventFeed
        Stores and publishes openings and closings of incidents.
    silences : tuple of Silence
        The latest silences of the detector.
    limits : Limits
        The limits of the queue.
    retention : Retention
        When snapshots are saved, and how old a copy for reads may be.
    bytes_left : callable
        Returns how much memory a detector may have, given that of all others.

    Attributes
    ----------
    summary : Summary
        Figures of the detector after the last change.
    view : View
        What other threads read.
    incidents : Incidents
        The incidents of the detector.
    settings : dict
        The current values of the settings that can be changed.
    last_points_time : float
        When points last arrived, by the monotonic clock; until points arrive, when the worker was created.
    """

    def __init__(
        self,
        record: StoredDetector,
        state: AppliedState,
        writer: Writer,
        feed: EventFeed,
        silences: tuple[Silence, ...],
        limits: Limits,
        retention: Retention,
        bytes_left: Callable[["DetectorWorker"], int],
    ) -> None:
        self.id, self.name = record.id, record.name
        self.silences, self.settings = silences, state.applier.settings
        self.last_points_time = time.monotonic()
        self.view = state.view(retention.copy_max_age)
        self.incidents, last = self.view.incidents, self.view.last_arrival
        self._last_arrival = record.created if last is None else last  # of points, in seconds since 1970
        self._may_be_silent = bool(silences) and silences[-1].closed is None  # used in the thread of the writer
        self._feed, self._stored_silences = feed, silences
        self.summary, self._name_bytes = state.summary(), name_bytes(record.configuration)
        self._problems: dict[str, str] = {}
        self._n_bytes_needed = 0  # disk space that the last refused request needs
        self._state, self._replies, self._n_journalled = state, state.replies, state.entry_number
        self._n_settled = state.entry_number  # number of the last entry whose effect is included in `settings`
        self._writer, self._limits, self._retention = writer, limits, retention
        self._waiting: list[Job] = []  # to be journalled
        self._ready: deque[JournalledJob] = deque()
        self._queue, self._queued_keys = QueueSize(limits), QueuedKeys(limits)
        self._bytes_left = bytes_left
        self._condition, self._counting = threading.Condition(), threading.Lock()
        self._being_journalled: list[JournalledJob] = []  # used in the thread of the writer
        self._is_journalling = self._is_ending = False
        self._refusal: UnavailableError | DetectorFailedError | None = None  # why requests are refused
        self.is_being_removed = self._is_removed = False
        self._add_backlog(len(record.configuration["features"]))
        self._thread = threading.Thread(target=self._run, name=f"imondrian-detector-{record.id}", daemon=True)
        self._thread.start()

    def _add_backlog(self, n_features: int) -> None:
        """Queue journal entries that could not be replayed at the start; clients may repeat requests to get replies."""
        for entry in self._state.backlog:
            n_points = len(entry.points_and_labels()[0]) // (8 * n_features)
            keys = frozenset(journalled_rows(entry.content).keys) if self.is_keyed and n_points else NO_KEYS
            job = Job(entry.kind, entry.content, n_points, entry.request, entry.time, Future(), keys)
            if job.request is not None:
                self._replies.add_pending(job.request, digest_of(job.kind, job.content), job.future)
            self._queue.add(job)
            self._add_keys(job)
            self._ready.append(JournalledJob(job, entry))
            self._n_journalled = entry.number
        self._state = replace(self._state, backlog=())

    # -- from any thread ----------------------------------------------------------------------------------------

    @property
    def problems(self) -> dict[str, str]:
        """Current problems, by kind."""
        problems = self._problems.copy()
        if self._n_bytes_needed and not self._state.has_disk_space(self._n_bytes_needed):
            problems.setdefault("store", _NO_SPACE)
        return problems

    @property
    def history(self) -> History:
        """The latest rows of a single detector."""
        return self._single.history

    @property
    def read_copy(self) -> ReadCopy:
        """The copy of a single detector for reads."""
        return self._single.read_copy

    @property
    def _single(self) -> SingleView:
        if not isinstance(self.view, SingleView):
            raise TypeError(f"The detector {self.name!r} has a key.")
        return self.view

    @property
    def keys(self) -> KeyedView:
        """The keys of a detector with a key."""
        if not isinstance(self.view, KeyedView):
            raise InvalidInputError(f"The detector {self.name!r} has no key: `key` is not in its configuration.")
        return self.view

    @property
    def is_keyed(self) -> bool:
        """Whether the detector has one detector per value of a key."""
        return isinstance(self.view, KeyedView)

    @property
    def n_bytes(self) -> int:
        """Memory of the detector, of the keys in its queue, and of very long names of its features."""
        with self._counting:
            return self.summary.n_bytes + self._queued_keys.n_bytes + self._name_bytes

    def _max_keys(self) -> int:
        """Return how many keys fit into the memory that other detectors and what is not keys of this one leave."""
        summary = self.summary
        n_bytes_left = self._bytes_left(self) - summary.n_bytes - self._name_bytes
        return (summary.n_keys or 0) + max(n_bytes_left, 0) // KEY_BYTES

    @property
    def counts(self) -> Counts:
        """Points learned, anomalies among them, and incidents that opened, since the detector was created."""
        return self._state.counts

    @property
    def n_waiting(self) -> int:
        """Points in the queue."""
        return self._queue.n_points

    @property
    def n_requests(self) -> int:
        """Requests applied since the detector was created: the number of journal entries so far."""
        return self._state.entry_number

    def submit(
        self, kind: str, content: bytes, n_points: int, request: str | None = None, keys: frozenset[str] = NO_KEYS
    ) -> Future[Reply]:
        """Queue a change; the future gets the reply once the change is on the disk and applied.

        A repeated request, recognised by its id, gets the reply to the first one and is not applied again.

        Parameters
        ----------
        kind : str
            The kind of the journal entry.
        content : bytes
            Points, changed settings, a key to forget, or a model file.
        n_points : int
            Number of points in the content; 0 if it has none.
        request : str, optional
            The id of the request.
        keys : frozenset of str, optional
            The keys of the points, if the detector has a key.

        Raises
        ------
        InvalidInputError
            If the id is invalid or was used for a different request, if the detector would have too many keys, if there
            is no memory for its new keys, or if keys would be moved between memory and disk for too long.
        QueueFullError
            If the queue is full.
        StorageError
            If the disk has no space for keys that leave memory.
        UnavailableError, DetectorFailedError
            If the detector is being removed, the service is shutting down, or the detector has failed.
        """
        checked_request_id(request, self._limits)
        request_digest = b"" if request is None else digest_of(kind, content)
        with self._condition:
            if self._refusal is not None:  # a new error each time: a raised error references the frames it passed
                raise type(self._refusal)(str(self._refusal))
            earlier = None if request is None else self._replies.find(request, request_digest)
            if earlier is not None:
                return earlier
            self._queue.check(n_points, len(content))
            if keys:
                self._queued_keys.check(keys, self.keys.rows.summaries, self._max_keys)
                self._check_moves(keys, n_points)
            self._check_disk_space(kind, content, n_points)
            job = Job(kind, content, n_points, request, time.time(), Future(), keys)
            if kind in WITH_POINTS:
                self.last_points_time, self._last_arrival = time.monotonic(), job.time
            if request is not None:
                self._replies.add_pending(request, request_digest, job.future)
            self._waiting.append(job)
            self._queue.add(job)
            self._add_keys(job)
            is_idle, self._is_journalling = not self._is_journalling, True
        if is_idle:
            self._writer.submit(self._journal, self._on_journalled)
        return job.future

    def _add_keys(self, job: Job) -> None:
        if job.keys:
            self._queued_keys.add(job, self.keys.rows.summaries)

    def _check_moves(self, keys: frozenset[str], n_points: int) -> None:
        """Raise InvalidInputError if a request would move keys between memory and disk for too long."""
        if self._state.moved_bytes(keys, n_points) > self._limits.moved_bytes:
            raise InvalidInputError(
                f"The {n_points} points have {len(keys)} keys, which do not fit into max_bytes together: moving keys"
                " between memory and disk would take too long. Send fewer points at once."
            )

    def _check_disk_space(self, kind: str, content: bytes, n_points: int) -> None:
        """Raise StorageError if a request could be journalled, but not applied, because keys could not leave memory."""
        if "store" in self._problems:
            raise StorageError(self._problems["store"])
        n_bytes = self._state.disk_bytes(content, n_points) if kind in WITH_POINTS else 0
        self._n_bytes_needed = 0 if self._state.has_disk_space(n_bytes) else n_bytes
        if self._n_bytes_needed:
            raise StorageError(_NO_SPACE)

    def remove(self) -> Future[RemovalPortion]:
        """Remove the detector; the future gets the first portion of the removal when it is on the disk.

        The removal does not wait for queued requests: they are refused once the removal is on the disk. If the removal
        fails, the worker continues.
        """
        with self._condition:
            if self._is_ending:
                raise UnavailableError(_SHUTTING_DOWN)
            if self._is_removed:
                raise RemovedError(_REMOVED)
            if self.is_being_removed:
                raise UnavailableError(_BEING_REMOVED)
            removal = Future[RemovalPortion]()
            self._writer.submit(self._delete, lambda deletion: self._on_deleted(deletion, removal))
            self.is_being_removed, self._refusal = True, UnavailableError(_BEING_REMOVED)
        return removal

    def stop(self) -> None:
        """Refuse new requests, apply the queued ones, save a snapshot, and end the thread, without waiting for it."""
        with self._condition:
            self._refusal = self._refusal or UnavailableError(_SHUTTING_DOWN)
            self._is_ending = True
            self._condition.notify()

    def wait_for_end(self, seconds: float | None = None) -> bool:
        """Wait at most `seconds` for the thread to end; return True if it has ended.

        Entries that have not been applied are replayed at the next start.
        """
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def is_silent(self) -> bool:
        """Whether an incident of missing data is open."""
        silences = self.silences
        return bool(silences) and silences[-1].closed is None

    def open_silence_if_due(self) -> None:
        """Open an incident if no points have arrived for too long; called by the timer of the service."""
        if not self.is_silent and self._is_silence_due() and not self.is_being_removed:
            self._writer.submit(self._open_silence, self._on_opened_silence)

    def _is_silence_due(self) -> bool:
        """Return True if no points have arrived for too long.

        Return False while a journalled request has not been applied, since it may change the setting `silence`.
        """
        silence, is_settled = self.settings["silence"], self._n_settled == self._n_journalled
        return silence is not None and is_settled and time.monotonic() - self.last_points_time > silence

    # -- the thread of the writer -------------------------------------------------------------------------------

    def _open_silence(self, store: Store) -> list[StoredEvent]:
        """Store that the detector is silent, unless points or a removal came first."""
        if not store.has_detector(self.id) or self._being_journalled or not self._is_silence_due():
            return []
        self._may_be_silent = True
        events = store.events.open_silence(self.id, self.name, self._last_arrival, time.time())
        self._stored_silences = store.events.silences(self.id)
        return events

    def _on_opened_silence(self, stored: Future[list[StoredEvent]]) -> None:
        self._on_silence_stored(stored)
        self._feed.publish_result(stored)

    def _on_silence_stored(self, stored: Future[list[StoredEvent]]) -> None:
        """Show a silence that has begun or ended, once this is on the disk."""
        if stored.exception() is None and stored.result():
            self.silences = self._stored_silences
            self._may_be_silent = self.is_silent

    def _journal(self, store: Store) -> list[StoredEvent]:
        """Write all waiting requests to the journal; points end a silence, in the same transaction.

        If the transaction was rolled back, this runs again, and begins with the requests that it had taken.
        """
        if not store.has_detector(self.id):
            return []  # waiting requests are refused as soon as the deletion is on the disk
        with self._condition:
            jobs = [*(ready.job for ready in self._being_journalled), *self._waiting]
            self._waiting = []
        first = self._n_journalled + 1
        self._being_journalled = [
            JournalledJob(job, Entry(first + i, job.kind, job.content, job.request, job.time))
            for i, job in enumerate(jobs)
        ]
        store.add_entries(self.id, [ready.entry for ready in self._being_journalled])
        return self._close_silence(store, jobs) if self._may_be_silent else []

    def _close_silence(self, store: Store, jobs: list[Job]) -> list[StoredEvent]:
        """Store that the detector is no longer silent, if points have arrived or the setting `silence` allows it."""
        times = [job.time for job in jobs if job.kind in WITH_POINTS or self._ends_silence(job)]
        events = store.events.close_silence(self.id, self.name, times[0]) if times else []
        self._stored_silences = store.events.silences(self.id)
        return events

    def _ends_silence(self, job: Job) -> bool:
        """Return True if a job changes the setting `silence` so that the detector is no longer silent."""
        if job.kind != SETTINGS:
            return False
        changes = Changes.from_bytes(job.content)
        n_seconds = time.monotonic() - self.last_points_time
        return changes.has_silence and (changes.silence is None or n_seconds <= changes.silence)

    def _on_journalled(self, written: Future[list[StoredEvent]]) -> None:
        """Make journalled requests ready; if the transaction failed, refuse them: they may be sent again."""
        self._on_silence_stored(written)
        self._feed.publish_result(written)
        error, refused = written.exception(), list[Job]()
        with self._condition:
            if error is None:
                self._n_journalled += len(self._being_journalled)
                self._ready += self._being_journalled
            else:
                refused = [*(ready.job for ready in self._being_journalled), *self._waiting]
                self._waiting = []
                self._queue.remove(refused)
            self._being_journalled = []
            has_more = self._is_journalling = bool(self._waiting)
            self._condition.notify()
        self._refuse(refused, error)
        if has_more:
            self._writer.submit(self._journal, self._on_journalled)

    def _delete(self, store: Store) -> RemovalPortion:
        """Remove the detector, and begin to delete its data; nothing is written for it after that.

        Events that have been applied, but not stored yet, are never announced.
        """
        return store.removals.start(self.id, self.incidents.current)

    def _on_deleted(self, deletion: Future[RemovalPortion], removal: Future[RemovalPortion]) -> None:
        """Refuse waiting requests once the removal is on the disk; continue if it failed."""
        error, refused = deletion.exception(), list[Job]()
        with self._condition:
            if error is None:
                self._is_removed, self._refusal = True, RemovedError(_REMOVED)
                refused = [*(ready.job for ready in self._ready), *self._waiting]
                self._ready.clear()
                self._waiting = []
                self._queue.remove(refused)
            else:
                self.is_being_removed = False
                self._refusal = DetectorFailedError(self._problems["failed"]) if self._has_failed else None
                if self._is_ending:
                    self._refusal = UnavailableError(_SHUTTING_DOWN)
            self._condition.notify()
        self._refuse(refused, RemovedError(_REMOVED))
        if error is None:
            self._feed.publish_removal(deletion.result().events)
            removal.set_result(deletion.result())
        else:
            removal.set_exception(error)

    # -- in its own thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._store_announcements()  # of entries that were replayed
        while self._process_next_batch():
            pass
        if self._state.entry_number > self._state.snapshot_number and not self._is_removed and not self._has_failed:
            self._save_snapshot()
        self._state.close()
        if self._is_removed:
            self._state.delete_files()

    def _process_next_batch(self) -> bool:
        """Wait for ready requests, and apply them together; return False if the worker must end.

        Nothing refers to the requests after that: an idle worker must not keep their points and replies in memory.
        """
        batch = self._next_batch()
        if batch:
            self._process([ready.job for ready in batch], [ready.entry for ready in batch])
        return bool(batch)

    def _next_batch(self) -> list[JournalledJob]:
        """Wait for ready requests, and return those to apply together; an empty list if the worker must end."""
        batch: list[JournalledJob] = []
        with self._condition:
            while not self._ready and (self._is_journalling or not (self._is_removed or self._is_ending)):
                self._condition.wait()
            n_points = 0
            while self._ready and (not batch or n_points + self._ready[0].job.n_points <= POINTS_PER_LOCK):
                batch.append(self._ready.popleft())
                n_points += batch[-1].job.n_points
            self._queue.remove([ready.job for ready in batch])
        return batch

    @property
    def _has_failed(self) -> bool:
        return "failed" in self._problems

    def _process(self, jobs: list[Job], entries: list[Entry]) -> None:
        """Apply entries; after an error the detector may be half changed, and must be restored by a replay."""
        try:
            if not self._has_failed:
                self._apply(jobs, entries)
        except RemovedError as error:
            self._refuse(jobs, error)
        except DetectorFailedError as error:
            self._problems["failed"] = str(error)
        except Exception as error:  # noqa: BLE001 (every waiting client must get a response)
            _LOG.exception("A detector has failed.")
            message = f"The detector has failed ({type(error).__name__}); restarting the service restores it."
            self._problems["failed"] = message
            self._refusal = self._refusal or DetectorFailedError(message)
        if self._has_failed:
            self._refuse(jobs, DetectorFailedError(self._problems["failed"]))

    def _apply(self, jobs: list[Job], entries: list[Entry]) -> None:
        """Apply journalled entries, and set the replies."""
        start = time.monotonic()
        state, outcomes = self._state.apply(entries, self._write_lock, self._wait_for_store)
        self._state = state.timed(time.monotonic() - start)
        self._problems.pop("store", None)
        summary = self._state.summary()
        with self._counting:  # other detectors must count each key once
            self._queued_keys.remove(jobs)
            self.summary = summary
        if any(entry.kind not in WITH_POINTS for entry in entries):
            self.settings = self._state.applier.settings
        self._n_settled = entries[-1].number
        self._store_announcements()
        for job, reply in zip(jobs, self._replies_to(entries, outcomes), strict=True):
            job.future.set_result(reply)  # last: a client with a reply must see all its effects
        if self._state.since_snapshot.is_snapshot_due(self._retention):
            self._save_snapshot()

    def _wait_for_store(self, error: StoreError) -> None:
        """Wait before the next attempt to move keys to the disk; new requests are refused, and journalled ones wait.

        Raise an error if the worker must end: the next start applies what is journalled.
        """
        with self._condition:
            if "store" not in self._problems:
                _LOG.error("Keys cannot be moved to the disk.", exc_info=error)
            self._problems["store"] = f"Keys cannot be moved to the disk, and requests wait for it: {error}"
            if not (self._is_ending or self._is_removed):
                self._condition.wait(_SECONDS_BETWEEN_ATTEMPTS)
            is_ending = self._is_ending
        if self._is_removed:
            raise RemovedError(_REMOVED)
        if is_ending:
            raise DetectorFailedError("The service is shutting down; the next start applies the request.")

    def _store_announcements(self) -> None:
        """Store openings and closings of incidents; if that fails, they are stored later.

        They cannot be lost: a replay of the journal produces them again.
        """
        try:
            while self._state.pending.latest and not self._is_removed:
                portion = partial(self._add_events, self._state.next_portion(), self._state.pending.n_skipped)
                self._feed.submit(portion).result()
                self._state = self._state.without_portion()
        except Exception as error:  # noqa: BLE001 (the detector itself works)
            _LOG.exception("Events could not be stored.")
            self._problems["events"] = f"Openings and closings of incidents could not be stored yet: {error}"
            return
        self._problems.pop("events", None)

    def _add_events(self, announcements: list[Announcement], n_skipped: int, store: Store) -> list[StoredEvent]:
        return store.events.add(self.id, announcements, n_skipped) if store.has_detector(self.id) else []

    def _write_lock(self) -> AbstractContextManager[None]:
        """Return the lock for one change; after a removal, raise RemovedError, even in the middle of an entry."""
        if self._is_removed:
            raise RemovedError(_REMOVED)
        return self.view.write_lock()

    def _replies_to(self, entries: list[Entry], outcomes: list[Any]) -> list[Reply]:
        """Return the replies, and save those to requests with an id.

        Saved replies are stored with the next snapshot; until then, a replay of the journal reproduces them.
        """
        replies = [reply_to(entry.kind, outcome) for entry, outcome in zip(entries, outcomes, strict=True)]
        saved = [
            saved_reply_to(entry, entry.request, reply)
            for entry, reply in zip(entries, replies, strict=True)
            if entry.request is not None
        ]
        with self._condition:  # held only briefly: the event loop waits for this lock when it queues a request
            self._replies.add(saved)
        self._replies.make_room()
        return replies

    def _refuse(self, jobs: list[Job], error: BaseException | None) -> None:
        with self._condition:
            for job in jobs:
                if job.request is not None:
                    self._replies.drop_pending(job.request)
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(error)

    def _save_snapshot(self) -> None:
        """Save a snapshot; if that fails, the journal grows until the next attempt."""
        self._store_announcements()
        if self._is_removed:
            return
        try:
            if self._state.pending.latest:
                raise StorageError(self._problems["events"])  # noqa: TRY301 (a replay produces these events again)
            with self._writer.snapshot_slot:
                self._state.save_snapshot(self._write_unless_deleted)  # replies are only added in this thread
        except Exception as error:  # noqa: BLE001 (the detector itself works)
            _LOG.exception("A snapshot could not be saved.")
            self._problems["snapshot"] = f"The last snapshot could not be saved: {error}"
            self._state = self._state.not_saved()
            return
        self._state = self._state.saved()
        self._problems.pop("snapshot", None)

    def _write_unless_deleted(self, operation: Operation) -> Any:
        return self._writer.write(lambda store: operation(store) if store.has_detector(self.id) else None)

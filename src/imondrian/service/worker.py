"""A detector at work: what waits for it is journalled, then done, then answered."""

import logging
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import NamedTuple

from imondrian.service.errors import BusyError, DetectorFailedError, RemovedError, UnavailableError
from imondrian.service.journal import POINTS_PER_LOCK, Entry, Outcome, checked_request_id, digest_of
from imondrian.service.limits import Limits, Retention
from imondrian.service.read_copy import ReadCopy
from imondrian.service.replies import Reply, reply_to, saved_reply_to
from imondrian.service.state import Counts, DetectorState, SinceSnapshot, prepare_snapshot, summary_of
from imondrian.service.store import Store
from imondrian.service.writer import Writer

_LOG = logging.getLogger("imondrian.service")
_SHUTTING_DOWN, _REMOVED = "The service ends.", "The detector was removed."


class _Job(NamedTuple):
    kind: str
    content: bytes
    n_points: int
    request: str | None
    time: float
    future: Future[Reply]


class _JournaledJob(NamedTuple):
    """A job that has been journalled."""

    job: _Job
    entry: Entry


class DetectorWorker:
    """A detector, the thread that changes it, and a copy of it for those who only ask.

    What comes waits until the writer takes all of it into the journal, in one transaction with that of others; then it
    is ready, and the detector's own thread does it, while the writer takes what came meanwhile.

    Parameters
    ----------
    id_ : int
        Its number in the store.
    state : State
        The detector as it is, with its answers and its history.
    """

    def __init__(self, id_: int, state: DetectorState, writer: Writer, limits: Limits, retention: Retention) -> None:
        self.id, self.history = id_, state.history
        self.read_copy = ReadCopy(state.applier, retention.copy_max_age)
        self.summary = summary_of(state.applier.detector)
        self.n_waiting = 0
        self.complaints: dict[str, str] = {}  # what goes wrong at present, by what it is
        self._state, self._replies, self._n_journaled = state, state.replies, state.entry_number
        self._writer, self._limits, self._retention = writer, limits, retention
        self._waiting: list[_Job] = []  # to be journalled
        self._ready: deque[_JournaledJob] = deque()
        self._n_bytes_waiting = self._n_jobs_waiting = 0
        self._condition, self._being_journaled = (
            threading.Condition(),
            list[_JournaledJob](),
        )  # the latter in the thread of the writer
        self._is_journaling = self._is_ending = False
        self._refusal: UnavailableError | DetectorFailedError | None = None  # why nothing more is taken
        self.is_being_removed = self._is_removed = False
        self._is_deleted = False  # in the transaction that the writer is at
        self._thread = threading.Thread(target=self._run, name=f"imondrian-detector-{id_}", daemon=True)
        self._thread.start()

    # -- from any thread ----------------------------------------------------------------------------------------

    @property
    def counts(self) -> Counts:
        """How many points were learned since the detector was created, and how many of them were anomalies."""
        return self._state.counts

    @property
    def n_requests(self) -> int:
        """How many requests were done since the detector was created: as many as the journal has had entries."""
        return self._state.entry_number

    def submit(self, kind: str, content: bytes, n_points: int, request: str | None = None) -> Future[Reply]:
        """Have something done: the future has the answer once it is on the disk and done.

        A request with an id that was answered, or waits, has the same answer and is not done again. If too much waits,
        it is a BusyError.
        """
        checked_request_id(request, self._limits)
        sent = b"" if request is None else digest_of(kind, content)
        with self._condition:
            if self._refusal is not None:  # one of its own each time: errors hold on to what they were raised over
                raise type(self._refusal)(str(self._refusal))
            known = None if request is None else self._replies.find(request, sent)
            if known is not None:
                return known
            self._check_room(n_points, len(content))
            job = _Job(kind, content, n_points, request, time.time(), Future())
            if request is not None:
                self._replies.add_pending(request, sent, job.future)
            self._waiting.append(job)
            self.n_waiting += n_points
            self._n_bytes_waiting += len(content)
            self._n_jobs_waiting += 1
            is_first, self._is_journaling = not self._is_journaling, True
        if is_first:
            self._writer.submit(self._journal).add_done_callback(self._on_journaled)
        return job.future

    def remove(self) -> Future[None]:
        """Remove the detector from the store; what waits for it is refused then. If that fails, it goes on.

        The future is done when that is on the disk; nothing that waits is done before.
        """
        with self._condition:
            if self._is_ending:
                raise UnavailableError(_SHUTTING_DOWN)
            if self._is_removed:
                raise RemovedError(_REMOVED)
            if self.is_being_removed:
                raise UnavailableError("The detector is being removed.")
            deletion, removal = self._writer.submit(self._delete), Future[None]()
            self.is_being_removed, self._refusal = True, UnavailableError("The detector is being removed.")
        deletion.add_done_callback(lambda deletion: self._on_deleted(deletion, removal))
        return removal

    def stop(self) -> None:
        """Take nothing more, do what waits, keep a snapshot, and end; `wait_for_end` waits for that."""
        with self._condition:
            self._refusal = self._refusal or UnavailableError(_SHUTTING_DOWN)
            self._is_ending = True
            self._condition.notify()

    def wait_for_end(self, seconds: float | None = None) -> bool:
        """Wait until all is done, or so long; return True if it is. What is not will be done after the next start."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _check_room(self, n_points: int, n_bytes: int) -> None:
        """Refuse what would make too much wait; something may always wait."""
        limits, n_requests = self._limits, self._n_jobs_waiting
        is_full = (
            self.n_waiting + n_points > limits.waiting_points
            or self._n_bytes_waiting + n_bytes > limits.waiting_bytes
            or n_requests >= limits.waiting_requests
        )
        if n_requests and is_full:
            raise BusyError(f"{self.n_waiting} points in {n_requests} requests wait already.")

    # -- the thread of the writer -------------------------------------------------------------------------------

    def _journal(self, store: Store) -> None:
        """Write all that waits into the journal."""
        if self._is_deleted:
            return  # what waits is refused as soon as that is on the disk
        with self._condition:
            jobs, self._waiting = self._waiting, []
        first = self._n_journaled + 1
        self._being_journaled = [
            _JournaledJob(job, Entry(first + i, job.kind, job.content, job.request, job.time))
            for i, job in enumerate(jobs)
        ]
        store.add_entries(self.id, [ready.entry for ready in self._being_journaled])

    def _on_journaled(self, written: Future[None]) -> None:
        """Pass on what is on the disk; if it could not be written, nothing of it is done, and it may come again."""
        error, refused = written.exception(), list[_Job]()
        with self._condition:
            if error is None:
                self._n_journaled += len(self._being_journaled)
                self._ready += self._being_journaled
            else:
                refused = [*(ready.job for ready in self._being_journaled), *self._waiting]
                self._waiting = []
                self._dequeue(refused)
            self._being_journaled = []
            is_more = self._is_journaling = bool(self._waiting)
            self._condition.notify()
        self._refuse(refused, error)
        if is_more:
            self._writer.submit(self._journal).add_done_callback(self._on_journaled)

    def _delete(self, store: Store) -> None:
        """Delete all that is kept of the detector; nothing more is written after it."""
        store.remove_detector(self.id)
        self._is_deleted = True

    def _on_deleted(self, deletion: Future[None], removal: Future[None]) -> None:
        """Refuse what waits once the detector is gone from the disk; if it is not, go on."""
        error, refused = deletion.exception(), list[_Job]()
        with self._condition:
            if error is None:
                self._is_removed, self._refusal = True, RemovedError(_REMOVED)
                refused = [*(ready.job for ready in self._ready), *self._waiting]
                self._ready.clear()
                self._waiting = []
                self._dequeue(refused)
            else:
                self.is_being_removed = self._is_deleted = False
                self._refusal = DetectorFailedError(self.complaints["failed"]) if self._has_failed else None
                if self._is_ending:
                    self._refusal = UnavailableError(_SHUTTING_DOWN)
            self._condition.notify()
        self._refuse(refused, RemovedError(_REMOVED))
        removal.set_result(None) if error is None else removal.set_exception(error)

    # -- its own thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while batch := self._next_batch():
            self._process([ready.job for ready in batch], [ready.entry for ready in batch])
        if self._state.entry_number > self._state.snapshot_number and not self._is_removed and not self._has_failed:
            self._save_snapshot()

    def _next_batch(self) -> list[_JournaledJob]:
        """Wait for what is ready, and take what is done batch; nothing if all is done and it is to end."""
        batch: list[_JournaledJob] = []
        with self._condition:
            while not self._ready and (self._is_journaling or not (self._is_removed or self._is_ending)):
                self._condition.wait()
            n_points = 0
            while self._ready and (not batch or n_points + self._ready[0].job.n_points <= POINTS_PER_LOCK):
                batch.append(self._ready.popleft())
                n_points += batch[-1].job.n_points
            self._dequeue([ready.job for ready in batch])
        return batch

    def _dequeue(self, jobs: list[_Job]) -> None:
        """Count jobs that wait no longer."""
        self.n_waiting -= sum(job.n_points for job in jobs)
        self._n_bytes_waiting -= sum(len(job.content) for job in jobs)
        self._n_jobs_waiting -= len(jobs)

    @property
    def _has_failed(self) -> bool:
        return "failed" in self.complaints

    def _process(self, jobs: list[_Job], entries: list[Entry]) -> None:
        """Do entries; if that fails, the detector may be half changed, and only the journal knows how it should be."""
        try:
            if not self._has_failed:
                self._apply(jobs, entries)
        except RemovedError as error:
            self._refuse(jobs, error)
        except Exception as error:  # noqa: BLE001 (whatever it is, those who wait must be told)
            _LOG.exception("A detector has failed.")
            told = f"The detector has failed ({type(error).__name__}); when the service starts anew, it is as before."
            self.complaints["failed"] = told
            self._refusal = self._refusal or DetectorFailedError(told)
        if self._has_failed:
            self._refuse(jobs, DetectorFailedError(self.complaints["failed"]))

    def _apply(self, jobs: list[_Job], entries: list[Entry]) -> None:
        """Do what has been journalled, and answer."""
        outcomes = self._state.applier.apply(entries, self._write_lock)
        self._state = self._state.after(entries, outcomes)
        self.summary = summary_of(self._state.applier.detector)
        for entry, outcome in zip(entries, outcomes, strict=True):
            self.history.add(entry, outcome)
        for job, answer in zip(jobs, self._replies_to(entries, outcomes), strict=True):
            job.future.set_result(answer)  # last: who has the answer finds all else as it says
        since, retention = self._state.since_snapshot, self._retention
        if since.n_points >= retention.points_between_snapshots or since.n_bytes >= retention.bytes_between_snapshots:
            self._save_snapshot()

    def _write_lock(self) -> AbstractContextManager[None]:
        """Change the detector, for some points; one that is removed is changed no more, though an entry is at work."""
        if self._is_removed:
            raise RemovedError(_REMOVED)
        return self.read_copy.write_lock()

    def _replies_to(self, entries: list[Entry], outcomes: list[Outcome]) -> list[Reply]:
        """Write the answers; a snapshot will keep those to requests with an id, until then the journal gives them."""
        replies: list[Reply] = []
        with self._condition:
            for entry, outcome in zip(entries, outcomes, strict=True):
                replies.append(reply_to(entry.kind, outcome))
                if entry.request is not None:
                    self._replies.add(saved_reply_to(entry, entry.request, replies[-1]))
        return replies

    def _refuse(self, jobs: list[_Job], error: BaseException | None) -> None:
        with self._condition:
            for job in jobs:
                if job.request is not None:
                    self._replies.drop_pending(job.request)
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(error)

    def _save_snapshot(self) -> None:
        """Have the detector written as a whole; if that fails, the journal goes on growing, and it is tried again."""
        try:
            write = prepare_snapshot(self.id, self._state)  # answers are only added in this thread
            self._writer.write(lambda store: None if self._is_deleted else write(store))
        except Exception as error:  # noqa: BLE001 (the detector itself is well)
            _LOG.exception("A snapshot could not be kept.")
            self.complaints["snapshot"] = f"The last snapshot could not be kept: {error}"
            self._state = self._state._replace(since_snapshot=SinceSnapshot())
            return
        self._state = self._state.saved()
        self.complaints.pop("snapshot", None)

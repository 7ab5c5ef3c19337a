"""Group commit: one thread writes the changes of many requests in one transaction, synced once."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple

from imondrian.service.errors import StorageError
from imondrian.service.storage.store import Store

_MAX_BATCH = 1024
Operation = Callable[[Store], Any]


class _WriteJob(NamedTuple):
    operation: Operation
    done: Future[Any]
    is_read: bool = False  # nothing is written


_SNAPSHOTS_AT_ONCE = 1


class Writer:
    """The only thread that writes to the store.

    Attributes
    ----------
    snapshot_slot : semaphore
        Held by a worker while it makes and writes a snapshot, which needs several times the memory of its detector.
        Without it, all workers could need this memory at the same time, for example at shutdown.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[_WriteJob | None] = queue.SimpleQueue()
        self._is_closed, self._lock = False, threading.Lock()
        self._thread = threading.Thread(target=self._run, name="imondrian-writer", daemon=True)
        self.snapshot_slot = threading.Semaphore(_SNAPSHOTS_AT_ONCE)
        self._thread.start()
        # the StorageError of the last transaction; None if it succeeded or raised another error
        self.failure: StorageError | None = None

    def submit(self, operation: Operation, on_done: Callable[[Future[Any]], None] | None = None) -> Future[Any]:
        """Queue an operation; the future gets its result when the changes are on the disk, or the error.

        An operation may run twice: if the transaction that it shares with others is rolled back, it is repeated in one
        of its own. `on_done` is called with the future in the thread of the writer, in the order of the operations. A
        callback that is added to the returned future may run in the calling thread instead, after callbacks of later
        operations.
        """
        done: Future[Any] = Future()
        if on_done is not None:
            done.add_done_callback(on_done)
        self._enqueue(_WriteJob(operation, done))
        return done

    def write(self, operation: Operation) -> Any:
        """Queue an operation, wait for it, and return its result."""
        return self.submit(operation).result()

    def read(self, operation: Operation) -> Any:
        """Like `write`, for an operation that writes nothing: it works even if the disk is full."""
        done: Future[Any] = Future()
        self._enqueue(_WriteJob(operation, done, is_read=True))
        return done.result()

    def _enqueue(self, job: _WriteJob) -> None:
        with self._lock:
            if self._is_closed:
                raise StorageError("The service is shutting down.")
            self._queue.put(job)

    def retry(self) -> StorageError | None:
        """If the last transaction failed, try a large one; return the error if that fails, too, otherwise None."""
        if self.failure is not None:
            with suppress(StorageError):
                self.write(Store.write_filler)
                self.write(Store.delete_filler)
        return self.failure

    def close(self) -> None:
        """Write what is queued, and end the thread."""
        with self._lock:
            self._is_closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            batch, is_last = self._next_batch()
            if batch:
                self._commit(batch)
            if is_last:
                return

    def _next_batch(self) -> tuple[list[_WriteJob], bool]:
        """Wait for a job; return it with the jobs queued behind it, and whether the queue is closed."""
        batch: list[_WriteJob] = []
        job = self._queue.get()
        while job is not None:
            batch.append(job)
            if len(batch) == _MAX_BATCH or self._queue.empty():
                return batch, False
            job = self._queue.get()
        return batch, True

    def _commit(self, batch: list[_WriteJob]) -> None:
        for job in batch:
            if job.is_read:
                self._read(job)
        jobs = [job for job in batch if not job.is_read]
        if jobs:
            self._write(jobs)

    def _write(self, jobs: list[_WriteJob]) -> None:
        """Run operations in one transaction; if it fails, run each in a transaction of its own.

        So an operation gets only its own error: small requests succeed even if a snapshot does not fit on the disk.
        """
        try:
            with self._store.transaction():
                results = [job.operation(self._store) for job in jobs]
        except Exception as error:  # noqa: BLE001 (every waiting thread must get an error)
            if len(jobs) > 1:
                for job in jobs:
                    self._write([job])
                return
            self.failure = error if isinstance(error, StorageError) else None
            jobs[0].done.set_exception(error)
            return
        self.failure = None
        for job, result in zip(jobs, results, strict=True):
            job.done.set_result(result)

    def _read(self, job: _WriteJob) -> None:
        try:
            job.done.set_result(job.operation(self._store))
        except Exception as error:  # noqa: BLE001 (the waiting thread must get an error)
            job.done.set_exception(error)

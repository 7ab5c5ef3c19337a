"""Group commit: what many want to be kept is written in one transaction, and synced once."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple

from imondrian.service.store import StorageError, Store

_MAX_TOGETHER = 1024
Work = Callable[[Store], Any]


class _Waiting(NamedTuple):
    work: Work
    done: Future[Any]


class Writer:
    """A thread that alone writes to the store; whoever asks it waits until what was asked is on the disk."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._is_closed, self._door = False, threading.Lock()
        self._thread = threading.Thread(target=self._run, name="imondrian-writer", daemon=True)
        self._thread.start()
        self.failure: StorageError | None = None  # why the last transaction failed; None if it did not

    def submit(self, work: Work) -> Future[Any]:
        """Have something written; the future is done when it is on the disk, or has the reason why it is not."""
        done: Future[Any] = Future()
        with self._door:
            if self._is_closed:
                raise StorageError("The service ends.")
            self._queue.put(_Waiting(work, done))
        return done

    def write(self, work: Work) -> Any:
        """Have something written, and wait for it."""
        return self.submit(work).result()

    def tried_again(self) -> StorageError | None:
        """Give the reason why the last transaction failed, unless a large one works now."""
        if self.failure is not None:
            with suppress(StorageError):
                self.write(Store.fill)
                self.write(Store.clear)
        return self.failure

    def close(self) -> None:
        """Write what is waiting, and end."""
        with self._door:
            self._is_closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            together, is_last = self._taken()
            if together:
                self._commit(together)
            if is_last:
                return

    def _taken(self) -> tuple[list[_Waiting], bool]:
        """Wait for something to write, and take all that waits with it."""
        together: list[_Waiting] = []
        waiting = self._queue.get()
        while waiting is not None:
            together.append(waiting)
            if len(together) == _MAX_TOGETHER or self._queue.empty():
                return together, False
            waiting = self._queue.get()
        return together, True

    def _commit(self, together: list[_Waiting]) -> None:
        try:
            with self._store.transaction():
                results = [waiting.work(self._store) for waiting in together]
        except Exception as error:  # noqa: BLE001 (whatever it is, those who wait must be told)
            self.failure = error if isinstance(error, StorageError) else None
            for waiting in together:
                waiting.done.set_exception(error)
            return
        self.failure = None
        for waiting, result in zip(together, results, strict=True):
            waiting.done.set_result(result)

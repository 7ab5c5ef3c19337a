"""Running tasks, for trees or for blocks of rows, on threads. Results never depend on the number of threads."""

import os
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from queue import SimpleQueue

Task = Callable[[], None]
_MAX_THREADS = 256  # even if a model file asks for more


class Threads:
    """Runs tasks on several threads, and keeps track of tasks that still run after an interruption.

    Parameters
    ----------
    n_jobs : int
        Number of threads, at most 256; -1 means one per processor, -2 one less, and so on.
    """

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs = n_jobs
        self.running: list[_TaskQueue] = []  # queues that are not finished yet

    @property
    def n_threads(self) -> int:
        """The actual number of threads, at least 1."""
        return min(self.n_jobs if self.n_jobs > 0 else max((os.cpu_count() or 1) + 1 + self.n_jobs, 1), _MAX_THREADS)

    def run(self, tasks: Iterable[Task]) -> None:
        """Run the tasks, up to `n_threads` at a time.

        If a task fails or the wait is interrupted, no further task starts, and the running ones are waited for. A
        second interruption ends that wait as well; then call `wait_for_running_tasks`.
        """
        tasks = list(tasks)
        n_workers = min(self.n_threads, len(tasks))
        if n_workers <= 1:
            for task in tasks:
                task()
            return
        queue = _TaskQueue(tasks)
        self.running.append(queue)
        try:
            for _ in range(n_workers):
                start_new_thread(queue.work, ())
            queue.wait()
        finally:
            queue.stop()
            self.running.remove(queue)
        if queue.failures:
            raise queue.failures[0]

    def wait_for_running_tasks(self) -> None:
        """Wait for tasks that still run although the call that started them was interrupted.

        Must not be called while another thread is inside `run`.
        """
        while self.running:
            self.running[-1].stop()
            self.running.pop()


class _TaskQueue:
    """Tasks that several threads work through.

    An interruption can occur between any two steps of the Python code of the waiting thread. That thread therefore
    keeps no counts and holds no locks: a single C function removes a task from the queue or cancels it, and the
    workers, which are never interrupted, record which tasks are done. (The locks of `threading` are partly Python code
    and could stay held.)
    """

    def __init__(self, tasks: list[Task]) -> None:
        self.failures: list[BaseException] = []
        self._n_tasks = len(tasks)
        self._process = os.getpid()
        self._pending = deque(tasks)
        self._done: list[Task] = []
        self._cancelled: list[Task] = []
        self._finished: SimpleQueue[None] = SimpleQueue()  # wakes the waiting thread

    def work(self) -> None:
        """Run one task after the other until none is left."""
        with suppress(IndexError):
            while True:
                self._run(self._pending.popleft())

    def _run(self, task: Task) -> None:
        try:
            task()
        except BaseException as failure:  # noqa: BLE001
            self.failures.append(failure)
            self._cancel()
        self._done.append(task)
        self._finished.put(None)

    def wait(self) -> None:
        """Wait until every task is done or cancelled; a forked process does not have the threads and does not wait."""
        while len(self._done) + len(self._cancelled) < self._n_tasks and os.getpid() == self._process:
            self._finished.get()

    def stop(self) -> None:
        """Start no further task, and wait for the running ones."""
        self._cancel()
        self.wait()

    def _cancel(self) -> None:
        with suppress(IndexError):
            self._cancelled.extend(iter(self._pending.popleft, None))


def even_slices(length: int, largest: int) -> list[slice]:
    """Divide range(length) into slices of nearly equal length, at most `largest`."""
    n_slices = max(-(-length // largest), 1)
    ends = [length * i // n_slices for i in range(n_slices + 1)]
    return [slice(first, last) for first, last in pairwise(ends)]

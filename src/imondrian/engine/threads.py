"""Threads over trees or over blocks of rows; results never depend on how many there are."""

import os
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from queue import SimpleQueue

Task = Callable[[], None]
_MOST = 256  # threads, whatever a model file asks for


class Threads:
    """Runs tasks on several threads, and knows of those that still run after an interruption.

    Parameters
    ----------
    n_jobs : int
        Number of threads, at most 256; -1 stands for one per processor, -2 for one less, and so on.
    """

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs = n_jobs
        self.crews: list[_Crew] = []  # at work

    @property
    def n(self) -> int:
        """Number of threads, at least one."""
        return min(self.n_jobs if self.n_jobs > 0 else max((os.cpu_count() or 1) + 1 + self.n_jobs, 1), _MOST)

    def run(self, tasks: Iterable[Task]) -> None:
        """Do the tasks, up to `n` at a time.

        If one fails, or the wait for them is interrupted, no other begins, and those under way are waited for. A second
        interruption ends that wait too: `wait_for_strays` makes up for it.
        """
        tasks = list(tasks)
        n_workers = min(self.n, len(tasks))
        if n_workers <= 1:
            for task in tasks:
                task()
            return
        crew = _Crew(tasks)
        self.crews.append(crew)
        try:
            for _ in range(n_workers):
                start_new_thread(crew.work, ())
            crew.wait()
        finally:
            crew.stop()
            self.crews.remove(crew)
        if crew.failures:
            raise crew.failures[0]

    def wait_for_strays(self) -> None:
        """Wait for tasks that still run although the call that started them was interrupted.

        To be called when nobody else can be inside `run`.
        """
        while self.crews:
            self.crews[-1].stop()
            self.crews.pop()


class _Crew:
    """Tasks, and the threads that work them off.

    An interruption hits the thread that waits, between any two steps of its Python code. So that thread keeps no count
    and holds no lock: a task is taken from the queue, or cancelled, by a single C function, and the workers, which are
    never interrupted, note what is done. (The locks of `threading` are Python code in part, and can stay held.)
    """

    def __init__(self, tasks: list[Task]) -> None:
        self.failures: list[BaseException] = []
        self._n_tasks = len(tasks)
        self._waiting = deque(tasks)
        self._done: list[Task] = []
        self._cancelled: list[Task] = []
        self._news: SimpleQueue[None] = SimpleQueue()  # wakes the thread that waits

    def work(self) -> None:
        """Take one task after the other, until none is left."""
        with suppress(IndexError):
            while True:
                self._do(self._waiting.popleft())

    def _do(self, task: Task) -> None:
        try:
            task()
        except BaseException as failure:  # noqa: BLE001
            self.failures.append(failure)
            self._cancel()
        self._done.append(task)
        self._news.put(None)

    def wait(self) -> None:
        """Wait until every task is done or cancelled."""
        while len(self._done) + len(self._cancelled) < self._n_tasks:
            self._news.get()

    def stop(self) -> None:
        """Let no further task begin, and wait for those under way."""
        self._cancel()
        self.wait()

    def _cancel(self) -> None:
        with suppress(IndexError):
            self._cancelled.extend(iter(self._waiting.popleft, None))


def pieces(length: int, largest: int) -> list[slice]:
    """Cut range(length) into slices no longer than `largest`, as even as can be."""
    n_pieces = max(-(-length // largest), 1)
    ends = [length * i // n_pieces for i in range(n_pieces + 1)]
    return [slice(first, last) for first, last in pairwise(ends)]

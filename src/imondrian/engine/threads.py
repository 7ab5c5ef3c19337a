"""Threads over trees or over blocks of rows; results never depend on how many there are."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise

Task = Callable[[], None]


def run(tasks: Iterable[Task], n_jobs: int) -> None:
    """Do the tasks, up to n_threads(n_jobs) at a time.

    If one fails, or the wait for them is interrupted, those under way are waited for, and no other begins.
    """
    tasks = list(tasks)
    n_workers = min(n_threads(n_jobs), len(tasks))
    if n_workers <= 1:
        for task in tasks:
            task()
        return
    crew = _Crew(tasks)
    try:
        for _ in range(n_workers):
            threading.Thread(target=crew.work).start()
        crew.wait()
    finally:
        crew.stop()
    if crew.failure is not None:
        raise crew.failure


class _Crew:
    """Tasks, and the threads that work them off.

    Unlike the pools of the standard library it knows of a thread also when the start of that was interrupted.
    """

    def __init__(self, tasks: list[Task]) -> None:
        self.failure: BaseException | None = None
        self._waiting = deque(tasks)
        self._n_under_way = 0
        self._changed = threading.Condition()

    def work(self) -> None:
        """Take one task after the other, until none is left."""
        while True:
            with self._changed:
                if not self._waiting:
                    return
                task = self._waiting.popleft()
                self._n_under_way += 1
            try:
                task()
            except BaseException as failure:  # noqa: BLE001
                self.failure = failure
                self._waiting.clear()
            with self._changed:
                self._n_under_way -= 1
                self._changed.notify_all()

    def wait(self) -> None:
        """Wait until all tasks are done."""
        with self._changed:
            while self._waiting or self._n_under_way:
                self._changed.wait()

    def stop(self) -> None:
        """Let no further task begin, and wait for those under way."""
        with self._changed:
            self._waiting.clear()
        self.wait()


def n_threads(n_jobs: int) -> int:
    """Give the number of threads: -1 stands for one per processor, -2 for one less, and so on, at least one."""
    return n_jobs if n_jobs > 0 else max((os.cpu_count() or 1) + 1 + n_jobs, 1)


def pieces(length: int, largest: int) -> list[slice]:
    """Cut range(length) into slices no longer than `largest`, as even as can be."""
    n_pieces = max(-(-length // largest), 1)
    ends = [length * i // n_pieces for i in range(n_pieces + 1)]
    return [slice(first, last) for first, last in pairwise(ends)]

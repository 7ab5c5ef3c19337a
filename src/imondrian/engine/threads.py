"""Threads over trees or over blocks of rows; results never depend on how many there are."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise

Task = Callable[[], None]


class Threads:
    """Runs tasks on several threads, and knows of those that still run after an interruption.

    Parameters
    ----------
    n_jobs : int
        Number of threads; -1 stands for one per processor, -2 for one less, and so on.
    """

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs = n_jobs
        self.crews: list[_Crew] = []  # at work

    @property
    def n(self) -> int:
        """Number of threads, at least one."""
        return self.n_jobs if self.n_jobs > 0 else max((os.cpu_count() or 1) + 1 + self.n_jobs, 1)

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
                threading.Thread(target=crew.work).start()
            crew.wait()
        finally:
            crew.stop()
            self.crews.remove(crew)
        if crew.failure is not None:
            raise crew.failure

    def wait_for_strays(self) -> None:
        """Wait for tasks that still run although the call that started them was interrupted.

        To be called when nobody else can be inside `run`.
        """
        while self.crews:
            self.crews[-1].stop()
            self.crews.pop()


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


def pieces(length: int, largest: int) -> list[slice]:
    """Cut range(length) into slices no longer than `largest`, as even as can be."""
    n_pieces = max(-(-length // largest), 1)
    ends = [length * i // n_pieces for i in range(n_pieces + 1)]
    return [slice(first, last) for first, last in pairwise(ends)]

"""The jobs of a worker that have not been applied yet, and the limits on them."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from imondrian.base.errors import InvalidInputError
from imondrian.service.changes.journal import Entry
from imondrian.service.changes.replies import Reply
from imondrian.service.errors import QueueFullError
from imondrian.service.limits import KEY_BYTES, Limits

NO_KEYS = frozenset[str]()


class Job(NamedTuple):
    """A request to change a detector."""

    kind: str
    content: bytes
    n_points: int
    request: str | None
    time: float
    future: Future[Reply]
    keys: frozenset[str] = NO_KEYS  # of its points, if the detector has a key


class JournalledJob(NamedTuple):
    """A job and its journal entry."""

    job: Job
    entry: Entry


class QueueSize:
    """Counts the jobs of a queue, their points and their bytes."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.n_points = self.n_bytes = self.n_jobs = 0

    def check(self, n_points: int, n_bytes: int) -> None:
        """Raise QueueFullError if another job would exceed a limit; an empty queue accepts any job."""
        is_full = (
            self.n_points + n_points > self._limits.waiting_points
            or self.n_bytes + n_bytes > self._limits.waiting_bytes
            or self.n_jobs >= self._limits.waiting_requests
        )
        if self.n_jobs and is_full:
            raise QueueFullError(f"The queue is full: {self.n_points} points in {self.n_jobs} requests are waiting.")

    def add(self, job: Job) -> None:
        """Count a job."""
        self.n_points += job.n_points
        self.n_bytes += len(job.content)
        self.n_jobs += 1

    def remove(self, jobs: list[Job]) -> None:
        """Subtract jobs."""
        self.n_points -= sum(job.n_points for job in jobs)
        self.n_bytes -= sum(len(job.content) for job in jobs)
        self.n_jobs -= len(jobs)


class QueuedKeys:
    """The new keys of jobs that have not been applied, and the limits on the number of keys of a detector.

    Parameters
    ----------
    limits : Limits
        The largest number of keys of a detector; also the memory of all detectors, which is named in error messages.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._lock = limits, threading.Lock()
        self._new_keys: dict[Future[Reply], frozenset[str]] = {}  # of each job
        self._n_jobs = Counter[str]()  # in which each of these keys occurs

    @property
    def n_bytes(self) -> int:
        """Memory that these keys will need."""
        return KEY_BYTES * len(self._n_jobs)

    def check(self, keys: frozenset[str], known: Mapping[str, Any], max_in_memory: Callable[[], int]) -> None:
        """Raise InvalidInputError if known keys, keys of waiting jobs and keys of a request are too many together.

        Parameters
        ----------
        keys : frozenset of str
            The keys of the request.
        known : dict
            The keys of the detector.
        max_in_memory : callable
            Returns how many keys the detector may have so that all detectors fit into their memory.
        """
        new = keys.difference(known)
        if not new:
            return
        max_keys = min(self._limits.keys, max_in_memory())
        if len(known) + len(self._n_jobs) + len(new) <= max_keys:
            return
        with self._lock:
            waiting = set(self._n_jobs)
        waiting.difference_update(known)
        n_new, n_others = len(new - waiting), len(known) + len(waiting)
        if n_new and n_others + n_new > max_keys:
            where = f" in the {self._limits.total_bytes} bytes of all detectors (imondrian serve --max-memory)"
            raise InvalidInputError(
                f"The detector has {n_others} keys, and the request has {n_new} others, but at most {max_keys} keys"
                f" are allowed{where if max_keys < self._limits.keys else ''}."
            )

    def add(self, job: Job, known: Mapping[str, Any]) -> None:
        """Add the new keys of a job; they are removed when its future is done, or earlier by `remove`."""
        new = job.keys.difference(known)
        if new:
            with self._lock:
                self._new_keys[job.future] = new
                if self._n_jobs:
                    self._n_jobs.update(new)
                else:  # much faster
                    self._n_jobs = Counter(dict.fromkeys(new, 1))
            job.future.add_done_callback(self._remove)

    def remove(self, jobs: list[Job]) -> None:
        """Remove the keys of jobs that have been applied."""
        for job in jobs:
            self._remove(job.future)

    def _remove(self, future: Future[Reply]) -> None:
        with self._lock:
            keys = self._new_keys.pop(future, ())
            if not self._new_keys:  # much faster than removing each key
                self._n_jobs = Counter()
                return
            for key in keys:
                self._n_jobs[key] -= 1
                if not self._n_jobs[key]:
                    del self._n_jobs[key]

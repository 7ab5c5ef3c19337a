"""The jobs of a worker that have not been applied yet, and the limits on them."""

from concurrent.futures import Future
from typing import NamedTuple

from imondrian.service.changes.journal import Entry
from imondrian.service.changes.replies import Reply
from imondrian.service.errors import QueueFullError
from imondrian.service.limits import Limits


class Job(NamedTuple):
    """A request to change a detector."""

    kind: str
    content: bytes
    n_points: int
    request: str | None
    time: float
    future: Future[Reply]


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

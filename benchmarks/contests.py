"""A contest is a group of workloads that are measured together. The names of workloads never change."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from timing import Measurement


class Effort(NamedTuple):
    """How much is measured: the divisor of all sizes, and the maximum number of repeats."""

    name: str
    divisor: int
    max_repeats: int

    def rows(self, n_rows: int) -> int:
        """Return the number of rows, at least enough for the sample of a tree."""
        return max(n_rows // self.divisor, min(n_rows, 512))

    def repeats(self, n_repeats: int) -> int:
        """Return the number of repeats."""
        return min(n_repeats, self.max_repeats)


FULL = Effort("full", 1, 1_000)
QUICK = Effort("quick: small sizes and few repeats; times and results are meaningless", 100, 2)


def can_run() -> str | None:
    """Return None: the contest can be measured."""
    return None


class Contest(NamedTuple):
    """Workloads that are measured together."""

    names: tuple[str, ...]
    measure: Callable[[Effort], Iterable[Measurement]]
    reason_to_skip: Callable[[], str | None] = can_run  # returns why it cannot be measured, or None

"""A contest: workloads that are measured together, by their names for ever; and how much of it is done."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from timing import Measurement


class Effort(NamedTuple):
    """How much is done: what share of the rows, and at most how many repeats."""

    name: str
    divisor: int
    most_repeats: int

    def rows(self, n_rows: int) -> int:
        """Give the number of rows, enough for a sample of a tree."""
        return max(n_rows // self.divisor, min(n_rows, 512))

    def repeats(self, n_repeats: int) -> int:
        """Give the number of repeats."""
        return min(n_repeats, self.most_repeats)


FULL = Effort("full", 1, 1_000)
QUICK = Effort("quick: sizes are small and repeats few; neither times nor verdicts mean anything", 100, 2)


def nothing() -> str | None:
    """Stand in the way of no contest."""
    return None


class Contest(NamedTuple):
    """Workloads that are measured together."""

    names: tuple[str, ...]
    measure: Callable[[Effort], Iterable[Measurement]]
    hindrance: Callable[[], str | None] = nothing  # tells why it cannot be measured here, if it cannot

"""Work that is done several times, as often as a budget of time allows."""

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any, TypeVar

Repeat = TypeVar("Repeat")
Row = dict[str, Any]  # a line of a table of results
Progress = Callable[[str, float], None]  # is told what has been done, and the share of all that is done


def within_budget(
    repeats: Sequence[Repeat], budget: float, clock: Callable[[], float] = perf_counter
) -> Iterator[Repeat]:
    """Give repeats while the next one is expected to end within so many seconds; the first in any case.

    Examples
    --------
    >>> list(within_budget([1, 2, 3], budget=60.0))
    [1, 2, 3]
    >>> list(within_budget([1, 2, 3], budget=0.0))
    [1]
    """
    start = clock()
    for n_done, repeat in enumerate(repeats):
        if n_done > 0 and (clock() - start) * (n_done + 1) / n_done > budget:
            return
        yield repeat


def subprogress(progress: Progress, start: float, end: float) -> Progress:
    """Give a function that is told the share of a part, which lies between these shares of the whole."""
    return lambda text, share: progress(text, start + (end - start) * share)

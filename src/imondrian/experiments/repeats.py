"""Repetitions within a time budget; the types of result rows and of progress callbacks."""

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any, TypeVar

Repeat = TypeVar("Repeat")
Row = dict[str, Any]  # of a table of results
StepProgress = Callable[[str, float], None]  # called with what has been done and the share of all work done


def within_budget(
    repeats: Sequence[Repeat], budget: float, clock: Callable[[], float] = perf_counter
) -> Iterator[Repeat]:
    """Yield repeats while the next one is expected to end within `budget` seconds; always yield the first.

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


def subprogress(progress: StepProgress, start: float, end: float) -> StepProgress:
    """Return a progress callback for a part of the work, from share `start` to share `end` of the whole."""
    return lambda text, share: progress(text, start + (end - start) * share)

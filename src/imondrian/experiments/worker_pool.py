"""Independent pieces of work, several at a time, each in a process of its own with one thread."""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_limits

from imondrian.errors import ImondrianError

_POLL = 0.5  # seconds: whoever waits without an end may not hear of a signal that another thread received
Work = Callable[..., Any]
Arguments = Sequence[tuple[Any, ...]]
ItemDone = Callable[[int, float], None]  # is told the place of what is done, and the share of all that is done
ParallelMap = Callable[[Work, Arguments, ItemDone], list[Any]]


@contextmanager
def workers(n: int) -> Iterator[ParallelMap]:
    """Give a function that does one kind of work on each of many arguments, at most n at a time.

    It takes the work, the tuples of arguments, and a function that is told of each that is done; it gives the results
    in the order of the tuples. What takes longest should come first. With n = 1 no process is started.

    Examples
    --------
    >>> with workers(1) as parallel_map:
    ...     parallel_map(pow, [(2, 3), (3, 2)], lambda place, share: None)
    [8, 9]
    """
    if n == 1:
        yield _one_by_one
        return
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(n, multiprocessing.get_context("spawn"), _ignore_interrupts)
    try:
        yield lambda work, arguments, progress: _in_pool(pool, work, arguments, progress)
    except BaseException:
        for child in multiprocessing.active_children():
            if child not in others:
                child.terminate()  # else it would go on for minutes
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _one_by_one(work: Work, arguments: Arguments, progress: ItemDone) -> list[Any]:
    results = []
    for place, chosen in enumerate(arguments):
        results.append(_with_one_thread(work, chosen))
        progress(place, (place + 1) / len(arguments))
    return results


def _in_pool(pool: ProcessPoolExecutor, work: Work, arguments: Arguments, progress: ItemDone) -> list[Any]:
    results: list[Any] = [None] * len(arguments)
    try:
        places: dict[Future[Any], int] = {
            pool.submit(_with_one_thread, work, chosen): place for place, chosen in enumerate(arguments)
        }
        for n_done, future in enumerate(_as_they_end(places), 1):
            results[places[future]] = future.result()
            progress(places[future], n_done / len(arguments))
    except BrokenProcessPool:
        raise ImondrianError("A process that was measuring has been killed; was there enough memory?") from None
    return results


def _as_they_end(futures: Iterable[Future[Any]]) -> Iterator[Future[Any]]:
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, _POLL, FIRST_COMPLETED)
        yield from done


def _with_one_thread(work: Work, arguments: tuple[Any, ...]) -> Any:
    """Work with one thread, so that seconds can be compared."""
    with threadpool_limits(1):
        return work(*arguments)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process sees to that

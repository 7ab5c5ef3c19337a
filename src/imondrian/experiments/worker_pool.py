"""A pool of worker processes with one thread each, for independent pieces of work."""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_limits

from imondrian.base.errors import ImondrianError

_POLL = 0.5  # seconds; a wait without a timeout may miss a signal that another thread received
Work = Callable[..., Any]
Arguments = Sequence[tuple[Any, ...]]
ItemDone = Callable[[int, float], None]  # called with the index of a finished item and the share of all items finished
ParallelMap = Callable[[Work, Arguments, ItemDone], list[Any]]


@contextmanager
def worker_pool(n: int) -> Iterator[ParallelMap]:
    """Yield a function that calls another function with each of many argument tuples, at most n at a time.

    Its arguments are the function to call, the argument tuples, and a function to call after each one; it returns the
    results in the order of the tuples. Put the slowest items first. With n = 1 no process is started.

    Examples
    --------
    >>> with worker_pool(1) as parallel_map:
    ...     parallel_map(pow, [(2, 3), (3, 2)], lambda index, share: None)
    [8, 9]
    """
    if n == 1:
        yield _one_by_one
        return
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(n, multiprocessing.get_context("spawn"), _ignore_interrupts)
    try:
        yield lambda work, arguments, item_done: _in_pool(pool, work, arguments, item_done)
    except BaseException:
        for child in multiprocessing.active_children():
            if child not in others:
                child.terminate()  # otherwise it could run for minutes
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _one_by_one(work: Work, arguments: Arguments, item_done: ItemDone) -> list[Any]:
    results = []
    for index, one in enumerate(arguments):
        results.append(_with_one_thread(work, one))
        item_done(index, (index + 1) / len(arguments))
    return results


def _in_pool(pool: ProcessPoolExecutor, work: Work, arguments: Arguments, item_done: ItemDone) -> list[Any]:
    results: list[Any] = [None] * len(arguments)
    try:
        indices: dict[Future[Any], int] = {
            pool.submit(_with_one_thread, work, one): index for index, one in enumerate(arguments)
        }
        for n_done, future in enumerate(_as_completed(indices), 1):
            results[indices[future]] = future.result()
            item_done(indices[future], n_done / len(arguments))
    except BrokenProcessPool:
        raise ImondrianError("A worker process was killed, perhaps because memory ran out.") from None
    return results


def _as_completed(futures: Iterable[Future[Any]]) -> Iterator[Future[Any]]:
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, _POLL, FIRST_COMPLETED)
        yield from done


def _with_one_thread(work: Work, arguments: tuple[Any, ...]) -> Any:
    """Call work with one thread, so that times are comparable."""
    with threadpool_limits(1):
        return work(*arguments)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles it

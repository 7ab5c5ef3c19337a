"""A pool of threads over trees or over blocks of rows; results never depend on how many there are."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise


def run(tasks: Iterable[Callable[[], None]], n_jobs: int) -> None:
    """Do the tasks, up to n_threads(n_jobs) at a time."""
    tasks = list(tasks)
    if min(n_threads(n_jobs), len(tasks)) <= 1:
        for task in tasks:
            task()
        return
    with ThreadPoolExecutor(min(n_threads(n_jobs), len(tasks))) as pool:
        for future in [pool.submit(task) for task in tasks]:
            future.result()


def n_threads(n_jobs: int) -> int:
    """Give the number of threads: -1 stands for one per processor, -2 for one less, and so on, at least one."""
    return n_jobs if n_jobs > 0 else max((os.cpu_count() or 1) + 1 + n_jobs, 1)


def pieces(length: int, largest: int) -> list[slice]:
    """Cut range(length) into slices no longer than `largest`, as even as can be."""
    n_pieces = max(-(-length // largest), 1)
    ends = [length * i // n_pieces for i in range(n_pieces + 1)]
    return [slice(first, last) for first, last in pairwise(ends)]

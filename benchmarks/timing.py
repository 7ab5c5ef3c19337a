"""Timing: warm up, alternate between the contestants, store every repeat, compare medians of one run."""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import cycle, islice
from typing import Any, NamedTuple

PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6}


class Entrant(NamedTuple):
    """A contestant ("ours" or the name of a peer) and its number of threads."""

    contestant: str
    threads: int = 1


class Measurement(NamedTuple):
    """The values of one entrant in one workload, one for each repeat."""

    workload: str
    contestant: str
    threads: int
    unit: str
    values: list[float]

    @property
    def median(self) -> float:
        """The median over the repeats, which is what is reported."""
        return statistics.median(self.values)


class Task(NamedTuple):
    """A function to time, the number of rows, points or forests it processes, and its warm-up."""

    run: Callable[[], object]
    n: int = 1
    warm_up: Callable[[], object] | None = None  # default: one run

    def seconds(self) -> float:
        """Run once, and return the seconds per item."""
        start = time.perf_counter()
        self.run()
        return (time.perf_counter() - start) / self.n


def time_tasks(workload: str, tasks: dict[Entrant, Task], repeats: int, unit: str) -> list[Measurement]:
    """Warm up all entrants, then time them alternately; the unit begins with "s", "ms" or "us"."""
    factor = PER_SECOND[unit.split(maxsplit=1)[0]]
    seconds = time_alternately(tasks, repeats)
    return measurements(
        workload, {entrant: [factor * value for value in values] for entrant, values in seconds.items()}, unit
    )


def measurements(workload: str, found: dict[Entrant, list[float]], unit: str) -> list[Measurement]:
    """Return the measurements of a workload, sorted by the number of threads."""
    return [
        Measurement(workload, *entrant, unit, found[entrant])
        for entrant in sorted(found, key=lambda entrant: entrant.threads)
    ]


def time_alternately(tasks: dict[Entrant, Task], repeats: int) -> dict[Entrant, list[float]]:
    """Warm up all entrants, then time them alternately; return the seconds of every repeat."""
    for task in tasks.values():
        (task.warm_up or task.run)()
    return measure_alternately({entrant: task.seconds for entrant, task in tasks.items()}, repeats)


def measure_alternately(measures: Mapping[Entrant, Callable[[], float]], repeats: int) -> dict[Entrant, list[float]]:
    """Call the measuring functions alternately, `repeats` times each."""
    found: dict[Entrant, list[float]] = {entrant: [] for entrant in measures}
    for _ in range(repeats):
        for entrant, measure in measures.items():
            found[entrant].append(measure())
    return found


def cycling_task(call: Callable[[Any], object], items: Iterable[Any], n: int, each: int = 1) -> Task:
    """Return a task that calls a function with the next n items, cycling over them; an item has `each` rows."""
    endless = cycle(items)

    def run() -> None:
        for item in islice(endless, n):
            call(item)

    return Task(run, n * each)

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


class Work(NamedTuple):
    """A function to time, the number of rows, points or forests it processes, and its warm-up."""

    run: Callable[[], object]
    n: int = 1
    warm_up: Callable[[], object] | None = None  # default: one run

    def seconds(self) -> float:
        """Run once, and return the seconds per item."""
        start = time.perf_counter()
        self.run()
        return (time.perf_counter() - start) / self.n


def timed(workload: str, works: dict[Entrant, Work], repeats: int, unit: str) -> list[Measurement]:
    """Warm up all entrants, then time them alternately; the unit begins with "s", "ms" or "us"."""
    factor = PER_SECOND[unit.split(maxsplit=1)[0]]
    seconds = interleaved(works, repeats)
    return measurements(workload, {who: [factor * value for value in values] for who, values in seconds.items()}, unit)


def measurements(workload: str, found: dict[Entrant, list[float]], unit: str) -> list[Measurement]:
    """Return the measurements of a workload, sorted by the number of threads."""
    return [Measurement(workload, *who, unit, found[who]) for who in sorted(found, key=lambda who: who.threads)]


def interleaved(works: dict[Entrant, Work], repeats: int) -> dict[Entrant, list[float]]:
    """Warm up all entrants, then time them alternately; return the seconds of every repeat."""
    for work in works.values():
        (work.warm_up or work.run)()
    return gathered({who: work.seconds for who, work in works.items()}, repeats)


def gathered(measures: Mapping[Entrant, Callable[[], float]], repeats: int) -> dict[Entrant, list[float]]:
    """Call the measuring functions alternately, `repeats` times each."""
    found: dict[Entrant, list[float]] = {who: [] for who in measures}
    for _ in range(repeats):
        for who, measure in measures.items():
            found[who].append(measure())
    return found


def in_turn(call: Callable[[Any], object], items: Iterable[Any], n: int, each: int = 1) -> Work:
    """Return work that calls a function with the next n items, cycling over them; an item may be a block of rows."""
    endless = cycle(items)

    def run() -> None:
        for item in islice(endless, n):
            call(item)

    return Work(run, n * each)

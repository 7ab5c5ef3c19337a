"""How times are taken: warmed up, in turns, every repeat kept; compared as medians within one run."""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import cycle, islice
from typing import Any, NamedTuple

PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6}


class Entrant(NamedTuple):
    """Who is measured: "ours" or the name of a peer, on so many threads."""

    contestant: str
    threads: int = 1


class Measurement(NamedTuple):
    """What was found for one entrant in one workload, once for each repeat."""

    workload: str
    contestant: str
    threads: int
    unit: str
    values: list[float]

    @property
    def median(self) -> float:
        """The value that is reported."""
        return statistics.median(self.values)


class Work(NamedTuple):
    """Something to time: what is run, how many rows, points or forests that is, and how it is warmed up."""

    run: Callable[[], object]
    n: int = 1
    warm_up: Callable[[], object] | None = None  # by default a run

    def seconds(self) -> float:
        """Run it, and give the seconds for each of the n."""
        start = time.perf_counter()
        self.run()
        return (time.perf_counter() - start) / self.n


def timed(workload: str, works: dict[Entrant, Work], repeats: int, unit: str) -> list[Measurement]:
    """Warm all entrants up, then time them in turns; the unit begins with "s", "ms" or "us"."""
    factor = PER_SECOND[unit.split(maxsplit=1)[0]]
    seconds = interleaved(works, repeats)
    return measurements(workload, {who: [factor * value for value in values] for who, values in seconds.items()}, unit)


def measurements(workload: str, found: dict[Entrant, list[float]], unit: str) -> list[Measurement]:
    """Make the records of a workload, those of fewer threads first."""
    return [Measurement(workload, *who, unit, found[who]) for who in sorted(found, key=lambda who: who.threads)]


def interleaved(works: dict[Entrant, Work], repeats: int) -> dict[Entrant, list[float]]:
    """Warm all up, then time them in turns; give the seconds of every repeat."""
    for work in works.values():
        (work.warm_up or work.run)()
    return gathered({who: work.seconds for who, work in works.items()}, repeats)


def gathered(measures: Mapping[Entrant, Callable[[], float]], repeats: int) -> dict[Entrant, list[float]]:
    """Measure all in turns, so many times over."""
    found: dict[Entrant, list[float]] = {who: [] for who in measures}
    for _ in range(repeats):
        for who, measure in measures.items():
            found[who].append(measure())
    return found


def in_turn(call: Callable[[Any], object], things: Iterable[Any], n: int, each: int = 1) -> Work:
    """Make the work of calling with the next n of the things, over and over; a thing may be a block of rows."""
    endless = cycle(things)

    def run() -> None:
        for thing in islice(endless, n):
            call(thing)

    return Work(run, n * each)

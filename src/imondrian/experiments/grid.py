"""Tables of methods and sets, cell by cell."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from imondrian.datasets import Dataset
from imondrian.experiments.methods import Method
from imondrian.experiments.repeats import Progress, Row
from imondrian.experiments.worker_pool import ParallelMap


def run_grid(
    doing: str,
    work: Callable[..., list[Row]],
    sets: Sequence[Dataset],
    methods: Mapping[str, Method],
    settings: tuple[Any, ...],
    parallel_map: ParallelMap,
    progress: Progress,
) -> list[Row]:
    """Do the work for every set and method, larger sets first since they take longest; give the rows set by set.

    The work is called with a set, a method and the settings; what it gives is told apart by set and method.
    """
    cells = [(data, name) for data in sets for name in methods]
    by_size = sorted(range(len(cells)), key=lambda place: -len(cells[place][0].X))

    def report_done(place: int, share: float) -> None:
        data, name = cells[by_size[place]]
        progress(f"{doing}: {data.name}, {methods[name].title}", share)

    arguments = [(cells[place][0], methods[cells[place][1]], *settings) for place in by_size]
    found = dict(zip(by_size, parallel_map(work, arguments, report_done), strict=True))
    return [
        {"set": data.name, "method": name} | row for place, (data, name) in enumerate(cells) for row in found[place]
    ]

"""Run an experiment for every pair of a data set and a method."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from imondrian.datasets import Dataset
from imondrian.experiments.methods import Method
from imondrian.experiments.repeats import Row, StepProgress
from imondrian.experiments.worker_pool import ParallelMap


def run_grid(
    experiment: str,
    work: Callable[..., list[Row]],
    sets: Sequence[Dataset],
    methods: Mapping[str, Method],
    settings: tuple[Any, ...],
    parallel_map: ParallelMap,
    progress: StepProgress,
) -> list[Row]:
    """Call ``work(data, method, *settings)`` for every data set and method; return all rows, data set by data set.

    Larger sets run first, because they take longest. The columns "set" and "method" are added to each row.
    """
    cells = [(data, name) for data in sets for name in methods]
    by_size = sorted(range(len(cells)), key=lambda i: -len(cells[i][0].X))

    def report_done(n: int, share: float) -> None:
        data, name = cells[by_size[n]]
        progress(f"{experiment}: {data.name}, {methods[name].title}", share)

    arguments = [(cells[i][0], methods[cells[i][1]], *settings) for i in by_size]
    results = dict(zip(by_size, parallel_map(work, arguments, report_done), strict=True))
    return [{"set": data.name, "method": name} | row for i, (data, name) in enumerate(cells) for row in results[i]]

"""Table III of the paper: online detection in five stages; after each, all rows so far are scored again."""

from collections.abc import Mapping, Sequence
from time import perf_counter

import numpy as np

from imondrian.datasets import Dataset
from imondrian.engine.jit import Array
from imondrian.experiments.grid import run_grid
from imondrian.experiments.methods import Method, warm_up
from imondrian.experiments.ranking_metrics import auc
from imondrian.experiments.repeats import Row, StepProgress, within_budget
from imondrian.experiments.splits import published_stages
from imondrian.experiments.worker_pool import ParallelMap

COLUMNS = ("set", "method", "seed", "part", "n_rows", "auc", "seconds")


def run(
    sets: Sequence[Dataset],
    methods: Mapping[str, Method],
    seeds: Sequence[int],
    budget: float,
    parallel_map: ParallelMap,
    progress: StepProgress,
) -> list[Row]:
    """Run every method on every set in the stages of the paper, once for each seed if the method is random.

    The method is fitted on the first stage and extended by the others. The seconds of a stage include learning it and
    scoring all rows so far. A method that would exceed the budget on a set is run with fewer seeds, at least one.
    """
    return run_grid("online", _cell, sets, methods, (seeds, budget), parallel_map, progress)


def _cell(data: Dataset, method: Method, seeds: Sequence[int], budget: float) -> list[Row]:
    warm_up(method, data.X)
    stages = published_stages(data)
    return [
        {"seed": seed} | row
        for seed in within_budget(seeds_of(method, seeds), budget)
        for row in measure_stages(data, stages, method, seed)
    ]


def seeds_of(method: Method, seeds: Sequence[int]) -> Sequence[int]:
    """Return all seeds for a random method, and only the first for a deterministic one."""
    return seeds if method.is_random else seeds[:1]


def measure_stages(data: Dataset, stages: Sequence[Array], method: Method, seed: int) -> list[Row]:
    """Run one method through the stages; return a row of measurements for each."""
    detector = method.make(seed)
    so_far = np.empty(0, dtype=np.int64)
    rows: list[Row] = []
    for number, stage in enumerate(stages, 1):
        so_far = np.concatenate([so_far, stage])
        start = perf_counter()
        (detector.fit if number == 1 else detector.extend)(data.X[stage])
        scores = detector.learned_scores()
        seconds = perf_counter() - start
        measured = {"n_rows": len(so_far), "auc": auc(data.y[so_far], scores), "seconds": seconds}
        rows.append({"part": str(number)} | measured)
    return rows

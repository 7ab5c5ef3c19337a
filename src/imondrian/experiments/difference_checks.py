"""Measure the effect of possible causes of differences between our results and the paper's."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from imondrian.datasets import Dataset
from imondrian.experiments import batch, online
from imondrian.experiments.comparison import Comparison
from imondrian.experiments.methods import BATCH, ONLINE, Method
from imondrian.experiments.paper_results import STAGES
from imondrian.experiments.published_scripts import PublishedForest, PublishedLOF, PublishedOsPCA1, PublishedOsPCA2
from imondrian.experiments.repeats import Row, StepProgress, within_budget
from imondrian.experiments.splits import N_FOLDS, n_folds_of, published_folds, published_stages, stratified_folds
from imondrian.experiments.worker_pool import ParallelMap

COLUMNS = ("check", "set", "method", "seed", "part", "auc")
PARTS = {"batch": ("train", "test"), "online": STAGES}
_BUDGET_FACTOR = 2.0  # times the normal budget, because the range of only a few results explains little
_SEEDS = range(1_000, 1_040)  # other seeds than those of the tables


class Check(NamedTuple):
    """A possible cause of a difference: another way in which the paper's figure may have been obtained."""

    table: str
    methods: tuple[str, ...]
    text: str
    measure: Callable[[Dataset, str, int], Iterable[Row]]  # for a set, a method and a seed: the AUC of each part
    seeds: Sequence[int] = _SEEDS


def run(
    table: str,
    differing: Sequence[Comparison],
    sets: Sequence[Dataset],
    budget: float,
    parallel_map: ParallelMap,
    progress: StepProgress,
) -> list[Row]:
    """Run every check that may explain a difference, for the sets and methods that differ."""
    by_name = {data.name: data for data in sets}
    differing_cells = dict.fromkeys((entry.cell.set, entry.cell.method) for entry in differing)
    cells = [
        (key, by_name[name], method, budget) for name, method in differing_cells for key in checks_of(table, method)
    ]

    def report_done(i: int, share: float) -> None:
        key, data, method, _ = cells[i]
        progress(f"{table}, check of a difference: {data.name}, {method}, {key}", share)

    return [row for rows in parallel_map(_cell, cells, report_done) for row in rows]


def _cell(key: str, data: Dataset, method: str, budget: float) -> list[Row]:
    check = CHECKS[key]
    common = {"check": key, "set": data.name, "method": method}
    return [
        common | {"seed": seed, "part": row["part"], "auc": row["auc"]}
        for seed in within_budget(check.seeds, _BUDGET_FACTOR * budget)
        for row in check.measure(data, method, seed)
    ]


def checks_of(table: str, method: str) -> list[str]:
    """Return the names of the checks for a method of a table."""
    return [key for key, check in CHECKS.items() if check.table == table and method in check.methods]


def _other_forests(data: Dataset, method: str, seed: int) -> list[Row]:
    """Repeat the table with another seed of the method."""
    folds = published_folds(data, n_folds_of(data, N_FOLDS))
    return _mean_over(
        [
            row
            for n, fold in enumerate(folds, 1)
            for row in batch.measure_fold(data, BATCH[method], fold, 1000 * seed + n)
        ]
    )


def _other_folds(data: Dataset, method: str, seed: int) -> list[Row]:
    folds = stratified_folds(data, n_folds_of(data, N_FOLDS), seed)
    return _mean_over([row for fold in folds for row in batch.measure_fold(data, BATCH[method], fold, seed)])


def _mean_over(rows: Sequence[Row]) -> list[Row]:
    """Return the mean of each part over the folds, as printed in the paper."""
    means = []
    for part in PARTS["batch"]:
        aucs = [row["auc"] for row in rows if row["part"] == part]
        means.append({"part": part, "auc": sum(aucs) / len(aucs)})
    return means


def _other_seeds(data: Dataset, method: str, seed: int) -> list[Row]:
    return online.measure_stages(data, published_stages(data), ONLINE[method], seed)


def _script(make: Callable[[int], Any]) -> Callable[[Dataset, str, int], list[Row]]:
    return lambda data, _method, seed: online.measure_stages(data, published_stages(data), Method("", make), seed)


CHECKS = {
    "forests": Check(
        "batch",
        ("imforest", "iforest"),
        "Other forests: the same folds, with other seeds of the trees. The paper's figure is one such run.",
        _other_forests,
    ),
    "folds": Check(
        "batch",
        ("lof", "svm"),
        "Other folds: the same method with other random splits into the same number of folds.",
        _other_folds,
    ),
    "seeds": Check(
        "online",
        ("imforest",),
        "Other forests: the same stages, with other seeds of the trees. The paper's figure is one such run.",
        _other_seeds,
    ),
    "script-forest": Check(
        "online",
        ("imforest",),
        "The authors' published script inserts rows of the first stage again instead of those of the later stages.",
        _script(PublishedForest),
    ),
    "script-lof": Check(
        "online",
        ("incremental-lof",),
        "In the authors' LOF, each row is the first of its own ten neighbours.",
        _script(lambda _seed: PublishedLOF()),
        _SEEDS[:1],
    ),
    "script-ospca1": Check(
        "online",
        ("ospca1",),
        "The authors' published script is not osPCA as described: it adds the squared length of the row to every entry"
        " of the covariance, instead of adding the outer product of the row with itself; it does not update the mean;"
        " and it scores a row only once, when it arrives.",
        _script(lambda _seed: PublishedOsPCA1()),
        _SEEDS[:1],
    ),
    "script-ospca2": Check(
        "online",
        ("ospca2",),
        "The authors' published script is not osPCA as described: it writes all scores of the first stage to one"
        " element, so that all but one are 0; it learns later rows twice, once before scoring them; and it scores a"
        " row only once, when it arrives.",
        _script(lambda _seed: PublishedOsPCA2()),
        _SEEDS[:1],
    ),
}

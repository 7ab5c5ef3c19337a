"""Run an experiment by name and write its records, figures and the page."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from imondrian import datasets
from imondrian.base.errors import InvalidInputError
from imondrian.base.files import atomic_write
from imondrian.datasets import Dataset
from imondrian.experiments import batch, difference_checks, long_stream, online, quality, synthetic_experiment
from imondrian.experiments.comparison import compare
from imondrian.experiments.figures import batch_figure, online_figure, quality_figure, stages_figure
from imondrian.experiments.methods import BATCH, ONLINE, QUALITY, Method
from imondrian.experiments.page.reproduction_page import FOLDER, write_page
from imondrian.experiments.paper_results import TITLES, published_stage_aucs
from imondrian.experiments.repeats import Row, StepProgress, subprogress
from imondrian.experiments.result_records import new_record, write_record
from imondrian.experiments.splits import N_FOLDS, n_folds_of
from imondrian.experiments.worker_pool import ParallelMap, worker_pool
from imondrian.plots import write_figure

_LARGE = "cicids"  # the online experiment uses a generated stream of the size of this set instead
_PAPER_SETS = tuple(name for name in datasets.names("paper") if name != _LARGE)
_PLANE_TITLES = {
    synthetic_experiment.HALF: "s > 0.5",
    "moons": "(a) moons",
    "blob": "(b) blob",
    "two-blobs": "(c) two blobs",
    "unequal-blobs": "(d) unequal blobs",
}


class Plan(NamedTuple):
    """What to run, on which data, how often, and where to write the results."""

    output: Path
    data: str | None = None  # data folder; None: the folder named by IMONDRIAN_DATA, or downloads
    datasets: tuple[str, ...] = ()  # empty: the default sets of each experiment
    methods: tuple[str, ...] = ()  # empty: all
    n_seeds: int | None = None  # None: the default of each experiment
    n_folds: int = N_FOLDS
    budget: float = 60.0  # seconds per method and set
    n_workers: int = 1  # processes that measure at the same time
    max_rows: int = 10_000  # per set, in the experiment "quality"


class Job(NamedTuple):
    """The input of an experiment: the names of its sets, the sets that were loaded, its methods, and the plan."""

    names: list[str]
    sets: list[Dataset]
    methods: dict[str, Method]
    plan: Plan
    parallel_map: ParallelMap
    progress: StepProgress


class Experiment(NamedTuple):
    """An experiment: what runs it, whether it has anything to run, and the data sets and methods that it can use."""

    run: Callable[[Job], None]
    has_work: Callable[[Job], bool]
    default_sets: tuple[str, ...]
    methods: Mapping[str, Method]
    allowed_sets: tuple[str, ...] = datasets.names()
    generated_sets: tuple[str, ...] = ()  # not loaded


def reproduce(what: str, plan: Plan, progress: StepProgress) -> Path:
    """Run one experiment, or "all", and write the page; return its path.

    At its end, every experiment writes its measurements and figures to the subfolder `reproduction` of the output and
    replaces earlier ones; the page `reproduction.md` is generated from all records in that folder.
    """
    selected = [EXPERIMENTS[name] for name in (EXPERIMENTS if what == "all" else [what])]
    _check_names(selected, plan)
    with worker_pool(plan.n_workers) as parallel_map:
        # load all data before running anything
        jobs = [_job(experiment, plan, parallel_map, progress) for experiment in selected]
        runnable = [
            (experiment, job) for experiment, job in zip(selected, jobs, strict=True) if experiment.has_work(job)
        ]
        if not runnable:
            raise InvalidInputError("There is nothing to run: no experiment uses these methods on these data sets.")
        _check_output(plan.output / FOLDER)
        for n_done, (experiment, job) in enumerate(runnable):
            experiment.run(
                job._replace(progress=subprogress(progress, n_done / len(runnable), (n_done + 1) / len(runnable)))
            )
            page = write_page(plan.output)  # after each experiment, in case the next experiment is interrupted
    return page


def _check_names(selected: Sequence[Experiment], plan: Plan) -> None:
    """Raise InvalidInputError for a name that no selected experiment allows."""
    sets = {name for experiment in selected for name in experiment.allowed_sets}
    methods = {name for experiment in selected for name in experiment.methods}
    for kind, requested, allowed in (("data set", plan.datasets, sets), ("method", plan.methods, methods)):
        for name in requested:
            if name not in allowed:
                listed = ", ".join(sorted(allowed)) or "none"
                raise InvalidInputError(f"There is no {kind} {name!r} here; the names are {listed}.")


def _check_output(folder: Path) -> None:
    """Check that the folder is writable before running anything."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _job(experiment: Experiment, plan: Plan, parallel_map: ParallelMap, progress: StepProgress) -> Job:
    names = (
        [name for name in plan.datasets if name in experiment.allowed_sets]
        if plan.datasets
        else list(experiment.default_sets)
    )
    methods = {name: method for name, method in experiment.methods.items() if not plan.methods or name in plan.methods}
    sets = [_load(name, plan, progress) for name in names if name not in experiment.generated_sets]
    return Job(names, [data for data in sets if data is not None], methods, plan, parallel_map, progress)


def _load(name: str, plan: Plan, progress: StepProgress) -> Dataset | None:
    """Load a set; return None for a missing set that has no download and was not requested by name."""
    try:
        data = datasets.load(name, plan.data)
    except datasets.MissingDatasetError:
        if plan.datasets or datasets.CATALOGUE[name].urls:
            raise
        progress(f"data: {name} is skipped, because it is not available", 0.0)
        return None
    progress(f"data: {name}", 0.0)
    return data


def _run_synthetic(job: Job) -> None:
    plan, n_seeds = job.plan, job.plan.n_seeds or 20
    settings = {"sets": ", ".join(job.names), "seeds": n_seeds}
    start = perf_counter()
    result = synthetic_experiment.run(job.names, 0, [], progress=subprogress(job.progress, 0.0, 0.3))
    figures_done = perf_counter()
    claims = synthetic_experiment.claims(job.names, range(n_seeds), subprogress(job.progress, 0.3, 1.0))
    titles = _titles(BATCH) | _PLANE_TITLES
    _save_figure(batch_figure(result.batch, synthetic_experiment.BATCH_FIGURE_RULES, titles), "batch_plane", plan)
    _save_figure(online_figure(result.online, synthetic_experiment.K_MEANS, titles), "online_plane", plan)
    _save_record("synthetic", result.rows, synthetic_experiment.COLUMNS, settings, figures_done - start, plan)
    _save_record("claims", claims, synthetic_experiment.CLAIM_COLUMNS, settings, perf_counter() - figures_done, plan)


def _run_batch(job: Job) -> None:
    start, plan, seeds = perf_counter(), job.plan, range(job.plan.n_seeds or 1)
    n_folds = {data.name: n_folds_of(data, plan.n_folds) for data in job.sets}
    progress = subprogress(job.progress, 0.0, 0.9)
    rows = batch.run(job.sets, job.methods, seeds, plan.n_folds, plan.budget, job.parallel_map, progress)
    repeats = {name: dict.fromkeys(job.methods, len(seeds) * n) for name, n in n_folds.items()}
    settings = {"seeds": len(seeds), "folds": plan.n_folds, **_effort(plan), "repeats": repeats}
    seconds = perf_counter() - start
    _run_checks("batch", rows, job, subprogress(job.progress, 0.9, 1.0))
    _save_record("batch", rows, batch.COLUMNS, settings, seconds, plan)


def _run_online(job: Job) -> None:
    if _has_cells(job):
        _run_stages(job._replace(progress=subprogress(job.progress, 0.0, 0.8)))
    if _has_long_stream(job):
        start = perf_counter()
        rows = long_stream.run(long_stream.N_ROWS, 0, subprogress(job.progress, 0.8, 1.0))
        settings = {"rows": long_stream.N_ROWS, "features": long_stream.N_FEATURES}
        _save_record("long_stream", rows, long_stream.COLUMNS, settings, perf_counter() - start, job.plan)


def _run_stages(job: Job) -> None:
    start, plan, seeds = perf_counter(), job.plan, range(job.plan.n_seeds or 5)
    rows = online.run(job.sets, job.methods, seeds, plan.budget, job.parallel_map, subprogress(job.progress, 0.0, 0.9))
    repeats = {name: len(online.seeds_of(method, seeds)) for name, method in job.methods.items()}
    settings = {"seeds": len(seeds), **_effort(plan), "repeats": {data.name: repeats for data in job.sets}}
    seconds = perf_counter() - start
    _run_checks("online", rows, job, subprogress(job.progress, 0.9, 1.0))
    _save_figure(stages_figure(rows, published_stage_aucs(), _titles(ONLINE)), "stages", plan)
    _save_record("online", rows, online.COLUMNS, settings, seconds, plan)


def _has_cells(job: Job) -> bool:
    return bool(job.sets and job.methods)


def _has_folds(job: Job) -> bool:
    """Return True if there is anything to run; raise InvalidInputError if a set has too few anomalies for the folds."""
    return _has_cells(job) and all(n_folds_of(data, job.plan.n_folds) for data in job.sets)


def _has_long_stream(job: Job) -> bool:
    return _LARGE in job.names and "imforest" in job.methods


def _run_checks(table: str, rows: list[Row], job: Job, progress: StepProgress) -> None:
    start = perf_counter()
    differing = [entry for entry in compare(table, rows).values() if entry.differs]
    rows = difference_checks.run(table, differing, job.sets, job.plan.budget, job.parallel_map, progress)
    _save_record(
        f"{table}_checks", rows, difference_checks.COLUMNS, _effort(job.plan), perf_counter() - start, job.plan
    )


def _run_quality(job: Job) -> None:
    start, plan, seeds = perf_counter(), job.plan, range(job.plan.n_seeds or 3)
    rows = quality.run(job.sets, job.methods, seeds, plan.max_rows, plan.budget, job.parallel_map, job.progress)
    ours = [name for name, method in job.methods.items() if method.is_ours]
    _save_figure(quality_figure(rows, ours, titles=_titles(QUALITY)), "quality", plan)
    settings = {"seeds": len(seeds), "most_rows": plan.max_rows, **_effort(plan)}
    _save_record("quality", rows, quality.COLUMNS, settings, perf_counter() - start, plan)


def _effort(plan: Plan) -> dict[str, Any]:
    return {"budget": plan.budget, "processes": plan.n_workers}


def _titles(methods: Mapping[str, Method]) -> dict[str, str]:
    return {name: method.title for name, method in methods.items()} | TITLES


def _save_figure(figure: Figure, name: str, plan: Plan) -> None:
    with atomic_write(plan.output / FOLDER / f"{name}.png") as file:
        write_figure(figure, file, "png")


def _save_record(
    name: str, rows: list[Row], columns: Sequence[str], settings: dict[str, Any], seconds: float, plan: Plan
) -> None:
    write_record(new_record(name, rows, settings, seconds), columns, plan.output / FOLDER)


EXPERIMENTS = {
    "synthetic": Experiment(
        _run_synthetic,
        lambda job: bool(job.names),
        datasets.names("synthetic"),
        {},
        allowed_sets=datasets.names("synthetic"),
        generated_sets=datasets.names("synthetic"),
    ),
    "batch": Experiment(_run_batch, _has_folds, (*_PAPER_SETS, "odds-wbc"), BATCH),
    "online": Experiment(
        _run_online,
        lambda job: _has_cells(job) or _has_long_stream(job),
        (*_PAPER_SETS[1:], "cicids-sample", _LARGE),  # the paper omits WBC from Table III
        ONLINE,
        generated_sets=(_LARGE,),
    ),
    "quality": Experiment(_run_quality, _has_cells, datasets.names("open"), QUALITY),
}

"""Experiments by name: what each runs on, and what it leaves in a folder."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from imondrian import datasets
from imondrian.datasets import Dataset
from imondrian.errors import InvalidInputError
from imondrian.experiments import batch, difference_checks, long_stream, online, quality, synthetic_experiment
from imondrian.experiments.comparison import compare
from imondrian.experiments.figures import batch_figure, online_figure, quality_figure, stages_figure
from imondrian.experiments.methods import BATCH, ONLINE, QUALITY, Method
from imondrian.experiments.page.reproduction_page import FOLDER, write_page
from imondrian.experiments.paper_results import TITLES, published_stage_aucs
from imondrian.experiments.repeats import Progress, Row, subprogress
from imondrian.experiments.result_records import new_record, write_record
from imondrian.experiments.splits import N_FOLDS, n_folds_of
from imondrian.experiments.worker_pool import ParallelMap, workers
from imondrian.files import written_whole
from imondrian.plots import write_figure

_LARGE = "cicids"  # in its place the online experiment has a stream of made rows of that size
_PAPER_SETS = tuple(name for name in datasets.names("paper") if name != _LARGE)
_PLANE_TITLES = {
    synthetic_experiment.HALF: "s > 0.5",
    "moons": "(a) moons",
    "blob": "(b) blob",
    "two-blobs": "(c) two blobs",
    "unequal-blobs": "(d) unequal blobs",
}


class Plan(NamedTuple):
    """What to run, on what, how often, and where to leave it."""

    output: Path
    data: str | None = None  # folder of the sets; None: that named by IMONDRIAN_DATA, or the net
    datasets: tuple[str, ...] = ()  # none: those of the paper, or all open ones
    methods: tuple[str, ...] = ()  # none: all
    n_seeds: int | None = None  # None: as each experiment has it
    n_folds: int = N_FOLDS
    budget: float = 60.0  # seconds for a method on a set
    n_workers: int = 1  # processes that measure at a time
    most_rows: int = 10_000  # of a set, for quality


class Job(NamedTuple):
    """What an experiment is given: the names of its sets, those of them that are loaded, its methods, and the plan."""

    names: list[str]
    sets: list[Dataset]
    methods: dict[str, Method]
    plan: Plan
    parallel_map: ParallelMap
    progress: Progress


class Experiment(NamedTuple):
    """What it can be run on and with, and how."""

    run: Callable[[Job], None]
    has_work: Callable[[Job], bool]
    usual: tuple[str, ...]  # the sets where none are asked for
    methods: Mapping[str, Method]
    known: tuple[str, ...] = datasets.names()
    made: tuple[str, ...] = ()  # those that are made, not loaded


def reproduce(what: str, plan: Plan, progress: Progress) -> Path:
    """Run one experiment, or "all", and write the page anew; give its path.

    Every experiment leaves its measurements and figures in the folder `reproduction` of the output when it has come to
    its end, and they take the place of earlier ones; the page `reproduction.md` is made from all that are there.
    """
    chosen = [EXPERIMENTS[name] for name in (EXPERIMENTS if what == "all" else [what])]
    _check_names(chosen, plan)
    with workers(plan.n_workers) as parallel_map:
        jobs = [
            _job(experiment, plan, parallel_map, progress) for experiment in chosen
        ]  # all is loaded before anything is run
        todo = [(experiment, job) for experiment, job in zip(chosen, jobs, strict=True) if experiment.has_work(job)]
        if not todo:
            raise InvalidInputError("There is nothing to do: none of these methods is run on these data sets.")
        _check_output(plan.output / FOLDER)
        for n_done, (experiment, job) in enumerate(todo):
            experiment.run(job._replace(progress=subprogress(progress, n_done / len(todo), (n_done + 1) / len(todo))))
            page = write_page(plan.output)  # also if the next is interrupted
    return page


def _check_names(chosen: Sequence[Experiment], plan: Plan) -> None:
    """Refuse names that none of the experiments knows."""
    sets = {name for experiment in chosen for name in experiment.known}
    methods = {name for experiment in chosen for name in experiment.methods}
    for kind, asked, known in (("data set", plan.datasets, sets), ("method", plan.methods, methods)):
        for name in asked:
            if name not in known:
                listed = ", ".join(sorted(known)) or "none"
                raise InvalidInputError(f"There is no {kind} {name!r} here; there are {listed}.")


def _check_output(folder: Path) -> None:
    """See to it that results can be written, before there are any."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _job(experiment: Experiment, plan: Plan, parallel_map: ParallelMap, progress: Progress) -> Job:
    names = [name for name in plan.datasets if name in experiment.known] if plan.datasets else list(experiment.usual)
    methods = {name: method for name, method in experiment.methods.items() if not plan.methods or name in plan.methods}
    sets = [_loaded(name, plan, progress) for name in names if name not in experiment.made]
    return Job(names, [data for data in sets if data is not None], methods, plan, parallel_map, progress)


def _loaded(name: str, plan: Plan, progress: Progress) -> Dataset | None:
    """Load a set; one that cannot be downloaded, is not at hand and was not asked for is left out."""
    try:
        data = datasets.load(name, plan.data)
    except datasets.MissingDatasetError:
        if plan.datasets or datasets.CATALOGUE[name].addresses:
            raise
        progress(f"data: {name} is left out, since it is not at hand", 0.0)
        return None
    progress(f"data: {name}", 0.0)
    return data


def _run_synthetic(job: Job) -> None:
    plan, n_seeds = job.plan, job.plan.n_seeds or 20
    settings = {"sets": ", ".join(job.names), "seeds": n_seeds}
    start = perf_counter()
    result = synthetic_experiment.run(job.names, 0, [], progress=subprogress(job.progress, 0.0, 0.3))
    drawn = perf_counter()
    claims = synthetic_experiment.claims(job.names, range(n_seeds), subprogress(job.progress, 0.3, 1.0))
    titles = _titles(BATCH) | _PLANE_TITLES
    _draw(batch_figure(result.batch, synthetic_experiment.IN_THE_BATCH_FIGURE, titles), "batch_plane", plan)
    _draw(online_figure(result.online, synthetic_experiment.K_MEANS, titles), "online_plane", plan)
    _keep("synthetic", result.rows, synthetic_experiment.COLUMNS, settings, drawn - start, plan)
    _keep("claims", claims, synthetic_experiment.CLAIM_COLUMNS, settings, perf_counter() - drawn, plan)


def _run_batch(job: Job) -> None:
    start, plan, seeds = perf_counter(), job.plan, range(job.plan.n_seeds or 1)
    n_folds = {data.name: n_folds_of(data, plan.n_folds) for data in job.sets}
    progress = subprogress(job.progress, 0.0, 0.9)
    rows = batch.run(job.sets, job.methods, seeds, plan.n_folds, plan.budget, job.parallel_map, progress)
    repeats = {name: dict.fromkeys(job.methods, len(seeds) * n) for name, n in n_folds.items()}
    settings = {"seeds": len(seeds), "folds": plan.n_folds, **_effort(plan), "repeats": repeats}
    seconds = perf_counter() - start
    _run_checks("batch", rows, job, subprogress(job.progress, 0.9, 1.0))
    _keep("batch", rows, batch.COLUMNS, settings, seconds, plan)


def _run_online(job: Job) -> None:
    if _has_cells(job):
        _run_stages(job._replace(progress=subprogress(job.progress, 0.0, 0.8)))
    if _has_long_stream(job):
        start = perf_counter()
        rows = long_stream.run(long_stream.N_ROWS, 0, subprogress(job.progress, 0.8, 1.0))
        settings = {"rows": long_stream.N_ROWS, "features": long_stream.N_FEATURES}
        _keep("endless", rows, long_stream.COLUMNS, settings, perf_counter() - start, job.plan)


def _run_stages(job: Job) -> None:
    start, plan, seeds = perf_counter(), job.plan, range(job.plan.n_seeds or 5)
    rows = online.run(job.sets, job.methods, seeds, plan.budget, job.parallel_map, subprogress(job.progress, 0.0, 0.9))
    repeats = {name: len(online.seeds_of(method, seeds)) for name, method in job.methods.items()}
    settings = {"seeds": len(seeds), **_effort(plan), "repeats": {data.name: repeats for data in job.sets}}
    seconds = perf_counter() - start
    _run_checks("online", rows, job, subprogress(job.progress, 0.9, 1.0))
    _draw(stages_figure(rows, published_stage_aucs(), _titles(ONLINE)), "stages", plan)
    _keep("online", rows, online.COLUMNS, settings, seconds, plan)


def _has_cells(job: Job) -> bool:
    return bool(job.sets and job.methods)


def _has_folds(job: Job) -> bool:
    """Tell whether there is anything to divide; that it can be divided is seen to before anything is run."""
    return _has_cells(job) and all(n_folds_of(data, job.plan.n_folds) for data in job.sets)


def _has_long_stream(job: Job) -> bool:
    return _LARGE in job.names and "imforest" in job.methods


def _run_checks(table: str, rows: list[Row], job: Job, progress: Progress) -> None:
    start = perf_counter()
    differing = [entry for entry in compare(table, rows).values() if entry.differs]
    found = difference_checks.run(table, differing, job.sets, job.plan.budget, job.parallel_map, progress)
    _keep(f"{table}_checks", found, difference_checks.COLUMNS, _effort(job.plan), perf_counter() - start, job.plan)


def _run_quality(job: Job) -> None:
    start, plan, seeds = perf_counter(), job.plan, range(job.plan.n_seeds or 3)
    rows = quality.run(job.sets, job.methods, seeds, plan.most_rows, plan.budget, job.parallel_map, job.progress)
    ours = [name for name, method in job.methods.items() if method.is_ours]
    _draw(quality_figure(rows, ours, titles=_titles(QUALITY)), "quality", plan)
    settings = {"seeds": len(seeds), "most_rows": plan.most_rows, **_effort(plan)}
    _keep("quality", rows, quality.COLUMNS, settings, perf_counter() - start, plan)


def _effort(plan: Plan) -> dict[str, Any]:
    return {"budget": plan.budget, "processes": plan.n_workers}


def _titles(methods: Mapping[str, Method]) -> dict[str, str]:
    return {name: method.title for name, method in methods.items()} | TITLES


def _draw(figure: Figure, name: str, plan: Plan) -> None:
    with written_whole(plan.output / FOLDER / f"{name}.png") as file:
        write_figure(figure, file, "png")


def _keep(
    name: str, rows: list[Row], columns: Sequence[str], settings: dict[str, Any], seconds: float, plan: Plan
) -> None:
    write_record(new_record(name, rows, settings, seconds), columns, plan.output / FOLDER)


EXPERIMENTS = {
    "synthetic": Experiment(
        _run_synthetic,
        lambda job: bool(job.names),
        datasets.names("synthetic"),
        {},
        known=datasets.names("synthetic"),
        made=datasets.names("synthetic"),
    ),
    "batch": Experiment(_run_batch, _has_folds, (*_PAPER_SETS, "odds-wbc"), BATCH),
    "online": Experiment(
        _run_online,
        lambda job: _has_cells(job) or _has_long_stream(job),
        (*_PAPER_SETS[1:], "cicids-sample", _LARGE),  # the paper leaves WBC out of its streams
        ONLINE,
        made=(_LARGE,),
    ),
    "quality": Experiment(_run_quality, _has_cells, datasets.names("open"), QUALITY),
}

"""Experiments by name: what each runs on, and what it leaves in a folder."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from imondrian import datasets
from imondrian.datasets import Dataset
from imondrian.errors import InvalidInputError
from imondrian.experiments import batch, checks, endless, online, quality, synthetic
from imondrian.experiments.comparison import compared
from imondrian.experiments.figures import batch_figure, online_figure, quality_figure, stages_figure
from imondrian.experiments.methods import BATCH, ONLINE, QUALITY, Method
from imondrian.experiments.page.writing import write_page
from imondrian.experiments.published import TITLES as SET_TITLES
from imondrian.experiments.published import stages_published
from imondrian.experiments.records import record_of, write_record
from imondrian.experiments.repeats import Row, Tell
from imondrian.files import written_whole
from imondrian.plots import write_figure

FOLDER = "reproduction"  # of records and figures, beside the page
_LARGE = "cicids"  # the set whose size a stream of made rows has
_PAPER_SETS = tuple(name for name in datasets.names("paper") if name != _LARGE)
_BATCH_SETS = (*_PAPER_SETS, "odds-wbc")
_ONLINE_SETS = (*_PAPER_SETS[1:], "cicids-sample")  # the paper leaves WBC out of its streams


class Plan(NamedTuple):
    """What to run, on what, how often, and where to leave it."""

    output: Path
    data: str | None = None  # folder of the sets; None: IMONDRIAN_DATA, scikit-learn, downloads
    datasets: tuple[str, ...] = ()  # none: those of the paper, or all open ones
    methods: tuple[str, ...] = ()  # none: all
    n_seeds: int | None = None  # none: as each experiment has it
    n_folds: int = 10
    budget: float = 90.0  # seconds for a method on a set
    most_rows: int = 10_000  # of a set, for quality


def reproduce(what: str, plan: Plan, tell: Tell) -> Path:
    """Run one experiment, or "all", and write the page anew; give its path.

    Every experiment leaves its measurements and figures in the folder `reproduction` of the output, where they take
    the place of earlier ones; the page `reproduction.md` is made from all that are there.
    """
    chosen = list(EXPERIMENTS) if what == "all" else [what]
    _check_names(chosen, plan)
    (plan.output / FOLDER).mkdir(parents=True, exist_ok=True)
    for n_done, name in enumerate(chosen):
        EXPERIMENTS[name].run(plan, _part_of(tell, n_done, len(chosen)))
    return write_page(plan.output)


def _part_of(tell: Tell, n_done: int, n: int) -> Tell:
    return lambda text, share: tell(text, (n_done + share) / n)


class Experiment(NamedTuple):
    """What it can be run on, with what, and how."""

    sets: tuple[str, ...]
    methods: Mapping[str, Method]
    run: Callable[[Plan, Tell], None]


def _check_names(chosen: Sequence[str], plan: Plan) -> None:
    """Refuse names that none of the experiments knows, before hours are spent on the others."""
    experiments = [EXPERIMENTS[name] for name in chosen]
    known = {name for experiment in experiments for name in (*experiment.sets, *datasets.names())}
    methods = {name for experiment in experiments for name in experiment.methods}
    for kind, asked, names in (("data set", plan.datasets, known), ("method", plan.methods, methods)):
        for name in asked:
            if name not in names:
                raise InvalidInputError(f"There is no {kind} {name!r} here; there are {', '.join(sorted(names))}.")


def _asked(usual: Sequence[str], asked: Sequence[str]) -> list[str]:
    return [name for name in usual if not asked or name in asked]


def _run_synthetic(plan: Plan, tell: Tell) -> None:
    names = _asked(datasets.names("synthetic"), plan.datasets)
    if not names:
        return
    start, n_seeds = perf_counter(), plan.n_seeds or 20
    result = synthetic.run(names, 0, range(n_seeds), tell=tell)
    settings = {"sets": names, "seeds": n_seeds}
    shown = synthetic.IN_THE_BATCH_FIGURE
    _draw(batch_figure(result.batch, shown, _titles(BATCH)), "batch_plane", plan)
    _draw(online_figure(result.online, synthetic.K_MEANS), "online_plane", plan)
    _keep("synthetic", result.rows, synthetic.COLUMNS, settings, start, plan)
    _keep("claims", result.claims, synthetic.CLAIM_COLUMNS, settings, start, plan)


def _run_batch(plan: Plan, tell: Tell) -> None:
    sets, methods = _sets(_BATCH_SETS, plan), _methods(BATCH, plan)
    if not sets or not methods:
        return
    start, seeds = perf_counter(), range(plan.n_seeds or 1)
    rows = batch.run(sets, methods, seeds, plan.n_folds, plan.budget, tell)
    repeats = {data.name: len(batch.folds_of(data, seeds, plan.n_folds)) for data in sets}
    settings = {"seeds": len(seeds), "folds": plan.n_folds, "budget": plan.budget, "repeats": repeats}
    _keep("batch", rows, batch.COLUMNS, settings, start, plan)
    _run_checks("batch", rows, sets, plan, tell)


def _run_online(plan: Plan, tell: Tell) -> None:
    sets, methods = _sets(_ONLINE_SETS, plan), _methods(ONLINE, plan)
    if sets and methods:
        start, seeds = perf_counter(), range(plan.n_seeds or 5)
        rows = online.run(sets, methods, seeds, plan.budget, tell)
        repeats = {data.name: len(seeds) for data in sets}
        settings = {"seeds": len(seeds), "budget": plan.budget, "repeats": repeats}
        _draw(stages_figure(rows, stages_published(), _titles(ONLINE)), "stages", plan)
        _keep("online", rows, online.COLUMNS, settings, start, plan)
        _run_checks("online", rows, sets, plan, tell)
    if _asked([_LARGE], plan.datasets) and "imforest" in methods:
        start = perf_counter()
        rows = endless.run(endless.N_ROWS, 0, tell)
        _keep("endless", rows, endless.COLUMNS, {"rows": endless.N_ROWS, "features": endless.N_FEATURES}, start, plan)


def _run_checks(table: str, rows: list[Row], sets: Sequence[Dataset], plan: Plan, tell: Tell) -> None:
    start = perf_counter()
    differing = [entry for entry in compared(table, rows).values() if entry.differs]
    found = checks.run(table, differing, sets, plan.budget, tell)
    _keep(f"{table}_checks", found, checks.COLUMNS, {"budget": plan.budget}, start, plan)


def _run_quality(plan: Plan, tell: Tell) -> None:
    sets, methods = _sets(datasets.names("open"), plan), _methods(QUALITY, plan)
    if not sets or not methods:
        return
    start, seeds = perf_counter(), range(plan.n_seeds or 3)
    rows = quality.run(sets, methods, seeds, plan.most_rows, plan.budget, tell)
    settings = {"seeds": len(seeds), "most_rows": plan.most_rows, "budget": plan.budget}
    ours = [name for name in methods if methods[name].is_ours]
    _draw(quality_figure(rows, ours, titles=_titles(QUALITY)), "quality", plan)
    _keep("quality", rows, quality.COLUMNS, settings, start, plan)


def _sets(usual: Sequence[str], plan: Plan) -> list[Dataset]:
    """Load the sets asked for; others than the usual ones may be."""
    names = [name for name in plan.datasets if name in datasets.names() and name != _LARGE] if plan.datasets else usual
    return [datasets.load(name, plan.data) for name in names]


def _methods(all_methods: Mapping[str, Method], plan: Plan) -> dict[str, Method]:
    return {name: all_methods[name] for name in _asked(tuple(all_methods), plan.methods)}


def _titles(methods: Mapping[str, Method]) -> dict[str, str]:
    return {name: method.title for name, method in methods.items()} | SET_TITLES


def _draw(figure: Figure, name: str, plan: Plan) -> None:
    with written_whole(plan.output / FOLDER / f"{name}.png") as file:
        write_figure(figure, file, "png")


def _keep(
    name: str, rows: list[Row], columns: Sequence[str], settings: dict[str, Any], start: float, plan: Plan
) -> None:
    record = record_of(name, rows, settings, perf_counter() - start)
    write_record(record, columns, plan.output / FOLDER)


EXPERIMENTS = {
    "synthetic": Experiment(datasets.names("synthetic"), {}, _run_synthetic),
    "batch": Experiment(_BATCH_SETS, BATCH, _run_batch),
    "online": Experiment((*_ONLINE_SETS, _LARGE), ONLINE, _run_online),
    "quality": Experiment(datasets.names("open"), QUALITY, _run_quality),
}

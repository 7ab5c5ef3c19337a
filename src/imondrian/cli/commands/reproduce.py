"""`imondrian reproduce`: run the experiments of the paper."""

import math
from pathlib import Path
from time import perf_counter

from imondrian.base.errors import InvalidInputError
from imondrian.cli.console import Console, escaped
from imondrian.cli.option_checks import check_jobs
from imondrian.cli.options import ConsoleOptions, ReproduceOptions
from imondrian.engine.threads import Threads


def reproduce(experiment: str, options: ReproduceOptions, console_options: ConsoleOptions) -> None:
    """Run experiments, print each step, and print the path of the page."""
    try:
        from imondrian.experiments.reproduce import Plan
        from imondrian.experiments.reproduce import reproduce as run
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f'imondrian reproduce needs {error.name}: pip install "imondrian[experiments]".'
        ) from None

    check_jobs(options.jobs)
    if not math.isfinite(options.budget):
        raise InvalidInputError(f"--budget must be a finite number of seconds, but is {options.budget}.")
    console, start = Console(console_options), perf_counter()
    plan = Plan(
        output=Path(options.output),
        data=options.data or None,
        datasets=_split_names(options.datasets),
        methods=_split_names(options.methods),
        n_seeds=options.seeds,
        n_folds=options.folds,
        budget=options.budget,
        n_workers=Threads(options.jobs).n_threads,
    )
    with console.progress(f"reproducing {experiment}") as progress:

        def report(text: str, share: float) -> None:
            progress(share)
            console.note(f"{perf_counter() - start:7.1f} s  {text}")

        page = run(experiment, plan, report)
    facts = {"page": str(page), "seconds": round(perf_counter() - start, 1)}
    console.print_result(facts, lambda rich: rich.print(escaped(str(page))))


def _split_names(text: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))

"""`imondrian reproduce`: the experiments of the paper, run anew."""

import math
from pathlib import Path
from time import perf_counter

from imondrian.cli.console import Console
from imondrian.cli.settings import Reproducing, Telling
from imondrian.cli.summary import escaped
from imondrian.engine.threads import Threads
from imondrian.errors import InvalidInputError


def run(what: str, reproducing: Reproducing, telling: Telling) -> None:
    """Run experiments, saying what is done as it is done, and tell where the page is."""
    try:
        from imondrian.experiments.reproduce import Plan, reproduce
    except ModuleNotFoundError as error:
        raise InvalidInputError(f'{error.name} is needed here: pip install "imondrian[experiments]".') from None

    _check(reproducing)
    console, start = Console(telling), perf_counter()
    plan = Plan(
        output=Path(reproducing.output),
        data=reproducing.data or None,
        datasets=_names(reproducing.datasets),
        methods=_names(reproducing.methods),
        n_seeds=reproducing.seeds,
        n_folds=reproducing.folds,
        budget=reproducing.budget,
        n_workers=Threads(reproducing.jobs).n_threads,
    )
    with console.progress(f"reproducing {what}") as progress:

        def tell(text: str, share: float) -> None:
            progress(share)
            console.note(f"{perf_counter() - start:7.1f} s  {text}")

        page = reproduce(what, plan, tell)
    facts = {"page": str(page), "seconds": round(perf_counter() - start, 1)}
    console.tell(facts, lambda rich: rich.print(escaped(str(page))))


def _check(reproducing: Reproducing) -> None:
    if reproducing.jobs == 0:
        raise InvalidInputError("--jobs must not be 0; -1 stands for all processors.")
    if not math.isfinite(reproducing.budget):
        raise InvalidInputError(f"--budget must be a number of seconds, but is {reproducing.budget}.")


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))

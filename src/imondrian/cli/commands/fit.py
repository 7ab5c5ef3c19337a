"""`imondrian fit`: from a table to a model file."""

from typing import Any

from imondrian import models
from imondrian.cli.console import Console
from imondrian.cli.forests import fitted
from imondrian.cli.outputs import check_outputs
from imondrian.cli.rows import opened, read_rows
from imondrian.cli.settings import Choice, Making, Outputs, Source, Telling
from imondrian.cli.summary import escaped, in_words


def run(source: Source, choice: Choice, making: Making, model: str, telling: Telling) -> None:
    """Fit a forest on a table and keep it."""
    check_outputs(Outputs(model=model), telling)
    console = Console(telling)
    table = opened(source)
    rows, columns = read_rows(table, choice, console)
    with console.progress("fitting"):
        forest = fitted(rows, making)
    models.save(forest, model)
    facts: dict[str, Any] = {
        "source": table.name,
        "n_rows": len(rows.points),
        "n_fitted": int(rows.usable.sum()),
        "features": rows.features,
        "left_out": columns.left_out,
        "threshold": forest.threshold,
        "rule": in_words(forest.parameters["contamination"]),
        "model": model,
    }

    def print_on(rich: Any) -> None:
        for name, value in facts.items():
            rich.print(f"{name:<10} {escaped(_as_text(value))}")

    console.tell(facts, print_on)


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} ({why})" for name, why in value.items()) or "none"
    return ", ".join(value) if isinstance(value, list) else str(value)

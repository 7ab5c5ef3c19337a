"""`imondrian fit`: from a table to a model file."""

from imondrian import model_files
from imondrian.cli.console import Console
from imondrian.cli.forests import check_making, fitted
from imondrian.cli.outputs import check_outputs
from imondrian.cli.rows import opened, read_rows
from imondrian.cli.settings import Choice, Making, Outputs, Source, Telling
from imondrian.cli.summary import about_columns, in_words, print_facts


def run(source: Source, choice: Choice, making: Making, model: str, telling: Telling) -> None:
    """Fit a forest on a table and keep it."""
    check_outputs(source, Outputs(model=model), telling)
    check_making(making)
    console = Console(telling)
    table = opened(source)
    rows, columns = read_rows(table, choice, console)
    with console.progress("fitting"):
        forest = fitted(rows, making)
    model_files.save(forest, model)
    told = {
        "source": table.name,
        "n_rows": len(rows.points),
        "n_fitted": int(rows.usable.sum()),
        "features": rows.features,
        "left_out": columns.left_out,
        "threshold": forest.threshold,
        "rule": in_words(forest.parameters["contamination"]),
        "model": model,
    }
    facts = {
        "rows": f"{told['n_rows']:,}, fitted on {told['n_fitted']:,}",
        **about_columns(rows.features, columns.left_out),
        "threshold": f"{forest.threshold:.4f}: {told['rule']}",
        "model": model,
    }
    console.tell(told, lambda rich: print_facts(facts, rich))

"""`imondrian detect`: from a table to its anomalies, in one step."""

from imondrian import model_files
from imondrian.cli.console import Console
from imondrian.cli.forests import check_making, fitted
from imondrian.cli.outputs import check_outputs, written
from imondrian.cli.results import check_free, with_results
from imondrian.cli.rows import opened, read_rows
from imondrian.cli.settings import Choice, Making, Outputs, Source, Telling
from imondrian.cli.summary import Tally
from imondrian.scorer import scorer_of
from imondrian.tables.writing import written_table


def run(source: Source, choice: Choice, making: Making, outputs: Outputs, telling: Telling, top: int) -> bool:
    """Fit a forest on a table, score it and write what is asked for; tell whether there are anomalies."""
    check_outputs(source, outputs, telling)
    check_making(making)
    console = Console(telling, outputs.table)
    table = opened(source)
    rows, columns = read_rows(table, choice, console)
    check_free(rows.frame.columns, outputs.table)
    with console.progress("fitting"):
        model = fitted(rows, making)
    scorer = scorer_of(model, table.name)
    with console.progress("scoring") as progress:
        scores = scorer.scores(rows.points, progress)
    tally = Tally(scorer, choice.time, top)
    tally.add(rows, scores)
    summary = tally.summary(table.name, columns.left_out, written(outputs))
    if outputs.model:
        model_files.save(model, outputs.model)
    if outputs.report:
        from imondrian.cli.pages import write_page  # matplotlib takes a second to load

        with console.progress("drawing"):
            write_page(outputs.report, rows, scorer, scores, summary, making, choice)
    if outputs.table:
        with console.progress("writing"), written_table(outputs.table) as write:
            write(with_results(rows, scorer, scores, outputs.table))
    console.tell(summary.as_json(), summary.print_on)
    return summary.n_anomalies > 0

"""`imondrian score`: a table scored with a model, batch by batch, however long it is."""

from imondrian.cli.batches import scored_batches
from imondrian.cli.console import Console
from imondrian.cli.forests import checked_jobs
from imondrian.cli.outputs import check_outputs, written
from imondrian.cli.results import check_free, with_results
from imondrian.cli.rows import opened
from imondrian.cli.settings import Choice, Outputs, Source, Telling
from imondrian.cli.summary import Tally
from imondrian.scorer import loaded, scorer_of
from imondrian.tables.writing import written_table


def run(model: str, source: Source, choice: Choice, jobs: int, output: str, telling: Telling, top: int) -> bool:
    """Score the rows of a table and write it with the results; tell whether there are anomalies."""
    outputs = Outputs(table=output)
    check_outputs(source, outputs, telling)
    console = Console(telling, output)
    scorer = scorer_of(loaded(model), model)
    scorer.forest.n_jobs = checked_jobs(jobs)
    table = opened(source)
    tally = Tally(scorer, choice.time, top)
    with console.progress(f"scoring {table.name}") as progress, written_table(output) as write:
        for rows, scores in scored_batches(scorer, table, choice, model, progress):
            check_free(rows.frame.columns, output)
            tally.add(rows, scores)
            write(with_results(rows, scorer, scores, output))
    summary = tally.summary(table.name, {}, written(outputs))
    console.tell(summary.as_json(), summary.print_on)
    return summary.n_anomalies > 0

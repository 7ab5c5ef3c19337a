"""`imondrian detect` and `imondrian fit`: fit a forest on a table."""

from imondrian.cli.console import Console, print_facts
from imondrian.cli.detect.scored_rows import (
    check_result_names,
    fit_and_score,
    fit_rows,
    result_table,
    save_table_model,
)
from imondrian.cli.detect.summary import ColumnFacts, ShownColumns, SummaryBuilder, describe_rule
from imondrian.cli.option_checks import check_forest_options, check_outputs
from imondrian.cli.options import ConsoleOptions, FeatureOptions, ForestOptions, OutputOptions, SourceOptions
from imondrian.cli.table_rows import open_table, read_rows
from imondrian.tables.table_writer import table_writer


def detect(
    source_options: SourceOptions,
    feature_options: FeatureOptions,
    forest_options: ForestOptions,
    output_options: OutputOptions,
    console_options: ConsoleOptions,
    top: int,
) -> bool:
    """Fit a forest on a table, score the table, and write the outputs; return True if there are anomalies."""
    check_outputs(source_options, output_options, console_options)
    check_forest_options(forest_options)
    console = Console(console_options, output_options.table)
    table = open_table(source_options)
    rows, choice = read_rows(table, feature_options, console)
    check_result_names(rows.frame.columns, output_options.table)
    with console.progress("fitting and scoring") as progress:
        scored = fit_and_score(rows, forest_options, feature_options.missing, progress)
    builder = SummaryBuilder(scored.model, ShownColumns(feature_options.id, feature_options.time), top)
    builder.add(scored)
    summary = builder.summary(table, choice.left_out, output_options.files())
    if output_options.model:
        save_table_model(scored.model, rows.columns, output_options.model)
    if output_options.report:
        from imondrian.cli.detect.html_report import write_html_report  # matplotlib takes a second to load

        with console.progress("plotting"):
            write_html_report(output_options.report, scored, summary, forest_options, feature_options)
    if output_options.table:
        with console.progress("writing"), table_writer(output_options.table, table.facts.labels) as write:
            write(result_table(scored, output_options.table))
    console.print_result(summary.as_json(), summary.print_on)
    return summary.n_anomalies > 0


def fit(
    source_options: SourceOptions,
    feature_options: FeatureOptions,
    forest_options: ForestOptions,
    console_options: ConsoleOptions,
    model: str,
) -> None:
    """Fit a forest on a table, and save it to a model file."""
    check_outputs(source_options, OutputOptions(model=model), console_options)
    check_forest_options(forest_options)
    console = Console(console_options)
    table = open_table(source_options)
    rows, choice = read_rows(table, feature_options, console)
    with console.progress("fitting") as progress:
        fitted = fit_rows(rows, forest_options, feature_options.missing, progress).model
    save_table_model(fitted, rows.columns, model)
    columns = ColumnFacts(rows.columns, choice.left_out, rows.n_gaps(), table.facts.notes)
    result = {
        "source": table.name,
        "n_rows": len(rows.points),
        "n_fitted": int(rows.usable.sum()),
        **columns.as_json(),
        "threshold": fitted.threshold,
        "rule": describe_rule(fitted.rule),
        "model": model,
    }
    facts = {
        "rows": f"{result['n_rows']:,}, fitted on {result['n_fitted']:,}",
        **columns.in_words(),
        "threshold": f"{fitted.threshold:.4f}: {result['rule']}",
        "model": model,
    }
    console.print_result(result, lambda rich: print_facts(facts, rich))

"""`imondrian plot series` and `imondrian report`: watch a table as a series, and plot it or write a report about it."""

from typing import Literal

from imondrian.base.defaults import SERIES
from imondrian.base.errors import InvalidInputError
from imondrian.base.files import atomic_write, real_path
from imondrian.cli.console import Console, escaped, print_facts
from imondrian.cli.option_checks import check_output_path, check_series_options
from imondrian.cli.options import (
    AlarmOptions,
    ConsoleOptions,
    DetectorOptions,
    FeatureOptions,
    SeriesOptions,
    SourceOptions,
)
from imondrian.cli.series.series_report import figure_of, report_of
from imondrian.cli.series.watched_series import SeriesRun, SeriesTable, read_series, watch_series
from imondrian.cli.table_rows import open_table
from imondrian.plots import write_figure
from imondrian.plots.series import MAX_PANELS
from imondrian.report import write_series_report


def plot_series(
    source_options: SourceOptions,
    feature_options: FeatureOptions,
    detector_options: DetectorOptions,
    alarm_options: AlarmOptions,
    series_options: SeriesOptions,
    console_options: ConsoleOptions,
) -> None:
    """Watch a series and plot it."""
    path = series_options.output or "series.png"
    check_output_path(path, (".png", ".svg"))
    console = Console(console_options)
    series, run = _watched(source_options, feature_options, detector_options, alarm_options, series_options, console)
    with console.progress("plotting"):
        figure = figure_of(series, run, series_options.width)
    figure.suptitle(source_options.path, parse_math=False)
    file_format: Literal["png", "svg"] = "svg" if path.lower().endswith(".svg") else "png"
    with atomic_write(path) as file:
        write_figure(figure, file, file_format)
    _note_left_out(series, console)
    result = {"picture": path, "n_rows": len(series.values), "n_incidents": len(run.incidents)}
    console.print_result(result, lambda rich: rich.print(escaped(path)))


def report(
    source_options: SourceOptions,
    feature_options: FeatureOptions,
    detector_options: DetectorOptions,
    alarm_options: AlarmOptions,
    series_options: SeriesOptions,
    console_options: ConsoleOptions,
) -> None:
    """Watch a series and write a report about it."""
    path = series_options.output or "report.html"
    check_output_path(path, (".html", ".htm"))
    console = Console(console_options)
    series, run = _watched(source_options, feature_options, detector_options, alarm_options, series_options, console)
    with console.progress("plotting"):
        page = report_of(source_options.path, series, run)
    with atomic_write(path) as file:
        write_series_report(page, file)
    _note_left_out(series, console)
    n_anomalies = int(run.results.is_anomaly.sum())
    facts = {
        "rows": f"{len(series.values):,}",
        "anomalies": f"{n_anomalies:,}",
        "incidents": f"{len(run.incidents):,}",
        "times": page.settings.get("times", ""),
        "report": path,
    }
    result = {"n_rows": len(series.values), "n_anomalies": n_anomalies, "n_incidents": len(run.incidents)}
    console.print_result(result | {"report": path}, lambda rich: print_facts(facts, rich))


def _watched(
    source_options: SourceOptions,
    feature_options: FeatureOptions,
    detector_options: DetectorOptions,
    alarm_options: AlarmOptions,
    series_options: SeriesOptions,
    console: Console,
) -> tuple[SeriesTable, SeriesRun]:
    """Return the series of a table, and what a detector finds in it."""
    output = series_options.output
    if output is not None and real_path(output) == real_path(source_options.path):
        raise InvalidInputError(f"{output} is the input: write to another file.")
    check_series_options(detector_options, feature_options)
    uses_times = detector_options.preset == SERIES
    table = open_table(source_options)
    series = read_series(table, feature_options, series_options.label, uses_times=uses_times, console=console)
    with console.progress("watching") as progress:
        return series, watch_series(series, detector_options, alarm_options, progress)


def _note_left_out(series: SeriesTable, console: Console) -> None:
    left_out = series.names[MAX_PANELS:]
    if left_out:
        console.note(f"not in the picture, which has room for {MAX_PANELS} columns: {', '.join(left_out)}")

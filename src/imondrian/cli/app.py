"""The commands and their options; the code of a command is imported only when the command runs."""

import os
import sys
from typing import Any, NoReturn

import click

import imondrian
from imondrian.base.defaults import N_JOBS
from imondrian.base.errors import ImondrianError
from imondrian.cli import options
from imondrian.cli.console import discard_output, print_to_stderr
from imondrian.cli.options import (
    ConsoleOptions,
    OutputOptions,
    PlotOptions,
    ReproduceOptions,
    SeriesOptions,
    SourceOptions,
    WatchOptions,
    grouped,
    integer_option,
    jobs_option,
)
from imondrian.cli.signals import Interrupted, raise_if_interrupted, raise_on_signals, stop_raising

_ANOMALIES_FOUND, _BAD_INPUT, _INTERNAL_ERROR = 1, 2, 70  # exit codes
_DEBUG = "IMONDRIAN_DEBUG"


def main() -> NoReturn:
    """Run the command line and exit; an error is printed as one line."""
    _make_streams_safe()
    raise_on_signals()
    try:
        app(prog_name="imondrian")
    except (ImondrianError, OSError, MemoryError) as error:
        print_to_stderr(f"imondrian: {_in_one_line(error)}")
        sys.exit(_BAD_INPUT)
    except Interrupted as interrupted:
        stop_raising()
        print_to_stderr("imondrian: interrupted")
        sys.exit(128 + interrupted.number)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # a bug, or a panic of polars, which is not an Exception
        if os.environ.get(_DEBUG):
            raise
        name, text = type(error).__name__, _in_one_line(error)
        print_to_stderr(f"imondrian: internal error: {name}: {text} (set {_DEBUG}=1 for the traceback)")
        sys.exit(_INTERNAL_ERROR)
    sys.exit(0)


def _make_streams_safe() -> None:
    """Replace closed standard streams with the null device; escape characters that the terminal cannot show."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _in_one_line(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return str(error) if type(error) is MemoryError and error.args else "not enough memory."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    return " ".join(str(error).split())


class _Commands(click.Group):
    """A group of commands that end without an error if the reader of their output closes the pipe."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
        except BrokenPipeError:
            discard_output(sys.stdout)
            return None
        raise_if_interrupted()
        return result


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 success, 1 anomalies found (with --fail-on-anomaly), 2 invalid input, 70 internal error,"
    " 129, 130 and 143 interrupted.",
)
@click.version_option(imondrian.__version__)
def app() -> None:
    """Detect anomalies in tables and streams with isolation Mondrian forests."""


@app.command()
@grouped(
    "output_options",
    OutputOptions,
    options.OUTPUT_TABLE,
    click.option("--report", metavar="FILE", help="HTML report to write, with plots: .html."),
    click.option("--save", "model", metavar="FILE", help="Model file to write: .imf."),
)
@options.TOP
@options.TABLE_FEATURES
@options.FOREST
@options.SOURCE
@options.CONSOLE
@options.FAIL_ON_ANOMALY
def detect(*, fail_on_anomaly: bool, **values: Any) -> None:
    """Find the anomalies in a table and explain them.

    DATA is a CSV, TSV, NDJSON, Parquet or Excel file, optionally gzipped; - is standard input.
    """
    from imondrian.cli.commands.detect import detect as run

    _exit(run(**values), fail_on_anomaly)


@app.command()
@click.option("--save", "model", metavar="FILE", required=True, help="Model file to write: .imf.")
@options.TABLE_FEATURES
@options.FOREST
@options.SOURCE
@options.CONSOLE
def fit(**values: Any) -> None:
    """Fit a forest on a table and save it to a model file.

    DATA is a CSV, TSV, NDJSON, Parquet or Excel file, optionally gzipped; - is standard input.
    """
    from imondrian.cli.commands.detect import fit as run

    run(**values)


@app.command()
@options.MODEL
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    default="-",
    help="Scored table to write: .csv, .tsv, .ndjson, .parquet.  [default: CSV on standard output]",
)
@options.TOP
@options.MODEL_FEATURES
@jobs_option(-1)
@options.SOURCE
@options.CONSOLE
@options.FAIL_ON_ANOMALY
def score(*, fail_on_anomaly: bool, **values: Any) -> None:
    """Score a table of any length with a model file, in constant memory.

    MODEL is a model file (.imf); DATA is a CSV, TSV, NDJSON, Parquet or Excel file, optionally gzipped; - is standard
    input.
    """
    from imondrian.cli.commands.score import score as run

    _exit(run(**values), fail_on_anomaly)


@app.command()
@options.MODEL
@click.option(
    "--rows", metavar="3,17", help="Rows to explain, counted from 1.  [default: those with the highest scores]"
)
@options.TOP
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    help="Table to write, with the part of each feature in the score of each row: .csv, .tsv, .ndjson, .parquet.",
)
@options.MODEL_FEATURES
@jobs_option(-1)
@options.SOURCE
@options.CONSOLE
def explain(*, rows: str | None, **values: Any) -> None:
    """Explain the scores of rows with a model file.

    MODEL is a model file (.imf); DATA is a CSV, TSV, NDJSON, Parquet or Excel file, optionally gzipped; - is standard
    input.
    """
    from imondrian.cli.commands.score import explain as run

    run(row_numbers=_row_numbers(rows), **values)


@app.command()
@grouped(
    "watch_options",
    WatchOptions,
    click.option("--follow", metavar="FILE", help="Read a file and wait for more lines, like tail -F."),
    click.option(
        "--model", metavar="FILE", help="Model file of the detector (.imf): resumed if it exists, saved at the end."
    ),
    integer_option(
        "--save-every", "Also save the detector about every ROWS rows.  [default: only at the end]", metavar="ROWS"
    ),
    click.option(
        "--max-memory",
        metavar="SIZE",
        help="With --by: upper bound on the memory for detectors, such as 500MB or 2GB. When it is reached, the least"
        " recently used keys move to the model file; without --model they are dropped.  [default: no bound]",
    ),
    click.option("--explain", is_flag=True, help="Add an explanation to anomalies; slower."),
    click.option(
        "--on-error",
        type=click.Choice(["skip", "fail"]),
        default="skip",
        show_default=True,
        help="Unusable rows: write the row with the error and continue (skip), or stop (fail).",
    ),
    jobs_option(N_JOBS),
)
@options.STREAM_FEATURES
@options.ALARMS
@options.INCIDENTS
@options.DETECTOR
@grouped(
    "source_options",
    SourceOptions,
    click.argument("path", metavar="[DATA]", default="-", required=False),
    options.LINE_FORMAT,
    options.SEPARATOR,
    options.NO_HEADER,
)
@options.QUIET
@options.FAIL_ON_ANOMALY
def watch(*, quiet: bool, fail_on_anomaly: bool, **values: Any) -> None:
    """Score and learn a stream line by line.

    Every input line becomes an output line of NDJSON: the record, its score and its label. With --incidents, only the
    openings and closings of incidents are written. DATA is a CSV, TSV or NDJSON file; the default is standard input.

    With --by, every value of a column, such as every host, gets its own detector.

    If the model file exists, its detector is resumed. Then the threshold and the rules for incidents (--gap,
    --min-points, --cooldown, --side, --ignore-within) can be changed; the other options of the detector cannot.
    """
    from imondrian.cli.commands.watch import watch as run

    _exit(run(console_options=ConsoleOptions(quiet=quiet), **values), fail_on_anomaly)


@app.group()
def plot() -> None:
    """Plot scores, regions, a Mondrian partition, a tree or a time series (PNG or SVG)."""


def _with_options(*groups: options.Decorator) -> options.Decorator:
    """Return a decorator that adds groups of options; help texts list them in this order."""

    def decorate(command: options.Command) -> options.Command:
        for group in reversed(groups):
            command = group(command)
        return command

    return decorate


def _plot_command(*parameters: options.Decorator) -> options.Decorator:
    """Return a decorator that adds the options shared by all plots, and the given ones."""
    return _with_options(
        grouped("plot_options", PlotOptions, options.PLOT_OUTPUT, options.PLOT_MODEL, *parameters),
        options.TABLE_FEATURES,
        options.FOREST,
        options.SOURCE,
        options.CONSOLE,
    )


@plot.command()
@_plot_command()
def scores(**values: Any) -> None:
    """Plot a histogram of the scores, with the thresholds."""
    _plot("scores", values)


@plot.command()
@_plot_command()
def regions(**values: Any) -> None:
    """Plot the score over two features, with the normal region."""
    _plot("regions", values)


@plot.command()
@_plot_command(
    options.PLOT_TREE,
    click.option(
        "--max-time",
        type=click.FloatRange(0.0),
        metavar="TIME",
        help="Leave out splits after this time.  [default: show all]",
    ),
)
def partition(**values: Any) -> None:
    """Plot the Mondrian partition of a tree over two features."""
    _plot("partition", values)


@plot.command()
@_plot_command(options.PLOT_TREE, integer_option("--levels", "Number of levels to plot.", default=5, show_default=True))
def tree(**values: Any) -> None:
    """Plot a tree: its splits and split times."""
    _plot("tree", values)


def _series_command(output: options.Decorator, *parameters: options.Decorator) -> options.Decorator:
    """Return a decorator that adds the options for a table that is watched as a series."""
    return _with_options(
        grouped("series_options", SeriesOptions, output, options.SERIES_LABEL, *parameters),
        options.SERIES_FEATURES,
        options.ALARMS,
        options.SERIES_DETECTOR,
        options.SOURCE,
        options.CONSOLE,
    )


@plot.command("series")
@_series_command(
    click.option("--output", "-o", metavar="FILE", help="Image to write: .png or .svg.  [default: series.png]"),
    click.option(
        "--width",
        type=click.FloatRange(3.0, 50.0),
        metavar="INCHES",
        default=10.0,
        show_default=True,
        help="Width of the image.",
    ),
)
def series(**values: Any) -> None:
    """Watch a time series and plot it: values with the expected range, incidents, and surprise.

    DATA is a table as for imondrian detect, with the rows in chronological order.
    """
    from imondrian.cli.commands.series import plot_series as run

    run(**values)


def _plot(kind: str, values: dict[str, Any]) -> None:
    from imondrian.cli.commands.plot import plot as run

    run(kind, **values)


@app.command()
@_series_command(
    click.option("--output", "-o", metavar="FILE", help="Page to write: .html.  [default: report.html]"),
)
def report(**values: Any) -> None:
    """Watch a time series and write an HTML report: a plot, and the incidents with times and reasons.

    DATA is a table as for imondrian detect, with the rows in chronological order. For tables whose rows have no order,
    use imondrian detect --report.
    """
    from imondrian.cli.commands.series import report as run

    run(**values)


@app.command()
@options.MODEL
@options.JSON
def info(*, model: str, as_json: bool) -> None:
    """Check a model file and show its content.

    Every byte of the file is checked, except the detectors of the keys in the file of a fleet.
    """
    from imondrian.cli.commands.info import info as run

    run(model, ConsoleOptions(as_json=as_json))


@app.command()
@click.argument(
    "experiment", metavar="EXPERIMENT", type=click.Choice(["batch", "online", "synthetic", "quality", "all"])
)
@grouped(
    "options",
    ReproduceOptions,
    click.option(
        "--data", metavar="DIR", help="Folder with the data sets.  [default: $IMONDRIAN_DATA, or download them]"
    ),
    click.option(
        "--datasets", metavar="A,B", help="Data sets to use.  [default: those of the paper; quality: all open ones]"
    ),
    click.option("--methods", metavar="A,B", help="Methods to run.  [default: all]"),
    integer_option(
        "--seeds",
        "Number of repetitions, each with its own seed.  [default: as on the published page]",
        largest=1_000_000,
    ),
    integer_option("--folds", "Number of folds of the batch experiment.", smallest=2, default=10, show_default=True),
    click.option(
        "--budget",
        type=click.FloatRange(0.0),
        metavar="SECONDS",
        default=60.0,
        show_default=True,
        help="Time limit per method and data set; a slower method runs on fewer folds or seeds, but on at least one.",
    ),
    click.option(
        "--jobs",
        type=int,
        metavar="N",
        default=-1,
        show_default=True,
        help="Number of methods to run in parallel, each with one thread; -1: one per processor.",
    ),
    click.option(
        "--output", "-o", metavar="DIR", default="docs", show_default=True, help="Folder for reproduction.md."
    ),
)
@options.CONSOLE
def reproduce(**values: Any) -> None:
    """Run the experiments of the paper, and compare the results with it.

    Writes a page with the tables and figures of the paper beside ours.

    EXPERIMENT is batch (Table II), online (Table III), synthetic (Figures 1 and 2), quality (not in the paper: all open
    data sets) or all (takes half an hour).
    """
    from imondrian.cli.commands.reproduce import reproduce as run

    run(**values)


@app.command()
@click.option("--data", metavar="DIR", required=True, help="Folder in which the service stores all its data.")
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; an address other than loopback requires a token.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=8765,
    show_default=True,
    help="Port; 0: any free port.",
)
@click.option("--token-file", metavar="FILE", help="File with the access token.  [default: $IMONDRIAN_TOKEN]")
@click.option(
    "--notify",
    metavar="URL",
    multiple=True,
    help="Send a POST to this URL when an incident opens or closes; may be given several times.",
)
@click.option(
    "--notify-secret-file", metavar="FILE", help="File with the key that signs the requests of --notify (HMAC-SHA256)."
)
@click.option(
    "--max-memory",
    metavar="SIZE",
    help="Upper bound on the memory of all detectors together, such as 500MB or 16GB; a new detector that would exceed"
    " it is refused.  [default: 4 GiB]",
)
def serve(
    *,
    data: str,
    host: str,
    port: int,
    token_file: str | None,
    notify: tuple[str, ...],
    notify_secret_file: str | None,
    max_memory: str | None,
) -> None:
    """Run detectors as an HTTP service with a web page.

    Points that the service has acknowledged survive a power failure.
    """
    from imondrian.cli.commands.serve import serve as run

    run(data, host, port, token_file, notify, notify_secret_file, max_memory)


@app.command()
@click.argument("file")
@click.option(
    "--url", metavar="URL", default="http://127.0.0.1:8765", show_default=True, help="Address of the service."
)
@click.option("--token-file", metavar="FILE", help="File with the access token.  [default: $IMONDRIAN_TOKEN]")
@options.CONSOLE
def backup(console_options: ConsoleOptions, *, file: str, url: str, token_file: str | None) -> None:
    """Write a copy of all data of a running service to FILE.

    To restore the data, copy FILE into an empty folder as imondrian.db, and start a service with --data and that
    folder.
    """
    from imondrian.cli.commands.backup import backup as run

    run(console_options, file, url, token_file)


def _row_numbers(text: str | None) -> list[int]:
    try:
        return [int(number) for number in (text or "").split(",") if number.strip()]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of row numbers such as 3,17.", param_hint="--rows") from None


def _exit(has_anomalies: bool, fail_on_anomaly: bool) -> None:  # noqa: FBT001
    if has_anomalies and fail_on_anomaly:
        sys.exit(_ANOMALIES_FOUND)

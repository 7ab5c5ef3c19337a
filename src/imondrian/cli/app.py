"""The commands and their options; the work is imported when a command is run."""

import os
import sys
from typing import Any, NoReturn

import click

import imondrian
from imondrian.cli import options
from imondrian.cli.console import complain, discard
from imondrian.cli.settings import Choice, Drawing, Outputs, Reproducing, Source, Telling, Watching
from imondrian.cli.signals import Interrupted, raise_on_signals
from imondrian.defaults import N_JOBS
from imondrian.errors import ImondrianError

_FOUND, _BAD_INPUT, _DEFECT = 1, 2, 70
_DEBUG = "IMONDRIAN_DEBUG"


def main() -> NoReturn:
    """Run the command line: whatever is wrong with the input is one line and exit code 2."""
    _make_streams_safe()
    raise_on_signals()
    try:
        app(prog_name="imondrian")
    except (ImondrianError, OSError, MemoryError) as error:
        complain(f"imondrian: {_in_one_line(error)}")
        sys.exit(_BAD_INPUT)
    except Interrupted as interrupted:
        complain("imondrian: interrupted")
        sys.exit(128 + interrupted.number)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # a defect of ours, or of polars, whose panics are no exceptions
        if os.environ.get(_DEBUG):
            raise
        complain(f"imondrian: a defect: {type(error).__name__}: {_in_one_line(error)} ({_DEBUG}=1 tells more)")
        sys.exit(_DEFECT)
    sys.exit(0)


def _make_streams_safe() -> None:
    """See to it that there is an input and an output, and that letters that cannot be shown do not end the program."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _in_one_line(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    return " ".join(str(error).split())


class _Commands(click.Group):
    """The commands; that nobody reads what they write any more is no failure."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            discard(sys.stdout)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 done, 1 anomalies found (with --fail-on-anomaly), 2 bad input, 129, 130 and 143 interrupted.",
)
@click.version_option(imondrian.__version__)
def app() -> None:
    """Find anomalies in tables and streams by the isolation Mondrian forest."""


@app.command()
@options.grouped(
    "outputs",
    Outputs,
    options.OUTPUT,
    click.option("--report", metavar="FILE", help="Write a page with pictures: .html."),
    click.option("--save", "model", metavar="FILE", help="Keep the model: .imf."),
)
@options.TOP
@options.CHOICE
@options.MAKING
@options.SOURCE
@options.TELLING
@options.FAIL_ON_ANOMALY
def detect(*, fail_on_anomaly: bool, **settings: Any) -> None:
    """Find the anomalies in a table, and say what makes them odd.

    DATA is CSV, TSV, NDJSON or Parquet, packed by gzip or not; - is standard input.
    """
    from imondrian.cli.commands.detect import run

    _exit(run(**settings), fail_on_anomaly)


@app.command()
@click.option("--save", "model", metavar="FILE", required=True, help="The model file to write: .imf.")
@options.CHOICE
@options.MAKING
@options.SOURCE
@options.TELLING
def fit(**settings: Any) -> None:
    """Fit a forest on a table, and keep it in a model file."""
    from imondrian.cli.commands.fit import run

    run(**settings)


@app.command()
@options.MODEL
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    default="-",
    help="The scored table: .csv, .tsv, .ndjson, .parquet.  [default: CSV on standard output]",
)
@options.TOP
@options.CHOICE_FOR_MODEL
@options.jobs(-1)
@options.SOURCE
@options.TELLING
@options.FAIL_ON_ANOMALY
def score(*, fail_on_anomaly: bool, **settings: Any) -> None:
    """Score a table of any length with a model file, in constant memory."""
    from imondrian.cli.commands.score import run

    _exit(run(**settings), fail_on_anomaly)


@app.command()
@options.MODEL
@click.option("--rows", metavar="3,17", help="Rows to explain, counted from 1.  [default: the oddest]")
@options.TOP
@click.option("--output", "-o", metavar="FILE", help="Write the parts of the features in all rows: .csv, .parquet ...")
@options.CHOICE_FOR_MODEL
@options.jobs(-1)
@options.SOURCE
@options.TELLING
def explain(*, rows: str | None, **settings: Any) -> None:
    """Say what makes rows odd, with a model file."""
    from imondrian.cli.commands.explain import run

    run(asked=_numbers(rows), **settings)


@app.command()
@options.grouped(
    "watching",
    Watching,
    click.option("--follow", metavar="FILE", help="Read a file, and wait for more in it, as tail -F does."),
    click.option(
        "--model", metavar="FILE", help="Go on with the detector in this file, or begin; keep it there: .imf."
    ),
    options.count("--save-every", "Keep the detector after so many rows.  [default: at the end]", metavar="ROWS"),
    click.option("--explain", is_flag=True, help="Say of anomalies why; slower."),
    click.option(
        "--on-error",
        type=click.Choice(["skip", "fail"]),
        default="skip",
        show_default=True,
        help="A row that cannot be used: write its line with the error and go on; or stop.",
    ),
    options.jobs(N_JOBS),
)
@options.grouped("choice", Choice, options.FEATURES, options.IGNORE, options.TIME)
@options.DETECTING
@options.grouped(
    "source",
    Source,
    click.argument("path", metavar="[DATA]", default="-", required=False),
    options.LINES,
    options.SEPARATOR,
    options.NO_HEADER,
)
@options.QUIET
@options.FAIL_ON_ANOMALY
def watch(*, quiet: bool, fail_on_anomaly: bool, **settings: Any) -> None:
    """Score a stream line by line, and learn it; NDJSON comes out, one line for each that comes in.

    DATA is CSV, TSV or NDJSON; without it, standard input is read.
    """
    from imondrian.cli.commands.watch import run

    _exit(run(telling=Telling(quiet=quiet), **settings), fail_on_anomaly)


@app.group()
def plot() -> None:
    """Draw scores, regions, the Mondrian partition or a tree, as PNG or SVG."""


def _drawing(*parameters: options.Decorator) -> options.Decorator:
    """Give a picture its options: those of all pictures, and its own."""

    def decorate(command: options.Command) -> options.Command:
        groups = (
            options.grouped("drawing", Drawing, options.PICTURE, options.FROM_MODEL, *parameters),
            options.CHOICE,
            options.MAKING,
            options.SOURCE,
            options.TELLING,
        )
        for group in reversed(groups):
            command = group(command)
        return command

    return decorate


@plot.command()
@_drawing()
def scores(**settings: Any) -> None:
    """Draw how many rows have which score, with the thresholds."""
    _draw("scores", settings)


@plot.command()
@_drawing()
def regions(**settings: Any) -> None:
    """Draw the score of every place over two features, and the region that is normal."""
    _draw("regions", settings)


@plot.command()
@_drawing(
    options.TREE,
    click.option(
        "--max-time", type=click.FloatRange(0.0), help="Leave out cuts made after this time.  [default: none]"
    ),
)
def partition(**settings: Any) -> None:
    """Draw the Mondrian partition of a tree over two features."""
    _draw("partition", settings)


@plot.command()
@_drawing(options.TREE, options.count("--levels", "How many levels of cuts to draw.", default=5, show_default=True))
def tree(**settings: Any) -> None:
    """Draw a tree: its cuts, and the times at which they were made."""
    _draw("tree", settings)


def _draw(kind: str, settings: dict[str, Any]) -> None:
    from imondrian.cli.commands.plot import run

    run(kind, **settings)


@app.command()
@options.MODEL
@options.JSON
def info(*, model: str, as_json: bool) -> None:
    """Tell what is in a model file, and check every byte of it."""
    from imondrian.cli.commands.info import run

    run(model, Telling(as_json=as_json))


@app.command()
@click.argument("what", metavar="WHAT", type=click.Choice(["batch", "online", "synthetic", "quality", "all"]))
@options.grouped(
    "reproducing",
    Reproducing,
    click.option(
        "--data", metavar="DIR", help="Folder of the data sets.  [default: $IMONDRIAN_DATA, else they are downloaded]"
    ),
    click.option(
        "--datasets", metavar="A,B", help="Data sets to run on.  [default: the paper's; quality: all open ones]"
    ),
    click.option("--methods", metavar="A,B", help="Methods to run.  [default: all]"),
    options.count("--seeds", "How often all is done, each time with another seed.  [default: as on the page]"),
    options.count("--folds", "Folds of the batch experiment.", smallest=2, default=10, show_default=True),
    click.option(
        "--budget",
        type=click.FloatRange(0.0),
        default=60.0,
        show_default=True,
        help="Seconds for a method on a set; beyond, it is run on fewer folds or seeds, at least on one.",
    ),
    click.option(
        "--jobs",
        type=int,
        default=-1,
        show_default=True,
        help="How many methods are measured at a time, each with one thread; -1: one per processor.",
    ),
    click.option(
        "--output", "-o", metavar="DIR", default="docs", show_default=True, help="Where to write reproduction.md."
    ),
)
@options.TELLING
def reproduce(**settings: Any) -> None:
    """Run the experiments of the paper, and write a page with its tables and figures beside ours.

    WHAT is batch (Table II), online (Table III), synthetic (Figures 1 and 2), quality (beyond the paper: all open
    sets) or all, which takes half an hour.
    """
    from imondrian.cli.commands.reproduce import run

    run(**settings)


@app.command()
@click.option("--data", metavar="DIR", required=True, help="Folder in which everything is kept.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Any but a loopback address demands a token.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 for any that is free.")
@click.option("--token-file", metavar="FILE", help="File with the token.  [default: $IMONDRIAN_TOKEN]")
def serve(*, data: str, host: str, port: int, token_file: str | None) -> None:
    """Serve detectors over HTTP, with a page; what was answered survives a power cut."""
    from imondrian.cli.commands.serve import run

    run(data, host, port, token_file)


def _numbers(text: str | None) -> list[int]:
    try:
        return [int(number) for number in (text or "").split(",") if number.strip()]
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of rows such as 3,17.", param_hint="--rows") from None


def _exit(any_found: bool, is_failure: bool) -> None:  # noqa: FBT001
    if any_found and is_failure:
        sys.exit(_FOUND)

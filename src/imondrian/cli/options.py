"""The options that commands share: declared once, in groups that reach a command as one value."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from imondrian.cli.settings import Choice, Detecting, Making, Source, Telling
from imondrian.defaults import MAX_SAMPLES, N_TREES, PRESET, PRESETS, SEED, SHINGLE, WINDOW
from imondrian.tables.formats import FORMATS, LINE_FORMATS

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]
MISSING = ("fail", "drop", "median")


def grouped(name: str, kind: type[Any], *parameters: Decorator) -> Decorator:
    """Give a command the parameters, their values folded into one of that kind; fields without one have its default."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def folded(**values: Any) -> Any:
            fields = {field: values.pop(field) for field in kind._fields if field in names}
            return command(**values, **{name: kind(**fields)})

        decorated: Any = folded
        before = {parameter.name for parameter in getattr(command, "__click_params__", ())}
        for parameter in reversed(parameters):
            decorated = parameter(decorated)
        names = {parameter.name for parameter in decorated.__click_params__} - before
        return decorated

    return decorate


DATA = click.argument("path", metavar="DATA")


FORMAT = click.option("--format", type=click.Choice(FORMATS), help="Where neither name nor content tell it.")
LINES = click.option("--format", type=click.Choice(LINE_FORMATS), help="Where the first line does not tell it.")
SEPARATOR = click.option("--separator", help="What separates the fields of CSV.  [default: most frequent of , ; tab |]")
NO_HEADER = click.option("--no-header", is_flag=True, help="The first line of CSV is a row like the others.")
SOURCE = grouped("source", Source, DATA, FORMAT, SEPARATOR, NO_HEADER)

FEATURES = click.option(
    "--features", multiple=True, metavar="A,B", help="Columns to use; may be repeated.  [default: all numeric ones]"
)
IGNORE = click.option("--ignore", multiple=True, metavar="A,B", help="Columns not to use; may be repeated.")
TIME = click.option("--time", metavar="COLUMN", help="The column that tells the time: shown, and no feature.")
MISSING_VALUES = click.option(
    "--missing",
    type=click.Choice(MISSING),
    default="fail",
    show_default=True,
    help="Missing values: an error; rows that get no score; or the column's median instead.",
)
CHOICE = grouped("choice", Choice, FEATURES, IGNORE, TIME, MISSING_VALUES)
CHOICE_FOR_MODEL = grouped("choice", Choice, TIME, MISSING_VALUES)


def threshold(cut_off: str) -> Decorator:
    """Make the option for the threshold; without it, the preset's cut-off of that name is used."""
    defaults = ", ".join(f"{getattr(preset, cut_off)} ({name})" for name, preset in PRESETS.items())
    return click.option(
        "--threshold",
        metavar="SHARE|kmeans|auto",
        help="What is an anomaly: that share of the rows, the oddest; the upper of two clusters of scores; or a score"
        f" above 0.5.  [default: {defaults}]",
    )


def preset(**attributes: Any) -> Decorator:
    """Make the option for a preset; one without a default says in its help what happens without it."""
    usual = "" if "default" in attributes else f"  [default: {PRESET}]"
    text = f"The score, how features are weighed, and the threshold.{usual}"
    return click.option("--preset", type=click.Choice(list(PRESETS)), help=text, **attributes)


def jobs(default: int) -> Decorator:
    """Make the option for the number of threads."""
    text = "Number of threads, -1: one per processor. Results do not depend on it."
    return click.option("--jobs", type=int, default=default, show_default=True, help=text)


def count(name: str, text: str, smallest: int = 1, **attributes: Any) -> Decorator:
    """Make an option for a whole number."""
    return click.option(name, type=click.IntRange(smallest, attributes.pop("largest", None)), help=text, **attributes)


MAKING = grouped(
    "making",
    Making,
    preset(default=PRESET, show_default=True),
    threshold("contamination"),
    count("--trees", "Number of trees.", default=N_TREES, show_default=True),
    count("--samples", "How many points a tree holds; 0: all.", smallest=0, default=MAX_SAMPLES, show_default=True),
    count("--seed", "The same seed gives the same result.", 0, largest=2**32 - 1, default=SEED, show_default=True),
    jobs(-1),
)

DETECTING = grouped(
    "detecting",
    Detecting,
    preset(),
    threshold("threshold"),
    count("--window", f"How many of the latest rows are known.  [default: {WINDOW}]"),
    count("--samples", f"How many of them a tree holds; 0: all.  [default: {MAX_SAMPLES}]", smallest=0),
    count("--trees", f"Number of trees.  [default: {N_TREES}]"),
    count("--shingle", f"How many rows make a point, for time series.  [default: {SHINGLE}]"),
    count("--warm-up", "How many rows are never anomalies.  [default: an eighth of the window]", smallest=0),
    click.option(
        "--learn-anomalies/--no-learn-anomalies",
        default=None,
        help="Whether anomalies are learned too.  [default: they are]",
    ),
    count("--seed", f"The same seed gives the same result.  [default: {SEED}]", smallest=0),
)

PICTURE = click.option("--output", "-o", metavar="FILE", help="The picture: .png or .svg.  [default: its name, .png]")
FROM_MODEL = click.option("--model", metavar="FILE", help="Draw with a model: .imf.  [default: fit one on the data]")
TREE = count("--tree", "Which tree, counted from 0.", smallest=0, default=0, show_default=True)
MODEL = click.argument("model", metavar="MODEL")
TOP = count("--top", "How many of the oddest rows to tell of.", default=10, show_default=True)
OUTPUT = click.option(
    "--output", "-o", "table", metavar="FILE", help="Write the scored table: .csv, .tsv, .ndjson, .parquet; - for CSV."
)
QUIET = click.option("--quiet", "-q", is_flag=True, help="Say nothing but errors.")
JSON = click.option("--json", "as_json", is_flag=True, help="Tell the result as JSON.")
TELLING = grouped("telling", Telling, QUIET, JSON)
FAIL_ON_ANOMALY = click.option("--fail-on-anomaly", is_flag=True, help="Exit with 1 if there is an anomaly.")

"""The options of the commands; a command receives them in groups, as named tuples."""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import click

from imondrian.base.defaults import (
    GAP,
    KEYED_MAX_SAMPLES,
    KEYED_N_TREES,
    KEYED_WINDOW,
    MAX_SAMPLES,
    MISSING_VALUES,
    N_JOBS,
    N_TREES,
    PRESET,
    PRESETS,
    SEED,
    SERIES,
    SHINGLE,
    STREAM_PRESETS,
)
from imondrian.tables.formats import FORMATS, LINE_FORMATS

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]
MISSING = ("median", "indicator", "drop", "fail")
MODEL_MISSING = ("median", "drop", "fail")
STREAM_MISSING = ("median", "previous", "indicator", "drop")
SERIES_MISSING = ("median", "drop")  # with --preset series


# -- groups -----------------------------------------------------------------------------------------------------------


class SourceOptions(NamedTuple):
    """The table or stream to read, and its format."""

    path: str = "-"
    format: str | None = None
    separator: str | None = None
    no_header: bool = False
    encoding: str = "auto"
    skip_lines: int | None = None
    sheet: str | None = None


class FeatureOptions(NamedTuple):
    """The columns to use, how their values are written, and what to do with missing values."""

    features: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    calendar: bool = False
    id: str | None = None
    time: str | None = None
    by: tuple[str, ...] = ()
    decimal: str | None = None
    thousands: str | None = None
    missing: str | None = None  # None: the default, or the rule of the model


class ForestOptions(NamedTuple):
    """How to fit a forest."""

    preset: str = PRESET
    threshold: str | None = None
    trees: int = N_TREES
    samples: int = MAX_SAMPLES
    seed: int = SEED
    jobs: int = -1


class OutputOptions(NamedTuple):
    """The files to write."""

    table: str | None = None
    report: str | None = None
    model: str | None = None

    def files(self) -> dict[str, str]:
        """Return the paths of the files to write, by what they contain, without standard output."""
        return {name: path for name, path in self._asdict().items() if path is not None and path != "-"}


class ConsoleOptions(NamedTuple):
    """What to print, and in which format."""

    quiet: bool = False
    as_json: bool = False


class DetectorOptions(NamedTuple):
    """How to create a stream detector; None: the default, or the value of the detector in the model file."""

    preset: str | None = None
    window: int | None = None
    samples: int | None = None
    trees: int | None = None
    shingle: int | None = None
    missing: str | None = None
    warm_up: int | None = None
    learn_anomalies: bool | None = None
    seed: int | None = None


class AlarmOptions(NamedTuple):
    """Which rows of a stream are anomalies, and which anomalies form an incident.

    None: the default, or the value of the detector in the model file.
    """

    threshold: str | None = None
    gap: int | None = None
    min_points: int | None = None
    cooldown: int | None = None
    side: tuple[str, ...] = ()
    ignore_within: tuple[str, ...] = ()


class IncidentOptions(NamedTuple):
    """How incidents of a stream are reported."""

    incidents: bool = False
    scored: str | None = None
    silence: str | None = None
    exec: str | None = None
    exec_timeout: float = 60.0


class WatchOptions(NamedTuple):
    """How to watch a stream."""

    model: str | None = None
    save_every: int | None = None
    follow: str | None = None
    max_memory: str | None = None
    explain: bool = False
    on_error: str = "skip"
    jobs: int = N_JOBS


class PlotOptions(NamedTuple):
    """What to plot, and the file to write."""

    output: str | None = None
    model: str | None = None
    tree: int = 0
    levels: int = 5
    max_time: float | None = None


class SeriesOptions(NamedTuple):
    """How a watched series is shown, and the file to write."""

    output: str | None = None
    label: str | None = None
    width: float = 10.0


class ReproduceOptions(NamedTuple):
    """Which experiments to run and where to write the results; None: the default of each experiment."""

    data: str | None = None
    datasets: str | None = None
    methods: str | None = None
    seeds: int | None = None
    folds: int = 10
    budget: float = 60.0
    jobs: int = -1
    output: str = "docs"


def grouped(name: str, group: type[Any], *parameters: Decorator) -> Decorator:
    """Return a decorator that adds parameters to a command and passes their values as one `group` called `name`.

    Fields of the group that have no parameter keep their defaults.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def with_group(**values: Any) -> Any:
            fields = {field: values.pop(field) for field in group._fields if field in names}
            return command(**values, **{name: group(**fields)})

        decorated: Any = with_group
        earlier = {parameter.name for parameter in getattr(command, "__click_params__", ())}
        for parameter in reversed(parameters):
            decorated = parameter(decorated)
        names = {parameter.name for parameter in decorated.__click_params__} - earlier
        return decorated

    return decorate


# -- options with a default or text that depends on the command -------------------------------------------------------


def threshold_option(preset_field: str, presets: Any) -> Decorator:
    """Return the option for the threshold; its default is the field `preset_field` of the preset."""
    defaults = _defaults_of(preset_field, presets)
    autos = _defaults_of("auto", presets)
    return click.option(
        "--threshold",
        metavar="P|RULE",
        help="Which rows are anomalies. A probability P below 0.5: rows with a score so high that an ordinary row"
        ' reaches it with a probability below P. 0.001 is one in a thousand, and "surprise 3" means the same.'
        ' "top 5%": the 5% of the rows with the highest scores. kmeans: the rows in the upper of two clusters of'
        " scores. 0.5: rows with a score above 0.5."
        f" auto: {autos}.  [default: {defaults}]",
    )


def preset_option(**attributes: Any) -> Decorator:
    """Return the option for the preset of a forest on a table."""
    text = "Score, feature weights and threshold: the recommended ones (practice), or those of the paper."
    return click.option("--preset", type=click.Choice(list(PRESETS)), help=text, **attributes)


def stream_preset_option(name: str, **attributes: Any) -> Decorator:
    """Return the option for the preset of a stream detector; `name` is the default in the help text."""
    text = (
        "Score, feature weights, threshold, window and trees: the recommended ones (practice), those of the paper, or"
        " those for time series (series). With series, the score measures deviations from what is usual at the hour of"
        f" the day, and from the recent level; --time names the column of times.  [default: {name}]"
    )
    return click.option("--preset", type=click.Choice(list(STREAM_PRESETS)), help=text, **attributes)


def _defaults_of(field: str, presets: Any) -> str:
    """Return the values of a field of the presets, such as "0.001 (practice, series), kmeans (paper)"."""
    names: dict[Any, list[str]] = {}
    for name, preset in presets.items():
        names.setdefault(getattr(preset, field), []).append(name)
    return ", ".join(f"{_value_text(value)} ({', '.join(users)})" for value, users in names.items())


def _value_text(value: Any) -> str:
    """Return a default as the user would write it; None (in --samples: all rows) is written as 0."""
    return "0" if value is None else str(value)


def jobs_option(default: int) -> Decorator:
    """Return the option for the number of threads."""
    text = "Number of threads; -1: one per processor. Does not change the results."
    return click.option("--jobs", type=int, metavar="N", default=default, show_default=True, help=text)


def integer_option(name: str, text: str, smallest: int = 1, **attributes: Any) -> Decorator:
    """Return an option for an integer of at least `smallest`, and at most `largest` if that attribute is given."""
    number = click.IntRange(smallest, attributes.pop("largest", None))
    return click.option(name, type=number, help=text, **{"metavar": "N", **attributes})


# -- shared options ---------------------------------------------------------------------------------------------------

DATA = click.argument("path", metavar="DATA")
FORMAT = click.option(
    "--format", type=click.Choice(FORMATS), help="Format of DATA.  [default: by extension, else by content]"
)
LINE_FORMAT = click.option(
    "--format", type=click.Choice(LINE_FORMATS), help="Format of DATA.  [default: by extension, else by the first line]"
)
SEPARATOR = click.option(
    "--separator", help="Field separator of CSV.  [default: the one of , ; tab | that fits the first lines best]"
)
NO_HEADER = click.option("--no-header", is_flag=True, help="The first line is a row, not a header.")
ENCODING = click.option(
    "--encoding",
    metavar="NAME",
    default="auto",
    show_default=True,
    help="Encoding of text, such as utf-8, utf-16 or latin-1; auto: by the byte order mark, else UTF-16 if about every"
    " second byte is zero, else UTF-8 if the text is valid UTF-8, else Windows-1252.",
)
SKIP_LINES = integer_option(
    "--skip-lines", "Number of lines before the header.  [default: title lines are recognised]", smallest=0
)
SHEET = click.option("--sheet", metavar="NAME", help="Sheet of an Excel file.  [default: the first]")
SOURCE = grouped("source_options", SourceOptions, DATA, FORMAT, SEPARATOR, NO_HEADER, ENCODING, SKIP_LINES, SHEET)

FEATURES = click.option(
    "--features",
    multiple=True,
    metavar="A,B",
    help="Columns to use; may be repeated.  [default: all columns of numbers and categories]",
)
CATEGORICAL = click.option(
    "--categorical",
    multiple=True,
    metavar="A,B",
    help="Columns of numbers that are categories, such as codes; may be repeated. Columns of text need not be named.",
)
CALENDAR = click.option(
    "--calendar", is_flag=True, help="Use the weekday and the hour of dates and times as categories."
)
ID = click.option("--id", metavar="COLUMN", help="Column that identifies a row: displayed, not used as a feature.")
DECIMAL = click.option(
    "--decimal", metavar="CHARACTER", help="Decimal separator of numbers: . or ,  [default: recognised per column]"
)
THOUSANDS = click.option(
    "--thousands",
    metavar="CHARACTER",
    help="Separator between thousands: , or . or ' or space.  [default: recognised per column]",
)
IGNORE = click.option("--ignore", multiple=True, metavar="A,B", help="Columns not to use; may be repeated.")
TIME = click.option("--time", metavar="COLUMN", help="Timestamp column: displayed, not used as a feature.")
STREAM_TIME = click.option(
    "--time",
    metavar="COLUMN",
    help="Timestamp column: displayed, not used as a feature. With --preset series, the times of the rows: dates, or"
    " seconds, milliseconds, microseconds or nanoseconds since 1970."
    "  [default with --preset series: the only column of dates]",
)
BY = click.option(
    "--by",
    multiple=True,
    metavar="A,B",
    help="Key columns, such as host: one detector for each of their values; may be repeated. They are not used as"
    f" features, and all features must be numbers. Defaults with --by: --window {KEYED_WINDOW}, --samples"
    f" {KEYED_MAX_SAMPLES}, --trees {KEYED_N_TREES}, --missing drop. Not with --explain, --silence, --shingle,"
    " --categorical, --preset series, --no-learn-anomalies or another --missing.",
)
MISSING_OPTION = click.option(
    "--missing",
    type=click.Choice(MISSING),
    default=MISSING_VALUES,
    show_default=True,
    help="Missing numbers: use the median of the column (median); use the median, and the absence as a feature"
    " (indicator); give the row no score (drop); or stop with an error (fail). With median and indicator, a missing"
    " category is a category of its own.",
)
MODEL_MISSING_OPTION = click.option(
    "--missing",
    type=click.Choice(MODEL_MISSING),
    help="Missing numbers: use the median of the column (median), give the row no score (drop), or stop with an error"
    " (fail). With median, a missing category is a category of its own."
    "  [default: as the model was fitted]",
)
NUMBERS = (DECIMAL, THOUSANDS)
TABLE_FEATURES = grouped(
    "feature_options",
    FeatureOptions,
    FEATURES,
    IGNORE,
    CATEGORICAL,
    CALENDAR,
    ID,
    TIME,
    *NUMBERS,
    MISSING_OPTION,
)
MODEL_FEATURES = grouped("feature_options", FeatureOptions, ID, TIME, *NUMBERS, MODEL_MISSING_OPTION)
STREAM_FEATURES = grouped("feature_options", FeatureOptions, BY, FEATURES, IGNORE, CATEGORICAL, STREAM_TIME)

SERIES_FEATURES = grouped("feature_options", FeatureOptions, FEATURES, IGNORE, STREAM_TIME, *NUMBERS)

FOREST = grouped(
    "forest_options",
    ForestOptions,
    preset_option(default=PRESET, show_default=True),
    threshold_option("table_threshold", PRESETS),
    integer_option("--trees", "Number of trees.", default=N_TREES, show_default=True),
    integer_option(
        "--samples", "Maximum number of rows in a tree; 0: all.", smallest=0, default=MAX_SAMPLES, show_default=True
    ),
    integer_option(
        "--seed",
        "Random seed; the same seed gives the same result.",
        0,
        largest=2**32 - 1,
        default=SEED,
        show_default=True,
    ),
    jobs_option(-1),
)


def _detector_options(preset: Decorator) -> Decorator:
    return grouped(
        "detector_options",
        DetectorOptions,
        preset,
        integer_option(
            "--window",
            "Number of latest rows to keep; older rows are forgotten."
            f"  [default: {_defaults_of('window', STREAM_PRESETS)}]",
        ),
        integer_option(
            "--samples",
            "Average number of rows of the window in a tree; 0: all."
            f"  [default: {_defaults_of('max_samples', STREAM_PRESETS)}]",
            smallest=0,
        ),
        integer_option("--trees", f"Number of trees.  [default: {_defaults_of('n_trees', STREAM_PRESETS)}]"),
        integer_option(
            "--shingle",
            "Number of consecutive rows in a point, for time series whose shape matters; not with --preset series."
            f"  [default: {SHINGLE}]",
        ),
        click.option(
            "--missing",
            type=click.Choice(STREAM_MISSING),
            help="Missing numbers: use the median of the window (median) or the previous value (previous); use the"
            " median, and the absence as a feature (indicator); or give the row no score (drop). With --preset series,"
            " median means that a missing number is treated like the usual value. A missing category is a category of"
            " its own, except with drop."
            f"  [default: {MISSING_VALUES}]",
        ),
        integer_option(
            "--warm-up",
            "Number of initial rows that are never labelled anomalies."
            "  [default: an eighth of the window; series: a sixteenth]",
            smallest=0,
        ),
        click.option(
            "--learn-anomalies/--no-learn-anomalies",
            default=None,
            help="Whether to learn rows labelled as anomalies.  [default: learn]",
        ),
        integer_option("--seed", f"Random seed; the same seed gives the same result.  [default: {SEED}]", smallest=0),
    )


DETECTOR = _detector_options(stream_preset_option(PRESET))
SERIES_DETECTOR = _detector_options(stream_preset_option(SERIES, default=SERIES))

ALARMS = grouped(
    "alarm_options",
    AlarmOptions,
    threshold_option("threshold", STREAM_PRESETS),
    integer_option(
        "--gap",
        f"Anomalies at most this many rows apart belong to the same incident.  [default: {GAP}]",
        metavar="ROWS",
    ),
    integer_option(
        "--min-points",
        "Smallest number of anomalies that can open an incident. Even with 1, a single anomaly opens an incident only"
        " if it is ten times rarer than the threshold; otherwise, a second anomaly opens it.  [default: 1]",
    ),
    integer_option(
        "--cooldown",
        "Number of rows, after an incident has closed, in which no other incident opens.  [default: 0]",
        smallest=0,
        metavar="ROWS",
    ),
    click.option(
        "--side",
        multiple=True,
        metavar="FEATURE=high|low|both",
        help="Anomalies mainly due to this feature count for incidents only if its value is high, or low; may be"
        " repeated."
        "  [default: both]",
    ),
    click.option(
        "--ignore-within",
        multiple=True,
        metavar="FEATURE=0.5|10%",
        help="Anomalies mainly due to this feature do not count for incidents if its value is at most this far from the"
        " expected value (0.5), or at most this share of the expected value away from it (10%); may be repeated.",
    ),
)
INCIDENTS = grouped(
    "incident_options",
    IncidentOptions,
    click.option(
        "--incidents",
        is_flag=True,
        help="Write a line of NDJSON when an incident opens and one when it closes, instead of the scored rows.",
    ),
    click.option(
        "--scored", metavar="FILE", help="With --incidents: file to which the scored rows are appended, as NDJSON."
    ),
    click.option(
        "--silence",
        metavar="TIME",
        help="Also report an incident when there is no input for this long: a number followed by s, m, h or d, such as"
        " 30s or 10m.",
    ),
    click.option(
        "--exec",
        metavar="COMMAND",
        help="Run a command whenever an incident opens or closes, with a line of NDJSON about it on standard input. The"
        " command is run without a shell; to use one, write \"sh -c '...'\".",
    ),
    click.option(
        "--exec-timeout",
        type=click.FloatRange(0.0, 86_400.0, min_open=True),
        metavar="SECONDS",
        default=60.0,
        show_default=True,
        help="Time after which a command of --exec is killed.",
    ),
)

MODEL = click.argument("model", metavar="MODEL")
TOP = integer_option("--top", "Number of rows with the highest scores to show.", default=10, show_default=True)
OUTPUT_TABLE = click.option(
    "--output",
    "-o",
    "table",
    metavar="FILE",
    help="Scored table to write: .csv, .tsv, .ndjson, .parquet; -: CSV on standard output.",
)
PLOT_OUTPUT = click.option(
    "--output", "-o", metavar="FILE", help="Image to write: .png or .svg.  [default: PLOT.png, such as tree.png]"
)
PLOT_MODEL = click.option(
    "--model", metavar="FILE", help="Model file to use: .imf.  [default: fit a forest on the data]"
)
PLOT_TREE = integer_option("--tree", "Index of the tree, from 0.", smallest=0, default=0, show_default=True)
SERIES_LABEL = click.option(
    "--label",
    metavar="COLUMN",
    help="Column that is 1 for known anomalies and 0 for other rows; a line above the values marks the anomalies.",
)
QUIET = click.option("--quiet", "-q", is_flag=True, help="Print only errors and warnings.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
CONSOLE = grouped("console_options", ConsoleOptions, QUIET, JSON)
FAIL_ON_ANOMALY = click.option("--fail-on-anomaly", is_flag=True, help="Exit with code 1 if there are anomalies.")

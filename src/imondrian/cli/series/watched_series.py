"""A table that is watched as a series, from its first row to its last, for a picture or a report."""

import math
from typing import NamedTuple

import numpy as np
import polars as pl

from imondrian.alarms.incidents import Incident
from imondrian.alarms.thresholds import SURPRISE, stream_rule
from imondrian.base.defaults import SERIES
from imondrian.base.errors import InvalidInputError
from imondrian.cli.console import Console, Progress
from imondrian.cli.detector_settings import AlarmSettings, detector_parameters, explicit_options
from imondrian.cli.options import AlarmOptions, DetectorOptions, FeatureOptions
from imondrian.cli.stream_words import WITHOUT_TIMES
from imondrian.cli.table_rows import column_rules, errors_named_after
from imondrian.engine.jit import Array
from imondrian.plots import Band, Surprises
from imondrian.plots.time_axis import FIRST_YEAR, LAST_YEAR
from imondrian.stream.detector import Results, StreamDetector
from imondrian.tables.cells import are_booleans, booleans_as_numbers, parse_column, without_missing_texts
from imondrian.tables.dates import recognise_dates
from imondrian.tables.feature_columns import TableColumns, check_names
from imondrian.tables.row_seconds import seconds_of_column
from imondrian.tables.table_reader import Table

_FIRST_SECOND, _END = (year.astype("datetime64[s]").astype(np.float64) for year in (FIRST_YEAR, LAST_YEAR + 1))
_N_RANGES = 1_500  # the expected range is computed for at most this many rows, at regular distances


class SeriesTable(NamedTuple):
    """The columns of a table that is a series."""

    names: list[str]  # names of the columns of `values`
    values: Array  # of shape (n_rows, n_values); NaN where a number is missing
    seconds: Array | None  # times in seconds since 1970, NaN where one is unknown; None: there is no time column
    time_column: str | None
    is_labelled: Array | None  # which rows are known to be anomalous; None: there is no label column

    @property
    def when(self) -> Array | None:
        """The times of the rows for an axis; None if no time is known.

        A time that is unknown, or that an axis cannot show, is interpolated between its neighbours.
        """
        if self.seconds is None:
            return None
        is_known, rows = (self.seconds >= _FIRST_SECOND) & (self.seconds < _END), np.arange(self.seconds.size)
        if not is_known.any():
            return None
        seconds = np.interp(rows, rows[is_known], self.seconds[is_known])
        return np.round(seconds * 1e6).astype("datetime64[us]")

    @property
    def n_unknown(self) -> int:
        """Number of rows whose time could not be read."""
        return 0 if self.seconds is None else int(np.isnan(self.seconds).sum())


class SeriesRun(NamedTuple):
    """What a detector found in a series."""

    detector: StreamDetector
    results: Results
    incidents: list[Incident]
    expected: Band | None  # None: the warm-up ended after the last row for which a range could have been computed

    @property
    def surprises(self) -> Surprises:
        """The values compared with the threshold (the surprise or the score of each row), and the threshold."""
        rule = stream_rule(self.detector.threshold)
        if rule.name == SURPRISE:
            return Surprises(self.results.surprise, rule.value)
        is_set = self.results.threshold < 1.0  # a threshold of 1 means that there is none yet
        return Surprises(self.results.score, np.where(is_set, self.results.threshold, np.nan), "anomaly score")

    @property
    def n_warm_up(self) -> int:
        """Number of rows at the start that cannot be anomalies."""
        n_scored = np.cumsum(~np.isnan(self.results.score))
        return int(np.searchsorted(n_scored, self.detector.parameters["warm_up"], side="right"))

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The first and last row of each incident."""
        return [(incident.first, incident.last) for incident in self.incidents]


def read_series(
    table: Table, options: FeatureOptions, label: str | None, *, uses_times: bool, console: Console
) -> SeriesTable:
    """Read a table; print which columns are used, and which are not."""
    with console.progress(f"reading {table.name}") as progress:
        frame = table.read_all(progress)
    with errors_named_after(table):
        check_names([label] if label is not None else [], frame.columns)
        ignore = (*options.ignore, *([] if label is None else [label]))
        time = options.time or (_only_date(frame, {*options.features, *ignore}, console) if uses_times else None)
        columns = TableColumns(frame)
        choice = columns.choose(column_rules(table, frame.columns, options._replace(ignore=ignore, time=time)))
        numbers = [feature for feature in choice.columns if not feature.is_category]
        if not numbers:
            raise InvalidInputError("A series needs numbers, but no column has any.")
        values = columns.points(numbers)
        seconds = None if time is None else _seconds(frame[time], time, console)
        is_labelled = None if label is None else _labels(frame[label], label)
    texts = {feature.column: "not a number" for feature in choice.columns if feature.is_category}
    left_out = {name: reason for name, reason in choice.left_out.items() if name not in (time, label)} | texts
    names = [feature.name for feature in numbers]
    reasons = ", ".join(f"{name} ({reason})" for name, reason in left_out.items())
    console.note(f"values: {', '.join(names)}" + (f"; left out: {reasons}" if reasons else ""))
    return SeriesTable(names, values, seconds, time, is_labelled)


def watch_series(
    series: SeriesTable, detector_options: DetectorOptions, alarm_options: AlarmOptions, progress: Progress
) -> SeriesRun:
    """Process all rows of a series in their order; the expected range of a row is computed before it is learned."""
    settings = AlarmSettings.of(alarm_options)
    settings.check_features(series.names, ())
    parameters = detector_parameters(explicit_options(detector_options)) | settings.parameters()
    detector = StreamDetector(len(series.names), on_error="skip", **parameters)
    seconds = series.seconds if detector.preset == SERIES else None
    length = max(math.ceil(len(series.values) / _N_RANGES), 1)
    results, ranges = [], {}
    incidents: dict[int, Incident] = {}
    for first in range(0, len(series.values), length):
        times = None if seconds is None else seconds[first : first + length]
        if detector.is_warm:
            ranges[first] = detector.expected_range(None if times is None or np.isnan(times[0]) else times[0])
        rows = series.values[first : first + length]
        is_named = detector.feature_names is not None  # the first usable row names the features
        named = rows if is_named else pl.DataFrame(rows, schema=series.names)
        results.append(detector.process_many(named, times))
        incidents |= {event.incident.number: event.incident for event in detector.events}
        progress((first + length) / len(series.values))
    incidents |= {incident.number: incident for incident in detector.incidents}
    joined = Results(*(np.concatenate(column) for column in zip(*results, strict=True)))
    low, high = (np.array([bounds[i] for bounds in ranges.values()]) for i in range(2))
    band = Band(list(ranges), low, high) if ranges else None
    return SeriesRun(detector, joined, [incidents[number] for number in sorted(incidents)], band)


def _only_date(frame: pl.DataFrame, others: set[str], console: Console) -> str | None:
    """Return the only column of dates; None if there is none or there are several."""
    dates = [name for name in frame.columns if name not in others and _has_dates(frame[name])]
    if len(dates) == 1:
        console.note(f"times: column {dates[0]!r} (use --time to choose another)")
        return dates[0]
    found = f"several columns are dates: {', '.join(dates)}" if dates else "no column is a date"
    console.note(f"times: none, because {found}; {WITHOUT_TIMES}. Name a column with --time.")
    return None


def _has_dates(column: pl.Series) -> bool:
    if column.dtype in (pl.Date, pl.Datetime):
        return True
    found = recognise_dates(without_missing_texts(column)) if column.dtype == pl.String else None
    return found is not None and found.has_date


def _seconds(column: pl.Series, name: str, console: Console) -> Array:
    seconds, found = seconds_of_column(column)
    if found is not None and not found.has_date:
        raise InvalidInputError(f"Column {name!r} has times without a date, such as {column.drop_nulls()[0]!r}.")
    if found is not None and found.describe():
        console.note(f"times: column {name!r}: {found.describe()}")
    if column.len() and np.isnan(seconds).all():
        raise InvalidInputError(f"Column {name!r} has no value that is recognised as a time.")
    return seconds


def _labels(column: pl.Series, name: str) -> Array:
    """Return which rows are labelled as anomalies, by 1 or true; a missing label counts as 0."""
    parsed = parse_column(column)
    numbers = booleans_as_numbers(parsed.cells) if are_booleans(parsed.cells) else parsed.numbers
    is_wrong = parsed.cells.is_not_null() & ~numbers.is_in([0.0, 1.0]).fill_null(value=False)
    if is_wrong.any():
        wrong = parsed.cells.filter(is_wrong)[0]
        raise InvalidInputError(f"Labels must be 0 or 1, or true or false, but column {name!r} contains {wrong!r}.")
    return (numbers.fill_null(0.0) == 1.0).to_numpy()

"""`imondrian watch`: score and learn a stream; every input line becomes an output line with its score."""

import json
import signal
import sys
from collections.abc import Iterator
from itertools import groupby, takewhile
from typing import Any, NamedTuple

from imondrian.cli.console import Console, discard_output
from imondrian.cli.option_checks import check_jobs, check_output_path
from imondrian.cli.options import ConsoleOptions, DetectorOptions, FeatureOptions, SourceOptions, WatchOptions
from imondrian.cli.signals import ending_signals
from imondrian.cli.table_rows import split_names
from imondrian.cli.watch_detector import WatchDetector
from imondrian.cli.watch_features import NO_VALUE, StreamChoice, StreamFeatures, features_of_detector
from imondrian.cli.watch_input import WatchInput
from imondrian.column_names import ERROR, EXPLANATION, LABEL, RESULTS, ROW, SCORE, THRESHOLD
from imondrian.errors import InvalidInputError
from imondrian.row_layout import RowLayout
from imondrian.stream import StreamDetector
from imondrian.stream_explanations import reasons_of_point
from imondrian.tables.feature_columns import check_names, result_names
from imondrian.tables.line_records import Parser, Record
from imondrian.tables.verbatim_json import json_members

_WRITE_TIMEOUT = 3  # seconds to wait after a signal until the output is read
_EMPTY_RECORD = Record({})
_as_json = json.JSONEncoder(allow_nan=False).encode


def watch(
    source_options: SourceOptions,
    feature_options: FeatureOptions,
    detector_options: DetectorOptions,
    watch_options: WatchOptions,
    console_options: ConsoleOptions,
) -> bool:
    """Watch a stream until it ends or a signal arrives; return True if there were anomalies."""
    _check_options(source_options, watch_options)
    console = Console(console_options, output="-")
    detector = WatchDetector(watch_options, detector_options, console)
    watcher = Watcher(detector, feature_options, watch_options, console)
    stream = WatchInput(source_options, watch_options, detector.position, console)
    with stream.open():
        _stop_on_signals(stream, watcher)
        try:
            for batch in stream.batches():
                detector.start_batch(batch.position_after)
                watcher.process(batch.lines, batch.parser)
                detector.end_batch()
        except OSError as error:
            if not isinstance(error, BrokenPipeError) and not stream.is_stopped:
                raise
            discard_output(sys.stdout)  # the reader has closed the pipe, or the terminal was closed
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            detector.save()
    watcher.print_summary()
    return watcher.n_anomalies > 0


def _check_options(source: SourceOptions, options: WatchOptions) -> None:
    check_output_path(options.model, (".imf",))
    check_jobs(options.jobs)
    if options.follow is not None and source.path != "-":
        raise InvalidInputError(f"Either read {source.path} or follow {options.follow}, not both.")
    if options.save_every is not None and options.model is None:
        raise InvalidInputError("--save-every needs --model, the file to save to.")


def _stop_on_signals(stream: WatchInput, watcher: "Watcher") -> None:
    """Make a signal end the stream cleanly; a second SIGINT or SIGTERM ends the program immediately.

    Output that nobody reads delays the end by a few seconds at most. A hangup may arrive twice, from the system and
    from the shell; the second one has no effect.
    """

    def stop(number: int, _frame: object) -> None:
        if number != signal.SIGHUP:
            signal.signal(number, earlier_handlers[signal.Signals(number)])
        signal.setitimer(signal.ITIMER_REAL, _WRITE_TIMEOUT, _WRITE_TIMEOUT)
        stream.stop()

    def stop_writing(_number: int, _frame: object) -> None:
        if watcher.is_writing:
            raise BrokenPipeError

    earlier_handlers = {number: signal.getsignal(number) for number in ending_signals()}
    signal.signal(signal.SIGALRM, stop_writing)
    for number in earlier_handlers:
        signal.signal(number, stop)


class Row(NamedTuple):
    """A line of the stream: its record, and the values of the features or the error."""

    record: Record
    values: list[Any]  # empty if there is an error
    error: str | None


class Watcher:
    """Parses lines, scores and learns their rows, and writes them with the results."""

    def __init__(
        self, detector: WatchDetector, feature_options: FeatureOptions, options: WatchOptions, console: Console
    ) -> None:
        self._watch_detector = detector
        self._feature_options = feature_options
        self._options = options
        self._console = console
        self._features = None if detector.detector is None else features_of_detector(detector.detector)
        self._feature_set: frozenset[str] = frozenset()
        self._has_record = False  # True: the first record has been read
        self.is_writing = False  # True while output is being written, which may have to wait for its reader
        self._n_drifts = 0 if detector.detector is None else detector.detector.n_drifts
        self._n_filled_before = 0 if detector.detector is None else detector.detector.n_missing
        self._earlier: list[list[Any]] = []  # with --explain: the values of the latest rows, as many as a shingle needs
        self.n_rows = self.n_anomalies = self.n_errors = 0

    def process(self, lines: list[bytes], parser: Parser) -> None:
        """Score, learn and write the rows of lines.

        With --on-error fail, an unusable row raises an InvalidInputError after the rows before it have been written.
        """
        rows = [self._row(line, parser) for line in lines]
        is_strict = self._options.on_error == "fail"
        usable = list(takewhile(lambda row: row.error is None, rows)) if is_strict else rows
        for run in self._runs(usable):
            self._write("".join(self._output_lines(run)))
            self._note_drift()
        if len(usable) < len(rows):
            raise InvalidInputError(f"Row {self._watch_detector.n_seen + 1}: {rows[len(usable)].error}")

    def print_summary(self) -> None:
        """Print how many rows there were."""
        errors = f", {self.n_errors:,} unusable rows" if self.n_errors else ""
        detector = self._watch_detector.detector
        n_filled = 0 if detector is None else detector.n_missing - self._n_filled_before
        errors += f", {n_filled:,} missing numbers filled in" if n_filled else ""
        is_saved = self._options.model and self._watch_detector.detector
        saved = f"; saved to {self._options.model}" if is_saved else ""
        self._console.note(f"{self.n_rows:,} rows, {self.n_anomalies:,} anomalies{errors}{saved}")

    def _write(self, text: str) -> None:
        self.is_writing = True
        sys.stdout.buffer.write(text.encode())  # JSON is UTF-8, whatever the encoding of the terminal
        sys.stdout.buffer.flush()
        self.is_writing = False

    # -- from lines to rows -----------------------------------------------------------------------------------------

    def _row(self, line: bytes, parser: Parser) -> Row:
        try:
            record = parser(line)
        except InvalidInputError as error:
            return Row(_EMPTY_RECORD, [], str(error))
        features = self._known_features(record)
        if features is None:
            return Row(record, [], NO_VALUE)
        try:
            return Row(record, features.values(record.values), None)
        except InvalidInputError as error:
            return Row(record, [], str(error))

    def _known_features(self, record: Record) -> StreamFeatures | None:
        """Return the features; the first record is checked against the detector, or determines them.

        A record in which everything is missing determines nothing: then, return None.
        """
        if self._has_record and self._features is not None:
            return self._features
        if self._features is None and not record.values:
            return None
        columns, options = list(record.values), self._feature_options
        features, ignore, categorical = (
            split_names(names, columns) for names in (options.features, options.ignore, options.categorical)
        )
        time = [] if options.time is None else [options.time]
        check_names((*features, *ignore, *categorical, *time), columns)
        self._check_result_names(columns)
        if self._features is not None:
            self._check_features(self._features, features, categorical, record)
        else:
            choice = StreamChoice(features, ignore, categorical, options.time)
            if choice.has_no_value(record.values):
                return None
            self._features = self._choose_features(record, choice)
        numbers = (name for j, name in enumerate(self._features.names) if j not in self._features.categorical)
        self._feature_set = frozenset(numbers)
        self._has_record = True
        return self._features

    def _check_result_names(self, columns: list[str]) -> None:
        taken = [name for name in RESULTS if name in columns]
        if taken and SCORE not in columns:
            raise InvalidInputError(
                f"The stream has its own column {taken[0]!r}, which is the name of a result: rename it."
            )

    def _check_features(
        self, known: StreamFeatures, features: list[str], categorical: list[str], record: Record
    ) -> None:
        """Raise an InvalidInputError if the stream has other features than the detector.

        A JSON record may lack some features, since the next record may have them.
        """
        model = self._options.model
        lacking = [name for name in known.names if name not in record.values]
        is_csv = record.text is None
        if lacking and (is_csv or len(lacking) == len(known.names)):
            raise InvalidInputError(f"{model} was created with other features: there is no column {lacking[0]!r}.")
        if features and features != known.names:
            raise InvalidInputError(f"{model} was created with the features {', '.join(known.names)}.")
        for name in categorical:
            if name in known.names and known.names.index(name) not in known.categorical:
                raise InvalidInputError(f"{model} was created with numbers in the column {name!r}.")

    def _choose_features(self, record: Record, choice: StreamChoice) -> StreamFeatures:
        """Choose the features: the given ones, or all numbers and categories of the first record."""
        detector = self._watch_detector.detector
        chosen, left_out = choice.choose(record.values, allows_gaps=self._watch_detector.allows_gaps)
        if detector is not None and detector.parameters["n_features"] != len(chosen.names):
            expected, names = detector.parameters["n_features"], ", ".join(chosen.names)
            raise InvalidInputError(
                f"The detector has {expected} unnamed features, but the stream has {len(chosen.names)}: {names}."
            )
        shown = [f"{name} (category)" if j in chosen.categorical else name for j, name in enumerate(chosen.names)]
        reasons = ", ".join(f"{name} ({reason})" for name, reason in left_out.items())
        self._console.note(f"features: {', '.join(shown)}" + (f"; left out: {reasons}" if reasons else ""))
        return chosen

    def _runs(self, rows: list[Row]) -> Iterator[list[Row]]:
        """Split rows into runs that are processed together: consecutive usable rows, or consecutive unusable ones."""
        for is_usable, group in groupby(rows, lambda row: row.error is None):
            run = list(group)
            detector = self._watch_detector.detector
            has_names = detector is not None and detector.feature_names is not None
            if is_usable and (self._options.explain or not has_names):
                n_single = len(run) if self._options.explain else 1  # the first row names the features
                yield from ([row] for row in run[:n_single])
                run = run[n_single:]
            if run:
                yield run

    # -- from rows to output ----------------------------------------------------------------------------------------

    def _output_lines(self, rows: list[Row]) -> list[str]:
        """Process a run of rows, and return their output lines."""
        self.n_rows += len(rows)
        return self._error_lines(rows) if rows[0].error is not None else self._scored_lines(rows)

    def _error_lines(self, rows: list[Row]) -> list[str]:
        self.n_errors += len(rows)
        extra = {EXPLANATION: None} if self._options.explain else {}
        first, detector = self._watch_detector.n_seen, self._watch_detector.detector
        threshold = None if detector is None else _threshold_or_none(detector.threshold_score)
        self._watch_detector.skip(len(rows))
        results = {SCORE: None, LABEL: False, THRESHOLD: threshold, **extra}
        return [self._line(row, {ROW: first + i + 1, **results, ERROR: row.error}) for i, row in enumerate(rows)]

    def _scored_lines(self, rows: list[Row]) -> list[str]:
        features = self._features or StreamFeatures([])
        detector = self._watch_detector.detector or self._watch_detector.create(features)
        extra = {EXPLANATION: self._explained(detector, features, rows[0])} if self._options.explain else {}
        results = detector.process_many(_points(detector, features, rows))
        self.n_anomalies += int(results.is_anomaly.sum())
        columns = (column.tolist() for column in (results.index, results.score, results.is_anomaly, results.threshold))
        return [
            self._line(row, {ROW: i + 1, SCORE: score, LABEL: label, THRESHOLD: _threshold_or_none(threshold), **extra})
            for row, i, score, label, threshold in zip(rows, *columns, strict=True)
        ]

    def _explained(self, detector: StreamDetector, features: StreamFeatures, row: Row) -> str | None:
        """Return the explanation of the next row, and keep its values for the rows after it."""
        n_earlier = detector.parameters["shingle"] - 1
        explanation = _explanation(detector, features, row, self._earlier)
        self._earlier = [*self._earlier, row.values][-n_earlier:] if n_earlier else []
        return explanation

    def _line(self, row: Row, results: dict[str, Any]) -> str:
        """Return a record with its results as a line of JSON."""
        values = row.record.values
        replaced = result_names(values) or results.keys() & values.keys()
        members = json_members(row.record, self._feature_set, replaced)
        return f"{{{members}{', ' if members else ''}{_as_json(results)[1:]}\n"

    def _note_drift(self) -> None:
        detector = self._watch_detector.detector
        if detector is not None and detector.n_drifts > self._n_drifts:
            drift = detector.drifts[-1]
            self._console.note(f"row {drift.index + 1}: drift detected, since about row {drift.since + 1}")
            self._n_drifts = detector.n_drifts


def _points(detector: StreamDetector, features: StreamFeatures, rows: list[Row]) -> Any:
    """Return the values of rows, with feature names until the detector has stored them."""
    if detector.feature_names is None:
        return [features.named(row.values) for row in rows]
    return features.points([row.values for row in rows])


def _explanation(detector: StreamDetector, features: StreamFeatures, row: Row, earlier: list[list[Any]]) -> str | None:
    """Return the explanation of a row that will be labelled an anomaly, from the state before it is learned.

    `earlier` are the values of the rows before it in the same point, as far as they are known.
    """
    if not detector.is_warm:
        return None
    point = features.points([row.values])
    if not detector.score(point)[0] > detector.threshold_score:
        return None
    completed, layout = detector.next_point(point[0]), RowLayout.of(detector.parameters)
    rows = layout.rows_of_point(completed)
    rows[-1] = point[0]
    texts = _category_texts([*earlier, row.values], features, layout)
    return "; ".join(map(str, reasons_of_point(detector, completed, rows, features.names, texts=texts)))


def _category_texts(rows: list[list[Any]], features: StreamFeatures, layout: RowLayout) -> dict[int, str]:
    """Return the categories of the rows of a point by index of the value; "" in rows before the first known one."""
    n, first = layout.n_features, layout.size - len(rows)
    texts = dict.fromkeys((i * n + j for i in range(first) for j in features.categorical), "")
    for i, values in enumerate(rows, first):
        texts |= {i * n + j: text for j, text in features.texts(values).items()}
    return texts


def _threshold_or_none(threshold: float) -> float | None:
    """Return None while the detector has no threshold yet: it is 1 then, which no score exceeds."""
    return threshold if threshold < 1.0 else None

"""`imondrian watch`: score and learn a stream, and write every row with its results, or only the incidents."""

import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from itertools import groupby, takewhile
from typing import Any

from imondrian.base.column_names import ERROR, EXPLANATION, ROW
from imondrian.base.defaults import SERIES
from imondrian.base.errors import InvalidInputError
from imondrian.base.files import real_path
from imondrian.cli.console import Console, discard_output
from imondrian.cli.detector_settings import AlarmSettings
from imondrian.cli.event_commands import EventCommands, parse_command
from imondrian.cli.keyed_watcher import KeyedWatcher
from imondrian.cli.option_checks import check_jobs, check_key_options, check_output_path, check_series_options
from imondrian.cli.options import (
    AlarmOptions,
    ConsoleOptions,
    DetectorOptions,
    FeatureOptions,
    IncidentOptions,
    SourceOptions,
    WatchOptions,
)
from imondrian.cli.signals import ending_signals
from imondrian.cli.watch_detector import WatchDetector
from imondrian.cli.watch_explanations import RowExplanations
from imondrian.cli.watch_features import StreamFeatures
from imondrian.cli.watch_fleet import WatchFleet
from imondrian.cli.watch_incidents import ProcessedRows, WatchIncidents, restored_incidents, stored_incidents
from imondrian.cli.watch_input import StreamBatch, WatchInput
from imondrian.cli.watch_output import WatchOutput
from imondrian.cli.watch_results import NO_RESULTS, result_columns, scored_line
from imondrian.cli.watch_rows import Row, WatchRows
from imondrian.cli.watch_silence import Silence, parse_duration, restored_silence
from imondrian.cli.watch_summary import WatchCounts
from imondrian.cli.watch_times import WatchTimes, restored_times, stored_times
from imondrian.stream.detector import StreamDetector

_WRITE_TIMEOUT = 3  # seconds that writing may still take after a signal
_INCIDENTS, _SILENCE, _TIMES = "incidents", "silence", "times"  # keys among the extra values of the model file
_N_REPORTED = 10  # if rows are not written, this many unusable rows are reported on standard error


def watch(
    source_options: SourceOptions,
    feature_options: FeatureOptions,
    detector_options: DetectorOptions,
    alarm_options: AlarmOptions,
    incident_options: IncidentOptions,
    watch_options: WatchOptions,
    console_options: ConsoleOptions,
) -> bool:
    """Watch a stream until it ends or a signal arrives; return True if there were anomalies."""
    _check_options(source_options, watch_options, incident_options)
    check_key_options(detector_options, feature_options, incident_options, watch_options)
    check_series_options(detector_options, feature_options)
    console = Console(console_options, output="-")
    settings = AlarmSettings.of(alarm_options)
    commands = _commands(incident_options, console)
    output = WatchOutput(incident_options, commands)
    detector: WatchDetector | WatchFleet
    watcher: Watcher | KeyedWatcher
    if feature_options.by:
        detector = WatchFleet(watch_options, detector_options, feature_options.by, settings, console)
        watcher = KeyedWatcher(detector, output, feature_options, watch_options, console)
    else:
        detector = WatchDetector(watch_options, detector_options, settings, console)
        watcher = Watcher(detector, output, feature_options, incident_options, watch_options, console)
    stream = WatchInput(source_options, watch_options, detector.position, console)
    with closing(watcher):
        _run(watcher, detector, stream, output, commands)
        watcher.print_summary(commands)
    return watcher.counts.n_anomalies > 0


def _run(
    watcher: "Watcher | KeyedWatcher",
    detector: WatchDetector | WatchFleet,
    stream: WatchInput,
    output: WatchOutput,
    commands: EventCommands | None,
) -> None:
    """Process the stream until it ends or a signal arrives; save the detector."""
    running: AbstractContextManager[Any] = nullcontext() if commands is None else commands
    with stream.open(), output.open():
        _stop_on_signals(stream, output, commands)
        try:
            with running:
                for batch in stream.batches():
                    watcher.process(batch)
                    if detector.is_save_due:
                        _wait_and_save(watcher, commands)
        except OSError as error:
            if not isinstance(error, BrokenPipeError) and not stream.is_stopped:
                raise
            discard_output(sys.stdout)  # the reader has closed the pipe, or the terminal was closed
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            watcher.save()


def _check_options(source: SourceOptions, options: WatchOptions, incidents: IncidentOptions) -> None:
    check_output_path(options.model, (".imf",))
    check_jobs(options.jobs)
    if options.follow is not None and source.path != "-":
        raise InvalidInputError(f"Either read {source.path} or follow {options.follow}, not both.")
    if options.save_every is not None and options.model is None:
        raise InvalidInputError("--save-every needs --model, the file to save to.")
    if incidents.scored is not None:
        _check_scored_file(incidents, (source.path, options.follow, options.model))


def _check_scored_file(incidents: IncidentOptions, others: tuple[str | None, ...]) -> None:
    path = incidents.scored or ""
    if not incidents.incidents:
        raise InvalidInputError("--scored needs --incidents; without it, the scored rows go to standard output.")
    check_output_path(path)
    if any(other not in (None, "-") and real_path(str(other)) == real_path(path) for other in others):
        raise InvalidInputError(f"{path} is also the input or the model: write the scored rows to another file.")


def _commands(options: IncidentOptions, console: Console) -> EventCommands | None:
    if options.exec is None:
        return None
    return EventCommands(parse_command(options.exec), options.exec_timeout, console)


def _wait_and_save(watcher: "Watcher | KeyedWatcher", commands: EventCommands | None) -> None:
    """Save the detector after all pending commands: a run that resumes from the file does not repeat them."""
    if commands is not None:
        commands.wait()
    watcher.save()


def _stop_on_signals(stream: WatchInput, output: WatchOutput, commands: EventCommands | None) -> None:
    """Make a signal end the stream cleanly; a second SIGINT or SIGTERM ends the program immediately.

    Output that nobody reads delays the end by at most a few seconds. Pending commands together delay it by at most the
    timeout of one command. A hangup may arrive twice, from the system and from the shell; the second has no effect.
    """

    def stop(number: int, _frame: object) -> None:
        if number != signal.SIGHUP:
            signal.signal(number, earlier_handlers[signal.Signals(number)])
        signal.setitimer(signal.ITIMER_REAL, _WRITE_TIMEOUT, _WRITE_TIMEOUT)
        if commands is not None:
            commands.stop()
        stream.stop()

    def stop_writing(_number: int, _frame: object) -> None:
        if output.is_writing:
            raise BrokenPipeError

    earlier_handlers = {number: signal.getsignal(number) for number in ending_signals()}
    signal.signal(signal.SIGALRM, stop_writing)
    for number in earlier_handlers:
        signal.signal(number, stop)


class Watcher:
    """Parses lines, scores and learns their rows, and writes rows or incidents."""

    def __init__(
        self,
        detector: WatchDetector,
        output: WatchOutput,
        feature_options: FeatureOptions,
        incident_options: IncidentOptions,
        options: WatchOptions,
        console: Console,
    ) -> None:
        self._watch_detector = detector
        self._output = output
        self._options = options
        self._console = console
        path, time = str(detector.path), feature_options.time
        self._times = WatchTimes(
            time,
            uses_times=detector.preset == SERIES,
            state=restored_times(detector.extra.get(_TIMES), path),
            console=console,
        )
        self._rows = WatchRows(detector, feature_options, self._times, console)
        self._explanations = RowExplanations()
        limit = None if incident_options.silence is None else parse_duration(incident_options.silence, "--silence")
        self._incidents = WatchIncidents(time, restored_incidents(detector.extra.get(_INCIDENTS), path))
        self._silence = Silence(limit, time, restored_silence(detector.extra.get(_SILENCE), path), detector.n_seen)
        self.counts = WatchCounts(detector.detector, self._silence.n_silences)

    def process(self, batch: StreamBatch | None) -> None:
        """Process a batch of lines; None: no line has arrived for a while."""
        if batch is None:
            self._output.write([], self._silence.check())
            return
        self._watch_detector.start_batch(batch.position_after)
        self._output.write([], self._silence.end(self._watch_detector.n_seen + 1))
        self._process_lines(batch)
        self._watch_detector.end_batch()

    def save(self) -> None:
        """Save the detector, with what is known about its incidents."""
        self._watch_detector.save(
            {
                _INCIDENTS: stored_incidents(self._incidents.state),
                _SILENCE: self._silence.state._asdict(),
                _TIMES: stored_times(self._times.state),
            }
        )

    def close(self) -> None:
        """Do nothing: the model file is open only while it is read or saved."""

    def print_summary(self, commands: EventCommands | None) -> None:
        """Print how many rows, anomalies and incidents there were."""
        detector = self._watch_detector.detector
        counts = self.counts.in_words(detector, self._silence, commands)
        times = self.counts.times_in_words(detector, self._times)
        if times is not None:
            self._console.note(f"times: {times}")
        saved = "" if self._options.model is None else f"; saved to {self._options.model}"
        saved = saved if detector is not None else saved and f"; no usable row, so {self._options.model} is not written"
        self._console.note(f"{counts}{saved}")

    def _process_lines(self, batch: StreamBatch) -> None:
        """Score, learn and write the rows of lines.

        With --on-error fail, an unusable row raises an InvalidInputError after the rows before it have been written.
        """
        rows = [self._rows.parse(line, batch.parser) for line in batch.lines]
        self._incidents.time_column = self._silence.time_column = self._times.column  # the first record may set it
        is_strict = self._options.on_error == "fail"
        usable = list(takewhile(lambda row: row.error is None, rows)) if is_strict else rows
        for run in self._runs(usable):
            self._process_run(run)
            self._silence.record_rows(self._watch_detector.n_seen, self._rows.time_of(run[-1]))
        if len(usable) < len(rows):
            raise InvalidInputError(f"Row {self._watch_detector.n_seen + 1}: {rows[len(usable)].error}")

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

    def _process_run(self, rows: list[Row]) -> None:
        self.counts.n_rows += len(rows)
        if rows[0].error is not None:
            self._process_unusable(rows)
        else:
            self._process_usable(rows)
        drift = self.counts.new_drift(self._watch_detector.detector)
        if drift is not None:
            self._console.note(f"row {drift.index + 1}: drift detected, since about row {drift.since + 1}")

    def _process_unusable(self, rows: list[Row]) -> None:
        """Count and write rows that cannot be used; if rows are not written, report the first ones."""
        first = self._watch_detector.n_seen
        results = self._watch_detector.skip(len(rows))
        self._incidents.skip(self._watch_detector.detector, first, [self._rows.time_of(row) for row in rows])
        extra = {EXPLANATION: None} if self._options.explain else {}
        columns = [NO_RESULTS] * len(rows) if results is None else result_columns(results)
        lines = [
            scored_line(row, self._rows.numbers, {ROW: first + i + 1, **columns[i], **extra, ERROR: row.error})
            for i, row in enumerate(rows)
        ]
        if not self._output.shows_rows:
            for i, row in enumerate(rows[: max(_N_REPORTED - self.counts.n_errors, 0)]):
                self._console.warn(f"row {first + i + 1} is unusable: {row.error}")
        self.counts.n_errors += len(rows)
        self._output.write(lines, [])

    def _process_usable(self, rows: list[Row]) -> None:
        features = self._rows.features
        detector = self._watch_detector.detector or self._watch_detector.create(features)
        values, times = [row.values for row in rows], [self._rows.time_of(row) for row in rows]
        seconds = self._times.seconds(times, detector.n_seen)
        extra = {}
        if self._options.explain:  # then a run is a single row
            time = None if seconds is None else float(seconds[0])
            extra = {EXPLANATION: self._explanations.explain_next(detector, features, values[0], time)}
        results = detector.process_many(_points(detector, features, values), seconds)
        labels = results.is_anomaly.tolist()
        events = self._incidents.observe(
            detector, features, ProcessedRows(int(results.index[0]), values, times, labels)
        )
        self.counts.n_anomalies += sum(labels)
        lines = (
            [
                scored_line(row, self._rows.numbers, {ROW: i + 1, **columns, **extra})
                for row, i, columns in zip(rows, results.index.tolist(), result_columns(results), strict=True)
            ]
            if self._output.shows_rows
            else []
        )
        self._output.write(lines, events)


def _points(detector: StreamDetector, features: StreamFeatures, values: list[list[Any]]) -> Any:
    """Return the values of rows, with feature names until the detector has stored them."""
    if detector.feature_names is None:
        return [features.named(row) for row in values]
    return features.points(values)

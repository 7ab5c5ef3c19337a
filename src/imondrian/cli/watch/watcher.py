"""The rows of `imondrian watch`: scored and learned by one detector, and written."""

from collections.abc import Iterator
from itertools import groupby, takewhile
from typing import Any

from imondrian.base.column_names import ERROR, EXPLANATION, ROW
from imondrian.base.defaults import SERIES
from imondrian.base.errors import InvalidInputError
from imondrian.cli.console import Console
from imondrian.cli.options import FeatureOptions, IncidentOptions, WatchOptions
from imondrian.cli.watch.event_commands import EventCommands
from imondrian.cli.watch.incident_events import ProcessedRows, WatchIncidents, restored_incidents, stored_incidents
from imondrian.cli.watch.row_explanations import RowExplanations
from imondrian.cli.watch.row_parser import Row, WatchRows
from imondrian.cli.watch.run_counts import WatchCounts
from imondrian.cli.watch.silence import Silence, parse_duration, restored_silence
from imondrian.cli.watch.stream_features import StreamFeatures
from imondrian.cli.watch.stream_input import StreamBatch
from imondrian.cli.watch.stream_output import N_REPORTED, NO_RESULTS, WatchOutput, result_columns, scored_line
from imondrian.cli.watch.time_column import WatchTimes, restored_times, stored_times
from imondrian.cli.watch.watch_detector import WatchDetector
from imondrian.stream.detector import StreamDetector

_INCIDENTS, _SILENCE, _TIMES = "incidents", "silence", "times"  # keys among the extra values of the model file


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
        """Save the detector, with what is known about its incidents, the silence and the times."""
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
        """Count rows that cannot be used, and write them; if the output shows no rows, report a few."""
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
            for i, row in enumerate(rows[: max(N_REPORTED - self.counts.n_errors, 0)]):
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

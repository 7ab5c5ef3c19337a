"""The rows of `imondrian watch --by`: scored and learned by the detectors of their keys, and written."""

from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from imondrian.base.column_names import BORROWED, ERROR, ROW
from imondrian.base.errors import InvalidInputError
from imondrian.cli.console import Console
from imondrian.cli.options import FeatureOptions, WatchOptions
from imondrian.cli.watch.event_commands import EventCommands
from imondrian.cli.watch.key_columns import key_of, key_text
from imondrian.cli.watch.keyed_incident_events import KeyedRows, KeyIncidents, StreamRow, restored_alarms, stored_alarms
from imondrian.cli.watch.row_parser import Row, WatchRows
from imondrian.cli.watch.run_counts import KeyedCounts
from imondrian.cli.watch.stream_input import StreamBatch
from imondrian.cli.watch.stream_output import N_REPORTED, NO_RESULTS, WatchOutput, result_columns, scored_line
from imondrian.cli.watch.time_column import TimeState, WatchTimes
from imondrian.cli.watch.watch_fleet import WatchFleet
from imondrian.fleet.fleet import Fleet
from imondrian.fleet.keys import Key
from imondrian.fleet.results import FleetResults
from imondrian.tables.line_records import Parser

_ALARMS = "alarms"  # key among the extra values of the model file


class _KeyedRow(NamedTuple):
    row: Row
    key: Key | None  # None: the row has no key


class KeyedWatcher:
    """Parses lines, scores and learns their rows with the detectors of their keys, and writes rows or incidents."""

    def __init__(
        self,
        fleet: WatchFleet,
        output: WatchOutput,
        feature_options: FeatureOptions,
        options: WatchOptions,
        console: Console,
    ) -> None:
        self._watch_fleet = fleet
        self._output = output
        self._options = options
        self._console = console
        self._times = WatchTimes(feature_options.time, uses_times=False, state=TimeState(), console=console)
        self._rows = WatchRows(fleet, feature_options, self._times, console)
        self._incidents = KeyIncidents(feature_options.time, restored_alarms(fleet.extra.get(_ALARMS), str(fleet.path)))
        self.counts = KeyedCounts(fleet.fleet)

    def process(self, batch: StreamBatch | None) -> None:
        """Process a batch of lines; None: no line has arrived for a while."""
        if batch is not None:
            self._watch_fleet.start_batch(batch.position_after)
            self._process_lines(batch)
            self._watch_fleet.end_batch()

    def save(self) -> None:
        """Save the fleet, with what is known about its incidents."""
        self._watch_fleet.save({_ALARMS: stored_alarms(self._incidents.alarms)})

    def close(self) -> None:
        """Close the model file."""
        self._watch_fleet.close()

    def print_summary(self, commands: EventCommands | None) -> None:
        """Print how many rows, keys, anomalies and incidents there were."""
        fleet = self._watch_fleet.fleet
        opened = [
            (key_text(key, self._rows.keys), incident.number, self._incidents.row_of(key, incident.opened))
            for key, incident in (() if fleet is None or not self._rows.keys else fleet.incidents)
            if incident.is_open
        ]
        since = [
            f"incident {number} of {key}" + ("" if row is None else f" (since row {row.number:,})")
            for key, number, row in opened
        ]
        saved = f"; saved to {self._options.model}" if self._options.model and fleet else ""
        self._console.note(f"{self.counts.in_words(fleet, since, commands)}{saved}")

    def _process_lines(self, batch: StreamBatch) -> None:
        """Score, learn and write the rows of a batch of lines.

        With --on-error fail, an unusable row raises an InvalidInputError after the rows before it have been written.
        """
        first = self._watch_fleet.n_seen
        rows = [self._parse(line, batch.parser) for line in batch.lines]
        is_strict = self._options.on_error == "fail"
        accepted = list(takewhile(lambda row: row.row.error is None, rows)) if is_strict else rows
        self._process_rows(accepted, first)
        if len(accepted) < len(rows):
            raise InvalidInputError(f"Row {first + len(accepted) + 1}: {rows[len(accepted)].row.error}")

    def _parse(self, line: bytes, parser: Parser) -> _KeyedRow:
        """Parse a line; an error in it, or in its key, is returned as part of the row."""
        row = self._rows.parse(line, parser)
        if not row.record.values:
            return _KeyedRow(row, None)
        try:
            return _KeyedRow(row, key_of(row.record.values, self._rows.keys))
        except InvalidInputError as error:
            return _KeyedRow(Row(row.record, [], str(error)), None)

    def _process_rows(self, rows: list[_KeyedRow], first: int) -> None:
        """Process rows; `first` is the index of the first one in the stream, from 0."""
        fleet = self._watch_fleet.fleet
        if fleet is None and self._rows.features.names and any(row.key is not None for row in rows):
            fleet = self._watch_fleet.create(self._rows.features)
        keyed = [] if fleet is None else self._rows_of_fleet(fleet, rows)
        self._watch_fleet.start_lines(len(rows), keyed)
        columns: list[dict[str, Any]] = [{**NO_RESULTS, BORROWED: False}] * len(rows)
        events: list[tuple[Key, dict[str, Any]]] = []
        if fleet is not None and keyed:
            keys = [key for key in (rows[i].key for i in keyed) if key is not None]
            results = self._learn(fleet, keys, [rows[i].row.values for i in keyed])
            is_borrowed = results.is_borrowed.tolist()
            for i, values, borrowed in zip(keyed, result_columns(results), is_borrowed, strict=True):
                columns[i] = {**values, BORROWED: borrowed}

            def stream_row(position: int) -> StreamRow:
                i = keyed[position]
                return StreamRow(first + i + 1, self._rows.time_of(rows[i].row))

            labels = results.is_anomaly.tolist()
            self.counts.n_anomalies += sum(labels)
            processed = KeyedRows(keys, results.index.tolist(), labels, stream_row)
            events = self._incidents.observe(fleet, self._rows.features.names, self._rows.keys, processed)
        self._count(rows, events, first)
        self._write(rows, columns, events, first)

    def _rows_of_fleet(self, fleet: Fleet, rows: list[_KeyedRow]) -> list[int]:
        """Return the indices of the rows that the fleet learns, or counts as unusable.

        A fleet that was created in Python may refuse unusable rows; these are then left out.
        """
        counts_unusable = fleet.parameters["on_error"] == "skip"
        return [i for i, (row, key) in enumerate(rows) if key is not None and (row.error is None or counts_unusable)]

    def _learn(self, fleet: Fleet, keys: list[Key], values: list[list[Any]]) -> FleetResults:
        """Score and learn rows; the values of unusable rows are replaced by NaN."""
        features = self._rows.features
        nothing = [np.nan] * len(features.names)
        filled = [row or nothing for row in values]
        has_names = fleet.feature_names is not None
        return fleet.process_many(keys, features.points(filled) if has_names else list(map(features.named, filled)))

    def _count(self, rows: list[_KeyedRow], events: list[tuple[Key, dict[str, Any]]], first: int) -> None:
        """Count rows and incidents; if rows are not written, report the first unusable ones."""
        self.counts.n_rows += len(rows)
        self.counts.n_incidents += sum(event["event"] == "opened" for _, event in events)
        for i, (row, _) in enumerate(rows):
            if row.error is not None:
                if not self._output.shows_rows and self.counts.n_errors < N_REPORTED:
                    self._console.warn(f"row {first + i + 1} is unusable: {row.error}")
                self.counts.n_errors += 1

    def _write(
        self,
        rows: list[_KeyedRow],
        columns: list[dict[str, Any]],
        events: list[tuple[Key, dict[str, Any]]],
        first: int,
    ) -> None:
        lines = []
        if self._output.shows_rows:
            for i, (row, _) in enumerate(rows):
                error = {} if row.error is None else {ERROR: row.error}
                lines.append(scored_line(row, self._rows.numbers, {ROW: first + i + 1, **columns[i], **error}))
        texts = [key_text(key, self._rows.keys) for key, _ in events]
        self._output.write(lines, [event for _, event in events], texts)

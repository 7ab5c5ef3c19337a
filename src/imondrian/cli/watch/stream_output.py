"""The output of `imondrian watch`: scored rows or incidents as lines of JSON, and scored rows in a file."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from imondrian.alarms.incidents import NO_INCIDENT
from imondrian.base.column_names import INCIDENT, LABEL, SCORE, SURPRISE, THRESHOLD
from imondrian.cli.options import IncidentOptions
from imondrian.cli.watch.event_commands import EventCommands
from imondrian.cli.watch.row_parser import Row
from imondrian.fleet.results import FleetResults
from imondrian.stream.detector import Results
from imondrian.tables.feature_columns import result_names
from imondrian.tables.verbatim_json import json_members

N_REPORTED = 10  # if rows are not written, at most this many unusable rows are reported on standard error
NO_RESULTS: dict[str, Any] = {SCORE: None, SURPRISE: None, LABEL: False, THRESHOLD: None, INCIDENT: None}
_as_json = json.JSONEncoder(allow_nan=False).encode


class WatchOutput:
    """Writes scored rows and incidents, and flushes them immediately; passes incidents on to a command.

    Parameters
    ----------
    options : IncidentOptions
        Whether incidents or scored rows go to standard output, and the file for scored rows, if any.
    commands : EventCommands or None
        Runs a command for each opening and closing of an incident; None: there is no command.
    """

    def __init__(self, options: IncidentOptions, commands: EventCommands | None) -> None:
        self._options = options
        self._commands = commands
        self._scored: BinaryIO | None = None if options.incidents else sys.stdout.buffer
        self.is_writing = False  # True while output is being written, which may have to wait for its reader

    @property
    def shows_rows(self) -> bool:
        """Whether scored rows are written."""
        return self._scored is not None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Return a context manager in which the file for scored rows is open."""
        if self._options.scored is None:
            yield
            return
        with Path(self._options.scored).open("ab") as self._scored:
            yield

    def write(self, rows: list[str], events: list[dict[str, Any]], keys: list[str] | None = None) -> None:
        """Write scored rows, then openings and closings of incidents (events); run the command for each event.

        `keys` are the keys of the events in words, if there is one detector per key. The commands are queued before
        anything is written: they must run even if nobody reads the output any more.
        """
        lines = [f"{_as_json(event)}\n" for event in events]
        if self._commands is not None:
            for event, line, key in zip(events, lines, keys or [""] * len(events), strict=True):
                self._commands.put(event, line, key)
        if self._scored is not None and rows:
            self._write("".join(rows), self._scored)
        if self._options.incidents and lines:
            self._write("".join(lines), sys.stdout.buffer)

    def _write(self, text: str, file: BinaryIO) -> None:
        self.is_writing = True
        file.write(text.encode())  # JSON is UTF-8, whatever the encoding of the terminal
        file.flush()
        self.is_writing = False


# -- lines -------------------------------------------------------------------------------------------------------------


def result_columns(results: Results | FleetResults) -> list[dict[str, Any]]:
    """Return the results of each row by name; a threshold of 1, which means that there is none yet, becomes None."""
    columns = (results.score, results.surprise, results.is_anomaly, results.threshold, results.incident)
    return [
        {
            SCORE: _number_or_none(score),
            SURPRISE: _number_or_none(surprise),
            LABEL: label,
            THRESHOLD: threshold if threshold < 1.0 else None,
            INCIDENT: None if incident == NO_INCIDENT else incident,
        }
        for score, surprise, label, threshold, incident in zip(*(column.tolist() for column in columns), strict=True)
    ]


def scored_line(row: Row, numbers: frozenset[str], results: dict[str, Any]) -> str:
    """Return a record with its results as a line of JSON; `numbers` are the columns whose CSV cells are numbers."""
    values = row.record.values
    replaced = result_names(values) or results.keys() & values.keys()
    members = json_members(row.record, numbers, replaced)
    return f"{{{members}{', ' if members else ''}{_as_json(results)[1:]}\n"


def _number_or_none(number: float) -> float | None:
    """Return None for NaN."""
    return number if number == number else None  # noqa: PLR0124

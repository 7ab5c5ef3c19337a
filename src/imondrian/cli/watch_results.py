"""The results of the rows of a stream: columns by name, and lines of JSON."""

from typing import Any

from imondrian.alarms.incidents import NO_INCIDENT
from imondrian.base.column_names import INCIDENT, LABEL, SCORE, SURPRISE, THRESHOLD
from imondrian.cli.watch_output import as_json
from imondrian.cli.watch_rows import Row
from imondrian.fleet.results import FleetResults
from imondrian.stream.detector import Results
from imondrian.tables.feature_columns import result_names
from imondrian.tables.verbatim_json import json_members

NO_RESULTS: dict[str, Any] = {SCORE: None, SURPRISE: None, LABEL: False, THRESHOLD: None, INCIDENT: None}


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
    return f"{{{members}{', ' if members else ''}{as_json(results)[1:]}\n"


def _number_or_none(number: float) -> float | None:
    """Return None for NaN."""
    return number if number == number else None  # noqa: PLR0124

"""Rows of a stream, scored and written as they come."""

import json
import math
import sys
from collections.abc import Iterator
from itertools import groupby, takewhile
from typing import Any, NamedTuple

import numpy as np

from imondrian.cli.console import Console
from imondrian.cli.detectors import Keeper
from imondrian.cli.rows import names_in
from imondrian.cli.settings import Choice, Watching
from imondrian.errors import InvalidInputError
from imondrian.explanations import reasons_of
from imondrian.stream import StreamDetector
from imondrian.tables.columns import (
    ERROR,
    EXPLANATION,
    LABEL,
    RESULTS,
    ROW,
    SCORE,
    THRESHOLD,
    check_names,
    results_among,
)
from imondrian.tables.records import Parser, Record, Values, is_missing, is_number, numbers_in
from imondrian.tables.retelling import members_of

_NOTHING = Record({})
_as_json = json.JSONEncoder(allow_nan=False).encode


class Row(NamedTuple):
    """A line of the stream: the record in it, and the values of the features or what is wrong with them."""

    record: Record
    values: list[float]
    error: str | None


class Watcher:
    """Turns lines into rows, has them scored, and writes them with the results."""

    def __init__(self, keeper: Keeper, choice: Choice, watching: Watching, console: Console) -> None:
        self._keeper = keeper
        self._choice = choice
        self._watching = watching
        self._console = console
        self._features = _names_in(keeper.detector)
        self._feature_names: frozenset[str] = frozenset()
        self._is_begun = False  # whether a record has been seen
        self.is_writing = False  # whether somebody must read before it goes on
        self._n_drifts = 0 if keeper.detector is None else keeper.detector.n_drifts
        self.n_rows = self.n_anomalies = self.n_errors = 0

    def take(self, lines: list[bytes], parser: Parser) -> None:
        """Score the rows in lines and write them; where an error is to end it, those before it are written first."""
        rows = [self._row(line, parser) for line in lines]
        usable = list(takewhile(lambda row: row.error is None, rows)) if self._watching.on_error == "fail" else rows
        for run in self._runs(usable):
            self._write("".join(self._scored_lines(run)))
            self._tell_of_drifts()
        if len(usable) < len(rows):
            raise InvalidInputError(f"Row {self._keeper.n_seen + 1}: {rows[len(usable)].error}")

    def _write(self, text: str) -> None:
        self.is_writing = True
        sys.stdout.buffer.write(text.encode())  # JSON is UTF-8, whatever the terminal has
        sys.stdout.buffer.flush()
        self.is_writing = False

    def sum_up(self) -> None:
        """Say how many rows there were."""
        bad = f", {self.n_errors:,} that could not be used" if self.n_errors else ""
        kept = f"; saved in {self._watching.model}" if self._watching.model and self._keeper.detector else ""
        self._console.note(f"{self.n_rows:,} rows, {self.n_anomalies:,} anomalies{bad}{kept}")

    # -- from lines to rows -----------------------------------------------------------------------------------------

    def _row(self, line: bytes, parser: Parser) -> Row:
        try:
            record = parser(line)
        except InvalidInputError as error:
            return Row(_NOTHING, [math.nan] * len(self._features), str(error))
        if not self._is_begun:
            self._begin(record)
        try:
            return Row(record, numbers_in(record.values, self._features), None)
        except InvalidInputError as error:
            return Row(record, [math.nan] * len(self._features), str(error))

    def _begin(self, record: Record) -> None:
        """Look at the first record: is it of the features that the detector knows, or else which are they to be."""
        known, choice = list(record.values), self._choice
        features, ignore = (names_in(names, known) for names in (choice.features, choice.ignore))
        check_names((*features, *ignore, *([] if choice.time is None else [choice.time])), known)
        self._check_free(known)
        if self._features:
            self._check_known(features, record)
        else:
            self._features = self._chosen(record.values, features, ignore)
        self._feature_names = frozenset(self._features)
        self._is_begun = True

    def _check_free(self, known: list[str]) -> None:
        taken = [name for name in RESULTS if name in known]
        if taken and SCORE not in known:
            raise InvalidInputError(f"The stream has {taken[0]!r} of its own, which the results need: rename it.")

    def _check_known(self, features: list[str], record: Record) -> None:
        """Refuse a stream of other features; that a record in JSON lacks some does not tell that the next one does."""
        model = self._watching.model
        lacking = [name for name in self._features if name not in record.values]
        is_csv = record.text is None
        if lacking and (is_csv or len(lacking) == len(self._features)):
            raise InvalidInputError(f"{model} was made of other features: there is no column {lacking[0]!r}.")
        if features and features != self._features:
            raise InvalidInputError(f"{model} was begun with the features {', '.join(self._features)}.")

    def _chosen(self, record: Values, features: list[str], ignore: list[str]) -> list[str]:
        """Choose the features: those asked for, or all that are numbers in the first record."""
        reasons = {name: _why_not_feature(record[name]) for name in record}
        reasons |= dict.fromkeys(results_among(record), "the result of an earlier run")
        reasons |= dict.fromkeys(ignore, "to be ignored")
        reasons |= {} if self._choice.time is None else {self._choice.time: "the time"}
        chosen = features or [name for name in record if not reasons[name]]
        if not chosen:
            raise InvalidInputError(f"No column of the first row can be used as a feature: {json.dumps(record)[:200]}.")
        detector = self._keeper.detector
        if detector is not None and detector.parameters["n_features"] != len(chosen):
            wanted = detector.parameters["n_features"]
            raise InvalidInputError(f"The detector has {wanted} features without names, but here are {chosen}.")
        left_out = ", ".join(f"{name} ({reasons[name] or 'not asked for'})" for name in record if name not in chosen)
        self._console.note(f"features: {', '.join(chosen)}" + (f"; left out: {left_out}" if left_out else ""))
        return chosen

    def _runs(self, rows: list[Row]) -> Iterator[list[Row]]:
        """Part rows into those that are treated together: as many as follow each other and can be used, or cannot."""
        for is_usable, run in groupby(rows, lambda row: row.error is None):
            together = list(run)
            if is_usable and (self._watching.explain or not _names_in(self._keeper.detector)):
                n_alone = len(together) if self._watching.explain else 1  # the first one names the features
                yield from ([row] for row in together[:n_alone])
                together = together[n_alone:]
            if together:
                yield together

    # -- from rows to results ---------------------------------------------------------------------------------------

    def _scored_lines(self, rows: list[Row]) -> list[str]:
        """Score rows that are treated together, and give the lines that tell of them."""
        self.n_rows += len(rows)
        return self._skipped_lines(rows) if rows[0].error is not None else self._usable_lines(rows)

    def _skipped_lines(self, rows: list[Row]) -> list[str]:
        self.n_errors += len(rows)
        extra = {EXPLANATION: None} if self._watching.explain else {}
        first, detector = self._keeper.n_seen, self._keeper.detector
        threshold = None if detector is None else _known(detector.threshold)
        self._keeper.skip(len(rows))
        results = {SCORE: None, LABEL: False, THRESHOLD: threshold, **extra}
        return [self._line(row, {ROW: first + i + 1, **results, ERROR: row.error}) for i, row in enumerate(rows)]

    def _usable_lines(self, rows: list[Row]) -> list[str]:
        detector = self._keeper.detector or self._keeper.made(len(self._features))
        extra = {EXPLANATION: self._explanation(detector, rows[0])} if self._watching.explain else {}
        results = detector.process_many(self._table(detector, rows))
        self.n_anomalies += int(results.is_anomaly.sum())
        columns = (column.tolist() for column in (results.index, results.score, results.is_anomaly, results.threshold))
        return [
            self._line(row, {ROW: i + 1, SCORE: score, LABEL: is_anomaly, THRESHOLD: _known(threshold), **extra})
            for row, i, score, is_anomaly, threshold in zip(rows, *columns, strict=True)
        ]

    def _table(self, detector: StreamDetector, rows: list[Row]) -> Any:
        """Give the values of rows; the first with names, which the detector keeps."""
        if detector.feature_names is None:
            return [dict(zip(self._features, row.values, strict=True)) for row in rows]
        return np.array([row.values for row in rows])

    def _explanation(self, detector: StreamDetector, row: Row) -> str | None:
        """Say what makes a row an anomaly that is about to be called one, by what is known before it."""
        if not detector.is_warm:
            return None
        values = np.array(row.values)
        if not detector.score(values[None])[0] > detector.threshold:
            return None
        parts = detector.explain(values)
        names = [key if isinstance(key, str) else _name_in_shingle(*key) for key in parts]
        return ", ".join(map(str, reasons_of(np.array(list(parts.values())), np.zeros(len(parts)), names)))

    def _line(self, row: Row, results: dict[str, Any]) -> str:
        """Write a record with its results as a line of JSON."""
        values = row.record.values
        replaced = results_among(values) or results.keys() & values.keys()
        members = members_of(row.record, self._feature_names, replaced)
        return f"{{{members}{', ' if members else ''}{_as_json(results)[1:]}\n"

    def _tell_of_drifts(self) -> None:
        detector = self._keeper.detector
        if detector is not None and detector.n_drifts > self._n_drifts:
            drift = detector.drifts[-1]
            self._console.note(f"row {drift.index + 1}: the stream has moved, since about row {drift.since + 1}")
            self._n_drifts = detector.n_drifts


def _name_in_shingle(name: str, n_rows_ago: int) -> str:
    return name if n_rows_ago == 0 else f"{name} {n_rows_ago} row{'s' * (n_rows_ago > 1)} ago"


def _why_not_feature(value: Any) -> str:
    """Tell why a column with this value in the first record is not a feature; nothing if it is one."""
    if is_missing(value):
        return "missing in the first row; --features can name it"
    return "" if is_number(value) else "no number"


def _known(threshold: float) -> float | None:
    """Give no threshold as long as the detector has none: then it is 1, which no score exceeds."""
    return threshold if threshold < 1.0 else None


def _names_in(detector: StreamDetector | None) -> list[str]:
    return [] if detector is None else [str(name) for name in detector.feature_names or ()]

"""The summary of a scored table, printed for a person or as JSON."""

from typing import Any, NamedTuple

import numpy as np

from imondrian.cli.console import printable
from imondrian.cli.scored_rows import ScoredRows
from imondrian.column_names import EXPLANATION, LABEL, ROW, SCORE
from imondrian.engine.jit import Array
from imondrian.explanations import NO_NAME, ExplainedRow, Reason, reasons_of
from imondrian.fitted_model import FittedModel

MAX_REASONS = 3  # per row in a summary
MAX_REASONS_EXPLAINED = 8  # per row of `imondrian explain`
_DEFAULT_TOP = 10
_MAX_LISTED = 8
_RULES = {"kmeans": "midpoint of two clusters of scores", "auto": "score of an average point"}


class Summary(NamedTuple):
    """The figures of a scored table."""

    source: str
    n_rows: int
    n_scored: int
    n_anomalies: int
    threshold: float
    rule: str
    features: list[str]
    left_out: dict[str, str]
    highest: list[ExplainedRow]  # the rows with the highest scores
    written: dict[str, str]  # paths of the files written, by what they contain

    def as_json(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        return {**self._asdict(), "highest": [row_as_json(row) for row in self.highest]}

    def print_on(self, console: Any) -> None:
        """Print the summary on a rich console."""
        n_unscored = self.n_rows - self.n_scored
        unscored = f", {n_unscored:,} without a score because of missing values" if n_unscored else ""
        facts = {
            "rows": f"{self.n_rows:,}{unscored}",
            **column_facts(self.features, self.left_out),
            "threshold": f"{self.threshold:.4f}: {self.rule}",
            "anomalies": f"{self.n_anomalies:,} ({self.n_anomalies / max(self.n_scored, 1):.1%} of the scored rows)",
            **self.written,
        }
        console.print(f"[bold]{escaped(self.source)}[/bold]")
        print_facts(facts, console)
        if self.highest:
            console.print("\n[bold]Rows with the highest scores, and why[/bold]")
            print_rows(self.highest, console)


class SummaryBuilder:
    """Counts scored rows batch by batch, and collects those with the highest scores."""

    def __init__(
        self,
        model: FittedModel,
        time: str | None = None,
        top: int = _DEFAULT_TOP,
        max_reasons: int = MAX_REASONS,
    ) -> None:
        self._model = model
        self._time = time
        self._top = top
        self._max_reasons = max_reasons
        self.n_rows = self.n_scored = self.n_anomalies = 0
        self.highest: list[ExplainedRow] = []
        self._features: list[str] = []

    def add(self, scored: ScoredRows) -> None:
        """Add a batch."""
        self._features = scored.rows.features
        self.n_rows += len(scored.scores)
        self.n_scored += int(np.isfinite(scored.scores).sum())
        self.n_anomalies += int(scored.is_anomaly.sum())
        new = self.describe(scored, scored.highest(self._top))
        self.highest = sorted([*self.highest, *new], key=lambda row: (-row.score, row.row))[: self._top]

    def describe(self, scored: ScoredRows, indices: Array) -> list[ExplainedRow]:
        """Return some rows with score, time and explanation; rows without a score are left out."""
        rows, scores = scored.rows, scored.scores
        indices = indices[np.isfinite(scores[indices])]
        times = None if self._time is None else rows.frame[self._time]
        return [
            ExplainedRow(
                rows.first + int(i) + 1,
                float(scores[i]),
                bool(scores[i] > self._model.threshold),
                None if times is None else str(times[int(i)]),
                reasons_of(parts, rows.points[i], rows.features, self._max_reasons),
            )
            for i, parts in zip(indices, scored.parts(indices), strict=True)
        ]

    def summary(self, source: str, left_out: dict[str, str], written: dict[str, str]) -> Summary:
        """Return the summary of all batches."""
        return Summary(
            source,
            self.n_rows,
            self.n_scored,
            self.n_anomalies,
            float(self._model.threshold),
            describe_rule(self._model.contamination),
            self._features,
            left_out,
            self.highest,
            written,
        )


def row_as_json(row: ExplainedRow) -> dict[str, Any]:
    """Return a row as JSON values."""
    return {
        ROW: row.row,
        SCORE: row.score,
        LABEL: row.is_anomaly,
        "time": row.time,
        EXPLANATION: [reason._asdict() for reason in row.explanation],
    }


def print_rows(rows: list[ExplainedRow], console: Any) -> None:
    """Print rows with their scores and explanations."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    has_times = any(row.time is not None for row in rows)
    for name in ("   row", "score", "anomaly"):
        table.add_column(name, justify="right", no_wrap=True)
    if has_times:
        table.add_column("time", no_wrap=True)
    table.add_column("feature = value (high or low, share of the score)", overflow="fold")
    for row in rows:
        score, label = f"{row.score:.3f}", "yes" if row.is_anomaly else "no"
        marked = [f"[bold red]{text}[/]" if row.is_anomaly else text for text in (score, label)]
        times = [escaped(row.time or "")] if has_times else []
        table.add_row(str(row.row), *marked, *times, escaped(", ".join(map(describe_reason, row.explanation))))
    console.print(table)


def describe_reason(reason: Reason) -> str:
    """Return a reason as text, with the value of the row."""
    return f"{reason.feature or NO_NAME} = {reason.value_text} ({reason.side}, {reason.share:.0%})"


def describe_rule(rule: Any) -> str:
    """Return in words how a threshold was found."""
    return _RULES.get(rule) or f"exceeded by {100 * float(rule):.3g} % of the rows that it was fitted on"


def escaped(text: str) -> str:
    """Escape control characters and rich markup in text from outside."""
    from rich.markup import escape

    return escape(printable(text))


def column_facts(features: list[str], left_out: dict[str, str]) -> dict[str, str]:
    """Return in words which columns are features, and why the others are not."""
    return {
        "features": f"{len(features)}: {_listed(features)}",
        "left out": ", ".join(f"{name or NO_NAME} ({reason})" for name, reason in left_out.items()),
    }


def print_facts(facts: dict[str, str], console: Any) -> None:
    """Print each name with its text; names with an empty text are left out."""
    for name, text in facts.items():
        if text:
            console.print(f"  {name:<10} {escaped(text)}")


def _listed(names: list[str]) -> str:
    text = ", ".join(name or NO_NAME for name in names[:_MAX_LISTED])
    return text if len(names) <= _MAX_LISTED else f"{text} and {len(names) - _MAX_LISTED} more"

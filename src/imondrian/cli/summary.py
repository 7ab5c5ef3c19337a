"""The summary of a scored table, printed for a person or as JSON."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from imondrian.cli.console import printable
from imondrian.cli.scored_rows import ScoredRows
from imondrian.column_names import EXPLANATION, LABEL, ROW, SCORE
from imondrian.engine.jit import Array
from imondrian.explanations import NO_NAME, ExplainedRow, Reason
from imondrian.fitted_model import FittedModel
from imondrian.tables.feature_columns import FeatureChoice, FeatureColumn

MAX_REASONS = 3  # per row in a summary
MAX_REASONS_EXPLAINED = 8  # per row of `imondrian explain`
_DEFAULT_TOP = 10
_MAX_LISTED = 8
_MAX_LEFT_OUT = 20
_RULES = {"kmeans": "midpoint of two clusters of scores", "auto": "score of an average point"}


class Summary(NamedTuple):
    """The figures of a scored table."""

    source: str
    n_rows: int
    n_scored: int
    n_anomalies: int
    threshold: float
    rule: str
    columns: list[FeatureColumn]  # the features
    choice: FeatureChoice  # which columns were left out, and notes on how the table was read
    filled: dict[str, int]  # number of missing numbers that were filled in, by feature
    highest: list[ExplainedRow]  # the rows with the highest scores
    written: dict[str, str]  # files written, by content

    def as_json(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        return {
            "source": self.source,
            "n_rows": self.n_rows,
            "n_scored": self.n_scored,
            "n_anomalies": self.n_anomalies,
            "threshold": self.threshold,
            "rule": self.rule,
            **columns_as_json(self.columns, self.choice, self.filled),
            "highest": [row_as_json(row) for row in self.highest],
            "written": self.written,
        }

    def print_on(self, console: Any) -> None:
        """Print the summary on a rich console."""
        n_unscored = self.n_rows - self.n_scored
        unscored = f", {n_unscored:,} without a score because of missing values" if n_unscored else ""
        facts = {
            "rows": f"{self.n_rows:,}{unscored}",
            **column_facts(self.columns, self.choice, self.filled),
            "threshold": f"{self.threshold:.4f}: {self.rule}",
            "anomalies": f"{self.n_anomalies:,} ({self.n_anomalies / max(self.n_scored, 1):.1%} of the scored rows)",
            **self.written,
        }
        console.print(f"[bold]{escaped(self.source)}[/bold]")
        print_facts(facts, console)
        if self.highest:
            console.print("\n[bold]Rows with the highest scores, and why[/bold]")
            print_rows(self.highest, console)


class ShownColumns(NamedTuple):
    """The columns that are displayed beside the rows with the highest scores."""

    id: str | None = None
    time: str | None = None


class SummaryBuilder:
    """Counts scored rows batch by batch, and collects those with the highest scores."""

    def __init__(
        self,
        model: FittedModel,
        shown: ShownColumns = ShownColumns(),  # noqa: B008
        top: int = _DEFAULT_TOP,
        max_reasons: int = MAX_REASONS,
    ) -> None:
        self._model = model
        self._shown = shown
        self._top = top
        self._max_reasons = max_reasons
        self.n_rows = self.n_scored = self.n_anomalies = 0
        self.highest: list[ExplainedRow] = []
        self._columns: list[FeatureColumn] = []
        self._filled: Counter[str] = Counter()

    def add(self, scored: ScoredRows) -> None:
        """Add a batch."""
        self._columns = scored.rows.columns
        self._filled.update(scored.rows.n_gaps())
        self.n_rows += len(scored.scores)
        self.n_scored += int(np.isfinite(scored.scores).sum())
        self.n_anomalies += int(scored.is_anomaly.sum())
        new = self.describe(scored, scored.highest(self._top))
        self.highest = sorted([*self.highest, *new], key=lambda row: (-row.score, row.row))[: self._top]

    def describe(self, scored: ScoredRows, indices: Array) -> list[ExplainedRow]:
        """Return some rows with score, id, time and explanation; rows without a score are left out."""
        rows, scores = scored.rows, scored.scores
        indices = indices[np.isfinite(scores[indices])]
        return [
            ExplainedRow(
                rows.first + int(i) + 1,
                float(scores[i]),
                bool(scores[i] > self._model.threshold),
                _cell(rows.frame, self._shown.time, int(i)),
                reasons,
                _cell(rows.frame, self._shown.id, int(i)),
            )
            for i, reasons in zip(indices, scored.reasons(indices, self._max_reasons), strict=True)
        ]

    def summary(self, source: str, choice: FeatureChoice, written: dict[str, str]) -> Summary:
        """Return the summary of all batches."""
        return Summary(
            source,
            self.n_rows,
            self.n_scored,
            self.n_anomalies,
            float(self._model.threshold),
            describe_rule(self._model.contamination),
            self._columns,
            choice,
            dict(self._filled),
            self.highest,
            written,
        )


def _cell(frame: pl.DataFrame, name: str | None, i: int) -> str | None:
    return None if name is None else str(frame[name][i])


def row_as_json(row: ExplainedRow) -> dict[str, Any]:
    """Return a row as JSON values."""
    return {
        ROW: row.row,
        SCORE: row.score,
        LABEL: row.is_anomaly,
        "id": row.id,
        "time": row.time,
        EXPLANATION: [reason_as_json(reason) for reason in row.explanation],
    }


def reason_as_json(reason: Reason) -> dict[str, Any]:
    """Return a reason as JSON values; `value` is a number, a category, or None if the number is missing."""
    is_category = reason.text is not None
    fields: dict[str, Any] = {"feature": reason.feature, "value": reason.text, "share": reason.share}
    if not is_category:
        value = None if np.isnan(reason.value) else reason.value
        fields |= {"value": value, "is_high": reason.is_high, "usual": reason.usual}
    elif reason.frequency is not None:
        fields |= {"n_seen": reason.frequency.count, "n_points": reason.frequency.n_points}
    return fields


def print_rows(rows: list[ExplainedRow], console: Any) -> None:
    """Print rows with their scores and explanations."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    shown = [name for name in ShownColumns._fields if any(getattr(row, name) is not None for row in rows)]
    for name in ("   row", "score", "anomaly"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in shown:
        table.add_column(name, no_wrap=True)
    table.add_column("feature = value (what is unusual), share of the score", overflow="fold")
    for row in rows:
        score, label = f"{row.score:.3f}", "yes" if row.is_anomaly else "no"
        marked = [f"[bold red]{text}[/]" if row.is_anomaly else text for text in (score, label)]
        cells = [escaped(getattr(row, name) or "") for name in shown]
        table.add_row(str(row.row), *marked, *cells, escaped("; ".join(map(str, row.explanation))))
    console.print(table)


def describe_rule(rule: Any) -> str:
    """Return in words how a threshold was found."""
    return _RULES.get(rule) or f"exceeded by {100 * float(rule):.3g} % of the rows that it was fitted on"


def escaped(text: str) -> str:
    """Escape control characters and rich markup in text from outside."""
    from rich.markup import escape

    return escape(printable(text))


def columns_as_json(
    columns: list[FeatureColumn], choice: FeatureChoice, filled: dict[str, int]
) -> dict[str, Any]:
    """Return as JSON values which columns are features, why the others are not, and how the table was read."""
    return {
        "features": [feature.name for feature in columns],
        "categorical": [feature.name for feature in columns if feature.is_category],
        "left_out": choice.left_out,
        "filled": filled,
        "notes": choice.notes,
    }


def column_facts(columns: list[FeatureColumn], choice: FeatureChoice, filled: dict[str, int]) -> dict[str, str]:
    """Return in words which columns are features, why the others are not, and how the table was read."""
    numbers = [feature.name for feature in columns if not feature.is_category]
    categories = [feature.name for feature in columns if feature.is_category]
    return {
        "numbers": f"{len(numbers)}: {_listed(numbers)}" if numbers else "",
        "categories": f"{len(categories)}: {_listed(categories)}" if categories else "",
        "left out": _listed([f"{name or NO_NAME} ({reason})" for name, reason in choice.left_out.items()], _MAX_LEFT_OUT),
        "filled": f"{_listed([f'{name} {n:,}' for name, n in filled.items()])} (missing; the median is used)"
        if filled
        else "",
        "notes": "; ".join(choice.notes),
    }


def print_facts(facts: dict[str, str], console: Any) -> None:
    """Print each name with its text; names with an empty text are left out."""
    for name, text in facts.items():
        if text:
            console.print(f"  {name:<10} {escaped(text)}")


def _listed(names: list[str], n_listed: int = _MAX_LISTED) -> str:
    text = ", ".join(name or NO_NAME for name in names[:n_listed])
    return text if len(names) <= n_listed else f"{text} and {len(names) - n_listed} more"

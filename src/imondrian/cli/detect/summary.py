"""The summary of a table for a person or as JSON: its columns, how many anomalies it has, and its highest scores."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from imondrian.alarms.thresholds import FIXED, KMEANS, SHARE, Rule
from imondrian.base.column_names import EXPLANATION, LABEL, NO_NAME, ROW, SCORE, SURPRISE
from imondrian.base.shortening import shortened
from imondrian.cli.console import escaped, print_facts
from imondrian.cli.detect.scored_rows import ScoredRows
from imondrian.engine.jit import Array
from imondrian.models.explanations import MAX_SHOWN_LENGTH, ExplainedRow, Reason
from imondrian.models.fitted_model import FittedModel
from imondrian.tables.feature_columns import FeatureColumn
from imondrian.tables.table_reader import Table

MAX_REASONS = 3  # per row in a summary
MAX_REASONS_EXPLAINED = 8  # per row of `imondrian explain`
_MAX_LISTED = 8  # largest number of features that are listed
_MAX_LEFT_OUT = 20  # largest number of columns that are listed as left out
_MAX_WRITTEN_OUT = 10**9  # from here on, numbers are written with an exponent
_SMALL_SHARE = 0.001  # a smaller share is written with one digit


class Summary(NamedTuple):
    """The figures of a scored table."""

    source: str
    n_rows: int
    n_scored: int
    n_anomalies: int
    threshold: float
    rule: str
    columns: "ColumnFacts"
    highest: list[ExplainedRow]  # the rows with the highest scores
    written: dict[str, str]  # paths of the files written, by what they contain

    @property
    def hint(self) -> str:
        """What to do if no row is an anomaly; empty if there are anomalies."""
        if self.n_anomalies:
            return ""
        return 'The rows below stand out most; to flag a share of the rows, fit with --threshold "top 5%".'

    def as_json(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        return {
            "source": self.source,
            "n_rows": self.n_rows,
            "n_scored": self.n_scored,
            "n_anomalies": self.n_anomalies,
            "threshold": self.threshold,
            "rule": self.rule,
            **self.columns.as_json(),
            "highest": [row_as_json(row) for row in self.highest],
            "written": self.written,
        }

    def print_on(self, console: Any) -> None:
        """Print the summary on a rich console."""
        n_unscored = self.n_rows - self.n_scored
        unscored = f", {n_unscored:,} without a score because of missing values" if n_unscored else ""
        facts = {
            "rows": f"{self.n_rows:,}{unscored}",
            **self.columns.in_words(),
            "threshold": f"{self.threshold:.4f}: {self.rule}",
            "anomalies": self._anomalies_in_words(),
            **self.written,
        }
        console.print(f"[bold]{escaped(self.source)}[/bold]")
        print_facts(facts, console)
        if self.highest:
            console.print("\n[bold]Rows with the highest scores, and why[/bold]")
            print_rows(self.highest, console)

    def _anomalies_in_words(self) -> str:
        if self.n_anomalies == 0:
            return f"none. {self.hint}"
        return f"{self.n_anomalies:,} ({share_in_words(self.n_anomalies, self.n_scored)} of the scored rows)"


class ColumnFacts(NamedTuple):
    """Which columns are features, why the others are not, and how the table was read."""

    features: list[FeatureColumn]
    left_out: dict[str, str]  # reasons, by column
    filled: dict[str, int]  # number of missing numbers that were filled in, by feature
    notes: list[str]  # on how the table was read

    def as_json(self) -> dict[str, Any]:
        """Return the facts as JSON values."""
        return {
            "features": [feature.name for feature in self.features],
            "categorical": [feature.name for feature in self.features if feature.is_category],
            "left_out": self.left_out,
            "filled": self.filled,
            "notes": self.notes,
        }

    def in_words(self) -> dict[str, str]:
        """Return the facts as text, by name; some may be empty."""
        numbers = [feature.name for feature in self.features if not feature.is_category]
        categories = [feature.name for feature in self.features if feature.is_category]
        left_out = [f"{name or NO_NAME} ({reason})" for name, reason in self.left_out.items()]
        filled = [f"{name or NO_NAME} {n:,}" for name, n in self.filled.items()]
        return {
            "numbers": f"{len(numbers)}: {_listed(numbers)}" if numbers else "",
            "categories": f"{len(categories)}: {_listed(categories)}" if categories else "",
            "left out": _listed(left_out, _MAX_LEFT_OUT),
            "filled": f"{_listed(filled)} (missing; the median is used)" if filled else "",
            "notes": "; ".join(self.notes),
        }


def _listed(names: list[str], n_listed: int = _MAX_LISTED) -> str:
    text = ", ".join(name or NO_NAME for name in names[:n_listed])
    return text if len(names) <= n_listed else f"{text} and {len(names) - n_listed} more"


class ShownColumns(NamedTuple):
    """The columns that are displayed beside the rows with the highest scores."""

    id: str | None = None
    time: str | None = None


class SummaryBuilder:
    """Counts scored rows batch by batch, and collects those with the highest scores."""

    def __init__(
        self,
        model: FittedModel,
        shown: ShownColumns,
        top: int,
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
                float(scored.surprises[i]),
                bool(scores[i] > self._model.threshold),
                _cell(rows.frame, self._shown.time, int(i)),
                reasons,
                _cell(rows.frame, self._shown.id, int(i)),
            )
            for i, reasons in zip(indices, scored.reasons(indices, self._max_reasons), strict=True)
        ]

    def summary(self, table: Table, left_out: dict[str, str], written: dict[str, str]) -> Summary:
        """Return the summary of all batches of a table."""
        return Summary(
            table.name,
            self.n_rows,
            self.n_scored,
            self.n_anomalies,
            float(self._model.threshold),
            describe_rule(self._model.rule),
            ColumnFacts(self._columns, left_out, dict(self._filled), table.facts.notes),
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
        SURPRISE: row.surprise,
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
        fields |= {"value": value, "is_high": reason.is_high, "expected": reason.expected}
    elif reason.frequency is not None:
        fields |= {"n_seen": reason.frequency.count, "n_points": reason.frequency.n_points}
    return fields


def print_rows(rows: list[ExplainedRow], console: Any) -> None:
    """Print rows with their scores and explanations."""
    from rich.table import Table as RichTable

    table = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    shown = [name for name in ShownColumns._fields if any(getattr(row, name) is not None for row in rows)]
    for name in ("   row", "score", "surprise", "anomaly"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in shown:
        table.add_column(name, no_wrap=True)
    table.add_column("feature = value (what is unusual), share of the score", overflow="fold")
    for row in rows:
        results = f"{row.score:.3f}", f"{row.surprise:.1f}", "yes" if row.is_anomaly else "no"
        marked = [f"[bold red]{text}[/]" if row.is_anomaly else text for text in results]
        cells = [escaped(shortened(getattr(row, name) or "", MAX_SHOWN_LENGTH)) for name in shown]
        table.add_row(str(row.row), *marked, *cells, escaped("; ".join(map(str, row.explanation))))
    console.print(table)


def describe_rule(rule: Rule, rows: str = "rows that the model was fitted on") -> str:
    """Return in words how a threshold was found; `rows` are those of which "top 5%" is a share."""
    if rule.name == KMEANS:
        return "midpoint of two clusters of scores"
    if rule.name == FIXED:
        return "score of an average point" if rule.value == 0.5 else "a fixed score"
    if rule.name == SHARE:
        return f"the top {100.0 * rule.value:.4g}% of the {rows}"
    return f"surprise above {rule.value:.4g}: about 1 in {_rounded(1.0 / rule.probability)} ordinary rows"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value < _MAX_WRITTEN_OUT else f"{value:.3g}"


def share_in_words(n: int, total: int) -> str:
    """Return a share in percent; a small share is not rounded to zero."""
    share = n / max(total, 1)
    return f"{share:.1%}" if n == 0 or share >= _SMALL_SHARE else f"{100.0 * share:.1g}%"

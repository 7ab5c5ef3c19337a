"""The summary of a table that has been scored: for a person, and as JSON."""

from typing import Any, NamedTuple

import numpy as np

from imondrian.cli.console import printable
from imondrian.cli.rows import Rows
from imondrian.engine.jit import Array
from imondrian.explanations import NO_NAME, AnomalousRow, Reason, reasons_of
from imondrian.scorer import Scorer
from imondrian.tables.columns import EXPLANATION, LABEL, ROW, SCORE

N_ODDEST = 10
_N_REASONS = 3
N_REASONS_IN_FULL = 8
_N_LISTED = 8
_RULES = {"kmeans": "the middle of two clusters of scores", "auto": "odder than an average point"}


class Summary(NamedTuple):
    """What there is to say of a table that has been scored."""

    source: str
    n_rows: int
    n_scored: int
    n_anomalies: int
    threshold: float
    rule: str
    features: list[str]
    left_out: dict[str, str]
    oddest: list[AnomalousRow]
    written: dict[str, str]  # what was written, and where

    def as_json(self) -> dict[str, Any]:
        """Give the summary as JSON can hold it."""
        return {**self._asdict(), "oddest": [row_as_json(odd) for odd in self.oddest]}

    def print_on(self, console: Any) -> None:
        """Print the summary on a console of rich."""
        n_unscored = self.n_rows - self.n_scored
        unscored = f", {n_unscored:,} of them with missing values and no score" if n_unscored else ""
        facts = {
            "rows": f"{self.n_rows:,}{unscored}",
            **about_columns(self.features, self.left_out),
            "threshold": f"{self.threshold:.4f}: {self.rule}",
            "anomalies": f"{self.n_anomalies:,} ({self.n_anomalies / max(self.n_scored, 1):.1%} of the rows scored)",
            **self.written,
        }
        console.print(f"[bold]{escaped(self.source)}[/bold]")
        print_facts(facts, console)
        if self.oddest:
            console.print("\n[bold]The oddest rows, and what makes them odd[/bold]")
            print_rows(self.oddest, console)


class Tally:
    """Counts rows as they are scored, and keeps the oddest."""

    def __init__(
        self, scorer: Scorer, time: str | None = None, n_oddest: int = N_ODDEST, n_reasons: int = _N_REASONS
    ) -> None:
        self._scorer = scorer
        self._time = time
        self._n_oddest = n_oddest
        self._n_reasons = n_reasons
        self.n_rows = self.n_scored = self.n_anomalies = 0
        self.oddest: list[AnomalousRow] = []
        self._features: list[str] = []

    def add(self, rows: Rows, scores: Array) -> None:
        """Count rows that have been scored."""
        self._features = rows.features
        self.n_rows += len(scores)
        self.n_scored += int(np.isfinite(scores).sum())
        self.n_anomalies += int((scores > self._scorer.threshold).sum())
        order = np.argsort(-np.nan_to_num(scores, nan=-1.0), kind="stable")[: self._n_oddest]
        new = self.described(rows, order, scores)
        self.oddest = sorted([*self.oddest, *new], key=lambda odd: (-odd.score, odd.row))[: self._n_oddest]

    def described(self, rows: Rows, places: Array, scores: Array) -> list[AnomalousRow]:
        """Say of some of the rows how odd they are, and why; of those without a score there is nothing to say."""
        places = places[np.isfinite(scores[places])]
        times = None if self._time is None else rows.frame[self._time]
        parts = self._scorer.parts(rows.points[places])
        return [
            AnomalousRow(
                rows.first + int(i) + 1,
                float(scores[i]),
                bool(scores[i] > self._scorer.threshold),
                None if times is None else str(times[int(i)]),
                reasons_of(parts[k], rows.points[i], rows.features, self._n_reasons),
            )
            for k, i in enumerate(places)
        ]

    def summary(self, source: str, left_out: dict[str, str], written: dict[str, str]) -> Summary:
        """Sum up."""
        return Summary(
            source,
            self.n_rows,
            self.n_scored,
            self.n_anomalies,
            float(self._scorer.threshold),
            in_words(self._scorer.rule),
            self._features,
            left_out,
            self.oddest,
            written,
        )


def row_as_json(odd: AnomalousRow) -> dict[str, Any]:
    """Give what is said of a row as JSON can hold it."""
    return {
        ROW: odd.row,
        SCORE: odd.score,
        LABEL: odd.is_anomaly,
        "time": odd.time,
        EXPLANATION: [reason._asdict() for reason in odd.explanation],
    }


def print_rows(found: list[AnomalousRow], console: Any) -> None:
    """Print rows with their scores and reasons."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    has_times = any(odd.time is not None for odd in found)
    for name in ("   row", "score", "anomaly"):
        table.add_column(name, justify="right", no_wrap=True)
    if has_times:
        table.add_column("time", no_wrap=True)
    table.add_column("feature = value (side, share of the score)", overflow="fold")
    for odd in found:
        score, label = f"{odd.score:.3f}", "yes" if odd.is_anomaly else "no"
        marked = [f"[bold red]{text}[/]" if odd.is_anomaly else text for text in (score, label)]
        times = [escaped(odd.time or "")] if has_times else []
        table.add_row(str(odd.row), *marked, *times, escaped(", ".join(map(in_full, odd.explanation))))
    console.print(table)


def in_full(reason: Reason) -> str:
    """Say a reason with the value of the row."""
    return f"{reason.feature or NO_NAME} = {reason.amount} ({reason.side}, {reason.share:.0%})"


def in_words(rule: Any) -> str:
    """Say what a threshold is made by."""
    return _RULES.get(rule) or f"exceeded by {100 * float(rule):.3g} % of the rows that it was fitted on"


def escaped(text: str) -> str:
    """Take the meaning of markup from text that comes from outside."""
    from rich.markup import escape

    return escape(printable(text))


def about_columns(features: list[str], left_out: dict[str, str]) -> dict[str, str]:
    """Say which columns are features, and why others are none."""
    return {
        "features": f"{len(features)}: {listed(features)}",
        "left out": ", ".join(f"{name or NO_NAME} ({why})" for name, why in left_out.items()),
    }


def print_facts(facts: dict[str, str], console: Any) -> None:
    """Print names and what there is to say of them; what is empty is left out."""
    for name, text in facts.items():
        if text:
            console.print(f"  {name:<10} {escaped(text)}")


def listed(names: list[str]) -> str:
    """List names, the first of them if they are many."""
    shown = ", ".join(name or NO_NAME for name in names[:_N_LISTED])
    return shown if len(names) <= _N_LISTED else f"{shown} and {len(names) - _N_LISTED} more"

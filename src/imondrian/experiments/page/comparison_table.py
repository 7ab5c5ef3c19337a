"""Tables of our results, with the paper's in brackets."""

from collections.abc import Mapping, Sequence
from typing import Any

from imondrian.experiments.comparison import Comparison, compare
from imondrian.experiments.methods import Method
from imondrian.experiments.page.markdown import table
from imondrian.experiments.paper_results import TITLES, TableCell
from imondrian.experiments.result_records import Record


class ComparisonTable:
    """The results for one of the paper's tables, to be formatted as Markdown."""

    def __init__(self, record: Record, methods: Mapping[str, Method]) -> None:
        self.comparisons = compare(record.name, record.rows)
        self.sets = list(dict.fromkeys(row["set"] for row in record.rows))
        self.methods = [name for name in methods if any(cell.method == name for cell in self.comparisons)]
        self.titles = {name: method_title(methods[name]) for name in methods}
        self._table = record.name
        self._repeats: Mapping[str, Mapping[str, int]] = record.metadata["settings"]["repeats"]

    def by_method(self, part: str, measure: str) -> str:
        """Return the table of one part, with a line for each method and a column for each set."""
        rows = [[self.titles[name], *self._line(name, part, measure)] for name in self.methods]
        return table(["", *map(dataset_title, self.sets)], rows)

    def by_part(self, method: str, parts: Sequence[str], measure: str) -> str:
        """Return the table of one method, with a line for each part and a column for each set."""
        return table(
            ["", *map(dataset_title, self.sets)], [[part, *self._line(method, part, measure)] for part in parts]
        )

    def _line(self, method: str, part: str, measure: str) -> list[str]:
        cells = [TableCell(self._table, method, name, part) for name in self.sets]
        return [self._cell(self.comparisons.get(cell), measure) for cell in cells]

    def _cell(self, comparison: Comparison | None, measure: str) -> str:
        if comparison is None:
            return ""
        text = _WRITERS[measure](comparison)
        is_short = comparison.measured.n_repeats < self._repeats[comparison.cell.set][comparison.cell.method]
        return f"{text} †{comparison.measured.n_repeats}" if is_short else text


def method_title(method: Method) -> str:
    """Return the title of a method, in italics if it is ours."""
    return f"*{method.title}*" if method.is_ours else method.title


def dataset_title(name: str) -> str:
    """Return the title of a data set; for a set of the paper, its title there."""
    return TITLES.get(name, name)


def _write_auc(comparison: Comparison) -> str:
    measured, published = comparison.measured, comparison.published
    text = f"{measured.auc:.1f}{_deviation(measured.auc_deviation if measured.n_repeats > 1 else None)}"
    if published is None:
        return text
    mark = " ≠" if comparison.differs else ""
    return f"{text} ({published.auc:.1f}{_deviation(published.auc_deviation)}){mark}"


def _write_seconds(comparison: Comparison) -> str:
    published = comparison.published
    text = _seconds(comparison.measured.seconds)
    return text if published is None else f"{text} ({_seconds(published.seconds)})"


_WRITERS: dict[str, Any] = {"auc": _write_auc, "seconds": _write_seconds}


def _deviation(value: float | None) -> str:
    return "" if value is None else f" ± {value:.1f}"


def _seconds(value: float) -> str:
    if value >= 10.0:
        return f"{value:,.0f}"
    if value >= 0.1:
        return f"{value:.2f}"
    return f"{value:.3f}" if value >= 0.0005 else "0"

"""Comparison of our results with the paper's: means over repeats, and differences beyond a tolerance."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import mean, pstdev
from typing import NamedTuple

from imondrian.experiments.paper_results import PUBLISHED, PublishedResult, TableCell
from imondrian.experiments.repeats import Row

# the tolerance is the larger of this many points and this many of the paper's standard deviations
POINTS, DEVIATIONS = 2.5, 2.0


class MeanResult(NamedTuple):
    """Our result for one table cell: mean and standard deviation over repeats (with the divisor n, as in the paper)."""

    auc: float
    auc_deviation: float
    seconds: float
    n_repeats: int


class Comparison(NamedTuple):
    """A cell of the paper's tables with our result and the published one."""

    cell: TableCell
    measured: MeanResult
    published: PublishedResult | None  # None: not in the paper

    @property
    def tolerance(self) -> float:
        """The largest difference, in points, that does not count."""
        deviation = None if self.published is None else self.published.auc_deviation
        return max(POINTS, DEVIATIONS * (deviation or 0.0))

    @property
    def published_auc(self) -> float:
        """The paper's AUC; ours if the paper has none."""
        return self.measured.auc if self.published is None else self.published.auc

    @property
    def difference(self) -> float:
        """Our AUC minus the paper's, in points; 0 if the paper has none."""
        return self.measured.auc - self.published_auc

    @property
    def differs(self) -> bool:
        """Whether the results differ by more than the tolerance."""
        return abs(self.difference) > self.tolerance


def compare(table: str, rows: Iterable[Row]) -> dict[TableCell, Comparison]:
    """Return, for each table cell, our mean over seeds and folds and the paper's result."""
    groups: dict[TableCell, list[Row]] = defaultdict(list)
    for row in rows:
        groups[TableCell(table, row["method"], row["set"], row["part"])].append(row)
    return {cell: Comparison(cell, mean_result(group), PUBLISHED.get(cell)) for cell, group in groups.items()}


def mean_result(rows: list[Row]) -> MeanResult:
    """Return the mean and standard deviation of the rows of one cell."""
    aucs = [row["auc"] for row in rows]
    return MeanResult(mean(aucs), pstdev(aucs), mean(row["seconds"] for row in rows), len(rows))

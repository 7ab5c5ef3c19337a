"""Ours beside the paper's: means over repeats, and where the two lie further apart than chance explains."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import mean, pstdev
from typing import NamedTuple

from imondrian.experiments.paper_results import PUBLISHED, PublishedResult, TableCell
from imondrian.experiments.repeats import Row

POINTS, DEVIATIONS = 2.5, 2.0  # what is no difference: the larger of these points and deviations of the paper's


class Measured(NamedTuple):
    """What was measured in one place: mean and deviation over repeats (dividing by their number, as the paper does)."""

    auc: float
    auc_deviation: float
    seconds: float
    n_repeats: int


class Comparison(NamedTuple):
    """A place of the paper's tables, what was measured there, and what the paper prints."""

    cell: TableCell
    measured: Measured
    published: PublishedResult | None  # None: not in the paper

    @property
    def tolerance(self) -> float:
        """By how many points the two may differ."""
        deviation = None if self.published is None else self.published.auc_deviation
        return max(POINTS, DEVIATIONS * (deviation or 0.0))

    @property
    def published_auc(self) -> float:
        """The paper's figure; that of ours where it has none."""
        return self.measured.auc if self.published is None else self.published.auc

    @property
    def difference(self) -> float:
        """Ours less the paper's, in points; 0 where the paper has none."""
        return self.measured.auc - self.published_auc

    @property
    def differs(self) -> bool:
        """Whether the two differ by more than the tolerance."""
        return abs(self.difference) > self.tolerance


def compared(table: str, rows: Iterable[Row]) -> dict[TableCell, Comparison]:
    """Take the means over seeds and folds, and put the paper's figures beside them."""
    groups: dict[TableCell, list[Row]] = defaultdict(list)
    for row in rows:
        groups[TableCell(table, row["method"], row["set"], row["part"])].append(row)
    return {place: Comparison(place, mean_result(group), PUBLISHED.get(place)) for place, group in groups.items()}


def mean_result(rows: list[Row]) -> Measured:
    """Give mean and deviation of the rows of one place."""
    aucs = [row["auc"] for row in rows]
    return Measured(mean(aucs), pstdev(aucs), mean(row["seconds"] for row in rows), len(rows))

"""The section on differences from the paper, each with the check that explains it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby

from imondrian.experiments.comparison import DEVIATIONS, POINTS, Comparison, compare
from imondrian.experiments.difference_checks import CHECKS, checks_of
from imondrian.experiments.methods import BATCH, ONLINE
from imondrian.experiments.page.comparison_table import dataset_title
from imondrian.experiments.page.markdown import table
from imondrian.experiments.paper_results import TableCell
from imondrian.experiments.result_records import Record

_TITLES = {"batch": "Table II", "online": "Table III"}
_METHODS = {"batch": BATCH, "online": ONLINE}
_PART_NAMES = {"batch": "part", "online": "stage"}
_MIN_RESULTS = 10  # with fewer results than this, their range is widened by POINTS
Results = list[float]  # AUCs of a check for a table cell


def differences_section(records: Mapping[str, Record]) -> str:
    """Return the section that lists every difference larger than the tolerance with the check that explains it."""
    parts = [_differences(name, records) for name in _TITLES if name in records]
    return "\n\n".join(["## Differences", _INTRODUCTION, *parts]) if parts else ""


_INTRODUCTION = f"""\
A difference counts if it is larger than both {POINTS} points and {DEVIATIONS:.0f} of the paper's standard deviations
(Table III gives no standard deviations). For each difference, checks measure the effect of possible causes. A check
explains a figure of the paper if the figure lies between the lowest and the highest result of the check or, if the
check has fewer than {_MIN_RESULTS} results, within {POINTS} points of this range. Each method on each set has one
explanation: the check that explains the most figures or, if two checks explain equally many, the one whose results are
closer to the paper's figures."""


def _differences(name: str, records: Mapping[str, Record]) -> str:
    entries = [entry for entry in compare(name, records[name].rows).values() if entry.differs]
    if not entries:
        return f"**{_TITLES[name]}**: none."
    results = _results(records.get(f"{name}_checks"))
    groups = groupby(sorted(entries, key=_by_method_and_set), key=_by_method_and_set)
    lines = [line for _, group in groups for line in _lines(list(group), results)]
    keys = dict.fromkeys(key for entry in entries for key in checks_of(name, entry.cell.method))
    texts = "\n".join(f"- **{key}**: {CHECKS[key].text}" for key in keys)
    head = ["method", "set", _PART_NAMES[name], "explained by", "paper", "ours", "difference", "results of the check"]
    return f"""**{_TITLES[name]}**: {len(entries)} differences. The checks, with their
[measurements](reproduction/{name}_checks.csv):

{texts}

{table(head, lines, 4)}"""


def _by_method_and_set(entry: Comparison) -> tuple[int, str]:
    cell = entry.cell
    return list(_METHODS[cell.table]).index(cell.method), cell.set


def _results(record: Record | None) -> dict[tuple[str, TableCell], Results]:
    """Return the results of each check for each table cell."""
    results: dict[tuple[str, TableCell], Results] = defaultdict(list)
    for row in () if record is None else record.rows:
        cell = TableCell(CHECKS[row["check"]].table, row["method"], row["set"], row["part"])
        results[row["check"], cell].append(row["auc"])
    return results


def _lines(entries: Sequence[Comparison], results: Mapping[tuple[str, TableCell], Results]) -> list[list[str]]:
    """Return the lines for one method on one set, with the check that explains the most of its differences."""
    cell = entries[0].cell
    keys = checks_of(cell.table, cell.method)
    explained = {
        key: [explains(results.get((key, entry.cell), []), entry.published_auc) for entry in entries] for key in keys
    }
    best = max(keys, key=lambda key: (sum(explained[key]), -_total_distance(entries, key, results)))
    return [
        _line(entry, best if is_explained else "unexplained", results.get((best, entry.cell), []))
        for entry, is_explained in zip(entries, explained[best], strict=True)
    ]


def _total_distance(entries: Sequence[Comparison], key: str, results: Mapping[tuple[str, TableCell], Results]) -> float:
    """Return the total distance of the paper's figures from the results of a check."""
    return sum(_distance(results.get((key, entry.cell), []), entry.published_auc) for entry in entries)


def explains(results: Results, figure: float) -> bool:
    """Return True if a figure lies in the range of a check's results or, if these are few, within POINTS of it."""
    return _distance(results, figure) <= (POINTS if len(results) < _MIN_RESULTS else 0.0)


def _distance(results: Results, figure: float) -> float:
    """Return the distance of a figure from the range of the results."""
    return max(min(results) - figure, figure - max(results), 0.0) if results else float("inf")


def _line(entry: Comparison, cause: str, results: Results) -> list[str]:
    cell = entry.cell
    return [
        _METHODS[cell.table][cell.method].title,
        dataset_title(cell.set),
        cell.part,
        cause,
        f"{entry.published_auc:.2f}",
        f"{entry.measured.auc:.2f}",
        f"{entry.difference:+.2f}",
        _range_of(results),
    ]


def _range_of(results: Results) -> str:
    if len(results) < 2:
        return "".join(f"{result:.2f}" for result in results)
    return f"{min(results):.2f} to {max(results):.2f} ({len(results)} runs)"

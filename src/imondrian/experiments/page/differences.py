"""The section on differences from the paper: each with what it was found to come from."""

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
_MANY = 10  # results, whose range stands for itself
Results = list[float]  # of a check in a place


def differences_section(records: Mapping[str, Record]) -> str:
    """List every difference larger than the tolerance with the check that explains it."""
    parts = [_differences(name, records) for name in _TITLES if name in records]
    return "\n\n".join(["## Differences", _INTRODUCTION, *parts]) if parts else ""


_INTRODUCTION = f"""\
A difference counts if it is larger than both {POINTS} points and {DEVIATIONS:.0f} of the paper's standard deviations
(Table III has none). Where there is one, what else the paper's figure may be is run as well. A check explains a figure
that lies between the lowest and the highest of its results; if these are fewer than {_MANY}, also one that lies within
{POINTS} points of them. There is one explanation for a method on a set: the one that explains most, or of
these comes nearest."""


def _differences(name: str, records: Mapping[str, Record]) -> str:
    entries = [entry for entry in compare(name, records[name].rows).values() if entry.differs]
    if not entries:
        return f"**{_TITLES[name]}**: none."
    found = _results(records.get(f"{name}_checks"))
    groups = groupby(sorted(entries, key=_by_method_and_set), key=_by_method_and_set)
    lines = [line for _, group in groups for line in _lines(list(group), found)]
    keys = dict.fromkeys(key for entry in entries for key in checks_of(name, entry.cell.method))
    texts = "\n".join(f"- **{key}**: {CHECKS[key].text}" for key in keys)
    head = ["", "set", "part", "explained by", "paper", "ours", "difference", "results of the check"]
    return f"""**{_TITLES[name]}**: {len(entries)} differences. The checks, whose results are
[measured, too](reproduction/{name}_checks.csv):

{texts}

{table(head, lines, 4)}"""


def _by_method_and_set(entry: Comparison) -> tuple[int, str]:
    place = entry.cell
    return list(_METHODS[place.table]).index(place.method), place.set


def _results(record: Record | None) -> dict[tuple[str, TableCell], Results]:
    """Give the results of each check in each place."""
    found: dict[tuple[str, TableCell], Results] = defaultdict(list)
    for row in () if record is None else record.rows:
        place = TableCell(CHECKS[row["check"]].table, row["method"], row["set"], row["part"])
        found[row["check"], place].append(row["auc"])
    return found


def _lines(entries: Sequence[Comparison], found: Mapping[tuple[str, TableCell], Results]) -> list[list[str]]:
    """Write the differences of one method on one set, with the check that explains most of them."""
    place = entries[0].cell
    keys = checks_of(place.table, place.method)
    explained = {
        key: [explains(found.get((key, entry.cell), []), entry.published_auc) for entry in entries] for key in keys
    }
    best = max(keys, key=lambda key: (sum(explained[key]), -_miss(entries, key, found)))
    return [
        _line(entry, best if is_explained else "nothing yet", found.get((best, entry.cell), []))
        for entry, is_explained in zip(entries, explained[best], strict=True)
    ]


def _miss(entries: Sequence[Comparison], key: str, found: Mapping[tuple[str, TableCell], Results]) -> float:
    """Sum by how much the results of a check miss the paper's figures."""
    return sum(_distance(found.get((key, entry.cell), []), entry.published_auc) for entry in entries)


def explains(results: Results, figure: float) -> bool:
    """Tell whether a figure is one that a check gives."""
    return _distance(results, figure) <= (POINTS if len(results) < _MANY else 0.0)


def _distance(results: Results, figure: float) -> float:
    """Give how far a figure lies outside of the range of results."""
    return max(min(results) - figure, figure - max(results), 0.0) if results else float("inf")


def _line(entry: Comparison, cause: str, results: Results) -> list[str]:
    place = entry.cell
    return [
        _METHODS[place.table][place.method].title,
        dataset_title(place.set),
        place.part,
        cause,
        f"{entry.published_auc:.2f}",
        f"{entry.measured.auc:.2f}",
        f"{entry.difference:+.2f}",
        _range_of(results),
    ]


def _range_of(results: Results) -> str:
    if len(results) < 2:
        return "".join(f"{result:.2f}" for result in results)
    return f"{min(results):.2f} to {max(results):.2f} in {len(results)}"

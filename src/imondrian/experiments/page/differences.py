"""The section on differences from the paper: each with what it was found to come from."""

from collections import defaultdict
from collections.abc import Mapping

from imondrian.experiments.checks import CHECKS, checks_for
from imondrian.experiments.comparison import Comparison, compared
from imondrian.experiments.methods import BATCH, ONLINE
from imondrian.experiments.page.cells import title_of
from imondrian.experiments.page.markdown import table
from imondrian.experiments.published import Place
from imondrian.experiments.records import Record

_TITLES = {"batch": "Table II", "online": "Table III"}
_METHODS = {"batch": BATCH, "online": ONLINE}
Range = tuple[float, float, int]  # lowest, highest, and of how many


def differences_section(records: Mapping[str, Record]) -> str:
    """List every difference larger than the tolerance with the check that explains it."""
    parts = [_differences(name, records) for name in _TITLES if name in records]
    if not parts:
        return ""
    return "\n\n".join(["## Differences", _INTRODUCTION, *parts])


_INTRODUCTION = """\
A difference counts if it is larger than both 2.5 points and two of the paper's standard deviations (its Table III has
none). For each, what else the paper's figure may be was run as well; a check explains a figure if the figure lies
within the range of its results, or within 2.5 points of it. The figures of the checks are measured here, too
([batch](reproduction/batch_checks.csv), [online](reproduction/online_checks.csv))."""


def _differences(name: str, records: Mapping[str, Record]) -> str:
    entries = [entry for entry in compared(name, records[name].rows).values() if entry.differs]
    if not entries:
        return f"**{_TITLES[name]}**: none."
    ranges = _ranges(records.get(f"{name}_checks"))
    lines = [_line(entry, ranges) for entry in entries]
    used = list(dict.fromkeys(key for entry in entries for key in checks_for(name, entry.place.method)))
    texts = "\n".join(f"- **{key}**: {CHECKS[key].text}" for key in used)
    head = ["", "set", "part", "ours", "paper", "difference", "explained by", "its results"]
    return f"**{_TITLES[name]}**: {len(entries)} differences.\n\n{texts}\n\n{table(head, lines, 3)}"


def _ranges(record: Record | None) -> dict[tuple[str, Place], Range]:
    """Give the range of each check in each place."""
    values: dict[tuple[str, Place], list[float]] = defaultdict(list)
    for row in () if record is None else record.rows:
        place = Place(CHECKS[row["check"]].table, row["method"], row["set"], row["part"])
        values[row["check"], place].append(row["auc"])
    return {key: (min(aucs), max(aucs), len(aucs)) for key, aucs in values.items()}


def _line(entry: Comparison, ranges: Mapping[tuple[str, Place], Range]) -> list[str]:
    place, published = entry.place, entry.measured.auc - entry.difference
    tried = {key: ranges[key, place] for key in checks_for(place.table, place.method) if (key, place) in ranges}
    cause = next((key for key, found in tried.items() if explains(found, published)), None)
    results = ranges[cause, place] if cause else None
    return [
        _METHODS[place.table][place.method].title,
        title_of(place.set),
        place.part,
        f"{entry.measured.auc:.1f}",
        f"{published:.1f}",
        f"{entry.difference:+.1f}",
        cause or "nothing yet",
        _range_text(results),
    ]


def explains(found: Range, figure: float, tolerance: float = 2.5) -> bool:
    """Tell whether a figure lies within a range, or not far from it."""
    lowest, highest, _ = found
    return lowest - tolerance <= figure <= highest + tolerance


def _range_text(found: Range | None) -> str:
    if found is None:
        return ""
    lowest, highest, n = found
    return f"{lowest:.1f}" if n == 1 else f"{lowest:.1f} to {highest:.1f} in {n}"

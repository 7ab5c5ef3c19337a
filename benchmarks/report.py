"""What a run comes to: medians, ratios and targets, as plain data for JSON, and as tables to read."""

import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from itertools import groupby
from typing import Any, NamedTuple

from peers import PEERS, missing, present
from targets import TARGETS, Side, Target
from timing import Measurement


class Run(NamedTuple):
    """What was found: the measurements, and by workload why others have none."""

    effort: str  # with which it was done
    measurements: Sequence[Measurement]
    unmeasured: dict[str, str]


def summary(run: Run) -> dict[str, Any]:
    """Give all there is to say, as JSON can hold it."""
    medians = {Side(m.workload, m.contestant, m.threads): m.median for m in run.measurements}
    return {
        "run": run.effort,
        "machine": {"system": platform.platform(), "python": platform.python_version(), "processors": os.cpu_count()},
        "versions": {name: version(name) for name in ("imondrian", "numpy", "numba", *present(PEERS))},
        "missing": [f"peer {reason}" for reason in missing()],
        "unmeasured": run.unmeasured,
        "measurements": [m._asdict() | {"median": m.median} for m in run.measurements],
        "ratios": list(ratios(medians)),
        "targets": [judged(target, medians) for target in TARGETS if target.over.workload in workloads(medians)],
    }


def workloads(medians: Iterable[Side]) -> set[str]:
    """Name the workloads that have been measured."""
    return {side.workload for side in medians}


def ratios(medians: dict[Side, float]) -> Iterator[dict[str, Any]]:
    """Hold every other contestant against ours, in the same workload on as many threads."""
    for side, median in medians.items():
        ours = medians.get(side._replace(contestant="ours"))
        if side.contestant != "ours" and ours is not None:
            yield side._asdict() | {"ratio": median / ours}


def judged(target: Target, medians: dict[Side, float]) -> dict[str, Any]:
    """Give a target with what was measured, and the verdict."""
    sides = [side for side in (target.over, target.under) if side is not None]
    demand = f"{target.relation} {written(target.bound, target.unit)}"
    entry = {"name": target.name, "workload": target.over.workload, "target": demand, "source": target.source}
    if any(side not in medians for side in sides):
        return entry | {"measured": None, "verdict": "not measured"}
    measured = medians[target.over] / (1.0 if target.under is None else medians[target.under])
    is_met = measured >= target.bound if target.relation == ">=" else measured <= target.bound
    return entry | {
        "measured": written(measured, target.unit),
        "value": measured,
        "verdict": "ok" if is_met else "MISS",
    }


def lines(measurements: Iterable[Measurement]) -> Iterator[tuple[str, str, str, str]]:
    """Give workload, threads, our median, and the others' with what they are over ours."""
    for (workload, threads), found in groupby(measurements, key=lambda m: (m.workload, m.threads)):
        by_name = {m.contestant: m for m in found}
        ours = by_name.pop("ours", None)
        others = [f"{name} {written(m.median, m.unit)}{over(m, ours)}" for name, m in by_name.items()]
        yield workload, str(threads), "" if ours is None else written(ours.median, ours.unit), ", ".join(others)


def over(other: Measurement, ours: Measurement | None) -> str:
    """Write the ratio of another median to ours."""
    return "" if ours is None else f" ({written(other.median / ours.median, 'x')})"


def written(value: float, unit: str) -> str:
    """Write a number with three digits, and its unit."""
    number = f"{value:#.3g}".rstrip(".") if value < 1_000 else f"{value:.0f}"
    return f"x {number}" if unit == "x" else f"{number} {unit}"


def tables(run: Run) -> str:
    """Write the table of ratios, and that of targets, in Markdown."""
    found = summary(run)
    measured = table(("workload", "threads", "ours", "others (over ours)"), list(lines(run.measurements)))
    goals = [(t["verdict"], t["name"], t["measured"] or "-", t["target"], t["source"]) for t in found["targets"]]
    judgement = table(("verdict", "what", "measured", "target", "from"), goals)
    reasons = [*found["missing"], *(f"{name}: not measured, {reason}" for name, reason in run.unmeasured.items())]
    return "\n\n".join([f"A run with effort: {run.effort}.", measured, judgement, "\n".join(reasons)]).rstrip()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table whose columns are as wide as their cells."""
    widths = [max(len(row[j]) for row in (head, *rows)) for j in range(len(head))]
    bar = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (head, bar, *rows)
    )

"""Results of a run: medians, ratios and targets, as JSON data and as Markdown tables."""

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
    """The measurements of a run, and the reason for each workload that was not measured."""

    effort: str
    measurements: Sequence[Measurement]
    unmeasured: dict[str, str]


def summary(run: Run) -> dict[str, Any]:
    """Return everything that is written to the JSON file."""
    medians = {Side(m.workload, m.contestant, m.threads): m.median for m in run.measurements}
    return {
        "run": run.effort,
        "machine": {"system": platform.platform(), "python": platform.python_version(), "processors": os.cpu_count()},
        "versions": {name: version(name) for name in ("imondrian", "numpy", "numba", *present(PEERS))},
        "missing": [f"peer {reason}" for reason in missing()],
        "unmeasured": run.unmeasured,
        "measurements": [m._asdict() | {"median": m.median} for m in run.measurements],
        "ratios": list(ratios(medians)),
        "targets": [target_result(target, medians) for target in TARGETS if target.over.workload in workloads(medians)],
    }


def workloads(medians: Iterable[Side]) -> set[str]:
    """Return the names of the measured workloads."""
    return {side.workload for side in medians}


def ratios(medians: dict[Side, float]) -> Iterator[dict[str, Any]]:
    """Yield the ratio of each peer's median to ours, in the same workload and with the same number of threads."""
    for side, median in medians.items():
        ours = medians.get(side._replace(contestant="ours"))
        if side.contestant != "ours" and ours is not None:
            yield side._asdict() | {"ratio": median / ours}


def target_result(target: Target, medians: dict[Side, float]) -> dict[str, Any]:
    """Return a target with the measured value and the verdict."""
    sides = [side for side in (target.over, target.under) if side is not None]
    requirement = f"{target.relation} {with_unit(target.bound, target.unit)}"
    entry = {"name": target.name, "workload": target.over.workload, "target": requirement, "source": target.source}
    if any(side not in medians for side in sides):
        return entry | {"measured": None, "verdict": "not measured"}
    measured = medians[target.over] / (1.0 if target.under is None else medians[target.under])
    is_met = measured >= target.bound if target.relation == ">=" else measured <= target.bound
    return entry | {
        "measured": with_unit(measured, target.unit),
        "value": measured,
        "verdict": "ok" if is_met else "MISS",
    }


def result_rows(measurements: Iterable[Measurement]) -> Iterator[tuple[str, str, str, str]]:
    """Yield workload, threads, our median, and the medians of the peers with their ratios to ours."""
    for (workload, threads), found in groupby(measurements, key=lambda m: (m.workload, m.threads)):
        by_name = {m.contestant: m for m in found}
        ours = by_name.pop("ours", None)
        peers = [f"{name} {with_unit(m.median, m.unit)}{ratio_text(m, ours)}" for name, m in by_name.items()]
        yield workload, str(threads), "" if ours is None else with_unit(ours.median, ours.unit), ", ".join(peers)


def ratio_text(peer: Measurement, ours: Measurement | None) -> str:
    """Return the ratio of a peer's median to ours as text."""
    return "" if ours is None else f" ({with_unit(peer.median / ours.median, 'x')})"


def with_unit(value: float, unit: str) -> str:
    """Return a number with three digits and its unit as text."""
    number = f"{value:#.3g}".rstrip(".") if value < 1_000 else f"{value:.0f}"
    return f"x {number}" if unit == "x" else f"{number} {unit}"


def tables(run: Run) -> str:
    """Return the table of workloads and the table of targets in Markdown."""
    found = summary(run)
    measured = table(("workload", "threads", "ours", "peers (ratio to ours)"), list(result_rows(run.measurements)))
    goals = [(t["verdict"], t["name"], t["measured"] or "-", t["target"], t["source"]) for t in found["targets"]]
    targets = table(("result", "workload", "measured", "target", "source"), goals)
    reasons = [*found["missing"], *(f"{name}: not measured, {reason}" for name, reason in run.unmeasured.items())]
    return "\n\n".join([f"Effort: {run.effort}.", measured, targets, "\n".join(reasons)]).rstrip()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns."""
    widths = [max(len(row[j]) for row in (head, *rows)) for j in range(len(head))]
    bar = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (head, bar, *rows)
    )

"""Measure imondrian beside its peers: medians of alternating repeats, printed as ratios with their targets.

A workload is a group (fit, score, ...) or a name that --list shows; the default is all workloads. The tables are
printed. JSON and a plot of the scaling are written to the results folder: latest.json and scaling.png if everything was
run, otherwise quick.json and scaling-quick.png (with --quick), or chosen.json and scaling-chosen.png.
"""

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contests import Contest, Effort
    from report import Run
    from timing import Measurement

HERE = Path(__file__).parent
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")
FAILED = "failed"


def main() -> None:
    """Measure the chosen workloads, print the tables, and write the files."""
    parser = new_parser()
    arguments = parser.parse_args()
    os.environ.update(dict.fromkeys(THREADS, "1"))  # before libraries read them; two threads are requested explicitly
    from contests import FULL, QUICK
    from suites import SUITES

    if arguments.list:
        print(list_of(SUITES))
        return
    try:
        contests = selected_contests(SUITES, arguments.workload)
    except KeyError as error:
        parser.error(f"there is no workload {error}; choose from {', '.join(SUITES)}, or a name that --list shows")
    run = measure(contests, QUICK if arguments.quick else FULL)
    name = "quick" if arguments.quick else "chosen" if arguments.workload else "latest"
    write(run, arguments.results, name)
    sys.exit(int(any(reason.startswith(FAILED) for reason in run.unmeasured.values())))


def new_parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="*", help="a group or a workload; default: all")
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats, only to check that it runs")
    parser.add_argument("--list", action="store_true", help="list the groups and their workloads, and exit")
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="FOLDER", help="output folder")
    return parser


def list_of(suites: dict[str, list["Contest"]]) -> str:
    """Return the groups and their workloads as text."""
    groups = {group: [name for contest in contests for name in contest.names] for group, contests in suites.items()}
    return "\n".join("\n    ".join([group, *names]) for group, names in groups.items())


def selected_contests(suites: dict[str, list["Contest"]], names: Sequence[str]) -> list["Contest"]:
    """Return the contests of the named groups and workloads, each once; raise KeyError for an unknown name."""
    by_name = {name: [contest] for contests in suites.values() for contest in contests for name in contest.names}
    found = [contest for name in names or suites for contest in (by_name | suites)[name]]
    return list({contest.names: contest for contest in found}.values())


def measure(contests: Sequence["Contest"], effort: "Effort") -> "Run":
    """Measure the contests one by one and print each result; one that fails does not end the run."""
    from report import Run, result_rows

    measurements: list[Measurement] = []
    unmeasured: dict[str, str] = {}
    start = time.perf_counter()
    for contest in contests:
        found, reason = measure_contest(contest, effort)
        clock = f"{time.perf_counter() - start:5.0f} s"
        for workload, threads, ours, peers in result_rows(found):
            text = "; ".join(filter(None, [ours and f"ours {ours}", peers]))
            print(f"{clock}  {workload} [threads: {threads}]: {text}", flush=True)
        for name in contest.names if reason else ():
            print(f"{clock}  {name}: not measured, {reason}", flush=True)
            unmeasured[name] = reason
        measurements += found
    return Run(effort.name, measurements, unmeasured)


def measure_contest(contest: "Contest", effort: "Effort") -> tuple[list["Measurement"], str]:
    """Return the measurements, and the reason if there are none."""
    reason = contest.reason_to_skip()
    if reason is not None:
        return [], reason
    try:
        return list(contest.measure(effort)), ""
    except Exception as error:  # noqa: BLE001 (a peer may raise anything, which must not end a run of half an hour)
        traceback.print_exc()
        return [], f"{FAILED} ({type(error).__name__}: {error})"


def write(run: "Run", folder: Path, name: str) -> None:
    """Print the tables, and write the JSON file and the plot."""
    from report import summary, tables

    print(f"\n{tables(run)}\n")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(summary(run), indent=1))
    print(f"written to {path}")
    try:
        from scaling import draw
    except ImportError as error:
        print(f"no plot: {error}")
        return
    plot = folder / ("scaling.png" if name == "latest" else f"scaling-{name}.png")
    draw(summary(run), plot)
    print(f"plot written to {plot}")


if __name__ == "__main__":
    main()

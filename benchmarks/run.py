"""Measure imondrian beside its peers in one run: medians of interleaved repeats, as ratios, with their targets.

A workload is a group (fit, score, ...) or one of those that --list shows; by default all are run. Tables are printed;
JSON and a picture of the scaling are written to the folder of results: as latest.json and scaling.png if all was run,
otherwise under names that say so.
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
    """Measure what is asked for, print it, and write it."""
    parser = new_parser()
    arguments = parser.parse_args()
    os.environ.update(dict.fromkeys(THREADS, "1"))  # read when libraries are loaded; who is to use two is told so
    from contests import FULL, QUICK
    from suites import SUITES

    if arguments.list:
        print(listed(SUITES))
        return
    try:
        contests = chosen(SUITES, arguments.workload)
    except KeyError as error:
        parser.error(f"there is no workload {error}; known are {', '.join(SUITES)}, and those that --list shows")
    run = measured(contests, QUICK if arguments.quick else FULL)
    name = "quick" if arguments.quick else "chosen" if arguments.workload else "latest"
    write(run, arguments.results, name)
    sys.exit(int(any(reason.startswith(FAILED) for reason in run.unmeasured.values())))


def new_parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="*", help="a group or a workload; all of them if none is named")
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats: does it run at all?")
    parser.add_argument("--list", action="store_true", help="show the groups and their workloads, and stop")
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="FOLDER", help="where to write")
    return parser


def listed(suites: dict[str, list["Contest"]]) -> str:
    """Show the groups and their workloads."""
    groups = {group: [name for contest in contests for name in contest.names] for group, contests in suites.items()}
    return "\n".join("\n    ".join([group, *names]) for group, names in groups.items())


def chosen(suites: dict[str, list["Contest"]], names: Sequence[str]) -> list["Contest"]:
    """Find the contests of groups and workloads, each once; one that is not there is a KeyError."""
    by_name = {name: [contest] for contests in suites.values() for contest in contests for name in contest.names}
    found = [contest for name in names or suites for contest in (by_name | suites)[name]]
    return list({contest.names: contest for contest in found}.values())


def measured(contests: Sequence["Contest"], effort: "Effort") -> "Run":
    """Measure one contest after the other, and tell of each when it is done; one that fails does not end the run."""
    from report import Run, lines

    measurements: list[Measurement] = []
    unmeasured: dict[str, str] = {}
    start = time.perf_counter()
    for contest in contests:
        found, reason = outcome(contest, effort)
        clock = f"{time.perf_counter() - start:5.0f} s"
        for workload, threads, ours, others in lines(found):
            text = "; ".join(filter(None, [ours and f"ours {ours}", others]))
            print(f"{clock}  {workload} [threads: {threads}]: {text}", flush=True)
        for name in contest.names if reason else ():
            print(f"{clock}  {name}: not measured, {reason}", flush=True)
            unmeasured[name] = reason
        measurements += found
    return Run(effort.name, measurements, unmeasured)


def outcome(contest: "Contest", effort: "Effort") -> tuple[list["Measurement"], str]:
    """Give what was measured, or why nothing was."""
    hindrance = contest.hindrance()
    if hindrance is not None:
        return [], hindrance
    try:
        return list(contest.measure(effort)), ""
    except Exception as error:  # noqa: BLE001 (a peer may raise anything, and half an hour of measuring is at stake)
        traceback.print_exc()
        return [], f"{FAILED} ({type(error).__name__}: {error})"


def write(run: "Run", folder: Path, name: str) -> None:
    """Print the tables, and write JSON and the picture."""
    from report import summary, tables

    print(f"\n{tables(run)}\n")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(summary(run), indent=1))
    print(f"written to {path}")
    try:
        from scaling import draw
    except ImportError as error:
        print(f"no picture: {error}")
        return
    picture = folder / ("scaling.png" if name == "latest" else f"scaling-{name}.png")
    draw(summary(run), picture)
    print(f"drawn in {picture}")


if __name__ == "__main__":
    main()

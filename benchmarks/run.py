"""Measure imondrian beside its peers in the same run, and print ratios with their targets.

Usage: python benchmarks/run.py [workload ...], by default all of them.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import sklearn
from krcf import RandomCutForest
from sklearn.ensemble import IsolationForest

import imondrian
from imondrian import MondrianForest, StreamDetector
from imondrian.engine.threads import run
from timing import interleaved_medians
from workloads import SAMPLES, TREES, crowd

HERE = Path(__file__).parent


class Result(NamedTuple):
    """One line of the table: what was measured, and what it should be."""

    workload: str
    measured: str
    value: float
    target: str
    met: bool


def main() -> None:
    """Run every workload, print the table, and write it as JSON beside this file."""
    print(f"imondrian {imondrian.__version__}, scikit-learn {sklearn.__version__}, numba {numba.__version__}")
    print(f"numpy {np.__version__}, Python {platform.python_version()}, {os.cpu_count()} processors\n")
    results = []
    for name in sys.argv[1:] or WORKLOADS:
        for result in WORKLOADS[name]():
            results.append(result)
            print(f"{'ok  ' if result.met else 'MISS'}  {result.workload:44s} {result.measured:64s} {result.target}")
    target = HERE / "results" / "latest.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps([result._asdict() for result in results], indent=1))
    print(f"\nwritten to {target}")


def ratio(workload: str, seconds: dict[str, float], ours: str, theirs: str, target: float) -> Result:
    """Compare two contestants."""
    value = seconds[theirs] / seconds[ours]
    measured = f"{ours} {seconds[ours]:.4f} s, {theirs} {seconds[theirs]:.4f} s: x {value:.1f}"
    return Result(workload, measured, value, f">= x {target:g}", value >= target)


def at_most(workload: str, value: float, unit: str, target: float) -> Result:
    """Compare a figure with its limit."""
    return Result(workload, f"{value:.2f} {unit}", value, f"<= {target:g} {unit}", value <= target)


def fit() -> Iterator[Result]:
    """Build 100 trees of 256 samples."""
    for n_rows in (10_000, 1_000_000):
        X = crowd(n_rows, 10)
        seconds = interleaved_medians(
            {
                "ours": lambda X=X: MondrianForest(TREES, SAMPLES).build(X),
                "scikit-learn": lambda X=X: IsolationForest(n_estimators=TREES, max_samples=SAMPLES).fit(X),
            },
            repeats=7,
        )
        yield ratio(f"fit 100 x 256, n = {n_rows}, d = 10", seconds, "ours", "scikit-learn", 10.0)


def score() -> Iterator[Result]:
    """Score 100,000 rows on one thread."""
    X = crowd(100_000, 10)
    forest = MondrianForest(TREES, SAMPLES).build(X)
    peer = IsolationForest(n_estimators=TREES, max_samples=SAMPLES, n_jobs=1).fit(X)
    seconds = interleaved_medians(
        {"ours": lambda: forest.score(X), "scikit-learn": lambda: peer.score_samples(X)}, repeats=25
    )
    yield ratio("score 100000 rows, 100 x 256, d = 10", seconds, "ours", "scikit-learn", 1.7)


def two_threads() -> Iterator[Result]:
    """Compare two threads with one."""
    arithmetic = {"two threads": lambda: spin_on(2), "one": lambda: spin_on(1)}
    yield ratio("two threads: pure arithmetic", interleaved_medians(arithmetic, repeats=9), "two threads", "one", 1.7)
    X, small = crowd(100_000, 10), crowd(2_000, 10)
    forests = {n: MondrianForest(TREES, SAMPLES, n_jobs=n).build(X) for n in (1, 2)}
    works = {
        "fit 100 x 2000, d = 10": lambda n: MondrianForest(TREES, n_jobs=n).build(small),
        "score 100000 rows, 100 x 256, d = 10": lambda n: forests[n].score(X),
        "extend 2000 points, 100 trees, d = 10": lambda n: MondrianForest(TREES, n_jobs=n).extend(small),
    }
    for name, work in works.items():
        contestants = {"two threads": lambda work=work: work(2), "one": lambda work=work: work(1)}
        yield ratio(f"two threads: {name}", interleaved_medians(contestants, repeats=25), "two threads", "one", 1.7)


def spin_on(n_threads: int) -> None:
    """Do arithmetic that needs no memory: how well this machine runs two threads at all."""
    run([lambda: spin(40_000_000 // n_threads)] * n_threads, n_threads)


@numba.njit(nogil=True)
def spin(n: int) -> int:
    """Multiply and add n times."""
    word = np.uint64(1)
    for i in range(n):
        word = (word ^ (word >> np.uint64(29))) * np.uint64(6364136223846793005) + np.uint64(i)
    return word


def streams() -> Iterator[Result]:
    """Score and learn points of a stream, 100 trees of 256 points, beside the Rust random cut forest."""
    X = crowd(20_000, 10)
    peer = RandomCutForest(
        {"dimensions": 10, "shingle_size": 1, "num_trees": TREES, "sample_size": SAMPLES, "output_after": SAMPLES}
    )
    for x in X[:6_000]:
        peer.update(x)
    for preset, one_by_one, many in (("paper", 5.0, 10.0), ("practice", 2.5, 5.0)):
        detectors = {n: StreamDetector(10, preset=preset, n_jobs=n) for n in (1, 2)}
        for detector in detectors.values():
            detector.process_many(X[:6_000])
            detector.process(X[0])
        rows = Rows(X[6_000:])
        contestants = {
            "process": lambda detectors=detectors, rows=rows: [detectors[1].process(x) for x in rows.next(500)],
            "many": lambda detectors=detectors, rows=rows: detectors[1].process_many(rows.next(2_000)),
            "many, 2 threads": lambda detectors=detectors, rows=rows: detectors[2].process_many(rows.next(2_000)),
            "krcf": lambda rows=rows: [(peer.score(x), peer.update(x)) for x in rows.next(500)],
        }
        seconds = interleaved_medians(contestants, repeats=9)
        seconds = {name: value / (2_000 if "many" in name else 500) * 1e6 for name, value in seconds.items()}
        for name, target in (("process", one_by_one), ("many", many), ("many, 2 threads", many)):
            value = seconds["krcf"] / seconds[name]
            measured = f"{name} {seconds[name]:.1f} us, krcf {seconds['krcf']:.1f} us a point: x {value:.1f}"
            yield Result(f"stream, {preset}: {name}", measured, value, f">= x {target:g}", value >= target)


class Rows:
    """The rows of a table, over and over."""

    def __init__(self, X: np.ndarray) -> None:
        self.X = X
        self.place = 0

    def next(self, n: int) -> np.ndarray:
        """Give the next n rows."""
        if self.place + n > len(self.X):
            self.place = 0
        self.place += n
        return self.X[self.place - n : self.place]


def first_use() -> Iterator[Result]:
    """Compile every kernel, in a new process with an empty cache."""
    seconds = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as cache:
            seconds.append(in_new_process("first_use", NUMBA_CACHE_DIR=cache)["s"])
    yield at_most("first use: compile every kernel", statistics.median(seconds), "s", 20)


def start_up() -> Iterator[Result]:
    """Import and score a first row, in a new process with kernels compiled before."""
    in_new_process("start_up")
    seconds = sorted(in_new_process("start_up")["s"] for _ in range(5))[2]
    yield at_most("start-up: import, build, score one row", seconds, "s", 1.5)


def online_mode() -> Iterator[Result]:
    """Extend from 19,000 to 95,156 points, every point in each of 100 trees, on one thread."""
    found = in_new_process("online_mode")
    yield at_most("online, 95156 x 3, 100 trees: extend", found["extend"], "s", 60)
    yield at_most("online, 95156 x 3, 100 trees: peak memory", found["gigabytes"], "GB", 1.5)
    yield at_most("online: time per point at 95,000 over 1,000", found["growth"], "times", 2.0)


def in_new_process(name: str, **environment: str) -> dict[str, float]:
    """Run a function of `processes.py` in a process of its own, and give what it found."""
    command = [sys.executable, str(HERE / "processes.py"), name]
    environment = {**os.environ, **environment}
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    found: dict[str, float] = json.loads(finished.stdout)
    return found


WORKLOADS = {
    measure.__name__: measure for measure in (first_use, start_up, fit, score, two_threads, online_mode, streams)
}


if __name__ == "__main__":
    main()

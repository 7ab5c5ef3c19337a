"""Measurements that need their own process: compilation, start-up, peak memory, growth of large forests."""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

START = time.perf_counter()
ONLINE_TREES = 20
DATA_ALONE = "data alone"


def in_new_process(name: str, *arguments: Any, **environment: str) -> dict[str, Any]:
    """Run a function of this module in a new process, and return its result."""
    command = [sys.executable, __file__, name, *map(json.dumps, arguments)]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **environment})
    found: dict[str, Any] = json.loads(finished.stdout)
    return found


def first_use() -> dict[str, float]:
    """Import the library and use everything once, first the forest, then the stream detector; return the seconds."""
    from imondrian import MondrianForest, StreamDetector

    rows = [[float(i % 7), float(i % 11)] for i in range(100)]
    for scale in (None, "std"):
        forest = MondrianForest(n_trees=2, max_samples=16, scale=scale).build(rows)
        forest.extend(rows).extend_one(rows[0]).forget(rows[:3])
        for kind in ("depth", "expected", "size"):
            forest.score(rows, kind)
            forest.score_one(rows[0], kind)
            forest.explain(rows, kind)
        forest.expected_values(rows)
    forest_seconds = time.perf_counter() - START
    for preset in ("paper", "practice"):
        detector = StreamDetector(2, window=32, max_samples=8, n_trees=2, preset=preset, threshold="kmeans")
        detector.process_many(rows)
        detector.process(rows[0])
    return {"forest": forest_seconds, "all": time.perf_counter() - START}


def start_up(contestant: str) -> dict[str, float]:
    """Import a library, fit a small forest, and score one row; return the seconds."""
    import numpy as np

    from peers import fitted, scoring

    X = np.array([[float(i % 7), float(i % 11)] for i in range(1000)])
    scoring(contestant, fitted(contestant, X))(X[3:4])
    return {"s": time.perf_counter() - START}


def batch_memory(contestant: str, n_rows: int) -> dict[str, float]:
    """Fit and score, unless the contestant is DATA_ALONE; return the peak memory."""
    from peers import FORESTS, fitted, scoring
    from workloads import normal_points

    X = normal_points(n_rows, 10)
    if contestant in FORESTS:
        scoring(contestant, fitted(contestant, X))(X)
    return {"MB": peak_megabytes()}


def stream_memory(contestant: str, n_points: int) -> dict[str, float]:
    """Score and learn a stream; return the peak memory."""
    from stream_peers import N_WARM, STREAMS
    from workloads import normal_points

    stream = STREAMS[contestant](normal_points(N_WARM + n_points, 10))
    for row in stream.rows:
        stream.step(row)
    return {"MB": peak_megabytes()}


def fleet_memory(contestant: str, n_keys: int) -> dict[str, float]:
    """Start keys and show them rows until their windows are full; return the memory per key."""
    from fleet import bytes_per_key

    return {"KB": bytes_per_key(contestant, n_keys) / 1024}


def online_mode(n_rows: int, n_first: int) -> dict[str, float]:
    """Extend a forest in which each tree holds every point; return the seconds and the peak memory."""
    from imondrian import MondrianForest
    from workloads import TREES, smtp_like_points

    points = smtp_like_points()[:n_rows]
    warm_up(points)
    forest = MondrianForest(TREES).build(points[:n_first])
    start = time.perf_counter()
    forest.extend(points[n_first:])
    return {"s": time.perf_counter() - start, "GB": peak_megabytes() / 1e3}


def stages(points: str, divisor: int) -> dict[str, float]:
    """Follow the paper: build, then extend stage by stage, and score all points again after each stage."""
    from imondrian import MondrianForest
    from workloads import TREES

    parts = [part[: len(part) // divisor] for part in PARTS[points]()]
    warm_up(parts[0])
    start = time.perf_counter()
    forest = MondrianForest(TREES)
    for number, part in enumerate(parts):
        (forest.extend if number else forest.build)(part)
        forest.rescore()
    return {"s": time.perf_counter() - start}


def synthetic_parts() -> list[Any]:
    """Divide points like those of SMTP into five parts."""
    import numpy as np

    from workloads import smtp_like_points

    return np.array_split(smtp_like_points(), 5)


def smtp_parts() -> list[Any]:
    """Divide SMTP as the paper does."""
    from imondrian.datasets import load
    from imondrian.experiments.splits import published_stages

    data = load("smtp", download=False)
    return [data.X[stage] for stage in published_stages(data)]


PARTS = {"synthetic": synthetic_parts, "smtp": smtp_parts}


def growth(kind: str, n_features: int, zones: dict[str, list[int]], block: int, ends: list[int]) -> dict[str, Any]:
    """Extend forests block by block; return the microseconds per point in each zone, and the peak memory.

    Every tree holds all points. A zone is a range of the number of points held.
    """
    from imondrian import MondrianForest
    from workloads import normal_points, smtp_like_points

    points = smtp_like_points() if kind == "smtp_like" else normal_points(max(ends), n_features)
    warm_up(points)
    found: dict[str, list[float]] = {zone: [] for zone in zones}
    for seed, end in enumerate(ends):
        forest = MondrianForest(ONLINE_TREES, seed=seed)
        for first in range(0, end, block):
            start = time.perf_counter()
            forest.extend(points[first : first + block])
            microseconds = (time.perf_counter() - start) / block * 1e6
            for zone in (zone for zone, (begin, after) in zones.items() if begin <= first < after):
                found[zone].append(microseconds)
    return {"us": found, "GB": peak_megabytes() / 1e3}


def warm_up(points: Any) -> None:
    """Load the kernels."""
    from imondrian import MondrianForest

    MondrianForest(n_trees=1).build(points[:9]).extend(points[9:18]).rescore()


def peak_megabytes() -> float:
    """Return the peak memory of this process in MB.

    The status file is preferred, because getrusage includes the parent's memory if the process was started by vfork, as
    by the module subprocess.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


if __name__ == "__main__":
    sys.stdout.write(json.dumps(globals()[sys.argv[1]](*map(json.loads, sys.argv[2:]))))

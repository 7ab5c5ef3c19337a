"""Measurements that need a process of their own: compiling, starting, and peak memory."""

import json
import resource
import statistics
import sys
import time

START = time.perf_counter()


def first_use() -> dict[str, float]:
    """Use everything once, import included."""
    from imondrian import MondrianForest

    rows = [[float(i % 7), float(i % 11)] for i in range(100)]
    for scale in (None, "std"):
        forest = MondrianForest(n_trees=2, max_samples=16, scale=scale).build(rows)
        forest.extend(rows).extend_one(rows[0]).forget(rows[:3])
        for kind in ("depth", "expected", "size"):
            forest.score(rows, kind)
            forest.score_one(rows[0], kind)
            forest.explain(rows, kind)
    return {"s": time.perf_counter() - START}


def start_up() -> dict[str, float]:
    """Import, build a small forest, score one row."""
    from imondrian import MondrianForest

    forest = MondrianForest(max_samples=256).build([[float(i % 7), float(i % 11)] for i in range(1000)])
    forest.score_one([3.0, 3.0])
    return {"s": time.perf_counter() - START}


def online_mode() -> dict[str, float]:
    """Extend a forest whose trees hold every point; the growth is measured on 20 trees, in blocks of 1,000 points."""
    from imondrian import MondrianForest
    from workloads import ONLINE_START, TREES, online

    points = online()
    MondrianForest(n_trees=1).build(points[:9]).extend(points[9:18])  # load the kernels
    forest = MondrianForest(TREES).build(points[:ONLINE_START])
    start = time.perf_counter()
    forest.extend(points[ONLINE_START:])
    seconds = time.perf_counter() - start
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    del forest
    early, late = [], []
    for seed in range(3):
        growing = MondrianForest(n_trees=20, seed=seed)
        for first in range(0, 95_000, 1_000):
            start = time.perf_counter()
            growing.extend(points[first : first + 1_000])
            if first in (1_000, 2_000, 3_000):
                early.append(time.perf_counter() - start)
            elif first >= 90_000:
                late.append(time.perf_counter() - start)
    growth = statistics.median(late) / statistics.median(early)
    return {"extend": seconds, "gigabytes": gigabytes, "growth": growth}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(globals()[sys.argv[1]]()))

"""A long stream: memory must not grow, and every tree must be valid at the end.

Usage: python benchmarks/soak.py [n_points], by default 2,000,000 points of 10 features through `process_many`, with a
window of 2,048 and 256 samples. Prints the resident memory on the way, then the result; exits with 1 on failure.
"""

import resource
import sys
import time
from pathlib import Path

import numpy as np

from imondrian import StreamDetector
from imondrian.engine.invariants import broken_invariants
from imondrian.forest.samplers import Window
from imondrian.forest.samplers.window import selection_of

N_FEATURES, WINDOW, SAMPLES, BATCH = 10, 2048, 256, 10_000
N_SETTLED = 100_000  # points after which memory must not grow
MAX_GROWTH = 5.0  # MB


def main() -> None:
    """Run the stream, and check memory and trees."""
    n_points = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    detector = StreamDetector(N_FEATURES, window=WINDOW, max_samples=SAMPLES, threshold="kmeans", seed=1)
    n_bytes = detector.n_bytes
    rng, settled, start = np.random.default_rng(0), float("nan"), time.perf_counter()
    for done in range(BATCH, n_points + 1, BATCH):
        detector.process_many(batch(rng, done / n_points))
        if done == N_SETTLED:
            settled = resident_megabytes()
        if done % N_SETTLED == 0:
            speed = done / (time.perf_counter() - start)
            print(f"{done:9d} points  {resident_megabytes():7.1f} MB resident  {speed:7.0f} points/s", flush=True)
    growth = resident_megabytes() - settled
    problems = problems_of(detector)
    print(f"memory grew by {growth:.2f} MB after the first {N_SETTLED} points (limit {MAX_GROWTH})")
    print(f"state: {detector.n_bytes} bytes, {n_bytes} at the start; {detector.n_drifts} drifts reported")
    print(f"invalid trees: {problems or 'none'}")
    sys.exit(int(growth > MAX_GROWTH or bool(problems) or detector.n_bytes != n_bytes))


def batch(rng: np.random.Generator, progress: float) -> np.ndarray:
    """Return points whose mean and spread drift; every 200th is an outlier, every 20th a copy."""
    points = rng.normal(np.sin(7.0 * progress), 1.0 + progress, size=(BATCH, N_FEATURES))
    points[::200] *= 8.0
    points[1::20] = points[::20]
    return points


def problems_of(detector: StreamDetector) -> list[str]:
    """Return the violated invariants of the forest."""
    trees, arrays = detector.forest.state()
    window = Window(WINDOW, selection_of(WINDOW, SAMPLES))
    window.restore(arrays)
    of_trees = [text for t in range(trees.heads.size) for text in broken_invariants(trees, t, window.tree_check())]
    return [*window.problems(), *of_trees]


def resident_megabytes() -> float:
    """Return the resident memory of this process, or its peak where the system does not report it."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


if __name__ == "__main__":
    main()

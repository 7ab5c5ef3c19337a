"""How times are taken: warmed up, interleaved, medians; as ratios within one run."""

import statistics
import time
from collections.abc import Callable


def interleaved_medians(contestants: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Give the median seconds of each contestant; all are run once to warm up, then in turns."""
    for run in contestants.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}

"""A fleet of many keys: rows a second, memory per key, and the time to bring a key back from the store.

Usage: python benchmarks/fleet.py [--keys 10000] [--distinct 10000] [--blocks 5] [--stored 1000] [--peer]

Every key has one feature and the default sizes. The first `distinct` keys are shown 256 random rows each, so that their
windows are full; the others start as copies of them, which saves time and takes the same memory. Then blocks of 100,000
rows in random order are timed, alternately on one and on two threads. Rates are given by elapsed time and by processor
time: on a busy machine only the second is meaningful. With --peer, krcf with one forest per key is measured instead.
"""

import argparse
import gc
import resource
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

WINDOW, SAMPLES, TREES, BLOCK = 256, 64, 24, 100_000
SPARE = 1.2e9  # bytes of memory that are left for other processes


class Rates(NamedTuple):
    """Rows a second in each block."""

    elapsed: list[float]
    processor: list[float]

    def __str__(self) -> str:
        return (
            f"{np.median(self.elapsed):,.0f} rows/s elapsed, {np.median(self.processor):,.0f} rows/s of processor time"
        )


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--distinct", type=int, default=10_000, help="keys that are shown their own rows")
    parser.add_argument("--blocks", type=int, default=5, help="blocks of 100,000 rows that are timed")
    parser.add_argument("--stored", type=int, default=1_000, help="keys that move to a store and come back")
    parser.add_argument("--peer", action="store_true", help="measure krcf with one forest per key instead")
    options = parser.parse_args()
    if options.peer:
        measure_peer(options.keys, options.blocks)
        return
    warm_fleet(10, 10)  # so that the memory of the library is not counted
    before = resident_bytes()
    fleet = warm_fleet(options.keys, min(options.distinct, options.keys))
    gc.collect()
    n_keys = len(fleet)
    per_key = (resident_bytes() - before) / n_keys
    print(f"{n_keys:,} keys: {fleet.bytes_per_key:,} bytes a key by calculation, {per_key:,.0f} measured")
    for n_jobs, rates in block_rates(fleet, n_keys, options.blocks, (1, 2)).items():
        print(f"blocks of {BLOCK:,} rows, threads: {n_jobs}, {rates}", flush=True)
    del fleet
    gc.collect()
    seconds = return_seconds(options.stored)
    median, late = np.median(seconds) * 1e3, np.quantile(seconds, 0.99) * 1e3
    print(f"back from the store, {options.stored:,} keys: median {median:.2f} ms, 99 % {late:.2f} ms")


def warm_fleet(n_keys: int, n_distinct: int, **settings: Any) -> Any:
    """Return a fleet whose keys, the integers 0, ..., n_keys - 1, have full windows."""
    from imondrian import Fleet

    fleet, rng = Fleet(1, **settings), np.random.default_rng(0)
    keys = np.arange(n_distinct)
    for _ in range(WINDOW // 8):
        fleet.process_many(np.tile(keys, 8), rng.normal(size=(n_distinct * 8, 1)))
    table = fleet._state.table  # noqa: SLF001
    for key in range(n_distinct, n_keys):
        if key % 1_000 == 0 and available_bytes() < SPARE:
            print(f"only {key:,} keys fit in memory")
            break
        table.entries[key] = table.shards.place(table.shards.detector(table.entries[key % n_distinct]))
        table.changed.add(key)
    return fleet


def block_rates(fleet: Any, n_keys: int, n_blocks: int, n_jobs: tuple[int, ...] = (1,)) -> dict[int, Rates]:
    """Time blocks of rows in random order, alternately with each number of threads."""
    rng, rates = np.random.default_rng(1), {n: Rates([], []) for n in n_jobs}
    for _, (n, times) in product(range(n_blocks + 1), rates.items()):
        keys, rows = rng.integers(0, n_keys, BLOCK), rng.normal(size=(BLOCK, 1))
        fleet._state._threads.n_jobs = n  # noqa: SLF001
        elapsed, processor = time.perf_counter(), time.process_time()
        fleet.process_many(keys, rows)
        times.elapsed.append(BLOCK / (time.perf_counter() - elapsed))
        times.processor.append(BLOCK / (time.process_time() - processor))
    return {n: Rates(times.elapsed[1:], times.processor[1:]) for n, times in rates.items()}


def return_seconds(n_keys: int) -> list[float]:
    """Return the seconds of processor time to bring each key back from the store, if no other key has to leave."""
    with tempfile.TemporaryDirectory() as folder:
        fleet = warm_fleet(n_keys, n_keys, store=Path(folder, "fleet.db"))
        fleet.save()
        fleet.close()
        from imondrian import Fleet

        with Fleet.load(Path(folder, "fleet.db")) as fleet:
            table, seconds = fleet._state.table, list[float]()  # noqa: SLF001
            for key in np.random.default_rng(2).permutation(n_keys).tolist():
                start = time.process_time()
                table.entries_of([key], fleet.seed_of)
                seconds.append(time.process_time() - start)
            table.begin_block()
    return seconds[n_keys // 10 :]


def measure_peer(n_keys: int, n_blocks: int) -> None:
    """Measure krcf (Rust) with one forest per key: score a row, then learn it."""
    before, rng = resident_bytes(), np.random.default_rng(1)
    forests = peer_forests(n_keys)
    per_key, rates = (resident_bytes() - before) / n_keys, Rates([], [])
    for _ in range(n_blocks):
        keys, rows = rng.integers(0, n_keys, BLOCK).tolist(), list(rng.normal(size=(BLOCK, 1)))
        elapsed, processor = time.perf_counter(), time.process_time()
        for key, row in zip(keys, rows, strict=True):
            forests[key].score(row)
            forests[key].update(row)
        rates.elapsed.append(BLOCK / (time.perf_counter() - elapsed))
        rates.processor.append(BLOCK / (time.process_time() - processor))
    print(f"krcf, {n_keys:,} forests: {per_key:,.0f} bytes a key measured; {rates}")


def peer_forests(n_keys: int) -> list[Any]:
    """Return forests of krcf that have learned 256 rows each."""
    from krcf import RandomCutForest

    rng = np.random.default_rng(0)
    sizes = {"dimensions": 1, "shingle_size": 1, "num_trees": TREES, "sample_size": SAMPLES, "output_after": 32}
    forests = [RandomCutForest({**sizes, "id": key}) for key in range(n_keys)]
    for forest in forests:
        for row in rng.normal(size=(WINDOW, 1)):
            forest.update(row)
    return forests


def bytes_per_key(contestant: str, n_keys: int) -> float:
    """Return the resident memory that a key adds."""
    make = peer_forests if contestant == "krcf" else lambda n: warm_fleet(n, n)
    make(10)  # so that the memory of the library is not counted
    gc.collect()
    before = resident_bytes()
    made = make(n_keys)
    gc.collect()
    return (resident_bytes() - before) / len(made)


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def available_bytes() -> int:
    """Return the memory that processes can still get."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024


if __name__ == "__main__":
    main()

"""Three hundred hosts, each with a detector of its own, in one process and one file.

The data are generated with a fixed seed: load, memory and errors of every host, once a minute. Three hosts get into
trouble. What is ordinary for one host would be alarming on another, so no single threshold would do.

python examples/fleet_of_hosts.py
"""

import tempfile
import time
from pathlib import Path

import numpy as np

from imondrian import Fleet

N_HOSTS, MINUTES, TROUBLE = 300, 500, 400
METRICS = ["load", "memory", "errors"]
RNG = np.random.default_rng(0)
USUAL = RNG.uniform([0.5, 10.0, 0.0], [16.0, 90.0, 5.0], size=(N_HOSTS, 3))
HOSTS = [f"host{i:03d}" for i in range(N_HOSTS)]


def main() -> None:
    """Watch the hosts, save the fleet half-way, and go on with the saved one.

    Nothing is flagged until the window of a host is full (256 rows). By default, rows are flagged after the first 32,
    when it is not yet clear what is rare: this would give 125 incidents instead of 35.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hosts.db"
        started = time.perf_counter()
        with Fleet(n_features=3, store=path, max_bytes=400_000_000, warm_up=256, borrow=False) as fleet:
            watch(fleet, range(MINUTES // 2))
            fleet.save()
        with Fleet.load(path, max_bytes=400_000_000) as fleet:  # as after a restart
            watch(fleet, range(MINUTES // 2, MINUTES))
            seconds = time.perf_counter() - started
            print(f"{fleet.n_rows:,} rows of {len(fleet):,} hosts in {seconds:.1f} s")
            print(f"{fleet.bytes_per_key / 1000:.0f} kB per host\n")
            print_incidents(fleet)


def watch(fleet: Fleet, minutes: range) -> None:
    """Process the rows of all hosts, minute by minute."""
    for minute in minutes:
        fleet.process_many(HOSTS, rows_of(minute))


def rows_of(minute: int) -> np.ndarray:
    """Return the metrics of all hosts in a minute; three hosts have a fault from minute 400 on."""
    rows = RNG.normal(USUAL, [0.3, 1.0, 0.4])
    since = minute - TROUBLE
    if since >= 0:
        rows[17, 0] += 12.0  # a process runs wild
        rows[133, 1] += 0.8 * since  # a memory leak
        rows[201, 2] += 30.0 * (since % 10 == 0)  # errors every ten minutes
    return rows


def print_incidents(fleet: Fleet) -> None:
    """Print the incidents since the trouble began, the most surprising first."""
    recent = [each for each in fleet.incidents if each.incident.first >= TROUBLE]
    print(f"{len(fleet.incidents)} incidents, {len(recent)} of them since minute {TROUBLE}:")
    for key, incident in sorted(recent, key=lambda each: -each.incident.surprise):
        reason = incident.reasons[0]
        expected = f"expected {reason.low:.1f} to {reason.high:.1f}"
        state = "open" if incident.is_open else "closed"
        print(
            f"  {key}  surprise {incident.surprise:4.1f}  from minute {incident.first}, {state}: "
            f"{METRICS[reason.feature]} = {reason.value:.1f} ({expected})"
        )


if __name__ == "__main__":
    main()

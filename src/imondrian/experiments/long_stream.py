"""A stream of the size of CICIDS 2017 Wednesday, 691,406 rows of 77 features, through a forest with a window.

The paper's online mode keeps every row in every tree, which would take tens of gigabytes here. With a window the
memory is fixed; this measures how much it is, and how long the stream takes, in a process of its own. The rows are
made: how well they are told apart is not looked at.
"""

import multiprocessing
import re
import resource
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

import numpy as np

from imondrian.engine.jit import Array
from imondrian.errors import ImondrianError
from imondrian.experiments.repeats import Progress, Row
from imondrian.experiments.splits import N_STAGES
from imondrian.stream import StreamDetector

N_ROWS, N_FEATURES = 691_406, 77  # as in the paper
COLUMNS = ("part", "n_rows", "seconds", "microseconds_per_row", "detector_megabytes", "peak_megabytes")
_BLOCK = 2_048
_ATTACKS = 0.36  # the paper's share of anomalies
_MEGABYTE = 1e6
_POLL = 0.5  # seconds


def run(n_rows: int, seed: int, progress: Progress) -> list[Row]:
    """Stream so many rows through a detector with the preset of the paper; give time and memory, stage by stage."""
    rows: list[Row] = []
    for row in _in_its_own_process(n_rows, seed):
        rows.append(row)
        progress(f"endless: stage {row['part']}", len(rows) / N_STAGES)
    return rows


def _in_its_own_process(n_rows: int, seed: int) -> Iterator[Row]:
    """Run the stream where nothing else takes memory."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_send_stages, args=(sending, n_rows, seed), daemon=True)
    process.start()
    sending.close()
    try:
        for _ in range(N_STAGES):
            while not receiving.poll(_POLL):
                pass  # and hear of signals
            yield receiving.recv()
        process.join()
    except EOFError:
        process.join()
        raise ImondrianError(f"The process of the stream ended with exit code {process.exitcode}.") from None
    finally:
        process.terminate()


def _send_stages(sending: Connection, n_rows: int, seed: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process sees to that
    for row in stages(n_rows, seed):
        sending.send(row)


def stages(n_rows: int, seed: int) -> Iterator[Row]:
    """Stream rows through a detector, and tell time and memory after each of five stages."""
    detector = StreamDetector(N_FEATURES, preset="paper", seed=seed)
    for block in generated_rows(3 * _BLOCK, seed + 1):
        detector.process_many(block)  # compiles what is not compiled yet
    detector = StreamDetector(N_FEATURES, preset="paper", seed=seed)
    blocks = generated_rows(n_rows, seed)
    n_done = 0
    for stage in range(1, N_STAGES + 1):
        seconds, n_before = 0.0, n_done
        while n_done < stage * n_rows // N_STAGES:
            block = next(blocks)
            start = perf_counter()
            detector.process_many(block)
            seconds += perf_counter() - start
            n_done += len(block)
        yield {
            "part": str(stage),
            "n_rows": n_done,
            "seconds": seconds,
            "microseconds_per_row": 1e6 * seconds / (n_done - n_before),
            "detector_megabytes": detector.n_bytes / _MEGABYTE,
            "peak_megabytes": _peak_bytes() / _MEGABYTE,
        }


def generated_rows(n_rows: int, seed: int) -> Iterator[Array]:
    """Make rows block by block, as heavy-tailed as counts and durations of network flows; some from elsewhere."""
    for start in range(0, n_rows, _BLOCK):
        rng = np.random.default_rng((seed, start))
        size = (min(_BLOCK, n_rows - start), N_FEATURES)
        shift = 2.0 * (rng.random((size[0], 1)) < _ATTACKS)
        yield np.exp(1.5 * rng.normal(size=size) + shift)


def _peak_bytes() -> int:
    """Give the most memory that this process has had; getrusage would tell its parent's, if that was more."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # of macOS, in bytes
    (peak,) = re.findall(r"^VmHWM:\s*(\d+) kB$", status.read_text("utf-8"), re.MULTILINE)
    return 1024 * int(peak)

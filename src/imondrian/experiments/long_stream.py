"""Time and memory for a stream of the size of CICIDS 2017 Wednesday: 691,406 rows of 77 features.

The paper's online mode stores every row in every tree, which would need tens of gigabytes here. A forest with a window
needs constant memory. Its memory and the time for the stream are measured in a separate process. The rows are
generated, and detection quality is not measured.
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

from imondrian.base.errors import ImondrianError
from imondrian.engine.jit import Array
from imondrian.experiments.repeats import Row, StepProgress
from imondrian.experiments.splits import N_STAGES
from imondrian.stream.detector import StreamDetector

N_ROWS, N_FEATURES = 691_406, 77  # as in the paper
COLUMNS = ("part", "n_rows", "seconds", "microseconds_per_row", "detector_megabytes", "peak_megabytes")
_BLOCK = 2_048
_ATTACKS = 0.36  # the paper's share of anomalies
_MEGABYTE = 1e6
_POLL = 0.5  # seconds


def run(n_rows: int, seed: int, progress: StepProgress) -> list[Row]:
    """Stream `n_rows` rows through a detector with the preset "paper"; return time and memory of each stage."""
    rows: list[Row] = []
    for row in _in_separate_process(n_rows, seed):
        rows.append(row)
        progress(f"long stream: stage {row['part']}", len(rows) / N_STAGES)
    return rows


def _in_separate_process(n_rows: int, seed: int) -> Iterator[Row]:
    """Run the stream in a process where nothing else needs memory."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_stages, args=(sender, n_rows, seed), daemon=True)
    process.start()
    sender.close()
    try:
        for _ in range(N_STAGES):
            while not receiver.poll(_POLL):
                pass  # wake up regularly to handle signals
            yield receiver.recv()
        process.join()
    except EOFError:
        process.join()
        raise ImondrianError(f"The process that ran the stream ended with exit code {process.exitcode}.") from None
    finally:
        process.terminate()


def _send_stages(sender: Connection, n_rows: int, seed: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles it
    for row in stages(n_rows, seed):
        sender.send(row)


def stages(n_rows: int, seed: int) -> Iterator[Row]:
    """Stream rows through a detector; yield time and memory after each of five stages."""
    detector = StreamDetector(N_FEATURES, preset="paper", seed=seed)
    for block in generated_rows(3 * _BLOCK, seed + 1):
        detector.process_many(block)  # to compile the kernels
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
    """Generate rows in blocks, heavy-tailed like counts and durations of network flows, some of them shifted."""
    for start in range(0, n_rows, _BLOCK):
        rng = np.random.default_rng((seed, start))
        size = (min(_BLOCK, n_rows - start), N_FEATURES)
        shift = 2.0 * (rng.random((size[0], 1)) < _ATTACKS)
        yield np.exp(1.5 * rng.normal(size=size) + shift)


def _peak_bytes() -> int:
    """Return the peak memory of this process; on Linux, getrusage could return the larger peak of its parent."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS
    (peak,) = re.findall(r"^VmHWM:\s*(\d+) kB$", status.read_text("utf-8"), re.MULTILINE)
    return 1024 * int(peak)

"""Compiled functions: where they are defined, and when a cached kernel is compiled again."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from numba import config

import imondrian

PACKAGE = Path(imondrian.__file__).parent
DECORATOR = re.compile(r"^ *@(?:\w+\.)*(?:kernel|\w*helper|n?jit|vectorize|guvectorize|intrinsic)\b", re.MULTILINE)


def test_all_compiled_functions_are_in_the_engine():
    sources = {path for path in PACKAGE.rglob("*.py") if DECORATOR.search(path.read_text())}
    assert {path.relative_to(PACKAGE).parts[0] for path in sources} == {"engine"}


RUN = """
import numpy as np
from imondrian import MondrianForest
from imondrian.engine.frozen import add_frozen_depths
from imondrian.engine.one_row import depth_score_of_row
forest = MondrianForest(n_trees=3).build(np.random.default_rng(0).normal(size=(50, 2)))
row = np.zeros(2)
print(forest.score(np.zeros((20, 2)))[0], depth_score_of_row(forest.state()[0], row))
hits = [sum(kernel.stats.cache_hits.values()) for kernel in (add_frozen_depths, depth_score_of_row)]
print(hits)
"""


def run(folder, cache):
    """Run a script on the copy of the package; return its scores and the number of kernels loaded from the cache."""
    environment = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "PYTHONPATH")}
    environment |= {"PYTHONPATH": str(folder)} | ({} if cache is None else {"NUMBA_CACHE_DIR": str(cache)})
    command = [sys.executable, "-c", RUN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=folder)
    scores, hits = done.stdout.splitlines()
    return scores, hits


@pytest.mark.compiled
@pytest.mark.skipif(config.DISABLE_JIT, reason="needs compiled kernels")
@pytest.mark.parametrize("has_cache_folder", [False, True], ids=["__pycache__", "NUMBA_CACHE_DIR"])
def test_a_changed_constant_recompiles_every_kernel_that_uses_it(tmp_path, has_cache_folder):
    """Both kernels use a constant of another file, through helpers; their own files do not change."""
    shutil.copytree(PACKAGE, tmp_path / "imondrian", ignore=shutil.ignore_patterns("__pycache__"))
    cache = tmp_path / "cache" if has_cache_folder else None
    first, _ = run(tmp_path, cache)
    assert run(tmp_path, cache) == (first, "[1, 1]")
    source = tmp_path / "imondrian" / "engine" / "average_path_length.py"
    times = source.stat()
    source.write_text(source.read_text().replace("_EULER = 0.57721566490153286", "_EULER = 0.67721566490153286"))
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))  # the modification time does not change
    changed, hits = run(tmp_path, cache)
    assert hits == "[0, 0]"
    assert all(new != old for new, old in zip(changed.split(), first.split(), strict=True))
    assert run(tmp_path, cache) == (changed, "[1, 1]")


SMALL_KERNEL = """
import logging
from imondrian.engine.jit import kernel

@kernel
def doubled(x):
    return 2.0 * x

if __name__ == "__main__":
    messages = []
    logger = logging.getLogger("imondrian.compilation")
    logger.setLevel(logging.INFO)
    logger.addFilter(lambda record: messages.append(record.getMessage()))
    result, n_hits = doubled(21.0), sum(doubled.stats.cache_hits.values())
    assert messages == ([] if n_hits else ["Compiling doubled."])
    print(result, n_hits)
"""


def run_small_kernel(folder):
    """Call a kernel in another process; return its result and whether it was loaded from the cache."""
    path = folder / "small_kernel.py"
    path.write_text(SMALL_KERNEL)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, str(path)], env=environment, capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    result, hits = done.stdout.split()
    assert float(result) == 42.0
    return bool(int(hits))


@pytest.mark.compiled
@pytest.mark.skipif(config.DISABLE_JIT, reason="needs compiled kernels")
@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (".nbi", lambda _: b""),
        (".nbi", lambda content: content[: len(content) // 2]),
        (".nbc", lambda _: b""),
        (".nbc", lambda content: bytes([*content[:-200], content[-200] ^ 1, *content[-199:]])),
    ],
    ids=["index is empty", "index is truncated", "code is empty", "one bit of the code is wrong"],
)
def test_a_damaged_cache_file_only_causes_a_compilation(tmp_path, suffix, damage):
    assert not run_small_kernel(tmp_path)
    assert run_small_kernel(tmp_path)
    (path,) = (tmp_path / "cache").rglob(f"*{suffix}")
    path.write_bytes(damage(path.read_bytes()))
    assert not run_small_kernel(tmp_path)
    assert run_small_kernel(tmp_path)  # the files were replaced


@pytest.mark.compiled
@pytest.mark.skipif(config.DISABLE_JIT, reason="needs compiled kernels")
def test_a_kernel_works_if_its_cache_files_cannot_be_read_or_written(tmp_path):
    run_small_kernel(tmp_path)
    for path in [*(tmp_path / "cache").rglob("*.nb*")]:
        path.unlink()
        path.mkdir()  # even root cannot read or replace it
        (path / "file").touch()
    assert not run_small_kernel(tmp_path)


INTERRUPTED_KERNELS = """
import signal
import traceback
from numba import njit
from imondrian.engine.jit import call_without_dispatch, kernel

n_signals = n_raised = n_inside = 0

def interrupt(_number, frame):
    global n_signals, n_raised, n_inside
    names = [frame.name for frame in traceback.extract_stack(frame) if "/numba/" in frame.filename]
    n_signals, n_inside = n_signals + 1, n_inside + bool({"compile", "refresh"} & {*names})
    signal.setitimer(signal.ITIMER_REAL, 0.0005)  # only now, so that signals never interrupt this handler
    if names and n_signals % 10 == 0 and n_raised < 5:
        n_raised += 1
        raise KeyboardInterrupt

def called(function, *args):
    while True:
        try:
            return function(*args)
        except KeyboardInterrupt:
            pass

@kernel
def doubled(x):
    return 2.0 * x

@kernel
def quadrupled(x):
    return doubled(doubled(x))

@njit
def octupled(x):
    return doubled(quadrupled(x))

signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.0005)
try:
    results = [called(quadrupled, 1.5), called(call_without_dispatch, doubled, 1), called(doubled, 1.5)]
finally:  # otherwise an error would end with a signal, and without a message
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
print(*results, octupled(1), n_inside, n_raised > 0)
"""


@pytest.mark.compiled
@pytest.mark.skipif(config.DISABLE_JIT, reason="needs compiled kernels")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that interrupts")
def test_compilation_is_not_interrupted_by_signals(tmp_path):
    """An interruption inside Numba's registration of implementations would break every later call of the process.

    Functions of other packages may call kernels: then the main thread already holds the lock of the compiler.
    """
    path = tmp_path / "interrupted_kernels.py"
    path.write_text(INTERRUPTED_KERNELS)
    for _ in range(2):  # compiled, then loaded from the cache
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, timeout=300)
        assert done.stdout.split() == ["6.0", "2.0", "3.0", "8.0", "0", "True"], done.stderr

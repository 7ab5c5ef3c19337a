"""How kernels are compiled, said once."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy.typing as npt

Array = npt.NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])
_compile: Any = numba.njit
_OPTIONS = {"no_cfunc_wrapper": True, "error_model": "numpy"}
_HELPER_OPTIONS = _OPTIONS | {"forceinline": True, "no_cpython_wrapper": True}
_WITHOUT_COUNTING = {"_nrt": False}  # references to arrays: atomic counters that would double the time of small steps


def kernel(function: Function) -> Function:
    """Compile a function for Python to call: on first use, kept on disk, other threads may run beside it."""
    return _compile(cache=True, nogil=True, **_OPTIONS)(function)


def helper(function: Function) -> Function:
    """Compile a function into the kernels that call it; it has no door to Python, no file, and makes no array."""
    return _compile(**_HELPER_OPTIONS, **_WITHOUT_COUNTING)(function)


def summing_helper(function: Function) -> Function:
    """Compile a helper whose sums may be taken in any order, several terms at a time."""
    return _compile(**_HELPER_OPTIONS, **_WITHOUT_COUNTING, fastmath={"reassoc", "nsz"})(function)


def making_helper(function: Function) -> Function:
    """Compile a helper that makes arrays."""
    return _compile(**_HELPER_OPTIONS)(function)


def _drop_stale_kernels() -> None:
    """Delete compiled kernels made from other sources than the present ones.

    Numba looks only at the file of the kernel itself; a kernel calls others from other files, so an edit there
    would go unnoticed.
    """
    folder = Path(__file__).parent
    stats = sorted((entry.name, entry.stat()) for entry in os.scandir(folder) if entry.name.endswith(".py"))
    sources = repr([(name, stat.st_mtime_ns, stat.st_size) for name, stat in stats])
    stamp = hashlib.sha256(sources.encode()).hexdigest()
    with suppress(OSError):  # a read-only installation does not change under us
        cache = folder / "__pycache__"
        cache.mkdir(exist_ok=True)
        written = cache / "kernels.stamp"
        if written.exists() and written.read_text() == stamp:
            return
        for stale in [*cache.glob("*.nbi"), *cache.glob("*.nbc")]:
            stale.unlink(missing_ok=True)
        written.write_text(stamp)


_drop_stale_kernels()

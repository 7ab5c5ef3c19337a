"""How kernels are compiled, said once."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy.typing as npt
from llvmlite import ir
from numba.extending import intrinsic

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


_BOUND: dict[Any, Any] = {}  # kernels, and their compiled forms


def direct(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a kernel that is always called with arguments of the same types and layout, without looking at them again.

    Looking takes longer than the work of a small kernel. Whoever calls answers for the types: those of the first call.
    """
    entry = _BOUND.get(function)
    if entry is None:
        entry = _BOUND[function] = _entry_point(function, arguments)
    return entry(*arguments)


def _entry_point(function: Any, arguments: tuple[Any, ...]) -> Any:
    """Give the compiled form of a kernel for arguments like these."""
    if numba.config.DISABLE_JIT:
        return function
    signature = tuple(map(numba.typeof, arguments))
    function.compile(signature)
    return function.overloads[signature].entry_point


def _fetch(_context: Any, array: Any, index: Any) -> Any:  # noqa: ARG001
    """Ask for the item of an array at a flat index, to be in the cache when it is read; no promise, no effect."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        items = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(items, [arguments[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        instruction = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(instruction, [place, number(0), number(3), number(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return numba.types.void(array, numba.types.intp), generate


def _no_fetch(array: Array, index: int) -> None:
    """Do nothing, as plain Python."""


def _choice(_context: Any, condition: Any, yes: Any, no: Any) -> Any:  # noqa: ARG001
    """Give `yes` or `no`, without a branch: for conditions that no processor can guess, where others can go on."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        chosen = builder.select(*arguments)
        chosen.set_metadata("unpredictable", builder.module.add_metadata([]))
        return chosen

    return yes(numba.types.boolean, yes, yes), generate


def _plain_choice(condition: bool, yes: Any, no: Any) -> Any:  # noqa: FBT001
    """Do the same as plain Python."""
    return yes if condition else no


fetch: Any = _no_fetch if numba.config.DISABLE_JIT else intrinsic(_fetch)
choice: Any = _plain_choice if numba.config.DISABLE_JIT else intrinsic(_choice)


def _drop_stale_kernels() -> None:
    """Delete compiled kernels made from other sources than the present ones.

    Numba looks only at the file of the kernel itself; a kernel calls others from other files, so an edit there
    would go unnoticed.
    """
    engine = Path(__file__).parent
    folders = (engine, engine.parent)
    stats = sorted(
        (entry.path, entry.stat()) for folder in folders for entry in os.scandir(folder) if _is_source(entry)
    )
    sources = repr([(path, stat.st_mtime_ns, stat.st_size) for path, stat in stats])
    stamp = hashlib.sha256(sources.encode()).hexdigest()
    with suppress(OSError):  # a read-only installation does not change under us
        written = engine / "__pycache__" / "kernels.stamp"
        written.parent.mkdir(exist_ok=True)
        if written.exists() and written.read_text() == stamp:
            return
        for folder in folders:
            for stale in (folder / "__pycache__").glob("*.nb[ic]"):
                stale.unlink(missing_ok=True)
        written.write_text(stamp)


def _is_source(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(".py")


_drop_stale_kernels()

"""Compilation: the decorators for kernels and helpers, and two CPU instructions that Numba lacks."""

import hashlib
import logging
import pickle
from collections.abc import Callable
from concurrent.futures import Future
from functools import wraps
from pathlib import Path
from threading import Thread, current_thread, main_thread
from typing import Any, TypeVar

import numba
import numpy.typing as npt
from llvmlite import ir
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from imondrian.base.locking import hold_during_forks

Array = npt.NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])
_LOG = logging.getLogger(__name__)
_COMPILATION_LOG = logging.getLogger("imondrian.compilation")  # one message before each kernel is compiled
_compile: Any = numba.njit
_OPTIONS = {"no_cfunc_wrapper": True, "error_model": "numpy"}
_HELPER_OPTIONS = _OPTIONS | {"forceinline": True, "no_cpython_wrapper": True}
_NO_REFERENCE_COUNTS = {"_nrt": False}  # counting array references atomically would double the time of small helpers

hold_during_forks(global_compiler_lock._lock)  # noqa: SLF001 (if it were held, the child could not compile)


def _sources_digest() -> str:
    """Return a digest of all source files of the engine, which is the stamp of every cached kernel.

    Numba's own stamp covers only the file of the kernel itself, but helpers and constants from other files are compiled
    into a kernel too. With this stamp, a change in any file of the engine makes Numba compile every kernel again,
    wherever its cache is (`__pycache__`, NUMBA_CACHE_DIR or the user's cache folder).
    """
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


_SOURCES_DIGEST = _sources_digest()


def kernel(function: Function) -> Function:
    """Compile a function that Python code calls. It is compiled on first use, cached on disk, and releases the GIL."""
    compiled = _compile(cache=True, nogil=True, **_OPTIONS)(function)
    if hasattr(compiled, "_cache"):  # there is none without JIT compilation
        compiled._cache = _KernelCache(function)  # noqa: SLF001
        compiled.compile = _in_helper_thread(compiled.compile)
    return compiled


def _in_helper_thread(function: Function) -> Function:
    """Return a function that runs in a helper thread if the main thread calls it.

    Signal handlers, such as that of Ctrl+C, run in the main thread only. When the first kernels are compiled or loaded,
    Numba registers its implementations through generators; an exception inside one of them would make every later call
    in the process fail. If a handler raises one in the main thread, the helper thread completes its work nevertheless.
    """

    @wraps(function)
    def run(*args: Any) -> Any:
        # if this thread holds the lock, the helper thread would wait for this thread, which waits for the helper thread
        holds_lock = global_compiler_lock.is_locked()
        if holds_lock or current_thread() is not main_thread():
            return function(*args)
        result: Future[Any] = Future()
        try:
            Thread(target=_complete, args=(result, function, args)).start()
        except RuntimeError:  # no more threads can be started
            return function(*args)
        return result.result()

    return run  # type: ignore[return-value]


def _complete(result: "Future[Any]", function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Call a function and store its result or its exception."""
    try:
        result.set_result(function(*args))
    except BaseException as error:  # noqa: BLE001 (the caller raises it)
        result.set_exception(error)


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of a kernel; if its files are damaged or cannot be written, the kernel is compiled again.

    Numba itself raises the errors of `pickle` and of the file system in the middle of a call of the kernel.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _CacheFile(self._cache_path, self._impl.filename_base, _SOURCES_DIGEST)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the cached code for a signature; None if there is none or it is damaged."""
        code = None
        try:
            code = super().load_overload(sig, target_context)
        except Exception as error:  # noqa: BLE001 (reading damaged pickles may raise any error)
            _LOG.info(
                "The cached code of %s cannot be read, and is compiled again: %r", self._py_func.__qualname__, error
            )
        if code is None:
            _COMPILATION_LOG.info("Compiling %s.", self._py_func.__qualname__)
        return code

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save compiled code, and replace a damaged index; if that fails, the code works without being cached."""
        try:
            try:
                super().save_overload(sig, data)
            except Exception:  # noqa: BLE001
                self.flush()  # replaces the index, which may be damaged, by an empty one
                super().save_overload(sig, data)
        except Exception as error:  # noqa: BLE001
            _LOG.info("The compiled code of %s cannot be cached: %r", self._py_func.__qualname__, error)


class _CacheFile(IndexDataCacheFile):  # type: ignore[misc]
    """The cache files of a kernel; compiled code has a digest, so that damaged code is never executed."""

    def _load_data(self, name: str) -> Any:
        content = Path(self._data_path(name)).read_bytes()
        data = content[_DIGEST_BYTES:]
        if content[:_DIGEST_BYTES] != _digest(data):
            raise ValueError(f"{name} is damaged.")
        return pickle.loads(data)  # noqa: S301 (as Numba does)

    def _save_data(self, name: str, data: Any) -> None:
        content = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(_digest(content) + content)


_DIGEST_BYTES = 16


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def helper(function: Function) -> Function:
    """Compile a function that is inlined into kernels. It cannot be called from Python and cannot allocate arrays."""
    return _compile(**_HELPER_OPTIONS, **_NO_REFERENCE_COUNTS)(function)


def summing_helper(function: Function) -> Function:
    """Compile a helper in which the order of additions may change, so that sums are vectorized."""
    return _compile(**_HELPER_OPTIONS, **_NO_REFERENCE_COUNTS, fastmath={"reassoc", "nsz"})(function)


def allocating_helper(function: Function) -> Function:
    """Compile a helper that allocates arrays."""
    return _compile(**_HELPER_OPTIONS)(function)


_ENTRY_POINTS: dict[Any, Any] = {}  # the compiled function of each kernel


def call_without_dispatch(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a kernel without Numba's dispatch on argument types.

    Dispatch takes longer than the work of a small kernel. The caller guarantees that the types and layouts of the
    arguments are those of the first call.
    """
    entry = _ENTRY_POINTS.get(function)
    if entry is None:
        entry = _ENTRY_POINTS[function] = _entry_point(function, arguments)
    return entry(*arguments)


def _entry_point(function: Any, arguments: tuple[Any, ...]) -> Any:
    """Compile a kernel for arguments of these types and return the compiled function."""
    if numba.config.DISABLE_JIT:
        return function
    signature = tuple(map(numba.typeof, arguments))
    function.compile(signature)
    return function.overloads[signature].entry_point


def _prefetch(_context: Any, array: Any, index: Any) -> Any:  # noqa: ARG001
    """Prefetch the item of an array at a flat index into the cache. A hint to the CPU: it has no other effect."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, integer = ir.IntType(8).as_pointer(), ir.IntType(32)
        items = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(items, [arguments[1]]), pointer)
        function_type = ir.FunctionType(ir.VoidType(), [pointer, integer, integer, integer])
        instruction = builder.module.declare_intrinsic("llvm.prefetch", [pointer], function_type)
        options = [integer(0), integer(3), integer(1)]  # read access, high locality, data cache
        builder.call(instruction, [address, *options])
        return context.get_dummy_value()

    return numba.types.void(array, numba.types.intp), generate


def _no_prefetch(array: Array, index: int) -> None:
    """Do nothing: the version without JIT compilation."""


def _select(_context: Any, condition: Any, yes: Any, no: Any) -> Any:  # noqa: ARG001
    """Return `yes` or `no` without a branch: faster where the CPU cannot predict the condition."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        chosen = builder.select(*arguments)
        chosen.set_metadata("unpredictable", builder.module.add_metadata([]))
        return chosen

    return yes(numba.types.boolean, yes, yes), generate


def _plain_select(condition: bool, yes: Any, no: Any) -> Any:  # noqa: FBT001
    """Like `_select`, without JIT compilation."""
    return yes if condition else no


prefetch: Any = _no_prefetch if numba.config.DISABLE_JIT else intrinsic(_prefetch)
select: Any = _plain_select if numba.config.DISABLE_JIT else intrinsic(_select)

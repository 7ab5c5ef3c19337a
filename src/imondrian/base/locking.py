"""Locks for objects that several threads use: up to four readers at a time, or one writer.

An object has four stripes and a writer lock. A reader holds the stripe of its thread; threads with the same stripe take
turns. A writer acquires all stripes and then the writer lock, which is therefore held only while the object may change,
never while a writer waits. All five locks are implemented in C, and methods acquire them only by ``with``, so that an
interruption (Ctrl+C) can never leave one of them held; a counter of readers in Python code could stay too high forever.
A fork waits until no object is being changed: it acquires all writer locks, without ``with`` (see `_hold_all`).
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from itertools import count
from threading import RLock, Timer, get_ident
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from imondrian.base.errors import BusyError

_STRIPE_MASK = 3  # the number of stripes minus 1
_PAGE_BITS = 12  # the identifier of a thread is an address; its lowest bits are the same for all threads
_PACKAGE = __name__.partition(".")[0]

Locks = tuple[Any, Any, Any, Any, Any]  # four stripes and the writer lock
Arguments = ParamSpec("Arguments")
ReturnType = TypeVar("ReturnType")
Value = TypeVar("Value")


class Lockable(Protocol):
    """An object whose methods are decorated with `read_locked` or `write_locked`."""

    _locks: Locks

    def _is_settled(self) -> bool:
        """Return True unless an interrupted call has left work to finish."""

    def _settle(self) -> None:
        """Finish the work of an interrupted call."""


Self = TypeVar("Self", bound=Lockable)


def new_locks() -> Locks:
    """Return the locks of a new object."""
    locks = RLock(), RLock(), RLock(), RLock(), RLock()
    with _CREATING:
        for stripe in locks[:-1]:
            _STRIPES[next(_NUMBERS)] = stripe
        _WRITER_LOCKS[next(_NUMBERS)] = locks[-1]
    return locks


def lock_of(instance: Any) -> Any:
    """Return the lock of an object that has no attribute for one."""
    with _INSTANCE_LOCKS_GUARD:
        return _INSTANCE_LOCKS.setdefault(instance, RLock())


def is_inside(instance: Lockable) -> bool:
    """Return True if this thread is inside a call on the object, as it may be when it runs a signal handler."""
    return bool(instance._locks[get_ident() >> _PAGE_BITS & _STRIPE_MASK]._is_owned())  # noqa: SLF001


def read_locked(
    method: Callable[Concatenate[Self, Arguments], ReturnType],
) -> Callable[Concatenate[Self, Arguments], ReturnType]:
    """Decorate a method that only reads: it runs alongside readers of other stripes, but never alongside a writer."""

    @wraps(method)
    def shared(self: Self, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> ReturnType:
        stripe = self._locks[get_ident() >> _PAGE_BITS & _STRIPE_MASK]
        if stripe._is_owned():  # noqa: SLF001
            if not self._is_settled():
                _check_caller(self)
            return method(self, *args, **kwargs)
        with stripe:
            if self._is_settled():
                return method(self, *args, **kwargs)
        return exclusive(self, *args, **kwargs)

    exclusive = write_locked(method)
    return shared


def write_locked(
    method: Callable[Concatenate[Self, Arguments], ReturnType],
) -> Callable[Concatenate[Self, Arguments], ReturnType]:
    """Decorate a method that changes the object: it never runs alongside another method, from any thread."""

    @wraps(method)
    def exclusive(self: Self, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> ReturnType:
        first, second, third, fourth, writer = self._locks
        if is_inside(self):
            if not writer._is_owned():  # noqa: SLF001 (this thread is inside a method that only reads)
                raise _busy_error(self)
            _check_caller(self)
            return method(self, *args, **kwargs)
        with first, second, third, fourth, writer:
            self._settle()
            return method(self, *args, **kwargs)

    return exclusive


def unlocked(method: Callable[Arguments, ReturnType]) -> Callable[Arguments, ReturnType]:
    """Return a decorated method without its lock, for a caller that already holds it."""
    return method.__wrapped__  # type: ignore[attr-defined]


class cached_attribute(Generic[Value]):  # noqa: N801 (a decorator)
    """Like `functools.cached_property`, without the lock that it holds in Python 3.11 while it computes a value.

    That lock would stay held in a child process that is forked meanwhile. Two readers may compute the value twice.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute, self._name, self.__doc__ = compute, compute.__name__, compute.__doc__

    def __get__(self, instance: Any, _owner: type | None = None) -> Value:
        if instance is None:
            return self  # type: ignore[return-value]
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


def _check_caller(instance: object) -> None:
    """Raise BusyError if code outside this package calls a method while this thread is inside another one.

    Between the two calls there must be only frames of this package.
    """
    frame = sys._getframe(2)  # noqa: SLF001 (the caller of the decorated method)
    while (module := frame.f_globals.get("__name__", "")) != __name__:
        if frame.f_back is None or module.partition(".")[0] != _PACKAGE:
            raise _busy_error(instance)
        frame = frame.f_back


def _busy_error(instance: object) -> BusyError:
    return BusyError(f"This thread is already inside another call on the same {type(instance).__name__}.")


# -- forks ------------------------------------------------------------------------------------------------------------

_STRIPES: WeakValueDictionary[int, Any] = WeakValueDictionary()
_WRITER_LOCKS: WeakValueDictionary[int, Any] = WeakValueDictionary()  # in the order in which a fork acquires them
_NUMBERS = count()
_AFTER_WRITERS = sys.maxsize
_CREATING = RLock()  # held while locks are created
_HELD: list[Any] = []  # locks that are held during a fork
_INTERRUPTIONS: list[BaseException] = []  # exceptions of signal handlers during the wait for the locks
_INSTANCE_LOCKS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_INSTANCE_LOCKS_GUARD = RLock()
_SIGNAL_DELAY = 0.05  # seconds


def hold_during_forks(lock: Any) -> None:
    """Set one more lock for which forks wait. Locked methods may acquire it; code that holds it must not call them."""
    _WRITER_LOCKS[_AFTER_WRITERS] = lock


def _hold_all() -> None:
    """Wait for the writers in other threads, so that the child process finds every object complete.

    Only writer locks are acquired. A stripe may be held by a reader, which changes nothing, or by a waiting writer. If
    that writer waits for a reader in this thread, a wait for the stripe would never end.

    Python ignores an exception in this function and forks nevertheless, so an interruption must not end the wait.
    """
    while True:
        try:
            _acquire_others()
            _CREATING.acquire()
            if not _locks_not_held():
                return
            _CREATING.release()
        except BaseException as error:  # noqa: BLE001
            _INTERRUPTIONS.append(error)


def _acquire_others() -> None:
    """Acquire and record the locks that are not held yet, in one C call: no interruption can separate the two."""
    _HELD.extend(filter(type(_CREATING).acquire, _locks_not_held()))


def _locks_not_held() -> list[Any]:
    """Return the locks that are not held yet."""
    held = set(map(id, _HELD))
    references = sorted(_WRITER_LOCKS.valuerefs(), key=lambda reference: reference.key)
    return [lock for lock in (reference() for reference in references) if lock is not None and id(lock) not in held]


def _release_all() -> None:
    while _HELD:
        _HELD.pop().release()
    _CREATING.release()


def _release_in_parent() -> None:
    _release_all()
    if _INTERRUPTIONS and callable(signal.getsignal(signal.SIGINT)):  # send the signal again after this function
        Timer(_SIGNAL_DELAY, os.kill, [os.getpid(), signal.SIGINT]).start()
    _INTERRUPTIONS.clear()


def _release_in_child() -> None:
    """Release the locks, including the stripes of threads that the child process does not have.

    The locks of estimators (`lock_of`) are replaced by new ones. A fork does not wait for them, since a call changes an
    estimator atomically.
    """
    global _INSTANCE_LOCKS_GUARD  # noqa: PLW0603
    for stripe in (reference() for reference in _STRIPES.valuerefs()):
        if stripe is not None and not stripe._is_owned():  # noqa: SLF001
            stripe._at_fork_reinit()  # noqa: SLF001
    _INSTANCE_LOCKS_GUARD = RLock()
    _INSTANCE_LOCKS.clear()
    _INTERRUPTIONS.clear()
    _release_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_in_parent, after_in_child=_release_in_child)

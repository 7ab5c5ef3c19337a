"""Locks for objects that several threads use: many readers or one writer.

A lock is a tuple of stripes. A reader holds the stripe of its thread, a writer holds all of them. The stripes are locks
of the interpreter and are acquired only by ``with``, so that an interruption (Ctrl+C) can never leave one of them held;
a counter of readers in Python code could stay too high forever. A fork waits until no locked call is running.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from itertools import count
from threading import RLock, Timer, get_ident
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from imondrian.errors import BusyError

_STRIPE_MASK = 3  # the number of stripes minus 1
_PAGE_BITS = 12  # the identifier of a thread is an address; its lowest bits are the same for all threads
_PACKAGE = __name__.partition(".")[0]

Locks = tuple[Any, Any, Any, Any]
Arguments = ParamSpec("Arguments")
ReturnType = TypeVar("ReturnType")


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
    locks = RLock(), RLock(), RLock(), RLock()
    with _CREATING:
        for lock in locks:
            _ALL[next(_NUMBERS)] = lock
    return locks


def lock_of(instance: Any) -> Any:
    """Return the lock of an object that has no attribute for one."""
    with _INSTANCE_LOCKS_GUARD:
        return _INSTANCE_LOCKS.setdefault(instance, RLock())


def is_inside(instance: Lockable) -> bool:
    """Return True if this thread is inside a call of the object; a signal handler may run there."""
    return bool(instance._locks[get_ident() >> _PAGE_BITS & _STRIPE_MASK]._is_owned())  # noqa: SLF001


def read_locked(
    method: Callable[Concatenate[Self, Arguments], ReturnType],
) -> Callable[Concatenate[Self, Arguments], ReturnType]:
    """Decorate a method that only reads: it runs alongside other readers, but never alongside a writer."""

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
        first, second, third, fourth = self._locks
        if is_inside(self):
            if not (first._is_owned() and second._is_owned()):  # noqa: SLF001 (a reader of this thread)
                raise _busy_error(self)
            _check_caller(self)
            return method(self, *args, **kwargs)
        with first, second, third, fourth:
            self._settle()
            return method(self, *args, **kwargs)

    return exclusive


def unlocked(method: Callable[Arguments, ReturnType]) -> Callable[Arguments, ReturnType]:
    """Return a decorated method without its lock, for a caller that already holds it."""
    return method.__wrapped__  # type: ignore[attr-defined]


def _check_caller(instance: object) -> None:
    """Raise BusyError if code outside this package, such as a signal handler, calls a method inside another one."""
    caller = sys._getframe(2).f_globals.get("__name__", "")  # noqa: SLF001
    if caller.partition(".")[0] != _PACKAGE:
        raise _busy_error(instance)


def _busy_error(instance: object) -> BusyError:
    return BusyError(f"This thread is already inside another call of the same {type(instance).__name__}.")


# -- forks ------------------------------------------------------------------------------------------------------------

_ALL: WeakValueDictionary[int, Any] = WeakValueDictionary()  # all locks, in the order in which they are acquired
_NUMBERS = count()
_CREATING = RLock()  # held while locks are created
_HELD: list[Any] = []  # locks that are held during a fork
_INTERRUPTIONS: list[BaseException] = []  # exceptions of signal handlers during the wait for the locks
_INSTANCE_LOCKS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_INSTANCE_LOCKS_GUARD = RLock()
_SIGNAL_DELAY = 0.05  # seconds


def _hold_all() -> None:
    """Wait for the calls of other threads, so that the child process finds every object idle and no lock held.

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
    """Acquire the locks that are not held yet; a single C call acquires and records each, so it is not interrupted."""
    _HELD.extend(filter(type(_CREATING).acquire, _locks_not_held()))


def _locks_not_held() -> list[Any]:
    """Return the locks that are not held yet."""
    held = set(map(id, _HELD))
    references = sorted(_ALL.valuerefs(), key=lambda reference: reference.key)
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
    """Release the locks. A fork does not wait for calls of estimators, since these change an estimator atomically."""
    global _INSTANCE_LOCKS_GUARD  # noqa: PLW0603
    _INSTANCE_LOCKS_GUARD = RLock()
    _INSTANCE_LOCKS.clear()
    _INTERRUPTIONS.clear()
    _release_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_in_parent, after_in_child=_release_in_child)

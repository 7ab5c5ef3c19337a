"""Locks for objects that several threads use: readers share the object, a writer has it alone.

A lock is a tuple of stripes. A reader holds the stripe of its thread, a writer all of them. The stripes are locks of
the interpreter and are taken by ``with`` alone, because an interruption (Ctrl+C) can then never leave one of them held;
a counter of readers kept in Python could be left too high for ever. A process is forked when no call is under way.
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

_LAST_STRIPE = 3
_PAGE_BITS = 12  # a thread's identity is an address: its lowest bits are the same for all threads
_PACKAGE = __name__.partition(".")[0]

Locks = tuple[Any, Any, Any, Any]
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class Shared(Protocol):
    """An object whose methods `reads` and `changes` guard."""

    _locks: Locks

    def _is_settled(self) -> bool:
        """Return True unless an interrupted call has left something to finish."""

    def _settle(self) -> None:
        """Finish what an interrupted call has left."""


Self = TypeVar("Self", bound=Shared)


def new_locks() -> Locks:
    """Return the locks of a new object."""
    locks = RLock(), RLock(), RLock(), RLock()
    with _CREATING:
        for lock in locks:
            _ALL[next(_NUMBERS)] = lock
    return locks


def lock_of(instance: Any) -> Any:
    """Return the one lock of an object that has no place to keep it."""
    with _OF_INSTANCES_LOCK:
        return _OF_INSTANCES.setdefault(instance, RLock())


def is_inside(instance: Shared) -> bool:
    """Return True if this thread is inside a call of the object: a signal handler may ask in the middle of one."""
    return bool(instance._locks[get_ident() >> _PAGE_BITS & _LAST_STRIPE]._is_owned())  # noqa: SLF001


def reads(method: Callable[Concatenate[Self, Arguments], Answer]) -> Callable[Concatenate[Self, Arguments], Answer]:
    """Let a method run beside other readers, but never beside a writer."""

    @wraps(method)
    def shared(self: Self, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        stripe = self._locks[get_ident() >> _PAGE_BITS & _LAST_STRIPE]
        if stripe._is_owned():  # noqa: SLF001
            if not self._is_settled():
                _check_caller(self)
            return method(self, *args, **kwargs)
        with stripe:
            if self._is_settled():
                return method(self, *args, **kwargs)
        return alone(self, *args, **kwargs)

    alone = changes(method)
    return shared


def changes(method: Callable[Concatenate[Self, Arguments], Answer]) -> Callable[Concatenate[Self, Arguments], Answer]:
    """Let a method run beside no other method of the object, from any thread."""

    @wraps(method)
    def alone(self: Self, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        first, second, third, fourth = self._locks
        if is_inside(self):
            if not (first._is_owned() and second._is_owned()):  # noqa: SLF001 (a reader of this thread)
                raise _busy(self)
            _check_caller(self)
            return method(self, *args, **kwargs)
        with first, second, third, fourth:
            self._settle()
            return method(self, *args, **kwargs)

    return alone


def _check_caller(instance: object) -> None:
    """Raise if it is not our own code that calls one method of an object inside another: a signal handler, say."""
    caller = sys._getframe(2).f_globals.get("__name__", "")  # noqa: SLF001
    if caller.partition(".")[0] != _PACKAGE:
        raise _busy(instance)


def _busy(instance: object) -> BusyError:
    return BusyError(f"This thread is in the middle of another call of the same {type(instance).__name__}.")


# -- forks ------------------------------------------------------------------------------------------------------------

_ALL: WeakValueDictionary[int, Any] = WeakValueDictionary()  # locks, in the order in which they are taken
_NUMBERS = count()
_CREATING = RLock()  # held while locks are created
_HELD: list[Any] = []  # while a process is forked
_INTERRUPTIONS: list[BaseException] = []  # that came while the locks were waited for
_OF_INSTANCES: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_OF_INSTANCES_LOCK = RLock()
_SOON = 0.05  # seconds


def _hold_all() -> None:
    """Wait for the calls of other threads, so that the child finds every object between two calls, and no lock held.

    Python ignores an exception in this function and forks all the same. Hence an interruption does not end the wait.
    """
    while True:
        try:
            _hold_others()
            _CREATING.acquire()
            if not _others():
                return
            _CREATING.release()
        except BaseException as error:  # noqa: BLE001
            _INTERRUPTIONS.append(error)


def _hold_others() -> None:
    """Take the locks that are not held yet: each is noted by the same C function that takes it, uninterrupted."""
    _HELD.extend(filter(type(_CREATING).acquire, _others()))


def _others() -> list[Any]:
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
    if _INTERRUPTIONS and callable(signal.getsignal(signal.SIGINT)):  # repeated once this function, too, is over
        Timer(_SOON, os.kill, [os.getpid(), signal.SIGINT]).start()
    _INTERRUPTIONS.clear()


def _release_in_child() -> None:
    """Release the locks; calls of estimators are not waited for, since they change an estimator all at once."""
    global _OF_INSTANCES_LOCK  # noqa: PLW0603
    _OF_INSTANCES_LOCK = RLock()
    _OF_INSTANCES.clear()
    _INTERRUPTIONS.clear()
    _release_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_in_parent, after_in_child=_release_in_child)

"""Locks for objects that several threads use: readers share the object, a writer has it alone.

A lock is a tuple of stripes. A reader holds the stripe of its thread, a writer all of them. The stripes are locks of
the interpreter and are taken by ``with`` alone, because an interruption (Ctrl+C) can then never leave one of them held;
a counter of readers kept in Python could be left too high for ever. A process is forked when no call is under way.
"""

import os
import sys
from collections.abc import Callable
from functools import wraps
from itertools import count
from threading import RLock, get_ident
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
        if first._is_owned() and second._is_owned():  # noqa: SLF001 (a writer of this thread)
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
        raise BusyError(f"This thread is in the middle of another call of the same {type(instance).__name__}.")


# -- forks ------------------------------------------------------------------------------------------------------------

_ALL: WeakValueDictionary[int, Any] = WeakValueDictionary()  # locks, in the order in which they are taken
_NUMBERS = count()
_HELD: list[Any] = []  # while a process is forked
_OF_INSTANCES: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_OF_INSTANCES_LOCK = RLock()


def _hold_all() -> None:
    """Wait for the calls of other threads, so that the child finds every object between two calls, and no lock held."""
    for _, lock in sorted(_ALL.items()):
        lock.acquire()
        _HELD.append(lock)


def _release_all() -> None:
    while _HELD:
        _HELD.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)

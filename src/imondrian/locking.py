"""Locks for objects that several threads use: readers share the object, a writer has it alone.

A lock is a tuple of stripes. A reader holds the stripe of its thread, a writer all of them. The stripes are locks of
the interpreter and are taken by ``with`` alone, because an interruption (Ctrl+C) can then never leave one of them held;
a counter of readers kept in Python could be left too high for ever.
"""

from collections.abc import Callable
from functools import wraps
from threading import RLock, get_ident
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

_LAST_STRIPE = 3
_PAGE_BITS = 12  # a thread's identity is an address: its lowest bits are the same for all threads

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
    return RLock(), RLock(), RLock(), RLock()


def reads(method: Callable[Concatenate[Self, Arguments], Answer]) -> Callable[Concatenate[Self, Arguments], Answer]:
    """Let a method run beside other readers, but never beside a writer."""

    @wraps(method)
    def shared(self: Self, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        with self._locks[get_ident() >> _PAGE_BITS & _LAST_STRIPE]:
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
        with first, second, third, fourth:
            self._settle()
            return method(self, *args, **kwargs)

    return alone

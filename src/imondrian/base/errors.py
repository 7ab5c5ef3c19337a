"""The exceptions of imondrian. Each message names the argument, what it must be and what it was."""

from typing import Any


class ImondrianError(Exception):
    """Base class of every error that imondrian raises on purpose."""


class InvalidInputError(ImondrianError, ValueError):
    """An argument or a value cannot be used.

    Nothing was changed, except if another thread changed the rows during a call: then earlier rows of the call may have
    been learned.
    """


class NotHeldError(InvalidInputError):
    """A row cannot be forgotten, because the forest does not hold it. Nothing was changed."""

    row: int  # the first such row, from 0


class EmptyForestError(ImondrianError, ValueError):
    """The forest holds no points, so it cannot score rows."""


class DamagedFileError(ImondrianError, ValueError):
    """A model, data or result file is truncated, altered or of another kind. Nothing was loaded from it.

    If `Fleet.process_many` finds a damaged key in its store, it may have processed earlier rows of the call;
    `Fleet.n_rows` counts them.
    """

    results: Any = None  # FleetResults of the rows that were processed; None for other calls


class NothingSavedError(DamagedFileError):
    """The store contains no fleet: the process that created the store ended before it saved the fleet."""


class BusyError(ImondrianError, RuntimeError):
    """A signal handler called a method while another call on the same object was running. Nothing was changed."""


class StoreError(ImondrianError, OSError):
    """The store of a fleet cannot be opened, read or written.

    The first rows of the call may have been processed; `Fleet.n_rows` counts them.
    """

    # FleetResults of these rows if `process_many` raised the error; None if that call had not begun to process rows,
    # or if another method raised the error
    results: Any = None

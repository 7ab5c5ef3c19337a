"""The errors of imondrian: each names the thing, what it must be and what it was."""


class ImondrianError(Exception):
    """Base of every error that imondrian raises on purpose."""


class InvalidInputError(ImondrianError, ValueError):
    """A value handed in cannot be used; nothing was changed."""


class EmptyForestError(ImondrianError, ValueError):
    """The forest holds no points yet, so it has nothing to say about others."""


class DamagedFileError(ImondrianError, ValueError):
    """A file of a model, of data or of results is cut, altered or no such file; nothing was loaded."""


class BusyError(ImondrianError, RuntimeError):
    """An object was called in the middle of another of its calls, by the same thread; nothing was changed."""

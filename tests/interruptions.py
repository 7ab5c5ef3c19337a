"""Interrupt a call (as Ctrl+C does) at any line of chosen files."""

import signal
import sys
from contextlib import nullcontext

import numpy as np
import pytest


class InterruptError(BaseException):
    """Raised in place of a KeyboardInterrupt; not an Exception, so that no code catches it by accident."""


class InterruptAt:
    """Raises InterruptError at the n-th line that this thread executes in some files of the package.

    `files` are the ends of the paths of these files.
    """

    def __init__(self, n, files):
        self.n, self.is_raised, self._files = n, False, files

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def _trace(self, frame, event, _):
        if not frame.f_code.co_filename.endswith(self._files) or "/imondrian/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.n -= 1
            if self.n < 0 and not self.is_raised:
                self.is_raised = True
                raise InterruptError
        return self._trace


def interrupted(new, call, files, n_lines=40):
    """Yield objects made by `new` and interrupted in `call`, each at a different one of n_lines random lines.

    An object that is a context manager is closed afterwards.
    """
    counter = InterruptAt(sys.maxsize, files)
    with closed_afterwards(new()) as model, counter:
        call(model)
    n_executed = sys.maxsize - counter.n
    for n in np.random.default_rng(n_executed).permutation(n_executed)[:n_lines]:
        with closed_afterwards(new()) as model:
            with pytest.raises(InterruptError), InterruptAt(n, files):
                call(model)
            yield model


def ignore_alarms():
    """Ignore SIGALRM from now on; with the default handler, a signal that is still pending would end the process."""
    signal.signal(signal.SIGALRM, lambda *_: None)


def closed_afterwards(model):
    return model if hasattr(model, "__exit__") else nullcontext(model)

"""Turn signals that end a command into exceptions, so that temporary files are removed before it exits."""

import signal
import sys
import time

_SAME_EVENT_SECONDS = 1.0  # signals within this time count as one: a hangup, for example, arrives twice
_CHECK_SECONDS = 0.2  # between two checks whether Python has dropped the exception
_arrivals: list[tuple[float, int]] = []  # when the latest signal that was not ignored arrived, and its number


class Interrupted(BaseException):
    """Raised when a signal ends the program, so that cleanup code runs."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def raise_on_signals() -> None:
    """Make the signals that end a command raise `Interrupted`."""
    for number in ending_signals():
        signal.signal(number, _interrupt)


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end a command, without SIGHUP if that signal is ignored, as under nohup."""
    is_hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if is_hangup_ignored else [signal.SIGHUP])]


def raise_if_interrupted() -> None:
    """Raise `Interrupted` if a signal has arrived.

    Python drops exceptions in callbacks of weak references and in `__del__`, so a signal that arrives there, mostly
    while modules are imported, does not end the program at once.
    """
    if _arrivals:
        raise Interrupted(_arrivals[0][1])


def stop_raising() -> None:
    """Do not raise `Interrupted` again: it has been caught."""
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _interrupt(number: int, _frame: object) -> None:
    """Raise the exception, except for a signal that arrives together with another one.

    If Python drops the exception, a timer raises it again.
    """
    is_same = bool(_arrivals) and time.monotonic() - _arrivals[0][0] < _SAME_EVENT_SECONDS
    if not is_same:
        _arrivals[:] = [(time.monotonic(), number)]
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, _raise_if_dropped)
            signal.setitimer(signal.ITIMER_REAL, _CHECK_SECONDS, _CHECK_SECONDS)
        raise Interrupted(number)


def _raise_if_dropped(_number: int, _frame: object) -> None:
    """Raise the exception again, unless it is just being handled, as in code that removes temporary files."""
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, Interrupted):
            return
        error = error.__context__
    raise_if_interrupted()

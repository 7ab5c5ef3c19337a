"""Turn signals that end a command into exceptions, so that temporary files are removed before it exits."""

import signal
import time

_SAME_EVENT_SECONDS = 1.0  # signals within this time count as one: a hangup, for example, arrives twice
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

    Python drops exceptions in callbacks of weak references and in `__del__`. If a signal arrives while such code runs,
    which happens mostly while modules are imported, the exception is lost, so it is raised again here.
    """
    if _arrivals:
        raise Interrupted(_arrivals[0][1])


def _interrupt(number: int, _frame: object) -> None:
    """Raise `Interrupted`; ignore a signal that arrives less than a second after another one."""
    is_same = bool(_arrivals) and time.monotonic() - _arrivals[0][0] < _SAME_EVENT_SECONDS
    if not is_same:
        _arrivals[:] = [(time.monotonic(), number)]
        raise Interrupted(number)

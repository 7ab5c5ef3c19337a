"""Turn signals that end a command into exceptions, so that temporary files are removed before it exits."""

import signal
from typing import NoReturn


class Interrupted(BaseException):
    """A signal that ends the program; an exception, so that cleanup code runs."""

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


def _interrupt(number: int, _frame: object) -> NoReturn:
    """Raise the exception; ignore further signals during cleanup (a hangup, for example, arrives twice)."""
    for other in ending_signals():
        signal.signal(other, signal.SIG_IGN)
    raise Interrupted(number)

"""The signals that end a command: whatever it has begun is cleared away first."""

import signal
from typing import NoReturn


class Interrupted(BaseException):
    """A signal that ends the program; an exception, so that what was begun is cleared away."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def raise_on_signals() -> None:
    """Turn the signals that end a command into an exception."""
    for number in ending_signals():
        signal.signal(number, _interrupt)


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end a command; a closed terminal does not end one that was started by nohup."""
    is_hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if is_hangup_ignored else [signal.SIGHUP])]


def _interrupt(number: int, _frame: object) -> NoReturn:
    """Raise the exception; further signals must not disturb the clearing away, and some come twice (a hangup does)."""
    for other in ending_signals():
        signal.signal(other, signal.SIG_IGN)
    raise Interrupted(number)

"""`imondrian watch`: a stream in, the same stream out with scores, one line for one line."""

import signal
import sys

from imondrian.cli.console import Console, discard
from imondrian.cli.detectors import Keeper
from imondrian.cli.forests import checked_jobs
from imondrian.cli.outputs import check_place
from imondrian.cli.settings import Choice, Detecting, Source, Telling, Watching
from imondrian.cli.signals import ending_signals
from imondrian.cli.streams import Stream
from imondrian.cli.watcher import Watcher
from imondrian.errors import InvalidInputError

_GRACE = 3  # seconds that lines which nobody reads are waited for, once the stream is to end


def run(source: Source, choice: Choice, detecting: Detecting, watching: Watching, telling: Telling) -> bool:
    """Watch a stream until it ends or a signal comes; tell whether there were anomalies."""
    _check(source, watching)
    console = Console(telling, table="-")
    keeper = Keeper(watching, detecting, console)
    watcher = Watcher(keeper, choice, watching, console)
    stream = Stream(source, watching, keeper.place, console)
    with stream.opened():
        _end_by_signals(stream, watcher)
        try:
            for some in stream.batches():
                keeper.begin_batch(some.place_after)
                watcher.take(some.lines, some.parser)
                keeper.end_batch()
        except OSError as error:
            if not isinstance(error, BrokenPipeError) and not stream.is_stopped:
                raise
            discard(sys.stdout)  # nobody reads on, or the terminal was closed: nothing more can be said
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            keeper.save()
    watcher.sum_up()
    return watcher.n_anomalies > 0


def _check(source: Source, watching: Watching) -> None:
    check_place(watching.model, (".imf",))
    checked_jobs(watching.jobs)
    if watching.follow is not None and source.path != "-":
        raise InvalidInputError(f"Either {source.path} is read or {watching.follow} is followed, not both.")
    if watching.save_every is not None and watching.model is None:
        raise InvalidInputError("--save-every needs --model, the file to save in.")


def _end_by_signals(stream: Stream, watcher: Watcher) -> None:
    """Let a signal end the stream in order; a second SIGINT or SIGTERM ends the program at once.

    Lines that nobody reads do not hold it up. A hangup may be sent twice, by the system and by the shell.
    """

    def stop(number: int, _frame: object) -> None:
        if number != signal.SIGHUP:
            signal.signal(number, before[signal.Signals(number)])
        signal.setitimer(signal.ITIMER_REAL, _GRACE, _GRACE)
        stream.stop()

    def give_up(_number: int, _frame: object) -> None:
        if watcher.is_writing:
            raise BrokenPipeError

    before = {number: signal.getsignal(number) for number in ending_signals()}
    signal.signal(signal.SIGALRM, give_up)
    for number in before:
        signal.signal(number, stop)

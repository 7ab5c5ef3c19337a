"""`imondrian watch`: score and learn a stream, and write every row with its results, or only the incidents."""

import signal
import sys
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

from imondrian.base.errors import InvalidInputError
from imondrian.base.files import real_path
from imondrian.cli.console import Console, discard_output
from imondrian.cli.detector_settings import AlarmSettings
from imondrian.cli.option_checks import check_jobs, check_key_options, check_output_path, check_series_options
from imondrian.cli.options import (
    AlarmOptions,
    ConsoleOptions,
    DetectorOptions,
    FeatureOptions,
    IncidentOptions,
    SourceOptions,
    WatchOptions,
)
from imondrian.cli.signals import ending_signals
from imondrian.cli.watch.event_commands import EventCommands, parse_command
from imondrian.cli.watch.keyed_watcher import KeyedWatcher
from imondrian.cli.watch.stream_input import WatchInput
from imondrian.cli.watch.stream_output import WatchOutput
from imondrian.cli.watch.watch_detector import WatchDetector
from imondrian.cli.watch.watch_fleet import WatchFleet
from imondrian.cli.watch.watcher import Watcher

_WRITE_TIMEOUT = 3  # seconds that writing may still take after a signal


def watch(
    source_options: SourceOptions,
    feature_options: FeatureOptions,
    detector_options: DetectorOptions,
    alarm_options: AlarmOptions,
    incident_options: IncidentOptions,
    watch_options: WatchOptions,
    console_options: ConsoleOptions,
) -> bool:
    """Watch a stream until it ends or a signal arrives; return True if there were anomalies."""
    _check_options(source_options, watch_options, incident_options)
    check_key_options(detector_options, feature_options, incident_options, watch_options)
    check_series_options(detector_options, feature_options)
    console = Console(console_options, output="-")
    settings = AlarmSettings.of(alarm_options)
    commands = _commands(incident_options, console)
    output = WatchOutput(incident_options, commands)
    detector: WatchDetector | WatchFleet
    watcher: Watcher | KeyedWatcher
    if feature_options.by:
        detector = WatchFleet(watch_options, detector_options, feature_options.by, settings, console)
        watcher = KeyedWatcher(detector, output, feature_options, watch_options, console)
    else:
        detector = WatchDetector(watch_options, detector_options, settings, console)
        watcher = Watcher(detector, output, feature_options, incident_options, watch_options, console)
    stream = WatchInput(source_options, watch_options, detector.position, console)
    with closing(watcher):
        _run(watcher, detector, stream, output, commands)
        watcher.print_summary(commands)
    return watcher.counts.n_anomalies > 0


def _run(
    watcher: Watcher | KeyedWatcher,
    detector: WatchDetector | WatchFleet,
    stream: WatchInput,
    output: WatchOutput,
    commands: EventCommands | None,
) -> None:
    """Process the stream until it ends or a signal arrives; save the detector."""
    running: AbstractContextManager[Any] = nullcontext() if commands is None else commands
    with stream.open(), output.open():
        _stop_on_signals(stream, output, commands)
        try:
            with running:
                for batch in stream.batches():
                    watcher.process(batch)
                    if detector.is_save_due:
                        _wait_and_save(watcher, commands)
        except OSError as error:
            if not isinstance(error, BrokenPipeError) and not stream.is_stopped:
                raise
            discard_output(sys.stdout)  # the reader has closed the pipe, or the terminal was closed
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            watcher.save()


def _check_options(source: SourceOptions, options: WatchOptions, incidents: IncidentOptions) -> None:
    check_output_path(options.model, (".imf",))
    check_jobs(options.jobs)
    if options.follow is not None and source.path != "-":
        raise InvalidInputError(f"Either read {source.path} or follow {options.follow}, not both.")
    if options.save_every is not None and options.model is None:
        raise InvalidInputError("--save-every needs --model, the file to save to.")
    if incidents.scored is not None:
        _check_scored_file(incidents, (source.path, options.follow, options.model))


def _check_scored_file(incidents: IncidentOptions, others: tuple[str | None, ...]) -> None:
    path = incidents.scored or ""
    if not incidents.incidents:
        raise InvalidInputError("--scored needs --incidents; without it, the scored rows go to standard output.")
    check_output_path(path)
    if any(other not in (None, "-") and real_path(str(other)) == real_path(path) for other in others):
        raise InvalidInputError(f"{path} is also the input or the model: write the scored rows to another file.")


def _commands(options: IncidentOptions, console: Console) -> EventCommands | None:
    if options.exec is None:
        return None
    return EventCommands(parse_command(options.exec), options.exec_timeout, console)


def _wait_and_save(watcher: Watcher | KeyedWatcher, commands: EventCommands | None) -> None:
    """Save the detector after all pending commands: a run that resumes from the file does not repeat them."""
    if commands is not None:
        commands.wait()
    watcher.save()


def _stop_on_signals(stream: WatchInput, output: WatchOutput, commands: EventCommands | None) -> None:
    """Make a signal end the stream cleanly; a second SIGINT, or a second SIGTERM, ends the program immediately.

    Output that nobody reads delays the end by at most a few seconds. Pending commands together delay it by at most the
    timeout of one command. A hangup may arrive twice, from the system and from the shell; the second has no effect.
    """

    def stop(number: int, _frame: object) -> None:
        if number != signal.SIGHUP:
            signal.signal(number, earlier_handlers[signal.Signals(number)])
        signal.setitimer(signal.ITIMER_REAL, _WRITE_TIMEOUT, _WRITE_TIMEOUT)
        if commands is not None:
            commands.stop()
        stream.stop()

    def stop_writing(_number: int, _frame: object) -> None:
        if output.is_writing:
            raise BrokenPipeError

    earlier_handlers = {number: signal.getsignal(number) for number in ending_signals()}
    signal.signal(signal.SIGALRM, stop_writing)
    for number in earlier_handlers:
        signal.signal(number, stop)

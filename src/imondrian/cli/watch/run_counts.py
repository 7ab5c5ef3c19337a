"""What `imondrian watch` counts during a run, and the summary at its end."""

from imondrian.alarms.drift import Drift
from imondrian.base.defaults import SERIES
from imondrian.cli.watch.event_commands import EventCommands
from imondrian.cli.watch.incident_events import open_incident
from imondrian.cli.watch.silence import Silence
from imondrian.cli.watch.time_column import WatchTimes, times_in_words
from imondrian.fleet.fleet import Fleet
from imondrian.stream.detector import StreamDetector
from imondrian.stream.series_views import TimeCounts

_N_OPEN_SHOWN = 3  # largest number of open incidents that the summary of a fleet names


class WatchCounts:
    """Counts of this run; what a resumed detector counted before this run is subtracted."""

    def __init__(self, detector: StreamDetector | None, n_silences: int) -> None:
        self._n_drifts = 0 if detector is None else detector.n_drifts
        self._n_filled_before = 0 if detector is None else detector.n_missing
        self._n_incidents_before = 0 if detector is None else detector.n_incidents
        self._n_silences_before = n_silences
        self._times_before = time_counts_of(detector)
        self.n_rows = self.n_anomalies = self.n_errors = 0

    def new_drift(self, detector: StreamDetector | None) -> Drift | None:
        """Return the latest drift, if it has not been returned before."""
        if detector is None or detector.n_drifts == self._n_drifts:
            return None
        self._n_drifts = detector.n_drifts
        return detector.drifts[-1]

    def in_words(self, detector: StreamDetector | None, silence: Silence, commands: EventCommands | None) -> str:
        """Return the counts, such as "90 rows, 9 anomalies, 2 incidents; incident 1 has been open since row 80"."""
        n_incidents = 0 if detector is None else detector.n_incidents - self._n_incidents_before
        n_filled = 0 if detector is None else detector.n_missing - self._n_filled_before
        n_silences = silence.n_silences - self._n_silences_before
        counts = [
            _counted(self.n_rows, "row"),
            _counted(self.n_anomalies, "anomaly", "anomalies"),
            _counted(n_incidents, "incident"),
            _counted(n_silences, "silence") if n_silences else "",
            _counted(self.n_errors, "unusable row") if self.n_errors else "",
            f"{n_filled:,} missing numbers filled in" if n_filled else "",
            _failures(commands),
        ]
        latest = open_incident(detector)
        is_open = [
            "" if latest is None else f"incident {latest.number} has been open since row {latest.opened + 1:,}",
            f"silence {silence.n_silences - 1} has not ended" if silence.is_open else "",
        ]
        return "; ".join(filter(None, [", ".join(filter(None, counts)), *is_open]))

    def times_in_words(self, detector: StreamDetector | None, times: WatchTimes) -> str | None:
        """Return what was noticed about times; None if the detector does not use them."""
        now = time_counts_of(detector)
        return None if now is None else times_in_words(now, self._times_before, times)


class KeyedCounts:
    """Counts of this run with one detector per key; what a resumed fleet counted before this run is subtracted."""

    def __init__(self, fleet: Fleet | None) -> None:
        self._n_dropped_before = 0 if fleet is None else fleet.n_dropped
        self.n_rows = self.n_anomalies = self.n_incidents = self.n_errors = 0

    def in_words(self, fleet: Fleet | None, still_open: list[str], commands: EventCommands | None) -> str:
        """Return the counts, such as "90 rows of 3 keys, 9 anomalies, 2 incidents; still open: incident 1 of host 'a'".

        `still_open` are the open incidents in words.
        """
        n_keys = 0 if fleet is None else len(fleet)
        n_dropped = 0 if fleet is None else fleet.n_dropped - self._n_dropped_before
        counts = [
            f"{_counted(self.n_rows, 'row')} of {_counted(n_keys, 'key')}",
            _counted(self.n_anomalies, "anomaly", "anomalies"),
            _counted(self.n_incidents, "incident"),
            _counted(self.n_errors, "unusable row") if self.n_errors else "",
            _failures(commands),
        ]
        shown = still_open[:_N_OPEN_SHOWN]
        more = [f"{len(still_open) - len(shown):,} more"] if len(still_open) > len(shown) else []
        dropped = f"{_counted(n_dropped, 'key')} dropped to stay below --max-memory; --model would keep them"
        parts = [
            ", ".join(filter(None, counts)),
            f"still open: {', '.join(shown + more)}" if shown else "",
            dropped if n_dropped else "",
        ]
        return "; ".join(filter(None, parts))


def _failures(commands: EventCommands | None) -> str:
    if commands is None or not commands.n_events:
        return ""
    return f"{commands.n_failed:,} of {_counted(commands.n_events, 'command')} failed"


def time_counts_of(detector: StreamDetector | None) -> TimeCounts | None:
    """Return what the detector counted about times; None if there is no detector, or it does not use times."""
    return None if detector is None or detector.preset != SERIES else detector.time_counts


def _counted(n: int, singular: str, plural: str | None = None) -> str:
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"

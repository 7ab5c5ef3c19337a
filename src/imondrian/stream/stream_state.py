"""The state of a stream detector besides its forest: counters, threshold, drift monitor, incidents, gaps, names."""

from typing import Any, NamedTuple

import numpy as np

from imondrian.alarms.drift import Drift, DriftMonitor, restored_drift
from imondrian.alarms.incidents import NO_INCIDENT, Explain, IncidentEvent, IncidentTracker, LabelledRows
from imondrian.alarms.thresholds import SURPRISE, StreamingThreshold, stream_rule
from imondrian.base.copying import shallow_copy
from imondrian.base.defaults import PRESET, PRESETS
from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array, call_without_dispatch
from imondrian.engine.nodes import MAX_COUNT
from imondrian.engine.stream_counts import (
    N_DRIFTS,
    N_SCORED,
    N_SEEN,
    N_SHOWN,
    N_SKIPPED,
    Counted,
    WeightedScore,
    count_alarm,
    count_row,
)
from imondrian.forest.inputs import as_count
from imondrian.forest.samplers import Step
from imondrian.rows.named_rows import RowConverter
from imondrian.stream.series_views import SeriesViews
from imondrian.stream.shingles import Shingle
from imondrian.stream.stream_gaps import StreamGaps
from imondrian.stream.stream_rows import StreamRows

N_DRIFTS_STORED = 16
_DEFAULT_LEVEL = stream_rule(PRESETS[PRESET].threshold).value  # surprise of the default threshold


class BlockResults(NamedTuple):
    """The results of a block of rows, in their order."""

    score: Array
    is_anomaly: Array
    threshold: Array
    surprise: Array
    incident: Array  # number of the incident that is open after the row, or NO_INCIDENT


def empty_results(n_rows: int) -> BlockResults:
    """Return results for rows without a score: NaN, no anomaly, no incident; the thresholds are NaN too."""
    values = np.full((3, n_rows), np.nan)
    return BlockResults(values[0], np.zeros(n_rows, np.bool_), values[1], values[2], np.full(n_rows, NO_INCIDENT))


def joined_results(results: list[BlockResults]) -> BlockResults:
    """Return the results of consecutive blocks as one."""
    return results[0] if len(results) == 1 else BlockResults(*map(np.concatenate, zip(*results, strict=True)))


class StreamState:
    """Counters, threshold, drift monitor, incidents, missing numbers and feature names of a detector.

    A detector changes a copy and then replaces the old state by it, so that an interruption leaves either the old or
    the new state. `count_row` and `count_alarm` make all changes for one row in a single kernel call, which cannot be
    interrupted.

    Attributes
    ----------
    builder : Shingle or SeriesViews
        Turns rows into points of the forest.
    counts : int64 array
        Numbers of rows seen, rows skipped, points scored, drifts reported, and points shown to the forest.
    """

    def __init__(
        self,
        builder: Shingle | SeriesViews,
        gaps: StreamGaps,
        threshold: StreamingThreshold,
        incidents: IncidentTracker,
        window: int,
        warm_up: int,
    ) -> None:
        self.builder, self.gaps, self.threshold, self.monitor = builder, gaps, threshold, DriftMonitor()
        self.incidents = incidents
        self.names: list[Any] | None = None
        self.drifts: tuple[Drift, ...] = ()
        self.counts = np.zeros(5, np.int64)
        self._window, self._warm_up = window, warm_up

    def copy(self) -> "StreamState":
        """Return an independent copy."""
        other = shallow_copy(self)
        other.builder, other.threshold = self.builder.copy(), self.threshold.copy()
        other.monitor, other.counts = self.monitor.copy(), self.counts.copy()
        other.incidents = self.incidents.copy()
        return other

    def with_rows(self, rows: StreamRows, gaps: StreamGaps) -> "tuple[StreamState, Array]":
        """Return a state whose builder has processed the rows, and the points that the rows complete.

        The counters of the state do not include the rows yet. Missing numbers in the rows have already been replaced,
        and are recorded in `gaps`.
        """
        other = shallow_copy(self)
        other.builder, other.gaps, other.names = self.builder.copy(), gaps, rows.names
        return other, other.builder.points(rows.values, rows.times)

    @property
    def n_seen(self) -> int:
        """Number of rows so far."""
        return self.counts.item(N_SEEN)

    @property
    def n_skipped(self) -> int:
        """Number of rows skipped so far."""
        return self.counts.item(N_SKIPPED)

    @property
    def n_scored(self) -> int:
        """Number of points scored so far."""
        return self.counts.item(N_SCORED)

    @property
    def n_drifts(self) -> int:
        """Number of drifts reported so far."""
        return self.counts.item(N_DRIFTS)

    @property
    def n_shown(self) -> int:
        """Number of points that the forest was shown, as of the last recorded row."""
        return self.counts.item(N_SHOWN)

    @property
    def is_warm(self) -> bool:
        """Whether the warm-up is over, so that the next point can be labelled as an anomaly."""
        return self.n_scored >= self._warm_up

    @property
    def updates_threshold(self) -> bool:
        """Whether the next score counts for the threshold; scores in the first half of the warm-up do not."""
        return self.n_scored >= self._warm_up // 2

    @property
    def n_until_next_phase(self) -> int:
        """Number of points until the current half of the warm-up ends; MAX_COUNT after the warm-up."""
        distances = (end - self.n_scored for end in (self._warm_up // 2, self._warm_up))
        return min((n for n in distances if n > 0), default=MAX_COUNT)

    @property
    def n_bytes(self) -> int:
        """Memory used in bytes."""
        arrays = (self.threshold.histogram, self.monitor.present, self.monitor.before, self.monitor.moments)
        return sum(array.nbytes for array in arrays) + self.builder.n_bytes + self.gaps.n_bytes

    def check_growth(self, n_rows: int) -> int:
        """Return the number of rows so far; raise InvalidInputError if n_rows more cannot be counted."""
        n_seen = self.n_seen
        if n_seen + n_rows > MAX_COUNT:
            raise InvalidInputError(
                f"The detector has seen {n_seen} rows and can count at most {MAX_COUNT}; {n_rows} more are too many."
            )
        return n_seen

    def skip(self, n_rows: int) -> None:
        """Count unusable rows."""
        self.counts += np.array([n_rows, n_rows, 0, 0, 0])

    def results_of_skipped(self, n_rows: int) -> BlockResults:
        """Return the results of the next rows if they are skipped."""
        numbers = [self.incidents.number_at(self.n_seen + i) for i in range(n_rows)]
        threshold = np.full(n_rows, self.threshold.threshold)
        return empty_results(n_rows)._replace(threshold=threshold, incident=np.array(numbers, np.int64))

    def observe(self, scores: Array, steps: list[Step], explain: Explain) -> tuple[BlockResults, list[IncidentEvent]]:
        """Label and count scores that all belong to the same phase of the warm-up; find incidents."""
        is_warm = self.is_warm
        if self.updates_threshold:
            threshold, surprise = self.threshold.observe(scores)
        else:
            threshold, surprise = np.full(scores.size, self.threshold.threshold), self.threshold.surprise(scores)
        is_anomaly = (scores > threshold) & is_warm
        rows = LabelledRows(self.n_seen, is_anomaly, scores, surprise)
        incident, events = self.incidents.observe(rows, self.alarm_level, self.names, explain)
        self._update_monitor(scores, steps)
        self.counts[N_SEEN] += scores.size
        self.counts[N_SCORED] += scores.size
        return BlockResults(scores, is_anomaly, threshold, surprise, incident), events

    @property
    def alarm_level(self) -> float:
        """The surprise at the threshold or, if its rule is not based on surprise, at the default threshold."""
        rule = self.threshold.rule
        return rule.value if rule.name == SURPRISE else _DEFAULT_LEVEL

    def count_row(self, score: float, surprise: float) -> None:
        """Count the score of one row that the forest was shown; no `Step` (an update of the weights) may follow it.

        The row must neither be an alarm nor end a run of alarms.
        """
        call_without_dispatch(count_row, *self._counted(score, surprise))

    def count_alarm(self, score: float, surprise: float) -> None:
        """Like `count_row` for an alarm that only continues the open incident."""
        call_without_dispatch(count_alarm, *self._counted(score, surprise), self.incidents.run)

    def _counted(self, score: float, surprise: float) -> tuple[Counted, WeightedScore]:
        threshold = self.threshold
        counted = Counted(threshold.histogram, threshold.clock, self.monitor.present, self.counts)
        return counted, WeightedScore(score, surprise, threshold.growth, threshold.run_weight)

    def notes(self) -> dict[str, Any]:
        """Return the state in types that JSON supports."""
        return {
            "names": self.names,
            **self.builder.notes(),
            "gaps": self.gaps.state(self.n_shown),
            "threshold": self.threshold.state(),
            "incidents": self.incidents.state(),
            "monitor": self.monitor.state(),
            "drifts": [list(drift) for drift in self.drifts],
            "counts": self.counts[:N_SHOWN].tolist(),
        }

    def restore(self, notes: dict[str, Any], n_shown: int) -> None:
        """Restore the state that `notes` returned, for a forest that was shown n_shown points.

        The counts of the drift monitor are not compared with those of the forest: if the forest was built again, the
        counts of the monitor may be larger.

        Raises
        ------
        ValueError
            If the notes are invalid or contradict each other.
        """
        if notes["names"] is not None:
            self.names = RowConverter(self.gaps.n_features).checked_names(notes["names"])
        self.builder.restore(notes)
        if "gaps" in notes:  # older files have no gaps
            self.gaps = self.gaps.restored(notes["gaps"], n_shown)
        self.threshold.restore(notes["threshold"])
        self.monitor.restore(notes["monitor"])
        if len(notes["drifts"]) > N_DRIFTS_STORED:
            raise ValueError(f"there are {len(notes['drifts'])} drifts, but at most {N_DRIFTS_STORED} are stored.")
        self.drifts = tuple(restored_drift(*values) for values in notes["drifts"])
        counts = [as_count(count, "a count", 0, MAX_COUNT) for count in notes["counts"]]
        self.counts[:] = [*counts, n_shown]
        if "incidents" in notes:  # older files have no incidents
            self.incidents.restore(notes["incidents"], self.n_seen, self.gaps.n_features, self.builder.size)
        self._check_counts()

    def _check_counts(self) -> None:
        """Raise ValueError if the counts contradict each other."""
        if self.n_skipped + self.n_scored > self.n_seen or self.n_drifts < len(self.drifts):
            raise ValueError(f"the counts {self.counts[:N_SHOWN].tolist()} contradict each other.")
        if isinstance(self.builder, SeriesViews) and self.builder.n_irregular_times > self.n_seen:
            n_times = self.builder.n_irregular_times
            raise ValueError(f"{n_times} irregular times are counted, but only {self.n_seen} rows have been seen.")
        last = max([*self.monitor.began, *(drift.index for drift in self.drifts)])
        if last > self.n_seen:
            raise ValueError(f"row {last} is mentioned, but only {self.n_seen} have been seen.")

    def _update_monitor(self, scores: Array, steps: list[Step]) -> None:
        """Pass the scores to the drift monitor. A block is the rows between two steps (see `Step`) of a full window."""
        first = 0
        for step in steps:
            self.monitor.count(scores[first : step.n_rows])
            first, index = step.n_rows, self.n_seen + step.n_rows - 1
            if self.monitor.began[1] >= 0:
                self._report(self.monitor.close(step.n_taken, step.n_outside, index))
            elif self.n_scored + step.n_rows >= self._window:
                self.monitor.begin(step.n_taken, step.n_outside, index)
        self.monitor.count(scores[first:])

    def _report(self, drift: Drift | None) -> None:
        if drift is not None:
            self.drifts = (*self.drifts, drift)[-N_DRIFTS_STORED:]
            self.counts[N_DRIFTS] = min(self.counts[N_DRIFTS] + 1, MAX_COUNT)

"""The state of a fleet: the detectors of its keys, the common forest and the incidents, and how rows change them."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from imondrian.alarms.incidents import Explain, IncidentTracker
from imondrian.base.errors import DamagedFileError, StoreError
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_COUNT
from imondrian.engine.threads import Threads
from imondrian.fleet.block_scoring import Learning, alarm_level, score_and_label
from imondrian.fleet.blocks import KeyedBlock, Limits, block_end, plan_block
from imondrian.fleet.common_forest import CommonForest
from imondrian.fleet.common_state import CommonState
from imondrian.fleet.key_incidents import (
    IncidentChanges,
    IncidentSettings,
    LatestIncidents,
    alarm_explainer,
    incident_changes,
)
from imondrian.fleet.key_table import KeyTable
from imondrian.fleet.keys import Key
from imondrian.fleet.results import FleetResults, KeyEvent, joined
from imondrian.fleet.shards import DetectorSize, Shards
from imondrian.fleet.single_detectors import new_window, stream_detector, window_of
from imondrian.forest.feature_layout import FeatureLayout
from imondrian.forest.forest_parameters import checked_n_jobs, checked_scale
from imondrian.forest.inputs import as_count
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.forest.samplers import Window
from imondrian.forest.scales import new_scale
from imondrian.stream.alarm_reasons import longest_block
from imondrian.stream.detector import StreamDetector

_TRACKER_BYTES = 2048  # upper bound on the memory for the incidents of one key
SeedOf = Callable[[Key], int]


class Rows(NamedTuple):
    """Rows whose values have been checked."""

    keys: list[Key]
    X: Array
    names: list[Any] | None  # names of the features

    def part(self, first: int, end: int) -> "Rows":
        """Return the rows first, ..., end - 1."""
        return Rows(self.keys[first:end], self.X[first:end], self.names)


class _Outcome(NamedTuple):
    """The results of a block whose rows have been learned, and the changes that remain to be applied."""

    results: FleetResults
    changes: IncidentChanges


class Records(NamedTuple):
    """What a fleet records besides its keys; replaced as a whole: an interruption leaves the old or the new value."""

    n_rows: int = 0  # rows of all keys so far, including skipped ones
    names: list[Any] | None = None  # names of the features
    events: tuple[KeyEvent, ...] = ()  # of the last call
    observed: Mapping[Key, IncidentTracker] = MappingProxyType({})  # trackers that the last call updated
    # a block that has not begun; keys may have been dropped to make room for it, so it must be completed
    arriving: Rows | None = None
    pending: KeyedBlock | None = None  # a block that has begun
    outcome: _Outcome | None = None  # of the pending block, after its rows have been learned
    forgetting: tuple[Key, ...] = ()  # keys that are being forgotten


class FleetState:
    """The detectors of the keys of a fleet, its common forest, and its incidents.

    A call that is interrupted, for example by Ctrl+C, leaves `is_settled` False; then `settle` finishes its work. The
    seeds of keys are an argument, `seed_of`, because a reference to the fleet would create a reference cycle.

    Parameters
    ----------
    parameters : dict
        The checked parameters of the detectors. The attribute is replaced when the threshold or the rules are changed.
    max_bytes : int or None
        As in `Fleet`.
    keys_per_shard : int
        As in `Fleet`.
    borrow : bool
        As in `Fleet`.

    Attributes
    ----------
    bytes_per_key : int
        Memory of one key.
    table : KeyTable
    records : Records
    incidents : LatestIncidents
    """

    def __init__(self, parameters: dict[str, Any], max_bytes: Any, keys_per_shard: int, *, borrow: bool) -> None:
        self.parameters, self._borrows = parameters, borrow
        window = new_window(parameters)
        size = DetectorSize(parameters["n_features"], parameters["n_trees"], parameters["window"], window.limit)
        scale = new_scale(checked_scale(parameters["scale"]), FeatureLayout.checked(parameters["n_features"], ()))
        self._learning = Learning(window.selection, parameters["n_features"] if scale.is_adaptive else 0)
        self.bytes_per_key = size.n_bytes + _TRACKER_BYTES
        max_keys = MAX_COUNT
        if max_bytes is not None:
            max_keys = as_count(max_bytes, "max_bytes", self.bytes_per_key, 2**62) // self.bytes_per_key
        self.table = KeyTable(Shards(size, scale.weights(), min(max_keys, keys_per_shard)), parameters, max_keys)
        self._threads = Threads(checked_n_jobs(parameters["n_jobs"]))
        self._common = CommonForest(
            parameters["n_features"], parameters["kind"], parameters["threshold"], parameters["seed"]
        )
        self.records = Records()
        self.incidents = LatestIncidents()

    # -- interruptions ------------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """True unless an interrupted call has left work to finish."""
        records = self.records
        is_complete = records.arriving is None and records.pending is None and not records.forgetting
        return is_complete and self.table.is_settled and not self._threads.running

    def settle(self, seed_of: SeedOf) -> None:
        """Finish the work of an interrupted call."""
        self._threads.wait_for_running_tasks()
        if self.records.arriving is not None:
            self.table.resume()
            self._begin(self.records.arriving, seed_of)
        if self.records.pending is not None:
            self.table.begin_block()
            self._complete(self.records.pending, seed_of)
        self.table.settle()
        if self.records.forgetting:
            self._finish_forgetting()

    # -- rows ---------------------------------------------------------------------------------------------------------

    def begin_call(self) -> None:
        """Forget the events of the last call."""
        self.records = self.records._replace(events=(), observed={})

    def process(self, rows: Rows, seed_of: SeedOf) -> FleetResults:
        """Process rows, block by block; if the store fails, the error has the results of the complete blocks."""
        results, first, table = list[FleetResults](), 0, self.table
        limits = Limits(table.max_keys, longest_block(self.parameters["window"]), table.store is None)
        while first < len(rows.keys):
            end = block_end(rows.keys, first, table.entries, limits)
            try:
                results.append(self._process_block(rows.part(first, end), seed_of))
            except (StoreError, DamagedFileError) as error:
                error.results = joined(results)
                raise
            first = end
        return joined(results)

    def _process_block(self, rows: Rows, seed_of: SeedOf) -> FleetResults:
        """Process the rows of one block."""
        if self.table.store is None:  # dropped keys cannot be restored, so the block is completed if it is interrupted
            self.records = self.records._replace(arriving=rows)
        return self._complete(self._begin(rows, seed_of), seed_of)

    def _begin(self, rows: Rows, seed_of: SeedOf) -> KeyedBlock:
        """Move the keys of a block to memory, and plan the block; from then on, an interrupted block is completed."""
        try:
            entries = self.table.entries_of(rows.keys, seed_of)
            block = plan_block(rows.keys, entries, rows.X, self.table.shards, self.records.n_rows)
        except Exception:
            self.records = self.records._replace(arriving=None)
            raise
        self._common.begin_block()
        self.records = self.records._replace(names=rows.names, arriving=None, pending=block)
        self.table.begin_block()
        return block

    def _complete(self, block: KeyedBlock, seed_of: SeedOf) -> FleetResults:
        """Process a planned block; can be repeated after an interruption: nothing is learned or counted twice."""
        outcome = self.records.outcome
        if outcome is None:
            outcome = self._learn(block, seed_of)
            self.records = self.records._replace(outcome=outcome)
        self.table.trackers.update(outcome.changes.trackers)
        self.incidents.apply(outcome.changes)
        self.records = self.records._replace(
            n_rows=block.number + len(block.keys),
            events=(*self.records.events, *outcome.changes.events),
            observed={**self.records.observed, **outcome.changes.trackers},
            pending=None,
            outcome=None,
        )
        return outcome.results

    def _learn(self, block: KeyedBlock, seed_of: SeedOf) -> _Outcome:
        """Score, learn and label the rows of a block."""
        self.table.mark_changed(block.keys)
        self._threads.run([partial(self._learn_part, index, block) for index in block.parts])
        is_borrowed = np.zeros(len(block.keys), np.bool_)
        if self._borrows:
            is_borrowed = self._common.process(block, self.parameters["warm_up"], self.parameters["window"])
        level = alarm_level(self.parameters["threshold"])
        settings = IncidentSettings(self.parameters["rules"], level, self.records.names)
        changes = incident_changes(block, self.table.trackers, settings, partial(self._explainer, block, seed_of))
        results = FleetResults(
            score=block.scores,
            is_anomaly=block.labels.are_anomalies,
            threshold=block.labels.thresholds,
            index=block.indices(),
            surprise=block.labels.surprises,
            incident=changes.open_numbers,
            is_borrowed=is_borrowed,
        )
        return _Outcome(results, changes)

    def _learn_part(self, index: int, block: KeyedBlock) -> None:
        """Score, learn and label the rows of one shard."""
        shard = self.table.shards.shard(index)
        score_and_label(shard, block.parts[index], block.labels, self._learning, self.parameters)

    def _explainer(self, block: KeyedBlock, seed_of: SeedOf, i: int) -> Explain:
        """Return a function that explains the alarms of key i of a block."""

        def prepare() -> tuple[dict[str, Any], Window]:
            detector = self.table.shards.detector(int(block.used[i]))
            parameters = self.parameters | {"seed": seed_of(block.key_of(i))}
            return parameters, window_of(detector, parameters)

        return alarm_explainer(block, i, prepare)

    # -- keys and settings --------------------------------------------------------------------------------------------

    def detector(self, key: Key, seed: int) -> StreamDetector:
        """Return an independent `StreamDetector` that continues like the detector of a key, whose seed is given."""
        parameters = self.parameters | {"seed": seed}
        has_moments = self._learning.n_scaled > 0
        return stream_detector(self.table.state_of(key), parameters, self.records.names, has_moments=has_moments)

    def forget(self, keys: Iterable[Key]) -> None:
        """Forget keys; an interrupted call is completed."""
        self.records = self.records._replace(forgetting=tuple(keys))
        self._finish_forgetting()

    def _finish_forgetting(self) -> None:
        for key in self.records.forgetting:
            self.table.forget(key)
        self.incidents.forget(self.records.forgetting)
        self.records = self.records._replace(forgetting=())

    def use_threshold(self, threshold: float | str) -> None:
        """Use another threshold from now on."""
        self._common.use_threshold(threshold)
        self.parameters = self.parameters | {"threshold": threshold}

    # -- saving -------------------------------------------------------------------------------------------------------

    def common_state(self, parameters: dict[str, Any], extra: dict[str, Any]) -> CommonState:
        """Return everything but the keys, with these parameters and extra values, which must be JSON values."""
        return CommonState(
            parameters=parameters,
            borrow=self._borrows,
            n_rows=self.records.n_rows,
            n_dropped=self.table.n_dropped,
            names=self.records.names,
            incidents=list(self.incidents),
            extra=extra,
            forest=self._common.to_bytes(),
        )

    def restore(self, saved: CommonState, forest: MondrianForest, notes: dict[str, Any]) -> None:
        """Restore a common state, and its common forest with its notes; raise DamagedFileError if it is damaged."""
        self.records, self.table.n_dropped = Records(saved.n_rows, saved.names), saved.n_dropped
        self.incidents = LatestIncidents(saved.incidents)
        self._common.restore(forest, notes, saved.n_rows)

"""`Fleet`: one detector per key, for many keys, in bounded memory."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from imondrian.alarms.incidents import NO_INCIDENT, Explain, IncidentRules, IncidentTracker, checked_rules
from imondrian.base.defaults import (
    KEYED_MAX_SAMPLES,
    KEYED_N_TREES,
    KEYED_WINDOW,
    N_JOBS,
    PRESET,
    SEED,
    SERIES,
    resolved_for_stream,
    with_stream_preset,
)
from imondrian.base.errors import DamagedFileError, InvalidInputError, NothingSavedError, StoreError
from imondrian.base.files import real_path
from imondrian.base.locking import new_locks, read_locked, write_locked
from imondrian.base.option_types import KindOrPreset, OnError, PresetName, ScaleOrPreset, ThresholdOrPreset
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_COUNT
from imondrian.engine.threads import Threads
from imondrian.fleet import common_forest, common_state
from imondrian.fleet.blocks import KeyedBlock, Limits, block_end, plan_block
from imondrian.fleet.common_forest import CommonForest
from imondrian.fleet.common_state import CommonState
from imondrian.fleet.key_incidents import (
    AlarmSettings,
    IncidentChanges,
    LatestIncidents,
    alarm_explainer,
    incident_changes,
)
from imondrian.fleet.key_store import KeyStore, new_store, save_copy, stored_bytes
from imondrian.fleet.key_table import KeyTable
from imondrian.fleet.keys import Key, checked_key, checked_keys, encoded_key
from imondrian.fleet.results import FleetResult, FleetResults, KeyAlarms, KeyChanges, KeyEvent, KeyIncident, joined
from imondrian.fleet.scoring import Learning, alarm_level, score_and_label
from imondrian.fleet.shards import DetectorSize, Shards
from imondrian.fleet.single_detectors import new_window, stream_detector, window_of
from imondrian.forest.feature_layout import FeatureLayout
from imondrian.forest.forest_parameters import checked_n_jobs, checked_scale
from imondrian.forest.inputs import as_count, unchanged
from imondrian.forest.samplers import Window
from imondrian.forest.scales import new_scale
from imondrian.rows.named_rows import RowConverter, has_length, rows_in_memory
from imondrian.stream.alarm_reasons import longest_block
from imondrian.stream.detector import StreamDetector
from imondrian.stream.stream_parameters import check_rules_match, checked_parameters, checked_threshold

_TRACKER_BYTES = 2048  # upper bound of the memory for the incidents of one key
_FIXED_SETTINGS: dict[str, Any] = {"learn_anomalies": True, "shingle": 1, "categorical": (), "missing": "raise"}


class _Rows(NamedTuple):
    """Rows of a block."""

    keys: list[Key]
    X: Array
    names: list[Any] | None  # names of the features


class _Outcome(NamedTuple):
    """The results of a block whose rows have been learned, and the changes that remain to be applied."""

    results: FleetResults
    changes: IncidentChanges


class _Records(NamedTuple):
    """What a fleet records besides its keys; replaced as a whole: an interruption leaves the old or the new value."""

    n_rows: int = 0  # rows of all keys so far, including skipped ones
    names: list[Any] | None = None  # names of the features
    events: tuple[KeyEvent, ...] = ()  # of the last call
    observed: Mapping[Key, IncidentTracker] = MappingProxyType({})  # trackers that the last call updated
    arriving: _Rows | None = None  # a block that has not begun, but may have dropped keys, so it must be completed
    pending: KeyedBlock | None = None  # a block that has begun
    outcome: _Outcome | None = None  # of the pending block, after its rows have been learned
    forgetting: tuple[Key, ...] = ()  # keys that are being forgotten


class Fleet:
    """Anomaly detection on many streams: one small detector per key, in shared tables and bounded memory.

    A key gets a detector with its first row. The results for a key are those of a `StreamDetector` with the same
    settings and the seed `seed_of(key)`, bit for bit, however the rows are divided into calls. Rows that the common
    forest scores (`is_borrowed`) are the exception.

    Parameters
    ----------
    n_features : int
        Number of values in a row.
    n_trees : int, default=24
        Number of trees per key.
    window : int, default=256
        Number of latest rows that a key's forest holds.
    max_samples : int or None, default=64
        Approximate number of rows of the window that a tree holds; None: all of them.
    threshold : float or str, default="preset"
        Which rows are anomalies; see `StreamDetector`. The attribute can be set at any time.
    preset : "practice" or "paper", default="practice"
        Values of `kind`, `scale` and `threshold`; see `StreamDetector`.
    kind : "preset", "depth", "expected" or "size", default="preset"
        Which score to use; see `MondrianForest.score`.
    scale : "preset", None, "std" or one weight per feature, default="preset"
        Weights of the features; see `MondrianForest`.
    seed : int, default=0
        The seed of a key is a hash of this seed and the key.
    warm_up : int, optional
        Number of rows of a key that are learned before its own detector labels any as an anomaly. By default an eighth
        of the window.
    borrow : bool, default=True
        Whether rows of a key that has not warmed up are scored by a forest common to all keys. This begins when that
        forest has learned 256 rows and the key has had 16 rows. The common forest sees how far a row is from the mean
        of its key, in standard deviations. In these results, `is_borrowed` is True.
    on_error : "raise" or "skip", default="raise"
        What to do with an unusable row (not finite, not a number, wrong width): raise an InvalidInputError, in which
        case no row of the call is processed, or count it and return the score NaN.
    rules : IncidentRules or dict, optional
        Which alarms form an incident. The attribute can be set at any time.
    max_bytes : int, optional
        Upper bound on the memory for detectors; the text of the keys is not counted. When it is reached, the least
        recently used keys move to the store, and come back unchanged with their next row. Without a store they are
        dropped, and counted in `n_dropped`; a dropped key starts again like a new one. By default there is no bound.
    store : str or path, optional
        A new file for keys that do not fit in memory, and for `save`.
    n_jobs : int, default=1
        Number of threads for `process_many`; results do not depend on it.

    Attributes
    ----------
    n_rows : int
        Number of rows of all keys so far, including skipped ones.
    n_dropped : int
        Number of keys that were dropped because there was no memory and no store for them.
    bytes_per_key : int
        Memory of one key.
    extra : dict
        JSON values of the caller, which are saved with the fleet.
    keys_per_shard : int
        Number of keys for which memory is allocated at a time, 256; a subclass with few keys can set a smaller number.

    Notes
    -----
    A fleet may be used from several threads: a call that changes it runs alone. If a call is interrupted (Ctrl+C), or
    the store fails, the fleet has processed some rows of the call, from the first on; `n_rows` counts these, not the
    rest. If the store fails, the StoreError (or DamagedFileError, if a key in the store is damaged) has the results of
    these rows in `results`, and the call can be repeated with the other rows. A fleet with a store cannot be used in a
    forked process.

    Examples
    --------
    >>> import numpy as np
    >>> from imondrian import Fleet
    >>> hosts = [f"host{i % 50}" for i in range(10_000)]
    >>> X = np.random.default_rng(0).normal(size=(10_000, 1))
    >>> fleet = Fleet(n_features=1)
    >>> results = fleet.process_many(hosts, X)
    >>> result = fleet.process("host7", [9.0])
    >>> result.is_anomaly, result.index, len(fleet)
    (True, 200, 50)
    >>> fleet.incidents[-1].key
    'host7'
    """

    keys_per_shard = 256

    def __init__(  # noqa: PLR0913
        self,
        n_features: int,
        *,
        n_trees: int = KEYED_N_TREES,
        window: int = KEYED_WINDOW,
        max_samples: int | None = KEYED_MAX_SAMPLES,
        threshold: ThresholdOrPreset = "preset",
        preset: PresetName = PRESET,
        kind: KindOrPreset = "preset",
        scale: ScaleOrPreset = "preset",
        seed: int = SEED,
        warm_up: int | None = None,
        borrow: bool = True,
        on_error: OnError = "raise",
        rules: IncidentRules | dict[str, Any] | None = None,
        max_bytes: int | None = None,
        store: str | os.PathLike[str] | None = None,
        n_jobs: int = N_JOBS,
    ) -> None:
        settings = {
            "n_features": n_features,
            "n_trees": n_trees,
            "window": window,
            "max_samples": max_samples,
            "threshold": threshold,
            "preset": preset,
            "kind": kind,
            "scale": scale,
            "seed": seed,
            "warm_up": warm_up,
            "on_error": on_error,
            "rules": IncidentRules() if rules is None else rules,
            "n_jobs": n_jobs,
        }
        self._set(settings, borrow=borrow, max_bytes=max_bytes)
        if store is not None:
            self._table.store = new_store(store)

    def _set(self, settings: dict[str, Any], *, borrow: Any, max_bytes: Any) -> None:
        """Check the settings and initialize a fleet without keys."""
        if isinstance(settings["preset"], str) and settings["preset"] == SERIES:
            raise InvalidInputError("A fleet has no preset 'series': its memory per key would be too large.")
        self._parameters = checked_parameters(**with_stream_preset(settings | _FIXED_SETTINGS))
        self._borrows = _checked_bool(borrow, "borrow")
        parameters = self._parameters
        window = new_window(parameters)
        size = DetectorSize(parameters["n_features"], parameters["n_trees"], parameters["window"], window.limit)
        scale = new_scale(checked_scale(parameters["scale"]), FeatureLayout.checked(parameters["n_features"], ()))
        self._learning = Learning(window.selection, parameters["n_features"] if scale.is_adaptive else 0)
        self.bytes_per_key = size.n_bytes + _TRACKER_BYTES
        max_keys = MAX_COUNT
        if max_bytes is not None:
            max_keys = as_count(max_bytes, "max_bytes", self.bytes_per_key, 2**62) // self.bytes_per_key
        self._table = KeyTable(Shards(size, scale.weights(), min(max_keys, self.keys_per_shard)), parameters, max_keys)
        self._threads, self._locks = Threads(checked_n_jobs(parameters["n_jobs"])), new_locks()
        self._common = CommonForest(
            parameters["n_features"], parameters["kind"], parameters["threshold"], parameters["seed"]
        )
        self._records = _Records()
        self._incidents = LatestIncidents()
        self._is_closed = False
        self._extra = "{}"  # as JSON text

    # -- attributes ---------------------------------------------------------------------------------------------------

    @property
    def parameters(self) -> dict[str, Any]:
        """The settings of the detectors, with every value "preset" replaced by the value from the preset."""
        return {name: value for name, value in self._parameters.items() if name not in _FIXED_SETTINGS}

    @property
    @read_locked
    def n_rows(self) -> int:
        """Number of rows of all keys so far, including skipped ones."""
        return self._records.n_rows

    @property
    @read_locked
    def n_bytes(self) -> int:
        """Memory of the detectors in use, in bytes."""
        return len(self._table.entries) * self.bytes_per_key

    @property
    @read_locked
    def n_dropped(self) -> int:
        """Number of keys that were dropped because there was no memory and no store for them."""
        return self._table.n_dropped

    @property
    @read_locked
    def feature_names(self) -> list[Any] | None:
        """The names of the features, once a dictionary or a data frame has named them."""
        return None if self._records.names is None else list(self._records.names)

    @property
    @read_locked
    def incidents(self) -> tuple[KeyIncident, ...]:
        """The latest incidents of all keys, at most 1,024, in the order of opening."""
        return tuple(self._incidents)

    @property
    @read_locked
    def events(self) -> tuple[KeyEvent, ...]:
        """The incidents that opened or closed in the last call of `process` or `process_many`."""
        return self._records.events

    @property
    @read_locked
    def latest_alarms(self) -> tuple[KeyAlarms, ...]:
        """The open incident and the latest alarms of each key that had an alarm in the last call, or shortly before it.

        Only keys with rows in the last call of `process` or `process_many` are included. Unlike `incidents`, which has
        only the latest 1,024, this has no limit.
        """
        return tuple(KeyAlarms(key, each.open, each.alarm_rows) for key, each in self._records.observed.items())

    @write_locked
    def keys(self) -> list[Key]:
        """Return all keys, in memory and in the store: integers first, then text, both in ascending order."""
        self._check_is_open()
        return sorted(self._table.keys(), key=lambda key: (isinstance(key, str), key))

    @write_locked
    def __len__(self) -> int:
        self._check_is_open()
        return len(self._table.keys())

    @write_locked
    def __contains__(self, key: Any) -> bool:
        self._check_is_open()
        return checked_key(key) in self._table

    def __iter__(self) -> Iterator[Key]:
        return iter(self.keys())

    def seed_of(self, key: Key) -> int:
        """Return the seed of a key's detector: a hash of the key and the seed of the fleet."""
        salt = self._parameters["seed"].to_bytes(8, "little")
        return int.from_bytes(blake2b(encoded_key(checked_key(key)), digest_size=8, key=salt).digest(), "little")

    @property
    @read_locked
    def threshold(self) -> float | str:
        """Which rows are anomalies; see the parameter. Setting it does not change what the detectors have learned."""
        threshold: float | str = self._parameters["threshold"]
        return threshold

    @threshold.setter
    @write_locked
    def threshold(self, threshold: float | str) -> None:
        preset = self._parameters["preset"]
        checked = checked_threshold(resolved_for_stream(threshold, "threshold", preset), preset)
        self._common.use_threshold(checked)
        self._parameters = self._parameters | {"threshold": checked}

    @property
    @read_locked
    def rules(self) -> IncidentRules:
        """The rules for incidents. Setting them does not change what the detectors have learned."""
        rules: IncidentRules = self._parameters["rules"]
        return rules

    @rules.setter
    @write_locked
    def rules(self, rules: IncidentRules | dict[str, Any]) -> None:
        checked = checked_rules(rules)
        if self._records.names is not None:
            check_rules_match(checked, self._parameters["n_features"], self._records.names)
        self._parameters = self._parameters | {"rules": checked}

    @property
    @read_locked
    def extra(self) -> dict[str, Any]:
        """JSON values of the caller, which are saved with the fleet and restored by `load`; empty by default.

        The attribute is a dictionary. Reading it returns a copy: to change the values, set the attribute.
        """
        extra: dict[str, Any] = json.loads(self._extra)
        return extra

    @extra.setter
    @write_locked
    def extra(self, extra: dict[str, Any]) -> None:
        if not isinstance(extra, dict):
            raise InvalidInputError(f"extra must be a dictionary, but is {extra!r:.200}.")
        try:
            self._extra = json.dumps(extra)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInputError(f"extra must have values that JSON supports: {str(error)[:200]}.") from None

    # -- rows ---------------------------------------------------------------------------------------------------------

    def process(self, key: Key, x: Any) -> FleetResult:
        """Score one row of a key, label it, then learn it.

        Parameters
        ----------
        key : str or int
        x : array of shape (n_features,), dictionary, or a number if there is one feature

        Returns
        -------
        FleetResult
        """
        row = x if hasattr(x, "keys") else np.atleast_1d(np.asarray(x))
        results = self.process_many([key], [row])
        values = {name: column[0].item() for name, column in results._asdict().items()}
        return FleetResult(**values | {"incident": None if values["incident"] == NO_INCIDENT else values["incident"]})

    def process_many(self, keys: Iterable[Key], X: Any) -> FleetResults:
        """Process rows of many keys in their order. Results are those of `process`, bit for bit, in less time.

        Parameters
        ----------
        keys : sequence of n_rows keys
            Text or integers.
        X : array of shape (n_rows, n_features), data frame (pandas, polars), or iterable of rows or dictionaries

        Returns
        -------
        FleetResults
            Arrays with one item per row. With ``on_error="raise"``, no row is processed if any row is unusable.
        """
        return self._process_rows(checked_keys(keys), rows_in_memory(X))

    @write_locked
    def _process_rows(self, keys: list[Key], X: Any) -> FleetResults:
        self._records = self._records._replace(events=(), observed={})
        self._check_is_open()
        points, names = self._points(keys, X)
        results, first, table = list[FleetResults](), 0, self._table
        limits = Limits(table.max_keys, longest_block(self._parameters["window"]), table.store is None)
        while first < len(keys):
            end = block_end(keys, first, table.entries, limits)
            try:
                results.append(self._process_block(_Rows(keys[first:end], points[first:end], names)))
            except (StoreError, DamagedFileError) as error:
                error.results = joined(results)
                raise
            first = end
        return joined(results)

    def spill_bytes(self, keys: Iterable[Key]) -> int:
        """Return how much disk space the store needs, at most, if rows of these keys are processed next.

        The space is for keys that leave memory. This method does not wait for a call in another thread: the result
        reflects the keys that are in memory at the moment.
        """
        table, needed = self._table, set(keys)
        n_in_memory = len(table.entries)
        n_missing = sum(key not in table.entries for key in needed)
        if table.store is None or n_in_memory + n_missing <= table.max_keys:
            return 0
        n_leaving = len(needed) if len(needed) <= table.max_keys else n_in_memory + n_missing
        return max(n_leaving * stored_bytes(self.bytes_per_key) - table.store.unused_bytes, 0)

    @write_locked
    def forget(self, key: Key) -> Self:
        """Forget a key and its detector, but not what the common forest has learned from its rows.

        Raises
        ------
        InvalidInputError
            If there is no such key.
        """
        key = checked_key(key)
        self._check_is_open()
        if key not in self._table:
            raise InvalidInputError(f"There is no key {key!r:.200}.")
        self._records = self._records._replace(forgetting=(key,))
        self._finish_forgetting()
        return self

    @write_locked
    def forget_all(self) -> Self:
        """Forget all keys, but not what the common forest has learned. Their memory is used for later keys."""
        self._check_is_open()
        self._records = self._records._replace(forgetting=tuple(self._table.keys()))
        self._finish_forgetting()
        return self

    @write_locked
    def n_rows_of(self, key: Key) -> int:
        """Return the number of rows of a key so far; raise InvalidInputError if there is no such key."""
        self._check_is_open()
        return int(self._table.state_of(checked_key(key)).detector.counts[0]["n_seen"])

    @write_locked
    def detector(self, key: Key) -> StreamDetector:
        """Return an independent `StreamDetector` that continues like the detector of a key.

        Its drift monitor starts with the next row, because a fleet does not monitor drift.
        """
        self._check_is_open()
        state = self._table.state_of(checked_key(key))
        parameters = self._parameters | {"seed": self.seed_of(key)}
        return stream_detector(state, parameters, self._records.names, has_moments=self._learning.n_scaled > 0)

    def explain(self, key: Key, x: Any) -> dict[Any, float]:
        """Divide the score of a row among its features, as if it were the next row of a key.

        See `StreamDetector.explain`.
        """
        return self.detector(key).explain(x)

    # -- saving -------------------------------------------------------------------------------------------------------

    @write_locked
    def save(self, path: str | os.PathLike[str] | None = None) -> None:
        """Save the fleet in its store, or in another file.

        Parameters
        ----------
        path : str or path, optional
            By default the store, to which only the keys that have changed are written.

        Raises
        ------
        StoreError
            If the file cannot be written, or if it is the store of another fleet that is open.
        """
        self._check_is_open()
        store = self._table.store
        if path is not None and (store is None or real_path(path) != store.path):
            save_copy(path, self._common_state(), self._table.states(self._table.keys()))
        elif store is None:
            raise InvalidInputError("The fleet has no store: give a path.")
        else:
            changed = sorted(self._table.changed, key=repr)
            store.save(self._common_state(), self._table.states(changed))
            self._table.changed.clear()

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, max_bytes: int | None = None, n_jobs: int = N_JOBS) -> Self:
        """Open a saved fleet. The file becomes its store, from which keys are read when they are needed.

        Parameters
        ----------
        path : str or path
        max_bytes : int, optional
            As in the constructor.
        n_jobs : int, default=1
            As in the constructor.

        Raises
        ------
        DamagedFileError
            If the file is damaged or not the store of a fleet.
        StoreError
            If the file cannot be opened, for example because another process is using it.
        """
        if not Path(path).exists():
            raise FileNotFoundError(f"There is no file {os.fspath(path)!r}.")
        n_jobs = checked_n_jobs(n_jobs)
        fleet, store = cls.__new__(cls), KeyStore(path)
        try:
            store.open()
            state = store.common_state()
            if state is None:
                raise NothingSavedError(f"{os.fspath(path)}: no fleet was saved there.")  # noqa: TRY301
            fleet._restore(state, max_bytes, n_jobs, os.fspath(path))  # noqa: SLF001
            fleet._table.store = store  # noqa: SLF001
            return fleet  # noqa: TRY300 (inside, so that an interruption closes the store)
        except BaseException:
            store.close()
            raise

    # -- embedding ----------------------------------------------------------------------------------------------------

    @write_locked
    def pack_common(self) -> bytes:
        """Return everything but the keys as bytes: parameters, counts, latest incidents, common forest, `extra`.

        This and the following methods are for programs that save a fleet in a storage of their own, such as a service.
        `Fleet.unpack_common`, and then `unpack_key` for every key, restore a fleet that continues like this one, bit
        for bit.
        """
        self._check_is_open()
        return common_state.to_bytes(self._common_state())

    @classmethod
    def unpack_common(
        cls,
        content: bytes,
        *,
        max_bytes: int | None = None,
        store: str | os.PathLike[str] | None = None,
        n_jobs: int = N_JOBS,
    ) -> Self:
        """Return a fleet without keys, with the state that `pack_common` has returned.

        Parameters
        ----------
        content : bytes
        max_bytes : int, optional
            As in the constructor.
        store : str or path, optional
            As in the constructor: a new file.
        n_jobs : int, default=1
            As in the constructor.

        Raises
        ------
        DamagedFileError
            If the bytes are damaged.
        """
        fleet, n_jobs, source = cls.__new__(cls), checked_n_jobs(n_jobs), "The common state of the fleet is damaged"
        fleet._restore(common_state.from_bytes(content, source), max_bytes, n_jobs, source)  # noqa: SLF001
        if store is not None:
            fleet._table.store = new_store(store)  # noqa: SLF001
        return fleet

    @write_locked
    def pack_key(self, key: Key) -> bytes:
        """Return the state of a key as bytes; raise InvalidInputError if there is no such key.

        There are fewer bytes than the key takes in memory, because parts of the state can be computed from the rest.
        The first 16 bytes are a digest: states with equal digests are equal.
        """
        self._check_is_open()
        return self._table.packed(checked_key(key))

    @write_locked
    def unpack_key(self, key: Key, content: bytes) -> None:
        """Add a key with the state that `pack_key` has returned, for this fleet or one with the same parameters.

        If there is no memory for the key, the least recently used one moves to the store or is dropped. The added key
        counts as the most recently used one.

        Parameters
        ----------
        key : str or int
            A key that the fleet does not have.
        content : bytes

        Raises
        ------
        InvalidInputError
            If the fleet has the key already.
        DamagedFileError
            If the bytes are damaged, or the fleet that packed them has another `n_features`, `n_trees`, `window` or
            `max_samples`. Then the fleet is unchanged.
        """
        key = checked_key(key)
        self._check_is_open()
        if key in self._table:
            raise InvalidInputError(f"The fleet already has the key {key!r:.200}.")
        self._table.unpack(key, content)

    @write_locked
    def key_changes(self) -> KeyChanges:
        """Return the keys that have changed or were removed since the last snapshot.

        To save a snapshot, pack the changed keys and the common state, and then call `confirm_key_changes`. Until then,
        the same keys are returned again. The first call returns all keys, unless `confirm_key_changes` was called
        before. Changes are recorded from the first call of either method on, independently of `save`.

        Returns
        -------
        KeyChanges
            `changed` has the least recently used key first. If keys can be dropped (with `max_bytes` and without a
            store), unpack keys in the order of their last use: otherwise the restored fleet drops other keys.
        """
        self._check_is_open()
        return self._table.changes()

    @write_locked
    def confirm_key_changes(self) -> None:
        """Confirm that the keys that `key_changes` has returned are saved, so that it does not return them again.

        If `key_changes` was never called, this confirms all keys: call it after a fleet was restored with `unpack_key`,
        whose keys are already saved.
        """
        self._check_is_open()
        self._table.confirm_changes()

    # -- closing ------------------------------------------------------------------------------------------------------

    @write_locked
    def close(self) -> None:
        """Close the store. Changes that were not saved are lost. A closed fleet cannot process rows."""
        self._is_closed = True
        if self._table.store is not None:
            self._table.store.close()

    def _check_is_open(self) -> None:
        if self._is_closed:
            raise StoreError("The fleet is closed.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("A fleet cannot be pickled or copied: use save and Fleet.load.")

    def __repr__(self) -> str:
        return f"Fleet({', '.join(f'{name}={value!r}' for name, value in self.parameters.items())})"

    def _common_state(self) -> CommonState:
        return CommonState(
            parameters=self.parameters | {"rules": self._parameters["rules"].as_json_value()},
            borrow=self._borrows,
            n_rows=self._records.n_rows,
            n_dropped=self._table.n_dropped,
            names=self._records.names,
            incidents=list(self._incidents),
            extra=json.loads(self._extra),
            forest=self._common.to_bytes(),
        )

    def _restore(self, state: CommonState, max_bytes: int | None, n_jobs: int, source: str) -> None:
        """Initialize a fleet without keys from a common state; raise DamagedFileError if it is damaged."""
        parameters, names = state.parameters | {"n_jobs": n_jobs}, state.names
        forest, notes = common_forest.read(state.forest, parameters.get("n_features"))
        try:
            self._set(parameters, borrow=state.borrow, max_bytes=None)
            if names is not None:
                names = RowConverter(self._parameters["n_features"]).checked_names(names)
                check_rules_match(self._parameters["rules"], self._parameters["n_features"], names)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise DamagedFileError(f"{source}: {str(error)[:300]}") from None
        self._set(parameters, borrow=state.borrow, max_bytes=max_bytes)  # again: a wrong max_bytes is not damage
        self._records, self._table.n_dropped = _Records(state.n_rows, names), state.n_dropped
        self._incidents, self._extra = LatestIncidents(state.incidents), json.dumps(state.extra)
        self._common.restore(forest, notes, state.n_rows)

    # -- internal -----------------------------------------------------------------------------------------------------

    def _is_settled(self) -> bool:
        records = self._records
        is_complete = records.arriving is None and records.pending is None and not records.forgetting
        return is_complete and self._table.is_settled and not self._threads.running

    def _settle(self) -> None:
        """Finish the work of an interrupted call."""
        self._threads.wait_for_running_tasks()
        if self._records.arriving is not None:
            self._table.resume()
            self._begin(self._records.arriving)
        if self._records.pending is not None:
            self._table.begin_block()
            self._complete(self._records.pending)
        self._table.settle()
        if self._records.forgetting:
            self._finish_forgetting()

    def _finish_forgetting(self) -> None:
        for key in self._records.forgetting:
            self._table.forget(key)
        self._incidents.forget(self._records.forgetting)
        self._records = self._records._replace(forgetting=())

    def _points(self, keys: list[Key], X: Any) -> tuple[Array, list[Any] | None]:
        """Return the points of rows, NaN for unusable ones, and the names of the features."""
        n_features = self._parameters["n_features"]
        converter = RowConverter(n_features, self._records.names)
        if not has_length(X) or len(X) != len(keys):
            n_rows = len(X) if has_length(X) else repr(X)
            raise InvalidInputError(f"There must be one key per row, but there are {len(keys)} keys and {n_rows} rows.")
        if not keys:
            return np.empty((0, n_features)), self._records.names
        if self._records.n_rows + len(keys) > MAX_COUNT:
            raise InvalidInputError(f"The fleet can count at most {MAX_COUNT} rows.")
        if self._parameters["on_error"] == "raise":
            points = unchanged(converter.points(X).copy())
        else:
            usable, is_usable = converter.usable_points(X)
            points = np.full((len(keys), n_features), np.nan)
            points[is_usable] = unchanged(usable.copy())
        check_rules_match(self._parameters["rules"], n_features, converter.names)
        return points, converter.names

    def _process_block(self, rows: _Rows) -> FleetResults:
        """Process the rows of one block."""
        if self._table.store is None:  # dropped keys cannot be restored, so the block is completed if it is interrupted
            self._records = self._records._replace(arriving=rows)
        return self._complete(self._begin(rows))

    def _begin(self, rows: _Rows) -> KeyedBlock:
        """Move the keys of a block to memory, and plan the block; from then on, an interrupted block is completed."""
        try:
            entries = self._table.entries_of(rows.keys, self.seed_of)
            block = plan_block(rows.keys, entries, rows.X, self._table.shards, self._records.n_rows)
        except Exception:
            self._records = self._records._replace(arriving=None)
            raise
        self._common.begin_block()
        self._records = self._records._replace(names=rows.names, arriving=None, pending=block)
        self._table.begin_block()
        return block

    def _complete(self, block: KeyedBlock) -> FleetResults:
        """Process a planned block; can be repeated after an interruption: nothing is learned or counted twice."""
        outcome = self._records.outcome
        if outcome is None:
            outcome = self._learn(block)
            self._records = self._records._replace(outcome=outcome)
        self._table.trackers.update(outcome.changes.trackers)
        self._incidents.apply(outcome.changes)
        self._records = self._records._replace(
            n_rows=block.number + len(block.keys),
            events=(*self._records.events, *outcome.changes.events),
            observed={**self._records.observed, **outcome.changes.trackers},
            pending=None,
            outcome=None,
        )
        return outcome.results

    def _learn(self, block: KeyedBlock) -> _Outcome:
        """Score, learn and label the rows of a block."""
        self._table.mark_changed(block.keys)
        self._threads.run([partial(self._learn_part, index, block) for index in block.parts])
        is_borrowed = np.zeros(len(block.keys), np.bool_)
        if self._borrows:
            is_borrowed = self._common.process(block, self._parameters["warm_up"], self._parameters["window"])
        level = alarm_level(self._parameters["threshold"])
        settings = AlarmSettings(self._parameters["rules"], level, self._records.names)
        changes = incident_changes(block, self._table.trackers, settings, partial(self._explainer, block))
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
        shard = self._table.shards.shard(index)
        score_and_label(shard, block.parts[index], block.labels, self._learning, self._parameters)

    def _explainer(self, block: KeyedBlock, i: int) -> Explain:
        """Return a function that explains the alarms of key i of a block."""

        def prepare() -> tuple[dict[str, Any], Window]:
            detector = self._table.shards.detector(int(block.used[i]))
            parameters = self._parameters | {"seed": self.seed_of(block.key_of(i))}
            return parameters, window_of(detector, parameters)

        return alarm_explainer(block, i, prepare)


def _checked_bool(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInputError(f"{name} must be True or False, but is {value!r:.200}.")
    return value

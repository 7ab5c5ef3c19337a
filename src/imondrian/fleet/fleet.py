"""`Fleet`: one detector per key, for many keys, in bounded memory."""

import json
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from imondrian.alarms.incidents import (
    NO_INCIDENT,
    AlarmReason,
    Explain,
    Incident,
    IncidentRules,
    IncidentTracker,
    checked_rules,
    restored_incident,
)
from imondrian.alarms.thresholds import FIXED, KMEANS, SHARE, SURPRISE, Rule, StreamingThreshold, stream_rule
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
from imondrian.base.errors import DamagedFileError, InvalidInputError, StoreError
from imondrian.base.locking import new_locks, read_locked, write_locked
from imondrian.base.option_types import KindOrPreset, OnError, PresetName, ScaleOrPreset, ThresholdOrPreset
from imondrian.engine.fleet import (
    LabelRule,
    Shard,
    label_by_score,
    label_by_share,
    label_by_surprise,
    label_by_two_means,
    score_depths_and_learn,
    score_expected_depths_and_learn,
    score_sizes_and_learn,
)
from imondrian.engine.histogram import WEIGHT
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_SHOWN
from imondrian.engine.surprise import SINCE
from imondrian.engine.threads import Threads
from imondrian.fleet import common_state
from imondrian.fleet.blocks import KeyedBlock, Limits, block_end, plan
from imondrian.fleet.common_forest import EPOCH, MIN_POINTS, Borrowed, CommonForest, as_normal, epochs
from imondrian.fleet.common_state import CommonState
from imondrian.fleet.key_states import trees_of
from imondrian.fleet.key_store import KeyStore, checked_key, encoded_key
from imondrian.fleet.key_table import KeyTable
from imondrian.fleet.results import FleetResult, FleetResults, Key, KeyChanges, KeyEvent, KeyIncident, joined
from imondrian.fleet.shards import DetectorSize, Shards
from imondrian.forest.feature_layout import FeatureLayout
from imondrian.forest.forest_parameters import checked_n_jobs, checked_scale
from imondrian.forest.inputs import as_count
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.forest.samplers import Window, new_sampler
from imondrian.forest.scales import new_scale
from imondrian.rows.named_rows import RowConverter, rows_in_memory
from imondrian.stream.alarm_reasons import AlarmExplainer, longest_block
from imondrian.stream.detector import StreamDetector
from imondrian.stream.stream_parameters import check_rules_match, checked_parameters, checked_threshold

N_INCIDENTS_STORED = 1024  # latest incidents of all keys
_TRACKER_BYTES = 2048  # upper bound of the memory for the incidents of one key
_EXTRA = "watch"  # key of the extra values in the header; the command `watch` was the first to use them
_LEARN = {
    "size": score_sizes_and_learn,
    "expected": score_expected_depths_and_learn,
    "depth": score_depths_and_learn,
}
_LABEL = {
    SURPRISE: label_by_surprise,
    FIXED: label_by_score,
    SHARE: label_by_share,
    KMEANS: label_by_two_means,
}


class _WindowPoints(NamedTuple):
    """The points of a key's window, for explanations."""

    sampler: Window

    def numbered_points(self, first: int, end: int) -> Array:
        """Return the points with the numbers first, ..., end - 1, oldest first, that are in the window."""
        return self.sampler.numbered_points(first, end)

    def n_numbered_points(self, first: int, end: int) -> int:
        """Return how many of them are in the window."""
        return self.sampler.n_numbered_points(first, end)


_IncidentName = tuple[Key, int]  # the key, and the number of the incident among those of the key


class _Outcome(NamedTuple):
    """What a block changes besides the detectors. To apply it twice is the same as once."""

    is_borrowed: Array
    incident: Array  # number of the incident that is open after each row
    trackers: dict[Key, IncidentTracker]  # those that changed
    incidents: dict[_IncidentName, Incident]  # those that opened or changed
    opened: tuple[_IncidentName, ...]  # at most N_INCIDENTS_STORED, in the order of opening
    events: tuple[KeyEvent, ...]


class _Rows(NamedTuple):
    """Rows of a block."""

    keys: list[Key]
    X: Array
    names: list[Any] | None


class _Records(NamedTuple):
    """What a fleet records besides its keys; replaced as a whole, so that an interruption leaves old or new."""

    n_rows: int = 0  # rows of all keys so far, including skipped ones
    names: list[Any] | None = None
    events: tuple[KeyEvent, ...] = ()  # of the last call
    arriving: _Rows | None = None  # of a block that begins with dropping keys
    pending: KeyedBlock | None = None  # a block that has begun
    outcome: _Outcome | None = None  # of the pending block, when its rows have been scored and learned
    forgetting: tuple[Key, ...] = ()


class Fleet:
    """Anomaly detection on many streams: one small detector per key, in shared tables and bounded memory.

    A key gets a detector with its first row. Except for rows that the common forest scores (`is_borrowed`), the results
    for a key are those of a `StreamDetector` with the same settings and the seed `seed_of(key)`, bit for bit, however
    the rows are divided into calls.

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
        Whether rows of a key that has not warmed up are scored by a forest common to all keys, as soon as that forest
        has learned enough rows and the key has had 16. It sees how far a row is from the mean of its key, in standard
        deviations. Results then have `is_borrowed`.
    on_error : "raise" or "skip", default="raise"
        What to do with an unusable row (not finite, not a number, wrong width): raise an InvalidInputError, in which
        case no row of the call is processed, or count it and return the score NaN.
    rules : IncidentRules or dict, optional
        Which alarms form an incident. The attribute can be set at any time.
    max_bytes : int, optional
        Upper bound of the memory for detectors; the text of the keys is not counted. When it is reached, the keys that
        were not used for the longest time move to the store, and come back unchanged with their next row. Without a
        store they are dropped, and counted in `n_dropped`; a dropped key starts again like a new one. By default there
        is no bound.
    store : str or path, optional
        A file, which is created, for keys that do not fit in memory, and for `save`.
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
        Further values, which are saved with the fleet.
    keys_per_shard : int
        Number of keys for which memory is allocated at a time, 256; a subclass with few keys can define less.

    Notes
    -----
    Memory is used when a key arrives. A fleet may be used from several threads: a
    call that changes it runs alone. If a call is interrupted (Ctrl+C), or the store fails, the fleet has processed the
    first rows of the call, up to some row; `n_rows` counts them. A fleet with a store cannot be used in a forked
    process.

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
            self._table.store = _new_store(store)

    def _set(self, settings: dict[str, Any], *, borrow: Any, max_bytes: Any) -> None:
        """Check the settings and start without keys."""
        if isinstance(settings["preset"], str) and settings["preset"] == SERIES:
            raise InvalidInputError("A fleet has no preset 'series': its memory per key would be too large.")
        self._parameters = checked_parameters(**with_stream_preset(settings | _FIXED_SETTINGS))
        self._borrows = _checked_bool(borrow, "borrow")
        parameters = self._parameters
        window: Window = new_sampler(parameters["max_samples"], parameters["window"])  # type: ignore[assignment]
        self._selection = window.selection
        size = DetectorSize(parameters["n_features"], parameters["n_trees"], parameters["window"], window.limit)
        scale = new_scale(checked_scale(parameters["scale"]), FeatureLayout.checked(parameters["n_features"], ()))
        self._n_scaled = parameters["n_features"] if scale.is_adaptive else 0
        self.bytes_per_key = size.n_bytes + _TRACKER_BYTES
        max_keys = MAX_SHOWN
        if max_bytes is not None:
            max_keys = as_count(max_bytes, "max_bytes", self.bytes_per_key, 2**62) // self.bytes_per_key
        self._table = KeyTable(Shards(size, scale.weights(), min(max_keys, self.keys_per_shard)), parameters, max_keys)
        self._threads, self._locks = Threads(checked_n_jobs(parameters["n_jobs"])), new_locks()
        self._common = CommonForest(
            parameters["n_features"], parameters["kind"], parameters["threshold"], parameters["seed"]
        )
        self._records = _Records()
        self._incidents: OrderedDict[_IncidentName, Incident] = OrderedDict()  # the latest, in the order of opening
        self._is_closed = False
        self._extra = "{}"  # JSON
        self._borrowed: dict[int, Borrowed] = {}  # of the epochs of the pending block

    # -- facts --------------------------------------------------------------------------------------------------------

    @property
    def parameters(self) -> dict[str, Any]:
        """The settings of the detectors, with "preset" replaced by the values of the preset."""
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
        return tuple(KeyIncident(key, incident) for (key, _), incident in self._incidents.items())

    @property
    @read_locked
    def events(self) -> tuple[KeyEvent, ...]:
        """The incidents that opened or closed in the last call of `process` or `process_many`."""
        return self._records.events

    @write_locked
    def keys(self) -> list[Key]:
        """Return all keys, in memory and in the store: integers in ascending order, then texts in ascending order."""
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
        """The rule for anomalies: see the parameter. Setting it changes nothing that the detectors have learned."""
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
        """The rules for incidents. Setting them changes nothing that the detectors have learned."""
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
        """Further values, which are saved with the fleet and come back when it is loaded; empty by default.

        A dictionary of values that JSON supports. The attribute returns a copy: set it to change the values.
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
        """Process rows of many keys, in their order: the same results as `process`, bit for bit, in less time.

        Parameters
        ----------
        keys : sequence of n_rows keys
            Text or integers.
        X : array of shape (n_rows, n_features), data frame (pandas, polars), or iterable of rows or dictionaries

        Returns
        -------
        FleetResults
            One entry per row. With ``on_error="raise"``, no row is processed if any row is unusable.
        """
        return self._process_listed(_listed_keys(keys), rows_in_memory(X))

    @write_locked
    def _process_listed(self, keys: list[Key], X: Any) -> FleetResults:
        self._records = self._records._replace(events=())
        self._check_is_open()
        points, names = self._points(keys, X)
        results, first, table = list[FleetResults](), 0, self._table
        limits = Limits(table.max_keys, longest_block(self._parameters["window"]), table.store is None)
        while first < len(keys):
            end = block_end(keys, first, table.entries, limits)
            results.append(self._process_block(_Rows(keys[first:end], points[first:end], names)))
            first = end
        return joined(results)

    @write_locked
    def forget(self, key: Key) -> Self:
        """Forget a key and everything learned from it; raise InvalidInputError if there is no such key."""
        key = checked_key(key)
        self._check_is_open()
        if key not in self._table:
            raise InvalidInputError(f"There is no key {key!r:.200}.")
        self._records = self._records._replace(forgetting=(key,))
        self._finish_forgetting()
        return self

    @write_locked
    def forget_all(self) -> Self:
        """Forget all keys; their memory is used again for others. What the common forest has learned stays."""
        self._check_is_open()
        self._records = self._records._replace(forgetting=tuple(self._table.keys()))
        self._finish_forgetting()
        return self

    @write_locked
    def detector(self, key: Key) -> StreamDetector:
        """Return an independent `StreamDetector` that goes on like the detector of a key.

        Its drift monitor begins now, because a fleet does not look for drift.
        """
        self._check_is_open()
        state = self._table.state_of(checked_key(key))
        parameters = self._parameters | {"seed": self.seed_of(key)}
        fresh = StreamDetector(**parameters)
        notes, counts, clock = fresh.notes(), state.detector.counts[0], state.detector.clocks[0]
        threshold = {"histogram": state.detector.histograms[0].tolist(), "weight": clock[WEIGHT], "since": clock[SINCE]}
        tracker = notes["incidents"] if state.notes is None else state.notes
        numbers = [int(counts[name]) for name in ("n_seen", "n_skipped", "n_scored")]
        notes |= {"threshold": threshold, "incidents": tracker, "counts": [*numbers, 0], "names": self._records.names}
        return StreamDetector.from_notes(self._forest_of(state.detector, fresh.forest), notes)

    def explain(self, key: Key, x: Any) -> dict[Any, float]:
        """Divide the score of a row of a key, as if it came next, among its features; see `StreamDetector.explain`."""
        return self.detector(key).explain(x)

    # -- saving -------------------------------------------------------------------------------------------------------

    @write_locked
    def save(self, path: str | os.PathLike[str] | None = None) -> None:
        """Save the fleet in its store, or in another file.

        Parameters
        ----------
        path : str or path, optional
            By default the store; then only the keys that have changed are written.
        """
        self._check_is_open()
        store = self._table.store
        if path is not None and (store is None or Path(path).absolute() != store.path):
            self._save_copy(Path(path).absolute())
        elif store is None:
            raise InvalidInputError("The fleet has no store: give a path.")
        else:
            changed = sorted(self._table.changed, key=repr)
            store.save(self._common_state(), self._table.states(changed))
            self._table.changed.clear()

    def _save_copy(self, path: Path) -> None:
        """Write all keys to another file, next to the target, and rename it when it is complete."""
        part = path.with_name(f"{path.name}.part")
        part.unlink(missing_ok=True)
        copy = KeyStore(part)
        try:
            copy.save(self._common_state(), self._table.states(self._table.keys()))
            copy.close()
            part.replace(path)
        except BaseException:
            copy.close()
            part.unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, max_bytes: int | None = None, n_jobs: int = N_JOBS) -> Self:
        """Open a saved fleet; the file becomes its store, and keys are read from it when they are needed.

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
            state = store.common_state()
            if state is None:
                raise DamagedFileError(f"{os.fspath(path)}: no fleet was saved there.")  # noqa: TRY301
            fleet._restore(state, max_bytes, n_jobs, os.fspath(path))  # noqa: SLF001
        except BaseException:
            store.close()
            raise
        fleet._table.store = store  # noqa: SLF001
        return fleet

    # -- embedding ----------------------------------------------------------------------------------------------------

    @write_locked
    def pack_common(self) -> bytes:
        """Return everything but the keys as bytes: parameters, counts, latest incidents, common forest, extra values.

        `Fleet.unpack_common`, and then `unpack_key` for every key, restore a fleet that goes on like this one, bit for
        bit. So a program that embeds a fleet, such as a service or a Spark job, can save it in its own storage.
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
        """Return a fleet without keys from what `pack_common` has returned.

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
        fleet, n_jobs = cls.__new__(cls), checked_n_jobs(n_jobs)
        fleet._restore(common_state.from_bytes(content), max_bytes, n_jobs, "The common state of the fleet")  # noqa: SLF001
        if store is not None:
            fleet._table.store = _new_store(store)  # noqa: SLF001
        return fleet

    @write_locked
    def pack_key(self, key: Key) -> bytes:
        """Return the state of a key as bytes; raise InvalidInputError if there is no such key.

        The bytes are much smaller than the memory of the key, because they lack what can be computed from the rest.
        They begin with a digest of 16 bytes: states with equal digests are equal.
        """
        self._check_is_open()
        return self._table.packed(checked_key(key))

    @write_locked
    def unpack_key(self, key: Key, content: bytes) -> None:
        """Add a key with the state that `pack_key` has returned, in this fleet or one with the same parameters.

        If there is no memory for the key, another one moves to the store or is dropped, as with a new key. The key
        counts as used now, so put back the key that was not used for the longest time first.

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
            If the bytes are damaged, or have been packed by a fleet with other sizes. Nothing was changed.
        """
        key = checked_key(key)
        self._check_is_open()
        if key in self._table:
            raise InvalidInputError(f"The fleet already has the key {key!r:.200}.")
        self._table.unpack(key, content)

    @write_locked
    def key_changes(self) -> KeyChanges:
        """Return the keys that have changed or were removed since the last confirmed call, for incremental snapshots.

        The first call returns all keys, and starts to record changes. A key is returned again until
        `confirm_key_changes` is called. Saving in the store (`save`) makes no difference.

        Returns
        -------
        KeyChanges
            `changed`: to be packed, and put back in this order; `removed`: forgotten or dropped keys.
        """
        self._check_is_open()
        return self._table.changes()

    @write_locked
    def confirm_key_changes(self) -> None:
        """Record that what the last call of `key_changes` returned is saved: it is not returned again.

        Without an earlier call, all present keys are considered saved; call it after a fleet was unpacked.
        """
        self._check_is_open()
        self._table.confirm_changes()

    # -- closing ------------------------------------------------------------------------------------------------------

    @write_locked
    def close(self) -> None:
        """Close the store. What has not been saved is lost. The fleet cannot process rows any more."""
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
        records = self._records
        incidents = [[key, incident.as_json_value()] for (key, _), incident in self._incidents.items()]
        parameters = self._parameters | {"rules": self._parameters["rules"].as_json_value()}
        header = {
            "parameters": {name: value for name, value in parameters.items() if name not in _FIXED_SETTINGS},
            "borrow": self._borrows,
            "n_rows": records.n_rows,
            "n_dropped": self._table.n_dropped,
            "names": records.names,
            "incidents": incidents,
            _EXTRA: json.loads(self._extra),
        }
        return CommonState(header, self._common.to_bytes())

    def _restore(self, state: CommonState, max_bytes: int | None, n_jobs: int, source: str) -> None:
        """Start with a common state and without keys; raise DamagedFileError if it is damaged."""
        header = state.header
        try:
            parameters = dict(header["parameters"]) | {"n_jobs": n_jobs}
            self._set(parameters, borrow=header["borrow"], max_bytes=None)
            names = header["names"]
            if names is not None:
                names = RowConverter(self._parameters["n_features"]).checked_names(names)
                check_rules_match(self._parameters["rules"], self._parameters["n_features"], names)
            n_rows = as_count(header["n_rows"], "the number of rows", 0, MAX_SHOWN)
            n_dropped = as_count(header["n_dropped"], "the number of dropped keys", 0, MAX_SHOWN)
            incidents = OrderedDict[tuple[Key, int], Incident]()
            for key, values in header["incidents"][-N_INCIDENTS_STORED:]:
                incident = restored_incident(values, MAX_SHOWN)
                incidents[checked_key(key), incident.number] = incident
            extra = header.get(_EXTRA, {})
            if not isinstance(extra, dict):
                raise TypeError(f"the extra values must be a dictionary, but are {extra!r:.50}.")  # noqa: TRY301
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise DamagedFileError(f"{source}: {str(error)[:300]}") from None
        self._set(parameters, borrow=self._borrows, max_bytes=max_bytes)
        self._records, self._incidents, self._table.n_dropped = _Records(n_rows, names), incidents, n_dropped
        self._extra = json.dumps(extra)
        self._common.restore(state.forest, n_rows)

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
        forgotten = set(self._records.forgetting)
        for key in self._records.forgetting:
            self._table.forget(key)
        for name in [name for name in self._incidents if name[0] in forgotten]:
            self._incidents.pop(name, None)
        self._records = self._records._replace(forgetting=())

    def _points(self, keys: list[Key], X: Any) -> tuple[Array, list[Any] | None]:
        """Return the points of rows, NaN for unusable ones, and the names of the features."""
        n_features = self._parameters["n_features"]
        converter = RowConverter(n_features, self._records.names)
        if not hasattr(X, "__len__") or len(X) != len(keys):
            n_rows = len(X) if hasattr(X, "__len__") else repr(X)
            raise InvalidInputError(f"There must be one key per row, but there are {len(keys)} keys and {n_rows} rows.")
        if not keys:
            return np.empty((0, n_features)), self._records.names
        if self._records.n_rows + len(keys) > MAX_SHOWN:
            raise InvalidInputError(f"The fleet can count at most {MAX_SHOWN} rows.")
        if self._parameters["on_error"] == "raise":
            points = converter.points(X).copy()
        else:
            usable, is_usable = converter.usable_points(X)
            points = np.full((len(keys), n_features), np.nan)
            points[is_usable] = usable
        check_rules_match(self._parameters["rules"], n_features, converter.names)
        return points, converter.names

    def _process_block(self, rows: _Rows) -> FleetResults:
        """Process the rows of one block."""
        if self._table.store is None:  # a dropped key cannot be brought back: from now on, the block will be completed
            self._records = self._records._replace(arriving=rows)
        return self._complete(self._begin(rows))

    def _begin(self, rows: _Rows) -> KeyedBlock:
        """Make room for the keys of a block, and plan it."""
        try:
            entries = self._table.entries_of(rows.keys, self.seed_of)
            block = plan(rows.keys, entries, rows.X, self._table.shards, self._records.n_rows)
        except Exception:
            self._records = self._records._replace(arriving=None)
            raise
        self._borrowed = {}
        self._records = self._records._replace(names=rows.names, arriving=None, pending=block)
        self._table.begin_block()
        return block

    def _complete(self, block: KeyedBlock) -> FleetResults:
        """Process a planned block; can be repeated after an interruption: nothing is learned or counted twice."""
        outcome = self._records.outcome
        if outcome is None:
            self._table.mark_changed(block.keys)
            self._threads.run([partial(self._run_part, index, block) for index in block.parts])
            outcome = self._outcome(block, self._borrow(block))
            self._records = self._records._replace(outcome=outcome)
        labels = block.labels
        results = FleetResults(
            score=block.scores,
            is_anomaly=labels.are_anomalies,
            threshold=labels.thresholds,
            index=block.indices(),
            surprise=labels.surprises,
            incident=outcome.incident,
            is_borrowed=outcome.is_borrowed,
        )
        self._table.trackers.update(outcome.trackers)
        _record_incidents(self._incidents, outcome)
        self._records = self._records._replace(
            n_rows=block.number + len(block.keys),
            events=(*self._records.events, *outcome.events),
            pending=None,
            outcome=None,
        )
        return results

    def _run_part(self, index: int, block: KeyedBlock) -> None:
        """Score, learn and label the rows of one shard."""
        shard, part = self._table.shards.shard(index), block.parts[index]
        _LEARN[self._parameters["kind"]](shard, self._selection, self._n_scaled, part)
        rule = self._rule
        _LABEL[rule.name](shard, self._label_rule(rule), part, block.labels)

    @property
    def _rule(self) -> Rule:
        return stream_rule(self._parameters["threshold"])

    def _label_rule(self, rule: Rule) -> LabelRule:
        threshold = StreamingThreshold(self._parameters["threshold"], max(self._parameters["window"] // 2, 1))
        value = rule.probability if rule.name == SURPRISE else rule.value
        return LabelRule(value, threshold.growth, threshold.run_weight, self._parameters["warm_up"])

    def _borrow(self, block: KeyedBlock) -> Array:
        """Score rows of keys that have not warmed up by the common forest; offer it the others. Return which rows."""
        is_borrowed = np.zeros(len(block.keys), np.bool_)
        if not self._borrows:
            return is_borrowed
        n_scored, is_usable = block.n_scored_before(), block.is_usable
        is_warm = is_usable & (n_scored >= self._parameters["warm_up"])
        is_cold = is_usable & ~is_warm & (n_scored >= MIN_POINTS)
        deviations = as_normal(block.deviations, n_scored, self._parameters["window"])
        for first, end in epochs(block.number, len(block.keys)):
            rows, epoch = first + np.flatnonzero(is_cold[first:end]), (block.number + first) // EPOCH
            if epoch not in self._borrowed:
                self._borrowed[epoch] = self._common.judge(deviations[rows])
            self._common.offer(block.number + first, deviations[first:end], is_warm[first:end])
            borrowed = self._borrowed[epoch]
            if borrowed.is_known:
                is_borrowed[rows] = True
                block.scores[rows], block.labels.surprises[rows] = borrowed.score, borrowed.surprise
                block.labels.thresholds[rows] = borrowed.threshold
                block.labels.are_anomalies[rows] = borrowed.is_anomaly
        return is_borrowed

    def _outcome(self, block: KeyedBlock, is_borrowed: Array) -> _Outcome:
        """Return what a block changes in the incidents."""
        incident, rules = np.full(len(block.keys), NO_INCIDENT), self._parameters["rules"]
        trackers, found = dict[Key, IncidentTracker](), list[tuple[int, KeyEvent]]()
        for i in _concerned(block, self._table.trackers):
            key, rows, labelled = block.key_of(i), block.rows_of(i), block.labelled(i)
            known = self._table.trackers.get(key)
            tracker = trackers[key] = IncidentTracker(rules) if known is None else known.copy()
            tracker.rules = rules
            incident[rows], events = tracker.observe(
                labelled, self._alarm_level, self._records.names, self._explainer(block, i)
            )
            tracker.keep_latest(1)
            positions = [max(event.index - labelled.first, 0) for event in events]  # of rules that changed: before
            found += [(int(rows[p]), KeyEvent(key, event)) for p, event in zip(positions, events, strict=True)]
        found.sort(key=lambda pair: pair[0])
        events_in_order = tuple(event for _, event in found)
        incidents = {(key, event.incident.number): event.incident for key, event in events_in_order}
        incidents |= {(key, latest.number): latest for key in trackers for latest in trackers[key].latest}
        opened = [(key, event.incident.number) for key, event in events_in_order if event.incident.is_open]
        return _Outcome(
            is_borrowed, incident, trackers, incidents, tuple(opened[-N_INCIDENTS_STORED:]), events_in_order
        )

    @property
    def _alarm_level(self) -> float:
        rule = self._rule
        default = stream_rule(resolved_for_stream("preset", "threshold", PRESET)).value
        return rule.value if rule.name == SURPRISE else default

    def _explainer(self, block: KeyedBlock, i: int) -> Explain:
        """Return a function that returns the reasons for the alarm at a position of the rows of the i-th entry."""

        @cache
        def prepared() -> tuple[AlarmExplainer, _WindowPoints]:
            window = self._window_of(self._table.shards.detector(int(block.used[i])))
            return AlarmExplainer(self._parameters | {"seed": self.seed_of(block.key_of(i))}), _WindowPoints(window)

        def reasons(position: int) -> tuple[AlarmReason, ...]:
            explainer, points = prepared()
            return explainer.reasons(points, block.number_of(i, position), None)

        return reasons

    def _window_of(self, detector: Shard) -> Window:
        """Return the window of a detector, a shard of one; its ring is a view."""
        window = self._table.new_window()
        window.ring, counts = detector.rings[0], detector.counts[0]
        window.number, window.next_step = int(counts["number"]), int(counts["next_step"])
        window.maintains_levels = self._parameters["kind"] == "size" and window.number > 0
        return window

    def _forest_of(self, detector: Shard, like: MondrianForest) -> MondrianForest:
        """Return a forest with the trees of a detector and the parameters of another forest."""
        arrays = {"moments": detector.moments[0].copy(), **self._window_of(detector).state()}
        if not self._n_scaled:
            arrays["moments"][:] = 0.0
        arrays["ring"] = arrays["ring"].copy()
        return MondrianForest.from_state(like.snapshot().parameters, trees_of(detector), arrays)


_FIXED_SETTINGS: dict[str, Any] = {"learn_anomalies": True, "shingle": 1, "categorical": (), "missing": "raise"}


def _checked_bool(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInputError(f"{name} must be True or False, but is {value!r:.200}.")
    return value


def _listed_keys(keys: Any) -> list[Key]:
    """Return keys as text and integers of Python."""
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable):
        raise InvalidInputError(f"keys must be a sequence of keys, but is {keys!r:.200}.")
    listed = keys.tolist() if isinstance(keys, np.ndarray) else list(keys)
    if all(type(key) is str for key in listed):
        return listed
    return [checked_key(key) for key in listed]


def _new_store(path: str | os.PathLike[str]) -> KeyStore:
    """Create a store; raise InvalidInputError if there is one with a fleet already."""
    store, is_new = KeyStore(path), False
    try:
        is_new = store.common_state() is None
    finally:
        if not is_new:
            store.close()
    if not is_new:
        raise InvalidInputError(f"The store {os.fspath(path)!r} already contains a fleet: use Fleet.load.")
    return store


def _concerned(block: KeyedBlock, trackers: dict[Key, IncidentTracker]) -> list[int]:
    """Return the entries of a block with an alarm, or whose latest alarms may still be part of an incident."""
    concerned = set(block.entries_with_alarms())
    if trackers:
        keys = map(block.key_of, range(len(block.used)))
        concerned |= {i for i, key in enumerate(keys) if key in trackers and not trackers[key].is_quiet}
    return sorted(concerned)


def _record_incidents(incidents: "OrderedDict[_IncidentName, Incident]", outcome: _Outcome) -> None:
    """Update the latest incidents, which are in the order of opening."""
    for name, incident in outcome.incidents.items():
        if name in incidents:
            incidents[name] = incident
    for name in outcome.opened:
        incidents[name] = outcome.incidents[name]
    while len(incidents) > N_INCIDENTS_STORED:
        incidents.popitem(last=False)

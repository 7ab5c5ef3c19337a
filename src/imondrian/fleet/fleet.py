"""`Fleet`: one detector per key, for many keys, in bounded memory."""

import json
import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import numpy as np

from imondrian.alarms.incidents import NO_INCIDENT, IncidentRules, checked_rules
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
from imondrian.engine.nodes import MAX_COUNT
from imondrian.fleet import common_forest, common_state
from imondrian.fleet.common_state import CommonState, encoded, stored_in
from imondrian.fleet.fleet_state import FleetState, Rows
from imondrian.fleet.key_store import KeyStore, save_copy
from imondrian.fleet.keys import Key, checked_key, checked_keys, encoded_key
from imondrian.fleet.results import FleetResult, FleetResults, KeyAlarms, KeyChanges, KeyEvent, KeyIncident
from imondrian.forest.forest_parameters import checked_n_jobs
from imondrian.forest.inputs import unchanged, without_mask
from imondrian.rows.named_rows import RowConverter, has_length, rows_in_memory
from imondrian.stream.detector import StreamDetector
from imondrian.stream.stream_parameters import check_rules_match, checked_parameters, checked_threshold

_FIXED_SETTINGS: dict[str, Any] = {"learn_anomalies": True, "shingle": 1, "categorical": (), "missing": "raise"}


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
        What to do with an unusable row (not finite, not a number, wrong width). "raise": raise an InvalidInputError,
        and process no row of the call. "skip": count the row, and return the score NaN for it.
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
            self._state.table.store = _new_store(store)

    def _set(self, settings: dict[str, Any], *, borrow: Any, max_bytes: Any) -> None:
        """Check the settings and initialize a fleet without keys."""
        if isinstance(settings["preset"], str) and settings["preset"] == SERIES:
            raise InvalidInputError("A fleet has no preset 'series': its memory per key would be too large.")
        parameters = checked_parameters(**with_stream_preset(settings | _FIXED_SETTINGS))
        borrows = _checked_bool(borrow, "borrow")
        self._state = FleetState(parameters, max_bytes, self.keys_per_shard, borrow=borrows)
        self.bytes_per_key = self._state.bytes_per_key
        self._locks = new_locks()
        self._is_closed = False
        self._extra = "{}"  # as JSON text

    # -- attributes ---------------------------------------------------------------------------------------------------

    @property
    def parameters(self) -> dict[str, Any]:
        """The settings of the detectors, with every value "preset" replaced by the value from the preset."""
        return {name: value for name, value in self._state.parameters.items() if name not in _FIXED_SETTINGS}

    @property
    @read_locked
    def n_rows(self) -> int:
        """Number of rows of all keys so far, including skipped ones."""
        return self._state.records.n_rows

    @property
    @read_locked
    def n_bytes(self) -> int:
        """Memory of the detectors in use, in bytes."""
        return len(self._state.table.entries) * self.bytes_per_key

    @property
    @read_locked
    def n_dropped(self) -> int:
        """Number of keys that were dropped because there was no memory and no store for them."""
        return self._state.table.n_dropped

    @property
    @read_locked
    def feature_names(self) -> list[Any] | None:
        """The names of the features, once a dictionary or a data frame has named them."""
        return None if self._state.records.names is None else list(self._state.records.names)

    @property
    @read_locked
    def incidents(self) -> tuple[KeyIncident, ...]:
        """The latest incidents of all keys, at most 1,024, in the order of opening."""
        return tuple(self._state.incidents)

    @property
    @read_locked
    def events(self) -> tuple[KeyEvent, ...]:
        """The incidents that opened or closed in the last call of `process` or `process_many`."""
        return self._state.records.events

    @property
    @read_locked
    def latest_alarms(self) -> tuple[KeyAlarms, ...]:
        """For each key with a recent alarm: its open incident, if any, and rows of its alarms (first, last and peak).

        Only keys with rows in the last call of `process` or `process_many` are included. Unlike `incidents`, which has
        only the latest 1,024, this has no limit.
        """
        return tuple(KeyAlarms(key, each.open, each.alarm_rows) for key, each in self._state.records.observed.items())

    @write_locked
    def keys(self) -> list[Key]:
        """Return all keys, in memory and in the store: integers first, then text, both in ascending order."""
        self._check_is_open()
        return sorted(self._state.table.keys(), key=lambda key: (isinstance(key, str), key))

    @write_locked
    def __len__(self) -> int:
        self._check_is_open()
        return len(self._state.table.keys())

    @write_locked
    def __contains__(self, key: Any) -> bool:
        self._check_is_open()
        return checked_key(key) in self._state.table

    def __iter__(self) -> Iterator[Key]:
        return iter(self.keys())

    def seed_of(self, key: Key) -> int:
        """Return the seed of a key's detector: a hash of the key and the seed of the fleet."""
        salt = self._state.parameters["seed"].to_bytes(8, "little")
        return int.from_bytes(blake2b(encoded_key(checked_key(key)), digest_size=8, key=salt).digest(), "little")

    @property
    @read_locked
    def threshold(self) -> float | str:
        """Which rows are anomalies; see the parameter. Setting it does not change what the detectors have learned."""
        threshold: float | str = self._state.parameters["threshold"]
        return threshold

    @threshold.setter
    @write_locked
    def threshold(self, threshold: float | str) -> None:
        preset = self._state.parameters["preset"]
        checked = checked_threshold(resolved_for_stream(threshold, "threshold", preset), preset)
        self._state.use_threshold(checked)

    @property
    @read_locked
    def rules(self) -> IncidentRules:
        """The rules for incidents. Setting them does not change what the detectors have learned."""
        rules: IncidentRules = self._state.parameters["rules"]
        return rules

    @rules.setter
    @write_locked
    def rules(self, rules: IncidentRules | dict[str, Any]) -> None:
        checked = checked_rules(rules)
        if self._state.records.names is not None:
            check_rules_match(checked, self._state.parameters["n_features"], self._state.records.names)
        self._state.parameters = self._state.parameters | {"rules": checked}

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
        row = x if hasattr(x, "keys") else np.atleast_1d(np.asarray(without_mask(x)))
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
        self._state.begin_call()
        self._check_is_open()
        return self._state.process(self._checked_rows(keys, X), self.seed_of)

    def _checked_rows(self, keys: list[Key], X: Any) -> Rows:
        """Return rows as points, NaN for unusable ones; raise InvalidInputError if they cannot be processed."""
        parameters, records = self._state.parameters, self._state.records
        n_features = parameters["n_features"]
        converter = RowConverter(n_features, records.names)
        if not has_length(X) or len(X) != len(keys):
            n_rows = len(X) if has_length(X) else repr(X)
            raise InvalidInputError(f"There must be one key per row, but there are {len(keys)} keys and {n_rows} rows.")
        if not keys:
            return Rows(keys, np.empty((0, n_features)), records.names)
        if records.n_rows + len(keys) > MAX_COUNT:
            raise InvalidInputError(f"The fleet can count at most {MAX_COUNT} rows.")
        if parameters["on_error"] == "raise":
            points = unchanged(converter.points(X).copy())
        else:
            usable, is_usable = converter.usable_points(X)
            points = np.full((len(keys), n_features), np.nan)
            points[is_usable] = unchanged(usable.copy())
        check_rules_match(parameters["rules"], n_features, converter.names)
        return Rows(keys, points, converter.names)

    def spill_bytes(self, keys: Iterable[Key]) -> int:
        """Return how much disk space the store needs, at most, if rows of these keys are processed next.

        The space is for keys that leave memory. This method does not wait for a call in another thread: the result
        reflects the keys that are in memory at the moment.
        """
        return self._state.table.spill_bytes(keys, self.bytes_per_key)

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
        if key not in self._state.table:
            raise InvalidInputError(f"There is no key {key!r:.200}.")
        self._state.forget([key])
        return self

    @write_locked
    def forget_all(self) -> Self:
        """Forget all keys, but not what the common forest has learned. Their memory is used for later keys."""
        self._check_is_open()
        self._state.forget(self._state.table.keys())
        return self

    @write_locked
    def n_rows_of(self, key: Key) -> int:
        """Return the number of rows of a key so far; raise InvalidInputError if there is no such key."""
        self._check_is_open()
        return int(self._state.table.state_of(checked_key(key)).detector.counts[0]["n_seen"])

    @write_locked
    def detector(self, key: Key) -> StreamDetector:
        """Return an independent `StreamDetector` that continues like the detector of a key.

        Its drift monitor starts with the next row, because a fleet does not monitor drift.
        """
        self._check_is_open()
        return self._state.detector(checked_key(key), self.seed_of(key))

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
        store = self._state.table.store
        if path is not None and (store is None or real_path(path) != store.path):
            save_copy(path, encoded(self._common_state()), self._state.table.states(self._state.table.keys()))
        elif store is None:
            raise InvalidInputError("The fleet has no store: give a path.")
        else:
            changed = sorted(self._state.table.changed, key=repr)
            store.save(encoded(self._common_state()), self._state.table.states(changed))
            self._state.table.changed.clear()

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
        FileNotFoundError
            If there is no such file.
        DamagedFileError
            If the file is damaged or not the store of a fleet. If no fleet was saved in it, a NothingSavedError.
        StoreError
            If the file cannot be opened, for example because another process is using it.
        """
        if not Path(path).exists():
            raise FileNotFoundError(f"There is no file {os.fspath(path)!r}.")
        n_jobs = checked_n_jobs(n_jobs)
        fleet, store = cls.__new__(cls), KeyStore(path)
        try:
            store.open()
            state = stored_in(store)
            if state is None:
                raise NothingSavedError(f"{os.fspath(path)}: no fleet was saved there.")  # noqa: TRY301
            fleet._restore(state, max_bytes, n_jobs, os.fspath(path))  # noqa: SLF001
            fleet._state.table.store = store  # noqa: SLF001
            return fleet  # noqa: TRY300 (inside the try, so that an interruption closes the store)
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
            fleet._state.table.store = _new_store(store)  # noqa: SLF001
        return fleet

    @write_locked
    def pack_key(self, key: Key) -> bytes:
        """Return the state of a key as bytes; raise InvalidInputError if there is no such key.

        There are fewer bytes than the key takes in memory, because parts of the state can be computed from the rest.
        The first 16 bytes are a digest: states with equal digests are equal.
        """
        self._check_is_open()
        return self._state.table.packed(checked_key(key))

    @write_locked
    def unpack_key(self, key: Key, content: bytes) -> None:
        """Add a key with a state packed by `pack_key` of this fleet, or of one with the same parameters.

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
        if key in self._state.table:
            raise InvalidInputError(f"The fleet already has the key {key!r:.200}.")
        self._state.table.unpack(key, content)

    @write_locked
    def key_changes(self) -> KeyChanges:
        """Return the keys that have changed or were removed since the last confirmed snapshot.

        To save a snapshot, pack the changed keys and the common state, and then call `confirm_key_changes`. Until then,
        the same keys are returned again. The first call returns all keys, unless `confirm_key_changes` was called
        before. Changes are recorded from the first call of either method on, independently of `save`.

        Returns
        -------
        KeyChanges
            `changed` has the least recently used key first. If keys can be dropped (with `max_bytes` and without a
            store), unpack keys in the order of their last use: otherwise the restored fleet later drops different keys
            than this one.
        """
        self._check_is_open()
        return self._state.table.changes()

    @write_locked
    def confirm_key_changes(self) -> None:
        """Confirm that the keys that `key_changes` has returned are saved, so that it does not return them again.

        If `key_changes` was never called, this confirms all keys. Call this method after you have restored a
        fleet with `unpack_key`, because the keys of that fleet are already saved.
        """
        self._check_is_open()
        self._state.table.confirm_changes()

    # -- closing ------------------------------------------------------------------------------------------------------

    @write_locked
    def close(self) -> None:
        """Close the store. Changes that were not saved are lost. A closed fleet cannot process rows."""
        self._is_closed = True
        if self._state.table.store is not None:
            self._state.table.store.close()

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

    # -- internal -----------------------------------------------------------------------------------------------------

    def _is_settled(self) -> bool:
        return self._state.is_settled

    def _settle(self) -> None:
        self._state.settle(self.seed_of)

    def _common_state(self) -> CommonState:
        parameters = self.parameters | {"rules": self._state.parameters["rules"].as_json_value()}
        return self._state.common_state(parameters, json.loads(self._extra))

    def _restore(self, saved: CommonState, max_bytes: int | None, n_jobs: int, source: str) -> None:
        """Initialize a fleet without keys from a common state; raise DamagedFileError if it is damaged."""
        parameters, names = saved.parameters | {"n_jobs": n_jobs}, saved.names
        forest, notes = common_forest.read(saved.forest, parameters.get("n_features"))
        try:
            self._set(parameters, borrow=saved.borrow, max_bytes=None)
            if names is not None:
                checked = self._state.parameters
                names = RowConverter(checked["n_features"]).checked_names(names)
                check_rules_match(checked["rules"], checked["n_features"], names)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise DamagedFileError(f"{source}: {str(error)[:300]}") from None
        self._set(
            parameters, borrow=saved.borrow, max_bytes=max_bytes
        )  # now with max_bytes, outside of the `try`: a wrong max_bytes does not mean that the file is damaged
        self._extra = json.dumps(saved.extra)
        self._state.restore(saved._replace(names=names), forest, notes)


def _new_store(path: str | os.PathLike[str]) -> KeyStore:
    """Create a store and open it; raise InvalidInputError if the file already contains a fleet."""
    store = KeyStore(path)
    try:
        store.open()
        if stored_in(store) is not None:
            raise InvalidInputError(f"The store {os.fspath(path)!r} already contains a fleet: use Fleet.load.")  # noqa: TRY301
    except BaseException:
        store.close()
        raise
    return store


def _checked_bool(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInputError(f"{name} must be True or False, but is {value!r:.200}.")
    return value

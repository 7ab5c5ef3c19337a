"""The keys of a fleet: which are in memory, which are in the store, and which have changed; how they move."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from imondrian.alarms.incidents import IncidentRules, IncidentTracker
from imondrian.base.errors import DamagedFileError, InvalidInputError
from imondrian.engine.jit import Array
from imondrian.fleet import key_states, packed_keys
from imondrian.fleet.key_states import KeyState
from imondrian.fleet.key_store import KeyStore, stored_bytes
from imondrian.fleet.keys import Key
from imondrian.fleet.results import KeyChanges
from imondrian.fleet.shards import Shards
from imondrian.fleet.single_detectors import new_window

_KEYS_AT_ONCE = 64  # keys read from the store at a time, because their states need memory in addition to the shards


class _Departures(NamedTuple):
    """Keys that leave memory; replaced as a whole, so that an interruption leaves the old or the new value."""

    leaving: tuple[Key, ...] = ()  # keys to be removed from memory, which are already in the store, or are dropped
    n_dropped: int = 0  # keys dropped so far, including those in `leaving`


class KeyTable:
    """The keys of a fleet. Those in memory have an entry in the shards.

    To process rows, call `entries_of`, which moves their keys to memory, and then `begin_block`. While keys move, an
    interruption can leave an incomplete state, which `settle` completes or undoes (`is_settled` is False until then).

    Parameters
    ----------
    shards : Shards
    parameters : dict
        The parameters of the detectors.
    max_keys : int
        Largest number of keys in memory.

    Attributes
    ----------
    store : KeyStore or None
    entries : OrderedDict
        The entries of the keys in memory, the least recently used key first.
    trackers : dict
        The incidents of the keys in memory that have had an alarm.
    changed : set
        The keys in memory whose state in the store is not up to date.
    """

    def __init__(self, shards: Shards, parameters: dict[str, Any], max_keys: int) -> None:
        self.shards, self.max_keys = shards, max_keys
        self.store: KeyStore | None = None
        self.entries: OrderedDict[Key, int] = OrderedDict()
        self.trackers: dict[Key, IncidentTracker] = {}
        self.changed: set[Key] = set()
        self._change_log = _ChangeLog()
        self._parameters = parameters
        self._departures = _Departures()
        self._started: list[Key] = []  # new keys, which `settle` removes unless `begin_block` is called first
        self._is_moving = False  # True while keys enter or leave memory

    @property
    def n_dropped(self) -> int:
        """Number of keys that were dropped because there is no store."""
        return self._departures.n_dropped

    @n_dropped.setter
    def n_dropped(self, n_dropped: int) -> None:
        self._departures = _Departures(n_dropped=n_dropped)

    @property
    def is_settled(self) -> bool:
        """False while keys move, and after a move was interrupted."""
        return not self._is_moving

    def begin_block(self) -> None:
        """Keep the keys that were started: the block of their rows will be processed."""
        self._started, self._is_moving = [], False

    def resume(self) -> None:
        """After an interruption, remove the keys that were leaving memory, and free the entries that no key has."""
        self._finish_leaving()
        self.shards.reclaim(set(self.entries.values()))

    def settle(self) -> None:
        """After an interruption before a block began, complete departures and remove the keys that were started."""
        if self._is_moving:
            self.resume()
            for key in self._started:
                self._remove(key)
            self._change_log.record(self._started, is_removed=True)
            self._started, self._is_moving = [], False

    def keys(self) -> list[Key]:
        """Return all keys, those in memory first."""
        stored = [] if self.store is None else self.store.keys()
        return list(dict.fromkeys([*self.entries, *stored]))

    def __contains__(self, key: Key) -> bool:
        return key in self.entries or (self.store is not None and key in self.store)

    def entries_of(self, keys: list[Key], seed_of: Callable[[Key], int]) -> Array:
        """Return the entry of each key, after new keys are started and stored ones are read.

        Other keys leave memory if there is not enough room. Call `begin_block` afterwards.
        """
        needed = dict.fromkeys(keys)
        missing = iter([key for key in needed if key not in self.entries])
        while batch := list(islice(missing, _KEYS_AT_ONCE)):
            # read before room is made: if one is damaged, no key has left memory for this batch
            states = {key: self._stored(key) for key in batch}
            self._is_moving = True
            self._make_room(len(batch), needed)
            for key, state in states.items():
                if state is None:
                    self._started.append(key)
                    self.entries[key] = self.shards.start(seed_of(key))
                    continue
                tracker = self._tracker_of(key, state)
                if tracker is not None:
                    self.trackers[key] = tracker
                self.entries[key] = self.shards.place(state.detector)
        for key in reversed(dict.fromkeys(reversed(keys))):  # each key once, in the order of their last rows
            self.entries.move_to_end(key)
        return np.array([self.entries[key] for key in keys], np.int64)

    def spill_bytes(self, keys: Iterable[Key], bytes_per_key: int) -> int:
        """Return how much disk space the store needs, at most, to move these keys to memory; see `Fleet`."""
        needed, n_in_memory = set(keys), len(self.entries)
        n_missing = sum(key not in self.entries for key in needed)
        if self.store is None or n_in_memory + n_missing <= self.max_keys:
            return 0
        n_leaving = len(needed) if len(needed) <= self.max_keys else n_in_memory + n_missing
        return max(n_leaving * stored_bytes(bytes_per_key) - self.store.unused_bytes, 0)

    def mark_changed(self, keys: list[Key]) -> None:
        """Record that keys have changed, for the store and for `changes`."""
        self.changed.update(keys)
        self._change_log.record(keys, is_removed=False)

    def changes(self) -> KeyChanges:
        """Return the keys that changed or were removed since the changes were last confirmed; at first, all keys."""
        if not self._change_log.is_active:
            self._change_log.start(self.keys())
        log = self._change_log.report()
        changed = [key for key, is_removed in log.items() if not is_removed and key not in self.entries]
        changed += [key for key in self.entries if log.get(key) is False]
        return KeyChanges(changed, [key for key, is_removed in log.items() if is_removed])

    def confirm_changes(self) -> None:
        """Confirm the keys that the last call of `changes` returned: it does not return them until they change again.

        If `changes` was never called, this confirms all keys that are present.
        """
        if self._change_log.is_active:
            self._change_log.confirm()
        else:
            self._change_log.start(())

    def packed(self, key: Key) -> bytes:
        """Return the packed state of a key; raise InvalidInputError if there is no such key."""
        return packed_keys.pack(self.state_of(key))

    def unpack(self, key: Key, content: bytes) -> None:
        """Add a key, which must be new, with a packed state; raise DamagedFileError if it is damaged."""
        self._is_moving = True
        entry = self.shards.take()  # before room is made: if the state is damaged, no key has left memory
        detector = self.shards.detector(entry)
        try:
            incidents = packed_keys.unpack(content, detector, self.shards.size, new_window(self._parameters), key)
            tracker = self._tracker_of(key, KeyState(detector, incidents))
        except Exception:
            self.shards.clear(entry)
            self._is_moving = False
            raise
        self._make_room(1, {})
        self._started.append(key)  # so that `settle` removes it after an interruption
        if tracker is not None:
            self.trackers[key] = tracker
        self.entries[key] = entry
        self.mark_changed([key])
        self.begin_block()

    def forget(self, key: Key) -> None:
        """Remove a key from memory and from the store; can be repeated after an interruption."""
        self._change_log.record([key], is_removed=True)
        if self.store is not None:
            self.store.remove(key)
        self._is_moving = True
        self._remove(key)
        self._is_moving = False

    def state_of(self, key: Key) -> KeyState:
        """Return the state of a key; raise InvalidInputError if there is no such key."""
        if key in self.entries:
            tracker = self.trackers.get(key)
            return KeyState(self.shards.detector(self.entries[key]), None if tracker is None else tracker.state())
        state = self._stored(key)
        if state is None:
            raise InvalidInputError(f"There is no key {key!r:.200}.")
        return state

    def states(self, keys: Iterable[Key]) -> Iterable[tuple[Key, bytes]]:
        """Yield keys and their states as bytes, in the form of the store."""
        return ((key, key_states.to_bytes(self.state_of(key))) for key in keys)

    def _stored(self, key: Key) -> KeyState | None:
        """Read a key from the store; return None if it is not there."""
        content = None if self.store is None else self.store.read(key)
        if content is None:
            return None
        state = key_states.from_bytes(content, self.shards.size, new_window(self._parameters), key)
        self._tracker_of(key, state)  # raises an error if it is damaged
        return state

    def _tracker_of(self, key: Key, state: KeyState) -> IncidentTracker | None:
        """Return a tracker with the incidents of a state, or None; raise DamagedFileError if they are damaged."""
        if state.incidents is None:
            return None
        tracker = IncidentTracker(IncidentRules())
        try:
            tracker.restore(state.incidents, int(state.detector.counts[0]["n_seen"]), self.shards.size.n_features, 1)
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedFileError(f"The incidents of the key {key!r:.100} are damaged: {str(error)[:300]}") from None
        return tracker

    def _make_room(self, n_keys: int, needed: dict[Key, None]) -> None:
        """Remove the least recently used keys from memory, except those needed, until n_keys more fit.

        With a store, they are spilled if they have changed; without one, they are dropped.
        """
        n_surplus = len(self.entries) + n_keys - self.max_keys
        if n_surplus <= 0:
            return
        leaving = tuple(islice((key for key in self.entries if key not in needed), n_surplus))
        if self.store is not None:
            self.store.spill(self.states([key for key in leaving if key in self.changed]))
        n_dropped = 0 if self.store is not None else len(leaving)
        self._departures = _Departures(leaving, self.n_dropped + n_dropped)
        self._finish_leaving()

    def _finish_leaving(self) -> None:
        """Remove the keys of `leaving` from memory; can be repeated after an interruption."""
        if self.store is None:
            self._change_log.record(self._departures.leaving, is_removed=True)
        for key in self._departures.leaving:
            self._remove(key)
        self._departures = self._departures._replace(leaving=())

    def _remove(self, key: Key) -> None:
        """Remove a key from memory, if it is there. After an interruption, `resume` frees its entry."""
        self.trackers.pop(key, None)
        self.changed.discard(key)
        entry = self.entries.pop(key, None)
        if entry is not None:
            self.shards.clear(entry)


class _Log(NamedTuple):
    """Changed keys, with True for removed ones.

    Only `record` changes a dictionary in place. The other methods replace the log as a whole, so that an interruption
    leaves the old or the new one.
    """

    reported: dict[Key, bool]  # in the last report, and not confirmed
    latest: dict[Key, bool]  # after the last report


class _ChangeLog:
    """Records which keys have changed or were removed, after `start` has been called."""

    def __init__(self) -> None:
        self._log: _Log | None = None

    @property
    def is_active(self) -> bool:
        """True after `start` was called."""
        return self._log is not None

    def record(self, keys: Iterable[Key], *, is_removed: bool) -> None:
        """Record that keys changed or were removed; recording a key twice has the same effect as once."""
        if self._log is not None:
            self._log.latest.update(dict.fromkeys(keys, is_removed))

    def start(self, keys: Iterable[Key]) -> None:
        """Start to record changes; these keys count as changed."""
        self._log = _Log({}, dict.fromkeys(keys, False))

    def report(self) -> dict[Key, bool]:
        """Return all changed keys that are not confirmed, with True for removed ones."""
        if self._log is None:
            return {}
        self._log = _Log({**self._log.reported, **self._log.latest}, {})
        return self._log.reported

    def confirm(self) -> None:
        """Remove the keys of the last report from the log, except those that have changed again."""
        if self._log is not None:
            self._log = self._log._replace(reported={})

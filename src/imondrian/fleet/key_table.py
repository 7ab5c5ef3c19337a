"""The keys of a fleet: which are in memory, which are in the store, and how they move from one to the other."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from imondrian.alarms.incidents import IncidentRules, IncidentTracker
from imondrian.base.errors import DamagedFileError, InvalidInputError
from imondrian.engine.jit import Array
from imondrian.fleet import key_states
from imondrian.fleet.key_states import KeyState
from imondrian.fleet.results import Key
from imondrian.fleet.shards import Shards
from imondrian.forest.samplers import Window, new_sampler

if TYPE_CHECKING:
    from imondrian.fleet.key_store import KeyStore

Trackers = dict[Key, IncidentTracker]


class KeyTable:
    """The keys of a fleet, with an entry of the shards for those in memory.

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
    changed : set
        The keys in memory that differ from the store.
    n_dropped : int
        Number of keys that left memory and were lost, because there is no store.
    """

    def __init__(self, shards: Shards, parameters: dict[str, Any], max_keys: int) -> None:
        self.shards, self.max_keys = shards, max_keys
        self.store: KeyStore | None = None
        self.changed: set[Key] = set()
        self.n_dropped = 0
        self.entries: OrderedDict[Key, int] = OrderedDict()  # least recently used first
        self._parameters = parameters
        self._is_moving = False  # True while keys enter or leave memory

    @property
    def is_settled(self) -> bool:
        """Whether no move of keys was interrupted."""
        return not self._is_moving

    def settle(self) -> None:
        """Complete a move that was interrupted: free the entries that belong to no key."""
        if self._is_moving:
            self.shards.reclaim(set(self.entries.values()))
            self._is_moving = False

    def keys(self) -> list[Key]:
        """Return all keys."""
        stored = [] if self.store is None else self.store.keys()
        return list(dict.fromkeys([*self.entries, *stored]))

    def __contains__(self, key: Key) -> bool:
        return key in self.entries or (self.store is not None and self.store.read(key) is not None)

    def entries_of(self, keys: list[Key], seeds: Any, trackers: Trackers) -> Array:
        """Return the entry of each key; start new keys, read stored ones, and make room for both.

        `seeds` returns the seed of a new key. `trackers`, those of the keys in memory, are updated.
        """
        missing = list(dict.fromkeys(key for key in keys if key not in self.entries))
        if missing:
            states = {key: self._stored(key) for key in missing}
            self._is_moving = True
            self._make_room(len(missing), set(keys), trackers)
            for key, state in states.items():
                self._bring_in(key, state, seeds, trackers)
            self._is_moving = False
        for key in dict.fromkeys(keys):
            self.entries.move_to_end(key)
        return np.array([self.entries[key] for key in keys], np.int64)

    def forget(self, key: Key, trackers: Trackers) -> None:
        """Forget a key."""
        self._is_moving = True
        if self.store is not None:
            self.store.remove(key)
        self._leave(key, trackers)
        self._is_moving = False

    def state_of(self, key: Key, trackers: Trackers) -> KeyState:
        """Return the state of a key; raise InvalidInputError if there is no such key."""
        if key in self.entries:
            tracker = trackers.get(key)
            return KeyState(self.shards.detector(self.entries[key]), None if tracker is None else tracker.state())
        state = self._stored(key)
        if state is None:
            raise InvalidInputError(f"There is no key {key!r:.200}.")
        return state

    def states(self, keys: Iterable[Key], trackers: Trackers) -> Iterable[tuple[Key, bytes]]:
        """Yield the states of keys as bytes."""
        return ((key, key_states.to_bytes(self.state_of(key, trackers))) for key in keys)

    def new_window(self) -> Window:
        """Return a window like those of the detectors, without points."""
        window: Any = new_sampler(self._parameters["max_samples"], self._parameters["window"])
        checked: Window = window
        return checked

    def _stored(self, key: Key) -> KeyState | None:
        """Read a key from the store; None if it is not there."""
        content = None if self.store is None else self.store.read(key)
        if content is None:
            return None
        state = key_states.from_bytes(content, self.shards.size, self.new_window(), key)
        self._tracker_of(key, state)  # raises an error if it is damaged
        return state

    def _tracker_of(self, key: Key, state: KeyState) -> IncidentTracker | None:
        """Return the incidents of a stored key; raise DamagedFileError if they are damaged."""
        if state.notes is None:
            return None
        tracker = IncidentTracker(IncidentRules())
        try:
            tracker.restore(state.notes, int(state.detector.counts[0]["n_seen"]), self.shards.size.n_features, 1)
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedFileError(f"The incidents of the key {key!r:.100} are damaged: {str(error)[:300]}") from None
        return tracker

    def _bring_in(self, key: Key, state: KeyState | None, seeds: Any, trackers: Trackers) -> None:
        """Give a key an entry: as stored, or a new detector."""
        if state is None:
            self.entries[key] = self.shards.start(seeds(key))
            return
        tracker = self._tracker_of(key, state)
        if tracker is not None:
            trackers[key] = tracker
        self.entries[key] = self.shards.place(state.detector)

    def _make_room(self, n_keys: int, needed: set[Key], trackers: Trackers) -> None:
        """Let the keys that were not used for the longest time leave memory, until n_keys more fit."""
        n_surplus = len(self.entries) + n_keys - self.max_keys
        if n_surplus <= 0:
            return
        idle = (key for key in self.entries if key not in needed)
        leaving = [key for key, _ in zip(idle, range(n_surplus), strict=False)]
        if self.store is not None:
            self.store.spill(self.states([key for key in leaving if key in self.changed], trackers))
        for key in leaving:
            self._leave(key, trackers)
            self.n_dropped += self.store is None

    def _leave(self, key: Key, trackers: Trackers) -> None:
        """Remove a key from memory, if it is there."""
        entry = self.entries.pop(key, None)
        trackers.pop(key, None)
        self.changed.discard(key)
        if entry is not None:
            self.shards.clear(entry)

"""The fleet of a group of keys, in which every key has the same seed."""

from typing import Any

from imondrian.fleet.fleet import Fleet
from imondrian.fleet.keys import Key
from imondrian.stream.detector import StreamDetector


class GroupFleet(Fleet):
    """A fleet in which every key has the seed of the fleet.

    So the results of a key are those of a `StreamDetector` with this seed that processes only the rows of the key.
    """

    keys_per_shard = 16  # there are many fleets, and each has few keys

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, borrow=False)
        self._seed: int = self.parameters["seed"]

    def seed_of(self, key: Key) -> int:
        """Return the seed of every key's detector: that of the fleet."""
        return self._seed

    def detached(self, key: Key, missing: str) -> StreamDetector:
        """Forget a key, and return a `StreamDetector` that continues in its place and accepts missing numbers.

        `missing` is the detector's rule for missing numbers. If the fleet does not have the key, the detector is new.
        """
        if key not in self:
            return StreamDetector(**self.parameters | {"missing": missing})
        detector = self.detector(key)
        notes = detector.notes()
        notes["parameters"]["missing"] = missing
        notes["gaps"] = StreamDetector(**detector.parameters | {"missing": missing}).notes()["gaps"]
        self.forget(key)
        return StreamDetector.from_notes(detector.forest, notes)

"""The common forest of a fleet: scores the rows of keys that have not warmed up, by what is ordinary for other keys.

It sees how far a row is from the mean of its key's window, in standard deviations. It learns a sample of the rows of
keys that have warmed up, at the end of every EPOCH rows of the fleet, so that its scores do not depend on how the rows
are divided into calls.
"""

from collections.abc import Iterator
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.jit import Array
from imondrian.models import storage
from imondrian.stream.detector import StreamDetector

EPOCH = 4096  # rows of the fleet between two updates
_EVERY = 64  # one in so many rows is offered to the forest
MIN_POINTS = 16  # of a key, before its mean and standard deviation can be used
_N_TREES, _WINDOW, _MAX_SAMPLES = 32, 2048, 256


def epochs(number: int, n_rows: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of n_rows rows, numbered from `number`, that belong to different epochs: first row and end."""
    first = 0
    while first < n_rows:
        end = min(n_rows, first + EPOCH - (number + first) % EPOCH)
        yield first, end
        first = end


class Borrowed(NamedTuple):
    """Scores and labels from the common forest."""

    is_known: bool  # False if the forest has not learned enough rows
    score: Array
    is_anomaly: Array
    threshold: float
    surprise: Array


_NOTHING = np.empty(0), np.empty(0, np.bool_), 0.0, np.empty(0)


class CommonForest:
    """A stream detector for the rows of all keys.

    Parameters
    ----------
    n_features : int
        Number of values in a row.
    kind : str
        Which score to use.
    threshold : float or str
        Which rows are anomalies.
    seed : int
        Seed of the forest.
    """

    def __init__(self, n_features: int, kind: Any, threshold: Any, seed: int) -> None:
        self._detector = StreamDetector(
            n_features,
            kind=kind,
            scale=None,
            threshold=threshold,
            seed=seed,
            n_trees=_N_TREES,
            window=_WINDOW,
            max_samples=_MAX_SAMPLES,
            missing="raise",
        )
        self._waiting = np.empty((0, n_features))  # rows of the current epoch, which are not learned yet
        self._n_learned = 0

    def use_threshold(self, threshold: Any) -> None:
        """Use another threshold from now on."""
        self._detector.threshold = threshold

    def judge(self, deviations: Array) -> Borrowed:
        """Score and label rows, without learning them."""
        detector = self._detector
        if len(deviations) == 0 or not detector.is_warm:
            return Borrowed(False, *_NOTHING)
        scores, threshold = detector.score(deviations), detector.threshold_score
        return Borrowed(True, scores, scores > threshold, threshold, detector.surprise(scores))

    def offer(self, first: int, deviations: Array, is_eligible: Array) -> None:
        """Offer rows of one epoch, numbered from `first`; learn a sample of them if they complete the epoch."""
        numbers = np.arange(first, first + len(deviations))
        self._waiting = np.vstack([self._waiting, deviations[is_eligible & (numbers % _EVERY == 0)]])
        if (first + len(deviations)) % EPOCH == 0:
            self.learn()

    def learn(self) -> None:
        """Learn the waiting rows; after an interruption, those that have not been learned."""
        n_done = self._detector.n_seen - self._n_learned
        if n_done < len(self._waiting):
            self._detector.process_many(self._waiting[n_done:])
        self._n_learned, self._waiting = self._detector.n_seen, self._waiting[:0]

    def to_bytes(self) -> bytes:
        """Return everything as bytes."""
        file, (forest, notes) = BytesIO(), self._detector.snapshot()
        storage.write(forest, file, {"detector": notes, "waiting": self._waiting.tolist()})
        return file.getvalue()

    def restore(self, content: bytes) -> None:
        """Restore what `to_bytes` returned; raise DamagedFileError if it is damaged."""
        name = "the common forest of the store"
        forest, notes = storage.read(BytesIO(content), name)
        with storage.damaged_file_errors(name):
            detector = StreamDetector.from_notes(forest, notes["detector"])
            waiting = np.array(notes["waiting"], np.float64).reshape(-1, self._waiting.shape[1])
            if detector.parameters | {"threshold": 0} != self._detector.parameters | {"threshold": 0}:
                raise ValueError("its parameters are not those of the fleet.")
            if len(waiting) > EPOCH or not np.isfinite(waiting).all():
                raise ValueError("its waiting rows are impossible.")
        self._detector, self._waiting, self._n_learned = detector, waiting, detector.n_seen

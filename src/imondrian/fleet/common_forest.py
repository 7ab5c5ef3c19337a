"""The common forest of a fleet: scores the rows of keys that have not warmed up, by what is ordinary for other keys.

It sees how far a row is from the mean of its key's window, in standard deviations, corrected for the number of points
of the key. It learns a sample of the rows of
keys that have warmed up, at the end of every EPOCH rows of the fleet, so that its scores do not depend on how the rows
are divided into calls.
"""

from collections.abc import Iterator
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.jit import Array
from imondrian.engine.window import step_length
from imondrian.models import storage
from imondrian.stream.detector import StreamDetector

EPOCH = 4096  # rows of the fleet between two updates
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio: multiples of it are evenly distributed
_SAMPLED = np.uint64(2**64 // 64)  # one in 64 rows is offered to the forest
MIN_POINTS = 16  # of a key, before its mean and standard deviation can be used
_N_TREES, _WINDOW, _MAX_SAMPLES = 32, 2048, 256


def epochs(number: int, n_rows: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of n_rows rows, numbered from `number`, that belong to different epochs: first row and end."""
    first = 0
    while first < n_rows:
        end = min(n_rows, first + EPOCH - (number + first) % EPOCH)
        yield first, end
        first = end


def as_normal(deviations: Array, n_points: Array, window: int) -> Array:
    """Return deviations of rows with a normal distribution, if the values of their keys have one.

    The deviation of a row from the mean of n points, in their standard deviations, has a Student distribution (up to a
    factor): its tails are heavy if n is small. Wallace's approximation of the normal quantile [Wallace1959]. `n_points`
    is the number of points of its key before each row; the mean is that of the last step of the window.
    """
    n = np.minimum(_last_step(n_points, window), window).astype(np.float64)[:, None]
    freedom = np.maximum(n - 1.0, 1.0)
    t_squared = deviations**2 * (freedom / (n + 1.0))
    normal = np.sqrt(freedom * np.log1p(t_squared / freedom)) * (8.0 * freedom + 1.0) / (8.0 * freedom + 3.0)
    return np.copysign(normal, deviations)


def _last_step(n_points: Array, window: int) -> Array:
    """Return the number of points at the last step of a window that has seen n_points points."""
    steps = [0, 1]
    while steps[-1] < min(window, n_points.max(initial=0)):
        steps.append(steps[-1] + step_length(steps[-1], window))
    return np.array(steps)[np.searchsorted(steps, n_points, side="right") - 1]


class Borrowed(NamedTuple):
    """Scores and labels from the common forest."""

    is_known: bool  # False if the forest has not learned enough rows
    score: Array
    is_anomaly: Array
    threshold: float
    surprise: Array


_NOTHING = np.empty(0), np.empty(0, np.bool_), 0.0, np.empty(0)


class _Offered(NamedTuple):
    """What was offered to the forest; replaced as a whole, so that an interruption leaves old or new."""

    n_rows: int  # rows of the fleet so far
    waiting: Array  # rows of the current epoch, which are not learned yet
    n_learned: int  # rows that the forest had learned before them


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
        self._offered = _Offered(0, np.empty((0, n_features)), 0)

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
        """Offer rows of one epoch, numbered from `first`; learn a sample of them if they complete the epoch.

        After an interruption, the same rows must be offered again; none is learned twice.
        """
        offered, end = self._offered, first + len(deviations)
        if offered.n_rows < end:
            sample = deviations[is_eligible & _is_sampled(first, end)]
            waiting = np.vstack([offered.waiting, sample]) if len(sample) else offered.waiting
            self._offered = offered = offered._replace(n_rows=end, waiting=waiting)
        if offered.n_rows == end and end % EPOCH == 0:
            n_done = self._detector.n_seen - offered.n_learned
            if n_done < len(offered.waiting):
                self._detector.process_many(offered.waiting[n_done:])
            self._offered = _Offered(end, offered.waiting[:0], self._detector.n_seen)

    def to_bytes(self) -> bytes:
        """Return everything as bytes."""
        file, (forest, notes) = BytesIO(), self._detector.snapshot()
        storage.write(forest, file, {"detector": notes, "waiting": self._offered.waiting.tolist()})
        return file.getvalue()

    def restore(self, content: bytes, n_rows: int) -> None:
        """Restore what `to_bytes` returned after n_rows rows of the fleet; raise DamagedFileError if it is damaged."""
        name = "the common forest of the store"
        forest, notes = storage.read(BytesIO(content), name)
        with storage.damaged_file_errors(name):
            detector = StreamDetector.from_notes(forest, notes["detector"])
            waiting = np.array(notes["waiting"], np.float64).reshape(-1, self._offered.waiting.shape[1])
            if detector.parameters | {"threshold": 0} != self._detector.parameters | {"threshold": 0}:
                raise ValueError("its parameters are not those of the fleet.")
            if len(waiting) > EPOCH or not np.isfinite(waiting).all():
                raise ValueError("its waiting rows are impossible.")
        self._detector, self._offered = detector, _Offered(n_rows, waiting, detector.n_seen)


def _is_sampled(first: int, end: int) -> Array:
    """Return which of the rows first, ..., end - 1 are offered: one in 64, evenly also among every k-th row.

    So the forest learns from all keys, even if their rows take turns.
    """
    return np.arange(first, end).astype(np.uint64) * _GOLDEN < _SAMPLED

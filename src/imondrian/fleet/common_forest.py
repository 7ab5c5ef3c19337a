"""The common forest of a fleet, which scores the rows of keys that have not warmed up.

It compares a row with rows of other keys. To make keys comparable, it sees only how far a row is from the mean of its
key's window, in standard deviations, corrected for the number of points of the key (`as_normal`).

It learns a sample of the rows of keys that have warmed up. The rows of the fleet are divided into epochs of EPOCH rows,
and the forest changes only at the end of an epoch. So its scores do not depend on how the rows are divided into calls.
"""

from collections.abc import Iterator
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from imondrian.base.errors import DamagedFileError
from imondrian.engine.jit import Array
from imondrian.engine.window import step_length
from imondrian.fleet.blocks import KeyedBlock
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.models import storage
from imondrian.stream.detector import StreamDetector

EPOCH = 4096  # rows of the fleet between two updates
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio: its multiples are evenly distributed
_SAMPLE_LIMIT = np.uint64(2**64 // 64)  # one in 64 rows is sampled
_MIN_POINTS = 16  # points that a key must have before its mean and standard deviation can be used
_N_TREES, _WINDOW, _MAX_SAMPLES = 32, 2048, 256
_NAME = "the common forest of the store"
_MAX_DEVIATION = 1e100  # in standard deviations: squares of larger ones could overflow


class _CommonScores(NamedTuple):
    """Scores and labels of rows by the common forest."""

    score: Array
    is_anomaly: Array
    threshold: float
    surprise: Array


class _Collected(NamedTuple):
    """Sampled rows, not learned yet; replaced as a whole, so that an interruption leaves the old or the new value."""

    n_rows: int  # rows of the fleet so far
    rows: Array  # sampled in the current epoch
    n_learned: int  # rows that the forest had learned before this epoch


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
        self._collected = _Collected(0, np.empty((0, n_features)), 0)
        self._scores: dict[int, _CommonScores | None] = {}  # scores of rows of the current block, by epoch

    def use_threshold(self, threshold: Any) -> None:
        """Use another threshold from now on."""
        self._detector.threshold = threshold

    def begin_block(self) -> None:
        """Begin a new block; the scores of the block before are not needed any more."""
        self._scores = {}

    def process(self, block: KeyedBlock, warm_up: int, window: int) -> Array:
        """Replace the scores and labels of rows of keys that have not warmed up; learn a sample of the other rows.

        If it is repeated for a block after an interruption, the scores are the same, and no row is learned twice.

        Parameters
        ----------
        block : KeyedBlock
            A block whose rows have been scored and labelled by the detectors of their keys.
        warm_up : int
            Number of scored rows after which a key has warmed up.
        window : int
            Length of the windows of the keys.

        Returns
        -------
        is_borrowed : array
            Which rows have the score and the label of the common forest.
        """
        is_borrowed = np.zeros(len(block.keys), np.bool_)
        n_scored, is_usable = block.n_scored_before(), block.is_usable
        is_warm = is_usable & (n_scored >= warm_up)
        is_new = is_usable & ~is_warm & (n_scored >= _MIN_POINTS)
        deviations = as_normal(block.deviations, n_scored, window)
        for first, end in _parts_by_epoch(block.number, len(block.keys)):
            rows, epoch = first + np.flatnonzero(is_new[first:end]), (block.number + first) // EPOCH
            if epoch not in self._scores:
                self._scores[epoch] = self._score(deviations[rows])
            self._collect(block.number + first, deviations[first:end], is_warm[first:end])
            scores = self._scores[epoch]
            if scores is not None:
                is_borrowed[rows] = True
                block.scores[rows], block.labels.surprises[rows] = scores.score, scores.surprise
                block.labels.thresholds[rows] = scores.threshold
                block.labels.are_anomalies[rows] = scores.is_anomaly
        return is_borrowed

    def _score(self, deviations: Array) -> _CommonScores | None:
        """Score and label rows without learning them; None if there are no rows, or the forest has learned too few."""
        detector = self._detector
        if len(deviations) == 0 or not detector.is_warm:
            return None
        scores, threshold = detector.score(deviations), detector.threshold_score
        return _CommonScores(scores, scores > threshold, threshold, detector.surprise(scores))

    def _collect(self, first: int, deviations: Array, is_warm: Array) -> None:
        """Collect a sample of those rows whose keys have warmed up; learn the sample if the epoch is complete.

        The rows belong to one epoch and have the numbers first, first + 1, ... in the fleet. After an interruption, the
        same rows must be passed again.
        """
        collected, end = self._collected, first + len(deviations)
        if collected.n_rows < end:
            sample = deviations[is_warm & _is_sampled(first, end)]
            rows = np.vstack([collected.rows, sample]) if len(sample) else collected.rows
            self._collected = collected = collected._replace(n_rows=end, rows=rows)
        if collected.n_rows == end and end % EPOCH == 0:
            n_done = self._detector.n_seen - collected.n_learned  # rows that an interrupted call has learned
            if n_done < len(collected.rows):
                self._detector.process_many(collected.rows[n_done:])
            self._collected = _Collected(end, collected.rows[:0], self._detector.n_seen)

    def to_bytes(self) -> bytes:
        """Return the forest and the collected rows as bytes."""
        file, (forest, notes) = BytesIO(), self._detector.snapshot()
        storage.write(forest, file, {"detector": notes, "waiting": self._collected.rows.tolist()})
        return file.getvalue()

    def restore(self, forest: MondrianForest, notes: dict[str, Any], n_rows: int) -> None:
        """Restore the forest and notes that `read` returned, which were saved after n_rows rows of the fleet.

        Raise DamagedFileError if they are damaged.
        """
        with storage.damaged_file_errors(_NAME):
            detector = StreamDetector.from_notes(forest, notes["detector"])
            rows = np.array(notes["waiting"], np.float64).reshape(-1, self._collected.rows.shape[1])
            if detector.parameters | {"threshold": 0} != self._detector.parameters | {"threshold": 0}:
                raise ValueError("its parameters are not those of the fleet.")
            if len(rows) > EPOCH or not (np.abs(rows) <= _MAX_DEVIATION).all():
                raise ValueError("its collected rows are impossible.")
        self._detector, self._collected = detector, _Collected(n_rows, rows, detector.n_seen)


def read(content: bytes, n_features: Any) -> tuple[MondrianForest, dict[str, Any]]:
    """Return the forest that `CommonForest.to_bytes` wrote, and its notes.

    Call it before a fleet with `n_features` features is created. The forest must have this number of features, and it
    cannot be much larger than its file. So a small file with a wrong, large `n_features` is refused before memory is
    allocated for the fleet.

    Raises
    ------
    DamagedFileError
        If the forest is damaged or has another number of features.
    """
    forest, notes = storage.read(BytesIO(content), _NAME)
    if type(n_features) is not int or forest.n_features != n_features:
        raise DamagedFileError(f"{_NAME} has {forest.n_features} features, but the fleet has {n_features!r:.50}.")
    return forest, notes


def as_normal(deviations: Array, n_points: Array, window: int) -> Array:
    """Transform deviations so that they follow a standard normal distribution if the values of each key are normal.

    The deviation of a row from the mean of n points, divided by the standard deviation of these points, has a Student
    distribution, up to a factor. Its tails are heavy if n is small. Wallace's approximation [Wallace1959] converts a
    deviation to a normal quantile.

    Parameters
    ----------
    deviations : array of shape (n_rows, n_features)
        Distances from the mean in standard deviations. The mean and the standard deviation are those of the last step
        of the key's window: they are updated only at steps (see `step_length`).
    n_points : array of shape (n_rows,)
        Number of points of the key before each row.
    window : int
        Length of the windows.
    """
    deviations = np.clip(deviations, -_MAX_DEVIATION, _MAX_DEVIATION)
    n = np.minimum(_last_step(n_points, window), window).astype(np.float64)[:, None]
    freedom = np.maximum(n - 1.0, 1.0)
    t_squared = deviations**2 * (freedom / (n + 1.0))
    normal = np.sqrt(freedom * np.log1p(t_squared / freedom)) * (8.0 * freedom + 1.0) / (8.0 * freedom + 3.0)
    return np.copysign(normal, deviations)


def _last_step(n_points: Array, window: int) -> Array:
    """Return the number of points at the last step of windows that have seen n_points points.

    Only steps up to the first one at which the window is full are considered. At that step, the number of points may be
    larger than the window.
    """
    steps = [0, 1]
    while steps[-1] < min(window, n_points.max(initial=0)):
        steps.append(steps[-1] + step_length(steps[-1], window))
    return np.array(steps)[np.searchsorted(steps, n_points, side="right") - 1]


def _parts_by_epoch(number: int, n_rows: int) -> Iterator[tuple[int, int]]:
    """Divide n_rows rows, numbered from `number`, by epochs; yield the first row and the end of each part."""
    first = 0
    while first < n_rows:
        end = min(n_rows, first + EPOCH - (number + first) % EPOCH)
        yield first, end
        first = end


def _is_sampled(first: int, end: int) -> Array:
    """Return which of the rows first, ..., end - 1 are sampled: about one in 64.

    If only every k-th row is considered, about one in 64 of these is sampled, too, for any k. So the forest learns from
    all keys even if their rows come in a fixed order.
    """
    return np.arange(first, end).astype(np.uint64) * _GOLDEN < _SAMPLE_LIMIT

"""The reasons for an alarm on a stream: the features that make a point anomalous, and what was expected instead.

The reasons come from a small forest that is built, when needed, on points before the alarm. The forest of the detector
cannot be used: when an alarm is explained, that forest may already have learned the point and later ones, and the
reasons must not depend on how the stream is divided into calls.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

from imondrian.alarms.incidents import N_REASONS, AlarmReason
from imondrian.base.defaults import MAX_SAMPLES
from imondrian.base.option_types import VIEWS, Kind
from imondrian.engine.jit import Array
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.forest.samplers import Sampler
from imondrian.stream.row_layout import RowLayout
from imondrian.stream.series_explanations import series_parts

_N_TREES = 32
_MIN_POINTS = 8  # with fewer points before it, an alarm is not explained
_FORESTS_PER_WINDOW = 16  # reference forests in a window full of alarms: at least this many, at most twice as many


def longest_block(window: int) -> int:
    """Return the largest length of a block after which the window still holds the points that explain its alarms.

    Examples
    --------
    >>> longest_block(2048), longest_block(16), longest_block(1)
    (897, 8, 1)
    """
    return max(window - n_reference_points(window) - _longest_delay(window), 1)


def n_reference_points(window: int) -> int:
    """Return the largest number of points that explain an alarm."""
    return max(window // 2, 1)


def reference_end(number: int, window: int) -> int:
    """Return the end (exclusive) of the range of points that explain an alarm at the point `number`.

    The end advances in steps, so that alarms near each other share a forest. A step is at most a sixteenth of the
    window or, until the window is full, of the points so far. The end depends only on `number` and `window`, so the
    reasons do not depend on calls or restarts.

    Examples
    --------
    >>> [reference_end(number, 2048) for number in (20, 50, 1000, 5000, 5119, 5120)]
    [20, 50, 992, 4992, 4992, 5120]
    """
    return number - number % _step(min(number, window))


def _step(n_points: int) -> int:
    """Return the largest power of two that is at most a sixteenth of n_points; at least 1."""
    return 1 << (max(n_points // _FORESTS_PER_WINDOW, 1).bit_length() - 1)


def _longest_delay(window: int) -> int:
    """Return the largest number of points that can lie between an alarm and the points that explain it."""
    return _step(window) - 1


class NumberedPoints(Protocol):
    """The latest points of a stream, numbered as they arrived; a forest with a window, for example."""

    @property
    def sampler(self) -> Sampler:
        """The sampler that holds the points. After it is replaced, the same numbers may stand for other points."""

    def numbered_points(self, first: int, end: int) -> Array:
        """Return those points with the numbers first, ..., end - 1 that are in the window, oldest first."""

    def n_numbered_points(self, first: int, end: int) -> int:
        """Return how many of the points with the numbers first, ..., end - 1 are in the window."""


class _Reference(NamedTuple):
    """A forest that explains alarms, and what it depends on."""

    sampler: Sampler  # of the forest of the detector
    end: int  # the number of its last point, plus 1
    n_points: int  # that the forest was built on; if points are forgotten, another forest is built
    forest: MondrianForest


class AlarmExplainer:
    """Explains the alarms of a detector with the points before them.

    The last reference forest is stored and used for the next alarms. It is not part of the state of the detector: it
    depends only on the points of the window, and is built again when it is needed.

    Parameters
    ----------
    parameters : dict
        The parameters of the detector.
    """

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._parameters = parameters
        self._layout = RowLayout.of(parameters)
        self._reference: _Reference | None = None

    def reasons(
        self, points: NumberedPoints, number: int, point: Array | None, row: Array | None = None
    ) -> tuple[AlarmReason, ...]:
        """Return the reasons for an alarm, largest share first, at most five; none if too few points came before it.

        Parameters
        ----------
        points : NumberedPoints
            The latest points of the detector; a `StreamDetector` passes its forest.
        number : int
            The number of the point that is an alarm, or the next number if the point is not learned.
        point : array of shape (n_values,) or None
            The point. None: the point with this number in the window.
        row : array of shape (n_features,), optional
            With the preset "series": the row from which the deviations in the point were computed.
        """
        reference = self._reference_for(points, number)
        if reference is None:
            return ()
        if point is None:
            point = points.numbered_points(number, number + 1)[0]
        return _reasons(reference, point, row, self._layout, self._parameters["kind"])

    def release(self, number: int | None) -> None:
        """Free the reference forest unless it can explain the point with this number; if None, always free it."""
        end = None if number is None else reference_end(number, self._parameters["window"])
        if self._reference is not None and self._reference.end != end:
            self._reference = None

    def _reference_for(self, points: NumberedPoints, number: int) -> MondrianForest | None:
        """Return the forest that explains the point with this number; None if it would have too few points."""
        window = self._parameters["window"]
        end = reference_end(number, window)
        first = end - n_reference_points(window)
        key = points.sampler, end, points.n_numbered_points(first, end)
        if key[-1] < _MIN_POINTS:
            return None
        if self._reference is None or self._reference[:-1] != key:
            self._reference = None  # frees the old forest before the new one is built
            built = _reference_forest(points.numbered_points(first, end), self._layout, self._parameters)
            self._reference = _Reference(*key, built)
        return self._reference.forest


def _reference_forest(points: Array, layout: RowLayout, parameters: dict[str, Any]) -> MondrianForest:
    """Return a forest on the points before an alarm."""
    return MondrianForest(
        min(parameters["n_trees"], _N_TREES),
        max_samples=min(parameters["max_samples"] or MAX_SAMPLES, len(points)),
        scale=layout.forest_scale(parameters["scale"]),
        seed=parameters["seed"],
        categorical=layout.categorical_values,
    ).build(points)


def _reasons(
    reference: MondrianForest, point: Array, row: Array | None, layout: RowLayout, kind: Kind
) -> tuple[AlarmReason, ...]:
    """Return the reasons why a point is anomalous in the reference forest, largest share first."""
    parts = layout.features_of_parts(reference.explain(point[None], kind)[0])
    if row is not None:
        return _series_reasons(reference, point, row, parts)
    shares = np.abs(parts) / max(np.abs(parts).sum(), np.finfo(float).tiny)
    leading = np.argsort(-shares, kind="stable")[:N_REASONS]
    rows, features = np.divmod(leading, layout.n_features)
    expected = reference.expected_values(point[None], rows * layout.width + features)
    values = layout.features_of_points(point[None])[0]
    is_number = ~np.isin(features, layout.categorical)
    columns = (
        features,
        layout.size - 1 - rows,
        shares[leading],
        values[leading],
        (parts[leading] > 0.0) & is_number,
        expected.median[0],
        expected.low[0],
        expected.high[0],
    )
    reasons = [AlarmReason(*reason) for reason in zip(*(column.tolist() for column in columns), strict=True)]
    return tuple(_with_count(reason, reference, layout) for reason in reasons)


def _series_reasons(reference: MondrianForest, point: Array, row: Array, parts: Array) -> tuple[AlarmReason, ...]:
    found = (part._asdict() for part in series_parts(reference, point, row, parts, N_REASONS))
    return tuple(AlarmReason(**part | {"lag": 0, "view": VIEWS[part["view"]]}) for part in found)


def _with_count(reason: AlarmReason, reference: MondrianForest, layout: RowLayout) -> AlarmReason:
    """Add how many points before the alarm had the same category; a number is returned unchanged."""
    if reason.feature not in layout.categorical:
        return reason
    position = (layout.size - 1 - reason.lag) * layout.width + reason.feature
    counts, n_points = reference.category_counts(position, [reason.value])
    return reason._replace(count=int(counts[0]), n_points=n_points)

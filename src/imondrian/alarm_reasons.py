"""The reasons for an alarm on a stream: the features that make a point anomalous, and what was expected instead.

They come from a small forest that is built, when needed, on the points just before the alarm. The forest of the
detector has learned the point and later ones by then; and the result must not depend on how the stream is divided into
calls.
"""

from typing import Any

import numpy as np

from imondrian.defaults import MAX_SAMPLES
from imondrian.engine.jit import Array
from imondrian.forest import MondrianForest
from imondrian.incidents import N_REASONS, AlarmReason
from imondrian.option_types import VIEWS
from imondrian.row_layout import RowLayout
from imondrian.series_explanations import series_parts

_N_TREES = 32
_MIN_POINTS = 8  # with fewer points before it, an alarm is not explained


def n_reference_points(window: int) -> int:
    """Return how many points before an alarm explain it; the rest of the window is the longest block of rows."""
    return max(window // 2, 1)


def alarm_reasons(
    before: Array, point: Array, parameters: dict[str, Any], row: Array | None = None
) -> tuple[AlarmReason, ...]:
    """Return the reasons for an alarm, largest share first, at most five; none if there are too few points before it.

    Parameters
    ----------
    before : array of shape (n_points, n_values)
        The points before the alarm, as the forest of the detector holds them.
    point : array of shape (n_values,)
        The point that is an alarm.
    parameters : dict
        The parameters of the detector.
    row : array of shape (n_features,), optional
        With the preset "series": the row, of which the point has the deviations.
    """
    if len(before) < _MIN_POINTS:
        return ()
    layout = RowLayout.of(parameters)
    reference = _reference(before, layout, parameters)
    parts = layout.features_of_parts(reference.explain(point[None], parameters["kind"])[0])
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
    value = (layout.size - 1 - reason.lag) * layout.width + reason.feature
    counts, n_points = reference.category_counts(value, [reason.value])
    return reason._replace(count=int(counts[0]), n_points=n_points)


def _reference(before: Array, layout: RowLayout, parameters: dict[str, Any]) -> MondrianForest:
    """Return a forest on the points before an alarm."""
    return MondrianForest(
        min(parameters["n_trees"], _N_TREES),
        max_samples=min(parameters["max_samples"] or MAX_SAMPLES, len(before)),
        scale=layout.forest_scale(parameters["scale"]),
        seed=parameters["seed"],
        categorical=layout.categorical_values,
    ).build(before)
